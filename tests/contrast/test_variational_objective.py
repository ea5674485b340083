"""The VNCE objective of modules: gradients, the mask, and what q learns from."""

import numpy as np
import pytest
import torch
from _energies import UnnormalisedScaleMixture
from torch import nn
from torch.distributions import Normal

from skvnce._core import models
from skvnce._core.random import stream
from skvnce.contrast.objective import (
    Contrast,
    Rows,
    by_noise,
    data_term,
    importance_weighted,
    log_ratio,
    nce,
    variational_values,
    vnce,
)

N, FEATURES, LATENTS, N_DRAWS, NU = 12, 3, 2, 4, 2


class Energy(nn.Module):
    """A smooth energy of rows and latents without a known normaliser."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(LATENTS, FEATURES).double() / 2)
        self.log_scale = nn.Parameter(torch.tensor(1.0).double())

    def log_density(self, x, z):
        misfit = (x - torch.tanh(z) @ self.mix).square().sum(-1)
        return -self.log_scale - (misfit + z.square().sum(-1)) / 2


class Both(nn.Module):
    """A posterior of missing cells and latents."""

    def __init__(self):
        super().__init__()
        self.cells = nn.Parameter(torch.randn(FEATURES).double())
        self.encoder = nn.Parameter(torch.randn(FEATURES, LATENTS).double() / 2)
        self.log_std = nn.Parameter(torch.zeros(LATENTS).double())

    def forward(self, x, observed, uniforms):
        seen = x.where(observed, 0.0).sum(-1, keepdim=True) / 10
        draws = models.repeated(x, N_DRAWS)
        numbers = uniforms(0, draws.values[0])
        draws = models.with_missing(
            draws, observed, Normal(self.cells + seen, 0.8), numbers
        )
        mean = draws.values[0] @ self.encoder
        q = Normal(mean, self.log_std.exp())
        return models.with_latents(draws, q, uniforms(1, mean))


def table(observed, *shape):
    x = torch.randn(*shape, *observed.shape).double()
    log_noise = Normal(0.0, 1.0).log_prob(x).where(observed, 0.0).sum(-1)
    return Rows(x, observed, log_noise)


@pytest.fixture
def parts(torch_seeded):
    observed = torch.rand(N, FEATURES) < 0.7
    return Energy(), Both(), Contrast(table(observed), table(observed, NU))


UNIFORMS = stream(1), stream(2)


def values(model, q, contrast):
    return variational_values(model.log_density, q, contrast, UNIFORMS)


def loss_of(model, q, contrast):
    return -values(model, q, contrast).mean()


def ratio_of(model, q, rows, uniforms):
    draws = q(rows.x, rows.observed, uniforms)
    return log_ratio(model.log_density, draws, rows.log_noise)


def gradients(loss, module):
    return torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)


def test_it_is_the_objective_of_its_log_ratios(parts):
    model, q, contrast = parts
    result = values(*parts)
    assert result.shape == (N,)
    pairs = zip(contrast, UNIFORMS, strict=True)
    data, noise = (ratio_of(model, q, *pair) for pair in pairs)
    expected = vnce(data, noise.flatten(1), NU)
    torch.testing.assert_close(-result.mean(), expected)
    # row by row: each with its own noise
    for i in range(N):
        alone = vnce(data[:, i : i + 1], noise[:, :, i], NU)
        torch.testing.assert_close(-result[i], alone)
    wrong = vnce(data[:, :1], noise[:, :, 1], NU)  # control
    assert (result[0] + wrong).abs() > 1e-6


def test_parts_of_a_contrast(parts):
    _, _, contrast = parts
    split = contrast.split(5)
    sizes = [len(part.data.observed) for part in split]
    assert sum(sizes) == N and max(sizes) <= 5
    complete = [part.data.observed.all(1) for part in split]
    assert all(bool(some.all()) == bool(some.any()) for some in complete)
    order = contrast.data.observed.all(1).logical_not().sort(stable=True).indices
    whole = contrast.take(order)
    for place in range(2):
        for field, axis in (("x", -2), ("observed", 0), ("log_noise", -1)):
            joined = torch.cat([getattr(part[place], field) for part in split], axis)
            assert (joined == getattr(whole[place], field)).all()
    rows = torch.tensor([3, 0])
    taken = contrast.take(rows)
    assert (taken.noise.x == contrast.noise.x[:, rows]).all()
    assert (taken.noise.log_noise == contrast.noise.log_noise[:, rows]).all()
    assert (taken.data.x == contrast.data.x[rows]).all()


def test_averages_are_above_the_bound_and_below_the_objective(parts):
    """Eq. (7): of each row with the same draws, and for many draws near equality."""
    model, q, contrast = parts
    bound, mean = (
        variational_values(model.log_density, q, contrast, UNIFORMS, criterion)
        for criterion in (by_noise, importance_weighted(by_noise))
    )
    assert (mean >= bound - 1e-12).all() and (mean > bound + 1e-6).any()
    same = torch.full((4, 6), 0.3).double()
    marginal, weight = torch.zeros(NU, 6).double(), torch.full((4, 6), -np.log(4))
    one = by_noise(same, marginal, weight.double(), None)
    found = importance_weighted(by_noise)(same, marginal, weight.double(), None)
    np.testing.assert_allclose(found, one)
    two, half = torch.tensor([[0.0], [2.0]]).double(), torch.full((2, 1), 0.5).double()
    whole = (two.exp() * half).sum(0, keepdim=True).log()
    result = importance_weighted(by_noise)(two, marginal[:, :1], half.log(), None)
    expected = by_noise(whole, marginal[:, :1], 0 * whole, None)
    torch.testing.assert_close(result, expected)


def differences(loss, parameter, step=1e-5):
    """Differentiate by central differences."""
    result = torch.zeros_like(parameter)
    with torch.no_grad():
        for i in range(parameter.numel()):
            cell = parameter.view(-1)[i : i + 1]
            cell += step
            above = loss()
            cell -= 2 * step
            result.view(-1)[i] = (above - loss()) / (2 * step)
            cell += step
    return result


def test_q_learns_from_the_first_term_only(parts):
    model, q, contrast = parts

    def first():
        return -data_term(ratio_of(model, q, contrast.data, UNIFORMS[0]), NU).mean()

    def whole():
        return loss_of(model, q, contrast)

    result = gradients(whole(), q)
    pairs = zip(result, gradients(first(), q), q.parameters(), strict=True)
    for exact, alone, parameter in pairs:
        assert (exact == alone).all()  # nothing, to the bit, from the second term
        approximate = differences(first, parameter)
        torch.testing.assert_close(exact, approximate, rtol=1e-6, atol=1e-8)
        # control: with few draws the second term does move with q
        leak = differences(whole, parameter) - approximate
        assert leak.abs().max() > 1e-3


@pytest.mark.parametrize("nu", [1, 2, 10])
def test_states_summed_out_by_the_exact_posterior_give_nce(nu, torch_seeded):
    model = UnnormalisedScaleMixture(torch.tensor(3.0).double())

    def exact(x, observed, uniforms):
        log_q = models.log_joint_of_states(model, x[None]).detach().log_softmax(0)
        return models.with_states(models.repeated(x), model.states, log_q)

    x, y = (2 * torch.randn(*shape, 20, 1).double() for shape in ((), (nu,)))
    complete = torch.ones_like(x).bool()
    contrast = Contrast(
        *(Rows(u, complete, Normal(0.0, 2.0).log_prob(u).squeeze(-1)) for u in (x, y))
    )
    ratios = [
        models.log_joint_of_states(model, r.x).logsumexp(0) - r.log_noise
        for r in contrast
    ]
    result, expected = loss_of(model, exact, contrast), nce(*ratios, nu)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=0)
    # the bound touches: its slope is that of NCE
    pairs = zip(gradients(result, model), gradients(expected, model), strict=True)
    for slope, other in pairs:
        torch.testing.assert_close(slope, other, rtol=1e-10, atol=1e-14)


class Gaussian(nn.Module):
    """An unnormalised normal of rows; what is missing is all that is latent."""

    def __init__(self, precision):
        super().__init__()
        self.precision = nn.Parameter(precision)

    def log_density(self, x):
        return -((x @ self.precision) * x).sum(-1) / 2


def test_missing_cells_by_their_exact_conditional(seed, rng):
    precision = torch.tensor([[1.5, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 2.0]])
    model = Gaussian(precision.double())
    x, latent = torch.tensor(rng.normal(size=(N, FEATURES))), torch.arange(N) % FEATURES
    observed = latent[:, None] != torch.arange(FEATURES)
    K = model.precision.detach()

    def exact(x, observed):  # one missing cell a row: x_j | x_-j ~ N(-K_jk x_k / K_jj)
        mean = -(x.where(observed, 0.0) @ K) / K.diagonal()
        q, draws = Normal(mean, K.diagonal().rsqrt()), models.repeated(x, 2)
        return models.with_missing(draws, observed, q, stream(seed)(0, draws.values[0]))

    def log_marginal(row, j):
        rest = [k for k in range(FEATURES) if k != j]
        schur = K[rest][:, rest] - torch.outer(K[rest, j], K[rest, j]) / K[j, j]
        return -row[rest] @ schur @ row[rest] / 2 + (2 * torch.pi / K[j, j]).log() / 2

    expected = torch.stack([log_marginal(x[i], latent[i]) for i in range(N)])
    ratio = log_ratio(model.log_density, exact(x, observed), torch.zeros(N))
    torch.testing.assert_close(ratio, expected.expand(2, -1), rtol=1e-10, atol=1e-12)
