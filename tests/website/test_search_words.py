"""Words that users search for are in the index, and lead to the page of their task."""

import json
import re

import pytest
from site_pages import ROOT, built_site

BLOCK = re.compile(r"^\.\. index::\n((?:   .+\n)+)", re.M)
PAGES = {
    "mixed model": "how_to/repeated_rows",
    "intraclass correlation": "how_to/repeated_rows",
    "sampling weights": "how_to/survey",
    "MNAR": "how_to/not_at_random",
    "sensitivity analysis": "how_to/not_at_random",
    "ICC": "how_to/repeated_rows",
    "identifier": "how_to/impute_a_dataframe",
    "date": "how_to/impute_a_dataframe",
    "odds ratio": "how_to/pooled_regression",
    "skip pattern": "how_to/skip_patterns",
    "time series": "how_to/time_series_by_lags",
    "detection limit": "how_to/detection_limits",
}
HOW_TO = sorted((ROOT / "doc" / "how_to").glob("*.rst"))


def lines_of_index(page):
    """Return the entries of a page, as they are written."""
    return [
        line.strip()
        for block in BLOCK.findall(page.read_text())
        for line in block.splitlines()
    ]


@pytest.mark.parametrize("word", PAGES)
def test_page_of_a_task_has_the_word(word):
    # "! " makes an entry a main one; the search lists the others last
    assert f"! {word}" in lines_of_index(ROOT / "doc" / f"{PAGES[word]}.rst")


def test_each_page_of_how_to_has_words():
    without = [page.stem for page in HOW_TO if not lines_of_index(page)]
    assert without == ["index"]
    for page in HOW_TO:
        assert all(line.startswith("! ") for line in lines_of_index(page)), page


@pytest.mark.site
def test_search_finds_main_entries():
    text = (built_site() / "searchindex.js").read_text()
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip().rstrip(")"))
    for word, page in PAGES.items():
        entries = index["indexentries"][word.lower()]
        assert [index["docnames"].index(page), "index-0", True] in entries
