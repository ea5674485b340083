"""Binary columns, whose conditionals are exact by quadrature over one latent."""

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, log_integral, orthant_rule, z_mean
from torch.distributions import Bernoulli, Normal
from toy import latents, repeat

from skvnce._core.models import observed_log_prob
from skvnce._core.random import seeded
from skvnce._core.samplers import run_chain
from skvnce.autoencoder.samplers import ac_mwg, lair, mwg, run_pooled
from skvnce.autoencoder.samplers import pooled_draws as draws

SLOPES = torch.tensor([2.0, -1.5, 1.0, 3.0]).double()
ROW = np.array([1.0, np.nan, np.nan, 0.0])
HIDDEN = np.isnan(ROW)
N = 5000


class Binary:
    def prior(self):
        return latents(torch.zeros(1).double(), torch.ones(1).double())

    def likelihood(self, z):
        return Bernoulli(logits=z * SLOPES + 0.5)


def posterior(x, observed):
    """Lean the right way, and no more."""
    mean = 0.3 * (x @ SLOPES.sign())[..., None]
    return latents(mean, torch.ones_like(mean))


def exact():
    """Compute first and second moments of the hidden cells, and log p(x_obs)."""
    nodes, weights = orthant_rule(1, 16.0, 200)
    z, data = nodes - 8, repeat(ROW[None], 1)
    likelihood = Binary().likelihood(z)
    log_joint = Normal(0.0, 1.0).log_prob(z[:, 0])
    log_joint = log_joint + observed_log_prob(likelihood, *data)
    evidence = log_integral(log_joint, weights)
    share = (log_joint + weights.log() - evidence).exp().numpy()
    a, b = likelihood.probs[:, HIDDEN].numpy().T
    return share @ np.stack([a, b, a, a * b, b], 1), evidence


def worst_z(hidden):
    return np.abs(z_mean(first_and_second(hidden), exact()[0])).max()


@pytest.mark.parametrize("make", [mwg, ac_mwg])
def test_chains(make, seed):
    data, sampler = repeat(ROW[None], N), make(Binary(), posterior)
    with seeded(seed):
        x = run_chain(sampler, sampler.init(data), data, 30).x[0].numpy()
    assert (x[:, ~HIDDEN] == ROW[~HIDDEN]).all()
    assert set(np.unique(x)) == {0.0, 1.0}
    assert worst_z(x[:, HIDDEN]) < GATE
    assert worst_z(1 - x[:, HIDDEN]) > 2 * GATE


def test_lair(seed):
    data, sampler = repeat(ROW[None], N), lair(Binary(), posterior, n_particles=5)
    with seeded(seed):
        state = sampler.init(data)
        _, pool = run_pooled(sampler, state, data, torch.square, n_steps=40, n_draws=1)
        x = draws(Binary(), data, pool)[0].numpy()
    assert worst_z(x[:, HIDDEN]) < GATE
    ratio = (pool.log_total - np.log(pool.n_proposals) - exact()[1]).exp().numpy()
    assert np.abs(z_mean(ratio, 1.0)) < GATE
