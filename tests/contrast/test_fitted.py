"""Evaluation of rows by a fitted model, against normal distributions and sums."""

import pytest
import torch
from energies import RestrictedBoltzmann
from oracles import GATE, z_mean
from torch import nn

from skvnce._core.distributions.normal import Normal, log_prob_observed, prepare
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import global_stream, stream
from skvnce.contrast import objective
from skvnce.contrast.fit import FittedModel, contrast_from_pool
from skvnce.contrast.models import FreeGaussian, Scaled, exact_cells
from skvnce.contrast.noise import GaussianNoise
from skvnce.contrast.posteriors import ExactStates, SequentialPosterior

N, D, LATENTS = 40, 3, 2


class Hidden(nn.Module):
    """A Gaussian energy that shows nothing but its log-density."""

    def __init__(self, gaussian):
        super().__init__()
        self.inside = gaussian

    def log_density(self, x):
        return self.inside.log_density(x)


@pytest.fixture
def normal(torch_seeded):
    root = torch.randn(D, D).double()
    return Normal(torch.randn(D).double(), root @ root.T + 0.5 * torch.eye(D))


@pytest.fixture
def data(normal):
    observed = torch.rand(N, D) < 0.6
    observed[0], observed[1] = True, False
    x = GaussianNoise(normal).sample(N)
    return Incomplete(x.where(observed, 0.0), observed)


def gaussian(normal, *, is_integrated, hidden=False, proposal=None):
    energy = FreeGaussian(normal).double()
    model = Scaled(Hidden(energy) if hidden else energy)
    model.rescale(energy.log_normaliser())
    steps = nn.ModuleList([exact_cells(proposal or normal)])
    return FittedModel(
        model.requires_grad_(False), steps.requires_grad_(False), 0, is_integrated
    )


@pytest.mark.parametrize("is_integrated", [True, False])
def test_log_densities_are_those_of_the_normal(is_integrated, normal, data):
    fitted = gaussian(normal, is_integrated=is_integrated)
    result, error = fitted.log_prob(data, stream(0))
    expected = log_prob_observed(prepare(normal), *data)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-9)
    assert error.abs().max() < 1e-9


def test_standard_errors_are_those_of_importance_sampling(normal, data, seed):
    """With another proposal, estimates scatter by as much as their errors say."""
    wide = normal._replace(covariance=1.5 * normal.covariance)
    fitted = gaussian(normal, is_integrated=False, proposal=wide)
    torch.manual_seed(seed)
    pairs = [fitted.log_prob(data, global_stream) for _ in range(60)]
    result, error = (torch.stack(part) for part in zip(*pairs, strict=True))
    drawn = ~data.observed.all(1)
    ratio = result[:, drawn].std(0) / error[:, drawn].mean(0)
    # a standard deviation of 60 estimates is off by a tenth
    assert 0.4 < ratio.min() and ratio.max() < 2.0
    assert (error[:, ~drawn] < 1e-12).all()


@pytest.mark.parametrize("hidden", [False, True])
def test_missing_cells_are_filled_by_their_means(hidden, normal, data):
    fitted = gaussian(normal, is_integrated=False, hidden=hidden)
    filled = fitted.filled(data, stream(3))
    torch.testing.assert_close(filled[data.observed], data.x[data.observed])
    exact = FreeGaussian(normal).conditional_mean(*data).detach()
    if not hidden:
        torch.testing.assert_close(filled, exact)
        return
    many = torch.stack([fitted.filled(data, stream(k)) for k in range(100)])
    z = z_mean(many[:, ~data.observed], exact[~data.observed])
    assert abs(z).max() < GATE


@pytest.mark.parametrize("hidden", [False, True])
def test_draws_have_the_moments_of_the_conditional(hidden, normal, data, seed):
    """One draw is exact, or chosen by weights among those of a wider proposal."""
    wide = normal._replace(covariance=1.3 * normal.covariance) if hidden else normal
    fitted = gaussian(normal, is_integrated=False, hidden=hidden, proposal=wide)
    torch.manual_seed(seed)
    row = data.take(slice(2, 3))
    observed = torch.tensor([[True, False, False]])
    row = Incomplete(row.x.where(observed, 0.0), observed)
    many = Incomplete(row.x.expand(2000, -1), row.observed.expand(2000, -1))
    drawn = fitted.resample(many, 0)
    assert (drawn[:, 0] == row.x[0, 0]).all()
    exact = FreeGaussian(normal).conditional_mean(*row).detach()[0]
    spread = drawn[:, 1:].std(0)
    # with 20 candidates, selection has a bias of the order of a twentieth
    error = (drawn.mean(0) - exact)[1:].abs() / spread
    assert error.max() < (0.05 if hidden else 0.0) + GATE / 2000**0.5


def test_means_and_draws_of_latents_are_those_of_the_enumeration(torch_seeded):
    machine = RestrictedBoltzmann(D, LATENTS).double()
    with torch.no_grad():
        machine.weight.normal_()
    model = Scaled(machine).requires_grad_(False)
    fitted = FittedModel(model, nn.ModuleList([ExactStates(model)]), LATENTS, False)
    x = (torch.rand(4, D) < 0.5).double()
    data = Incomplete(x, torch.ones_like(x).bool())
    assert fitted.n_states == 2**LATENTS
    expected = machine.latent_probability(x)
    torch.testing.assert_close(fitted.latent_mean(data, stream(0)), expected)
    many = Incomplete(x.repeat(1500, 1), data.observed.repeat(1500, 1))
    drawn = fitted.resample(many, 1).view(1500, 4, LATENTS)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert abs(z_mean(drawn, expected)).max() < GATE
    # the sum over the states is the log-density
    result, error = fitted.log_prob(data, stream(0))
    torch.testing.assert_close(result, model.log_marginal(*data))
    assert (error == 0).all()


def test_the_objective_by_draws_is_that_by_integrals(normal, data):
    """As the posterior is exact."""
    noise = GaussianNoise(normal._replace(covariance=2 * normal.covariance))
    contrast = contrast_from_pool(noise, noise.sample(50), data, 4, stream(0))
    drawn, whole = (
        gaussian(normal, is_integrated=one).objective(contrast, (stream(1), stream(2)))
        for one in (False, True)
    )
    torch.testing.assert_close(drawn, whole)


def test_fresh_noise_gives_the_integral(normal, data, torch_seeded):
    fitted = gaussian(normal, is_integrated=True)
    noise = GaussianNoise(normal)  # the model itself: all log-ratios are 0
    evaluation = fitted.evaluation(noise, data, 5, 3)
    assert evaluation.noise.shape == (5, N) and evaluation.noise.abs().max() < 1e-9
    fitted.model.rescale(float(fitted.model.log_scale) - 2.0)
    found = float(objective.log_mean(fitted.evaluation(noise, data, 5, 3).noise))
    assert found == pytest.approx(2.0)


def test_rows_at_once_bound_the_draws(normal, data, monkeypatch):
    fitted = gaussian(normal, is_integrated=False)
    monkeypatch.setattr("skvnce.contrast.fit.MAX_CHUNK_SIZE", 5 * (1 + 4) * D * 6)
    posterior = SequentialPosterior(fitted.steps, 5)
    assert fitted.chunk_rows(data, posterior, 4) == 6
    assert fitted._replace(n_components=D).chunk_rows(data, posterior, 4) == 3
    assert fitted.chunk_rows(data, posterior, 10**6) == 1
