"""Draws of columns that a model does not predict: the weighted observed values."""

import numpy as np
from statistical import FAILURE, p_counts

from skvnce._random import seeded
from skvnce.estimators._misfit import HeldOutCheck
from skvnce.tables.schema import Schema

VALUES = np.arange(5.0)


class Unpredicted(HeldOutCheck):
    """A model without a prediction for any cell."""

    on_misfit, _schema = "warn", Schema(2, model_columns=np.arange(2))

    def __init__(self, nodes, weights):
        self._check_held_out(nodes, lambda kept, rows: (None, {}), weights=weights)


def counts(draws):
    """Count the pairs of values in draws (..., 2)."""
    first, second = (np.searchsorted(VALUES, draws[..., j].ravel()) for j in (0, 1))
    return np.bincount(5 * first + second, minlength=25)


def test_draws_have_the_weighted_shares_of_the_observed_values(seed):
    """Values of larger weight are drawn more often, of each column on its own."""
    rng = np.random.default_rng(seed)
    first, weights = np.repeat(VALUES, 12), np.repeat(VALUES + 1, 12)
    nodes = np.column_stack([first, rng.permuted(first)])
    nodes[::12, 0] = np.nan
    shares = np.array(
        [[weights[column == value].sum() for value in VALUES] for column in nodes.T]
    )
    shares /= shares.sum(1, keepdims=True)

    model = Unpredicted(nodes, weights)
    assert model.marginal_columns_.all()
    cells = np.zeros((80, 100, 2))
    with seeded(seed):
        drawn = model._draw_marginal(cells)
    chance = np.outer(*shares).ravel()
    assert p_counts(counts(drawn), chance) > FAILURE
    # controls: equal shares of the values, and the same number for both columns
    assert p_counts(counts(rng.choice(VALUES, size=(80, 100, 2))), chance) < FAILURE
    uniform = rng.uniform(size=(80, 100))
    places = [np.searchsorted(share.cumsum()[:-1], uniform) for share in shares]
    assert p_counts(counts(VALUES[np.stack(places, -1)]), chance) < FAILURE


def test_fills_are_the_weighted_means_and_other_columns_stay():
    rng = np.random.default_rng(0)
    nodes, weights = rng.normal(size=(60, 3)), rng.uniform(1, 2, size=60)

    class Partial(HeldOutCheck):
        on_misfit, _schema = "warn", Schema(3, model_columns=np.arange(3))

    def predict(kept, rows):
        found = nodes[rows].copy()
        found[:, 1] = 99.0
        return found, {}

    model = Partial()
    model._check_held_out(nodes, predict, weights=weights)
    assert model.marginal_columns_.tolist() == [False, True, False]
    cells = rng.normal(size=(4, 5, 3))
    filled, drawn = (
        model._fill_marginal(cells.copy()),
        model._draw_marginal(cells.copy()),
    )
    np.testing.assert_allclose(filled[..., 1], np.average(nodes[:, 1], weights=weights))
    assert np.isin(drawn[..., 1], nodes[:, 1]).all()
    for found in (filled, drawn):
        np.testing.assert_array_equal(found[..., [0, 2]], cells[..., [0, 2]])
