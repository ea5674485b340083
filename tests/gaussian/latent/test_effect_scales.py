"""Common factors of effects and their standard deviations, against a grid."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from statistical import FAILURE

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.gaussian.latent.groups import (
    FREEDOM,
    RIDGE,
    SCALE,
    Effects,
    Groups,
    _scaled,
    log_density_of_scales,
)

from .test_groups import effects_of, levels_of, simulated


def log_prior(covariance):
    """Compute the log-density of a covariance: Huang and Wand (2013), eq. (2)."""
    d, inverse = len(covariance), np.linalg.inv(covariance)
    logs = np.log(FREEDOM * inverse.diagonal() + 1 / SCALE**2)
    found = -(FREEDOM + 2 * d) / 2 * np.linalg.slogdet(covariance)[1]
    return found - (FREEDOM + d) / 2 * logs.sum() - RIDGE / 2 * inverse.trace()


def test_the_density_of_scales_is_that_of_covariances():
    """The Jacobian of s_k, given correlations, is the product of s_k^d."""
    rng = np.random.default_rng(0)
    covariance = np.cov(rng.normal(size=(3, 9)))
    scale = covariance.diagonal() ** 0.5
    inverse = np.linalg.inv(covariance).diagonal()[:2] * scale[:2] ** 2
    found, expected = [], []
    for factors in rng.uniform(0.3, 3, (5, 2)):
        all_of = np.append(factors, 1.0)
        moved = covariance * np.outer(all_of, all_of)
        expected.append(log_prior(moved) + 3 * np.log(factors).sum())
        found.append(log_density_of_scales(scale[:2] * factors, inverse, 3))
    np.testing.assert_allclose(np.diff(found), np.diff(expected))
    wrong = [log_density_of_scales(scale[:2] * f, 2 * inverse, 3) for f in (0.5, 1.0)]
    right = [log_density_of_scales(scale[:2] * f, inverse, 3) for f in (0.5, 1.0)]
    assert abs(np.diff(wrong) - np.diff(right)) > 0.1  # negative control


def grid_of(groups, z, standard, effects, factors):
    """Compute the probabilities of factors of the scales of an intercept and a slope.

    Of the likelihood of z, and of the prior of the whole covariance.
    """
    mean, covariance = (one.numpy() for one in effects.between)
    scale, k = covariance.diagonal() ** 0.5, len(standard)
    precision = np.linalg.inv(effects.within.covariance.numpy())
    found = np.empty((len(factors),) * k)
    for place in np.ndindex(*found.shape):
        one = factors[list(place)]
        m = mean[:k, None] + (one * scale[:k])[:, None] * standard
        left = z - groups.means(m)
        all_of = np.append(one, np.ones(len(mean) - k))
        moved = log_prior(covariance * np.outer(all_of, all_of))
        jacobian = len(mean) * np.log(abs(one)).sum()
        squares = np.einsum("in,ij,jn,n->", left, precision, left, groups.weights)
        found[place] = moved + jacobian - squares / 2
    found = np.exp(found - found.max())
    return found / found.sum()


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_scales_follow_their_conditional_distribution(weight, seed):
    """An intercept, a slope, and a column of groups; few groups of several sizes."""
    levels, rng = levels_of(1, 1, 1), np.random.default_rng(seed)
    effects = effects_of(levels)
    codes = np.repeat(np.arange(9), rng.integers(1, 5, 9))
    slopes, weights = rng.normal(size=(len(codes), 1)), np.full(len(codes), weight)
    groups = Groups.of(levels, codes, slopes, weights)
    mean, scale = effects.between.mean[:2], effects.between.covariance.diagonal()[:2]
    mean, scale = mean[:, None].numpy(), scale.sqrt()[:, None].numpy()
    standard = rng.normal(size=(2, groups.number))
    m = mean + scale * standard
    noise = effects.within.covariance.item() ** 0.5 * rng.normal(size=(1, len(codes)))
    z = groups.means(m) + noise
    known = Incomplete.from_array(np.column_stack([z[0], codes, slopes]))
    rows = groups.rows(levels.whole.bounds(known))
    # the signs of factors are those of correlations
    factors = np.linspace(-4.99, 5.01, 101)
    expected = grid_of(groups, z, standard, effects, factors)
    found = []
    with seeded(seed):
        for number in range(6000):
            m, effects = _scaled(rows, z, m, effects)
            if number % 6 == 5:
                found.append(((m - mean) / (standard * scale))[:, 0])
    for axis, own in enumerate(np.transpose(found)):
        cumulative = expected.sum(1 - axis).cumsum()
        middle = factors + (factors[1] - factors[0]) / 2  # of the steps
        cdf = partial(np.interp, xp=middle, fp=cumulative)
        assert stats.kstest(own, cdf).pvalue > FAILURE
        assert stats.kstest(1.5 * own, cdf).pvalue < FAILURE


def test_covariances_and_effects_have_the_same_factors():
    levels, rng = levels_of(2, 1), np.random.default_rng(0)
    before = effects_of(levels)
    groups, cells = simulated(before, levels, 30, 5, rng)
    rows = groups.rows(levels.whole.bounds(Incomplete.from_array(cells)))
    mean, covariance = before.between.mean.numpy(), before.between.covariance.numpy()
    m = mean[:2, None] + rng.normal(size=(2, 30))
    with seeded(0):
        for _ in range(20):
            own, after = _scaled(rows, cells[:, :2].T, m, before)
            if after is not before:
                break
    factor = (own - mean[:2, None]) / (m - mean[:2, None])
    np.testing.assert_allclose(factor, np.repeat(factor[:, :1], 30, 1))
    factor = np.append(factor[:, 0], 1.0)
    moved = covariance * np.outer(factor, factor)
    np.testing.assert_allclose(after.between.covariance.numpy(), moved)
    assert not np.allclose(moved, covariance)
    assert after.within is before.within


def test_effects_of_no_variance_move_nothing_far():
    """The likelihood knows nothing of their scale, and the prior bounds it."""
    levels, rng = levels_of(1), np.random.default_rng(0)
    zero, small = torch.zeros(1).double(), torch.full((1, 1), 1e-12).double()
    effects = Effects(Normal(zero, torch.eye(1).double()), Normal(zero, small))
    groups = Groups.of(levels, np.repeat(np.arange(20), 3), np.zeros((60, 0)))
    z = rng.normal(size=(1, 60))
    rows = groups.rows(levels.whole.bounds(Incomplete.from_array(z.T)))
    m = 1e-6 * rng.normal(size=(1, 20))
    with seeded(0):
        for _ in range(50):
            m, effects = _scaled(rows, z, m, effects)
    assert 1e-4 < effects.between.covariance.item() ** 0.5 < 1
