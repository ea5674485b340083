"""Pseudo-likelihood against quadrature, and stationary at the truth."""

import numpy as np
import pytest
import torch
from oracles import log_integral, orthant_rule, rejection

from skvnce._core.incomplete import Incomplete
from skvnce.graphs import em
from skvnce.graphs.em import DIAGONAL_FLOOR, Penalty, off_diagonal
from skvnce.graphs.pseudo_likelihood import (
    negative_log_pseudo_likelihood,
    pseudo_likelihood,
)
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

D = 3
OFF = ~np.eye(D, dtype=bool)
PRECISION = np.array([[1.5, 0.6, -0.5], [0.6, 1.5, 0.0], [-0.5, 0.0, 2.0]])
LINEAR = np.array([1.5, 0.5, 1.0])


def rows_of_model(n, rng):
    return torch.tensor(rejection(PRECISION, LINEAR, np.full(D, np.nan), n, rng))


def complete(x):
    return Incomplete(x, torch.ones_like(x).bool())


@pytest.mark.parametrize("d", [1, D])
def test_it_is_the_sum_of_the_conditionals(d, seed):
    x = rows_of_model(20, np.random.default_rng(seed))[:, :d]
    K, b = torch.tensor(PRECISION[:d, :d]), torch.tensor(LINEAR[:d])
    model = TruncatedGaussian(K, b)
    points, weights = orthant_rule(1, 12.0, 80)
    total = 0.0
    for j in range(d):
        moved = x.repeat(len(points), 1, 1)
        moved[:, :, j] = points
        log_z = log_integral(model.log_density(moved), weights[:, None])
        total = total - (model.log_density(x) - log_z).mean().detach()
    found = negative_log_pseudo_likelihood(x, K, b)
    torch.testing.assert_close(found, total, rtol=1e-9, atol=1e-9)


def solve(x, alpha, ridge, ridge_linear, fit_linear, tol=1e-7):
    centre = x.mean(0) * fit_linear
    m_step = pseudo_likelihood(complete(x), centre, fit_linear=fit_linear).m_step
    start = em.independence(complete(x), centre, fit_linear)
    penalty = Penalty(alpha * off_diagonal(D), ridge, ridge_linear)
    return m_step.solve(m_step.summarise(x), start, penalty, tol), centre


def slopes(theta, x, centre, ridge, ridge_linear):
    """Compute K, and the slopes of the smooth loss in K (symmetric) and b.

    Of b at the origin: what moves it along with K counts nothing where its slope is 0.
    """
    model = em.to_model(theta, centre)
    K, b = model.precision, model.linear
    loss = negative_log_pseudo_likelihood(x, K, b)
    loss = loss + ridge_linear * b.square().sum() / 2
    by_K, by_b = (part.numpy() for part in torch.autograd.grad(loss, [K, b]))
    K = K.detach().numpy()
    return K, (by_K + by_K.T) / 2 + ridge * K * OFF, by_b


@pytest.mark.parametrize("fit_linear", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_optimality_without_a_reference(share, fit_linear, seed):
    x = rows_of_model(300, np.random.default_rng(seed))
    x = x / x.std(0)
    ridges = 0.02, 0.1 * fit_linear
    empty, centre = solve(x, 1e3, *ridges, fit_linear)
    assert (empty.theta.precision.numpy()[OFF] == 0).all()
    # a share of the smallest alpha that gives no links
    alpha = share * np.abs(slopes(empty.theta, x, centre, *ridges)[1][OFF]).max()
    found, _ = solve(x, alpha, *ridges, fit_linear)
    K, by_K, by_b = slopes(found.theta, x, centre, *ridges)
    zero = (K == 0) & OFF
    linked = OFF & ~zero
    assert zero.any() == (alpha > 0)
    assert linked.any()
    np.testing.assert_array_less(np.abs(by_K[zero]), alpha + 1e-5)
    np.testing.assert_allclose(by_K[linked], -alpha * np.sign(K[linked]), atol=1e-5)
    inside = K.diagonal() > DIAGONAL_FLOOR
    np.testing.assert_allclose(by_K.diagonal()[inside], 0, atol=1e-5)
    if fit_linear:
        np.testing.assert_allclose(by_b, 0, atol=1e-5)
    else:
        assert (found.theta.linear == 0).all()
    assert found.gap < 1e-5
