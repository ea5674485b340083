"""Copies of columns, which are exact to rounding."""

import pickle

import numpy as np
import pytest

from skvnce import TableImputer

QUICK = {"n_estimators": 0, "n_parameter_draws": 3, "random_state": 0}


def table_of(rng, slope, intercept, n=200):
    """A column, a linear function of it, and a related one; some cells are missing."""
    x = rng.gamma(2, size=n)
    full = np.column_stack([x, slope * x + intercept, x + rng.normal(size=n)])
    return full, np.where(rng.random(full.shape) < 0.2, np.nan, full)


def assert_linear(table, full, slope, intercept):
    """All cells of the first two columns are on the line; single ones are exact."""
    size = abs(full[:, 1]).max()
    line = slope * table[:, 0] + intercept
    np.testing.assert_allclose(table[:, 1], line, rtol=0, atol=1e-12 * size)


LINES = [(1.0, 0.0), (-2.5, 30.0), (1.8, 32.0), (1e-9, 1e-3), (-1e7, 0.0)]


@pytest.mark.parametrize("slope, intercept", LINES)
@pytest.mark.parametrize("strategy", ["mean", "median", "mode"])
def test_copies_are_exact(rng, slope, intercept, strategy):
    full, X = table_of(rng, slope, intercept)
    X[:5, :2] = np.nan  # at least
    imputer = TableImputer(**QUICK, strategy=strategy, min_value=-np.inf).fit(X)
    seen = ~np.isnan(X)
    [first, second] = imputer.sample(X, n_draws=2, random_state=0)
    for table in (imputer.transform(X), first, second):
        assert_linear(table, full, slope, intercept)
        np.testing.assert_array_equal(table[seen], X[seen])
        one = seen[:, 0] ^ seen[:, 1]
        # rounding errors of the second column, in units of each
        size = abs(full[:, 1]).max() * np.array([1 / abs(slope), 1.0])
        assert (abs(table[one] - full[one])[:, :2] / size).max() < 1e-14
    neither = ~seen[:, :2].any(1)
    assert np.ptp((first - second)[neither, 0]) > 0.1  # they are drawn


@pytest.mark.parametrize("slope, intercept", LINES[:3])
def test_quantiles_of_a_falling_copy_are_in_their_order(rng, slope, intercept):
    full, X = table_of(rng, slope, intercept)
    imputer = TableImputer(**QUICK, min_value=-np.inf).fit(X)
    low, high = imputer.quantile(X, [0.1, 0.9])
    assert (low <= high).all()
    ends = np.sort([low[:, 1], high[:, 1]], 0)
    line = np.sort([slope * one[:, 0] + intercept for one in (low, high)], 0)
    np.testing.assert_allclose(ends, line, atol=1e-9)
    neither = np.isnan(X[:, :2]).all(1)
    assert (low < high)[neither, :2].all()


def test_many_copies_and_new_rows(rng):
    full, X = table_of(rng, 2.0, 1.0)
    copies = np.column_stack([3 * full[:, 0], 5 - full[:, 0], full[:, 0]])
    X = np.column_stack([X, np.where(rng.random(copies.shape) < 0.3, np.nan, copies)])
    imputer = pickle.loads(pickle.dumps(TableImputer(**QUICK).fit(X)))
    assert len(imputer._fitted.schema.relations.followers) == 4
    new = np.full((5, 6), np.nan)
    new[np.arange(5), [0, 1, 3, 4, 5]] = [4.0, 9.0, 12.0, 1.0, 4.0]
    for table in (imputer.transform(new), *imputer.sample(new, random_state=0)):
        wanted = np.tile([4.0, 9.0, 12.0, 1.0, 4.0], (5, 1))
        np.testing.assert_allclose(table[:, [0, 1, 3, 4, 5]], wanted, rtol=1e-12)
    contrary = np.full((1, 6), 7.0)
    contrary[0, 5] = np.nan
    np.testing.assert_array_equal(imputer.transform(contrary)[0, :5], contrary[0, :5])


def test_products_may_name_a_copy(rng):
    full, X = table_of(rng, 2.0, 0.0)
    X[:, 2] = full[:, 0] ** 2 + rng.normal(size=200)
    for pair in [(0, 1), (1, 1), (0, 0)]:
        imputer = TableImputer(interactions=[pair], **QUICK).fit(X)
        assert len(imputer.interactions_) == 1


def followers_of(*columns):
    imputer = TableImputer(**QUICK, relations="auto").fit(np.column_stack(columns))
    related = imputer._fitted.schema.relations
    return [] if related is None else related.followers


def test_nearly_linear_functions_are_no_copies(rng):
    x = rng.normal(size=300)
    noise = rng.normal(size=300)
    assert followers_of(x, x * (1 + 1e-9 * noise))
    assert not followers_of(x, x + 3e-3 * noise)
    assert not followers_of(x, x + 1e-2 * x**3)
    assert not followers_of(x, np.where(np.arange(300) < 9, x, np.nan))
    both = np.column_stack([x, noise])
    both[0] = 1e10, 2e10  # whose squares hide the others
    assert not followers_of(*both.T)


def test_a_column_may_be_missing_in_the_rows_that_are_compared(rng):
    x = rng.normal(size=9000)
    few = np.where(np.arange(9000) % 4 == 1, x, np.nan)
    assert followers_of(x, few)
