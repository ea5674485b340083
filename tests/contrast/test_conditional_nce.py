"""Conditional NCE: its formula, and its bound by enumeration."""

import numpy as np
import pytest
import torch
from _energies import NormalScaleMixture, UnnormalisedScaleMixture, exact_posterior
from torch import nn

from skvnce._core.models import log_joint_of_states, repeated, with_states
from skvnce._core.random import stream
from skvnce.contrast.models import Scaled
from skvnce.contrast.objective import (
    Contrast,
    Rows,
    by_neighbours,
    by_noise,
    variational_values,
)

N, NU = 30, 4
UNIFORMS = stream(0), stream(1)


@pytest.fixture
def contrast(seed):
    """Make rows and their neighbours; there is no density of the noise."""
    torch.manual_seed(seed)
    x = 3 * torch.randn(N, 1).double()
    y = x + torch.randn(NU, N, 1).double()
    complete = torch.ones_like(x).bool()
    zeros = torch.zeros(NU, N).double()
    return Contrast(Rows(x, complete, zeros[0]), Rows(y, complete, zeros))


def mixture(kind=UnnormalisedScaleMixture):
    return kind(torch.tensor(3.0).double())


def plain(log_phi_x, log_phi_y):
    """Write eq. (1) down for each row, of x (n,) and y (nu, n)."""
    ratio = (log_phi_y - log_phi_x).exp()
    return 2 * (1 / (1 + ratio)).log().mean(0)


def summed_out(model, contrast):
    return plain(
        *(log_joint_of_states(model, rows.x).logsumexp(0) for rows in contrast)
    )


def states_of(model, log_q):
    def posterior(x, observed, uniforms):
        return with_states(repeated(x), model.states, log_q(x)[:, None])

    return posterior


def values(model, posterior, contrast):
    return variational_values(
        model.log_density, posterior, contrast, UNIFORMS, by_neighbours
    )


def test_it_is_the_plain_formula(seed):
    x, y = (torch.tensor(np.random.default_rng(seed).normal(size=s)) for s in (N, NU))
    y = y[:, None] + torch.linspace(-1, 1, N).double()
    nothing = torch.zeros(1, N).double()
    found = by_neighbours(x[None], y, nothing)
    torch.testing.assert_close(found, plain(x, y), rtol=1e-13, atol=0)


def test_rows_that_hide_nothing_do_not_depend_on_the_draws(seed):
    torch.manual_seed(seed)
    x, y = torch.randn(N).double(), torch.randn(NU, N).double()
    log_weight = torch.randn(5, N).double().log_softmax(0)
    found = by_neighbours(x.expand(5, -1), y, log_weight)
    torch.testing.assert_close(found, plain(x, y))


@pytest.mark.parametrize("kind", [NormalScaleMixture, UnnormalisedScaleMixture])
def test_equality_at_the_exact_posterior_with_its_slope(kind, contrast):
    model = mixture(kind)
    found = values(model, exact_posterior(model), contrast)
    expected = summed_out(model, contrast)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    parameters = list(model.parameters())
    slopes, others = (
        torch.autograd.grad(v.sum(), parameters) for v in (found, expected)
    )
    for slope, other in zip(slopes, others, strict=True):
        torch.testing.assert_close(slope, other, rtol=1e-9, atol=1e-12)


def test_any_posterior_gives_a_bound_of_each_row(contrast, seed):
    rng, model = np.random.default_rng(seed), mixture()
    top = summed_out(model, contrast)
    for w in rng.normal(size=(10, 2)):

        def log_q(x, w=w):
            curve = (w[0] + w[1] * x / 3).squeeze(-1)
            return nn.functional.logsigmoid(torch.stack([-curve, curve]))

        found = values(model, states_of(model, log_q), contrast)
        assert (found < top).all()  # the noise term is exact: the states are summed
    # control: draws of another posterior than the one in the ratio
    joint = log_joint_of_states(model, contrast.data.x).detach()
    log_phi = log_joint_of_states(model, contrast.noise.x).logsumexp(0)
    ratio, weight = joint - log_q(contrast.data.x), joint.log_softmax(0)
    assert (by_neighbours(ratio, log_phi, weight) > top).any()


def test_neither_model_nor_value_depends_on_the_scale(contrast):
    scaled = Scaled(mixture())
    posterior = exact_posterior(scaled)
    first = values(scaled, posterior, contrast)
    (slope,) = torch.autograd.grad(first.sum(), scaled.log_scale, retain_graph=True)
    assert abs(float(slope)) < 1e-12
    scaled.rescale(2.5)
    torch.testing.assert_close(values(scaled, posterior, contrast), first)
    # control: noise with a density sees it
    ratios = [
        variational_values(scaled.log_density, posterior, contrast, UNIFORMS, by_noise)
    ]
    scaled.rescale(0.0)
    ratios.append(
        variational_values(scaled.log_density, posterior, contrast, UNIFORMS, by_noise)
    )
    assert (ratios[0] - ratios[1]).abs().min() > 1e-3


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_draw_of_weight_zero_does_not_count(value, seed):
    torch.manual_seed(seed)
    data, marginal = torch.randn(3, N).double(), torch.randn(NU, N).double()
    with_junk = torch.cat([data, torch.full((1, N), value)]).requires_grad_()
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0]).double().div(3).log()[:, None]
    found = by_neighbours(with_junk, marginal, weight.expand(4, N))
    expected = by_neighbours(data, marginal, weight[:3].expand(3, N))
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), with_junk)
    assert (gradient[3] == 0).all()
    assert (gradient[:3] > 0).all()


def test_sure_answers_stay_finite():
    far = torch.tensor([[1e4, -1e4]]).double().requires_grad_()
    found = by_neighbours(far, -far, torch.zeros(1, 2).double())
    (gradient,) = torch.autograd.grad(found.sum(), far)
    assert found.isfinite().all()
    assert gradient.isfinite().all()
