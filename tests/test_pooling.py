"""Rubin's rules against the formulas, recorded numbers of mice, and coverage."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from errors import refused
from scipy.stats import binomtest
from sklearn.linear_model import LinearRegression

from skvnce import GaussianImputer
from skvnce.pooling import chi2_test, fit_each, pool, wald_test

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


@pytest.mark.parametrize("dof", [None, 40])
def test_a_vector_is_pooled_entry_by_entry(rng, dof):
    Q, U = rng.normal(size=(5, 3)), rng.uniform(1, 2, size=(5, 3))
    whole = pool(Q, U, dof)
    for j in range(3):
        for ours, one in zip(whole[:7], pool(Q[:, j], U[:, j], dof)[:7], strict=True):
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
        ([1.0, [2.0, 3.0]], [1.0, 1.0], None, "estimates must be numbers, with"),
        ([1.0, 2.0], [1.0, "x"], None, "variances must be numbers"),
        (np.array(["a", "b"], object), [1.0, 1.0], None, "estimates must be numbers"),
        ([1.0, np.nan], [1.0, 1.0], None, "must be finite"),
        ([1.0, 2.0], [1.0, 0.0], None, "variances must be positive"),
        ([[1.0, 2.0]] * 2, [[[1, 0.5], [0, 1]]] * 2, None, "must be symmetric"),
        ([[1.0, 2.0]] * 2, [[[1, 9], [9, 1]]] * 2, None, "positive semi-definite"),
        ([1.0, 2.0], [1.0, 1.0], 0, "dof_complete must be a number above 0"),
        ([1.0, 2.0], [1.0, 1.0], "many", "dof_complete must be a number above 0"),
        ([1.0, 2.0], [1.0, 1.0], True, "dof_complete must be a number above 0"),
        (np.ones((2, 0)), np.ones((2, 0)), None, "an estimate or more"),
        ([1e200, 0.0], [1.0, 1.0], None, "estimates must be below 1e.150"),
        (
            np.array([1, 2], "M8[D]"),
            [1.0, 1.0],
            None,
            "estimates must be numbers.*date",
        ),
        ([1 + 1j, 2], [1.0, 1.0], None, "estimates must be numbers.*complex"),
    ],
)
def test_errors(Q, U, dof, message):
    refused((ValueError, TypeError), message, pool, Q, U, dof)


PAIR = pool([[1.0, 2.0]] * 2, [[1.0, 2.0]] * 2)


@pytest.mark.parametrize(
    ("call", "given", "error", "words"),
    [
        (PAIR.interval, [0], ValueError, "level must be between 0 and 1"),
        (PAIR.interval, [1], ValueError, "level must be between 0 and 1"),
        (PAIR.interval, ["a"], TypeError, "level must be a number"),
        (PAIR.p_value, ["zero"], TypeError, "value must be numbers"),
        (
            PAIR.p_value,
            [[1.0, 2.0, 3.0]],
            ValueError,
            "one for each of the 2 estimates, got",
        ),
        (chi2_test, [["a", "b"], 2], TypeError, "statistics must be numbers"),
        (
            wald_test,
            [[PAIR], [0]],
            TypeError,
            "pooled must be a result of pool.*got list",
        ),
    ],
)
def test_errors_of_arguments_of_tests(call, given, error, words):
    refused(error, words, call, *given)


def test_a_generator_of_draws_is_analysed():
    tables = np.arange(12.0).reshape(3, 2, 2)
    assert fit_each(np.sum, (table for table in tables)) == [6, 22, 38]
    refused(TypeError, "draws must be a list of tables.*got int", fit_each, np.sum, 3)


def test_errors_of_names_and_hypotheses():
    Q, U = [[1.0, 2.0]] * 2, [[1.0, 2.0]] * 2
    with pytest.raises(ValueError, match="names must differ, but 'a' is there twice"):
        pool(Q, U, names=["a", "a"])
    np.testing.assert_array_equal(pool(Q, U).p_value([1.0, 2.0]), [1.0, 1.0])


def test_names_are_those_of_frames_and_series(rng):
    Q, root = rng.normal(size=(5, 2)), rng.normal(size=(5, 2, 2))
    U, names = np.eye(2) + root @ root.swapaxes(1, 2), ["age", "dose"]
    frames = [pd.DataFrame(one, columns=names, index=names) for one in U]
    variances = pd.DataFrame(np.diagonal(U, axis1=1, axis2=2), columns=names)
    series = [pd.Series(one, names) for one in Q]
    for estimates, of in (
        (pd.DataFrame(Q, columns=names), variances),
        (pl.DataFrame(Q, schema=names), pl.DataFrame(variances.to_dict("list"))),
        (series, [row for _, row in variances.iterrows()]),
        (series, frames),
        (series, U),
    ):
        pooled = pool(estimates, of)
        assert pooled.names == ("age", "dose")
        np.testing.assert_array_equal(pooled.estimate, Q.mean(0))
        assert pool(estimates, of, names=["a", "b"]).names == ("a", "b")
    assert pool(pd.DataFrame(Q), pd.DataFrame(variances.to_numpy())).names is None
    assert pool(pd.Series(Q[:, 0]), variances["age"]).names is None
    message = r"estimates\[0\] and estimates\[3\] must have the same names in the same"
    refused(ValueError, message, pool, [*series[:3], series[3][::-1], series[4]], U)
    with pytest.raises(ValueError, match="estimates and variances must have the same"):
        pool(pd.DataFrame(Q, columns=names), variances[names[::-1]])


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
    refused(ValueError, "draws must be tables of shape", fit_each, model, draws[0], y)


BETA = np.array([1.0, 0.5, -0.5])


def simulate(rng, mechanism, n=150):
    """Draw a complete table and hide cells of its first column."""
    x = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=n)
    y = BETA[0] + x @ BETA[1:] + rng.normal(size=n)
    chance = np.full(n, 0.4) if mechanism == "MCAR" else 0.8 * (y > np.median(y))
    full = np.column_stack([x, y])
    X = full.copy()
    X[rng.uniform(size=n) < chance, 0] = np.nan
    return full, X


def least_squares(rows):
    """Regress the last column on the others: coefficients and their variances."""
    A = np.column_stack([np.ones(len(rows)), rows[:, :-1]])
    inverse = np.linalg.inv(A.T @ A)
    beta = inverse @ A.T @ rows[:, -1]
    residual = rows[:, -1] - A @ beta
    return beta, np.diag(inverse) * (residual @ residual) / (len(A) - A.shape[1])


def covers(rows):
    """Say which 95 % intervals of one table hold the truth."""
    # a table analysed as if complete: two equal estimates pool to its own interval
    pooled = pool(*([value] * 2 for value in least_squares(rows)), len(rows) - 3)
    low, high = pooled.interval(0.95)
    return (low < BETA) & (BETA < high)


def covered(rng, mechanism):
    """Say which intervals of which way hold the truth; (ways, coefficients)."""
    full, X = simulate(rng, mechanism)
    seed = int(rng.integers(2**31))
    imputer = GaussianImputer(shrinkage=0.01, random_state=seed).fit(X)
    draws = imputer.sample(X, n_draws=20, random_state=seed)
    estimates, variances = map(np.array, zip(*map(least_squares, draws), strict=True))
    low, high = pool(estimates, variances, len(X) - len(BETA)).interval(0.95)
    rows = X[~np.isnan(X).any(1)]
    others = [covers(t) for t in (full, imputer.transform(X), rows)]
    return np.array([others[0], (low < BETA) & (BETA < high), *others[1:]])


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["MCAR", "MAR"])
def test_pooled_intervals_cover(mechanism, seed):
    """In short; ``benchmarks/validity.py`` runs many more."""
    rng = np.random.default_rng([seed, len(mechanism)])
    found = np.array([covered(rng, mechanism) for _ in range(40)])
    complete, pooled, single, _ = found.sum(0)  # of 40, for each coefficient
    for count in (*complete, *pooled):
        assert binomtest(int(count), 40, 0.95).pvalue > 1e-5
    assert binomtest(int(single.min()), 40, 0.95).pvalue < 1e-5
