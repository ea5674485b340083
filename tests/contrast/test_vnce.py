"""VNCE against NCE, by enumeration of a finite latent space."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal

from skvnce._core.models import log_joint
from skvnce._core.posteriors import (
    Draws,
    repeated,
    stream,
    with_latents,
    with_missing,
    with_states,
)
from skvnce.contrast.models import UnnormalisedScaleMixture
from skvnce.contrast.objective import (
    Contrast,
    Rows,
    averaged,
    by_noise,
    data_term,
    divergence,
    log_marginal,
    log_ratio,
    nce,
    variational_values,
    vnce,
)

N_X, N_Z, TOTAL = 5, 3, 12
RATIOS = [0.5, 1.0, 10.0]


def probabilities(rng):
    """Draw tables of counts (N_X, N_Z), each of at least 1, that sum to TOTAL."""
    more = rng.multinomial(TOTAL - N_Z, np.ones(N_Z) / N_Z, size=N_X)
    return torch.tensor(more + 1)


def draws(table, counts):
    """Repeat the values of each z as often as q draws it; (TOTAL, N_X).

    Averages over the draws are then exact expectations under q = counts / TOTAL.
    """
    return torch.stack(
        [row.repeat_interleave(n) for row, n in zip(table, counts, strict=True)], 1
    )


def problem(seed, exact):
    """Make log ratios with z drawn from q, and those with z summed out."""
    rng = np.random.default_rng(seed)
    posterior = probabilities(rng)
    q = posterior if exact else probabilities(rng)
    log_marginal, log_noise = torch.tensor(rng.normal(size=(2, N_X)))
    log_phi = log_marginal[:, None] + (posterior.double() / TOTAL).log()
    with_z = log_phi - (q.double() / TOTAL).log() - log_noise[:, None]
    return draws(with_z, q), log_marginal - log_noise


def test_the_log_ratio_by_hand():
    """log phi(x, z) - log q(z) - log p_y, of two draws of three rows."""
    x = torch.tensor([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]])
    z = torch.tensor([[0.5, 0.0, -1.0], [2.0, 1.0, 3.0]])
    log_q = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    found = log_ratio(
        lambda x, z: x * z,
        Draws((x, z), log_q, torch.full((2, 3), 0.5)),
        torch.tensor([1.0, 10.0, 100.0]),
    )
    expected = [[0.5 - 1.1, 0.0 - 10.2, -4 - 100.3], [2 - 1.4, 2 - 10.5, 12 - 100.6]]
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("nu", RATIOS)
def test_equal_draws_give_nce(nu, seed):
    data, noise = np.random.default_rng(seed).normal(size=(2, 8))
    data, noise = torch.tensor(data), torch.tensor(noise[:5])
    for n_draws in (1, 4):
        found = vnce(data.expand(n_draws, -1), noise.expand(n_draws, -1), nu)
        expected = nce(data, noise, nu).loss
        torch.testing.assert_close(found.loss, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("nu", RATIOS)
def test_equality_at_the_exact_posterior(nu, seed):
    for i in range(10):
        with_z, without = problem([seed, i], exact=True)
        found = vnce(with_z, with_z, nu).loss
        expected = nce(without, without, nu).loss
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("nu", RATIOS)
def test_it_bounds_nce_for_any_posterior(nu, seed):
    for i in range(20):
        with_z, without = problem([seed, i], exact=False)
        assert vnce(with_z, with_z, nu).loss > nce(without, without, nu).loss + 1e-6


@pytest.mark.parametrize("nu", RATIOS)
def test_only_the_data_term_is_a_bound(nu, seed):
    with_z, without = problem(seed, exact=False)
    found = vnce(with_z, with_z, nu)
    unlikely = torch.full((1, 1), -1e9).double()  # noise of which the model is sure
    data_term = vnce(with_z, unlikely, nu)
    torch.testing.assert_close(found.metrics["data_term"], data_term.loss)
    noise_term = found.loss - data_term.loss
    sure = torch.full((1,), 1e9).double()
    torch.testing.assert_close(noise_term, nce(sure, without, nu).loss)


def test_sure_answers_stay_finite():
    far = torch.tensor([[1e4, -1e4], [-1e4, -1e4]]).double().requires_grad_()
    values = [vnce(far, far, 2.0).loss, divergence(far, far[0], 2.0).sum()]
    for value in values:
        (gradient,) = torch.autograd.grad(value, far)
        assert value.isfinite()
        assert gradient.isfinite().all()


def test_weights_repeat_draws(seed):
    with_z, _ = problem(seed, exact=False)
    some, counts = with_z[::3], torch.tensor([1, 2, 3, 2])
    weight = (counts / counts.sum().double()).log()[:, None].expand_as(some)
    repeated = some.repeat_interleave(counts, 0)
    weights = {"data_weight": weight, "noise_weight": weight}
    found, expected = vnce(some, some, 2.0, **weights), vnce(repeated, repeated, 2.0)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-12, atol=0)
    assert (vnce(some, some, 2.0).loss - found.loss).abs() > 1e-6
    found = divergence(some, with_z[0], 2.0, weight)
    torch.testing.assert_close(found, divergence(repeated, with_z[0], 2.0))


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_draw_of_weight_zero_does_not_count(value, seed):
    torch.manual_seed(seed)
    ratio = torch.randn(3, 5).double()
    with_junk = torch.cat([ratio, torch.full((1, 5), value)]).requires_grad_()
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0]).double().div(3).log()[:, None]
    weight = weight.expand(4, -1)
    for function in (
        lambda ratio, weight: data_term(ratio, 2.0, weight),
        log_marginal,
        lambda ratio, weight: divergence(ratio, torch.ones(5).double(), 2.0, weight),
    ):
        found = function(with_junk, weight)
        torch.testing.assert_close(found, function(ratio, None), rtol=1e-12, atol=1e-14)
        (gradient,) = torch.autograd.grad(found.sum(), with_junk)
        assert (gradient[3] == 0).all()
        assert (gradient[:3] != 0).all()


# The VNCE objective of modules: gradients, the mask, and what q learns from


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
        draws = repeated(x, N_DRAWS)
        numbers = uniforms(0, draws.values[0])
        draws = with_missing(draws, observed, Normal(self.cells + seen, 0.8), numbers)
        mean = draws.values[0] @ self.encoder
        q = Normal(mean, self.log_std.exp())
        return with_latents(draws, q, uniforms(1, mean))


def table(observed, *shape):
    x = torch.randn(*shape, *observed.shape).double()
    log_noise = Normal(0.0, 1.0).log_prob(x).where(observed, 0.0).sum(-1)
    return Rows(x, observed, log_noise)


@pytest.fixture
def parts(seed):
    torch.manual_seed(seed)
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
    found = values(*parts)
    assert found.shape == (N,)
    pairs = zip(contrast, UNIFORMS, strict=True)
    data, noise = (ratio_of(model, q, *pair) for pair in pairs)
    expected = vnce(data, noise.flatten(1), NU)
    torch.testing.assert_close(-found.mean(), expected.loss)
    assert not expected.metrics["accuracy"].requires_grad
    # row by row: each with its own noise
    for i in range(N):
        alone = vnce(data[:, i : i + 1], noise[:, :, i], NU)
        torch.testing.assert_close(-found[i], alone.loss)
    wrong = vnce(data[:, :1], noise[:, :, 1], NU).loss  # control
    assert (found[0] + wrong).abs() > 1e-6


def test_averages_are_above_the_bound_and_below_the_objective(parts):
    """Eq. (7): of each row with the same draws, and for many draws near equality."""
    model, q, contrast = parts
    bound, mean = (
        variational_values(model.log_density, q, contrast, UNIFORMS, criterion)
        for criterion in (by_noise, averaged(by_noise))
    )
    assert (mean >= bound - 1e-12).all() and (mean > bound + 1e-6).any()
    same = torch.full((4, 6), 0.3).double()
    marginal, weight = torch.zeros(NU, 6).double(), torch.full((4, 6), -np.log(4))
    one = by_noise(same, marginal, weight.double(), None)
    np.testing.assert_allclose(
        averaged(by_noise)(same, marginal, weight.double(), None), one
    )


def differences(loss, parameter, step=1e-5):
    """Differentiate by central differences."""
    found = torch.zeros_like(parameter)
    with torch.no_grad():
        for i in range(parameter.numel()):
            cell = parameter.view(-1)[i : i + 1]
            cell += step
            above = loss()
            cell -= 2 * step
            found.view(-1)[i] = (above - loss()) / (2 * step)
            cell += step
    return found


def test_q_learns_from_the_first_term_only(parts):
    model, q, contrast = parts

    def first():
        return -data_term(ratio_of(model, q, contrast.data, UNIFORMS[0]), NU).mean()

    def whole():
        return loss_of(model, q, contrast)

    found = gradients(whole(), q)
    for exact, alone, parameter in zip(
        found, gradients(first(), q), q.parameters(), strict=True
    ):
        assert (exact == alone).all()  # nothing, to the bit, from the second term
        approximate = differences(first, parameter)
        torch.testing.assert_close(exact, approximate, rtol=1e-6, atol=1e-8)
        # control: with few draws the second term does move with q
        leak = differences(whole, parameter) - approximate
        assert leak.abs().max() > 1e-3


@pytest.mark.parametrize("nu", [1, 2, 10])
def test_states_summed_out_by_the_exact_posterior_give_nce(nu, seed):
    torch.manual_seed(seed)
    model = UnnormalisedScaleMixture(torch.tensor(3.0).double())

    def exact(x, observed, uniforms):
        log_q = log_joint(model, x[None]).detach().log_softmax(0)
        return with_states(repeated(x), model.states, log_q)

    x, y = (2 * torch.randn(*shape, 20, 1).double() for shape in ((), (nu,)))
    complete = torch.ones_like(x).bool()
    contrast = Contrast(
        *(Rows(u, complete, Normal(0.0, 2.0).log_prob(u).squeeze(-1)) for u in (x, y))
    )
    ratios = [log_joint(model, r.x).logsumexp(0) - r.log_noise for r in contrast]
    found, expected = loss_of(model, exact, contrast), nce(*ratios, nu).loss
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    # the bound touches: its slope is that of NCE
    pairs = zip(gradients(found, model), gradients(expected, model), strict=True)
    for slope, other in pairs:
        torch.testing.assert_close(slope, other, rtol=1e-10, atol=1e-14)


class Gaussian(nn.Module):
    """An unnormalised normal of rows; what is missing is all that is latent."""

    def __init__(self, precision):
        super().__init__()
        self.precision = nn.Parameter(precision)

    def log_density(self, x):
        return -((x @ self.precision) * x).sum(-1) / 2


def test_missing_cells_by_their_exact_conditional(seed):
    rng = np.random.default_rng(seed)
    precision = torch.tensor([[1.5, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 2.0]])
    model = Gaussian(precision.double())
    x, latent = torch.tensor(rng.normal(size=(N, FEATURES))), torch.arange(N) % FEATURES
    observed = latent[:, None] != torch.arange(FEATURES)
    K = model.precision.detach()

    def exact(x, observed):  # one missing cell a row: x_j | x_-j ~ N(-K_jk x_k / K_jj)
        mean = -(x.where(observed, 0.0) @ K) / K.diagonal()
        q, draws = Normal(mean, K.diagonal().rsqrt()), repeated(x, 2)
        return with_missing(draws, observed, q, stream(seed)(0, draws.values[0]))

    def log_marginal(row, j):
        rest = [k for k in range(FEATURES) if k != j]
        schur = K[rest][:, rest] - torch.outer(K[rest, j], K[rest, j]) / K[j, j]
        return -row[rest] @ schur @ row[rest] / 2 + (2 * torch.pi / K[j, j]).log() / 2

    expected = torch.stack([log_marginal(x[i], latent[i]) for i in range(N)])
    found = log_ratio(model.log_density, exact(x, observed), torch.zeros(N))
    torch.testing.assert_close(found, expected.expand(2, -1), rtol=1e-10, atol=1e-12)
