"""Weights and prior, in draws of parameters and in fits without some rows: exact."""

import numpy as np
import pytest
import torch
from statistical import FAILURE, p_mean

from skvnce import GaussianImputer
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce.autoencoder.model import normal_without
from skvnce.gaussian.fit import draw_posterior


def weighted_table(seed, n=60):
    """Make correlated rows; the weights are larger where the first column is."""
    rng = np.random.default_rng(seed)
    X = rng.multivariate_normal([0, 1, 2], 0.6 + 0.4 * np.eye(3), size=n)
    return X, np.where(X[:, 0] > 0, 3.0, 1.0)


def scatter_of(X, weights):
    mean = np.average(X, axis=0, weights=weights)
    return mean, (weights[:, None] * (X - mean)).T @ (X - mean)


@pytest.mark.parametrize("shrinkage", [0.1, 4.0])
def test_draws_of_a_complete_table_are_of_the_inverse_wishart(seed, shrinkage):
    """With k = shrinkage * d and N the weights' sum, in columns of unit scale.

    ``S ~ IW(N - 1 + k, scatter + k I)`` has mean ``(scatter + k I) / (N + k - d - 2)``,
    the mean of the rows is drawn around their weighted average.
    """
    X, weights = weighted_table(seed)
    imputer = GaussianImputer(
        shrinkage, marginals="normal", n_parameter_draws=300, random_state=seed
    ).fit(X, sample_weight=weights)
    means, covariances = imputer.sample_parameters()

    mean, scatter = scatter_of((X - imputer.location_) / imputer.scale_, weights)
    k, d = 3 * shrinkage, 3
    exact = (scatter + k * np.eye(d)) / (weights.sum() + k - d - 2)
    means = (means - imputer.location_) / imputer.scale_
    upper = np.triu_indices(d)
    unit = covariances / np.outer(imputer.scale_, imputer.scale_)
    assert p_mean(means, mean) > FAILURE
    assert p_mean(unit[:, *upper], exact[upper]) > FAILURE
    # controls: without the weights, and without the prior
    plain, _ = scatter_of((X - imputer.location_) / imputer.scale_, np.ones(len(X)))
    assert p_mean(means, plain) < FAILURE
    if shrinkage > 1:
        without = scatter / (weights.sum() - d - 2)
        assert p_mean(unit[:, *upper], without[upper]) < FAILURE


def test_a_fit_without_some_rows_is_that_of_the_others(seed):
    """Complete rows have a maximum in closed form, (scatter + k I) / (N + k)."""
    X, weights = weighted_table(seed)
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[::4] = True
    k, start = 5.0, Normal(torch.zeros(3).double(), torch.eye(3).double())
    given = torch.from_numpy(hidden), torch.from_numpy(weights), k, start
    found = normal_without(Incomplete.from_array(X), *given)
    kept = ~hidden[:, 0]
    mean, scatter = scatter_of(X[kept], weights[kept])
    exact = (scatter + k * np.eye(3)) / (weights[kept].sum() + k)
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.covariance, exact, atol=1e-9)


def test_draws_have_their_seed_and_the_weight_of_all_rows():
    X = np.random.default_rng(0).normal(size=(200, 2))
    start = X.mean(0), np.cov(X.T)

    def means(seed, total):
        given = start, X, np.ones(200), 1.0, 40, seed, total
        return np.array([mean for mean, _ in draw_posterior(*given)])

    one = means(0, None)
    np.testing.assert_array_equal(one, means(0, None))
    assert not np.isclose(one, means(1, None)).any()
    ratio = one.std(0) / means(0, 100 * 200.0).std(0)  # about 10
    assert (ratio > 5).all() and (ratio < 20).all()
