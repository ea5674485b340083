"""Mixtures of two widths against scipy, quadrature and the printed posteriors."""

from math import log

import numpy as np
import pytest
import torch
from _energies import NormalScaleMixture, UnnormalisedScaleMixture
from scipy import stats
from scipy.special import expit

from skvnce._core.models import log_joint_of_states

WIDTHS = [0.5, 4.0]
KNOWN = 1.5
U = np.linspace(-7, 7, 29)


def model(kind, width, **options):
    return kind(torch.tensor(width, dtype=torch.float64), KNOWN, **options)


def joint(mixture):
    return log_joint_of_states(mixture, torch.tensor(U)[:, None]).detach()


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
