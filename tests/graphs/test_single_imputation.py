"""Tables filled once: what fills them, and that nothing else differs."""

import numpy as np
import pytest
import torch
from graph_controls import FILLERS, impute
from oracles import GATE, z_mean

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded

D, N = 3, 4000


@pytest.fixture
def data(seed):
    """Skewed columns of different units, with missing values."""
    rng = np.random.default_rng(seed)
    x = rng.gamma(4.0, size=(N, D)) * [1.0, 10.0, 0.1]
    return Incomplete.from_array(np.where(rng.uniform(size=x.shape) < 0.4, np.nan, x))


def cells(data, strategy, seed):
    """Return what was filled into each column."""
    with seeded(seed):
        x = impute(data, strategy).x
    return [x[~seen, j].numpy() for j, seen in enumerate(data.observed.T)]


@pytest.mark.parametrize("strategy", FILLERS)
def test_all_cells_are_observed_and_what_was_stays(strategy, data, seed):
    with seeded(seed):
        filled = impute(data, strategy)
    assert filled.observed.all()
    assert torch.equal(filled.x[data.observed], data.x[data.observed])
    assert (filled.x >= 0).all()


def test_means_and_zeros(data, seed):
    observed = np.nanmean(data.to_array(), 0)
    for j, filled in enumerate(cells(data, "mean", seed)):
        np.testing.assert_allclose(filled, observed[j], rtol=1e-12)
    assert all((filled == 0).all() for filled in cells(data, "zeros", seed))


def test_draws_of_marginals_have_the_moments_of_the_cells(data, seed):
    x = data.to_array()
    for j, filled in enumerate(cells(data, "noise", seed)):
        mean, variance = np.nanmean(x[:, j]), np.nanvar(x[:, j])
        both = np.stack([filled, (filled - mean) ** 2], 1)
        assert np.abs(z_mean(both, [mean, variance])).max() < GATE
        assert np.abs(z_mean(both, [1.2 * mean, 1.5 * variance])).min() > GATE


def test_uniform_draws_reach_two_deviations_above_the_mean(data, seed):
    x = data.to_array()
    for j, filled in enumerate(cells(data, "uniform", seed)):
        upper = np.nanmean(x[:, j]) + 2 * np.nanstd(x[:, j])
        both = np.stack([filled, filled**2], 1)
        assert filled.max() < upper
        assert np.abs(z_mean(both, [upper / 2, upper**2 / 3])).max() < GATE
