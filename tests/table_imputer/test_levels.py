"""Probabilities of levels given predictions."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit

from skvnce.table_imputer.levels import ProportionalOdds, fit_proportional_odds

MODEL = ProportionalOdds(np.array([-1.0, 0.5, 2.0]), np.array([0.8, -0.4]))


def test_probabilities_of_proportional_odds(seed):
    X = np.random.default_rng(seed).normal(size=(50, 2))
    P = MODEL.of(X)
    assert np.allclose(P.sum(1), 1)
    higher = expit((X @ MODEL.slopes)[:, None] - MODEL.cuts)
    assert np.allclose(1 - P.cumsum(1)[:, :-1], higher)


def test_gradient_of_proportional_odds(seed):
    rng = np.random.default_rng(seed)
    X, levels = rng.normal(size=(50, 2)), rng.random((50, 4))

    def log_likelihood(theta):
        model = ProportionalOdds(theta[:3], theta[3:])
        return (levels * model.log_probabilities(X)).sum()

    exact = np.concatenate(MODEL.gradient(X, levels))
    numeric = approx_fprime(np.concatenate(MODEL), log_likelihood)
    assert np.allclose(exact, numeric, rtol=1e-4, atol=1e-3)


def test_fit_of_proportional_odds(seed):
    """The prior of a standard deviation of 1 counts as few of 20,000 rows."""
    rng, n = np.random.default_rng(seed), 20_000
    X = rng.normal(size=(n, 2))
    lower = MODEL.of(X).cumsum(1)[:, :-1]
    codes = (rng.random(n)[:, None] > lower).sum(1)
    fitted = fit_proportional_odds(X, np.eye(4)[codes], np.zeros(2))
    # standard errors are .013 to .03
    assert np.allclose(fitted.slopes, MODEL.slopes, atol=0.07)
    assert np.allclose(fitted.cuts, MODEL.cuts, atol=0.15)


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_far_predictions_have_finite_odds(far):
    X, levels = np.array([[-far], [far], [0.0]]), np.eye(4)[[0, 3, 1]]
    fitted = fit_proportional_odds(X, levels, np.ones(1))
    assert np.isfinite(fitted.slopes).all()
    assert (np.diff(fitted.cuts) > 0).all()
    assert np.allclose(fitted.of(X).sum(1), 1)
