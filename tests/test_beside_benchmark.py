"""The table of what the default imputer loses, beside other methods."""

import pytest
from _beside import DEFAULT, beside, by_place, written

TABLES = {
    DEFAULT: {("a", 0): 2.0, ("a", 1): 1.0, ("b", 0): 1.0, ("c", 0): 0.0},
    "better": {("a", 0): 1.0, ("a", 1): 0.5, ("b", 0): 0.25, ("c", 0): 1.0},
    "worse": {("a", 0): 8.0, ("b", 0): 2.0},
    "absent": {("d", 0): 1.0},
}


def test_ratios_are_of_seeds_that_both_have():
    assert by_place(TABLES[DEFAULT], TABLES["worse"]) == {"a": 0.25, "b": 0.5}


def test_scores_of_zero_are_left_out():
    ratios = by_place(TABLES[DEFAULT], TABLES["better"])
    assert ratios == pytest.approx({"a": 2.0, "b": 4.0})


def test_losses_are_bold_and_counted():
    assert written({"a": 2.0, "b": 8.0}) == "**4.000** (2 of 2)"
    assert written({"a": 1.01, "b": 0.5}) == "0.711 (0 of 2)"
    assert written({}) == "-"


def test_methods_without_common_tables_are_left_out():
    title, _, lines = beside(list(TABLES), {"score": TABLES.get})
    assert title == f"## Where {DEFAULT} loses"
    rows = lines.splitlines()[2:]
    assert rows == ["| better | **2.828** (2 of 2) |", "| worse | 0.354 (0 of 2) |"]


def test_pages_without_the_default_have_no_such_table():
    assert (
        beside(["better"], {"score": {"better": TABLES["better"], DEFAULT: {}}.get})
        == []
    )
