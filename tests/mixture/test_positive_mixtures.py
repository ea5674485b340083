"""Draws and fills of mixtures have the sign of the observed cells."""

import numpy as np
import pytest

from skvnce import MixtureImputer
from skvnce.mixture.margins import Points

N = 300
SHAPES = {"lognormal": np.exp, "negative": lambda x: -np.exp(x)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("marginals", ["raw", "normal-scores"])
def test_cells_have_the_sign_of_the_observed_ones(rng, shape, marginals):
    X = rng.normal(size=(N, 1)) + 0.7 * rng.normal(size=(N, 3))
    gone = rng.random(N) < np.where(X[:, 1] < 0, 0.5, 0.1)
    X[:, 0] = SHAPES[shape](X[:, 0])
    sign = np.sign(X[0, 0])
    X[gone, 0] = np.nan
    given = {"marginals": marginals, "n_estimators": 3, "random_state": 0}
    imputer = MixtureImputer(**given).fit(X)
    draws = np.array(imputer.sample(X, 20, random_state=0))[:, gone, 0]
    assert (sign * draws > 0).all() and (sign * imputer.transform(X)[gone, 0] > 0).all()
    # and the tail is no pile at one cell
    assert len(np.unique(draws)) > 0.9 * draws.size
    # negative control: the user's bound is the only law
    bounds = {("min_value", "max_value")[int(sign < 0)]: -sign * np.inf}
    if marginals == "raw":
        imputer = MixtureImputer(**given, **bounds).fit(X)
        free = np.array(imputer.sample(X, 20, random_state=0))[:, gone, 0]
        assert (sign * free < 0).any()


def test_tail_that_ends_at_a_cell_has_means():
    # the tail of column 0 ends within rounding of a cell, so that two scores are equal
    rng = np.random.default_rng(25)
    X = np.column_stack(
        [np.exp(rng.normal(size=60)).round(2) + 0.01, rng.normal(size=60)]
    )
    X[rng.random(60) < 0.3, 0] = np.nan
    filled = MixtureImputer(n_estimators=2, random_state=0).fit_transform(X)
    assert np.isfinite(filled).all() and (filled[:, 0] > 0).all()


def test_points_of_equal_scores_are_one_point():
    scores, cells = np.array([-2.0, 0.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.5, 3.0])
    pair = Points.of([(scores, cells)]).pair(0)
    np.testing.assert_array_equal(pair, ([-2.0, 0.0, 1.0], [0.0, 1.5, 3.0]))
    # negative control: increasing scores stay
    increasing = Points.of([(scores[[0, 1, 3]], cells[[0, 1, 3]])])
    np.testing.assert_array_equal(increasing.pair(0)[0], scores[[0, 1, 3]])
