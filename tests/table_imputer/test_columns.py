"""Models of columns: weights from held-out cells, and what draws keep."""

import numpy as np
import pytest
from scipy.special import expit
from statistical import FAILURE, p_counts, p_mean

from skvnce.table_imputer.columns import (
    Residuals,
    Rows,
    Shape,
    fit_column,
    fit_logit,
    fit_spread,
)
from skvnce.table_imputer.expansion import expand

ONES, LEVELS = np.ones(300), np.linspace(0.01, 0.99, 15)


def model_of(y, others, L, *, n_levels=0, weights=None, C=1, n_trees=None):
    """Fit the model of column 0, whose normal predictions are L (n,) or (n, n_base)."""
    weights = np.ones(len(y)) if weights is None else weights
    cells = np.column_stack([y, others])
    kinds = np.array([n_levels] + [0] * (cells.shape[1] - 1))
    expansion = expand(cells, weights, kinds, [None] * cells.shape[1])
    part = expansion.parts[0]
    L = L[:, None] if L.ndim == 1 else L
    L = (L - part.centre) / part.scale
    L = np.stack([L] * C)
    rows = Rows(np.stack([expansion.matrix(cells)] * C), L, L)
    model = fit_column(expansion, part, y, rows, weights, n_trees, 0)
    return model, rows


def test_the_forest_has_no_weight_where_the_normal_is_right(rng):
    x = rng.normal(size=(800, 2))
    y = x[:, 0] + 0.5 * rng.normal(size=800)
    model, _ = model_of(y, x, x[:, 0])
    assert 0 <= model.w < 0.25 and 0.9 < model.a <= 1


def test_equal_rows_are_passed_as_weights(rng):
    """Limitation: a tree may have a row that is equal to the held-out one."""
    x = rng.normal(size=(400, 2))
    y = x[:, 0] + 0.5 * rng.normal(size=400)
    repeated, _ = model_of(np.repeat(y, 2), np.repeat(x, 2, 0), np.repeat(x[:, 0], 2))
    assert repeated.w > 0.65
    assert model_of(y, x, x[:, 0], weights=np.full(400, 2.0))[0].w < 0.35


def test_the_forest_has_all_weight_where_it_is_right(rng):
    x = rng.normal(size=(800, 2))
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=800)
    model, rows = model_of(y, x, 0.01 * x[:, 0])
    assert 0.8 < model.w <= 1 and model.n_completions == 1
    error = model.predict(rows)[0] * y.std() + y.mean() - np.sin(3 * x[:, 0])
    assert np.sqrt((error**2).mean()) < 0.3 * y.std()


def test_a_forest_makes_up_for_the_mean_of_parameters(rng):
    """Errors of the draws of parameters count as the share that it leaves."""
    x = rng.normal(size=(400, 3))
    y = 3 * (x[:, 0] > 0) * (x[:, 1] > 0) + x[:, 2] + 0.3 * rng.normal(size=400)
    model, rows = model_of(y, x, x[:, 2], C=3)
    assert 0.5 < model.gain < model.w <= 1
    error = rng.normal(size=rows.L.shape)
    moved = model.predict(rows._replace(L=rows.L + error)) - model.predict(rows)
    np.testing.assert_allclose(moved, (1 - model.gain) * error[..., 0], atol=1e-12)
    # control: a forest knows the mean
    moved = model.predict(rows._replace(M=rows.M + error)) - model.predict(rows)
    assert abs(moved - model.gain * error[..., 0]).max() > 1e-3


def test_predictions_that_cells_contradict_do_not_count(rng):
    x = rng.normal(size=(800, 2))
    y, wrong = x[:, 0] + 0.5 * rng.normal(size=800), rng.normal(size=800)
    assert model_of(y, x, wrong, n_trees=0)[0].a < 0.2
    assert model_of(y, x, -x[:, 0], n_trees=0)[0].a == 0
    # completions are draws, whose weight is not estimated
    assert model_of(y, x, wrong, n_trees=0, C=3)[0].a == 1


