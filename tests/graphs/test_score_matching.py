"""The M-step by score matching against a dense linear system and its own optimality."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_less
from oracles import score_matching_loss, symmetric_basis
from torch.testing import assert_close

from skvnce._core.distributions.truncated_normal import TruncatedNormal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.graphs import em
from skvnce.graphs.score_matching import (
    Statistics,
    free_quadratic,
    pool_rows,
    quadratic_of,
    running_mean,
    score_matching,
    statistics,
    table_of,
)
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

D = 4
OFF = ~np.eye(D, dtype=bool)


@pytest.fixture
def x(seed):
    """Correlated rows of about unit standard deviation."""
    x = np.random.default_rng(seed).gamma(2.0, size=(150, D))
    x[:, 1] += 0.7 * x[:, 0]
    x[:, 3] += 1.5 / (0.5 + x[:, 2])
    return torch.tensor(x / x.std(0))


def start():
    zeros = torch.zeros(D).double()
    return em.Theta(torch.eye(D).double(), zeros, zeros[0])


def links(alpha, ridge=0.0):
    return em.Penalty(alpha * em.off_diagonal(D), ridge)


def minimise_loss(stats, start, centre, penalty, tol):
    quadratic = quadratic_of(stats, penalty, centre)
    return em.minimise_quadratic(quadratic, start, penalty, tol)


def solve(x, fit_linear, alpha=0.0, ridge=0.0, tol=1e-14):
    centre = x.mean(0) * fit_linear
    stats = statistics(x, centre, fit_linear)
    return minimise_loss(stats, start(), centre, links(alpha, ridge), tol), stats


def closed_form(stats, ridge=0.0, ridge_linear=0.0, centre=None, left_out=()):
    """Solve the normal equations over the free parameters: (K, b) and the loss.

    Links that are left out are zero.
    """
    width = stats.target.shape[1]
    free = symmetric_basis(D, width).numpy()
    for i, j in left_out:
        free = free[free[:, i, j] == 0]
    curvature = np.einsum("pjk,jkl,qjl->pq", free, stats.gamma.numpy(), free)
    curvature += ridge * np.einsum("pjk,qjk->pq", free[..., :D] * OFF, free[..., :D])
    if width > D and ridge_linear:
        linear = free @ np.append(centre, 1)
        curvature += ridge_linear * linear @ linear.T
    slope = np.einsum("pjk,jk->p", free, stats.target.numpy())
    solution = np.linalg.solve(curvature, slope)
    return np.tensordot(solution, free, 1), -slope @ solution / 2


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("fit_linear", [True, False])
def test_without_l1_it_is_the_closed_form(fit_linear, ridge, x):
    result, stats = solve(x, fit_linear, ridge=ridge)
    exact, loss = closed_form(stats, ridge)
    assert (exact[:, :D].diagonal() > em.DIAGONAL_FLOOR).all()
    assert_allclose(result.theta.precision, exact[:, :D], atol=1e-5)
    if fit_linear:
        assert_allclose(result.theta.linear, exact[:, D], atol=1e-5)
    else:
        assert (result.theta.linear == 0).all()
    assert result.loss == pytest.approx(loss, rel=1e-10)
    assert torch.equal(result.theta.precision, result.theta.precision.T)


@pytest.mark.parametrize("fit_linear", [True, False])
def test_optimality_without_a_reference(fit_linear, x):
    alpha, ridge = 0.1, 0.1
    theta = solve(x, fit_linear, alpha, ridge)[0].theta
    centre = x.mean(0) * fit_linear
    K = theta.precision.clone()
    model = TruncatedGaussian(K, theta.linear + K @ centre)
    loss = score_matching_loss(model, x)
    by_K, by_b = torch.autograd.grad(loss, [model.precision, model.linear])
    # b is around the centre: the origin's moves with K
    by_K = by_K + by_b[:, None] * centre
    gradient = ((by_K + by_K.T) / 2).numpy() + ridge * K.numpy() * OFF
    K = K.numpy()
    zero = K == 0
    assert 0 < zero.sum() < OFF.sum()
    assert_array_less(np.abs(gradient[zero]), alpha + 1e-6)
    linked = OFF & ~zero
    assert_allclose(gradient[linked], -alpha * np.sign(K[linked]), atol=1e-5)
    assert_allclose(gradient.diagonal(), 0, atol=1e-5)
    if fit_linear:
        assert_allclose(by_b, 0, atol=1e-5)


def test_the_gap_bounds_the_suboptimality(x):
    stats = statistics(x, x.mean(0), True)
    best = minimise_loss(stats, start(), x.mean(0), links(0.05), 1e-14).loss
    gaps = []
    for tol in (1e9, 1e-1, 1e-2, 1e-4, 1e-6, 1e-12):
        minimum = minimise_loss(stats, start(), x.mean(0), links(0.05), tol)
        assert -1e-12 <= minimum.loss - best <= minimum.gap + 1e-12
        assert minimum.gap <= tol * max(1, abs(minimum.loss))
        gaps.append(minimum.gap)
    assert gaps[0] > 10 * gaps[-1]


def test_the_minimum_does_not_depend_on_the_origin(x):
    solutions = []
    for centre in (torch.zeros(D).double(), x.mean(0)):
        stats = statistics(x, centre, True)
        theta = minimise_loss(stats, start(), centre, links(0.02, 0.1), 1e-15).theta
        solutions.append([theta.precision, theta.linear + theta.precision @ centre])
    assert_close(*solutions, rtol=0, atol=1e-5)


def single_column(ratio):
    """Fit the quantiles of a truncated normal, scaled to unit standard deviation."""
    dist = TruncatedNormal(torch.tensor(ratio).double(), torch.ones(()).double())
    x = dist.icdf((torch.arange(40_000).double() + 0.5) / 40_000)  # as if infinite
    scale = x.std()
    x = (x / scale)[:, None]
    none = torch.zeros(1).double()
    centre, start = x.mean(0), em.Theta(none[None] + 1, none, none[0])
    arguments = centre, em.Penalty(em.off_diagonal(1), 0.0), 1e-14
    theta = minimise_loss(statistics(x, centre, True), start, *arguments).theta
    return theta.precision, theta.linear + theta.precision @ x.mean(0), scale


@pytest.mark.parametrize("ratio", [2.0, -0.5])
def test_the_truth_is_found_in_a_single_column(ratio):
    precision, linear, scale = single_column(ratio)
    assert float(precision / scale**2) == pytest.approx(1, abs=1e-2)
    assert float(linear / scale) == pytest.approx(ratio, abs=1e-2)


def test_the_floor_binds_where_the_spread_nears_the_mean():
    """The stated limit: CV > 0.84 ends at the floor, which is not the truth."""
    precision, _, scale = single_column(-2.0)
    assert float(precision) == em.DIAGONAL_FLOOR and float(scale**2) < em.DIAGONAL_FLOOR


def test_too_few_rows_are_not_certified(x):
    result, _ = solve(x[:2], True)
    assert result.theta.precision.isfinite().all() and result.gap > 1e-3


def test_statistics_merge_to_weighted_means(x):
    first, second = (statistics(part, x.mean(0), True) for part in (x[:50], x[50:]))
    whole = statistics(x, x.mean(0), True)
    merged = running_mean(first, second, 2 / 3)
    for got, expected in zip(merged, whole, strict=True):
        assert_close(got, expected)
    assert isinstance(merged, Statistics)


# The ridge of b, and links of infinite weight


@pytest.mark.parametrize("ridge_linear", [0.05, 5.0])
def test_the_ridge_of_b_is_that_of_the_columns_before_centring(ridge_linear, x):
    centre = x.mean(0)
    stats = statistics(x, centre, True)
    penalty = em.Penalty(0 * em.off_diagonal(D), 0.1, ridge_linear)
    theta = minimise_loss(stats, start(), centre, penalty, 1e-14).theta
    exact, _ = closed_form(stats, 0.1, ridge_linear, centre)
    without, _ = closed_form(stats, 0.1)
    assert_allclose(em.as_point(theta, D + 1), exact, atol=1e-5)
    assert np.abs(exact - without).max() > 0.01
    lengths = [np.linalg.norm(A @ np.append(centre, 1)) for A in (exact, without)]
    assert lengths[0] < lengths[1]


LEFT_OUT = [(0, 1), (2, 3)]


def without_links(alpha=0.0, ridge=0.1, ridge_linear=0.2):
    weight = alpha * em.off_diagonal(D)
    for i, j in LEFT_OUT:
        weight[i, j] = weight[j, i] = torch.inf
    return em.Penalty(weight, ridge, ridge_linear)


def smooth_solution(stats, centre, penalty):
    """Minimise the same loss by the driver of smooth losses."""

    def loss(theta):
        point = em.as_point(theta, D + 1)
        product = torch.einsum("jkl,jl->jk", stats.gamma, point)
        return ((product / 2 - stats.target) * point).sum()

    free = {"fit_linear": True, "fit_scale": False}
    arguments = loss, start(), centre, penalty
    return em.minimise_loss(*arguments, **free, tol=1e-9, max_iter=10_000)


@pytest.mark.parametrize("linked_start", [False, True])
def test_links_of_infinite_weight_are_left_out_by_both_drivers(linked_start, x):
    centre, penalty = x.mean(0), without_links()
    stats = statistics(x, centre, True)
    first = start()
    if linked_start:
        first = first._replace(precision=first.precision + 0.3)
    exact, loss = closed_form(stats, 0.1, 0.2, centre, LEFT_OUT)
    quick = minimise_loss(stats, first, centre, penalty, 1e-14)
    for result in (quick, smooth_solution(stats, centre, penalty)):
        assert_allclose(em.as_point(result.theta, D + 1), exact, atol=1e-5)
        assert result.loss == pytest.approx(loss, rel=1e-9) and np.isfinite(result.gap)
        for i, j in LEFT_OUT:
            assert result.theta.precision[i, j] == result.theta.precision[j, i] == 0
    assert np.abs(closed_form(stats, 0.1, 0.2, centre)[0] - exact).max() > 0.01


def test_both_drivers_agree_with_all_penalties(x):
    centre = x.mean(0)
    stats = statistics(x, centre, True)
    empty = minimise_loss(stats, start(), centre, without_links(1e3), 1e-14).theta
    quadratic = quadratic_of(stats, without_links(), centre)
    slope = quadratic.product(em.as_point(empty, D + 1)) - quadratic.target
    for i, j in LEFT_OUT:
        slope[i, j] = slope[j, i] = 0
    # a share of the smallest alpha that gives no links
    penalty = without_links(0.9 * float(slope[:, :D].abs().numpy()[OFF].max()))
    quick = minimise_loss(stats, start(), centre, penalty, 1e-14)
    smooth = smooth_solution(stats, centre, penalty)
    assert_close(quick.theta.precision, smooth.theta.precision, rtol=0, atol=1e-5)
    assert_close(quick.theta.linear, smooth.theta.linear, rtol=0, atol=1e-5)
    assert quick.loss == pytest.approx(smooth.loss, rel=1e-9)
    zeros = (quick.theta.precision == 0).sum()
    assert torch.equal(quick.theta.precision == 0, smooth.theta.precision == 0)
    assert 4 < zeros < OFF.sum()  # more than those of infinite weight


# Without statistics of d^3 numbers


@pytest.mark.parametrize("fit_linear", [True, False])
def test_products_through_the_rows_are_those_of_the_statistics(fit_linear, x, rng):
    centre, penalty = (
        x.mean(0) * fit_linear,
        em.Penalty(0.1 * em.off_diagonal(D), 0.1, 0.2),
    )
    dense = quadratic_of(statistics(x, centre, fit_linear), penalty, centre)
    free = free_quadratic(table_of(x, centre, fit_linear), penalty, centre)
    assert_close(free.target, dense.target)
    assert_close(free.diagonal, dense.diagonal)
    spanned = symmetric_basis(D, D + fit_linear)
    for matrix in spanned:
        result, unit = dense.diagonal[matrix != 0], matrix / matrix.norm()
        exact = (unit * dense.product(unit)).sum()
        assert_close(result, exact.expand_as(result))
    for _ in range(3):
        point = torch.tensordot(torch.tensor(rng.normal(size=len(spanned))), spanned, 1)
        assert_close(free.product(point), dense.product(point))
    arguments = start(), penalty, 1e-15
    first, second = (em.minimise_quadratic(one, *arguments) for one in (dense, free))
    assert_close(first.theta.precision, second.theta.precision, rtol=0, atol=1e-6)
    assert_close(first.theta.linear, second.theta.linear, rtol=0, atol=1e-6)
    assert first.loss == pytest.approx(second.loss, rel=1e-9)
    assert 0 < (first.theta.precision == 0).sum() < OFF.sum()


def test_the_pool_holds_rows_of_all_rounds(x, seed):
    tables = [table_of(x + i, x.mean(0), True) for i in range(12)]
    pool = tables[0]
    with seeded(seed):
        for i, new in enumerate(tables[1:], 2):
            before, pool = pool, pool_rows(pool, new, 1 / i)
            assert len(pool.u) == min(i, 4) * len(x)
            if i > 4:  # less and less of it changes
                moved = (pool.u != before.u).any(1).sum()
                assert 0 < moved <= min(len(x), round(len(before.u) / i))
    whole = torch.cat([table.u for table in tables]), torch.cat([t.h for t in tables])
    places = [(whole[0] == row).all(1).nonzero()[0, 0] for row in pool.u]
    rounds = torch.stack(places) // len(x)
    assert set(rounds.tolist()) == set(range(12))
    assert_close(pool.h, whole[1][torch.stack(places)])


@pytest.mark.parametrize("d, kind", [(100, "Statistics"), (101, "Tables")])
def test_many_columns_go_through_the_rows(d, kind, rng):
    x = torch.tensor(rng.gamma(4.0, size=(20, d)))
    data = Incomplete(x, torch.ones_like(x).bool())
    method = score_matching(data, x.mean(0), fit_linear=True)
    summary = method.m_step.summarise(x)
    assert type(summary).__name__ == kind
    if kind == "Statistics":
        return
    zeros = torch.zeros(d).double()
    first = em.Theta(torch.eye(d).double(), zeros, zeros[0])
    penalty = em.Penalty(0.05 * em.off_diagonal(d), 0.5, 0.1)
    solution = method.m_step.solve(summary, first, penalty, method.m_step.tol[1])
    assert solution.theta.precision.isfinite().all()
    assert solution.gap < 1e-3 * max(1, abs(solution.loss))
