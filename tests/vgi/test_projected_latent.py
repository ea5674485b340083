"""Projected latent chains against exact conditionals of a normal and of a curved flow.

Every row is copied, and its copies are independent chains, so that standard errors need
no autocorrelations.
"""

from functools import partial

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, line_rule, missing_moments, worst_z, z_mean
from toy import repeat

from skvnce._core.models import run_chain
from skvnce._core.random import seeded
from skvnce.vgi import mcem as module
from skvnce.vgi.densities import SplineFlow
from skvnce.vgi.mcem import Projected, Proposal, log_projected, projected_latent

N, STEPS = 1200, 60
NAN = float("nan")
MEAN = np.array([0.5, -1.0, 2.0])
FACTOR = np.array([[1.0, 0, 0], [0.6, 0.8, 0], [-0.3, 0.4, 0.7]])
ROWS = np.array([[1.2, NAN, 1.5], [NAN, -0.5, NAN], [NAN, NAN, NAN]])
PAIR = np.array([[-0.3, NAN]])
WIDE = Proposal(
    wide=1.3, small=0.4, sigma=0.5
)  # else few proposals of so many are accepted


def normal_flow():
    mean, factor = (torch.tensor(a) for a in (MEAN, FACTOR))
    return SplineFlow(mean, factor, n_steps=1, hidden=(4,)).requires_grad_(False)


def curved_flow():
    """Make a flow of two columns whose determinant is far from constant."""
    with seeded(7):
        model = SplineFlow(torch.zeros(2), torch.eye(2), n_steps=2, hidden=(8,))
        for leaf in model.parameters():
            torch.nn.init.normal_(leaf, std=0.6)
        for leaf in model.linear:
            leaf.data.copy_(torch.tensor([[1.0, 0.3], [-0.2, 1.0]]))
    return model.double().requires_grad_(False)


CURVED = curved_flow()


class Flat:
    """A flow that claims to keep all volumes."""

    def __init__(self, model):
        self.log_prob, self.from_base = model.log_prob, model.from_base
        self.right = model.to_base

    def to_base(self, x):
        u, log_det = self.right(x)
        return u, torch.zeros_like(log_det)


def chains(model, rows, seed, n_steps=STEPS, **settings):
    data = repeat(rows, N)
    sampler = projected_latent(model, **{"proposal": WIDE, **settings})
    with seeded(seed):
        return run_chain(sampler, sampler.init(data), data, n_steps)


def from_target(model, seed, n_steps, sigma):
    """Start at draws of eq. (1) for the curved flow, and go on by another."""
    data = repeat(PAIR, N)
    line, mass = curved_grid(PAIR[0])
    proposal = Proposal(small=0.2, sigma=sigma)
    with seeded(seed):
        y = data.x + sigma * torch.randn_like(data.x)
        at = torch.searchsorted(mass.cumsum(0), torch.rand(N).double())
        y = y.where(data.observed, line[at.clamp(max=len(line) - 1)][:, None])[None]
        x = data.with_values(y)
        log_target = log_projected(model, x, y, sigma)
        state = Projected(x, model.to_base(y)[0], log_target)
        sampler = projected_latent(model, proposal=proposal)
        end = run_chain(sampler, state, data, n_steps)
    return end, (end.x != x).any(-1).double().mean()


normal_moments = partial(missing_moments, MEAN, FACTOR @ FACTOR.T)


def curved_grid(row):
    line = torch.linspace(-30, 30, 20001).double()
    (place,) = np.isnan(row).nonzero()[0]
    x = torch.tensor(row).expand(len(line), -1).clone()
    x[:, place] = line
    mass = CURVED.log_prob(x).exp()
    return line, mass / mass.sum()


def curved_moments(row):
    line, mass = curved_grid(row)
    return np.array([float(mass @ line), float(mass @ line**2)])


def test_normal_conditionals(seed):
    state = chains(normal_flow(), ROWS, seed)
    assert worst_z(state.x[0], ROWS, normal_moments) < GATE


def test_curved_conditionals(seed):
    state = chains(CURVED, PAIR, seed)
    assert worst_z(state.x[0], PAIR, curved_moments) < GATE


