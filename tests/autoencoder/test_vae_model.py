"""The model of a variational autoencoder: factor analysis, until its network moves."""

import pytest
import torch
from oracles import all_patterns, shaken
from torch import nn
from torch.distributions import Normal
from vaes import NORMAL, families, log_evidence, random_factors

from skvnce.autoencoder.factor_analysis import log_prob_observed
from skvnce.autoencoder.networks import ResidualPerceptron, VariationalAutoencoderModel

D, FLOOR = 4, 0.05


MIXED = families([1], [2], [3], [(-1, 1)], [(-1, 0, 1)], [(-1.5, -0.5, 0.5, 1.5)])


def autoencoder(linear, kind=NORMAL, floor=FLOOR, shake=0.0):
    k = linear.loadings.shape[1]
    network = ResidualPerceptron(k, (7,), 2 * D, 0.0).double()
    shaken(network, shake)
    scale = linear.noise_variance.sqrt()
    return VariationalAutoencoderModel(
        linear.mean, linear.loadings, scale, network, kind, floor
    )


@pytest.fixture
def rows(torch_seeded):
    return torch.randn(2**D, D).double(), all_patterns(D)


@pytest.mark.parametrize("k", [1, 2])
def test_it_starts_as_factor_analysis(k, rows, seed):
    linear = random_factors(D, k, seed, least=0.2)
    exact, _ = log_prob_observed(linear, *rows)
    with torch.no_grad():
        evidence = log_evidence(autoencoder(linear), *rows, n_points=100)
        moved = log_evidence(autoencoder(linear, shake=0.3), *rows, n_points=100)
    torch.testing.assert_close(evidence, exact, rtol=0, atol=1e-8)
    assert (moved[1:] - exact[1:]).abs().min() > 1e-4  # control; row 0 shows nothing
    assert abs(moved[0]) < 1e-8


def test_means_and_spreads_are_those_of_the_network(seed, torch_seeded):
    linear = random_factors(D, 2, seed, least=0.2)
    model, z = autoencoder(linear, shake=0.3), torch.randn(5, 3, 2).double()
    cells = model.likelihood(z)
    f, g = model.network(z).chunk(2, -1)
    torch.testing.assert_close(cells.loc, linear.mean + z @ linear.loadings.T + f)
    assert cells.batch_shape == (5, 3, D)
    assert model.prior().event_shape == (2,)
    # far above the floor the scale follows e^g, as far as g is small
    with torch.no_grad():
        model.network.last.weight *= 1e-3
        model.network.last.bias *= 1e-3
        model.free_scale += 20
    g = model.network(z).chunk(2, -1)[1]
    ratio = model.likelihood(z).scale / (model.floor * model.free_scale.exp())
    torch.testing.assert_close(ratio, g.exp(), rtol=1e-4, atol=0)


class Wild(nn.Module):
    """Give the outputs that they are asked for, whatever the latents."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, z):
        return z.new_full((*z.shape[:-1], 2 * D), self.value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("value", [-1e30, -5.0, 0.0, 1e30])
def test_scales_stay_above_the_floor_and_finite(value, dtype, seed):
    """Those that start below it are lifted; no network brings them there."""
    linear = random_factors(D, 2, seed, least=0.2)
    tiny = linear._replace(noise_variance=linear.noise_variance * 1e-9)
    for start in (linear, tiny):
        model = autoencoder(start).to(dtype)
        model.network = Wild(value)
        scale = model.likelihood(torch.zeros(3, 2, dtype=dtype)).scale
        assert (scale >= FLOOR).all()
        assert (scale <= 20 * (FLOOR + linear.noise_variance.sqrt()) * 1.05).all()
    lifted = autoencoder(tiny).likelihood(torch.zeros(2).double()).scale
    torch.testing.assert_close(lifted, torch.full_like(lifted, 1.05 * FLOOR))


@pytest.mark.parametrize("kind", [NORMAL, MIXED], ids=["normal", "mixed"])
def test_all_parameters_learn(kind, rows, seed, torch_seeded):
    model = autoencoder(random_factors(D, 2, seed, least=0.2), kind, shake=0.3)
    x = rows[0].clone()
    x[:, 2:] = x[:, 2:].sign()
    cells = model.likelihood(torch.randn(len(x), 2).double())
    cells.log_prob(x).sum().backward()
    names = {name for name, _ in model.named_parameters()}
    assert {"mean", "loadings", "free_scale", "network.last.weight"} <= names
    for _, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().sum() > 0
    unread = model.free_scale.grad == 0  # a two-valued column has no scale
    assert unread.tolist() == [False, False, kind is MIXED, False]


def test_its_cells_are_of_their_families(seed, torch_seeded):
    linear = random_factors(D, 2, seed, least=0.2)
    z, x = torch.randn(6, 2).double(), torch.ones(6, D).double()
    mixed, normal = (
        autoencoder(linear, kind).likelihood(z).log_prob(x) for kind in (MIXED, NORMAL)
    )
    assert torch.equal(mixed[:, 0], normal[:, 0])
    assert (mixed[:, 1:] != normal[:, 1:]).all()
    loc = linear.mean + z @ linear.loadings.T
    torch.testing.assert_close(mixed[:, 2], loc[:, 2].sigmoid().log())
    q = Normal(loc[:, 3], linear.noise_variance[3].sqrt())
    expected = q.cdf(torch.tensor(1.5)) - q.cdf(torch.tensor(0.5))
    torch.testing.assert_close(mixed[:, 3].exp(), expected)
