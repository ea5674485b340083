"""Variational block-Gibbs: chains that train, and chains that draw."""

import pytest
import torch
from _vae_networks import IndependentNormalEncoder, NormalLatentCells, train
from oracles import GATE, first_and_second, z_mean
from torch import nn
from torch.distributions import Normal
from toy import LINEAR, ROWS, exact_moments, linear_posterior, repeat
from vaes import Curved

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import run_chain
from skvnce._core.random import stream
from skvnce.autoencoder.losses import (
    BlockChains,
    block_scheme,
    marginal_scheme,
    variational_block_gibbs,
    visit_loss,
)
from skvnce.contrast.posteriors import Perceptron
from skvnce.vgi.training import epochs, from_marginals

# Training by variational block-Gibbs inference


LOADINGS, SCALE = [[1.0], [-0.8], [0.9], [0.7]], [0.4, 0.6, 0.5, 0.3]
D, N = 4, 30


def scheme(kind):
    model = Curved(LOADINGS, SCALE, bend=0.5)
    network = Perceptron(torch.zeros(D), torch.ones(D), [6], 2)
    posterior = IndependentNormalEncoder(network).double()
    if kind == "marginal":
        return marginal_scheme(model, posterior)
    return block_scheme(
        model, posterior, NormalLatentCells(nn.Linear(D + 1, 2 * D)).double()
    )


def table(seed, n=N):
    torch.manual_seed(seed)
    z = torch.randn(n, 1).double()
    x = z @ torch.tensor(LOADINGS).double().T + 0.5 * torch.randn(n, D)
    observed = torch.rand(n, D) < 0.6
    observed[:, 0] |= ~observed.any(1)
    observed[0] = True
    return Incomplete(x.where(observed, 0.0), observed)


kinds = pytest.mark.parametrize("kind", ["block", "marginal"])


@kinds
def test_chains_rest_in_the_warm_up_and_then_move(kind, seed):
    data, parts = table(seed), scheme(kind)
    chains = BlockChains(parts, data, from_marginals(data, 3))
    start = [value.clone() for value in chains.now]
    seen = []

    def watch(epoch, loss):
        still = [torch.equal(a, b) for a, b in zip(chains.now, start, strict=True)]
        seen.append(still)
        return False

    losses = train(parts, chains, epochs(N, 8), n_epochs=4, n_warm_up=2, on_epoch=watch)
    assert len(losses) == 4
    assert [all(still) for still in seen] == [True, True, False, False]
    assert not any(seen[-1])
    x = chains.now[0]
    assert (x[:, data.observed] == data.x[data.observed]).all()
    assert ((x != start[0]) == ~data.observed.expand_as(x)).all()


@kinds
def test_a_visit_moves_its_rows_alone(kind, seed):
    data, parts = table(seed), scheme(kind)
    chains = BlockChains(parts, data, from_marginals(data, 3))
    start, rows = [v.clone() for v in chains.now], torch.arange(5, 12)
    loss = visit_loss(parts, chains, 1)(rows)
    assert loss.shape == ()
    others = torch.ones(N).bool()
    others[rows] = False
    for value, old in zip(chains.now, start, strict=True):
        assert torch.equal(value[:, others], old[:, others])
        assert not torch.equal(value[:, rows], old[:, rows])
        assert not value.requires_grad


# Two variational blocks: exact where both conditionals are


N_COPIES, N_STEPS = 3000, 60


def cells_of(wider=1.0, garbled=0.0):
    """Make p(x_mis | z), or what is wider, or reads what it should not."""

    def cells(x, observed, z):
        result = LINEAR.likelihood(z)
        return Normal(
            result.loc + garbled * x.where(observed, 0.0).sum(-1, True), wider
        )

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
    result = moments(linear_posterior(), cells_of(), row, seed)
    assert abs(z_mean(result, exact_moments(row))).max() < GATE


@pytest.mark.parametrize(
    ("posterior", "cells"),
    [(linear_posterior(widen=1.5), cells_of()), (linear_posterior(), cells_of(0.5))],
    ids=["latents", "cells"],
)
def test_others_lead_elsewhere(posterior, cells, seed):
    result = moments(posterior, cells, ROWS[1], seed)
    assert abs(z_mean(result, exact_moments(ROWS[1]))).max() > GATE


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
