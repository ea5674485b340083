"""Mixtures of two widths against scipy, quadrature and the printed posteriors."""

from math import log, pi

import numpy as np
import pytest
import torch
from oracles import line_rule, log_integral
from scipy import stats
from scipy.special import expit

from skvnce.models.base import log_joint
from skvnce.models.scale_mixture import NormalScaleMixture, UnnormalisedScaleMixture

WIDTHS = [0.5, 4.0]
KNOWN = 1.5
U = np.linspace(-7, 7, 29)


def model(kind, width, **options):
    return kind(torch.tensor(width, dtype=torch.float64), KNOWN, **options)


def joint(mixture):
    return log_joint(mixture, torch.tensor(U)[:, None]).detach()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_normalised_density(width):
    expected = [stats.norm.logpdf(U, scale=s) - log(2) for s in (width, KNOWN)]
    found = joint(model(NormalScaleMixture, width))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_unnormalised_density(width):
    c = torch.tensor(0.7, dtype=torch.float64)
    found = joint(model(UnnormalisedScaleMixture, width, log_scale=c))
    expected = [-float(c) - U**2 / (2 * s**2) for s in (width, KNOWN)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("width", WIDTHS)
def test_both_integrate_to_one(width):
    c = torch.tensor(log(2 * pi) / 2 + log(width + KNOWN), dtype=torch.float64)
    points, weights = line_rule(32.0, 400)
    for mixture in (
        model(NormalScaleMixture, width),
        model(UnnormalisedScaleMixture, width, log_scale=c),
    ):
        density = torch.logsumexp(log_joint(mixture, points), 0)
        assert abs(float(log_integral(density, weights).detach())) < 1e-12


@pytest.mark.parametrize("width", WIDTHS)
def test_posteriors_as_printed_but_for_a_sign(width):
    curve = U**2 / 2 * (KNOWN**-2 - width**-2)
    normal = joint(model(NormalScaleMixture, width)).softmax(0)[0]
    expected = expit(curve - log(width / KNOWN))  # eq. (4.50)
    np.testing.assert_allclose(normal, expected, rtol=1e-10)
    other = joint(model(UnnormalisedScaleMixture, width)).softmax(0)[0]
    expected = expit(curve)  # eq. (4.54), corrected
    np.testing.assert_allclose(other, expected, rtol=1e-10)
    as_printed = expit(U**2 / 2 * (KNOWN**-2 + width**-2))
    assert np.abs(other.numpy() - as_printed).max() > 0.01


def test_batch_dimensions_are_free():
    x = torch.randn(2, 3, 1).double()
    mixture = model(UnnormalisedScaleMixture, 4.0)
    together = log_joint(mixture, x)
    assert together.shape == (2, 2, 3)
    one = mixture.log_density(x[1, 2], mixture.states[1])
    assert together[1, 1, 2] == one


@pytest.mark.parametrize("kind", [NormalScaleMixture, UnnormalisedScaleMixture])
def test_gradients(kind):
    mixture = model(kind, 4.0)
    x = torch.tensor(U)[:, None]
    names, values = zip(*mixture.named_parameters(), strict=True)

    def density(*values):
        parameters = dict(zip(names, values, strict=True))
        z = mixture.states[[0]].expand(len(x), -1)
        return torch.func.functional_call(_Call(mixture), _inside(parameters), (x, z))

    assert torch.autograd.gradcheck(density, values)


class _Call(torch.nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, *arguments):
        return self.inside.log_density(*arguments)


def _inside(parameters):
    return {f"inside.{name}": value for name, value in parameters.items()}


def test_save_and_load():
    first, second = (model(UnnormalisedScaleMixture, width) for width in WIDTHS)
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(joint(first), joint(second), rtol=0, atol=0)
