"""Quantiles of weighted points: those of numpy for equal weights, and of a mixture."""

import numpy as np
import torch
from scipy.stats import norm

from skvnce._core.random import midpoint_levels, weighted_quantiles


def test_equal_weights_give_the_quantiles_of_hazen(seed):
    points = np.random.default_rng(seed).normal(size=(9, 3, 2))
    levels = np.array([0.01, 0.3, 0.5, 0.77])
    expected = np.quantile(points, levels, axis=0, method="hazen")
    sample = torch.from_numpy(points), torch.ones(1, dtype=torch.float64)
    quantiles = weighted_quantiles(*sample, torch.from_numpy(levels))
    np.testing.assert_allclose(quantiles, expected, rtol=1e-12, atol=1e-12)


def test_weights_turn_a_normal_distribution_into_another():
    """Importance weights of N(1, 1) at quantiles of N(0, 2)."""
    levels = midpoint_levels(2001, torch.zeros((), dtype=torch.float64))
    points = 2 * torch.special.ndtri(levels)
    weights = norm.pdf(points, 1) / norm.pdf(points, 0, 2)
    expected = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    quantiles = weighted_quantiles(points, torch.from_numpy(weights), expected)
    np.testing.assert_allclose(quantiles, norm.ppf(expected, 1), atol=2e-3)
