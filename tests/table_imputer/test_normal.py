"""EM, conditional distributions and posterior draws against theory."""

import numpy as np
import pytest
from statistical import FAILURE, p_mean
from tables import independent

from skvnce.table_imputer import normal
from skvnce.table_imputer.normal import (
    Normal,
    Normals,
    Prior,
    completed,
    fit_em,
    patterns_together,
    posterior_draw,
)


def covariance_of(rng, d):
    A = rng.normal(size=(d, d))
    return A @ A.T / d + 0.3 * np.eye(d)


def table_of(rng, n=60, d=3):
    X = rng.normal(size=(n, d)) @ np.linalg.cholesky(covariance_of(rng, d)).T
    X[rng.random(X.shape) < 0.25] = np.nan
    return X


def test_equal_patterns_are_together(rng):
    gone = rng.random((200, 11)) < 0.2
    sorted_ = gone[patterns_together(gone)]
    starts = 1 + (sorted_[1:] != sorted_[:-1]).any(1).sum()
    assert starts == len(np.unique(gone, axis=0)) < 200


def test_completion_leaves_its_table(rng):
    X = table_of(rng)
    kept = X.copy()
    completed(X, np.isnan(X), Normal.of(np.zeros(3), np.eye(3)))
    np.testing.assert_array_equal(X, kept)


def test_em_of_complete_rows_is_the_closed_form(rng):
    X, weights = np.nan_to_num(table_of(rng)), rng.uniform(0.5, 2, 60)
    fit, n = fit_em(X, weights, independent(1.5, X)), weights.sum()
    mean = np.average(X, axis=0, weights=weights)
    scatter = np.cov(X.T, aweights=weights, ddof=0) * n
    np.testing.assert_allclose(fit.mean, mean, atol=1e-12)
    exact = (scatter + 1.5 * np.eye(3)) / (n + 1.5)
    np.testing.assert_allclose(fit.covariance, exact, atol=1e-12)


def log_posterior(X, weights, mean, S, strength):
    """Compute the log-density of observed cells, and of the prior."""
    total = -0.5 * strength * (np.linalg.slogdet(S)[1] + np.trace(np.linalg.inv(S)))
    for row, weight in zip(X, weights, strict=True):
        o = ~np.isnan(row)
        r, part = row[o] - mean[o], S[np.ix_(o, o)]
        distance = r @ np.linalg.solve(part, r)
        total -= 0.5 * weight * (np.linalg.slogdet(part)[1] + distance)
    return total


def test_em_maximises_the_posterior(rng, monkeypatch):
    """Slopes of the observed cells' log-density are 0 there, in random directions."""
    monkeypatch.setattr(normal, "_CHANGE", 1e-11)
    X, weights, strength = table_of(rng), rng.uniform(0.5, 2, 60), 2.0
    fit = fit_em(X, weights, independent(strength, X), 5000)
    A = rng.normal(size=(10, 3, 3))
    pairs = rng.normal(size=(10, 3)), A + A.transpose(0, 2, 1)
    directions = list(zip(*pairs, strict=True))

    def slopes(strength):
        for m, T in directions:
            moved = ((fit.mean + h * m, fit.covariance + h * T) for h in (-1e-4, 1e-4))
            at = [log_posterior(X, weights, *one, strength) for one in moved]
            yield (at[1] - at[0]) / 2e-4

    assert max(map(abs, slopes(strength))) < 0.01
    assert max(map(abs, slopes(0.0))) > 0.1  # control: without the prior


