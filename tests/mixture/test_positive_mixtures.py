"""Draws and fills of mixtures have the sign of the observed cells."""

import numpy as np
import pytest

from skvnce import MixtureImputer

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