@pytest.mark.parametrize("n_levels", [2, 4])
def test_weights_of_levels(rng, n_levels):
    """The classes of the second half are decided by a product of signs."""
    x = rng.normal(size=(800, 2))
    right = 0.5 + 0.2 * (2 * (x[:, 0] > 0) - 1)
    y = (rng.random(800) < right) * (n_levels - 1.0)
    p = np.zeros((800, n_levels))
    p[:, 0], p[:, -1] = 1 - right, right
    p = p[:, 1:] if n_levels == 2 else p
    normal, _ = model_of(y, x, p, n_levels=n_levels)
    assert 0 <= normal.w < 0.3
    y = (x[:, 0] * x[:, 1] > 0) * (n_levels - 1.0)
    p = 0.5 + 0 * p
    forest, rows = model_of(y, x, p, n_levels=n_levels)
    assert 0.8 < forest.w <= 1
    probabilities = forest.predict(rows)[0]
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (probabilities >= 0).all() and (probabilities.argmax(1) == y).mean() > 0.97


def grades_of_others(model, rows, truth):
    """Predict grades by the rows of similar prediction, without the row itself."""
    v, size, L = model.grades.predictions, model.grades.size, rows.L[0, :, 0]
    order, n = np.argsort(L, kind="stable"), len(L)
    first = (np.searchsorted(v, L) - size // 2).clip(0, n - size)
    for i in range(n):
        near = np.setdiff1d(order[first[i] : first[i] + size], [i])
        p = truth[near].sum(0) + 0.5 * model.part.shares
        yield p / p.sum()


def by_shares_alone(model):
    """Predict as if no prediction were apart from those of its window."""
    return model._replace(grades=model.grades._replace(slope=0.0))


def test_a_row_is_predicted_without_its_grade(rng):
    x = rng.normal(size=(200, 1))
    y = (x[:, 0] + rng.normal(size=200)).round().clip(-2, 2)
    model, rows = model_of(y, x, x[:, 0], n_trees=0)
    model, truth = by_shares_alone(model), np.eye(5)[model.part.codes(y)]
    found = model.of_normal_alone(rows.L, truth)[0]
    exact = grades_of_others(model, rows, truth)
    np.testing.assert_allclose(found, list(exact), atol=1e-9)
    assert abs(found - model.of_normal_alone(rows.L)[0]).max() > 0.005  # control


def test_all_rows_of_equal_predictions_count_but_the_row_itself(rng):
    """More rows have equal predictions than a window has, and they are sorted."""
    x = rng.integers(0, 2, (400, 1)).astype(float)
    y = np.sort(rng.integers(0, 3, 400)).astype(float)
    model, rows = model_of(y, x, x[:, 0], n_trees=0)
    model, truth = by_shares_alone(model), np.eye(3)[model.part.codes(y)]
    assert model.grades.size < min(x.sum(), (1 - x).sum())
    exact = truth.copy()
    for value in (0, 1):
        is_equal = x[:, 0] == value
        counts = truth[is_equal].sum(0) + 0.5 * model.part.shares
        exact[is_equal] = (counts - truth[is_equal]).clip(1e-12)
    exact /= exact.sum(1, keepdims=True)
    found = model.of_normal_alone(rows.L, truth)[0]
    np.testing.assert_allclose(found, exact, atol=1e-9)


def with_noise(rows, size):
    """Give predictions by C draws of the parameters, not by their mean."""
    factors = 1 + size * np.resize([1.0, -1.0], (len(rows.L), 1, 1))
    return rows._replace(L=rows.M * factors)


def test_slopes_of_draws_are_not_attenuated_by_the_noise_of_the_parameters(rng):
    n, size = 4000, 0.7
    x = rng.normal(size=(n, 2))
    y = 0.5 * x[:, 0] + rng.normal(size=n)
    cells = np.column_stack([y, x])
    expansion = expand(cells, np.ones(n), np.zeros(3, int), [None] * 3)
    part, X = expansion.parts[0], np.stack([expansion.matrix(cells)] * 2)
    slope = (x[:, 0] @ (y - y.mean())) / (x[:, 0] @ x[:, 0])
    M = np.stack([slope * x[:, :1] / part.scale] * 2)
    rows = with_noise(Rows(X, M, M), size)
    model = fit_column(expansion, part, y, rows, np.ones(n), 0, 0)
    L = rows.L[..., 0]
    draw = model.draw(model.predict(rows), rng, 1.0, model.centre_of(rows, L))
    products = (draw - L) * L
    assert p_mean(products.ravel(), 0) > FAILURE
    # control: residuals of similar predictions by the same draw of the parameters
    residuals = by_draws(model.residuals, (y - y.mean()) / part.scale, L)
    attenuated = (model._replace(residuals=residuals).draw(L, rng) - L) * L
    assert p_mean(attenuated.ravel(), 0) < FAILURE


def by_draws(residuals, truth, L):
    """Sort residuals by predictions that have the noise of the parameters."""
    order = np.argsort(L.ravel())
    rest = (truth - L).ravel()[order]
    return residuals._replace(prediction=L.ravel()[order], residual=rest)


@pytest.mark.parametrize("n_levels", [0, 2, 3])
def test_probabilities_do_not_know_the_noise_of_the_parameters(rng, n_levels):
    """Grades, indicators of two levels, and of three."""
    x = rng.normal(size=(600, 1))
    y = (x[:, 0] + rng.normal(size=600)).round().clip(0, 2)
    y = np.minimum(y, n_levels - 1) if n_levels else y
    levels = (y[:, None] == np.arange(n_levels)).astype(float)[:, 1 - n_levels % 2 :]
    L = (levels.mean(0) + 0.1 * x) if n_levels else x[:, 0]
    model, rows = model_of(y, x, L, n_levels=n_levels, C=2, n_trees=0)
    noisy = with_noise(rows, 0.5)
    cells = np.column_stack([y, x])
    expansion = expand(cells, np.ones(600), np.array([n_levels, 0]), [None] * 2)
    again = fit_column(expansion, model.part, y, noisy, np.ones(600), 0, 0)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    assert abs(again.predict(noisy) - again.predict(rows)).max() > 0.01  # control


def test_grades_go_on_beyond_the_ends_of_predictions(rng):
    """Higher grades are likelier where no row is observed, by proportional odds."""
    bounds, high = np.array([-1.5, 0.0, 1.5]), np.linspace(0.5, 1.5, 50)
    exact, errors = expit(2 * high[:, None] - bounds), []
    for _ in range(10):
        x = rng.normal(size=(1500, 1))
        x = x[x[:, 0] < 0.5]
        y = (2 * x + rng.logistic(size=x.shape) > bounds).sum(1) + 1.0
        model, rows = model_of(y, x, 0.8 * x[:, 0], n_trees=0)
        L = ((0.8 * high - model.part.centre) / model.part.scale)[None, :, None]
        new = Rows(np.repeat(rows.X[:, :1], 50, 1), L, L)
        predicted = [m.predict(new)[0] for m in (model, by_shares_alone(model))]
        errors.append([1 - p.cumsum(1)[:, :-1] - exact for p in predicted])
    error, of_shares = abs(np.mean(errors, 0)).mean((1, 2))
    # shares of 60 rows have standard errors of .06, averages of ten .02
    assert error < 0.05 < 0.09 < of_shares


def test_shares_of_grades_vary_between_draws_as_those_of_samples_do(rng):
    y = rng.choice(3, 2000, p=[0.2, 0.5, 0.3]).astype(float)
    x = rng.normal(size=(2000, 1))
    model, rows = model_of(y, x, 0.01 * x[:, 0], n_trees=0)
    grades, L = model.grades, rows.L[0, :1, 0]
    p, shares = grades.of(L)[0], [grades.bootstrapped(rng).of(L)[0] for _ in range(400)]
    # of a standard deviation of 400 draws: 3.5 %, and windows have .5 of a row more
    exact = np.sqrt(p * (1 - p) / grades.size)
    np.testing.assert_allclose(np.std(shares, 0), exact, rtol=0.2)


def with_four_levels(rng, n):
    """Make a number whose mean is that of its level; return exact probabilities."""
    means = np.array([0.0, 2.0, 1.0, -1.0])
    y = rng.integers(0, 4, n)
    x = means[y] + rng.normal(size=n)
    p = np.exp(-((x[:, None] - means) ** 2) / 2)
    return x, y, p / p.sum(1, keepdims=True)


def linear_probabilities(x, y):
    """Regress indicators of the levels on x, the last one too."""
    A = np.column_stack([np.ones(len(x)), x])
    return A @ np.linalg.lstsq(A, np.eye(y.max() + 1)[y], rcond=None)[0]


def test_levels_that_numbers_decide_are_logistic(rng):
    x, y, exact = with_four_levels(rng, 2000)
    L = linear_probabilities(x, y)
    model, rows = model_of(1.0 * y, x[:, None], L, n_levels=4, n_trees=0)
    error = abs(model.of_normal_alone(rows.L)[0] - exact).mean()
    linear = model.part.probabilities(rows.L)[0]
    assert error < 0.02 < 0.04 < abs(linear - exact).mean()


def test_levels_that_levels_decide_are_linear(rng):
    """A column whose level is that of another one in nine cells of ten."""
    x = rng.integers(0, 4, 2000)
    y = np.where(rng.random(2000) < 0.9, x, rng.integers(0, 4, 2000))
    L = 0.025 + 0.9 * np.eye(4)[x]
    model, rows = model_of(1.0 * y, x[:, None], L, n_levels=4, n_trees=0)
    # of 500 cells of a level, a share errs by .013, and log-odds are shrunk to L
    np.testing.assert_allclose(model.of_normal_alone(rows.L)[0], L, atol=0.05)
    # control: of the predictions alone, log-odds are linear, and 0 and 1 remain
    alone = model.logit._replace(power=0.0)
    assert abs(alone.of(rows.L, L[None])[0] - L).max() > 0.1


def test_draws_of_log_odds_vary_as_their_estimates_do(seed):
    """Those of 200 tables, at the ends of x and in its middle."""
    points = np.array([[-1.5, 1.25], [0.0, -1.0], [1.5, 1.25]])
    even, weights, estimates, spreads = np.full((600, 2), 0.5), np.ones(600), [], []
    for i in range(200):
        rng = np.random.default_rng([seed, i])
        x = rng.normal(size=600)
        y = rng.random(600) < expit(x + x**2 / 2 - 1)
        X = np.column_stack([x, x**2 - 1])
        logit = fit_logit(X[None], even[None], y.astype(int), weights)
        estimates.append(logit.scores(points, 0.0) @ [-1, 1])
        drawn = logit.with_root(X, even, weights).draws(200, rng)
        spreads.append((drawn.scores(points, 0.0) @ [-1, 1]).std(0))
    # of 200 estimates the error is .05
    ratios = np.mean(spreads, 0) / np.std(estimates, 0)
    np.testing.assert_allclose(ratios, 1, atol=0.2)
    log_odds = drawn.scores(points, 0.0) @ [-1, 1]
    errors = (log_odds.mean(0) - estimates[-1]) / log_odds.std(0)
    assert abs(errors).max() < 0.4  # .07 each
    some = drawn.of_turns([0, 0]).scores(points, 0.0) @ [-1, 1]
    np.testing.assert_array_equal(some, log_odds[[0, 0]])


# Draws


def by_group(rng, n):
    """Make residuals with three times the spread in half of the rows."""
    x = np.column_stack([rng.normal(size=n), 1.0 * (rng.random(n) < 0.5)])
    y = x[:, 0] + (1 + 2 * x[:, 1]) * rng.normal(size=n)
    return x, y


@pytest.mark.parametrize("n_trees", [None, 0])
def test_draws_have_the_spread_of_their_group(rng, n_trees):
    x, y = by_group(rng, 1500)
    model, rows = model_of(y, x, x[:, 0], n_trees=n_trees)
    noise = drawn(model, rows, rng, 1)[0] - x[:, 0]
    ratio = noise[x[:, 1] > 0].std() / noise[x[:, 1] == 0].std()
    # an observed ratio of 3 errs by .08, twice, as draws are of residuals
    assert abs(ratio - 3) < 0.6 if n_trees is None else ratio < 1.5  # the control
    low, high = model.quantiles(
        model.predict(rows)[0], [0.25, 0.75], model.spread_of(rows)[0]
    )
    width = [(high - low)[x[:, 1] == k].mean() for k in (0, 1)]
    assert abs(width[1] / width[0] - 3) < 0.7 or n_trees == 0


def test_equal_spreads_are_left_out(seed):
    dependent = []
    for i in range(20):
        rng = np.random.default_rng([seed, i])
        X, r = rng.normal(size=(300, 3)), rng.normal(size=300)
        dependent.append(fit_spread(X, r, np.ones(300)) is not None)
        assert fit_spread(X, r * np.exp(0.5 * X[:, 0]), np.ones(300)) is not None
    assert np.mean(dependent) < 0.5
    assert fit_spread(X, 0 * r, np.ones(300)) is None
    # rows without weight are as if they were not there
    weights = 1.0 * (np.arange(300) < 200)
    r[:200] *= np.exp(0.5 * X[:200, 0])
    weighted, alone = (
        fit_spread(X, r, weights),
        fit_spread(X[:200], r[:200], ONES[:200]),
    )
    np.testing.assert_allclose(weighted.slopes, alone.slopes, atol=1e-9)
    assert fit_spread(X[:15], r[:15], np.ones(15)) is None  # as many as columns ask for


def drawn(model, rows, rng, n=40):
    some = Rows(*(np.repeat(one, n, 0) for one in rows))
    part = model.part
    x = model.draw(model.predict(some), rng, model.spread_of(some))
    return x * part.scale + part.centre if part.is_number else x


def test_draws_have_the_noise_of_the_column(rng):
    x = rng.normal(size=(1000, 2))
    y = x[:, 0] + 0.5 * rng.normal(size=1000)
    model, rows = model_of(y, x, x[:, 0], n_trees=0)
    # windows share residuals, so that a draw for each row counts as independent
    noise = drawn(model, rows, rng, 1)[0] - x[:, 0]
    scale = np.std(y - x[:, 0])
    assert p_mean(noise, 0) > FAILURE and p_mean(noise**2, scale**2) > FAILURE
    assert p_mean(noise**2, 1.4 * scale**2) < FAILURE
    beyond = noise + x[:, 0]
    is_beyond = beyond.max() > y.max() or beyond.min() < y.min()
    assert is_beyond or len(np.unique(beyond)) > 900


def test_draws_do_not_share_the_errors_of_few_residuals(rng):
    """Means of a draw vary as those of a Bayesian bootstrap (Rubin 1981)."""
    n, n_cells, r = 20, 500, rng.normal(size=20)
    x = rng.normal(size=(100, 2))
    model, _ = model_of(x[:, 0], x[:, 1:], x[:, 1], n_trees=0)
    one = np.ones(n)
    known = Residuals(np.linspace(-1, 1, n), r, r, np.arange(n), one, one)
    shape = Shape([], -np.inf, 0.0, 0.0)
    model = model._replace(residuals=known, shape=shape)
    noise = r.var() * n / (n + 1) / n_cells  # of cells, given the weights of a draw
    means = model.draw(np.zeros((2000, n_cells)), rng).mean(1)
    assert p_mean((means - r.mean()) ** 2, r.var() / (n + 1) + noise) > FAILURE
    # control: draws that share the residuals' law
    assert p_mean((means - r.mean()) ** 2, r.var() / n_cells) < FAILURE
    # beyond the ends their local mean, which all cells there share, is subtracted
    beyond = model.draw(np.full((2000, n_cells), 5.0), rng).mean(1) - 5
    assert p_mean(beyond, 0) > FAILURE and p_mean(beyond**2, noise) > FAILURE


def test_draws_keep_a_point_mass(rng):
    x = rng.normal(size=(800, 2))
    y = (x[:, 0] + 0.5 * rng.normal(size=800)).clip(min=0)
    model, rows = model_of(y, x, x[:, 0].clip(min=0))
    found = drawn(model, rows, rng)
    is_zero = abs(found) < 1e-9
    assert (found >= -1e-9).all() and ((found > 1e-9) & (found < 1e-4)).mean() < 0.001
    assert is_zero.mean() == pytest.approx((y == 0).mean(), abs=0.06)
    low = x[:, 0] < -1
    assert is_zero[:, low].mean() > 0.8 > 0.1 > is_zero[:, x[:, 0] > 1].mean()


@pytest.mark.parametrize("offset", [0.0, 0.3])
@pytest.mark.parametrize("step", [1.0, 0.2, 7.0, 1 / 3, 0.05, 10.0])
def test_draws_stay_on_the_grid(rng, step, offset):
    x = rng.normal(size=(800, 2))
    y = step * ((10 * x[:, 0] + 2 * rng.normal(size=800)).round() + offset)
    model, rows = model_of(y, x, 10 * step * x[:, 0])
    found = drawn(model, rows, rng) / step - offset
    np.testing.assert_allclose(found, found.round(), atol=1e-6)
    assert len(np.setdiff1d(found.round(), (y / step - offset).round())) > 0


def test_draws_on_a_grid_are_not_negative(rng):
    """The point of the grid below 7 is -3."""
    x = rng.normal(size=(800, 2))
    y = 7 + 10 * (6 * x[:, 0] + 4 * rng.normal(size=800)).round().clip(min=0)
    model, rows = model_of(y, x, 7 + 60 * x[:, 0].clip(min=0))
    found = (drawn(model, rows, rng) - 7) / 10
    np.testing.assert_allclose(found, found.round(), atol=1e-6)
    assert found.min() > -0.5


@pytest.mark.parametrize("step", [1.0, 0.1])
def test_draws_of_positive_numbers_on_a_grid_have_logarithms(rng, step):
    x = rng.normal(size=(800, 2))
    expected = np.exp(0.8 + 0.6 * x[:, 0])  # so that there are too many for grades
    counts, means = rng.poisson(expected), step * (1 + expected)
    model, rows = model_of(step * (1.0 + counts), x, means, n_trees=0)
    assert model.part.is_number and drawn(model, rows, rng).min() > 0.9 * step
    seen_zero, rows = model_of(step * counts, x, means - step, n_trees=0)
    assert abs(drawn(seen_zero, rows, rng).min()) < 1e-6 * step  # control


def test_draws_of_positive_numbers_are_not_negative(rng):
    x = rng.normal(size=(400, 2))
    y = np.exp(x[:, 0] + 0.5 * rng.normal(size=400))
    model, rows = model_of(y, x, 1 + x[:, 0], n_trees=0)
    found = drawn(model, rows, rng)
    assert (found >= -1e-9).all()
    free, rows = model_of(y - 0.5, x, 0.5 + x[:, 0], n_trees=0)
    assert (drawn(free, rows, rng) < -0.5 - 1e-9).any()  # control


def test_levels_are_drawn_by_their_probabilities(rng):
    x = rng.normal(size=(300, 1))
    y, L = rng.integers(0, 3, 300) * 1.0, np.full((300, 3), 1 / 3)
    model, _ = model_of(y, x, L, n_levels=3)
    p = np.array([0.2, 0.5, 0.3])
    counts = np.bincount(model.draw(np.tile(p, (1, 5000, 1)), rng)[0], minlength=3)
    assert p_counts(counts, p) > FAILURE and p_counts(counts, p[::-1]) < FAILURE
    certain = model.draw(np.tile([0.0, 1.0, 0.0], (1, 100, 1)), rng)
    assert (certain == 1).all()


def test_quantiles_rise(rng):
    x = rng.normal(size=(300, 1))
    model, rows = model_of(x[:, 0] + rng.normal(size=300), x, x[:, 0])
    found = model.quantiles(model.predict(rows)[0], LEVELS)
    assert found.shape == (15, 300)
    assert (np.diff(found, axis=0) >= 0).all() and (found[-1] > found[0]).all()


def test_weights_are_repeated_rows_without_a_forest(rng):
    x, weights = rng.normal(size=(200, 2)), rng.integers(1, 4, 200)
    y, L = x[:, 0] + rng.normal(size=200), x[:, 0] + rng.normal(size=200)
    weighted = model_of(y, x, L, weights=weights.astype(float), n_trees=0)[0]
    counted = model_of(*(np.repeat(one, weights, 0) for one in (y, x, L)), n_trees=0)[0]
    assert weighted.a == pytest.approx(counted.a, abs=1e-10)
    assert model_of(y, x, L, n_trees=0)[0].a != pytest.approx(counted.a, abs=1e-4)
