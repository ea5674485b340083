"""The page "Add an imputer": its imputer has what all imputers have, for nothing."""

import doctest
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skvnce.options import Chunks
from skvnce.testing import nan_checks

FOLDER = Path(__file__).parents[1] / "doc" / "developer"
sys.path.insert(0, str(FOLDER))
from hot_deck import HotDeck, HotDeckImputer  # noqa: E402

NAN_CHECKS = dict(nan_checks(HotDeckImputer()))


def frame():
    """Make a table of all kinds of columns."""
    rng = np.random.default_rng(0)
    x, y = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], size=80).T
    table = pd.DataFrame(
        {
            "x": x,
            "y": y,
            "whole": pd.array(np.round(10 * x).astype(int), dtype="Int64"),
            "kind": pd.Categorical(np.where(x > 0, "high", "low")),
            "when": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 99, 80)),
        }
    )
    table = table.mask(rng.random(table.shape) < 0.2)
    return table.assign(constant=7.0, empty=np.nan)


@pytest.fixture(scope="module")
def fitted():
    with pytest.warns(UserWarning, match="constant|missing"):
        return HotDeckImputer().set_output(transform="pandas").fit(frame())


@parametrize_with_checks([HotDeckImputer()])
def test_checks_of_sklearn(estimator, check):
    check(estimator)


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", NAN_CHECKS)
def test_nan_contract(name):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X (has|does not have valid) feature names")
        NAN_CHECKS[name]()


def test_the_page_runs():
    found = doctest.testfile(str(FOLDER / "add_an_imputer.rst"), module_relative=False)
    assert found.attempted > 3 and not found.failed


def test_neighbours_are_better_than_means(fitted):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 1))
    X = np.hstack([x, x + 0.1 * rng.normal(size=x.shape)])
    holes = X.copy()
    holes[:150, 1] = np.nan
    found = HotDeckImputer().fit(holes).transform(holes)[:150, 1]
    assert ((found - X[:150, 1]) ** 2).mean() < 0.1
    # control: neighbours of another row are of no use
    assert ((found[::-1] - X[:150, 1]) ** 2).mean() > 0.5


def test_draws_intervals_and_probabilities(fitted):
    table = frame()
    one, other = fitted.sample(table, 2, random_state=0)
    assert not one.equals(other) and not one.isna().any(axis=None)
    low, high = fitted.interval(table, 0.8, 99, random_state=0)
    assert (low["x"] <= high["x"]).all() and low["kind"].isna().any()
    chances = fitted.category_probabilities(table)["kind"]
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    missing = table["kind"].isna()
    best = chances[missing].idxmax(axis=1)
    assert (fitted.transform(table)["kind"][missing] == best).all()


def test_where_limits_and_shifts(fitted):
    table = frame()
    missing = table["x"].isna()
    kept = fitted.transform(table, where={"x": np.zeros(80, dtype=bool)})
    assert kept["x"].isna().equals(missing)
    above = fitted.transform(table, lower={"x": 0.5})["x"]
    assert (above[missing] >= 0.5).all()
    found = fitted.sample(table, 20, 0, lower={"x": 0.5})
    above = np.concatenate([one["x"][missing] for one in found])
    assert above.std() > 0.1  # donors, and not all of them at the limit
    follows = fitted.sample(table, 1, 0, reference=table[table["x"] > 0.5])[0]
    assert follows["x"][missing].mean() > 0.5
    shifted, plain = (
        fitted.sample(table, 1, 0, shift=shift)[0]["x"][missing].mean()
        for shift in ({"x": -1.0}, None)
    )
    assert shifted < plain - 0.5
    with pytest.warns(UserWarning, match="without limits"):
        HotDeckImputer(categorical_features=None).fit(
            table[["x", "y"]], lower={"x": 0.5}
        ).transform(table[["x", "y"]])


def test_tables_in_parts_are_those_in_memory():
    X = frame()[["x", "y"]].to_numpy()
    whole, parts = (
        HotDeckImputer().fit(X),
        HotDeckImputer().fit(Chunks([X[:40], X[40:]])),
    )
    expected = whole.transform(X)
    np.testing.assert_array_equal(parts.transform(X), expected)
    found = np.concatenate([*whole.transform(Chunks([X[:30], X[30:]]))])
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="parts"):
        HotDeckImputer().fit(Chunks([X[:40], X[40:]]), lower={0: 0.5})


def test_cells_outside_of_limits_come_last():
    donors = np.array([[0.0, 1.0], [0.0, 2.0], [9.0, 3.0]])
    deck = HotDeck(donors, np.ones(2), np.zeros(2, dtype=int), 1)
    row = np.array([[0.0, np.nan]])
    free = np.array([[-np.inf, -np.inf]]), np.array([[np.inf, np.inf]])
    assert deck.fill(row, free)[0][0, 1] == 1.0
    assert deck.fill(row, (np.array([[-np.inf, 2.5]]), free[1]))[0][0, 1] == 3.0


def test_a_model_may_fill_in_place(fitted, monkeypatch):
    expected = fitted.category_probabilities(frame())["kind"]
    fill = HotDeck.fill

    def in_place(self, nodes, limits=None):
        cells, probabilities = fill(self, nodes, limits)
        nodes[:] = cells
        return nodes, probabilities

    monkeypatch.setattr(HotDeck, "fill", in_place)
    assert fitted.category_probabilities(frame())["kind"].equals(expected)


@pytest.mark.parametrize("method", ["transform", "sample"])
def test_cells_that_a_model_leaves_missing_are_named(method, monkeypatch):
    table = frame().drop(columns=["empty", "when", "constant"])
    fitted = HotDeckImputer().fit(table)
    getattr(fitted, method)(table)
    name = {"transform": "fill", "sample": "draw"}[method]
    known = getattr(HotDeck, name)

    def forgetful(self, nodes, *given):
        found = known(self, nodes, *given)
        cells = found[0] if name == "fill" else found
        cells[..., 0] = np.nan
        return found

    monkeypatch.setattr(HotDeck, name, forgetful)
    place = fitted.feature_indices_[0]
    with pytest.raises(ValueError, match=f"NaN for column {table.columns[place]!r}"):
        getattr(fitted, method)(table)
