"""Two variational blocks: exact where both conditionals are."""

import pytest
import torch
from oracles import GATE, first_and_second, z_mean
from torch.distributions import Normal
from toy import LINEAR, ROWS, exact_moments, linear_posterior, repeat

from skvnce._core.posteriors import stream
from skvnce._core.samplers import run_chain
from skvnce.autoencoder.losses import variational_block_gibbs

N_COPIES, N_STEPS = 3000, 60


def cells_of(wider=1.0, garbled=0.0):
    """Make p(x_mis | z), or what is wider, or reads what it should not."""

    def cells(x, observed, z):
        found = LINEAR.likelihood(z)
        return Normal(found.loc + garbled * x.where(observed, 0.0).sum(-1, True), wider)

    def exact(x, observed, z):
        return LINEAR.likelihood(z)

    return exact if wider == 1.0 and not garbled else cells


def moments(posterior, cells, row, seed):
    """Run many chains of one row; first and second moments of its missing cells."""
    torch.manual_seed(seed)
    data = repeat(row[None], N_COPIES)
    sampler = variational_block_gibbs(LINEAR, posterior, cells)
    end = run_chain(sampler, sampler.init(data), data, N_STEPS)
    return first_and_second(end.x[0][:, ~data.observed[0]])


@pytest.mark.parametrize("row", ROWS, ids=["two", "three", "all"])
def test_exact_conditionals_lead_to_the_exact_conditional(row, seed):
    found = moments(linear_posterior(), cells_of(), row, seed)
    assert abs(z_mean(found, exact_moments(row))).max() < GATE


@pytest.mark.parametrize(
    ("posterior", "cells"),
    [(linear_posterior(widen=1.5), cells_of()), (linear_posterior(), cells_of(0.5))],
    ids=["latents", "cells"],
)
def test_others_lead_elsewhere(posterior, cells, seed):
    found = moments(posterior, cells, ROWS[1], seed)
    assert abs(z_mean(found, exact_moments(ROWS[1]))).max() > GATE


def test_latents_go_on_from_where_they_are(seed):
    """They persist; the first move replaces them."""
    data = repeat(ROWS, 2)
    sampler = variational_block_gibbs(
        LINEAR, linear_posterior(), cells_of(), uniforms=stream(seed)
    )
    x, z = torch.zeros(3, 6, 4).double(), torch.full((3, 6, 2), 0.5).double()
    state = sampler.init(data, x, z)
    assert (state.z == z).all()
    drawn = sampler.init(data, x).z
    assert (drawn.shape, bool((drawn != z).all())) == (z.shape, True)
    moved, _ = sampler.step(state, data)
    assert (moved.z != z).all()
    assert torch.equal(moved.x, sampler.step(sampler.init(data, x), data)[0].x)
