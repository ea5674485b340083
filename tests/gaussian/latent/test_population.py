"""Marginals of all rows where missing cells depend on other cells."""

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri

from skvnce._core.incomplete import Incomplete
from skvnce.gaussian.latent.columns import NUMERIC, ORDINAL, Latents
from skvnce.gaussian.latent.population import Population

RHO = 0.7
SIZE, REPEATS = 3000, 8


def table(rng, slope, n_levels=0):
    """Make a normal pair whose second column is missing with chance Phi(slope x)."""
    x, noise = rng.normal(size=(2, SIZE))
    y = RHO * x + (1 - RHO**2) ** 0.5 * noise
    if n_levels:
        y = np.searchsorted(ndtri(np.arange(1, n_levels) / n_levels), y).astype(float)
    hidden = rng.uniform(size=SIZE) < ndtr(slope * x)
    return np.column_stack([x, np.where(hidden, np.nan, y)])


def latents_of(X, n_levels=0):
    """Return the latents of observed cells, and those of all rows."""
    data, weights = Incomplete.from_array(X), torch.ones(len(X)).double()
    kinds = [NUMERIC, ORDINAL if n_levels else NUMERIC]
    before = Latents.of(data, weights, kinds, [0, n_levels])
    return before, Population.of(before, data, weights).latents


@pytest.mark.parametrize("n_levels", [0, 3, 5])
def test_scores_and_thresholds_are_those_of_all_rows(n_levels, seed):
    """y is a standard normal score; that of its observed cells is off by .5."""
    rng, cuts = np.random.default_rng(seed), ndtri(np.arange(1, n_levels) / n_levels)
    cells = torch.tensor([-1.5, -0.5, 0.0, 0.5, 1.0]).double()

    def errors(latents):
        found = latents.marginals[1]
        if n_levels:
            return found.low[1:].numpy() - cuts
        return (found.scores(cells)[0] - cells).numpy()

    pairs = (latents_of(table(rng, 3.0, n_levels), n_levels) for _ in range(REPEATS))
    found = np.array([[errors(one) for one in pair] for pair in pairs])
    observed, every = found.mean(0)
    margin = 5 * found[:, 1].std(0, ddof=1) / REPEATS**0.5
    assert (abs(every) < 0.1 + margin).all()
    assert (observed[int(n_levels == 0) :] > 0.25).all()  # the check has power


def test_marginals_stay_where_cells_are_missing_completely_at_random(seed):
    """Each of 40 tables is changed by chance with probability .05 at most."""
    rng, changed = np.random.default_rng(seed), 0
    for _ in range(40):
        before, after = latents_of(table(rng, slope=0.0)[:300])
        changed += not torch.equal(before.marginals[1].low, after.marginals[1].low)
    assert changed <= 12  # Binomial(40, .05) is above 12 with probability 1e-7


def test_given_marginals_stay(seed):
    X = table(np.random.default_rng(seed), slope=3.0)
    data, weights = Incomplete.from_array(X), torch.ones(len(X)).double()
    before = Latents.of(data, weights, [NUMERIC] * 2, [0, 0])
    after = Population.of(before, data, weights, fixed={1}).latents
    assert torch.equal(before.marginals[1].low, after.marginals[1].low)


def test_columns_without_missing_cells_stay(seed):
    before, after = latents_of(table(np.random.default_rng(seed), slope=3.0))
    assert torch.equal(before.marginals[0].low, after.marginals[0].low)
    assert not torch.equal(before.marginals[1].low, after.marginals[1].low)
