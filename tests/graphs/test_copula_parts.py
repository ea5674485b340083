"""Copula graphs of tables in parts."""

import numpy as np
import pytest
from _imputer.parts.test_large import parts

from skvnce import CopulaGraphLearner

FITTED = ("associations_", "precision_", "mean_", "edge_probabilities_", "loss_curve_")
FITTED += ("information_", "held_out_gain_", "covariance_")
ENDS = [[0, 1500], [0, 1, 500, 500, 501, 1500]]
QUICK = {"random_state": 0, "max_iter": 16, "on_misfit": "ignore"}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def table(n=1500):
    """Make skewed, rounded, binary and normal columns, and rows without a cell."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(n, 6))
    X[:, 0], X[:, 1], X[:, 2] = np.exp(X[:, 0] / 3), np.round(X[:, 1]), X[:, 2] > 0
    X[rng.random(X.shape) < 0.2] = np.nan
    X[[0, 700]] = np.nan
    return X


def same(one, other):
    pairs = ((getattr(one, name), getattr(other, name)) for name in FITTED)
    return all(np.array_equal(*pair, equal_nan=True) for pair in pairs)


def test_a_table_that_fits_in_memory_is_fitted_there():
    X = table()
    one, other = (CopulaGraphLearner(**QUICK).fit(x) for x in (X, parts(X, ENDS[1])))
    assert same(one, other)
    np.testing.assert_array_equal(one.feature_ranges_, other.feature_ranges_)


def test_a_larger_table_is_fitted_to_a_sample_whatever_its_parts(monkeypatch):
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", 400)
    X = table()
    one, other = (CopulaGraphLearner(**QUICK).fit(parts(X, ends)) for ends in ENDS)
    assert same(one, other)
    filled = np.concatenate(list(one.transform(parts(X, ENDS[1]))))
    assert not np.isnan(filled).any()
    whole = CopulaGraphLearner(**QUICK).fit(X)
    assert not same(one, whole)  # negative control
