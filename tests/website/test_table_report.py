"""The page of `missing_report` in headless Chromium, at two widths and in two colours.

Pictures are written to the folder ``SKVNCE_SCREENSHOTS`` if it is set.
"""

import os
from pathlib import Path

import chromium
import numpy as np
import pytest

from skvnce.datasets import load_nhanes
from skvnce.evaluation import missing_report

pytestmark = pytest.mark.site
PICTURES = os.environ.get("SKVNCE_SCREENSHOTS")
COLOURS = """
const style = getComputedStyle(document.querySelector(".skvnce-report"));
return [style.color, style.backgroundColor];
"""
LONG = "word" * 40


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    table = load_nhanes(as_frame=True, categories=True).data
    table[LONG] = np.where(table["Gender"] == "male", LONG + "x", LONG + "y")
    table["<script>document.title='run'</script>"] = table["Weight"]
    report = missing_report(table, n_rows=200, random_state=0)
    return report.save(tmp_path_factory.mktemp("report") / "page.html")


@pytest.fixture(scope="module")
def browser():
    browser = chromium.start()
    yield browser
    browser.quit()


def brightness(colour):
    """Return the mean of red, green and blue of "rgb(1, 2, 3)"."""
    return np.mean([float(one) for one in colour[4:-1].split(",")])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits_the_window(browser, page, width, theme):
    chromium.take_log(browser)
    chromium.resize(browser, width)
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    chromium.load(browser, page.as_uri())
    assert browser.title == "Report of a table with missing values"
    assert chromium.overflow(browser) == (0, [])
    text, back = map(brightness, browser.execute_script(COLOURS))
    assert (text - back > 150) == (theme == "dark")
    assert abs(text - back) > 150
    if PICTURES:
        name = f"table_report_{width}_{theme}.png"
        chromium.picture(browser, Path(PICTURES) / name)
    log = chromium.take_log(browser)
    assert log.requests and not log.errors and not log.foreign


def test_links_lead_to_sections(browser, page):
    chromium.load(browser, page.as_uri())
    links = browser.find_elements("css selector", ".skvnce-report nav a")
    assert len(links) == 7
    for link in links:
        key = link.get_attribute("href").rpartition("#")[2]
        assert browser.find_elements("id", key)
