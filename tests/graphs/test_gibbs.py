"""Gibbs sampling of missing cells against rejection sampling of the exact target."""

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, rejection, z_two_sample
from plain_gibbs import gibbs, missing_cells

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import State, run_chain
from skvnce._core.random import seeded
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

# Links of both signs; much of the mass lies near zero, so that the target is skewed.
LINKS = {(0, 1): 0.6, (0, 2): -0.4, (1, 2): 0.5, (1, 3): -0.3, (2, 3): 0.2}
PRECISION = np.diag([1.0, 2.0, 1.0, 0.5])
for (i, j), link in LINKS.items():
    PRECISION[i, j] = PRECISION[j, i] = link
LINEAR = np.array([0.3, -0.5, 0.4, 0.6])
N = np.nan
ROWS = np.array(  # every pattern of one table
    [
        [N, N, N, N],
        [N, 0.2, N, 1.0],
        [0.1, N, N, N],
        [2.0, N, 0.5, 3.0],
        [1.0, 1.0, 1.0, 1.0],
    ]
)
N_CHAINS = 4000


def model(precision=PRECISION, linear=LINEAR):
    return TruncatedGaussian(torch.tensor(precision), torch.tensor(linear))


WRONG = {
    "without links": model(np.diag(np.diag(PRECISION))),
    "too narrow": model(PRECISION * 1.5, LINEAR * 1.5),
    "shifted": model(linear=LINEAR + 0.3),
}


def start(rows, value=0.5):
    x = torch.tensor(rows)
    return State(x.where(~x.isnan(), torch.tensor(value).double()))


DATA = Incomplete.from_array(ROWS)


def chains(target, seed, n_steps=12, rows=ROWS):
    """Run chains from a table of several patterns; (chains, rows, features)."""
    data = Incomplete.from_array(rows)
    shape = N_CHAINS, *rows.shape
    sampler = gibbs(target, missing_cells(data.observed.expand(shape)))
    state = sampler.init(data, torch.full(shape, 0.5).double())
    with seeded(seed):
        return run_chain(sampler, state, data, n_steps).x.numpy()


def worst_z(draws, row, rng):
    """Compare draws of the missing cells of a row with as many exact ones."""
    exact = rejection(PRECISION, LINEAR, row, 10_000, rng)
    z = z_two_sample(first_and_second(draws), first_and_second(exact))
    return np.abs(z).max()


def test_conditionals_of_several_patterns_at_once(seed):
    drawn, rng = chains(model(), seed), np.random.default_rng([seed, 1])
    for row, draws in zip(ROWS[:4], drawn.swapaxes(0, 1), strict=False):
        hidden = np.isnan(row)
        assert worst_z(draws[:, hidden], row, rng) < GATE


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_model_is_seen(wrong, seed):
    rng = np.random.default_rng([seed, 1])
    drawn = chains(WRONG[wrong], seed, rows=ROWS[:1])
    assert worst_z(drawn[:, 0], ROWS[0], rng) > 1.5 * GATE  # 10.6 at least, of 8 seeds


def test_too_few_steps_are_seen(seed):
    rng = np.random.default_rng([seed, 1])
    drawn = chains(model(), seed, n_steps=1, rows=ROWS[:1])
    assert worst_z(drawn[:, 0], ROWS[0], rng) > GATE


# The plain mechanics


def test_cells_are_drawn_through_the_quantile_function():
    state, missing = start(ROWS), missing_cells(torch.tensor(~np.isnan(ROWS)))
    step = gibbs(model(), missing, lambda step, x: torch.full_like(x, 0.3)).step
    x, target = state.x.clone(), model()
    for j in range(4):  # columns in order, each given those before it
        drawn = target.conditional(x, j).icdf(torch.tensor(0.3, dtype=torch.float64))
        x[:, j] = drawn.where(torch.tensor(np.isnan(ROWS[:, j])), x[:, j])
    moved, _ = step(state, DATA)
    torch.testing.assert_close(moved.x, x.detach(), rtol=0, atol=1e-12)
