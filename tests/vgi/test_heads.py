"""Families of univariate conditionals against quadrature and finite differences."""

import pytest
import torch
from oracles import line_rule
from torch.distributions import Normal

from skvnce._core.distributions.cells import entropy
from skvnce._core.random import at_quantiles
from skvnce.vgi.conditionals import MixtureHead, NormalHead, SplineHead

HEADS = {
    "normal": NormalHead(),
    "mixture": MixtureHead(3),
    "one component": MixtureHead(1),
    "spline": SplineHead(),
    "one spline": SplineHead(n_bins=5, n_steps=1, bound=2.0),
}


@pytest.fixture(params=HEADS)
def head(request):
    return HEADS[request.param]


@pytest.fixture
def parts(head, seed):
    """Make parameters of four conditionals, moderate ones."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(4, head.n_parameters, generator=generator).double() / 2
    return [
        part.clone().requires_grad_()
        for part in (numbers[:, 0], numbers[:, 1], numbers[:, 2:])
    ]


def panels(low, high, n_panels=6000):
    """Make points and weights of Gauss-Legendre of five points on many panels."""
    nodes, weights = line_rule(1.0, 5)
    edges = torch.linspace(low, high, n_panels + 1, dtype=torch.float64)
    half = (edges[1:] - edges[:-1]) / 2
    points = (edges[:-1] + half)[:, None] + half[:, None] * nodes[:, 0]
    return points.flatten(), (half[:, None] * weights).flatten()


def of_each(head, parts):
    """Give each conditional, as a batch of one, with points where it lives."""
    ends = torch.tensor([[1e-12], [1 - 1e-12]], dtype=torch.float64)
    for i in range(4):
        q = head(*[part[i : i + 1] for part in parts])
        points, weights = panels(*q.icdf(ends).flatten().tolist())
        yield q, points[:, None], weights


def precision(head):
    """Give the error of quadrature: splines have kinks, of second order in panels.

    With 24000 panels it was 6e-6 at most for 204 conditionals of splines, and 2e-7 in
    99 %; with 6000 panels 4e-5 and 2e-5.
    """
    return 1e-4 if isinstance(head, SplineHead) else 1e-9


def test_densities_integrate_to_one(head, parts):
    for q, points, weights in of_each(head, parts):
        total = q.log_prob(points).exp()[:, 0] @ weights
        assert float(total.detach()) == pytest.approx(1, abs=precision(head))


def test_quantiles_invert_cdfs(head, parts):
    q = head(*parts)
    u = torch.linspace(0.001, 0.999, 41).double()[:, None].expand(-1, 4)
    torch.testing.assert_close(q.cdf(q.icdf(u)), u, rtol=0, atol=1e-7)
    at = q.icdf(u).detach().requires_grad_()
    (slope,) = torch.autograd.grad(q.cdf(at).sum(), at)
    torch.testing.assert_close(slope, q.log_prob(at).exp(), rtol=1e-5, atol=1e-7)


def test_gradients_of_draws(head, parts):
    """Against finite differences of the quantile, for every parameter."""
    u = torch.tensor([[0.03], [0.4], [0.9]]).double()
    assert torch.autograd.gradcheck(
        lambda *parts: at_quantiles(head(*parts), u.expand(-1, 2)),
        [part[:2] for part in parts],
        eps=1e-6,
        atol=1e-4,
        rtol=1e-3,
    )


def test_entropies(head, parts, seed):
    """Closed, or without a closed form on average over draws."""
    for q, points, weights in of_each(head, parts):
        log_q = q.log_prob(points)[:, 0]
        exact = -(log_q.exp() * log_q.where(log_q > -700, 0.0)) @ weights
        result = entropy(q, points)
        if result.dim() == 2:  # at draws
            result = (log_q.exp() * result[:, 0]) @ weights
        torch.testing.assert_close(
            result.squeeze(), exact, rtol=0, atol=max(1e-8, precision(head))
        )


@pytest.mark.parametrize("name", ["normal", "one component", "spline", "one spline"])
def test_they_start_at_a_normal(name):
    """Where the further parameters are zero: a spline is then the identity."""
    head = HEADS[name]
    loc, log_scale = torch.tensor([0.3, -1.0]), torch.tensor([0.2, 0.4])
    q = head(loc, log_scale, torch.zeros(2, head.n_parameters - 2))
    x = torch.linspace(-2, 2, 9)[:, None]
    shift = 0.0 if name != "one component" else -log_scale.exp()  # the leftmost of one
    exact = Normal(loc + shift, log_scale.exp()).log_prob(x)
    torch.testing.assert_close(q.log_prob(x), exact, rtol=1e-4, atol=1e-4)


def test_components_start_side_by_side():
    loc, scale = torch.tensor([1.0]), torch.tensor([2.0])
    q = MixtureHead(3)(loc, scale.log(), torch.zeros(1, 9))
    torch.testing.assert_close(q.loc, torch.tensor([[-1.0, 1, 3]]))
    torch.testing.assert_close(q.scale, torch.full((1, 3), 2.0))


@pytest.mark.parametrize("log_scale", [-1e4, 1e4])
def test_scales_are_bounded(head, log_scale):
    loc, rest = torch.zeros(4), torch.zeros(4, head.n_parameters - 2)
    q = head(loc, torch.full((4,), log_scale), rest)
    assert at_quantiles(q, torch.full((4,), 0.3)).isfinite().all()


def test_leading_shapes_are_free(head, parts):
    wide = [part.expand(5, 2, *part.shape) for part in parts]
    q = head(*wide)
    assert q.batch_shape == (5, 2, 4)
    x = torch.full((5, 2, 4), 0.6).double()
    same = head(*parts).log_prob(x[0, 0])
    torch.testing.assert_close(q.log_prob(x)[3, 1], same)
