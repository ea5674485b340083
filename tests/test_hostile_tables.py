"""Hostile tables, searched at random: a finite answer, or an error that says why.

An error is right only for cells that are too large or too small to be squared, and
where nothing varies that a model could learn: see `must_be_answered`.

`SKVNCE_TEST_SEED` chooses other tables.
"""

import os
import re

import numpy as np
import pytest
from cases import PREDICTORS, SMALL
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from sklearn.base import clone

import skvnce
from skvnce import IncompleteFactorAnalysis, VariationalAutoencoder
from skvnce.testing._requirements import draws_cells, imputes, is_positive

pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings(
        "ignore::UserWarning",  # tables of a few rows do not settle
        "ignore::RuntimeWarning",  # of overflows: what comes of them is checked
    ),
]

FEW_ROWS, MANY_ROWS, COLUMNS = (2, 12), (60, 200), (1, 6)
COLUMN = ["normal", "exponential", "cauchy", "integer", "binary", "repeated", "outlier"]
COLUMN += ["constant", "zero", "single", "copy", "close", "empty"]
HIDDEN = ["none", "few", "half", "rows", "together", "first half"]
ADVICE = "column|row|cell|Rescale|Drop|Lower|Raise"

SQUARED = (1e-100, 1e100)  # absolute values that are far from the ends of float64
# Need a column that varies; the others fill a table of constant columns, too.
NEED_VARIATION = (IncompleteFactorAnalysis, VariationalAutoencoder)


# Tables of a default run, and of the run of the slow tests: by the cost of a fit.
GRAPHS = "TruncatedGaussianGraphLearner"
COUNTS = {
    "GaussianImputer": (10, 250),
    "TableImputer": (10, 250),
    "ColumnImputer": (3, 60),
    "ConstrainedImputer": (3, 60),
    "MixtureImputer": (10, 250),
    "IncompleteFactorAnalysis": (40, 500),
    "NoisyOr": (10, 500),
    GRAPHS: (6, 250),
    "TruncatedGaussianGraphLearnerCV": (2, 30),
    "CopulaGraphLearner": (6, 100),
    "CopulaGraphLearnerCV": (2, 30),
    "VNCEEstimator": (6, 200),
    "VariationalAutoencoder": (2, 40),
    "LAIRImputer": (2, 30),
    "VGIImputer": (1, 10),
}
CASES = {name: (SMALL[name], *counts) for name, counts in COUNTS.items()}
NORMAL, GRAPH = map(clone, (CASES[name][0] for name in ("GaussianImputer", GRAPHS)))
CASES["normal"] = (NORMAL.set_params(marginals="normal"), 15, 250)
CASES["few links"] = (GRAPH.set_params(alpha=0.1), 6, 250)


# The same of tables with rows enough for held-out cells and for calibration.
LONGER = {
    "GaussianImputer": (8, 150),
    "normal": (8, 150),
    "MixtureImputer": (4, 100),
    "TableImputer": (4, 100),
    "IncompleteFactorAnalysis": (8, 150),
    GRAPHS: (1, 6),
    "CopulaGraphLearner": (1, 6),
    "VNCEEstimator": (1, 30),
    "LAIRImputer": (1, 15),
}


