"""Factor analysis as a module against torch's dense normal and the incomplete rows."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from skvnce.autoencoder.factor_analysis import FactorModel, log_prob_observed
from skvnce.vgi.densities import FactorDensity

D, K = 5, 2


@pytest.fixture
def model(seed):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(D, K + 2, generator=generator, dtype=torch.float64)
    return FactorModel(numbers[:, 0], numbers[:, 1:-1], numbers[:, -1].exp())


@pytest.mark.parametrize("shape", [(), (7,), (2, 3, 4)])
def test_against_the_dense_normal(shape, model, seed):
    torch.manual_seed(seed)
    x = torch.randn(*shape, D).double()
    dense = MultivariateNormal(model.mean, model.covariance())
    found = FactorDensity.of(model).log_prob(x)
    torch.testing.assert_close(found, dense.log_prob(x), rtol=1e-11, atol=1e-11)
    single = FactorDensity.of(model).float().log_prob(x.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), found.detach(), rtol=1e-5, atol=1e-4)


def test_no_rows(model):
    found = FactorDensity.of(model).log_prob(torch.zeros(3, 0, D).double())
    assert found.shape == (3, 0)


def test_gradients_of_rows_and_parameters(model, seed):
    torch.manual_seed(seed)
    x = torch.randn(3, D, requires_grad=True, dtype=torch.float64)
    density = FactorDensity.of(model)
    leaves = [*density.parameters()]

    def log_prob(x, *parts):
        return torch.func.functional_call(
            Wrapped(density), dict(zip(NAMES, parts, strict=True)), (x,)
        )

    assert torch.autograd.gradcheck(log_prob, (x, *leaves))


NAMES = "density.mean", "density.loadings", "density.log_variance"


class Wrapped(torch.nn.Module):
    """Call `log_prob` as a forward pass."""

    def __init__(self, density):
        super().__init__()
        self.density = density

    def forward(self, x):
        return self.density.log_prob(x)


def test_there_and_back(model, seed):
    torch.manual_seed(seed)
    x = torch.randn(6, D).double()
    back = FactorDensity.of(model).factors()
    for mine, true in zip(back, model, strict=True):
        torch.testing.assert_close(mine, true)
        assert not mine.requires_grad
    exact, _ = log_prob_observed(model, x, torch.ones_like(x).bool())
    torch.testing.assert_close(FactorDensity.of(model).log_prob(x), exact)


def test_parameters_are_copies(model):
    density = FactorDensity.of(model)
    with torch.no_grad():
        density.mean.add_(1.0)
    assert not torch.equal(density.mean, model.mean)


def test_little_noise_costs_no_digits(model, seed):
    """The textbook difference of squares would leave few digits here."""
    torch.manual_seed(seed)
    quiet = model._replace(noise_variance=torch.full_like(model.mean, 1e-8))
    x = model.mean + torch.randn(4, K).double() @ model.loadings.T
    x = x + 1e-4 * torch.randn(4, D).double()
    exact = MultivariateNormal(quiet.mean, quiet.covariance()).log_prob(x)
    found = FactorDensity.of(quiet).log_prob(x)
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=0)
