"""The built site in headless Chromium, without a network.

``SKVNCE_SITE`` names the folder of the site (default: ``doc/_build``), and pictures of
the pages are written to the folder ``SKVNCE_SCREENSHOTS`` if it is set.
"""

import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import chromium
import pytest
from site_pages import ROOT, built_site

pytestmark = pytest.mark.site
WIDTHS = (1400, 400)
THEMES = ("light", "dark")
PICTURES = os.environ.get("SKVNCE_SCREENSHOTS")


def written(pattern):
    """Return the addresses of written pages."""
    found = sorted((ROOT / "doc").glob(pattern))
    return [str(p.relative_to(ROOT / "doc").with_suffix(".html")) for p in found]


PAGES = [
    *written("*.rst"),
    *written("*.md"),
    *written("start/*.rst"),
    *written("how_to/*.rst"),
    *written("user_guide/*.rst"),
    *written("coming_from/*.rst"),
    "generated/skvnce.GaussianImputer.html",
    "generated/skvnce.MultipleImputationRegressor.html",
    "generated/skvnce.VNCEEstimator.html",
    "generated/skvnce.pooling.pool_models.html",
    "auto_examples/index.html",
    "auto_examples/impute/plot_impute_nhanes.html",
    "auto_examples/graphs/plot_sachs.html",
    "benchmarks/index.html",
    "benchmarks/imputation.html",
    "benchmarks/mixed.html",
    "benchmarks/pooling_models.html",
    "benchmarks/protocols.html",
    "developer/index.html",
    "developer/conventions.html",
    "genindex.html",
    "search.html",
]


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Keep quiet."""


def serve(folder):
    """Serve a folder on 127.0.0.1; return the server."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Handler, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def site():
    server = serve(built_site())
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def started():
    browser = chromium.start()
    yield browser
    browser.quit()


@pytest.fixture
def browser(started):
    """A wide window; after the test, nothing was reported and nothing left."""
    chromium.resize(started, 1400)
    chromium.take_log(started)
    yield started
    log = chromium.take_log(started)
    assert log.requests
    assert not log.errors
    assert not log.foreign


def heading(browser):
    """Return the text of the only h1 of the page."""
    [text] = browser.execute_script(
        "return [...document.querySelectorAll('h1')]"
        ".map(e => e.firstChild.parentElement.innerText.replace('#', '').trim())"
    )
    return text


def test_search_finds_the_page_on_draws(site, browser):
    chromium.load(browser, site)
    button = "button.search-button, button.search-button-field"
    shown = [e for e in browser.find_elements("css selector", button)]
    next(e for e in shown if e.is_displayed()).click()
    fields = browser.find_elements("css selector", "input[type=search]")
    field = next(e for e in fields if e.is_displayed())
    field.send_keys("draws")
    field.submit()
    wait(browser, lambda: "search.html" in browser.current_url)
    wait(browser, lambda: "Search finished" in browser.page_source, 20)
    results = browser.find_elements("css selector", "#search-results li > a")
    links = [
        a for a in results if "/user_guide/pooling.html" in a.get_attribute("href")
    ]
    assert links
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", links[0])
    links[0].click()
    wait(browser, lambda: "pooling.html" in browser.current_url)
    assert "pool" in heading(browser).lower()


def wait(browser, condition, seconds=10):
    """Wait until the condition holds."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, seconds, poll_frequency=0.05).until(lambda _: condition())


def test_mathematics_is_rendered(site, browser):
    chromium.load(browser, site + "user_guide/vgi.html")
    formulas = len(browser.find_elements("css selector", ".math"))
    assert formulas > 5
    assert len(browser.find_elements("css selector", "mjx-container")) >= formulas
    assert not browser.find_elements("css selector", "mjx-merror")


def test_landing_page_opens_from_a_folder(browser):
    chromium.load(browser, (built_site() / "index.html").as_uri())
    assert heading(browser) == "skvnce"


@pytest.mark.parametrize("address", PAGES)
def test_page_fits_the_window(site, browser, address):
    chromium.load(browser, site + address)
    assert heading(browser)
    assert not browser.find_elements("css selector", "mjx-merror")
    for width in WIDTHS:
        chromium.resize(browser, width)
        for theme in THEMES:
            chromium.set_theme(browser, theme)
            excess, elements = chromium.overflow(browser)
            if PICTURES:
                name = address.removesuffix(".html").replace("/", "_")
                path = Path(PICTURES) / f"{name}_{width}_{theme}.png"
                chromium.picture(browser, path)
            assert excess <= 0, (width, theme)
            assert not elements, (width, theme, elements[:5])
