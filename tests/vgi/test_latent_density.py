"""The density of complete rows that a latent variable model and an encoder make."""

import pytest
import torch
from oracles import GATE, z_mean
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal
from vaes import Curved

from skvnce._core.incomplete import Incomplete
from skvnce._core.posteriors import stream
from skvnce.vgi.conditionals import ExtendedConditionals, NormalHead
from skvnce.vgi.densities import LatentDensity
from skvnce.vgi.training import Chains, Pair, TrainingSettings, from_marginals, train

LOADINGS, SCALE = [[1.0], [-0.5], [0.4]], [0.4, 0.6, 0.5]


class LinearEncoder(nn.Module):
    """Normal latents with a linear mean: exact for factor analysis with one latent."""

    def __init__(self, wider=1.0, steeper=1.0):
        super().__init__()
        w = torch.tensor(LOADINGS).double()[:, 0]
        scaled = w / torch.tensor(SCALE).double() ** 2
        variance = 1 / (1 + w @ scaled)
        self.slopes = nn.Parameter(steeper * variance * scaled[None])
        self.deviation = nn.Parameter(wider * variance.sqrt())

    def forward(self, x, observed):
        return Independent(Normal(x @ self.slopes.T, self.deviation), 1)


@pytest.fixture
def model():
    return Curved(LOADINGS, SCALE, bend=0.0)


def exact(model):
    loadings, scale = model.loadings.detach(), model.log_scale.detach().exp()
    covariance = loadings @ loadings.T + scale.square().diag()
    return MultivariateNormal(torch.zeros(3).double(), covariance)


@pytest.mark.parametrize("n_draws", [1, 7])
def test_the_exact_posterior_gives_the_exact_density(model, n_draws, seed):
    torch.manual_seed(seed)
    x = torch.randn(2, 5, 3).double()
    density = LatentDensity(model, LinearEncoder(), n_draws=n_draws)
    torch.testing.assert_close(density.log_prob(x), exact(model).log_prob(x))


@pytest.mark.parametrize("n_draws", [1, 5])
def test_its_exponential_is_unbiased(model, n_draws, seed):
    torch.manual_seed(seed)
    x, density = torch.randn(4, 3).double(), LatentDensity(model, LinearEncoder(1.8))
    density.n_draws = n_draws
    with torch.no_grad():
        found = density.log_prob(x.expand(20000, -1, -1))
    truth = exact(model).log_prob(x)
    assert abs(z_mean((found - truth).exp(), 1.0)).max() < GATE
    assert abs(z_mean(found - truth, 0.0)).max() > GATE  # control: its logarithm
    assert ((found - truth).mean(0) < 0).all()


@pytest.mark.parametrize("n_draws", [1, 5])
def test_gradients_are_those_of_the_bound(model, n_draws, seed):
    """In x, of which the latents are drawn too; the plain gradient, on average."""
    torch.manual_seed(seed)
    x = torch.randn(4, 1, 3).double().expand(-1, 10_000, -1).reshape(-1, 3)
    x = x.clone().requires_grad_()
    # an encoder so wrong that the bound of five draws differs from the density
    density = LatentDensity(model, LinearEncoder(1.3, 0.2), n_draws=n_draws)
    (found,) = torch.autograd.grad(density.log_prob(x).sum(), x)
    q = density.posterior(x, None)
    z = q.rsample((n_draws,))
    log_weight = model.likelihood(z).log_prob(x).sum(-1) + model.prior().log_prob(z)
    plain = torch.logsumexp(log_weight - q.log_prob(z), 0)
    (expected,) = torch.autograd.grad(plain.sum(), x)
    (control,) = torch.autograd.grad(exact(model).log_prob(x).sum(), x)
    apart, biased = (
        z_mean((found - other).view(4, -1, 3), 0.0, axis=1)
        for other in (expected, control)
    )
    assert abs(apart).max() < GATE
    assert abs(biased).max() > GATE


def test_no_rows_have_no_density(model):
    found = LatentDensity(model, LinearEncoder()).log_prob(torch.zeros(2, 0, 3))
    assert found.shape == (2, 0)


def test_the_same_numbers_give_the_same_value(model):
    x = torch.ones(2, 3).double()
    density = LatentDensity(model, LinearEncoder(1.3), uniforms=stream(3))
    assert (density.log_prob(x) == density.log_prob(x)).all()


def test_variational_gibbs_trains_all_of_it(model, seed):
    torch.manual_seed(seed)
    x, observed = torch.randn(20, 3).double(), torch.rand(20, 3) < 0.6
    data = Incomplete(x.where(observed, 0.0), observed)
    conditionals = ExtendedConditionals(3, NormalHead(), nn.Identity(), 3, ()).double()
    density = LatentDensity(model, LinearEncoder(1.3))
    before = {name: v.detach().clone() for name, v in density.named_parameters()}
    chains = Chains(data, from_marginals(data, 2))
    train(Pair(density, conditionals), chains, TrainingSettings(2, 2, 8), n_epochs=2)
    assert {name.split(".")[0] for name in before} == {"model", "posterior"}
    for name, value in density.named_parameters():
        assert (value != before[name]).any(), name
    assert (chains.x[:, observed] == data.x[observed]).all()
