"""Densities of factor analysis and of models with latents."""

import pytest
import torch
from oracles import GATE, z_mean
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal
from vaes import Curved, random_factors

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import stream
from skvnce.autoencoder.factor_analysis import log_prob_observed
from skvnce.vgi.conditionals import ExtendedConditionals, NormalHead
from skvnce.vgi.densities import (
    AutoencoderDensity,
    FactorDensity,
    LatentDensity,
    continuous,
)
from skvnce.vgi.training import Chains, Pair, TrainingSettings, from_marginals, train

# Factor analysis as a module against torch's dense normal and the incomplete rows


D, K = 5, 2


@pytest.fixture
def model(seed):
    return random_factors(D, K, seed)


@pytest.mark.parametrize("shape", [(), (7,), (2, 3, 4)])
def test_against_the_dense_normal(shape, model, torch_seeded):
    x = torch.randn(*shape, D).double()
    dense = MultivariateNormal(model.mean, model.covariance())
    log_prob = FactorDensity.of(model).log_prob(x)
    torch.testing.assert_close(log_prob, dense.log_prob(x), rtol=1e-11, atol=1e-11)
    single = FactorDensity.of(model).float().log_prob(x.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), log_prob.detach(), rtol=1e-5, atol=1e-4)


def test_no_rows(model):
    log_prob = FactorDensity.of(model).log_prob(torch.zeros(3, 0, D).double())
    assert log_prob.shape == (3, 0)


def test_gradients_of_rows_and_parameters(model, torch_seeded):
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


def test_there_and_back(model, torch_seeded):
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


def test_little_noise_costs_no_digits(model, torch_seeded):
    """The textbook difference of squares would leave few digits here."""
    quiet = model._replace(noise_variance=torch.full_like(model.mean, 1e-8))
    x = model.mean + torch.randn(4, K).double() @ model.loadings.T
    x = x + 1e-4 * torch.randn(4, D).double()
    exact = MultivariateNormal(quiet.mean, quiet.covariance()).log_prob(x)
    log_prob = FactorDensity.of(quiet).log_prob(x)
    torch.testing.assert_close(log_prob, exact, rtol=1e-6, atol=0)


# The density of complete rows that a latent variable model and an encoder make


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
def model_latents():
    return Curved(LOADINGS, SCALE, bend=0.0)


def exact(model):
    loadings, scale = model.loadings.detach(), model.log_scale.detach().exp()
    covariance = loadings @ loadings.T + scale.square().diag()
    return MultivariateNormal(torch.zeros(3).double(), covariance)


@pytest.mark.parametrize("n_draws", [1, 7])
def test_the_exact_posterior_gives_the_exact_density(model_latents, n_draws, seed):
    torch.manual_seed(seed)
    x = torch.randn(2, 5, 3).double()
    density = LatentDensity(model_latents, LinearEncoder(), n_draws=n_draws)
    torch.testing.assert_close(density.log_prob(x), exact(model_latents).log_prob(x))


@pytest.mark.parametrize("n_draws", [1, 5])
def test_its_exponential_is_unbiased(model_latents, n_draws, torch_seeded):
    x, density = (
        torch.randn(4, 3).double(),
        LatentDensity(model_latents, LinearEncoder(1.8)),
    )
    density.n_draws = n_draws
    with torch.no_grad():
        log_prob = density.log_prob(x.expand(20000, -1, -1))
    truth = exact(model_latents).log_prob(x)
    assert abs(z_mean((log_prob - truth).exp(), 1.0)).max() < GATE
    assert abs(z_mean(log_prob - truth, 0.0)).max() > GATE  # control: its logarithm
    assert ((log_prob - truth).mean(0) < 0).all()


@pytest.mark.parametrize("n_draws", [1, 5])
def test_gradients_are_those_of_the_bound(model_latents, n_draws, torch_seeded):
    """In x, of which the latents are drawn too; the plain gradient, on average."""
    x = torch.randn(4, 1, 3).double().expand(-1, 10_000, -1).reshape(-1, 3)
    x = x.clone().requires_grad_()
    # an encoder so wrong that the bound of five draws differs from the density
    density = LatentDensity(model_latents, LinearEncoder(1.3, 0.2), n_draws=n_draws)
    (result,) = torch.autograd.grad(density.log_prob(x).sum(), x)
    q = density.posterior(x, None)
    z = q.rsample((n_draws,))
    log_weight = model_latents.likelihood(z).log_prob(x).sum(
        -1
    ) + model_latents.prior().log_prob(z)
    plain = torch.logsumexp(log_weight - q.log_prob(z), 0)
    (expected,) = torch.autograd.grad(plain.sum(), x)
    (control,) = torch.autograd.grad(exact(model_latents).log_prob(x).sum(), x)
    apart, biased = (
        z_mean((result - other).view(4, -1, 3), 0.0, axis=1)
        for other in (expected, control)
    )
    assert abs(apart).max() < GATE
    assert abs(biased).max() > GATE


def test_no_rows_have_no_density(model_latents):
    log_prob = LatentDensity(model_latents, LinearEncoder()).log_prob(
        torch.zeros(2, 0, 3)
    )
    assert log_prob.shape == (2, 0)


def test_the_same_numbers_give_the_same_value(model_latents):
    x = torch.ones(2, 3).double()
    density = LatentDensity(model_latents, LinearEncoder(1.3), uniforms=stream(3))
    assert (density.log_prob(x) == density.log_prob(x)).all()


def test_variational_gibbs_trains_all_of_it(model_latents, torch_seeded):
    x, observed = torch.randn(20, 3).double(), torch.rand(20, 3) < 0.6
    data = Incomplete(x.where(observed, 0.0), observed)
    conditionals = ExtendedConditionals(3, NormalHead(), nn.Identity(), 3, ()).double()
    density = LatentDensity(model_latents, LinearEncoder(1.3))
    before = {name: v.detach().clone() for name, v in density.named_parameters()}
    chains = Chains(data, from_marginals(data, 2))
    train(Pair(density, conditionals), chains, TrainingSettings(2, 2, 8), n_epochs=2)
    assert {name.split(".")[0] for name in before} == {"model", "posterior"}
    for name, value in density.named_parameters():
        assert (value != before[name]).any(), name
    assert (chains.x[:, observed] == data.x[observed]).all()


def test_gradients_of_an_autoencoder_at_fixed_numbers(model, torch_seeded):
    """They are those of its value, along which conditionals are tuned."""
    density = AutoencoderDensity(model, continuous()).double().eval()
    with torch.no_grad():  # networks are zero at the start
        for leaf in density.parameters():
            leaf += 0.1 * torch.randn_like(leaf)
    x = torch.randn(3, D, requires_grad=True, dtype=torch.float64)
    assert torch.autograd.gradcheck(density.log_prob, (x,))
