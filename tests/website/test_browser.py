"""The built site in headless Chromium, without a network.

``SKVNCE_SITE`` names the folder of the site (default: ``doc/_build``), and pictures of
the pages are written to the folder ``SKVNCE_SCREENSHOTS`` if it is set.
"""

import gzip
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
CARD = ".sd-card:has(a.sd-stretched-link)"
CARDS = {  # each leads to a section of the same title
    "A filled table": "start/decide.html#decide-table",
    "A predictive model": "start/decide.html#decide-model",
    "A published analysis": "start/decide.html#decide-analysis",
    "A graph": "start/decide.html#decide-graph",
    "A density of my own": "start/decide.html#decide-density",
    "Larger than memory": "start/decide.html#decide-large",
}
KILOBYTES = 400  # of the first page, as a server sends it
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
    "benchmarks/pooling_coverage.html",
    "benchmarks/safety.html",
    "developer/index.html",
    "developer/conventions.html",
    "genindex.html",
    "search.html",
]


# The title of the section that an address names.
SECTION = """
const target = document.getElementById(location.hash.slice(1));
const title = target.closest("section").querySelector(":scope > :is(h1, h2, h3)");
return title.firstChild.data.trim();
"""
LOADED = "return performance.getEntriesByType('resource').map(entry => entry.name)"
# The words of names in the heading, and the lines on which each stands.
LINES = """
const range = document.createRange();
const texts = [...document.querySelector("h1").childNodes]
    .filter(node => node.nodeType === Node.TEXT_NODE && !node.data.includes(" "));
return texts.map(text => {
    range.selectNode(text);
    return [text.data, [...range.getClientRects()].map(box => box.top)];
});
"""


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


def texts(browser, css):
    return [e.text for e in browser.find_elements("css selector", css)]


def heading(browser):
    """Return the text of the only h1 of the page."""
    [text] = browser.execute_script(
        "return [...document.querySelectorAll('h1')]"
        ".map(e => e.firstChild.parentElement.innerText.replace('#', '').trim())"
    )
    return text


def click(browser, element):
    """Click an element that may have to be scrolled to."""
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def test_cards_lead_to_their_sections(site, browser):
    chromium.load(browser, site)
    links = browser.find_elements("css selector", f"{CARD} a.sd-stretched-link")
    cards = [(a.get_attribute("textContent"), a.get_attribute("href")) for a in links]
    shown = texts(browser, f"{CARD} .sd-card-title")
    leads = {
        title: a.removeprefix(site) for title, (_, a) in zip(shown, cards, strict=True)
    }
    assert leads == CARDS
    for i, (title, address) in enumerate(cards):
        chromium.load(browser, site)
        click(browser, browser.find_elements("css selector", CARD)[i])
        assert browser.current_url == address
        assert browser.execute_script(SECTION) == title.strip()


def compressed(address, site):
    """Return the size of a file of the site, as servers send text."""
    data = (built_site() / address.removeprefix(site).split("?")[0]).read_bytes()
    return min(len(data), len(gzip.compress(data)))


def test_first_page_is_light(site, browser):
    chromium.load(browser, site + "index.html")
    addresses = [site + "index.html", *browser.execute_script(LOADED)]
    own = {a for a in addresses if a.startswith(site)}
    assert any("pydata-sphinx-theme.css" in a for a in own)
    assert sum(compressed(a, site) for a in own) < KILOBYTES * 1000
    growth = compressed("_images/growth.png", site)  # a control: pictures count in full
    assert growth > 0.9 * (built_site() / "_images" / "growth.png").stat().st_size


def test_first_page_leads_to_the_installation(site, browser):
    chromium.load(browser, site)
    links = browser.find_elements("css selector", ".bd-header a.nav-link")
    shown = {a.text.strip(): a for a in links if a.is_displayed()}
    assert list(shown) == ["Install", "Start", "How to", "User guide", "Reference"]
    click(browser, shown["Install"])
    assert heading(browser) == "Install"


def test_search_finds_the_page_on_draws(site, browser):
    chromium.load(browser, site)
    button = "button.search-button, button.search-button-field"
    shown = [e for e in browser.find_elements("css selector", button)]
    click(browser, next(e for e in shown if e.is_displayed()))
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
    assert links, texts(browser, "#search-results li > a")
    click(browser, links[0])
    wait(browser, lambda: "pooling.html" in browser.current_url)
    assert "pool" in heading(browser).lower()


