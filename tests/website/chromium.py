"""A headless Chromium: its window, its logs and its pictures."""

import base64
import json
import shutil
from typing import NamedTuple

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    # No name is looked up, so that a page with a foreign script fails at once.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
THEME = """
document.documentElement.dataset.theme = arguments[0];
document.documentElement.dataset.mode = arguments[0];
"""
READY = """
const done = arguments[0];
const math = window.MathJax?.startup?.promise ?? Promise.resolve();
const images = [...document.images];
images.forEach(image => { image.loading = "eager"; });
Promise.all([math, document.fonts.ready, ...images.map(i => i.decode())])
    .then(() => done(null), error => done(String(error)));
"""
OVERFLOW = """
const root = document.documentElement;
return root.scrollWidth - root.clientWidth;
"""
# Elements beyond the right edge, less those in boxes that are made to be scrolled.
# (The theme cuts off what is too wide, so that the page itself does not grow.)
BEYOND = """
const limit = document.documentElement.clientWidth + 1;
const scrolled = "pre, dialog, .pst-scrollable-table-container, .output_html," +
    " div.math, mjx-container, .headerlink, .visually-hidden, .sd-visually-hidden";
return [...document.querySelectorAll("body *")]
    .filter(e => e.checkVisibility({visibilityProperty: true}) && !e.closest(scrolled))
    .filter(e => e.getBoundingClientRect().right > limit)
    .map(e => e.outerHTML.slice(0, 120));
"""
FINISH = """
document.getAnimations().forEach(a => a.cancel());
"""


class Log(NamedTuple):
    """What a browser reported since the last call."""

    errors: list[str]
    requests: list[str]

    @property
    def foreign(self):
        """Requests that leave the machine."""
        own = ("http://127.0.0.1:", "file:", "data:", "blob:http://127.0.0.1:")
        return [url for url in self.requests if not url.startswith(own)]


def start():
    """Start Chromium, or skip the test where it is absent."""
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is in the extra `browser`"
    )
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and chromedriver):
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    service = webdriver.ChromeService(chromedriver)
    return webdriver.Chrome(options=options, service=service)


def load(browser, url):
    """Open a page; wait for its mathematics, fonts and pictures."""
    browser.get(url)
    error = browser.execute_async_script(READY)
    assert error is None, f"{url}: {error}"


def resize(browser, width, height=900):
    """Set the size of the window, in CSS pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1}
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", metrics | {"mobile": False}
    )


def set_theme(browser, theme):
    """Show the page in its ``light`` or ``dark`` colours."""
    browser.execute_script(THEME, theme)


def overflow(browser):
    """Return by how many pixels the page is too wide, and the elements cut off."""
    return browser.execute_script(OVERFLOW), browser.execute_script(BEYOND)


def picture(browser, path):
    """Write a picture of the page, of at most 8000 pixels in height."""
    browser.execute_script(FINISH)
    size = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = size | {"x": 0, "y": 0, "height": min(size["height"], 8000), "scale": 1}
    shot = {"captureBeyondViewport": True, "clip": clip}
    data = browser.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(data))


def take_log(browser):
    """Return the errors and the requests since the last call."""
    console = browser.get_log("browser")
    errors = [e["message"] for e in console if e["level"] in ("SEVERE", "WARNING")]
    messages = [
        json.loads(e["message"])["message"] for e in browser.get_log("performance")
    ]
    sent = [m for m in messages if m["method"] == "Network.requestWillBeSent"]
    return Log(errors, [m["params"]["request"]["url"] for m in sent])
