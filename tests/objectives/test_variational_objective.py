"""The VNCE objective of modules: gradients, the mask, and what q learns from."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal

from skvnce.models.base import log_joint
from skvnce.models.scale_mixture import UnnormalisedScaleMixture
from skvnce.objectives.nce import nce
from skvnce.objectives.vnce import (
    Rows,
    data_term,
    log_ratio,
    variational_objective,
    vnce,
)
from skvnce.variational.base import repeated, with_latents, with_missing, with_states

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
    """A posterior of missing cells and latents, with its base draws fixed by a seed."""

    def __init__(self):
        super().__init__()
        self.cells = nn.Parameter(torch.randn(FEATURES).double())
        self.encoder = nn.Parameter(torch.randn(FEATURES, LATENTS).double() / 2)
        self.log_std = nn.Parameter(torch.zeros(LATENTS).double())

    def forward(self, x, observed):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            seen = x.where(observed, 0.0).sum(1, keepdim=True) / 10
            draws = repeated(x, N_DRAWS)
            draws = with_missing(draws, observed, Normal(self.cells + seen, 0.8))
            mean = draws.values[0] @ self.encoder
            return with_latents(draws, Normal(mean, self.log_std.exp()))


def table(n, observed):
    x = torch.randn(n, FEATURES).double()
    log_noise = Normal(0.0, 1.0).log_prob(x).where(observed, 0.0).sum(1)
    return Rows(x, observed, log_noise)


@pytest.fixture
def parts(seed):
    torch.manual_seed(seed)
    observed = torch.rand(N, FEATURES) < 0.7
    data, noise = table(N, observed), table(NU * N, observed.repeat(NU, 1))
    return Energy(), Both(), data, noise


def gradients(loss, module):
    return torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)


def test_it_is_the_objective_of_its_log_ratios(parts):
    model, q, data, noise = parts
    found = variational_objective(model, q, data, noise, NU)
    ratios = [
        log_ratio(model, q(rows.x, rows.observed), rows.log_noise)
        for rows in (data, noise)
    ]
    torch.testing.assert_close(found.loss, vnce(*ratios, NU).loss)
    assert not found.metrics["accuracy"].requires_grad


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


def test_gradients_of_the_model_by_finite_differences(parts):
    model, q, data, noise = parts

    def loss():
        return variational_objective(model, q, data, noise, NU).loss

    for exact, parameter in zip(
        gradients(loss(), model), model.parameters(), strict=True
    ):
        approximate = differences(loss, parameter)
        torch.testing.assert_close(exact, approximate, rtol=1e-6, atol=1e-8)


def test_q_learns_from_the_first_term_only(parts):
    model, q, data, noise = parts

    def first():
        ratio = log_ratio(model, q(data.x, data.observed), data.log_noise)
        return -data_term(ratio, NU).mean()

    def whole():
        return variational_objective(model, q, data, noise, NU).loss

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


def test_values_under_the_mask_change_nothing(parts):
    model, q, data, noise = parts
    expected = variational_objective(model, q, data, noise, NU)
    slopes = [*gradients(expected.loss, model), *gradients(expected.loss, q)]
    for junk in (1e6, torch.nan):
        data, noise = (
            rows._replace(x=rows.x.masked_fill(~rows.observed, junk))
            for rows in (data, noise)
        )
        found = variational_objective(model, q, data, noise, NU)
        assert found.loss == expected.loss
        same = [*gradients(found.loss, model), *gradients(found.loss, q)]
        assert all((a == b).all() for a, b in zip(slopes, same, strict=True))
    # control: an observed value does change it
    x = data.x.clone()
    x[tuple(data.observed.nonzero()[0])] += 1
    changed = variational_objective(model, q, data._replace(x=x), noise, NU)
    assert changed.loss != expected.loss


@pytest.mark.parametrize("nu", [0.5, 1.0, 10.0])
def test_states_summed_out_by_the_exact_posterior_give_nce(nu, seed):
    torch.manual_seed(seed)
    model = UnnormalisedScaleMixture(torch.tensor(3.0).double())

    def exact(x, observed):
        log_q = log_joint(model, x[None]).detach().log_softmax(0)
        return with_states(repeated(x), model.states, log_q)

    x, y = (2 * torch.randn(n, 1).double() for n in (20, 30))
    tables = [
        Rows(u, torch.ones_like(u).bool(), Normal(0.0, 2.0).log_prob(u).squeeze(1))
        for u in (x, y)
    ]
    ratios = [log_joint(model, rows.x).logsumexp(0) - rows.log_noise for rows in tables]
    found, expected = variational_objective(model, exact, *tables, nu), nce(*ratios, nu)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-12, atol=0)
    assert found.metrics["accuracy"] == expected.metrics["accuracy"]
    # the bound touches: its slope is that of NCE
    pairs = zip(
        gradients(found.loss, model), gradients(expected.loss, model), strict=True
    )
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
        return with_missing(
            repeated(x, 2), observed, Normal(mean, K.diagonal().rsqrt())
        )

    def log_marginal(row, j):
        rest = [k for k in range(FEATURES) if k != j]
        schur = K[rest][:, rest] - torch.outer(K[rest, j], K[rest, j]) / K[j, j]
        return -row[rest] @ schur @ row[rest] / 2 + (2 * torch.pi / K[j, j]).log() / 2

    expected = torch.stack([log_marginal(x[i], latent[i]) for i in range(N)])
    found = log_ratio(model, exact(x, observed), torch.zeros(N))
    torch.testing.assert_close(found, expected.expand(2, -1), rtol=1e-10, atol=1e-12)
