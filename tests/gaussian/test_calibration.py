"""Calibration of draws: known residuals, ranks, weights, and what chooses columns."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from statistical import FAILURE, p_mean, within_standard_errors

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce.gaussian import calibration
from skvnce.gaussian.marginals import Steps

CORRELATION = torch.tensor([[1.0, 0.6], [0.6, 1.0]]).double()
NORMAL = Normal(torch.zeros(2).double(), CORRELATION)
SPREAD = 0.8  # of one column given the other
EMPTY = torch.zeros(0)
WITHOUT = Steps(EMPTY.long(), EMPTY[:, None], torch.zeros(0, 2), EMPTY, EMPTY)


def complete(seed, n, residual):
    """Make rows whose second column is ``0.6 x + 0.8 residual(x, noise)``."""
    x, noise = np.random.default_rng(seed).normal(size=(2, n))
    return np.column_stack([x, 0.6 * x + SPREAD * residual(x, noise)])


def bent(x, noise):
    """Make residuals with mean zero and unit mean square, no linear function of x."""
    return 0.6 * (x**2 - 1) / np.sqrt(2) + 0.8 * noise


def normal(x, noise):
    """Make residuals as a normal distribution has them."""
    return noise


def same(column, scores):
    return scores


def fitted(X, weights=None, stepped=WITHOUT, to_cells=same, *, cells=None, folds=None):
    data = Incomplete.from_array(X)
    weights = torch.ones(len(X)).double() if weights is None else weights
    folds = (data.x[:, 0] * 1e4).long() % 5 if folds is None else folds
    cells = data.x if cells is None else cells
    given = data, cells, weights, folds, stepped, to_cells
    return calibration.fit_calibration(NORMAL, *given)


def moved(found, x, z):
    """Calibrate the second column, predicted from cells x, at residuals z."""
    mean = torch.stack([torch.zeros(len(x)), torch.as_tensor(0.6 * x)], 1).double()
    std = torch.tensor([0.0, SPREAD]).double().expand(len(x), 2)
    scores = mean + std * torch.as_tensor(z)[..., None]
    return (found.moved(scores, mean, std) - mean)[..., 1] / SPREAD


def test_ranks_are_kept_and_cells_without_spread_stay(seed):
    found = fitted(complete(seed, 500, bent))
    z = torch.linspace(-9, 9, 400).double()[:, None].expand(-1, 5)
    after = moved(found, np.linspace(-4, 4, 5), z)
    assert (after.diff(dim=0) >= -1e-12).all()
    scores = torch.randn(3, 7, 2).double()
    still = found.moved(scores, scores[0], torch.zeros(7, 2).double())
    assert torch.equal(still, scores)


def columns_of(calibration):
    """List the columns that are calibrated; there may be none."""
    return [] if calibration is None else calibration.columns.tolist()


def test_columns_are_chosen_where_it_is_clearly_better(seed):
    """Of 600 columns of normal tables one was chosen; four of 40 are one in 10^5."""
    chosen = [
        [len(columns_of(fitted(complete([seed, i], 400, kind)))) for i in range(20)]
        for kind in (normal, bent)
    ]
    assert sum(chosen[0]) <= 3 and min(chosen[1]) >= 1


def test_a_weight_of_two_is_a_row_given_twice(seed):
    X = complete(seed, 300, bent)
    count = torch.arange(300) % 3
    one = fitted(X, weights=count.double())
    other = fitted(X[np.repeat(np.arange(300), count.numpy())])
    torch.testing.assert_close(one, other)


def test_steps_that_are_right_need_no_calibration(seed):
    """A column of three values cut from a normal one; with wrong cuts it is chosen."""
    cuts, values = torch.tensor([-0.5, 0.7]).double(), torch.arange(3.0).double()
    chosen = []
    for shift in (0.0, 0.6):
        edges = (cuts + shift)[None]
        ends = values[None, 0], values[None, -1]
        stepped = Steps(torch.tensor([1]), edges, values[None], *ends)
        count = 0
        for i in range(10):
            X = complete([seed, i], 500, normal)
            X[:, 1] = np.searchsorted(cuts.numpy(), X[:, 1])

            def to_cells(column, scores, edges=edges):
                places = torch.searchsorted(edges[0], scores)
                return values[places] if column else scores

            columns = columns_of(fitted(X, stepped=stepped, to_cells=to_cells))
            count += columns.count(1)
        chosen.append(count)
    assert chosen[0] <= 4 and chosen[1] >= 9


@pytest.mark.parametrize("n", [20, 49])
def test_few_cells_are_not_calibrated(n, seed):
    assert fitted(complete(seed, n, bent)) is None


def test_mean_shift_is_the_mean_of_calibrated_draws(seed):
    found = fitted(complete(seed, 2000, bent))
    x = np.linspace(-2, 2, 9)
    mean = torch.stack([torch.zeros(9), torch.as_tensor(0.6 * x)], 1).double()
    std = torch.tensor([0.0, SPREAD]).double().expand(9, 2)
    levels = (torch.arange(10_000).double() + 0.5) / 10_000
    z = torch.special.ndtri(levels)[:, None].expand(-1, 9)
    exact = moved(found, x, z).mean(0) * SPREAD
    shift = found.mean_shift(mean, std, same)[:, 1]
    torch.testing.assert_close(shift, exact, atol=0.01, rtol=0)


def tricube_below(t):
    """Compute the share of the tricube kernel of [-1, 1] below t."""
    t = np.clip(t, -1, 1)
    s = abs(t)
    return 0.5 + np.sign(t) * 70 / 81 * (s - 3 * s**4 / 4 + 3 * s**7 / 7 - s**10 / 10)


@pytest.mark.parametrize("share", calibration._SHARES)
def test_quantiles_are_those_of_a_tricube_kernel_of_ranks(share, monkeypatch):
    """Where residuals are -1.3 below a rank and 1.3 above it; the scale is divided out.

    The quantile at level u is -1 where the kernel has more than u below that rank, and
    1 otherwise, but for the shrinkage by 10 normal residuals.
    """
    monkeypatch.setattr(calibration, "_SHARES", (share,))
    n, rank = 4001, 0.47
    x = np.linspace(-1, 1, n)
    sign = np.where(x > 2 * rank - 1, 1.0, -1.0)
    X = np.column_stack([x, 0.6 * x + 1.3 * SPREAD * sign])
    found = fitted(X, folds=torch.arange(n) % 5)
    place = found.columns.tolist().index(1)

    ranks = np.linspace(share / 2, 1 - share / 2, 17)
    np.testing.assert_allclose(found.centres[place], 0.6 * (2 * ranks - 1), atol=1e-3)
    level = (np.arange(17) + 0.5) / 17
    below = tricube_below((rank - ranks) / (share / 2))[:, None]
    two = np.where(level < below, -1.0, 1.0)
    near = n * share / 2 * (81 / 70) ** 2 / (6561 / 6916)  # effective number
    expected = near / (near + 10) * (two - norm.ppf(level))
    sure = abs(level - below) > 0.01  # of 200 cells at least
    assert (abs(below - 0.5) < 0.45).sum() >= 1  # the step is within a kernel
    shifts = found.shifts[place].numpy()
    np.testing.assert_allclose(shifts[sure], expected[sure], rtol=0.01)


def test_a_gain_is_clear_by_two_standard_errors(seed):
    """A gain of k equal cells is sqrt(k) standard errors: four are needed, or more.

    Only the last k cells count: those of other rows are 0, whatever their score.
    """

    def to_cells(column, scores):
        return scores.clamp(min=30.0) if column else 0 * scores

    chosen, folds = [], torch.arange(400) % 5
    for k in (3, 6):
        x = np.random.default_rng(seed).uniform(-1, 1, size=400)
        x[-k:] = 100.0
        residual = np.where(x > 0, 1.3, -0.7)
        X = np.column_stack([x, 0.6 * x + SPREAD * residual])
        own = {"cells": torch.from_numpy(X).clamp(min=30.0), "folds": folds}
        chosen.append(columns_of(fitted(X, to_cells=to_cells, **own)))
    assert chosen == [[], [1]]


def test_residuals_of_right_steps_are_normal(seed):
    """By their mean, which is known, and by their mean square of nearly one."""
    n, cuts = 4000, np.array([-0.5, 0.7])
    X = complete(seed, n, normal)
    cells = np.searchsorted(cuts, X[:, 1]).astype(float)
    m = 0.6 * X[:, 0]
    table = torch.from_numpy(cuts)[None], torch.arange(3.0)[None]
    stepped = Steps(torch.tensor([1]), *table, torch.zeros(1), torch.full((1,), 2.0))
    found = {}
    for shift in (0.0, 0.15):
        wrong = stepped._replace(edges=stepped.edges + shift)
        around = calibration._edges_around(wrong, 1, torch.from_numpy(cells))
        scores = torch.full((n,), torch.nan)  # are not looked at
        std = torch.full((n,), SPREAD).double()
        parts = torch.from_numpy(cells), torch.from_numpy(m), std, scores
        found[shift] = calibration._residuals(*parts, around).numpy()

    # E[z | m] = sum_v P(v | m) mean_u ndtri(P(below v | m) + u P(v | m))
    ends = norm.cdf((np.r_[-np.inf, cuts, np.inf] - m[:, None]) / SPREAD)
    chance = np.diff(ends)[..., None]
    inside = (np.arange(4) + 0.5) / 4
    exact = norm.ppf((ends[:, :-1, None] + chance * inside).clip(1e-15, 1 - 1e-15))
    mean = (chance * exact).sum(1).mean(1)
    assert p_mean(found[0.0].mean(1) - mean, 0.0) > FAILURE
    assert p_mean(found[0.15].mean(1) - mean, 0.0) < FAILURE  # control
    assert 0.8 < np.square(found[0.0]).mean() < 1.1


def test_before_finds_what_calibration_moves(seed):
    found = fitted(complete(seed, 500, bent))
    mean, std = torch.randn(60, 2).double(), torch.rand(60, 2).double() + 0.1
    std[:5] = 0.0
    scores = mean + 3 * std * torch.randn(60, 2).double()
    scores[7] = -torch.inf
    after = found.moved(scores[None], mean, std)[0]
    assert (after - scores).nan_to_num().abs().max() > 0.05  # control
    back = found.before(after, mean, std)
    torch.testing.assert_close(back, scores, atol=1e-9, rtol=0)
    columns = torch.arange(2).repeat(60)
    flat = found.moved_cells(columns, scores.ravel(), mean.ravel(), std.ravel())
    torch.testing.assert_close(flat, after.ravel())


def test_predictions_from_a_column_of_few_values(seed):
    """Equal predictions share their residuals; others far away do not count."""
    values, sizes = np.array([-1.0, 0.0, 1.5]), np.array([900, 700, 400])
    offset = np.array([0.4, -0.5, -0.025])  # their weighted mean is 0
    z = torch.special.ndtri((torch.arange(200).double() + 0.5) / 200)[:, None]
    means = []
    for i in range(12):
        rng = np.random.default_rng([seed, i])
        group = rng.permutation(np.repeat(np.arange(3), sizes))
        noise = 0.9 * rng.normal(size=2000)
        y = 0.6 * values[group] + SPREAD * (offset[group] + noise)
        data = Incomplete.from_array(np.column_stack([values[group], y]))
        ones, folds = torch.ones(2000).double(), torch.arange(2000) % 5
        given = data, data.x, ones, folds, WITHOUT, same
        found = calibration.fit_calibration(NORMAL, *given)
        assert 1 in found.columns and found.shifts.isfinite().all()
        means.append(moved(found, values, z.expand(-1, 3)).mean(0).numpy())
        near = moved(found, values + 1e-13, z.expand(-1, 3)).mean(0).numpy()
        np.testing.assert_allclose(near, means[-1], atol=1e-6)
    error = np.std(means, 0, ddof=1) / np.sqrt(12) + 0.01  # of the shrinkage
    assert within_standard_errors(np.mean(means, 0), offset, error, freedom=11)
    assert not within_standard_errors(np.mean(means, 0), -offset, error, freedom=11)
