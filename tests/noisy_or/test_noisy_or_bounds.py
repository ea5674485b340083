"""Bounds of noisy-OR against enumeration over random models."""

import numpy as np
import pytest
import torch
from _enumerated_causes import all_states, enumerate_joint, log_prior
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import GATE, z_mean
from tables import cells_of
from torch.nn.functional import logsigmoid

from skvnce.noisy_or import model

D, K, N = 5, 3, 6
SEEDS = st.integers(0, 10**6)


def drawn(seed, n_causes=K):
    """Draw a model and the cells of a table with missing values."""
    rng = np.random.default_rng(seed)
    size = 10 ** rng.uniform(-1, 1)
    causes = model.Causes(
        torch.tensor(size * rng.gamma(0.5, size=(D, n_causes))),
        torch.tensor(rng.gamma(0.5, size=D) + 1e-3),
        torch.tensor(rng.normal(-1, 1.5, size=n_causes)),
    )
    x = (rng.uniform(size=(N, D)) < rng.uniform(0.2, 0.8)).astype(float)
    x[rng.uniform(size=x.shape) < 0.2] = np.nan
    x[0, 0] = 1.0  # so that something is listed
    return causes, cells_of(x), rng


def problem(seed, n_causes=K):
    causes, cells, rng = drawn(seed, n_causes)
    return model.gather(causes, cells), rng


def log_evidence(evidence):
    return enumerate_joint(evidence).logsumexp(0)


def lines(evidence, rng):
    return torch.tensor(10 ** rng.uniform(-4, 2, size=tuple(evidence.on.shape)))


def chords(evidence, rng):
    shape = tuple(evidence.on.shape)
    n_causes = len(evidence.prior_logit)
    return torch.tensor(rng.dirichlet(np.full(n_causes, 0.5), size=shape))


def next_chord(evidence, r):
    logit = evidence.prior_logit + model.chord_shift(evidence, r)
    return model.tighter_chord(evidence, logit, r)


def test_the_dual_touches_the_logarithm():
    s = torch.logspace(-3, 2, 40, dtype=torch.float64)
    psi = 1 / torch.expm1(s)
    torch.testing.assert_close(psi * s - model.conjugate_dual(psi), model.log1mexp(s))
    for factor in (0.5, 2.0):
        assert (
            factor * psi * s - model.conjugate_dual(factor * psi) > model.log1mexp(s)
        ).all()
    assert model.conjugate_dual(torch.zeros(1)) == 0


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_each_bound_is_on_its_side(seed):
    evidence, rng = problem(seed)
    exact = log_evidence(evidence)
    assert (model.upper_bound(evidence, lines(evidence, rng)) > exact - 1e-9).all()
    assert (model.lower_bound(evidence, chords(evidence, rng)) < exact + 1e-9).all()


@settings(deadline=None, max_examples=30)
@given(SEEDS)
def test_the_conjugate_posterior_is_that_of_brute_force(seed):
    evidence, rng = problem(seed)
    z = all_states(K)[:, None].expand(-1, N, -1)
    a = evidence.leak + torch.einsum("snk,nik->sni", z, evidence.weight)
    psi, r = lines(evidence, rng), chords(evidence, rng)
    line = psi * a - model.conjugate_dual(psi)
    leak = model.log1mexp(evidence.leak)
    sloped = model.log1mexp(evidence.leak[..., None] + evidence.weight / r)
    rise = r * (sloped - leak[..., None])
    chord = leak + (z[:, :, None] * rise).sum(-1)
    pairs = (
        (line, model.conjugate_shift(evidence, psi), model.upper_bound(evidence, psi)),
        (chord, model.chord_shift(evidence, r), model.lower_bound(evidence, r)),
    )
    for term, shift, bound in pairs:
        silent = evidence.off_leak + (z * evidence.off_weight).sum(-1)
        prior = log_prior(evidence.prior_logit, z)
        joint = (evidence.on * term).sum(-1) - silent + prior
        torch.testing.assert_close(bound, joint.logsumexp(0))
        logit = evidence.prior_logit + shift
        factorise = (z * logsigmoid(logit) + (1 - z) * logsigmoid(-logit)).sum(-1)
        exact = joint - joint.logsumexp(0)
        torch.testing.assert_close(factorise, exact, rtol=1e-7, atol=1e-7)


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_fixed_points_tighten_until_the_bound_is_stationary(seed):
    evidence, rng = problem(seed)
    sides = (
        (model.upper_bound, model.tighter_line, lines(evidence, rng), -1),
        (model.lower_bound, next_chord, torch.full_like(evidence.weight, 1 / K), 1),
    )
    for bound, tighter, state, sign in sides:
        before = bound(evidence, state)
        for _ in range(50):
            state = tighter(evidence, state)
            after = bound(evidence, state)
            assert (sign * (after - before) > -1e-8 * (1 + before.abs())).all()
            before = after


