"""Draws of the latent variables of a column of many levels."""

import numpy as np
import pytest

from skvnce.gaussian.latent import nominal
from skvnce.gaussian.latent.nominal import GivenOthers, Nominal

N_LEVELS, N_ROWS = 70, 40
BLOCK = slice(2, 2 + N_LEVELS)


def given_others(rng):
    """Draw a covariance of two numbers, a nominal column, and a number."""
    size = N_LEVELS + 3
    root = rng.normal(size=(size, 2 * size))
    precision = np.linalg.inv(root @ root.T / size)
    slopes = precision / precision.diagonal()[:, None]
    scales = precision.diagonal() ** -0.5
    mean = rng.normal(size=size)
    return GivenOthers.of(BLOCK, slopes, slopes @ mean, scales), slopes, mean


def rows_of(rng):
    levels = rng.integers(-1, N_LEVELS, N_ROWS)
    z = rng.normal(size=(N_LEVELS + 3, N_ROWS))
    seen = levels >= 0
    z[2 + levels[seen], seen] = 5.0
    return Nominal.of(BLOCK, levels), z, rng.random(z.shape)


@pytest.mark.parametrize("together", [1, 32, 69])
def test_levels_follow_the_draws_of_all_before(together, seed, monkeypatch):
    """One at a time, of all levels: the definition of the Gibbs sampler."""
    rng = np.random.default_rng(seed)
    given, slopes, mean = given_others(rng)
    column, z, uniform = rows_of(rng)
    expected, found = z.copy(), z.copy()
    own = 2 + column.levels, column.seen
    bound = np.full(N_ROWS, np.inf)
    bound[column.seen] = expected[own]

    def conditional(j):
        return expected[j] - slopes[j] @ (expected - mean[:, None])

    for k in range(N_LEVELS):
        j, rows = 2 + k, np.setdiff1d(np.arange(N_ROWS), column.rows_of[k])
        moved = nominal.below(conditional(j), given.scales[k], bound, uniform[j])
        expected[j, rows] = moved[rows]
    means = np.array([conditional(j)[row] for j, row in zip(*own, strict=True)])
    others = expected.copy()
    others[own] = -np.inf
    most = others[BLOCK].max(0)[column.seen]
    parts = given.scales[column.levels], most, uniform[own]
    expected[own] = nominal.above(means, *parts)

    monkeypatch.setattr(nominal, "_TOGETHER", together)
    column.sweep(found, given, uniform)
    np.testing.assert_allclose(
        found[:, column.seen], expected[:, column.seen], atol=1e-8
    )
    np.testing.assert_array_equal(found[:2], z[:2])
    np.testing.assert_array_equal(found[-1], z[-1])


def test_missing_cells_have_their_joint_distribution(seed):
    """Maps of uniform numbers 1/2 are conditional means."""
    rng = np.random.default_rng(seed)
    given, slopes, mean = given_others(rng)
    column, z, uniform = rows_of(rng)
    column.sweep(z, given, np.full_like(uniform, 0.5))
    gaps = slopes[BLOCK] @ (z - mean[:, None])  # z_j - E[z_j | others]
    np.testing.assert_allclose(gaps[:, column.missing], 0.0, atol=1e-7)
    assert abs(gaps[:, column.seen]).max() > 0.01