def test_weights_are_repeated_rows(rng):
    X, weights = table_of(rng), rng.integers(1, 4, 60)
    weighted = fit_em(X, weights.astype(float), independent(1.0, X))
    counted = fit_em(
        np.repeat(X, weights, axis=0), np.ones(weights.sum()), independent(1.0, X)
    )
    for one, other in zip(weighted, counted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
    assert (
        abs(fit_em(X, np.ones(60), independent(1.0, X)).mean - counted.mean).max()
        > 1e-3
    )  # control


def outlying(rng):
    """Draw equal columns with noise, and a row far outside that lacks two of them."""
    X = rng.normal(size=(200, 1)) + 0.1 * rng.normal(size=(200, 6))
    X[0] = 200.0
    X[0, :2] = np.nan
    return (X - np.nanmean(X, 0)) / np.nanstd(X, 0)


def filled_by(fit, X):
    return completed(X, np.isnan(X), Normal.of(fit.mean, fit.covariance))


def test_a_row_far_outside_is_filled_by_its_other_cells(rng, monkeypatch):
    """Plain EM moves there by some thousandths in a round."""
    X, ones = outlying(rng), np.ones(200)
    monkeypatch.setattr(normal, "_CHANGE", 1e-9)
    exact = filled_by(fit_em(X, ones, independent(0.3, X), 20_000), X)[0, :2]
    monkeypatch.undo()
    filled = filled_by(fit_em(X, ones, independent(0.3, X)), X)[0, :2]
    np.testing.assert_allclose(filled, exact, rtol=0.1)
    monkeypatch.setattr(normal, "_PLAIN_ROUNDS", np.inf)
    plain = filled_by(fit_em(X, ones, independent(0.3, X), 60), X)[0, :2]
    assert (plain < 0.6 * exact).all()


def test_jumps_too_far_are_taken_back(rng, monkeypatch):
    X, ones = outlying(rng), np.ones(200)
    monkeypatch.setattr(normal, "_CHANGE", 1e-6)
    exact = fit_em(X, ones, independent(0.3, X), 20_000)

    def far(first, second, third, is_valid):
        return third[0] + 1e4, 1e4 * third[1]

    monkeypatch.setattr(normal, "extrapolate", far)
    fit = fit_em(X, ones, independent(0.3, X), 20_000)
    np.testing.assert_allclose(fit.mean, exact.mean, atol=0.02)
    monkeypatch.setattr(normal, "_FARTHER", np.inf)
    assert (
        abs(fit_em(X, ones, independent(0.3, X), 60).mean - exact.mean).max() > 1
    )  # control


def test_em_starts_where_it_is_told(rng):
    X, ones = table_of(rng), np.ones(60)
    first = fit_em(X, ones, independent(1.0, X))
    again = fit_em(X, ones, independent(1.0, X), start=(first.mean, first.covariance))
    assert again.n_rounds == 1 < first.n_rounds and 0 <= first.rate <= 0.95


def test_posterior_draws_have_the_moments_of_theory(rng):
    """Inverse Wishart: means of S and of its inverse; of the mean, two moments."""
    F, weights, strength = rng.normal(size=(25, 3)), rng.uniform(0.5, 2, 25), 4.0
    n, d = weights.sum(), 3
    mean = np.average(F, axis=0, weights=weights)
    scale = np.cov(F.T, aweights=weights, ddof=0) * n + strength * np.eye(d)
    freedom = n - 1 + strength
    draws = [
        posterior_draw(F, weights, independent(strength, F), rng) for _ in range(4000)
    ]
    means, S = (np.stack(one) for one in zip(*draws, strict=True))
    i = np.triu_indices(d)
    inverse, gap = np.linalg.inv(S), means - mean
    squares = gap[:, :, None] * gap[:, None]
    exact = scale / (freedom - d - 1)
    assert p_mean(S[:, *i], exact[i]) > FAILURE
    assert p_mean(inverse[:, *i], freedom * np.linalg.inv(scale)[i]) > FAILURE
    assert p_mean(means, mean) > FAILURE
    assert p_mean(squares[:, *i], exact[i] / n) > FAILURE
    # controls: one more degree of freedom, and a mean that is too certain
    assert p_mean(inverse[:, *i], (freedom + 1) * np.linalg.inv(scale)[i]) < FAILURE
    assert p_mean(squares[:, *i], exact[i] / (1.3 * n)) < FAILURE


@pytest.fixture
def normals(rng):
    draws = [(rng.normal(size=5), covariance_of(rng, 5)) for _ in range(3)]
    return draws, Normals.of(draws, np.ones((3, 5), dtype=bool))


def dense(mean, S, kept, given):
    slopes = np.linalg.solve(S[np.ix_(given, given)], S[np.ix_(given, kept)])
    covariance = S[np.ix_(kept, kept)] - S[np.ix_(kept, given)] @ slopes
    return mean[kept] - mean[given] @ slopes, slopes, covariance


def test_conditionals_equal_dense_algebra(rng, normals):
    """Columns 1, 3 and their function 4: only 0 and 2 are used."""
    draws, found = normals
    law = found.conditional(np.array([1, 3, 4]), 2)
    X = rng.normal(size=(3, 6, 5))
    for k, (mean, S) in enumerate(draws):
        intercept, slopes, covariance = dense(mean, S, [1, 3], [0, 2])
        np.testing.assert_allclose(law.intercept[k, 0], intercept, atol=1e-9)
        np.testing.assert_allclose(law.slopes[k, [0, 2]], slopes, atol=1e-9)
        np.testing.assert_allclose(law.covariance[k], covariance, atol=1e-9)
        exact = intercept + X[k][:, [0, 2]] @ slopes
        np.testing.assert_allclose(law.means(X)[k], exact, atol=1e-9)
    assert (law.slopes[:, [1, 3, 4]] == 0).all()
    # control: with the function, means would be others
    other = found.conditional(np.array([1, 3]), 2)
    assert abs(other.means(X) - law.means(X)).max() > 0.01


def test_distributions_are_moved_around_a_fit(normals):
    """Their mean has the slopes of the fit, and its value at the mean of columns."""
    law, fitted = (
        found.conditional(np.array([1, 3, 4]), 2)
        for found in (normals[1], normals[1].of_turns([0]))
    )
    mean = normals[1].mean[0]
    around = law.around(fitted, mean, [2])
    np.testing.assert_allclose(around.slopes.mean(0), fitted.slopes[0], atol=1e-12)
    at_mean = around.means(mean[None, None])
    np.testing.assert_allclose(at_mean, fitted.means(mean[None, None]).repeat(3, 0))
    np.testing.assert_array_equal(around.slopes[:, 2], fitted.slopes[:, 2].repeat(3, 0))
    spread, of_law = (one.slopes.std(0) for one in (around, law))
    np.testing.assert_allclose(np.delete(spread, 2, 0), np.delete(of_law, 2, 0))
    assert of_law[2].min() > 0.01  # control


def test_draws_of_conditionals_have_their_moments(rng, normals):
    _, found = normals
    law, X = found.conditional(np.array([1, 3, 4]), 2), rng.normal(size=(3, 1, 5))
    drawn = law.draw(np.repeat(X, 4000, 1), rng)[0] - law.means(X)
    products = np.einsum("kni,knj->nkij", drawn, drawn)[..., [0, 0, 1], [0, 1, 1]]
    assert p_mean(drawn, 0, axis=1) > FAILURE
    exact = law.covariance[:, [0, 0, 1], [0, 1, 1]]
    assert p_mean(products, exact) > FAILURE and p_mean(products, 1.3 * exact) < FAILURE


def test_columns_that_are_not_active_are_independent(normals):
    draws, _ = normals
    active = np.ones((3, 5), dtype=bool)
    active[1, 4] = False
    found = Normals.of(draws, active)
    law, used = found.conditional(np.array([0]), 1), [1, 2, 3]
    assert law.slopes[1, 4] == 0 != law.slopes[0, 4, 0]
    _, slopes, _ = dense(*draws[1], [0], used)
    np.testing.assert_allclose(law.slopes[1][used], slopes, atol=1e-9)
    turns = found.of_turns(np.array([2, 1, 1]))
    np.testing.assert_array_equal(turns.mean, found.mean[[2, 1, 1]])
    for one, k in zip(turns.each(), (2, 1, 1), strict=True):
        np.testing.assert_array_equal(one.precision, found.precision[k])


def test_the_prior_of_scores_bends_no_line(rng):
    """A column and its function, observed on one side, where they are nearly one."""
    x = rng.uniform(1, 2, size=(100, 1))
    X = np.column_stack([x, np.sqrt(x), 3 * x])
    X = (X - X.mean(0)) / X.std(0)
    R = np.eye(3)
    R[0, 1] = R[1, 0] = X[:, 0] @ X[:, 1] / 100
    for correlation, (least, most) in ((R, (0, 0.01)), (np.eye(3), (0.3, 1))):
        fit = fit_em(X, np.ones(100), Prior(0.2, correlation))
        slopes = np.linalg.solve(fit.covariance[:2, :2], fit.covariance[:2, 2])
        assert least <= abs(slopes[1]) <= most  # the second is the control
