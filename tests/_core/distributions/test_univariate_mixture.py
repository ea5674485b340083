"""Mixtures of normals against quadrature and finite differences."""

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, line_rule, z_mean
from torch.distributions import Normal

from skvnce._core.distributions.families import UnivariateMixture

POINTS, WEIGHTS = line_rule(40.0, 4000)
POINTS = POINTS[:, 0]
# logits, locations and scales: apart, alone, on top of each other, far narrower
CASES = [
    ([0.3, -1.0, 0.5], [-4.0, 0.0, 5.0], [0.5, 1.0, 2.0]),
    ([0.0], [1.5], [0.7]),
    ([0.0, 0.0], [2.0, 2.0], [1.0, 1.0]),
    ([2.0, -2.0], [0.0, 3.0], [0.1, 3.0]),
    ([0.0, -60.0], [0.0, 8.0], [1.0, 1.0]),
]


def mixture(case, **kwargs):
    return UnivariateMixture(
        *(torch.tensor(part, dtype=torch.float64, **kwargs) for part in case)
    )


@pytest.fixture(params=range(len(CASES)))
def case(request):
    return CASES[request.param]


def test_the_density_integrates_to_one_and_to_the_cdf(case):
    q = mixture(case)
    density = q.log_prob(POINTS).exp()
    assert float(density @ WEIGHTS) == pytest.approx(1, abs=1e-9)
    assert float((POINTS * density) @ WEIGHTS) == pytest.approx(float(q.mean), abs=1e-8)
    at = torch.tensor([-3.0, 0.1, 2.0, 6.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(q.cdf(at).sum(), at)
    torch.testing.assert_close(slope, q.log_prob(at).exp(), rtol=1e-10, atol=1e-14)
    assert float(q.cdf(torch.tensor(80.0))) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_quantiles_invert_the_cdf(case, dtype):
    q = mixture(case)
    u = torch.cat([torch.tensor([1e-6, 1 - 1e-6]), torch.linspace(0.01, 0.99, 33)])
    u = u.double()
    torch.testing.assert_close(q.cdf(q.icdf(u)), u, rtol=0, atol=1e-9)
    single = UnivariateMixture(q.logits.to(dtype), q.loc.to(dtype), q.scale.to(dtype))
    quantiles = single.icdf(u.to(dtype))
    assert quantiles.dtype == dtype
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(q.cdf(quantiles.double()), u, rtol=0, atol=tolerance)


def test_of_one_component_it_is_the_normal(torch_seeded):
    loc, scale = torch.randn(4, 1).double(), torch.rand(4, 1).double() + 0.1
    q = UnivariateMixture(torch.randn(4, 1).double(), loc, scale)
    exact = Normal(loc[:, 0], scale[:, 0])
    u = torch.rand(7, 4).double()
    torch.testing.assert_close(q.icdf(u), exact.icdf(u))
    x = torch.randn(7, 4).double()
    torch.testing.assert_close(q.log_prob(x), exact.log_prob(x))
    torch.testing.assert_close(q.cdf(x), exact.cdf(x))


def test_the_gradient_of_quantiles(case):
    """Against finite differences of the bisection itself, for every parameter."""
    parts = [torch.tensor(part).double().requires_grad_() for part in case]
    u = torch.tensor([0.02, 0.4, 0.7, 0.97]).double()

    def quantiles(*parts):
        return UnivariateMixture(*parts).icdf(u)

    assert torch.autograd.gradcheck(quantiles, parts, eps=1e-5, atol=1e-5)


def test_draws(torch_seeded):
    q = mixture(CASES[0])
    draws = q.rsample((20000,))[:, None].numpy()
    second = float((POINTS.square() * q.log_prob(POINTS).exp()) @ WEIGHTS)
    exact = np.array([float(q.mean), second])
    assert np.abs(z_mean(first_and_second(draws), exact)).max() < GATE
    assert np.abs(z_mean(first_and_second(draws), exact + 0.3)).max() > GATE  # control


def test_shapes_and_no_closed_entropy():
    q = UnivariateMixture(*torch.ones(3, 2, 5, 4))
    assert q.batch_shape == (2, 5)
    assert q.icdf(torch.tensor(0.3)).shape == (2, 5)
    assert q.icdf(torch.rand(5)).shape == (2, 5)
    assert q.rsample((7,)).shape == q.log_prob(torch.zeros(7, 2, 5)).shape == (7, 2, 5)
    with pytest.raises(NotImplementedError):
        q.entropy()


def test_nothing_is_recorded_where_no_gradient_is_wanted():
    q = mixture(CASES[0], requires_grad=True)
    with torch.no_grad():
        assert not q.icdf(torch.tensor(0.3).double()).requires_grad
    assert q.icdf(torch.tensor(0.3).double()).requires_grad
