"""Joint moves of latent variables that are nearly the same."""

import numpy as np
import torch

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.gaussian.latent import gibbs
from skvnce.gaussian.latent.columns import Latents
from skvnce.gaussian.latent.gibbs import Factors, Rows

N, SWEEPS = 4000, 12
C = np.array(
    [
        [1.0, 0.9998, -0.9998, 0.6],
        [0.9998, 1.0, -0.9998, 0.6],
        [-0.9998, -0.9998, 1.0, -0.6],
        [0.6, 0.6, -0.6, 1.0],
    ]
)


def test_groups_are_connected_by_strong_correlations():
    found = np.eye(6)
    for i, j, r in ((0, 3, 0.97), (3, 5, -0.96), (1, 2, 0.99), (2, 4, 0.9)):
        found[i, j] = found[j, i] = r
    scale = np.arange(1.0, 7.0)
    names = [one.tolist() for one in gibbs.groups(found * np.outer(scale, scale))]
    assert names == [[0, 3, 5], [1, 2]]
    assert gibbs.groups(np.eye(3)) == []


def swept(together, seed):
    """Sweep rows that miss three columns, given the fourth."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 4))
    x[:, :3] = np.nan
    x[:2, :3] = 0.0, 1.0, 2.0  # some cells make a marginal
    x[1] += 1.0
    data = Incomplete.from_array(x)
    latents = Latents.of(data, torch.ones(N).double(), ["numeric"] * 4, [0] * 4)
    rows = Rows.of(latents, latents.bounds(data))
    factors = Factors.of(Normal(torch.zeros(4).double(), torch.tensor(C)), latents)
    assert list(factors.lines) == [0]
    z = rows.start(torch.zeros(4).double())
    with seeded(seed):
        for _ in range(SWEEPS):
            rows.redraw(z, factors if together else factors._replace(lines={}))
    return z[:, 2:]


def test_few_sweeps_draw_columns_that_are_all_missing(seed):
    """Given the fourth column the variance of the first is .64; without lines ~0.

    The chain of the mean along the line is independent from sweep to sweep; variances
    of N draws have the relative deviation sqrt(2 / N), and slopes .8 / sqrt(N).
    """
    z = swept(True, seed)
    slope = np.cov(z[0], z[3])[0, 1] / z[3].var()
    left = z[0] - slope * z[3]
    assert abs(slope - 0.6) < 4 * 0.8 / np.sqrt(N)
    assert abs(left.var() / 0.64 - 1) < 4 * np.sqrt(2 / N)
    for other in (z[0] - z[1], z[0] + z[2]):
        assert other.std() < 0.04  # .02; a chain of twelve sweeps has not more
    z = swept(False, seed)
    assert (z[0] - 0.6 * z[3]).std() > 3 * 0.04
    assert z[0].std() < 0.3
