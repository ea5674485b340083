"""Rubin's rules against the formulas, recorded numbers of mice, and coverage."""

import json
from pathlib import Path

import numpy as np
import pytest
from oracles import GATE, z_mean
from sklearn.linear_model import LinearRegression

from skvnce import GaussianImputer
from skvnce.pooling import fit_each, pool

MICE = json.loads(
    (Path(__file__).parent / "reference" / "mice_pool_scalar.json").read_text()
)


@pytest.mark.parametrize("case", MICE["cases"], ids=lambda case: case["rule"])
def test_recorded_numbers_of_mice(case):
    n, k = case["n"], case["k"]
    found = pool(case["Q"], case["U"], None if n is None else n - k)
    ours = {
        "qbar": found.estimate,
        "ubar": found.within,
        "b": found.between,
        "t": found.total,
        "df": found.dof,
        "r": found.relative_increase,
        "fmi": found.missing_information,
    }
    for name, value in ours.items():
        assert value == pytest.approx(case[name], rel=1e-9), name


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("dof", [None, 40])
def test_a_vector_is_pooled_entry_by_entry(rng, dof):
    Q, U = rng.normal(size=(5, 3)), rng.uniform(1, 2, size=(5, 3))
    whole = pool(Q, U, dof)
    for j in range(3):
        for ours, one in zip(whole, pool(Q[:, j], U[:, j], dof), strict=True):
            assert ours[j] == pytest.approx(one)
    low, high = whole.interval(0.9)
    assert low.shape == high.shape == (3,)


def test_covariances_are_pooled_as_matrices(rng):
    Q = rng.normal(size=(6, 2))
    roots = rng.normal(size=(6, 2, 2))
    U = roots @ roots.transpose(0, 2, 1) + np.eye(2)
    matrix, diagonal = pool(Q, U), pool(Q, np.diagonal(U, axis1=1, axis2=2))
    np.testing.assert_allclose(matrix.between, np.cov(Q.T))
    np.testing.assert_allclose(matrix.total, U.mean(0) + 7 / 6 * np.cov(Q.T))
    np.testing.assert_allclose(matrix.dof, diagonal.dof)
    np.testing.assert_allclose(matrix.interval(), diagonal.interval())


def test_equal_estimates_leave_the_complete_analysis():
    found = pool([2.0, 2.0, 2.0], [0.25, 0.25, 0.25])
    assert found.dof == np.inf
    assert found.missing_information == 0
    np.testing.assert_allclose(found.interval(0.95), [2 - 0.98, 2 + 0.98], atol=1e-3)
    few = pool([2.0, 2.0, 2.0], [0.25, 0.25, 0.25], dof_complete=10)
    assert few.dof == pytest.approx(11 / 13 * 10)


@pytest.mark.parametrize(
    ("Q", "U", "dof", "message"),
    [
        ([1.0], [1.0], None, "two draws or more"),
        (1.0, 1.0, None, "two draws or more"),
        ([1.0, 2.0], [1.0], None, r"variances must have shape \(2,\), got \(1,\)"),
        ([1.0, np.nan], [1.0, 1.0], None, "must be finite"),
        ([1.0, 2.0], [1.0, 0.0], None, "variances must be positive"),
        ([1.0, 2.0], [1.0, 1.0], 0, "dof_complete must be a number above 0"),
        ([1.0, 2.0], [1.0, 1.0], "many", "dof_complete must be a number above 0"),
    ],
)
def test_errors(Q, U, dof, message):
    with pytest.raises(ValueError, match=message):
        pool(Q, U, dof)


@pytest.mark.parametrize("level", [0, 1, "a"])
def test_levels_out_of_range(level):
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\)"):
        pool([1.0, 2.0], [1.0, 1.0]).interval(level)


def test_an_estimator_is_fitted_to_each_draw(rng):
    draws, y, model = (
        rng.normal(size=(4, 30, 2)),
        rng.normal(size=30),
        LinearRegression(),
    )
    fits = fit_each(model, draws, y)
    assert not hasattr(model, "coef_")
    for fit, table in zip(fits, draws, strict=True):
        np.testing.assert_allclose(fit.coef_, LinearRegression().fit(table, y).coef_)
    with pytest.raises(ValueError, match="draws must be tables of shape"):
        fit_each(model, draws[0], y)


def least_squares(table):
    """Regress the last column on the others: coefficients and their variances."""
    A = np.column_stack([np.ones(len(table)), table[:, :-1]])
    inverse = np.linalg.inv(A.T @ A)
    beta = inverse @ A.T @ table[:, -1]
    residual = table[:, -1] - A @ beta
    return beta, np.diag(inverse) * (residual @ residual) / (len(A) - A.shape[1])


def covered(rng, seed, mechanism, n=150):
    """Say whether pooled and single-imputation intervals hold the truth."""
    beta = np.array([1.0, 0.5, -0.5])
    x = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=n)
    y = beta[0] + x @ beta[1:] + rng.normal(size=n)
    full = np.column_stack([x, y])
    chance = np.full(n, 0.4) if mechanism == "mcar" else 0.8 * (y > np.median(y))
    X = full.copy()
    X[rng.uniform(size=n) < chance, 0] = np.nan
    imputer = GaussianImputer(shrinkage=0.01, random_state=seed).fit(X)
    draws = imputer.sample(X, n_draws=20, random_state=seed)
    pooled = pool(*map(np.array, zip(*map(least_squares, draws), strict=True)), n - 3)
    low, high = pooled.interval(0.95)
    estimate, variance = least_squares(imputer.transform(X))
    single = np.abs(estimate - beta) < 1.96 * np.sqrt(variance)
    return np.stack([(low < beta) & (beta < high), single])


@pytest.mark.parametrize("mechanism", ["mcar", "mar"])
def test_pooled_intervals_cover(mechanism, seed):
    """In short; ``benchmarks/pooling_coverage.py`` runs 200 repetitions and more."""
    rng = np.random.default_rng([seed, len(mechanism)])
    found = np.array([covered(rng, i, mechanism) for i in range(60)], dtype=float)
    pooled, single = found[:, 0].mean(1), found[:, 1].min(1)
    assert abs(z_mean(pooled, 0.95)) < GATE
    assert z_mean(single, 0.95) < -GATE
