"""The M-step by score matching against a dense linear system and its own optimality."""

import numpy as np
import pytest
import torch

from skvnce.algorithms.graph import DIAGONAL_FLOOR, Penalty, Theta, off_diagonal
from skvnce.algorithms.score_matching import (
    Statistics,
    minimise_loss,
    running_mean,
    statistics,
)
from skvnce.distributions.truncated_normal import TruncatedNormal
from skvnce.models.truncated_gaussian import TruncatedGaussian
from skvnce.objectives.score_matching import generalised_score_matching

D = 4
OFF = ~np.eye(D, dtype=bool)


@pytest.fixture
def x(seed):
    """Correlated rows of about unit spread."""
    rng = np.random.default_rng(seed)
    x = rng.gamma(2.0, size=(150, D))
    x[:, 1] += 0.7 * x[:, 0]
    x[:, 3] += 1.5 / (0.5 + x[:, 2])
    return torch.tensor(x / x.std(0))


def start():
    zeros = torch.zeros(D).double()
    return Theta(torch.eye(D).double(), zeros, zeros[0])


def links(alpha, ridge=0.0):
    return Penalty(alpha * off_diagonal(D), ridge)


def solve(x, fit_linear, alpha=0.0, ridge=0.0, tol=1e-14):
    centre = x.mean(0) * fit_linear
    stats = statistics(x, centre, fit_linear)
    return minimise_loss(stats, start(), centre, links(alpha, ridge), tol), stats


def basis(width):
    """Span the matrices (K, b) with symmetric K; (parameters, D, width)."""
    spanned = []
    for i in range(D):
        for j in range(i, width):
            matrix = np.zeros((D, width))
            matrix[i, j] = 1
            if j < D:
                matrix[j, i] = 1
            spanned.append(matrix)
    return np.array(spanned)


def closed_form(stats, ridge=0.0):
    """Solve the normal equations over the free parameters: (K, b) and the loss."""
    free = basis(stats.target.shape[1])
    curvature = np.einsum("pjk,jkl,qjl->pq", free, stats.gamma.numpy(), free)
    curvature += ridge * np.einsum("pjk,qjk->pq", free[..., :D] * OFF, free[..., :D])
    slope = np.einsum("pjk,jk->p", free, stats.target.numpy())
    solution = np.linalg.solve(curvature, slope)
    return np.tensordot(solution, free, 1), -slope @ solution / 2


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("fit_linear", [True, False])
def test_without_l1_it_is_the_closed_form(fit_linear, ridge, x):
    found, stats = solve(x, fit_linear, ridge=ridge)
    exact, loss = closed_form(stats, ridge)
    assert (exact[:, :D].diagonal() > DIAGONAL_FLOOR).all()
    np.testing.assert_allclose(found.theta.precision, exact[:, :D], atol=1e-5)
    if fit_linear:
        np.testing.assert_allclose(found.theta.linear, exact[:, D], atol=1e-5)
    else:
        assert (found.theta.linear == 0).all()
    assert found.loss == pytest.approx(loss, rel=1e-10)
    assert torch.equal(found.theta.precision, found.theta.precision.T)


@pytest.mark.parametrize("fit_linear", [True, False])
def test_optimality_without_a_reference(fit_linear, x):
    alpha, ridge = 0.1, 0.1
    theta = solve(x, fit_linear, alpha, ridge)[0].theta
    centre = x.mean(0) * fit_linear
    K = theta.precision.clone()
    model = TruncatedGaussian(K, theta.linear + K @ centre)
    loss = generalised_score_matching(model, x).loss
    by_K, by_b = torch.autograd.grad(loss, [model.precision, model.linear])
    # b is around the centre: the origin's moves with K
    by_K = by_K + by_b[:, None] * centre
    gradient = ((by_K + by_K.T) / 2).numpy() + ridge * K.numpy() * OFF
    K = K.numpy()
    zero = K == 0
    assert 0 < zero.sum() < OFF.sum()
    np.testing.assert_array_less(np.abs(gradient[zero]), alpha + 1e-6)
    linked = OFF & ~zero
    np.testing.assert_allclose(gradient[linked], -alpha * np.sign(K[linked]), atol=1e-5)
    np.testing.assert_allclose(gradient.diagonal(), 0, atol=1e-5)
    if fit_linear:
        np.testing.assert_allclose(by_b, 0, atol=1e-5)


