"""Variational EM against NCE with the latent variable summed or integrated out."""

from math import log, pi

import numpy as np
import pytest
import torch
from _energies import UnnormalisedScaleMixture, exact_posterior
from oracles import GATE, z_mean
from scale_mixture import NormalScaleMixture
from torch import nn
from torch.distributions import Normal

from skvnce._core.models import log_joint_of_states, repeated, with_latents, with_states
from skvnce._core.training.lbfgs import minimise_parameters
from skvnce.contrast.objective import (
    Contrast,
    Problem,
    Rows,
    evaluate,
    nce,
    variational_em,
)

TRUE_WIDTH, KNOWN = 4.0, 1.0
KINDS = [NormalScaleMixture, UnnormalisedScaleMixture]


NU = 3


def against(x, y, scale):
    """Make the contrast of rows (n, 1) with normal noise (nu, n, 1)."""
    complete = torch.ones_like(x, dtype=torch.bool)
    noise = Normal(0.0, scale)
    return Contrast(*(Rows(u, complete, noise.log_prob(u).squeeze(-1)) for u in (x, y)))


@pytest.fixture
def contrast(rng):
    """Draw data of the unnormalised mixture (eq. 4.53), and noise for nu = 3."""
    n = 400
    known = rng.random(n) < KNOWN / (TRUE_WIDTH + KNOWN)
    x = rng.normal(size=(n, 1)) * np.where(known, KNOWN, TRUE_WIDTH)[:, None]
    y = rng.normal(size=(NU, n, 1)) * TRUE_WIDTH
    return against(torch.tensor(x), torch.tensor(y), TRUE_WIDTH)


def mixture(kind, width=2.5):
    return kind(torch.tensor(width).double(), KNOWN)


def nce_loss(log_density, contrast):
    ratios = [log_density(rows.x) - rows.log_noise for rows in contrast]
    return nce(*ratios, NU)


def summed(model):
    return lambda x: log_joint_of_states(model, x).logsumexp(0)


def maximise_nce(log_density, parameters, contrast):
    """Maximise the NCE objective itself."""
    minimise_parameters(lambda: [nce_loss(log_density, contrast)], parameters, tol=1e-9)


def direct(kind, contrast):
    model = mixture(kind)
    maximise_nce(summed(model), model.parameters(), contrast)
    return model


def distance(first, second):
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_em_climbs_nce_to_its_maximum(kind, contrast):
    model = mixture(kind)
    climbed = [float(nce_loss(summed(model), contrast).detach())]

    def record(n_round, loss, change):
        assert n_round == len(climbed)
        climbed.append(float(nce_loss(summed(model), contrast).detach()))
        assert climbed[-1] <= loss + 1e-10  # the bound
        return False

    trace = variational_em(
        Problem(model.log_density, exact_posterior(model), contrast),
        model.parameters(),
        tol=1e-12,
        max_iter=300,
        on_round=record,
    )
    assert trace.converged
    assert len(trace.loss) == len(climbed) - 1
    assert np.diff(climbed).max() < 1e-10
    assert climbed[0] - climbed[-1] > 1e-3
    assert distance(model, direct(kind, contrast)) < 1e-4


class Logistic(nn.Module):
    """The posterior of eq. (4.55)."""

    def __init__(self, states):
        super().__init__()
        self.states = states
        self.w = nn.Parameter(torch.zeros(3).double())

    def forward(self, x, observed, uniforms):
        curve = (self.w * torch.cat([x**0, x, x**2], -1)).sum(-1)
        log_q = nn.functional.logsigmoid(torch.stack([-curve, curve]))
        return with_states(repeated(x), self.states, log_q[:, None])


def test_a_parametric_posterior_reaches_the_same_maximum(contrast):
    model = mixture(UnnormalisedScaleMixture)
    q = Logistic(model.states)
    problem = Problem(model.log_density, q, contrast)
    variational_em(problem, model.parameters(), [q.w], tol=1e-11, max_iter=300)
    assert distance(model, direct(UnnormalisedScaleMixture, contrast)) < 1e-3
    width = float(model.log_width.detach().exp())
    expected = [0, 0, -(KNOWN**-2 - width**-2) / 2]  # eq. (4.54) with its sign right
    np.testing.assert_allclose(q.w.detach(), expected, atol=2e-3)


def test_a_posterior_without_e_step_does_not(contrast):
    model = mixture(UnnormalisedScaleMixture)
    problem = Problem(model.log_density, Logistic(model.states), contrast)
    variational_em(problem, model.parameters(), tol=1e-11)
    assert distance(model, direct(UnnormalisedScaleMixture, contrast)) > 0.03


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

    def forward(self, x, observed, uniforms):
        draws = repeated(x, 10)
        mean = self.slope * draws.values[0]
        q = Normal(mean, self.log_std.exp())
        return with_latents(draws, q, uniforms(0, mean))


def loadings(contrast, seeds, learn):
    """Estimate the loading with the random numbers of each seed."""
    records = []
    for s in seeds:
        model, q = Factor(), Linear()
        problem = Problem(model.log_density, q, contrast, seed=s)
        learnt = q.parameters() if learn else ()
        variational_em(problem, model.parameters(), learnt, tol=1e-7)
        records.append(float(model.loading.detach().abs()))
    return records


@pytest.mark.slow
def test_random_draws_reach_nce_on_average(seed, rng):
    x, y = rng.normal(size=(200, 1)) * 5**0.5, rng.normal(size=(NU, 200, 1)) * 2
    contrast = against(torch.tensor(x), torch.tensor(y), 2.0)
    model = Factor()
    maximise_nce(model.log_marginal, model.parameters(), contrast)
    target = float(model.loading.detach().abs())
    seeds = range(100 * seed, 100 * seed + 14)
    assert abs(z_mean(loadings(contrast, seeds, True), target)) < GATE
    assert abs(z_mean(loadings(contrast, seeds, False), target)) > 1.5 * GATE


def test_the_random_numbers_of_a_problem_are_those_of_its_seed(contrast):
    model, q = Factor(), Linear()
    state = torch.get_rng_state()
    first, second, other = (
        evaluate(Problem(model.log_density, q, contrast, seed=s)) for s in (3, 3, 4)
    )
    assert (torch.get_rng_state() == state).all()
    assert (first.values == second.values).all()
    assert (first.values != other.values).any()
