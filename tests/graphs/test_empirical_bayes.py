"""The ridge of b: its error formula against a dense posterior, and what it tells."""

import numpy as np
import pytest
import torch
from oracles import rejection, symmetric_basis

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.graphs import em
from skvnce.graphs.problem import pilot, ridge_of_linear, ridge_of_links

D = 3
PRECISION = np.array([[1.5, 0.4, -0.3], [0.4, 1.5, 0.2], [-0.3, 0.2, 1.0]])


def hide(x, rng, fraction=0.2):
    x = np.where(rng.uniform(size=x.shape) < fraction, np.nan, x)
    return x[~np.isnan(x).all(1)]


def scaled(x):
    data = Incomplete.from_array(x)
    units = em.units_of(data, fit_linear=True)
    return Incomplete(data.x / units.scale, data.observed), units.centre


def table(linear, n, seed):
    rng = np.random.default_rng(seed)
    linear = np.full(D, float(linear))
    return hide(rejection(PRECISION, linear, np.full(D, np.nan), n, rng), rng)


def run_pilot(data, centre, seed=0):
    start = em.independence(data, centre, True)
    with seeded(seed):
        return pilot(data, start, centre, ridge_of_links(data))


# The error of b


def posterior_variance_of_linear(covariance, mean, n, ridge):
    """Invert the precision of all entries of K: the mean variance of b = u + K m."""
    d = len(mean)
    spanned = symmetric_basis(d, d).numpy()
    moved = covariance @ spanned @ covariance / 2 + ridge * spanned
    precision = n * np.einsum("pij,qij->pq", spanned, moved)
    pulled = spanned @ mean  # (parameters, d)
    by_links = pulled.T @ np.linalg.solve(precision, pulled)
    by_mean = np.linalg.inv(covariance) / n
    return np.trace(by_links + by_mean) / d


def theta_of(linear):
    precision = torch.eye(len(linear)).double()
    return em.Theta(precision, linear, linear.new_zeros(()))


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("d", [1, 3, 4])
def test_the_error_of_b_is_that_of_a_normal_posterior(d, ridge, seed):
    rng = np.random.default_rng([seed, d])
    x = rng.gamma(2.0, size=(60, d)) @ (np.eye(d) + 0.4 * rng.random((d, d)))
    data, _ = scaled(x)
    covariance = torch.atleast_2d(data.x.T.cov())
    mean = data.x.mean(0).numpy()
    variance = posterior_variance_of_linear(covariance.numpy(), mean, 60, ridge)
    linear = torch.full((d,), 0.4, dtype=torch.float64)
    result = ridge_of_linear(data, theta_of(linear), covariance, ridge)
    tau2 = max(0.16 - min(3 * variance, 0.1), 0.1 * variance)
    assert result == pytest.approx(1 / (60 * tau2), rel=1e-9)
    # at least a tenth of the error is left to b, whatever the estimate
    result = ridge_of_linear(data, theta_of(0 * linear), covariance, ridge)
    assert result == pytest.approx(1 / (60 * 0.1 * variance), rel=1e-9)


def test_holes_leave_fewer_rows_for_a_pair(rng):
    x = rng.gamma(2.0, size=(200, D))
    x[np.arange(200), np.arange(200) % D] = np.nan
    data, _ = scaled(x)
    covariance, mean = torch.eye(D).double() + 0.2, np.nanmean(x, 0) / np.nanstd(x, 0)
    observed = (~np.isnan(x)).astype(float)
    n_pairs = (observed.T @ observed).mean()
    variance = posterior_variance_of_linear(covariance.numpy(), mean, n_pairs, 0.1)
    ridge = ridge_of_linear(data, theta_of(torch.zeros(D).double()), covariance, 0.1)
    assert ridge == pytest.approx(1 / (200 * 0.1 * variance), rel=1e-9)


def test_collinear_columns_give_a_finite_ridge(seed):
    x = np.random.default_rng(seed).gamma(2.0, size=(50, 1)).repeat(D, 1)
    data, _ = scaled(x)
    linear = torch.ones(D).double() / 3
    ridge = ridge_of_linear(data, theta_of(linear), data.x.T.cov(), 0.0)
    assert 0 < ridge < np.inf


# The ridge


@pytest.mark.parametrize(("size", "free"), [(0.44, False), (0.46, True), (10.0, True)])
def test_b_is_left_free_where_it_is_not_small(size, free, seed):
    data, _ = scaled(np.random.default_rng(seed).gamma(2.0, size=(50, D)))
    theta, covariance = theta_of(torch.full((D,), size).double()), data.x.T.cov()
    assert (ridge_of_linear(data, theta, covariance, 0.1) == 0) == free


def test_the_pilot_is_a_better_start_than_independence(seed):
    data, centre = scaled(table(4.0, 500, seed))
    theta = run_pilot(data, centre).theta
    assert torch.equal(theta.precision, theta.precision.T)
    values = em.edge_strengths(theta.precision).numpy()
    root = np.sqrt(np.diag(PRECISION))
    np.testing.assert_allclose(values, PRECISION / np.outer(root, root), atol=0.3)
    assert values[0, 1] > 0.05 > -0.05 > values[0, 2]


def test_pairs_that_are_never_observed_together_say_nothing(rng):
    x = rng.gamma(4.0, size=(1000, 6))
    x[:, 1] += x[:, 0]
    x[:, 4] += x[:, 3]
    whole = ridge_of_links(scaled(x)[0])
    two_forms = x.copy()
    two_forms[:500, 3:] = np.nan
    two_forms[500:, :3] = np.nan
    # links within a form are all that is seen: no smaller a share of the pairs
    assert ridge_of_links(scaled(two_forms)[0]) < 2 * whole
    rare = x.copy()
    rare[2:, 5] = np.nan
    assert ridge_of_links(scaled(rare)[0]) < 2 * whole