@st.composite
def tables(draw, n_rows):
    """Draw a table; its cells follow from a seed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(*n_rows)), draw(st.integers(*COLUMNS))
    kinds = [draw(st.sampled_from(COLUMN)) for _ in range(d)]
    x = np.empty((n, d))
    for j, kind in enumerate(kinds):
        x[:, j] = cells(kind, n, x[:, :j], rng)
        power = draw(st.sampled_from([0, 0, 0, 8, -8, 30, -30, 150, -150]))
        offset = draw(st.sampled_from([0.0, 0.0, 0.0, 1.0, 1e8]))
        if kind not in ("integer", "binary", "copy", "close"):
            x[:, j] = (x[:, j] + offset) * 10.0**power
    x[hidden(draw(st.sampled_from(HIDDEN)), n, d, rng)] = np.nan
    for j, kind in enumerate(kinds):
        if kind == "empty":
            x[:, j] = np.nan
        if kind == "single":
            x[np.arange(n) != rng.integers(n), j] = np.nan
    return arranged(x, draw(st.sampled_from(["C", "F", "strided", "float32"])))


def cells(kind, n, before, rng):
    """Draw the cells of a column, given those before it."""
    z = rng.normal(size=n)
    if kind in ("copy", "close") and before.shape[1]:
        own = before[:, rng.integers(before.shape[1])]
        return own if kind == "copy" else own * (1 + 1e-3 * z)
    if kind == "outlier":
        z[rng.integers(n)] = 10.0 ** rng.integers(3, 13)
    return {
        "exponential": rng.exponential(size=n),
        "cauchy": rng.standard_cauchy(n),
        "integer": rng.integers(-5, 100, n).astype(float),
        "binary": rng.integers(0, 2, n).astype(float),
        "repeated": rng.choice([0.5, 1.0, 7.0], n),
        "constant": np.full(n, 3.0),
        "zero": np.zeros(n),
    }.get(kind, z)


def hidden(kind, n, d, rng):
    """Choose the missing cells."""
    missing = np.zeros((n, d), dtype=bool)
    if kind in ("few", "half"):
        missing = rng.random((n, d)) < (0.2 if kind == "few" else 0.5)
    if kind == "rows":
        missing[rng.random(n) < 0.4] = True
    if kind == "together":
        missing[: n // 3, : max(1, d - 1)] = True
    if kind == "first half":
        missing[: n // 2, ::2] = True
    return missing


def arranged(x, kind):
    """Lay the cells out in memory; single precision holds fewer scales."""
    if kind == "float32":
        most = np.finfo(np.float32).max
        return np.clip(x, -most, most).astype(np.float32)
    if kind == "strided":
        return np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2]
    return np.asarray(x, order=kind)


def must_be_answered(estimator, X):
    """Tell whether an estimator may not refuse a table."""
    size = abs(X[np.isfinite(X) & (X != 0)].astype(float))
    if len(size) and not SQUARED[0] <= size.min() <= size.max() <= SQUARED[1]:
        return False
    numbers = [len(np.unique(column[~np.isnan(column)])) for column in X.T]
    return max(numbers) >= (2 if isinstance(estimator, NEED_VARIATION) else 1)


def hold(estimator, X):
    """Check that there is a finite answer, or an error that says why not."""
    if is_positive(estimator):
        X = abs(X)
    before = X.copy()
    try:
        model = clone(estimator).fit(X)
    except (ValueError, TypeError) as error:
        known = "|".join([ADVICE, *estimator.get_params(deep=False)])
        assert re.search(known, str(error)), error
        assert not must_be_answered(estimator, X), error
        return
    finally:
        np.testing.assert_array_equal(X, before)
    new = np.vstack([X[::-1], np.full((1, X.shape[1]), np.nan, X.dtype)])
    for rows in (X, new):
        answers = [model.transform(rows)]
        if draws_cells(model):
            answers += list(np.asarray(model.sample(rows, 2, random_state=0)))
        for found in answers:
            _sound(model, np.asarray(found), rows, X)
        if hasattr(model, "score_samples"):
            assert np.isfinite(model.score_samples(rows)).all()
    np.testing.assert_array_equal(X, before)


def _sound(model, found, rows, X):
    """Check one table of answers of a model that was fitted to X."""
    assert np.isfinite(found).all() and found.dtype == rows.dtype
    if not imputes(model):
        return
    kept = model._schema.returned
    seen = ~np.isnan(rows[:, kept])
    np.testing.assert_array_equal(found[seen], rows[:, kept][seen])
    ranges = getattr(model, "feature_ranges_", None)
    if ranges is not None:
        low, high = ranges[:, kept].astype(rows.dtype)
        filled = ~seen & np.isin(kept, model.feature_indices_)
        assert ((found >= low) & (found <= high))[filled].all()
    for place, column in enumerate(X[:, kept].T):
        values = np.unique(column[~np.isnan(column)])
        if len(values) == 1:
            assert (found[~seen[:, place], place] == values).all()


def search(estimator, count, n_rows=FEW_ROWS):
    """Try tables, and show the smallest one that fails."""

    @seed(int(os.environ.get("SKVNCE_TEST_SEED", "0")))
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(tables(n_rows))
    def check(X):
        hold(estimator, X)

    check()


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", CASES)
def test_some_hostile_tables(name):
    estimator, count, _ = CASES[name]
    search(estimator, count)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_hostile_tables(name):
    estimator, _, count = CASES[name]
    search(estimator, count)


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", LONGER)
def test_some_longer_hostile_tables(name):
    search(CASES[name][0], LONGER[name][0], MANY_ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONGER)
def test_many_longer_hostile_tables(name):
    search(CASES[name][0], LONGER[name][1], MANY_ROWS)


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", CASES)
def test_plain_tables_are_answered(name, seed):
    """Tables of ordinary columns and a constant one, with cells missing in each."""
    estimator, rng = CASES[name][0], np.random.default_rng(seed)
    kinds = ["normal", "integer", "binary", "exponential", "constant"]
    X = np.column_stack([cells(kind, 12, None, rng) for kind in kinds])
    X[rng.permuted(np.eye(12, 5, dtype=bool))] = np.nan
    assert must_be_answered(estimator, X)
    hold(estimator, X)


def test_every_class_is_searched():
    classes = {type(estimator).__name__ for estimator, *_ in CASES.values()}
    public = {name for name in skvnce.__all__ if hasattr(getattr(skvnce, name), "fit")}
    assert classes | {type(one).__name__ for one in PREDICTORS} == public
