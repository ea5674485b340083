"""Which columns of text are identifiers or free text, and are passed through."""

import numpy as np
import pandas as pd
import pytest

from skvnce._tables.column_kinds import PASSED, read_columns
from skvnce._tables.findings.columns import FEWEST, is_identifier, modelled_columns

N = 200


def text(n_levels, n=N, words=1):
    """Make cells of as many levels, each of some words."""
    return [" ".join([f"level{k % n_levels}"] * words) for k in range(n)]


def kind_of(cells, **options):
    columns = modelled_columns(pd.DataFrame({"a": cells}), **options)
    return columns[0].kind


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (text(N), PASSED),
        ([*text(101, 101), *text(20, 99)], PASSED),
        ([*text(100, 100), *text(20, 100)], "nominal"),  # two cells for each level
        (text(30), "nominal"),
        (text(30, words=5), PASSED),
        (text(30, words=4), "nominal"),
        (text(20, words=9), "nominal"),  # answers of a form
        ([*text(29, 29), "a b c d e f g h i"] * 6, "nominal"),  # one is long
        (text(FEWEST, FEWEST), PASSED),
        (text(FEWEST - 1, FEWEST - 1), "nominal"),  # too few cells to know
        (text(8, 10), "nominal"),
        (text(FEWEST - 5, FEWEST - 5, words=12), PASSED),  # few comments
        (text(3, FEWEST - 5, words=12), "nominal"),
        (text(100)[: N - 13], "nominal"),  # two rows of subjects, and lost names
        (text(100, words=5)[: N - 13], PASSED),
        ([*text(N // 2, N // 2), *["level0"] * 80], PASSED),  # one frequent level
        (pd.Categorical(text(N)), PASSED),
        (pd.Categorical(text(N), ordered=True), "ordinal"),
    ],
)
def test_names_and_sentences_are_passed_through(cells, kind):
    assert kind_of(cells) == kind


def test_only_observed_cells_count():
    cells = pd.Series(text(40), dtype=object)
    assert kind_of(cells) == "nominal"
    assert kind_of(cells.where(np.arange(N) < 60)) == PASSED


@pytest.mark.parametrize("kind", ["nominal", "ordinal"])
def test_what_is_asked_for_is_modelled(kind):
    assert kind_of(text(N), categorical_features={"a": kind}) == kind
    assert kind_of(text(5), categorical_features={"a": PASSED}) == PASSED
    columns = modelled_columns(pd.DataFrame({"a": text(N)}), ["a"])
    assert columns[0].kind == "nominal"


def test_numbers_are_never_names():
    X = pd.DataFrame({"i": np.arange(N), "x": np.linspace(0, 1, N), "s": "a"})
    assert modelled_columns(X) == read_columns(X)
    assert modelled_columns(X.drop(columns="s")) is None
    assert not any(is_identifier(column, [N]) for column in modelled_columns(X))


def test_any_data_type_is_passed_through_if_asked():
    X = pd.DataFrame(
        {
            "x": np.linspace(0, 1, N),
            "i": np.arange(N),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N), "D"),
        }
    )
    asked = dict.fromkeys(["i", "day"], PASSED)
    assert [one.kind for one in modelled_columns(X, asked)] == [
        "numeric",
        PASSED,
        PASSED,
    ]
