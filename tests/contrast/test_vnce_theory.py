"""Theory of VNCE on the thesis's mixture of two widths: enumeration and quadrature.

Means over data and noise are integrals, means over the latent variable are sums, so
that every identity holds to rounding.
"""

from functools import partial

import numpy as np
import pytest
import torch
from _energies import UnnormalisedScaleMixture
from oracles import line_rule
from scale_mixture import NormalScaleMixture
from torch.distributions import Normal

from skvnce._core.models import log_joint_of_states
from skvnce._core.training.lbfgs import minimise
from skvnce.contrast.objective import (
    data_term,
    divergence,
    log_is_data,
    log_is_noise,
    log_marginal,
)

X, WEIGHTS = line_rule(60.0, 400)
TRUE_WIDTH, KNOWN = 4.0, 1.0
RATIOS = [0.5, 1.0, 10.0]
NOISE = Normal(torch.tensor(0.0).double(), TRUE_WIDTH)
LOG_NOISE = NOISE.log_prob(X).squeeze(-1)
KINDS = [NormalScaleMixture, UnnormalisedScaleMixture]


def mixture(kind, width):
    return kind(torch.as_tensor(width).double(), KNOWN)


def table(kind, width):
    """Tabulate log phi(x, z) at all states; (2, n)."""
    return log_joint_of_states(mixture(kind, width), X).detach()


def integral(values, log_density):
    return (WEIGHTS * log_density.exp() * values).sum()


TRUTH = table(NormalScaleMixture, TRUE_WIDTH).logsumexp(0)
mean_data = partial(integral, log_density=TRUTH)
mean_noise = partial(integral, log_density=LOG_NOISE)


def nce(joint, nu):
    ratio = joint.logsumexp(0) - LOG_NOISE
    noise_term = mean_noise(log_is_noise(ratio, nu))
    return mean_data(log_is_data(ratio, nu)) + nu * noise_term


def vnce(joint, log_q, nu):
    ratio = joint - log_q - LOG_NOISE
    noise_term = mean_noise(log_is_noise(log_marginal(ratio, log_q), nu))
    return mean_data(data_term(ratio, nu, log_q)) + nu * noise_term


def logistic(w):
    """Tabulate the parametric log q(z | x) of eq. (4.55); (2, n)."""
    curve = (w * torch.cat([X**0, X, X**2], 1)).sum(1)
    return torch.stack([-curve, curve]).sigmoid().log()


def posteriors(seed, n=10):
    """Draw posteriors of eq. (4.55) that give every state some probability."""
    scale = np.array([1.0, 0.1, 0.002])
    w = np.random.default_rng(seed).normal(size=(n, 3)) * scale
    return [logistic(row) for row in torch.tensor(w)]


def as_printed(width):
    """Tabulate the posterior of eq. (4.54) with its wrong sign; (2, n)."""
    curve = -(X**2) / 2 * (KNOWN**-2 + width**-2)
    return torch.stack([-curve, curve]).squeeze(-1).clamp(-300, 300).sigmoid().log()


@pytest.mark.parametrize("nu", RATIOS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_gap_is_the_divergence_of_lemma_1(kind, nu, seed):
    for log_q in posteriors(seed):
        joint = table(kind, 3.0)
        log_p, ratio = joint.log_softmax(0), joint.logsumexp(0) - LOG_NOISE
        gap = nce(joint, nu) - vnce(joint, log_q, nu)
        inside = divergence(log_q - log_p, ratio, nu, log_q)
        assert (inside > -1e-14).all()
        assert abs(float(gap - mean_data(inside))) < 1e-10
        bound = data_term(joint - log_q - LOG_NOISE, nu, log_q)  # row by row
        torch.testing.assert_close(log_is_data(ratio, nu) - bound, inside)
        # eq. (4.22): the difference of two Kullback-Leibler divergences
        q, p = log_q.exp(), log_p.exp()
        kappa = torch.sigmoid(ratio - np.log(nu))
        mixed = (kappa * p + (1 - kappa) * q).log()
        difference = (q * (log_q - log_p)).sum(0) - (q * (log_q - mixed)).sum(0)
        torch.testing.assert_close(inside, difference, rtol=0, atol=1e-10)
        # controls: another nu, and the two distributions exchanged
        other = divergence(log_q - log_p, ratio, 2 * nu, log_q)
        exchanged = divergence(log_p - log_q, ratio, nu, log_p)
        for wrong in (other, exchanged):
            assert abs(float(gap - mean_data(wrong))) > 1e-7


def test_the_divergence_grows_to_kullback_leibler(seed):
    log_q = posteriors(seed, 1)[0]
    joint = table(NormalScaleMixture, 3.0)
    log_p, r = joint.log_softmax(0), joint.logsumexp(0) - LOG_NOISE
    kl = (log_q.exp() * (log_q - log_p)).sum(0)
    values = [divergence(log_q - log_p, r, nu, log_q) for nu in 10.0 ** np.arange(9)]
    for less, more in zip([0 * kl, *values], [*values, kl], strict=False):
        assert (more - less > -1e-12).all()
    inside = X.squeeze(-1).abs() < 12
    torch.testing.assert_close(values[-1][inside], kl[inside], rtol=1e-5, atol=1e-8)
    assert ((kl - values[0])[inside] > 1e-8).any()


def best_width(value, start):
    """Maximise a function of log(width); return the width."""
    first = torch.tensor([np.log(start)])
    free = torch.zeros_like(first), torch.full_like(first, -torch.inf)
    minimum = minimise(lambda v: -value(mixture_table(v)), first, *free, tol=1e-12)
    return float(minimum.point.exp())


def mixture_table(log_width):
    """Tabulate log phi of the normalised mixture, differentiable in log(width)."""
    log_widths = torch.cat([log_width, torch.zeros_like(log_width)])
    return Normal(0.0, log_widths.exp()).log_prob(X).T - np.log(2)


def em(start, nu, e_step, n_steps):
    """Return the widths of EM for VNCE (Corollary 2.1)."""
    widths = [start]
    for _ in range(n_steps):
        log_q = e_step(widths[-1])
        widths.append(best_width(partial(vnce, log_q=log_q, nu=nu), widths[-1]))
    return widths


def exact(width):
    return table(NormalScaleMixture, width).log_softmax(0)


@pytest.mark.quick(2)
@pytest.mark.parametrize("nu", RATIOS)
@pytest.mark.parametrize("start", [2.0, 8.0])
def test_em_never_decreases_nce_and_reaches_its_maximiser(start, nu):
    widths = em(start, nu, exact, 40)
    values = [float(nce(table(NormalScaleMixture, width), nu)) for width in widths]
    assert np.diff(values).min() > -1e-10
    assert values[1] > values[0] + 1e-4
    direct = best_width(partial(nce, nu=nu), start)
    assert direct == pytest.approx(TRUE_WIDTH, abs=1e-6)  # the data are the model's
    assert widths[-1] == pytest.approx(direct, abs=1e-5)


def test_em_with_a_wrong_posterior_decreases_nce():
    widths = em(TRUE_WIDTH, 1.0, as_printed, 3)
    values = [float(nce(table(NormalScaleMixture, width), 1.0)) for width in widths]
    assert np.diff(values).min() < -1e-4
    assert abs(widths[-1] - TRUE_WIDTH) > 0.05
