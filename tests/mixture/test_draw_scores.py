"""Scores of draws of held-out cells, against known formulas."""

import numpy as np
import pytest
import torch

from skvnce.metrics import crps
from skvnce.mixture.fit import draw_score


class Fixed:
    """Draws given tables, in turn."""

    def __init__(self, tables):
        self.tables = tables

    def draw(self, nodes, n_draws, limits=None):
        places = torch.randint(len(self.tables), (n_draws,)).numpy()
        self.drawn = np.where(np.isnan(nodes), self.tables[places], nodes)
        return self.drawn


def hidden_cells(shape):
    hidden = np.random.default_rng(1).random(shape) < 0.4
    hidden[:, 0] |= ~hidden.any(1)  # rows without hidden cells are not drawn
    return hidden


def test_the_score_of_numbers_is_that_of_the_metric(rng_0):
    truth, tables = rng_0.normal(size=(20, 3)), rng_0.normal(size=(9, 20, 3))
    hidden, scale = hidden_cells(truth.shape), np.array([1.0, 2.0, 0.5])
    models = [Fixed(tables), Fixed(tables + 1)]
    found = draw_score(models, truth, hidden, scale, np.zeros(3, dtype=bool))
    drawn = np.concatenate([one.drawn for one in models])
    assert len(drawn) == 40
    assert found == pytest.approx(crps(truth, drawn, hidden, scale=scale))


def test_the_score_of_categories_is_half_of_the_brier_score():
    """Up to the term of the draws' noise, of which the fair score is free."""
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 4, (30, 2)).astype(float)
    tables, hidden = rng.integers(0, 3, (9, 30, 2)), hidden_cells(truth.shape)
    model = Fixed(tables.astype(float))
    found = draw_score([model], truth, hidden, np.ones(2), np.ones(2, dtype=bool))
    levels = np.arange(4)
    shares = (model.drawn[..., None] == levels).mean(0)[hidden]
    noise = (shares * (1 - shares)).sum(1) / (len(model.drawn) - 1)
    brier = ((shares - (truth[hidden][:, None] == levels)) ** 2).sum(1)
    assert found == pytest.approx((brier - noise).mean() / 2)


def test_the_truth_has_a_smaller_score_and_no_cell_has_none():
    truth = np.random.default_rng(3).normal(size=(20, 2))
    hidden, rest = hidden_cells(truth.shape), (np.ones(2), np.zeros(2, dtype=bool))
    for shift in (0, 1):
        models = [Fixed(truth[None] + shift)]
        found = draw_score(models, truth, hidden, *rest)
        assert found == pytest.approx(shift, abs=1e-12)

    assert np.isnan(draw_score([], truth, np.zeros_like(hidden), *rest))
