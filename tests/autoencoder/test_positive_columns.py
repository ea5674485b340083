"""Draws of autoencoders keep the signs of columns, and do not pile at zero."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skvnce import LAIRImputer, VariationalAutoencoder, VGIImputer
from skvnce.autoencoder.column_scores import ColumnScores
from skvnce.options import IncompleteDensity

FEW = {"n_estimators": 1, "on_misfit": "ignore", "random_state": 0}
IMPUTERS = [
    LAIRImputer(VariationalAutoencoder(max_iter=0), **FEW),
    VGIImputer(IncompleteDensity(max_iter=0), **FEW),
]
pytestmark = [
    pytest.mark.parametrize("imputer", IMPUTERS, indirect=True),
    pytest.mark.filterwarnings("ignore:Draws of"),
    # of the controls, at some seeds
    pytest.mark.filterwarnings("ignore:.*of the draws of column .* set to 0"),
]


def table(seed, n=400):
    """Two skewed columns of positive numbers, one far from zero, one of both signs."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, 4))
    X = np.exp(0.8 * z)
    X[:, 1], X[:, 2], X[:, 3] = -X[:, 1], 40 + z[:, 2], z[:, 3]
    return X, rng.random(X.shape) < 0.3


def drawn(imputer, X, hidden):
    tables = imputer.fit(np.where(hidden, np.nan, X)).sample(
        np.where(hidden, np.nan, X), n_draws=20, random_state=0
    )
    return [np.array([one[hidden[:, j], j] for one in tables]) for j in range(4)]


def test_no_draw_is_zero_and_the_share_near_zero_is_right(imputer, seed):
    X, hidden = table(seed)
    positive, negative, far, both = drawn(imputer, X, hidden)
    assert (positive > 0).all() and (negative < 0).all() and (both < 0).any()
    assert abs(far.mean() - 40) < 0.5
    for j, cells in ((0, positive), (1, negative)):
        # 120 cells: a share of .1 has a standard deviation of .03
        least = np.quantile(abs(X[:, j]), 0.1)
        assert 0.01 < (abs(cells) < least).mean() < 0.22


def test_without_tails_draws_pile_at_zero(imputer, seed, monkeypatch):
    """The negative control."""
    monkeypatch.setattr(ColumnScores, "with_tails", lambda self, *_: self)
    positive, negative, *_ = drawn(imputer, *table(seed))
    assert (positive == 0).any() and (negative == 0).any()


@pytest.mark.quick(1)
def test_a_bound_of_the_user_is_the_law(imputer, seed):
    X, hidden = table(seed)
    bounded = clone(imputer).set_params(min_value=[0.1, None, None, None])
    X[:, 0] += 0.1
    positive, *_ = drawn(bounded, X, hidden)
    assert (positive >= 0.1).all()
    [member] = bounded.estimators_
    assert member._fitted.model.columns.tails[0].tolist() == [1, 2]


@pytest.mark.quick(1)
def test_whole_numbers_are_at_least_one(imputer, seed):
    X, hidden = table(seed)
    X[:, 0] = np.ceil(4 * X[:, 0])
    cells, *_ = drawn(imputer, X, hidden)
    assert cells.min() >= 1 and (cells == np.round(cells)).all()
    X[5, 0], hidden[5, 0] = 0, False  # control: zero is one of the values
    cells, *_ = drawn(imputer, X, hidden)
    assert cells.min() == 0


@pytest.mark.quick(1)
def test_beside_categories_draws_are_positive(imputer, seed, monkeypatch):
    X, hidden = table(seed)
    frame = pd.DataFrame(X).mask(hidden).add_prefix("c")
    frame.insert(0, "level", pd.Categorical(np.where(X[:, 3] > 0, "high", "low")))

    def cells(*columns):
        tables = imputer.fit(frame).sample(frame, n_draws=20, random_state=0)
        for j in columns:
            yield np.array([one[hidden[:, j], j + 1] for one in tables]).astype(float)

    positive, both = cells(0, 3)
    assert (positive > 0).all() and (both < 0).any()
    monkeypatch.setattr(ColumnScores, "with_tails", lambda self, *_: self)
    [positive] = cells(0)
    assert (positive == 0).any()  # control