def test_the_gap_bounds_the_suboptimality(x):
    stats = statistics(x, x.mean(0), True)
    best = minimise_loss(stats, start(), x.mean(0), links(0.05), 1e-14).loss
    gaps = []
    for tol in (1e9, 1e-1, 1e-2, 1e-4, 1e-6):
        found = minimise_loss(stats, start(), x.mean(0), links(0.05), tol)
        assert -1e-12 <= found.loss - best <= found.gap + 1e-12
        assert found.gap <= tol * max(1, abs(found.loss))
        gaps.append(found.gap)
    assert gaps[0] > 10 * gaps[-1]


def test_more_l1_gives_fewer_links(x):
    links = [
        int((solve(x, True, alpha)[0].theta.precision.numpy()[OFF] != 0).sum())
        for alpha in (0.0, 0.02, 0.1, 10.0)
    ]
    assert links == sorted(links, reverse=True)
    assert links[0] == OFF.sum()
    assert links[-1] == 0


def test_the_minimum_does_not_depend_on_the_origin(x):
    solutions = []
    for centre in (torch.zeros(D).double(), x.mean(0)):
        stats = statistics(x, centre, True)
        theta = minimise_loss(stats, start(), centre, links(0.02, 0.1), 1e-15).theta
        solutions.append([theta.precision, theta.linear + theta.precision @ centre])
    torch.testing.assert_close(*solutions, rtol=0, atol=1e-5)


def single_column(ratio):
    """Fit the quantiles of a truncated normal, scaled to unit spread."""
    dist = TruncatedNormal(torch.tensor(ratio).double(), torch.ones(()).double())
    x = dist.icdf((torch.arange(40_000).double() + 0.5) / 40_000)  # as if infinite
    scale = x.std()
    x = (x / scale)[:, None]
    none = torch.zeros(1).double()
    theta = minimise_loss(
        statistics(x, x.mean(0), True),
        Theta(none[None] + 1, none, none[0]),
        x.mean(0),
        Penalty(off_diagonal(1), 0.0),
        1e-14,
    ).theta
    return theta.precision, theta.linear + theta.precision @ x.mean(0), scale


@pytest.mark.parametrize("ratio", [2.0, -0.5])
def test_the_truth_is_found_in_a_single_column(ratio):
    precision, linear, scale = single_column(ratio)
    assert float(precision / scale**2) == pytest.approx(1, abs=1e-2)
    assert float(linear / scale) == pytest.approx(ratio, abs=1e-2)


def test_the_floor_binds_where_the_spread_nears_the_mean():
    """The stated limit: CV > 0.84 ends at the floor, which is not the truth."""
    precision, _, scale = single_column(-2.0)
    assert float(precision) == DIAGONAL_FLOOR
    assert float(scale**2) < DIAGONAL_FLOOR


def test_too_few_rows_are_not_certified(x):
    found, _ = solve(x[:2], True)
    assert found.theta.precision.isfinite().all()
    assert found.gap > 1e-3


def test_statistics_merge_to_weighted_means(x):
    first, second = (statistics(part, x.mean(0), True) for part in (x[:50], x[50:]))
    whole = statistics(x, x.mean(0), True)
    merged = running_mean(first, second, 2 / 3)
    for got, expected in zip(merged, whole, strict=True):
        torch.testing.assert_close(got, expected)
    assert isinstance(merged, Statistics)