def test_the_tightest_line_has_no_slope(seed):
    evidence, rng = problem(seed)
    psi = lines(evidence, rng)
    for _ in range(3000):
        psi = model.tighter_line(evidence, psi)
    psi = psi.log().requires_grad_()
    (slope,) = torch.autograd.grad(model.upper_bound(evidence, psi.exp()).sum(), psi)
    assert slope[evidence.on > 0].abs().max() < 1e-6


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_with_one_cause_the_lower_bound_is_exact(seed):
    evidence, rng = problem(seed, n_causes=1)
    exact = log_evidence(evidence)
    result = model.lower_bound(evidence, torch.ones_like(evidence.weight))
    torch.testing.assert_close(result, exact)
    above = model.upper_bound(evidence, lines(evidence, rng)) - exact
    assert (above[evidence.on.sum(1) > 0] > 0).all()


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_free_posteriors_reach_the_lower_bound_only_at_its_own(seed):
    evidence, rng = problem(seed)
    r = chords(evidence, rng)
    logit = evidence.prior_logit + model.chord_shift(evidence, r)
    bound = model.lower_bound(evidence, r)
    torch.testing.assert_close(model.lower_elbo(evidence, logit, r), bound)
    other = logit + torch.tensor(rng.normal(size=(N, K)))
    assert (model.lower_elbo(evidence, other, r) < bound).all()


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_the_divergence_by_enumeration(seed):
    evidence, rng = problem(seed)
    logit = torch.tensor(rng.normal(0, 3, size=(N, K)))
    z = all_states(K)[:, None].expand(-1, N, -1)
    log_q = (z * logsigmoid(logit) + (1 - z) * logsigmoid(-logit)).sum(-1)
    expected = (log_q.exp() * (log_q - log_prior(evidence.prior_logit, z))).sum(0)
    torch.testing.assert_close(model.divergence(evidence.prior_logit, logit), expected)


def test_the_elbo_by_enumeration_and_below_the_evidence(seed):
    evidence, rng = problem(seed)
    logit = torch.tensor(rng.normal(0, 2, size=(N, K)))
    z = all_states(K)[:, None].expand(-1, N, -1)
    log_q = (z * logsigmoid(logit) + (1 - z) * logsigmoid(-logit)).sum(-1)
    exact = (log_q.exp() * (enumerate_joint(evidence) - log_q)).sum(0)
    draws = torch.tensor(rng.uniform(size=(4000, N, K))) < logit.sigmoid()
    each = [model.elbo(evidence, logit, one[None]).numpy() for one in draws.double()]
    z_scores = z_mean(np.array(each), exact.numpy())
    assert np.abs(z_scores).max() < GATE
    assert (exact < log_evidence(evidence)).all()
    wrong = z_mean(np.array(each), log_evidence(evidence).numpy())
    assert np.abs(wrong).max() > GATE


def test_gradients_reach_all_parameters(seed):
    causes, cells, rng = drawn(seed)
    causes = model.Causes(*(p.requires_grad_() for p in causes))
    evidence = model.gather(causes, cells)
    logit = causes.prior_logit + model.conjugate_shift(evidence, lines(evidence, rng))
    z = torch.tensor(rng.uniform(size=(3, N, K))) * logit.sigmoid()
    slopes = torch.autograd.grad(model.elbo(evidence, logit, z).sum(), causes)
    for slope in slopes:
        assert torch.isfinite(slope).all()
        assert (slope != 0).any()


@pytest.mark.parametrize("scale", [1e-8, 1e4])
def test_extreme_weights_stay_finite(scale, seed):
    causes, cells, rng = drawn(seed)
    causes = causes._replace(weight=scale * causes.weight, leak=0 * causes.leak)
    evidence = model.gather(causes, cells)
    r = chords(evidence, rng)
    for value in (
        model.lower_bound(evidence, r),
        next_chord(evidence, r),
        model.tighter_line(evidence, lines(evidence, rng)),
    ):
        assert torch.isfinite(value).all()
