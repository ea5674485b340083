"""LAIR and its pool against the exact answers of factor analysis."""

from math import log

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, z_mean
from toy import (
    LINEAR,
    ROWS,
    exact_moments,
    linear_posterior,
    repeat,
)

from skvnce._core.random import seeded
from skvnce._core.samplers import run_chain
from skvnce.autoencoder.factor_analysis import log_prob_observed
from skvnce.autoencoder.samplers import lair, pseudo_gibbs, run_pooled
from skvnce.autoencoder.samplers import pooled_draws as draws

OFF = linear_posterior(widen=1.3, shift=0.2)
N = 500


def mean_of_cells(z):
    return LINEAR.likelihood(z).mean


def pooled(sampler, data, seed, *, n_steps, n_draws=1, particles=None):
    with seeded(seed):
        state = sampler.init(data, particles)
        _, pool = run_pooled(
            sampler, state, data, mean_of_cells, n_steps=n_steps, n_draws=n_draws
        )
        return pool, draws(LINEAR, data, pool)


def of_rows(values):
    """Split values of copies of rows, and keep the hidden cells."""
    blocks = np.split(values, len(ROWS), -2)
    return [b[..., np.isnan(row)] for b, row in zip(blocks, ROWS, strict=True)]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("k", "r", "n_steps"), [(10, 1, 60), (4, 2, 120), (1, 2, 400), (0, 10, 60)]
)
def test_draws_of_the_pool(k, r, n_steps, seed):
    sampler = lair(LINEAR, OFF, n_particles=k, n_replenish=r)
    _, x = pooled(sampler, repeat(ROWS, N), seed, n_steps=n_steps, n_draws=8)
    for row, drawn in zip(ROWS, of_rows(x.numpy()), strict=True):
        sample = first_and_second(drawn).mean(0)  # draws of one row are dependent
        assert np.abs(z_mean(sample, exact_moments(row))).max() < GATE


def test_few_particles_of_one_iteration_are_biased(seed):
    """So that agreement above is the merit of the pool."""
    sampler, data = lair(LINEAR, OFF, n_particles=1), repeat(ROWS, 12_000)
    with seeded(seed):
        x = run_chain(sampler, sampler.init(data), data, 10).x.numpy()
    z = [
        z_mean(first_and_second(drawn).mean(0), exact_moments(row))
        for row, drawn in zip(ROWS, of_rows(x), strict=True)
    ]
    assert np.abs(np.concatenate(z)).max() > 2 * GATE


@pytest.mark.parametrize("n_steps", [1, 5])
@pytest.mark.parametrize("r", [1, 3])
def test_weights_estimate_the_evidence_without_bias(n_steps, r, seed):
    data = repeat(ROWS, 4000)
    sampler = lair(LINEAR, OFF, n_particles=4, n_replenish=r)
    pool, _ = pooled(sampler, data, seed, n_steps=n_steps)
    exact, _ = log_prob_observed(LINEAR.factor_model(), *data)
    ratio = (
        ((pool.log_total - log(pool.n_proposals))[:, None] - exact[:, None])
        .exp()
        .numpy()
    )
    assert pool.n_proposals == n_steps * (4 + r)
    for row, weight, mean in zip(
        ROWS, np.split(ratio, len(ROWS)), of_rows(pool.mean.numpy()), strict=True
    ):
        assert np.abs(z_mean(weight, 1.0)).max() < GATE
        expected = exact_moments(row)[: mean.shape[-1]]
        assert np.abs(z_mean(weight * (mean - expected), 0.0)).max() < GATE
        assert np.abs(z_mean(weight, 1.1)).max() > 2 * GATE


# Errors


# Limits


def wide(step, template):
    """Give the same leading columns whatever the width."""
    generator = torch.Generator().manual_seed(step)
    shape = (*template.shape[:-1], 32)
    numbers = torch.rand(shape, generator=generator, dtype=template.dtype)
    return numbers[..., : template.shape[-1]]


def test_one_particle_and_no_prior_is_pseudo_gibbs():
    data = repeat(ROWS, 2)
    one = lair(LINEAR, OFF, n_particles=1, n_replenish=0, uniforms=wide)
    gibbs = pseudo_gibbs(LINEAR, OFF, uniforms=wide)
    states = [run_chain(s, s.init(data), data, 5) for s in (one, gibbs)]
    assert torch.equal(states[0].x, states[1].x)
    assert states[0].step == 5


def test_effective_size_of_exact_proposals_is_their_number():
    """A complete row, whose encoder is exact: all weights are p(x)."""
    data = repeat(np.array([[1.0, -1.0, 0.5, 3.0]]), 3)
    sampler = lair(LINEAR, linear_posterior(), n_particles=5, n_replenish=0)
    _, info = sampler.step(sampler.init(data), data)
    exact, _ = log_prob_observed(LINEAR.factor_model(), *data)
    torch.testing.assert_close(info.log_weight, exact.expand(5, 3))
    torch.testing.assert_close(info.effective_size, torch.full((3,), 5.0).double())


def test_the_pool_resamples_all_proposals_by_weight(seed):
    """Many draws of one row against the weights of all proposals, kept for once."""
    data, sampler, records = repeat(ROWS[[0]], 1), lair(LINEAR, OFF, n_particles=3), []

    def step(state, data):
        state, info = sampler.step(state, data)
        records.append(info)
        return state, info

    pool, _ = pooled(sampler._replace(step=step), data, seed, n_steps=4, n_draws=40_000)
    log_weight = torch.cat([t.log_weight for t in records])[:, 0]
    all_z = torch.cat([t.z for t in records])[:, 0]
    weight = log_weight.softmax(0).numpy()
    chosen = (pool.z[:, 0, :1] == all_z[:, 0]).double().numpy()
    assert (chosen.sum(1) == 1).all()
    error = np.sqrt(weight * (1 - weight) / len(chosen)) + 1e-12
    assert np.abs((chosen.mean(0) - weight) / error).max() < GATE
    mean = (log_weight.softmax(0)[:, None] * mean_of_cells(all_z)).sum(0)
    torch.testing.assert_close(pool.mean[0], mean)
    expected = log_weight.logsumexp(0) - log(len(log_weight))
    torch.testing.assert_close(pool.log_total[0] - log(pool.n_proposals), expected)
