"""The network against its definition in torch, with its slopes and its dropout."""

import pytest
import torch
from torch.nn.functional import silu

from skvnce.autoencoder.networks import ResidualPerceptron

DROPOUT = 0.3


def network(seed, hidden=(5, 4), dropout=0.0):
    torch.manual_seed(seed)
    values = ResidualPerceptron(3, hidden, 2, dropout).double()
    for leaf in values.parameters():
        torch.nn.init.normal_(leaf)
    return values


def by_definition(net, x):
    for joint, block in zip(net.joints, net.blocks, strict=True):
        x = joint(x)
        x = x + block(x)
    return net.last(silu(x))


def rows(seed, *shape):
    return torch.randn(
        *shape, 3, generator=torch.Generator().manual_seed(seed)
    ).double()


@pytest.mark.parametrize("shape", [(7,), (2, 7), (2, 3, 7), ()])
def test_values_and_slopes_are_those_of_its_layers(shape, seed):
    net, x = network(seed), rows(seed, *shape).requires_grad_()
    result, expected = net(x), by_definition(net, x)
    torch.testing.assert_close(result, expected)
    leaves = [x, *net.parameters()]
    slopes, exact = (
        torch.autograd.grad(y.square().sum(), leaves) for y in (result, expected)
    )
    for one, other in zip(slopes, exact, strict=True):
        torch.testing.assert_close(one, other)
    other = network(seed + 1)
    assert not torch.allclose(other(x), expected)


def test_dropout_is_shared_by_the_draws_of_a_row(seed):
    net = network(seed, hidden=(50,), dropout=DROPOUT)
    x = rows(seed, 1).expand(4, 6, 3)
    net.train()
    result = net(x)
    assert torch.equal(result[0], result[3])
    assert len(result[0].unique(dim=0)) == 6
    net.eval()
    assert len(net(x).flatten(0, 1).unique(dim=0)) == 1


def test_dropout_keeps_the_mean_and_its_slopes_are_right(seed):
    """The layer after what is dropped is linear, so that the mean is exact."""
    net = network(seed, hidden=(4,), dropout=DROPOUT)
    factors = net.draw_factors(torch.zeros(20000, 3).double())[0]
    assert factors.unique().tolist() == pytest.approx([0.0, 1 / (1 - DROPOUT)])
    error = (DROPOUT / (1 - DROPOUT) / factors.numel()) ** 0.5
    assert abs(float(factors.mean()) - 1) < 5 * error
    x = rows(seed, 2).requires_grad_()

    def fixed(x, *leaves):
        torch.manual_seed(0)  # the same units in every call
        return net(x)

    assert torch.autograd.gradcheck(fixed, (x, *net.parameters()))
