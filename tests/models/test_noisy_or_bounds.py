"""Bounds of noisy-OR against enumeration over random models."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import GATE, z_mean
from torch.nn.functional import logsigmoid

from skvnce._incomplete import Incomplete
from skvnce.models.noisy_or import (
    Causes,
    Cells,
    all_states,
    enumerate_joint,
    log1mexp,
    log_prior,
)
from skvnce.models.noisy_or_bounds import (
    chord_shift,
    conjugate_dual,
    conjugate_shift,
    divergence,
    elbo,
    lower_bound,
    tighter_chord,
    tighter_line,
    upper_bound,
)

D, K, N = 5, 3, 6
SEEDS = st.integers(0, 10**6)


def problem(seed, n_causes=K):
    """Draw a model and a table with holes."""
    rng = np.random.default_rng(seed)
    size = 10 ** rng.uniform(-1, 1)
    causes = Causes(
        torch.tensor(size * rng.gamma(0.5, size=(D, n_causes))),
        torch.tensor(rng.gamma(0.5, size=D) + 1e-3),
        torch.tensor(rng.normal(-1, 1.5, size=n_causes)),
    )
    x = (rng.uniform(size=(N, D)) < rng.uniform(0.2, 0.8)).astype(float)
    x[rng.uniform(size=x.shape) < 0.2] = np.nan
    return causes, Cells.of(*Incomplete.from_array(x)), rng


def evidence(causes, cells):
    return enumerate_joint(causes, cells).logsumexp(0)


def lines(rng):
    return torch.tensor(10 ** rng.uniform(-4, 2, size=(N, D)))


def chords(rng, n_causes=K):
    return torch.tensor(rng.dirichlet(np.full(n_causes, 0.5), size=(N, D)))


def test_the_dual_touches_the_logarithm():
    s = torch.logspace(-3, 2, 40, dtype=torch.float64)
    psi = 1 / torch.expm1(s)
    torch.testing.assert_close(psi * s - conjugate_dual(psi), log1mexp(s))
    for factor in (0.5, 2.0):
        assert (factor * psi * s - conjugate_dual(factor * psi) > log1mexp(s)).all()
    assert conjugate_dual(torch.zeros(1)) == 0


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_each_bound_is_on_its_side(seed):
    causes, cells, rng = problem(seed)
    exact = evidence(causes, cells)
    assert (upper_bound(causes, cells, lines(rng)) > exact - 1e-9).all()
    assert (lower_bound(causes, cells, chords(rng)) < exact + 1e-9).all()


@settings(deadline=None, max_examples=30)
@given(SEEDS)
def test_the_conjugate_posterior_is_that_of_brute_force(seed):
    causes, cells, rng = problem(seed)
    z = all_states(K)[:, None].expand(-1, N, -1)
    a = causes.leak + z @ causes.weight.T
    psi, r = lines(rng), chords(rng)
    line = psi * a - conjugate_dual(psi)
    leak = log1mexp(causes.leak)
    rise = r * (log1mexp(causes.leak[:, None] + causes.weight / r) - leak[:, None])
    chord = leak + (z[:, :, None] * rise).sum(-1)
    pairs = (
        (line, conjugate_shift(causes, cells, psi), upper_bound(causes, cells, psi)),
        (chord, chord_shift(causes, cells, r), lower_bound(causes, cells, r)),
    )
    for term, shift, bound in pairs:
        joint = (cells.on * term - cells.off * a).sum(-1) + log_prior(causes, z)
        torch.testing.assert_close(bound, joint.logsumexp(0))
        logit = causes.prior_logit + shift
        factorised = (z * logsigmoid(logit) + (1 - z) * logsigmoid(-logit)).sum(-1)
        exact = joint - joint.logsumexp(0)
        torch.testing.assert_close(factorised, exact, rtol=1e-7, atol=1e-7)


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_fixed_points_tighten_until_the_bound_is_stationary(seed):
    causes, cells, rng = problem(seed)
    sides = (
        (upper_bound, tighter_line, lines(rng), -1),
        (lower_bound, tighter_chord, torch.full((N, D, K), 1 / K).double(), 1),
    )
    for bound, tighter, state, sign in sides:
        before = bound(causes, cells, state)
        for _ in range(50):
            state = tighter(causes, cells, state)
            after = bound(causes, cells, state)
            assert (sign * (after - before) > -1e-8 * (1 + before.abs())).all()
            before = after


def test_the_tightest_line_has_no_slope(seed):
    causes, cells, rng = problem(seed)
    psi = lines(rng)
    for _ in range(3000):
        psi = tighter_line(causes, cells, psi)
    psi = psi.log().requires_grad_()
    (slope,) = torch.autograd.grad(upper_bound(causes, cells, psi.exp()).sum(), psi)
    assert slope[cells.on > 0].abs().max() < 1e-6


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_with_one_cause_the_lower_bound_is_exact(seed):
    causes, cells, rng = problem(seed, n_causes=1)
    exact = evidence(causes, cells)
    found = lower_bound(causes, cells, torch.ones(N, D, 1).double())
    torch.testing.assert_close(found, exact)
    above = upper_bound(causes, cells, lines(rng)) - exact
    assert (above[cells.on.any(1)] > 0).all()


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_the_divergence_by_enumeration(seed):
    causes, _, rng = problem(seed)
    logit = torch.tensor(rng.normal(0, 3, size=(N, K)))
    z = all_states(K)[:, None].expand(-1, N, -1)
    log_q = (z * logsigmoid(logit) + (1 - z) * logsigmoid(-logit)).sum(-1)
    expected = (log_q.exp() * (log_q - log_prior(causes, z))).sum(0)
    torch.testing.assert_close(divergence(causes, logit), expected)


def test_the_elbo_by_enumeration_and_below_the_evidence(seed):
    causes, cells, rng = problem(seed)
    logit = torch.tensor(rng.normal(0, 2, size=(N, K)))
    z = all_states(K)[:, None].expand(-1, N, -1)
    log_q = (z * logsigmoid(logit) + (1 - z) * logsigmoid(-logit)).sum(-1)
    exact = (log_q.exp() * (enumerate_joint(causes, cells) - log_q)).sum(0)
    draws = torch.tensor(rng.uniform(size=(4000, N, K))) < logit.sigmoid()
    each = [elbo(causes, cells, logit, one[None]).numpy() for one in draws.double()]
    z_scores = z_mean(np.array(each), exact.numpy())
    assert np.abs(z_scores).max() < GATE
    assert (exact < evidence(causes, cells)).all()
    wrong = z_mean(np.array(each), evidence(causes, cells).numpy())
    assert np.abs(wrong).max() > GATE


def test_gradients_reach_all_parameters(seed):
    causes, cells, rng = problem(seed)
    causes = Causes(*(p.requires_grad_() for p in causes))
    logit = causes.prior_logit + conjugate_shift(causes, cells, lines(rng))
    z = torch.tensor(rng.uniform(size=(3, N, K))) * logit.sigmoid()
    slopes = torch.autograd.grad(elbo(causes, cells, logit, z).sum(), causes)
    for slope in slopes:
        assert torch.isfinite(slope).all()
        assert (slope != 0).any()


@pytest.mark.parametrize("scale", [1e-8, 1e4])
def test_extreme_weights_stay_finite(scale, seed):
    causes, cells, rng = problem(seed)
    causes = causes._replace(weight=scale * causes.weight, leak=0 * causes.leak)
    r = chords(rng)
    for value in (
        lower_bound(causes, cells, r),
        tighter_chord(causes, cells, r),
        tighter_line(causes, cells, lines(rng)),
    ):
        assert torch.isfinite(value).all()
