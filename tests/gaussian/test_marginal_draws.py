"""Draws of columns that a model does not predict: the weighted observed values."""

import numpy as np
from statistical import FAILURE, p_counts

from skvnce._core.random import seeded
from skvnce._imputer.fill import Marginal, ValidCells
from skvnce._imputer.held_out import checked_schema, held_out_result
from skvnce._tables.schema import Schema
from skvnce._tables.values import CellLimits, valid_values

VALUES = np.arange(5.0)


class Zeros:
    """A model that fills all missing cells by 0."""

    def fill(self, nodes, limits=None):
        return np.nan_to_num(nodes), {}

    def draw(self, nodes, n_draws, limits=None):
        return np.repeat(np.nan_to_num(nodes)[None], n_draws, 0)


def with_marginals(nodes, weights, marginal):
    """Let columns of a model of zeros have their marginal distributions."""
    columns = np.arange(nodes.shape[1])
    values = valid_values(Schema(nodes.shape[1], model_columns=columns), nodes)
    places = np.flatnonzero(marginal).tolist()
    found = {j: Marginal.of(nodes[:, j], weights, is_category=False) for j in places}
    return ValidCells(Zeros(), values, columns, found)


def counts(draws):
    """Count the pairs of values in draws (..., 2)."""
    first, second = (np.searchsorted(VALUES, draws[..., j].ravel()) for j in (0, 1))
    return np.bincount(5 * first + second, minlength=25)


def test_draws_have_the_weighted_shares_of_the_observed_values(seed, rng):
    """Values of larger weight are drawn more often, of each column on its own."""
    first, weights = np.repeat(VALUES, 12), np.repeat(VALUES + 1, 12)
    nodes = np.column_stack([first, rng.permuted(first)])
    nodes[::12, 0] = np.nan
    is_value = nodes.T[:, None] == VALUES[:, None]
    shares = is_value @ weights
    shares /= shares.sum(1, keepdims=True)

    found = held_out_result(nodes, lambda kept, rows: (None, {}), weights)
    assert found.marginal.all()
    with seeded(seed):
        missing = np.full((100, 2), np.nan)
        drawn = with_marginals(nodes, weights, found.marginal).draw(missing, 80)
    chance = np.outer(*shares).ravel()
    assert p_counts(counts(drawn), chance) > FAILURE
    # controls: equal shares of the values, and the same number for both columns
    assert p_counts(counts(rng.choice(VALUES, size=(80, 100, 2))), chance) < FAILURE
    uniform = rng.uniform(size=(80, 100))
    places = [np.searchsorted(share.cumsum()[:-1], uniform) for share in shares]
    assert p_counts(counts(VALUES[np.stack(places, -1)]), chance) < FAILURE


def test_fills_are_the_weighted_means_and_other_columns_stay(rng_0):
    nodes, weights = rng_0.normal(size=(60, 3)), rng_0.uniform(1, 2, size=60)

    def predict(kept, rows):
        found = nodes[rows].copy()
        found[:, 1] = 99.0
        return found, {}

    marginal = held_out_result(nodes, predict, weights).marginal
    assert marginal.tolist() == [False, True, False]
    model, missing = with_marginals(nodes, weights, marginal), np.full((5, 3), np.nan)
    with seeded(0):
        filled, drawn = model.fill(missing)[0], model.draw(missing, 4)
    np.testing.assert_allclose(filled[..., 1], np.average(nodes[:, 1], weights=weights))
    assert np.isin(drawn[..., 1], nodes[:, 1]).all()
    for found in (filled, drawn):
        np.testing.assert_array_equal(found[..., [0, 2]], 0)


def test_attributes_have_the_weighted_marginals(rng_0):
    first, weights = np.repeat(VALUES, 12), np.repeat(VALUES + 1, 12)
    nodes = np.column_stack([first, rng_0.permuted(first)])
    schema = Schema(2, None)._replace(model_columns=np.arange(2))
    schema, found = checked_schema(schema, nodes, lambda *_: (None, {}), weights)
    assert found.report()["marginal_columns_"].all()
    best = [schema.marginals[j].best for j in range(2)]
    np.testing.assert_allclose(best, np.average(nodes, axis=0, weights=weights))


def test_cells_with_limits_are_those_of_the_model():
    nodes, weights = 1 + np.repeat(VALUES, 12)[:, None], np.ones(60)
    model = with_marginals(nodes, weights, np.ones(1, dtype=bool))
    high = np.array([[2.0], [np.inf], [np.inf]])
    limits, missing = CellLimits(np.full((3, 1), -np.inf), high), high * np.nan
    with seeded(0):
        filled, drawn = model.fill(missing, limits)[0], model.draw(missing, 50, limits)
    # the model has zeros, and 1 is the least valid value
    np.testing.assert_allclose(filled[:, 0], [1, 3, 3])
    assert (drawn[:, 0] == 1).all() and set(drawn[:, 1:].flat) == set(1 + VALUES)