def wait(browser, condition, seconds=10):
    """Wait until the condition holds."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, seconds, poll_frequency=0.05).until(lambda _: condition())


@pytest.mark.parametrize(
    "address, expected",
    [
        ("index.html", "imputer = TableImputer(random_state=0)"),
        ("start/first_ten_minutes.html", "python -m pip install"),
        ("start/first_ten_minutes.html", "from skvnce import TableImputer\n"),
    ],
)
def test_copy_button_copies_code_without_prompts(site, browser, address, expected):
    origin = {"origin": site.rstrip("/"), "permissions": ["clipboardReadWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", origin)
    chromium.load(browser, site + address)
    blocks = browser.find_elements("css selector", "div.highlight")
    shown = [b.find_element("css selector", "pre").text for b in blocks]
    first = expected.splitlines()[0]
    at = next(i for i, text in enumerate(shown) if first in text)
    button = blocks[at].find_element("css selector", "button.copybtn")
    click(browser, button)
    wait(browser, lambda: "success" in button.get_attribute("class"))
    copied = browser.execute_async_script(
        "navigator.clipboard.readText().then(arguments[0], e => arguments[0](`${e}`))"
    )
    assert copied.strip() == without_prompts(shown[at])
    assert expected in copied


def without_prompts(text):
    """Return the input of a doctest, or the text where there are no prompts."""
    lines = text.strip().splitlines()
    kept = [line[4:] for line in lines if line[:4] in (">>> ", "... ")]
    return "\n".join(kept or lines)


def test_mathematics_is_rendered(site, browser):
    chromium.load(browser, site + "user_guide/vgi.html")
    formulas = len(browser.find_elements("css selector", ".math"))
    assert formulas > 5
    assert len(browser.find_elements("css selector", "mjx-container")) >= formulas
    assert not browser.find_elements("css selector", "mjx-merror")


def test_long_names_in_headings_break_between_words(site, browser):
    chromium.resize(browser, 400)
    chromium.load(browser, site + "user_guide/graph.html")
    words = browser.execute_script(LINES)
    assert [word for word, _ in words] == ["Gaussian", "Graph", "Learner"]
    assert all(len(lines) == 1 for _, lines in words)
    assert len({lines[0] for _, lines in words}) > 1
    assert heading(browser).endswith(": TruncatedGaussianGraphLearner")


def test_mode_button_changes_the_colours(site, browser):
    chromium.load(browser, site)
    colours = {}
    for theme in THEMES:
        for css in ("theme-switch-button", f"theme-change-button[data-mode={theme}]"):
            buttons = browser.find_elements("css selector", f"button.{css}")
            next(b for b in buttons if b.is_displayed()).click()
        script = "return getComputedStyle(document.body).backgroundColor"
        colours[theme] = browser.execute_script(script)
    browser.execute_script("localStorage.clear()")
    assert colours["light"] == "rgb(255, 255, 255)" != colours["dark"]


def test_menu_of_narrow_windows_leads_to_the_guide(site, browser):
    chromium.resize(browser, 400)
    chromium.load(browser, site)
    browser.find_element("css selector", "button.primary-toggle").click()
    css = "dialog#pst-primary-sidebar-modal a[href$='user_guide/index.html']"
    link = browser.find_element("css selector", css)
    wait(browser, link.is_displayed)
    link.click()
    assert heading(browser) == "User guide"


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


BAD = """<html><head><link rel="icon" href="data:,"></head><body><h1>Bad</h1>
<div style="width: 2000px; height: 3px">wide</div>
<script>console.error("wrong"); fetch("http://192.0.2.1/a").catch(e => 0)</script>
</body></html>"""


def test_faults_are_found(started, tmp_path):
    (tmp_path / "index.html").write_text(BAD)
    server = serve(tmp_path)
    chromium.resize(started, 1400)
    chromium.take_log(started)
    chromium.load(started, f"http://127.0.0.1:{server.server_port}/")
    excess, elements = chromium.overflow(started)
    server.shutdown()
    server.server_close()
    log = chromium.take_log(started)
    assert log.foreign == ["http://192.0.2.1/a"]
    assert any("wrong" in message for message in log.errors)
    assert excess > 500
    assert "2000px" in elements[0]
