"""q(x_mis | z, x_obs) that starts at a linear model."""

import pytest
import torch
from torch import nn

from skvnce.autoencoder.networks import AnchoredLatentCells, ResidualPerceptron

D, K, N = 3, 2, 7


@pytest.fixture
def linear(torch_seeded):
    return torch.randn(D), torch.randn(D, K), torch.rand(D) + 0.1


@pytest.fixture
def rows(seed):
    torch.manual_seed(seed + 1)
    return torch.randn(4, N, D), torch.rand(N, D) < 0.5, torch.randn(4, N, K)


def cells(linear, shake=0.0):
    network = ResidualPerceptron(2 * D + K, (6,), 2 * D, 0.0)
    nn.init.normal_(network.last.weight, std=shake)
    return AnchoredLatentCells(*linear, network)


def test_it_starts_at_the_linear_model(linear, rows):
    mean, loadings, scale = linear
    q, moved = cells(linear)(*rows), cells(linear, 0.5)(*rows)
    torch.testing.assert_close(q.loc, mean + rows[2] @ loadings.T)
    torch.testing.assert_close(q.scale, scale.expand(4, N, D))
    assert (moved.loc != q.loc).all() and (moved.scale != q.scale).all()  # control


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, 1e6])
def test_values_under_the_mask_are_never_read(garbage, linear, rows):
    x, observed, z = rows
    q = cells(linear, 0.5)
    leaves, result = list(q.parameters()), []
    for filled in (x, x.where(observed, garbage)):
        given = q(filled, observed, z)
        value = given.loc.sum() + given.scale.sum()
        result.append([value, *torch.autograd.grad(value, leaves)])
    assert all(map(torch.equal, *result))
    assert all((gradient != 0).any() for gradient in result[0][1:])


def test_the_mask_and_the_observed_cells_are_read(linear, rows):
    x, observed, z = rows
    q = cells(linear, 0.5)
    zeros = torch.zeros_like(x)
    some, none = observed.any(1), torch.zeros_like(observed)
    loc = q(x, observed, z).loc
    assert (loc != q(zeros, observed, z).loc)[:, some].any(-1).all()
    assert (q(zeros, observed, z).loc != q(zeros, none, z).loc)[:, some].any(-1).all()
