"""The defensive mixture: its density, its draws, and weights that stay bounded."""

import math

import numpy as np
import pytest
import torch
from oracles import GATE, line_rule, z_mean
from torch.distributions import LogNormal

from skvnce._core.distributions.normal import Normal
from skvnce._core.distributions.truncated_normal import TruncatedNormal
from skvnce._core.models import repeated
from skvnce._core.random import stream
from skvnce.contrast.posteriors import DefensiveCells, NormalCells
from skvnce.graphs.vnce import MarginalCells

D = 3
COVARIANCE = torch.tensor([[1.0, 0.5, -0.3], [0.5, 1.5, 0.2], [-0.3, 0.2, 0.8]])
FIXED = TruncatedNormal(torch.tensor([-0.5, 0.3, 1.0]).double(), torch.ones(D).double())
MASKS = [[True, False, True], [False, True, False], [False, False, True]]


@pytest.fixture
def parts():
    initial = Normal(torch.tensor([0.1, -0.2, 0.3]).double(), COVARIANCE.double())
    learnt = NormalCells(initial, torch.ones(D).bool())
    return learnt, MarginalCells(FIXED)


@pytest.fixture
def mixture(parts):
    return DefensiveCells(*parts)


def at(values, mask):
    """Put values (n, n_missing) under the mask of rows of 0.7; (n, 1, D)."""
    x = torch.full((len(values), 1, D), 0.7, dtype=torch.float64)
    x[:, 0, ~torch.tensor(mask)] = values
    return x


def log_density(parts, x, observed):
    both = torch.stack([part.log_prob(x, observed).detach() for part in parts])
    return both.logsumexp(0) - math.log(2)


@pytest.mark.parametrize("mask", MASKS)
def test_the_density_integrates_to_one(mask, parts):
    observed = torch.tensor([mask])
    n_missing = int((~observed).sum())
    points, weights = line_rule(14.0, 200)
    grid = torch.cartesian_prod(*[points.squeeze(-1)] * n_missing)
    grid = grid.reshape(-1, n_missing)  # logarithms of the cells
    rule = torch.cartesian_prod(*[weights] * n_missing).reshape(-1, n_missing).prod(-1)
    log_q = log_density(parts, at(grid.exp(), mask), observed)[:, 0]
    total = (log_q.exp() * grid.exp().prod(-1)) @ rule
    assert float(total) == pytest.approx(1, abs=1e-5)


def test_draws_carry_the_density_of_the_mixture(mixture, parts):
    observed = torch.tensor(MASKS)
    x = torch.full((3, D), 0.7, dtype=torch.float64)
    draws = mixture(repeated(x, 5), observed, stream(1))
    (filled,) = draws.values
    expected = log_density(parts, filled, observed)
    torch.testing.assert_close(draws.log_prob.detach(), expected)
    torch.testing.assert_close(draws.log_weight.logsumexp(0), torch.zeros(3).double())
    assert torch.equal(filled[:, observed], x[observed].expand(5, -1))
    assert (filled >= 0).all()


def test_draws_are_of_the_mixture(mixture, parts, seed):
    """Importance weights of draws integrate any function: here a narrow density."""
    observed = torch.tensor(MASKS)
    x = torch.full((3, D), 0.7, dtype=torch.float64)
    n = 4000
    with torch.no_grad():
        draws = mixture(repeated(x, n), observed, stream(seed))
    (filled,) = draws.values
    narrow = LogNormal(torch.tensor(0.0), torch.tensor(0.4)).log_prob(filled)
    log_value = narrow.where(~observed, 0.0).sum(-1)
    half = n // 2
    for log_q, right in ((draws.log_prob, True), (parts[0].log_prob, False)):
        if not right:
            log_q = log_q(filled, observed).detach()
        pairs = (log_value - log_q).exp().unflatten(0, (2, half)).mean(0)
        z = np.abs(z_mean(pairs.numpy(), 1.0, 0)).max()
        assert z < GATE if right else z > GATE


def test_only_the_learnt_part_learns(mixture):
    observed = torch.tensor(MASKS)
    x = torch.full((3, D), 0.7, dtype=torch.float64)
    draws = mixture(repeated(x, 4), observed, stream(1))
    draws.log_prob.sum().backward()
    names = {name for name, leaf in mixture.named_parameters() if leaf.requires_grad}
    assert all(name.startswith("learnt.") for name in names)
    assert mixture.learnt.free.shift.grad.abs().min() > 0
