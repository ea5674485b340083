"""The Gaussian energy: marginals by dense algebra and quadrature."""

import numpy as np
import pytest
import torch
from oracles import all_patterns, shaken
from torch.distributions import MultivariateNormal

from skvnce._core.distributions.normal import Normal
from skvnce.contrast.models import FreeGaussian

D = 4


@pytest.fixture
def model(torch_seeded):
    root = torch.randn(D, D).double()
    initial = Normal(torch.randn(D).double(), root @ root.T / 4 + 0.3 * torch.eye(D))
    return shaken(FreeGaussian(initial), 0.3)


@pytest.fixture
def observed():
    return all_patterns(D)


@pytest.fixture
def x(seed, observed):
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(observed.shape, generator=generator, dtype=torch.float64)


def test_log_density_is_that_of_the_normal_up_to_its_constant(model, x):
    normal = MultivariateNormal(*model.free.normal())
    expected = normal.log_prob(x) + model.log_normaliser()
    torch.testing.assert_close(model.log_density(x), expected)
    assert (model.log_density(x) <= 0).all()


def test_the_marginal_of_every_pattern_by_dense_algebra(model, x, observed):
    mean, covariance = model.free.normal()
    log_marginal = model.log_marginal(x, observed)
    for i, o in enumerate(observed):
        expected = model.log_normaliser()
        if o.any():
            normal = MultivariateNormal(mean[o], covariance[o][:, o])
            expected = expected + normal.log_prob(x[i, o])
        torch.testing.assert_close(log_marginal[i], expected)


def test_complete_rows_take_the_short_way(model, x, observed):
    found = model.log_marginal(x, torch.ones_like(observed))
    torch.testing.assert_close(found, model.log_density(x))
    # the long way, with one incomplete row among them
    log_marginal = model.log_marginal(x[-2:], observed[-2:])
    torch.testing.assert_close(log_marginal[-1], model.log_density(x[-1]))


def test_missing_cells_are_filled_by_their_conditional_means(model, x, observed):
    mean, S = model.free.normal()
    with torch.no_grad():
        means = model.conditional_mean(x.masked_fill(~observed, np.nan), observed)
    for i, o in enumerate(observed):
        gain = torch.linalg.solve(S[o][:, o], S[o][:, ~o]).T
        torch.testing.assert_close(means[i, ~o], mean[~o] + gain @ (x[i, o] - mean[o]))
        torch.testing.assert_close(means[i, o], x[i, o])
    torch.testing.assert_close(means[0], mean)  # nothing observed
