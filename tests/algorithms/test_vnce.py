"""Variational EM against NCE with the latent variable summed or integrated out."""

from math import log, pi

import numpy as np
import pytest
import torch
from oracles import GATE, z_mean
from torch import nn
from torch.distributions import Normal

from skvnce.algorithms.vnce import (
    common_random_numbers,
    exact_posterior,
    fit_model,
    variational_em,
)
from skvnce.models.base import log_joint
from skvnce.models.scale_mixture import NormalScaleMixture, UnnormalisedScaleMixture
from skvnce.objectives.nce import nce
from skvnce.objectives.vnce import Rows
from skvnce.training.lbfgs import minimise_parameters
from skvnce.variational.base import repeated, with_latents, with_states

TRUE_WIDTH, KNOWN = 4.0, 1.0
KINDS = [NormalScaleMixture, UnnormalisedScaleMixture]


def rows(x, scale):
    log_noise = Normal(0.0, scale).log_prob(x).squeeze(-1)
    return Rows(x, torch.ones_like(x, dtype=torch.bool), log_noise)


@pytest.fixture
def tables(seed):
    """Draw data of the unnormalised mixture (eq. 4.53), and noise for nu = 3."""
    rng = np.random.default_rng(seed)
    n = 400
    known = rng.random(n) < KNOWN / (TRUE_WIDTH + KNOWN)
    x = rng.normal(size=(n, 1)) * np.where(known, KNOWN, TRUE_WIDTH)[:, None]
    y = rng.normal(size=(3 * n, 1)) * TRUE_WIDTH
    return [rows(torch.tensor(u), TRUE_WIDTH) for u in (x, y)]


def mixture(kind, width=2.5):
    return kind(torch.tensor(width).double(), KNOWN)


def nce_loss(log_density, tables):
    ratios = [log_density(table.x) - table.log_noise for table in tables]
    return nce(*ratios, 3.0).loss


def summed(model):
    return lambda x: log_joint(model, x).logsumexp(0)


def direct(kind, tables):
    """Maximise the NCE objective itself."""
    model = mixture(kind)
    loss = lambda: nce_loss(summed(model), tables)  # noqa: E731
    minimise_parameters(loss, model.parameters(), tol=1e-9)
    return model


def distance(first, second):
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_em_climbs_nce_to_its_maximum(kind, tables):
    model = mixture(kind)
    climbed = [float(nce_loss(summed(model), tables).detach())]

    def record(loss):
        climbed.append(float(nce_loss(summed(model), tables).detach()))
        assert climbed[-1] <= loss + 1e-10  # the bound

    found = variational_em(
        model,
        exact_posterior(model),
        *tables,
        3.0,
        tol=1e-12,
        max_iter=300,
        callback=record,
    )
    assert found.converged
    assert np.diff(climbed).max() < 1e-10
    assert climbed[0] - climbed[-1] > 1e-3
    assert distance(model, direct(kind, tables)) < 1e-4


class Logistic(nn.Module):
    """The posterior of eq. (4.55)."""

    def __init__(self, states):
        super().__init__()
        self.states = states
        self.w = nn.Parameter(torch.zeros(3).double())

    def forward(self, x, observed):
        curve = (self.w * torch.cat([x**0, x, x**2], 1)).sum(1)
        log_q = nn.functional.logsigmoid(torch.stack([-curve, curve]))
        return with_states(repeated(x), self.states, log_q[:, None])


def test_a_parametric_posterior_reaches_the_same_maximum(tables):
    model = mixture(UnnormalisedScaleMixture)
    q = Logistic(model.states)
    variational_em(model, q, *tables, 3.0, parameters=[q.w], tol=1e-11, max_iter=300)
    assert distance(model, direct(UnnormalisedScaleMixture, tables)) < 1e-3
    width = float(model.log_width.detach().exp())
    expected = [0, 0, -(KNOWN**-2 - width**-2) / 2]  # eq. (4.54) with its sign right
    np.testing.assert_allclose(q.w.detach(), expected, atol=2e-3)


def test_a_posterior_without_e_step_does_not(tables):
    model = mixture(UnnormalisedScaleMixture)
    q = Logistic(model.states)
    variational_em(model, q, *tables, 3.0, tol=1e-11)
    assert distance(model, direct(UnnormalisedScaleMixture, tables)) > 0.03


class Factor(nn.Module):
    """Unnormalised ``exp(-c - (x - w z)^2 / 2 - z^2 / 2)`` with one latent z."""

    def __init__(self, loading=1.0):
        super().__init__()
        self.loading = nn.Parameter(torch.tensor(loading).double())
        self.log_scale = nn.Parameter(torch.tensor(1.0).double())

    def log_density(self, x, z):
        misfit = (x - self.loading * z).squeeze(-1)
        return -self.log_scale - (misfit.square() + z.squeeze(-1).square()) / 2

    def log_marginal(self, x):
        variance = 1 + self.loading.square()
        inside = x.squeeze(-1).square() / variance + variance.log() - log(2 * pi)
        return -self.log_scale - inside / 2


class Linear(nn.Module):
    """A normal posterior, linear in x; the exact one is among these."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.1).double())
        self.log_std = nn.Parameter(torch.tensor(0.0).double())

    def forward(self, x, observed):
        draws = repeated(x, 10)
        q = Normal(self.slope * draws.values[0], self.log_std.exp())
        return with_latents(draws, q)


def loadings(tables, seeds, learn):
    """Estimate the loading with the random numbers of each seed."""
    found = []
    for s in seeds:
        model, q = Factor(), Linear()
        fixed = common_random_numbers(q, s)
        learnt = [*q.parameters()] if learn else None
        variational_em(model, fixed, *tables, 3.0, parameters=learnt, tol=1e-7)
        found.append(float(model.loading.detach().abs()))
    return found


def test_random_draws_reach_nce_on_average(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(200, 1)) * 5**0.5, rng.normal(size=(600, 1)) * 2
    tables = [rows(torch.tensor(u), 2.0) for u in (x, y)]
    model = Factor()
    loss = lambda: nce_loss(model.log_marginal, tables)  # noqa: E731
    minimise_parameters(loss, model.parameters(), tol=1e-9)
    target = float(model.loading.detach().abs())
    seeds = range(100 * seed, 100 * seed + 14)
    assert abs(z_mean(loadings(tables, seeds, True), target)) < GATE
    assert abs(z_mean(loadings(tables, seeds, False), target)) > 2 * GATE


def test_common_random_numbers_leave_the_stream_alone():
    q, x = Linear(), torch.randn(5, 1).double()
    fixed = common_random_numbers(q, 3)
    state = torch.get_rng_state()
    first, second = fixed(x, None), fixed(x, None)
    assert (torch.get_rng_state() == state).all()
    assert (first.values[1] == second.values[1]).all()
    assert (common_random_numbers(q, 4)(x, None).values[1] != first.values[1]).all()


def test_the_m_step_leaves_the_posterior_alone(tables):
    model = mixture(UnnormalisedScaleMixture)
    q = Logistic(model.states)
    loss = fit_model(model, q, *tables, 3.0)
    assert (q.w == 0).all()
    assert q.w.grad is None
    assert np.isfinite(loss)