@pytest.mark.parametrize("row", ROWS[:2])
def test_too_few_steps_are_seen(row, seed):
    x = chains(normal_flow(), np.tile(row, (4, 1)), seed, 1).x[0].numpy()
    drawn = first_and_second(x[:, np.isnan(row)])
    assert np.abs(z_mean(drawn, normal_moments(row))).max() > GATE


@pytest.mark.slow
def test_without_the_determinant_chains_are_wrong(seed):
    state = chains(Flat(CURVED), PAIR, seed)
    assert worst_z(state.x[0], PAIR, curved_moments) > 2 * GATE
    # and where it is constant, they are not
    state = chains(Flat(normal_flow()), ROWS, seed)
    assert worst_z(state.x[0], ROWS, normal_moments) < GATE


@pytest.mark.quick(1)
@pytest.mark.parametrize("broken", ["accept all", "ratio left out", "turned over"])
def test_a_broken_move_is_seen(broken, seed, monkeypatch):
    right = module.accept

    def accept(log_weight, uniform):
        if broken == "accept all":
            return torch.ones_like(uniform, dtype=torch.bool), uniform
        return right(-log_weight if broken == "turned over" else log_weight, uniform)

    monkeypatch.setattr(module, "accept", accept)
    if broken == "ratio left out":
        monkeypatch.setattr(Proposal, "log_prob", lambda self, to, _: to[..., 0] * 0)
    proposal = WIDE._replace(wide=0.7)
    state = chains(normal_flow(), ROWS[:2], seed, proposal=proposal)
    assert worst_z(state.x[0], ROWS[:2], normal_moments) > 1.5 * GATE


@pytest.mark.parametrize("sigma", [1e-3, 0.5])
def test_the_target_is_invariant_at_any_sigma(sigma, seed):
    """With the authors' small sigma chains hardly move."""
    state, moved = from_target(CURVED, seed, 20, sigma)
    assert worst_z(state.x[0], PAIR, curved_moments) < GATE
    assert moved > 0.5 or sigma < 0.1


def test_log_determinants_by_finite_differences(seed):
    data = repeat(PAIR, 20)
    with seeded(seed):
        u = torch.randn(1, 20, 2).double()
    y, step = CURVED.from_base(u), 1e-6
    x = data.with_values(y)
    columns = [
        (CURVED.from_base(u + step * e) - CURVED.from_base(u - step * e)) / (2 * step)
        for e in torch.eye(2).double()
    ]
    log_det = torch.stack(columns, -1).slogdet()[1]  # of dT/du
    apart = (y - x).square().sum(-1) / (2 * 0.3**2)
    expected = CURVED.log_prob(x) - apart + log_det
    result = log_projected(CURVED, x, y, 0.3)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)
    assert log_det.std() > 0.2


def test_proposals_have_their_density(seed):
    proposal = Proposal(share=0.3, wide=1.2, small=0.5)
    origin = torch.tensor([0.7, -0.4]).double()
    with seeded(seed):
        uniform = torch.rand(20000, 3).double()
    drawn = proposal.draw(origin.expand(20000, 2), uniform).numpy()
    second = 0.3 * 1.2**2 * np.eye(2) + 0.7 * (
        0.5**2 * np.eye(2) + np.outer(origin, origin)
    )
    moments = np.concatenate([0.7 * origin.numpy(), second[np.triu_indices(2)]])
    assert np.abs(z_mean(first_and_second(drawn), moments)).max() < GATE
    line, weights = line_rule(8.0, 200)
    grid = torch.cartesian_prod(line[:, 0], line[:, 0])
    mass = proposal.log_prob(grid, origin).exp() * torch.outer(weights, weights).ravel()
    assert float(mass.sum()) == pytest.approx(1.0, abs=1e-9)
    assert (mass @ grid).numpy() == pytest.approx(0.7 * origin.numpy())


def test_observed_cells_stay_and_values_under_the_mask_do_not_matter(seed):
    data = repeat(ROWS, 5)
    state = chains(normal_flow(), ROWS, seed, 5, n_chains=2)
    table = repeat(ROWS, N)
    assert (state.x[:, table.observed] == table.x[table.observed]).all()
    sampler, ends = projected_latent(normal_flow(), proposal=WIDE), []
    for value in (0.0, 1e6):
        filled = data._replace(x=data.x.where(data.observed, value))
        with seeded(seed):
            ends.append(run_chain(sampler, sampler.init(filled), filled, 5).x)
    assert (ends[0] == ends[1]).all()
