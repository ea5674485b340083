"""Draws of parameters of tables with far more columns than rows."""

import numpy as np
import pytest
import torch

from skvnce import GaussianImputer
from skvnce._core.distributions import normal
from skvnce._core.distributions.normal import Normal
from skvnce._core.distributions.patterns import Rows
from skvnce._core.incomplete import Incomplete
from skvnce.gaussian import em, enlarged, wide


def table(n=6, d=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + rng.normal(size=(n, d))
    X[rng.random(X.shape) < 0.25] = np.nan
    X[1] = np.where(np.isnan(X[1]), 1.0, X[1])  # a complete row
    return X


def start(d):
    return Normal(torch.zeros(d).double(), torch.eye(d).double())


def student(x, row, missing, strength):
    """Condition the t distribution of a row given the others, by dense matrices.

    Returns location, covariance and degrees of freedom of the missing cells.
    """
    n, d = x.shape
    f = max(n - 1 + strength, d + 2)
    others = np.delete(x, row, 0)
    mean = others.mean(0)
    scale = (others - mean).T @ (others - mean) + strength * np.eye(d)
    scale *= n / (n - 1) / (f - d)
    seen = np.setdiff1d(np.arange(d), missing)
    weights = np.linalg.solve(scale[np.ix_(seen, seen)], scale[np.ix_(seen, missing)])
    gap = x[row, seen] - mean[seen]
    square = gap @ np.linalg.solve(scale[np.ix_(seen, seen)], gap)
    freedom = f - d + len(seen)
    own = scale[np.ix_(missing, missing)] - scale[np.ix_(missing, seen)] @ weights
    spread = (f - d + square) / freedom * own
    return mean[missing] + gap @ weights, spread * freedom / (freedom - 2), freedom


@pytest.mark.quick(1)
@pytest.mark.parametrize("strength", [0.3, 40.0])  # freedom at its minimum, and above
def test_a_row_has_its_conditional_distribution(strength, seed):
    torch.manual_seed(seed)
    data = Incomplete.from_array(table())
    x = em.draw(start(30), data)[0]
    rows = wide._Rows(x.clone(), data.observed, strength)
    missing = rows.missing[0]
    n_draws = 2000
    drawn = torch.stack([rows.drawn(0, missing) for _ in range(n_draws)]).numpy()
    drawn += rows.centre[missing].numpy()
    mean, covariance, freedom = student(x.numpy(), 0, missing.numpy(), strength)
    error = np.sqrt(covariance.diagonal() / n_draws)
    assert (abs(drawn.mean(0) - mean) < 5 * error).all()
    # the kurtosis of a t distribution makes its variances less certain
    excess = 6 / (freedom - 4)
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    white = (drawn - mean) @ root.T
    found = white.T @ white / n_draws
    diagonal = found.diagonal() - 1
    assert (abs(diagonal) < 5 * np.sqrt((2 + excess) / n_draws)).all()
    cross = found - np.diag(found.diagonal())
    assert (abs(cross) < 5 * np.sqrt((1 + excess) / n_draws)).all()
    other, _, _ = student(-x.numpy(), 0, missing.numpy(), strength)
    assert (abs(drawn.mean(0) - other) > 5 * error).any()  # negative control


def test_sweeps_keep_observed_cells_and_products():
    data = Incomplete.from_array(table())
    rows = wide._Rows(em.draw(start(30), data)[0], data.observed, 1.0)
    before = rows.x.clone()
    for _ in range(5):
        rows.sweep()
    changed = rows.x != before
    assert torch.equal(changed, ~data.observed)
    torch.testing.assert_close(rows.products, rows.x @ rows.x.T)


def test_tables_that_are_wide():
    data, ones = Incomplete.from_array(table()), torch.ones(6).double()
    assert wide.is_wide(data, ones, 1.0)
    assert not wide.is_wide(data, 2 * ones, 1.0)
    assert not wide.is_wide(data, ones, 1e-9)
    assert not wide.is_wide(Incomplete.from_array(table(8, 30)), torch.ones(8), 1.0)
    rows = Rows(Incomplete.from_array(table(40, 6)), torch.ones(40).double())
    given = rows.data, rows.weights, 1.0
    torch.manual_seed(0)
    expected = em.posterior_draws(start(6), *given, n_draws=2)
    torch.manual_seed(0)
    found = enlarged.posterior_draws(start(6), rows, None, 1.0, n_draws=2)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.covariance, other.covariance)


def test_draws_factorise_few_matrices_of_all_columns(monkeypatch):
    X, sizes = table(12, 60), []
    imputer = GaussianImputer(
        marginals="normal", n_parameter_draws=30, on_misfit="ignore", random_state=0
    ).fit(X)
    original = normal.jittered_cholesky

    def counted(matrix):
        sizes.extend([matrix.shape[-1]] * matrix.shape[:-2].numel())
        return original(matrix)

    monkeypatch.setattr(normal, "jittered_cholesky", counted)
    [filled] = imputer.sample(X, random_state=0)
    assert np.isfinite(filled).all()
    # one for each draw of parameters, at most 22 for the rate of EM, one to complete
    # the rows, and one to fill cells
    assert sizes.count(60) <= 30 + 22 + 2
