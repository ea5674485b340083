"""The spread of averages of draws: right ranks of the truth, and exact cases."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsRegressor

from skvnce import ColumnImputer, GaussianImputer
from skvnce.columns.fit import _SPREADS, HeldOutDraws, Table, _spreads, spreads_of
from skvnce.columns.model import narrow

N, DRAWS = 20_000, 30
# the standard error of mean (u - 1/2)^2 of a uniform number is sqrt(1 / 180 N), and its
# derivative by log s is 1 / (2 pi sqrt(3)); half a step of the grid is added
TOLERANCE = 5 / np.sqrt(180 * N) * 2 * np.pi * np.sqrt(3) + 0.005


def held_out(rng, *spreads, truth=1.0):
    """Draw N(0, spread^2) of each model for truths N(0, truth^2) of one column."""
    draws = [rng.normal(0, one, (DRAWS, N, 1)) for one in spreads]
    cells = rng.normal(0, truth, (N, 1))
    return HeldOutDraws(draws, cells, np.ones((N, 1), dtype=bool))


@pytest.mark.parametrize("truth", [0.75, 0.9, 1.0])
def test_the_factor_is_that_of_the_truth(truth, rng):
    found = held_out(rng, 1.0, truth=truth)
    factor = spreads_of(found, np.ones((1, 1)), np.ones(1, dtype=bool))[0]
    assert abs(factor - truth) < TOLERANCE


def test_a_pool_of_right_models_is_too_wide(rng):
    """Of a + b + e, one model knows a and one knows b; both are right.

    Around (a + b) / 2, the truth has variance 3 / 2, and draws have 5 / 2.  The tails
    of both are normal, so that the factor is the root of the ratio.
    """
    a, b, e = rng.normal(size=(3, N, 1))
    draws = [one + rng.normal(0, np.sqrt(2), (DRAWS, N, 1)) for one in (a, b)]
    found = HeldOutDraws(draws, a + b + e, np.ones((N, 1), dtype=bool))
    yes = np.ones(1, dtype=bool)
    factor = spreads_of(found, np.full((2, 1), 0.5), yes)[0]
    assert abs(factor - np.sqrt(3 / 5)) < TOLERANCE + 0.02  # draws are mixtures
    alone = spreads_of(found, np.array([[1.0], [0.0]]), yes)[0]  # negative control
    assert alone > 1 - TOLERANCE


def test_narrow_draws_are_left(rng_0):
    found = held_out(rng_0, 0.5)
    assert spreads_of(found, np.ones((1, 1)), np.ones(1, dtype=bool)).tolist() == [1]


def test_columns_choose_their_own_factor_if_they_have_cells(rng_0):
    draws = rng_0.normal(size=(DRAWS, N, 4))
    truth = rng_0.normal(size=(N, 4)) * [0.75, 1.0, 0.75, 0.75]
    hidden = np.ones((N, 4), dtype=bool)
    hidden[3:, 2] = False
    continuous = np.array([True, True, True, False])
    known = HeldOutDraws([draws], truth, hidden)
    found = spreads_of(known, np.ones((1, 4)), continuous)
    assert abs(found[0] - 0.75) < TOLERANCE and found[1] > 1 - TOLERANCE
    assert found[0] < found[2] < found[1]  # as all columns, but for three cells
    assert found[3] == 1


NEAR = KNeighborsRegressor(20)


def table(seed, n=400):
    """Make a table whose second column is a function of the first one and noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    full = np.column_stack([x, np.sin(2 * x) + 0.3 * rng.normal(size=n), rng.random(n)])
    X = full.copy()
    X[::3, 1] = np.nan
    return X, full


def test_draws_are_those_before_moved_towards_their_fillings():
    X, _ = table(0)
    imputer = ColumnImputer(regressor=NEAR, random_state=0).fit(X)
    imputer.spreads_ = np.full(3, 0.8)
    own = np.stack(imputer.sample(X, n_draws=5, random_state=1))
    imputer.spreads_ = np.ones(3)
    wide = np.stack(imputer.sample(X, n_draws=5, random_state=1))
    expected = narrow(wide, imputer.transform(X), np.full(3, 0.8))
    np.testing.assert_allclose(own, expected, rtol=1e-9)
    assert np.array_equal(own[:, ~np.isnan(X)], wide[:, ~np.isnan(X)])


def test_columns_with_repeated_values_keep_their_draws(rng_0):
    nodes = rng_0.normal(size=(N, 2))
    nodes[:, 1] = nodes[:, 1].round(1)
    levels, held = np.zeros(2, dtype=bool), np.ones(N, dtype=bool)
    draws = HeldOutDraws([2 * rng_0.normal(size=(DRAWS, N, 2))], nodes, nodes == nodes)
    known = Table(nodes, None, held, nodes.std(0), levels)
    found = _spreads(known, draws, np.zeros(2), np.ones((1, 2)))
    assert found.tolist() == [_SPREADS[0], 1]


def test_a_given_weight_leaves_the_spread():
    X, _ = table(0)
    found = ColumnImputer(regressor=NEAR, weight=1.0, random_state=0).fit(X).spreads_
    assert found.tolist() == [1.0] * 3


def test_stacks_have_a_spread():
    X, _ = table(0)
    inner = ColumnImputer(GaussianImputer(n_parameter_draws=0), regressor=NEAR)
    imputer = ColumnImputer([inner] * 2, random_state=0).fit(X)
    assert imputer.spreads_.shape == (3,) and imputer.spreads_.max() <= 1
