"""Samplers of latent variable models against the exact conditionals of factor analysis.

Every row is copied many times and its copies are independent chains, so that standard
errors need no autocorrelations.
"""

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, z_mean
from toy import (
    LINEAR,
    ROWS,
    exact_latents,
    exact_moments,
    linear_posterior,
    repeat,
)

from skvnce._core import samplers
from skvnce._core.posteriors import global_stream
from skvnce._core.random import seeded
from skvnce._core.samplers import decode, run_chain
from skvnce.autoencoder.samplers import ac_mwg, mwg, pseudo_gibbs

N = 3000
OFF = linear_posterior(widen=1.3, shift=0.2)
EXACT = linear_posterior()
SAMPLERS = {
    "pseudo_gibbs": pseudo_gibbs(LINEAR, EXACT),
    "mwg": mwg(LINEAR, OFF),
    "ac_mwg": ac_mwg(LINEAR, OFF, eps=0.1),
    "ac_mwg, short history": ac_mwg(LINEAR, OFF, eps=0.1, history_size=3),
}


def worst_z(x):
    """Compare the tables (1, copies of rows, features) with the exact moments."""
    blocks = x[0].view(len(ROWS), N, -1).numpy()
    return max(
        np.abs(z_mean(first_and_second(b[:, np.isnan(row)]), exact_moments(row))).max()
        for b, row in zip(blocks, ROWS, strict=True)
    )


def run(sampler, seed, n_steps):
    data = repeat(ROWS, N)
    with seeded(seed):
        return run_chain(sampler, sampler.init(data), data, n_steps).x


def run_from_target(sampler, seed, n_steps=4):
    """Start latents and cells at draws of the target, histories elsewhere."""
    data = repeat(ROWS, N)
    with seeded(seed):
        z = exact_latents(data)[None]
        x = decode(LINEAR, data, z, torch.rand(1, *data.x.shape).double())
        state = sampler.init(data, x)
        if hasattr(state, "history"):  # an imputation independent of z
            state = sampler.init(data)
        if hasattr(state, "z"):
            state = state._replace(x=x, z=z)
        return run_chain(sampler, state, data, n_steps).x


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", SAMPLERS)
def test_chains_converge_to_the_target(name, seed):
    assert worst_z(run(SAMPLERS[name], seed, 60)) < GATE


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_target_is_invariant(name, seed):
    assert worst_z(run_from_target(SAMPLERS[name], seed)) < GATE


@pytest.mark.parametrize("name", SAMPLERS)
def test_too_few_steps_are_seen(name, seed):
    assert worst_z(run(SAMPLERS[name], seed, 1)) > 2 * GATE


def test_pseudo_gibbs_is_wrong_where_its_encoder_is(seed):
    sampler = pseudo_gibbs(LINEAR, OFF)
    assert worst_z(run_from_target(sampler, seed)) > 2 * GATE


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["mwg", "ac_mwg", "ac_mwg, short history"])
@pytest.mark.parametrize("rule", ["accept all", "turned over"])
def test_a_broken_accept_step_is_seen(name, rule, seed, monkeypatch):
    right = samplers.accept

    def accept_all(log_weight, uniform):
        return torch.ones_like(uniform, dtype=torch.bool), torch.ones_like(uniform)

    def turned_over(log_weight, uniform):
        return right(-log_weight, uniform)

    broken = accept_all if rule == "accept all" else turned_over
    monkeypatch.setattr(samplers, "accept", broken)
    assert worst_z(run(SAMPLERS[name], seed, 40)) > 2 * GATE


def test_rows_without_observed_cells_give_unconditional_draws(seed):
    """Those of the start are exact, with no step made."""
    blank = repeat(ROWS[[2]], N)
    with seeded(seed):
        x = pseudo_gibbs(LINEAR, OFF, uniforms=global_stream).init(blank).x[0].numpy()
    z = z_mean(first_and_second(x), exact_moments(ROWS[2]))
    assert np.abs(z).max() < GATE
