"""The three pitfalls of Simkus and Gutmann (2023), figure 1, and their remedies.

Distances are Jensen-Shannon divergences from the exact answer, in nats.  The thesis'
repository stores for its trained model, at x1 = 0, x0 = 0 and x1 = 1: pseudo-Gibbs
.02, .42, .08; MWG .43, .42, .69; AC-MWG and LAIR at most .02 each.
"""

import numpy as np
import pytest
import torch
from toy import CENTRES, STRETCH_MEAN, Clusters, clusters_posterior, divergence, repeat

from skvnce._core.models import run_chain
from skvnce._core.random import seeded
from skvnce.autoencoder.samplers import ac_mwg, lair, mwg, run_pooled
from skvnce.autoencoder.samplers import pooled_draws as draws

N = np.nan
PROBLEMS = {  # a row, and the cluster in which all chains start
    "near modes": (np.array([N, 0.0]), 6),
    "far modes": (np.array([0.0, N]), 6),
    "poor start": (np.array([N, 1.0]), 8),
}
PARTS = Clusters(), clusters_posterior()
WORKS = 0.03


def start(sampler, problem, n, n_chains=1):
    """Start all chains in one cluster."""
    row, cluster = PROBLEMS[problem]
    data = repeat(row[None], n)
    state = sampler.init(data, CENTRES[cluster].expand(n_chains, n, 2))
    if hasattr(state, "z"):
        state = state._replace(z=STRETCH_MEAN[cluster].expand(n_chains, n, 1))
    return data, state


def distance(sampler, problem, seed, *, n=100, n_chains=1, n_steps=500, burn_in=100):
    """Run many chains and compare all that they visit with the exact answer."""
    data, state = start(sampler, problem, n, n_chains)
    row, visited = PROBLEMS[problem][0], []

    def visit(state, info):
        visited.append(state.x[..., np.isnan(row)].clone())

    with seeded(seed):
        state = run_chain(sampler, state, data, burn_in)
        run_chain(sampler, state, data, n_steps, visit)
    return divergence(torch.stack(visited).numpy(), row)


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_ac_mwg(problem, seed):
    sampler = ac_mwg(*PARTS, eps=0.01, history_size=20)
    assert distance(sampler, problem, seed, n_steps=900, burn_in=700) < WORKS


@pytest.mark.quick(1)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_lair(problem, seed):
    sampler, n = lair(*PARTS), 10
    result = distance(sampler, problem, seed, n=n, n_chains=20, burn_in=20)
    assert result < WORKS / 3
    data, state = start(sampler, problem, n, 20)
    options = {"n_steps": 300, "n_draws": 2000}
    with seeded(seed):
        _, pool = run_pooled(sampler, state, data, torch.square, **options)
        x = draws(PARTS[0], data, pool)
    row = PROBLEMS[problem][0]
    assert divergence(x[..., np.isnan(row)].numpy(), row) < WORKS / 3


def test_a_warm_up_by_another_sampler(seed):
    """The particles of LAIR become the chains of MWG, which keeps their modes."""
    first, then = lair(*PARTS), mwg(*PARTS)
    data, state = start(first, "far modes", 50, 20)
    with seeded(seed):
        warm = run_chain(first, state, data, 100)
        state = run_chain(then, then.init(data, warm.x), data, 20)
    assert state.x.shape == (20, 50, 2)
    assert divergence(state.x[..., 1].numpy(), PROBLEMS["far modes"][0]) < WORKS
