"""Gibbs sampling of levels and numbers by conditionals, against enumeration."""

import numpy as np
import torch
from oracles import GATE, z_mean
from statistical import FAILURE, p_counts
from torch.distributions import Normal

from skvnce._core.distributions.cells import NumberOrLevel
from skvnce._core.incomplete import Incomplete
from skvnce._core.samplers import run_chain
from skvnce.vgi.training import Hypercube, variational_gibbs

N, STEPS = 3000, 30
SIZES = torch.tensor([2, 3, 4, 0])
CUBE = Hypercube(torch.tensor([0.0, 0.0, 0.0, -50.0]), torch.tensor([1, 2, 3, 50.0]))
SHIFT = torch.tensor([-1.5, -0.5, 0.5, 1.5]).double()  # of the number, by column 2


def table(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    return logits.flatten().softmax(0).view(2, 3, 4)


class Conditionals:
    """Those of a table of three levels, and a number whose mean the third one sets."""

    def __init__(self, probabilities):
        self.probabilities = probabilities

    def at(self, x, columns):
        i, j, k = x[..., :3].round().long().unbind(-1)
        p, number = self.probabilities, Normal(SHIFT[k], 1.0)
        density = Normal(SHIFT, 1.0).log_prob(x[..., 3:]).exp()
        levels = torch.zeros(*columns.shape, 4).double()
        for column, found in enumerate((p[:, j, k].movedim(0, -1), p[i, :, k])):
            levels[..., : found.shape[-1]] += (columns == column)[..., None] * found
        levels += (columns == 2)[..., None] * p[i, j] * density
        return NumberOrLevel(number, levels.log(), SIZES[columns])


def chained(q, row, seed):
    data = Incomplete.from_array(np.tile(row, (N, 1)))
    sampler = variational_gibbs(q, CUBE)
    torch.manual_seed(seed)
    start = torch.rand(N, 4).double() * torch.tensor([2, 3, 4, 1])
    state = sampler.init(data, start.floor())
    return run_chain(sampler, state, data, STEPS).x


def p_common(counts, probabilities):
    """Compare the counts of outcomes that are frequent enough."""
    common = probabilities * N >= 12
    part = probabilities[common] / probabilities[common].sum()
    return p_counts(counts[common].numpy(), part.numpy())


def test_levels_follow_the_joint_probabilities(seed):
    """All of a row is missing: the chain's stationary law is that of the table."""
    row, joint = np.full(4, np.nan), table(seed)
    x = chained(Conditionals(joint), row, seed)
    place = x[:, 0] * 12 + x[:, 1] * 4 + x[:, 2]
    counts, expected = torch.bincount(place.long(), minlength=24), joint.flatten()
    assert p_common(counts, expected) > FAILURE
    for k in range(4):
        own = x[x[:, 2] == k, 3]
        if len(own) > 30:
            assert abs(z_mean(own, SHIFT[k])) < GATE
    other = table(seed + 1).flatten()  # control
    assert abs(counts / N - expected).sum() < abs(counts / N - other).sum() / 2


def test_observed_cells_condition_the_levels(seed):
    joint = table(seed)
    x = chained(Conditionals(joint), np.array([1.0, np.nan, np.nan, 0.7]), seed)
    assert (x[:, 0] == 1).all() and (x[:, 3] == 0.7).all()
    density = Normal(SHIFT, 1.0).log_prob(torch.tensor(0.7)).exp()
    expected = (joint[1] * density).flatten()
    expected = expected / expected.sum()
    found = torch.bincount((x[:, 1] * 4 + x[:, 2]).long(), minlength=12)
    assert p_common(found, expected) > FAILURE
    wrong = joint[0].flatten()
    assert abs(found / N - expected).sum() < abs(found / N - wrong).sum() / 2


def test_levels_outside_of_the_hypercube_are_rejected(seed):
    cube = Hypercube(CUBE.low, torch.tensor([1, 2, 2, 50.0]))
    data = Incomplete.from_array(np.full((200, 4), np.nan))
    sampler = variational_gibbs(Conditionals(table(seed)), cube)
    torch.manual_seed(seed)
    state = sampler.init(data, torch.zeros(200, 4).double())
    assert run_chain(sampler, state, data, STEPS).x[:, 2].max() == 2
