"""The continuous Bernoulli distribution against quadrature, and cells of its family."""

import numpy as np
import pytest
import torch
from numpy.polynomial.legendre import leggauss
from vaes import NORMAL

from skvnce._core.distributions import families as unit
from skvnce._core.distributions.cells import Cells

LOGITS = [-40.0, -3.0, -0.02, -0.0099, -1e-5, 0.0, 1e-7, 0.005, 0.011, 1.0, 15.0]


def rule(n=200):
    nodes, weights = leggauss(n)
    return torch.tensor((nodes + 1) / 2), torch.tensor(weights / 2)


@pytest.mark.parametrize("logit", LOGITS)
def test_density_and_moments_against_quadrature(logit):
    eta, (u, weights) = torch.tensor(logit).double(), rule()
    density = unit.log_prob(u, eta).exp()
    mean = float(weights @ (density * u))
    assert float(weights @ density) == pytest.approx(1.0, abs=1e-10)
    values = [float(part) for part in unit.moments(eta)]
    square = float(weights @ (density * (u - mean) ** 2))
    assert values == pytest.approx([mean, square], abs=1e-10)
    if abs(logit) < 10:  # torch's clamps its probability
        reference = torch.distributions.ContinuousBernoulli(logits=eta).log_prob(u)
        torch.testing.assert_close(unit.log_prob(u, eta), reference, rtol=0, atol=2e-5)


@pytest.mark.parametrize("logit", LOGITS)
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float64, 1e-9), (torch.float32, 1e-5)]
)
def test_quantiles_invert_the_distribution(logit, dtype, atol):
    eta = torch.tensor(logit, dtype=dtype)
    level = torch.tensor([1e-4, 0.2, 0.5, 0.9, 1 - 1e-4], dtype=dtype)
    u = unit.quantile(level, eta)
    nodes, weights = rule()
    inside = unit.log_prob(nodes * u.double()[:, None], eta.double()).exp()
    share = u.double() * (inside @ weights)
    # a quantile near an end moves the share by its density there
    tolerance = atol * (1 + abs(logit)) + 1e-6 * (abs(logit) < 1e-6)
    np.testing.assert_allclose(share, level.double(), rtol=0, atol=tolerance)


def test_gradients_are_means():
    eta = torch.tensor(LOGITS).double().requires_grad_()
    (gradient,) = torch.autograd.grad(unit.log_partition(eta).sum(), eta)
    torch.testing.assert_close(gradient, unit.moments(eta.detach())[0])


def test_logits_of_means():
    mean = torch.tensor([0.01, 0.3, 0.5, 0.7, 0.99]).double()
    result = unit.moments(unit.logit_of(mean))[0]
    torch.testing.assert_close(result, mean, rtol=0, atol=1e-10)
    assert unit.logit_of(torch.tensor([0.0, 1.0]).double()).isfinite().all()


@pytest.fixture
def cells(torch_seeded):
    ends = torch.tensor([[-1.5, 2.5], [-2.0, 0.5]]).double()
    places = torch.tensor([1, 2])
    families = NORMAL._replace(unit=places, ends=ends)
    return Cells(torch.randn(4, 3).double(), torch.rand(4, 3).double() + 0.5, families)


def test_cells_have_densities_between_their_ends(cells):
    nodes, weights = rule()
    for at, (low, high) in zip((1, 2), cells.families.ends.tolist(), strict=True):
        x = torch.zeros(200, 4, 3).double()
        x[..., at] = (low + (high - low) * nodes)[:, None]
        total = weights @ cells.log_prob(x)[..., at].exp() * (high - low)
        torch.testing.assert_close(total, torch.ones(4).double())
        x[..., at] = high + 5
        beyond = cells.log_prob(x)[..., at]
        x[..., at] = high
        torch.testing.assert_close(beyond, cells.log_prob(x)[..., at])
    normal = torch.distributions.Normal(cells.loc, cells.scale)
    torch.testing.assert_close(cells.log_prob(x)[..., 0], normal.log_prob(x)[..., 0])


def test_quantiles_of_cells_are_between_their_ends(cells):
    level = torch.tensor([0.0, 0.3, 1.0]).double()[:, None, None].expand(3, 4, 3)
    result = cells.icdf(level)[..., 1:]
    low, high = cells.families.ends.unbind(-1)
    torch.testing.assert_close(result[0], low.expand(4, 2))
    torch.testing.assert_close(result[2], high.expand(4, 2))
    expected = low + (high - low) * unit.quantile(level[1, :, 1:], cells.loc[:, 1:])
    torch.testing.assert_close(result[1], expected)
