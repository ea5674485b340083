"""VNCE on given draws, against quadrature: Lemma 1 with an inexact q, NCE else."""

import pytest
import torch
from oracles import orthant_rule

from skvnce._core.distributions.truncated_normal import TruncatedNormal
from skvnce._core.models import Draws, observed_log_prob
from skvnce._core.random import seeded
from skvnce.contrast.objective import divergence, nce
from skvnce.graphs.em import DIAGONAL_FLOOR, Penalty, Theta, to_model
from skvnce.graphs.vnce import (
    Both,
    Drawn,
    constant_draws,
    keep_data,
    log_ratio,
    loss,
    m_step,
)

D, N, NU = 2, 30, 4
CENTRE = torch.tensor([0.7, 1.1], dtype=torch.float64)
THETA = Theta(
    torch.tensor([[1.5, 0.6], [0.6, 2.0]], dtype=torch.float64),
    torch.tensor([0.4, -0.3], dtype=torch.float64),
    torch.tensor(0.2, dtype=torch.float64),
)
NOISE = TruncatedNormal(torch.tensor([0.3, 0.8]).double(), torch.ones(D).double())
MODEL = to_model(THETA, CENTRE).requires_grad_(False)
OBSERVED = torch.tensor([True, False])


def rows(n, seed):
    with seeded(seed):
        return NOISE.sample((n,))


def enumerated(x, exact):
    """Make draws of the second cell that are a quadrature rule of q, and q over p."""
    points, weights = orthant_rule(1, 12.0, 100)
    filled = torch.stack([x[:, 0].expand(100, -1), points.expand(-1, len(x))], -1)
    posterior = MODEL.conditional(filled, 1)
    inexact = TruncatedNormal(filled[..., 0], torch.tensor(0.8).double())
    q = posterior if exact else inexact
    log_q = q.log_prob(filled[..., 1])
    log_noise = observed_log_prob(NOISE, x, OBSERVED.expand_as(x))
    draws = Draws((filled,), log_q, log_q + weights.log()[:, None])
    return constant_draws(draws, log_noise), log_q - posterior.log_prob(filled[..., 1])


def ratios(*tables):
    """Compute log phi(x_o) - log p_y(x_o) in closed form."""

    def ratio(x):
        log_phi = MODEL.log_marginal(x, torch.ones(len(x), dtype=torch.int64))
        return log_phi - observed_log_prob(NOISE, x, OBSERVED.expand_as(x))

    return [*map(ratio, tables)]


@pytest.mark.parametrize("exact", [True, False])
def test_the_loss_is_nce_plus_the_divergence_of_q(exact, seed):
    x, y = rows(N, seed), rows(N * NU, seed + 1)
    (first, log_q_over_p), (second, _) = enumerated(x, exact), enumerated(y, exact)
    value = float(loss(Both(first, second), THETA, CENTRE, NU))
    data, noise = ratios(x, y)
    gap = float(divergence(log_q_over_p, data, NU, first.log_weight).mean())
    assert value == pytest.approx(float(nce(data, noise, NU)) + gap, rel=1e-9)
    assert gap == pytest.approx(0, abs=1e-9) if exact else gap > 1e-3


def test_the_noise_term_is_free_of_q(seed):
    y = rows(N, seed)
    records = []
    for exact in (True, False):
        part, _ = enumerated(y, exact)
        records.append((part.log_weight + log_ratio(part, THETA, CENTRE)).logsumexp(0))
    torch.testing.assert_close(*records, rtol=0, atol=1e-9)


def test_draws_are_constants():
    leaf = torch.ones(3, N, D, dtype=torch.float64, requires_grad=True)
    log_prob = leaf.sum(-1)
    draws = Draws((leaf * 2,), log_prob, torch.zeros(3, N))
    part = constant_draws(draws, torch.zeros(N))
    assert not (part.x.requires_grad or part.log_base.requires_grad)


def solve(both, tol, ridge=0.0):
    step = m_step(CENTRE, noise_ratio=NU, fit_linear=True, tol=(tol, tol))
    penalty = Penalty(torch.zeros(D, D).double(), ridge)
    return step.solve(step.summarise(both), THETA, penalty, tol)


def test_the_m_step_is_the_minimum(seed):
    both = Both(*(enumerated(rows(n, seed), False)[0] for n in (N, N * NU)))
    solution = solve(both, 1e-8, ridge=0.1)
    assert solution.gap < 1e-6
    K = solution.theta.precision
    at = float(loss(both, solution.theta, CENTRE, NU)) + 0.1 * float(K[0, 1] ** 2)
    assert solution.loss == pytest.approx(at, rel=1e-12)
    with seeded(seed):
        for _ in range(20):
            move = 0.01 * torch.randn(D, D).double()
            near = K + move + move.T
            near.diagonal().clamp_(min=DIAGONAL_FLOOR)
            near = solution.theta._replace(precision=near)
            off = float(near.precision[0, 1])
            assert float(loss(both, near, CENTRE, NU)) + 0.1 * off**2 > solution.loss


def test_data_of_all_rounds_and_the_last_noise_are_kept():
    def part(value, n):
        return Drawn(torch.full((2, n, D), value), *torch.full((2, 2, n), value))

    old, new = (Both(part(v, 4), part(v, 8)) for v in (1.0, 2.0))
    both = keep_data(old, new, 0.5)
    assert both.data.x.shape == (2, 8, D)
    expected = torch.tensor([1.0] * 4 + [2.0] * 4).expand(2, 8)
    assert torch.equal(both.data.log_base, expected) and both.noise is new.noise
