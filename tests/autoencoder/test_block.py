"""Training by variational block-Gibbs inference."""

import pytest
import torch
from torch import nn
from vaes import Curved

from skvnce._core.incomplete import Incomplete
from skvnce.autoencoder.losses import (
    BlockChains,
    block_scheme,
    marginal_scheme,
    train,
    visit_loss,
)
from skvnce.autoencoder.networks import IndependentNormalEncoder, NormalLatentCells
from skvnce.contrast.posteriors import Perceptron
from skvnce.vgi.training import epochs, from_marginals

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
def test_all_parts_are_trained(kind, seed):
    data, parts = table(seed), scheme(kind)
    before = {k: v.detach().clone() for k, v in parts.parts.named_parameters()}
    chains = BlockChains(parts, data, from_marginals(data, 3))
    train(parts, chains, epochs(N, 8), n_epochs=2, n_warm_up=0)
    for name, value in parts.parts.named_parameters():
        assert (value != before[name]).any(), name


@kinds
@pytest.mark.parametrize("garbage", [torch.nan, 1e6])
def test_values_under_the_mask_are_never_read(kind, garbage, seed):
    data = table(seed)
    dirty = Incomplete(data.x.where(data.observed, garbage), data.observed)
    found = []
    for rows in (data, dirty):
        torch.manual_seed(seed)
        parts = scheme(kind)
        chains = BlockChains(parts, rows, from_marginals(rows, 2))
        losses = train(parts, chains, epochs(N, 8), n_epochs=3, n_warm_up=1)
        found.append((losses, chains.now[0]))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


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
