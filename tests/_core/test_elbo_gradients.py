"""Gradients of the bounds: unbiased against quadrature, with one latent.

Every row is a replicate with parameters of its own, so that the gradients of the sum
are a sample.
"""

from math import log

import pytest
import torch
from oracles import GATE, z_mean
from vaes import Curved, Given, Single, grid

from skvnce._core.models import draw_latents, frozen, log_joint
from skvnce._core.random import stream
from skvnce.autoencoder.losses import miss_iwae, miss_siwae, miss_svae, miss_vae

LOADINGS, SCALE = [[1.0], [-0.5], [0.8]], [0.4, 0.6, 0.5]
ROW = torch.tensor([[0.9, torch.nan, -0.4]]).double()
TWO = ([0.4, -0.1], [[0.7], [-0.8]], [[0.6], [0.5]])
ONE = tuple(v[:1] for v in TWO)
N = 20000


def rows(n):
    return ROW.expand(n, -1), ~ROW.isnan().expand(n, -1)


def model(n):
    return Curved(LOADINGS, SCALE, mean=torch.zeros(n, 3))


def parts(parameters, n):
    """Make a model and a posterior of n replicates, and list what they learn."""
    vae, posterior = model(n), Given(*parameters, n)
    return vae, posterior, [*posterior.values, vae.mean]


def gradients(value, leaves):
    result = torch.autograd.grad(value.sum(), leaves)
    return [g.flatten(1) for g in result]


def sampled(bound, parameters, seed, n_draws, n=N):
    vae, posterior, leaves = parts(parameters, n)
    value = bound(vae, posterior, *rows(n), stream(seed), n_draws)
    return gradients(value, leaves)


def on_grid(parameters):
    """Return q and eq. (1) at the points of a grid, and the weights of the points."""
    vae, posterior, leaves = parts(parameters, 1)
    z, weights = grid(1, n_points=150)
    q = posterior(*rows(1))
    log_w = log_joint(vae, *rows(1), z.unsqueeze(1)) - q.log_prob(z.unsqueeze(1))
    return q, z, log_w.squeeze(1), weights, leaves


def exact_elbo(parameters):
    q, z, log_w, weights, leaves = on_grid(parameters)
    return gradients((q.log_prob(z).exp() * log_w) @ weights, leaves)


def exact_iwelbo(parameters):
    """Integrate over two draws."""
    q, z, log_w, weights, leaves = on_grid(parameters)
    inside = torch.logaddexp(log_w[:, None], log_w) - log(2)
    mass = q.log_prob(z).exp() * weights
    return gradients(mass @ inside @ mass, leaves)


def exact_siwelbo(parameters):
    """Integrate over one draw of each of two components."""
    q, z, log_w, weights, leaves = on_grid(parameters)
    first, second = (q.log_weights[0] + log_w[:, None]).T
    inside = torch.logaddexp(first[:, None], second)
    masses = (q.components().log_prob(z[:, None]).exp() * weights[:, None]).T
    return gradients(masses[0] @ inside @ masses[1], leaves)


def farthest(found, expected):
    """Return the largest distance of a mean from its expectation, in errors."""
    apart = []
    for sample, mean in zip(found, expected, strict=True):
        varies = sample.std(0) > 1e-12  # the missing column has no gradient
        torch.testing.assert_close(mean[0, ~varies], sample[0, ~varies])
        apart.append(abs(z_mean(sample[:, varies], mean[0, varies])))
    return max(z.max() for z in apart if z.size)


CASES = [
    (miss_vae, exact_elbo, 3),
    (miss_svae, exact_elbo, 2),
    (miss_iwae, exact_iwelbo, 2),
    (miss_siwae, exact_siwelbo, 1),
]


@pytest.mark.parametrize(("bound", "exact", "n_draws"), CASES)
def test_gradients_are_unbiased(bound, exact, n_draws, seed):
    result, expected = sampled(bound, TWO, seed, n_draws), exact(TWO)
    assert farthest(result, expected) < GATE
    elsewhere = exact(([0.0, 0.0], [[0.5], [-0.5]], TWO[2]))
    assert farthest(result, elsewhere) > GATE  # control


@pytest.mark.parametrize(
    ("bound", "exact"), [(miss_vae, exact_elbo), (miss_iwae, exact_iwelbo)]
)
def test_gradients_of_one_normal_are_unbiased(bound, exact, seed):
    vae, posterior = model(N), Single(*ONE, N)
    leaves = [*posterior.values[1:], vae.mean]
    value = bound(vae, posterior, *rows(N), stream(seed), 2)
    assert farthest(gradients(value, leaves), exact(ONE)[1:]) < GATE


def test_at_the_posterior_no_gradient_is_left():
    """Every draw has it, not only their mean: that is why q is frozen."""
    linear = Curved(LOADINGS, SCALE, bend=0.0, mean=torch.zeros(9, 3))
    observed, noise = ~ROW.isnan()[0], torch.tensor(SCALE).double().square()
    w = linear.loadings[:, 0].detach()
    precision = 1 + (w**2 / noise)[observed].sum()
    mean = (w * ROW[0] / noise)[observed].sum() / precision
    posterior = Single([0.0], [[mean]], [[precision**-0.5]], 9)
    for bound in (miss_vae, miss_iwae):
        value = bound(linear, posterior, *rows(9), stream(0), 4)
        for gradient in gradients(value, list(posterior.values)[1:]):
            assert abs(gradient).max() < 1e-10
    q = posterior(*rows(9))
    z = draw_latents(q, stream(0), 4, w)
    plain = (log_joint(linear, *rows(9), z) - q.log_prob(z)).mean(0)
    assert abs(gradients(plain, [posterior.values[1]])[0]).max() > 0.1  # control


def test_frozen_leaves_the_distribution_alone(seed):
    for posterior in (Given(*TWO, 3), Single(*TWO, 3)):
        q, z = posterior(*rows(3)), torch.randn(5, 3, 1).double().requires_grad_()
        twin = frozen(q)
        assert type(twin) is type(q)
        assert (twin.log_prob(z) == q.log_prob(z)).all()
        assert not twin.log_prob(z.detach()).requires_grad
        assert q.log_prob(z.detach()).requires_grad
        ways = [torch.autograd.grad(p.log_prob(z).sum(), z)[0] for p in (q, twin)]
        assert (ways[0] == ways[1]).all()


def test_the_model_has_its_gradient_alone():
    """Fixed draws: no hook is needed, and none fails."""
    vae, posterior, _ = parts(TWO, 3)
    posterior.requires_grad_(False)
    for bound in (miss_vae, miss_iwae, miss_svae, miss_siwae):
        value = bound(vae, posterior, *rows(3), stream(0), 2)
        (gradient,) = gradients(value, [vae.mean])
        assert (gradient[:, 1] == 0).all()  # the missing column
        assert (gradient[:, [0, 2]] != 0).all()
