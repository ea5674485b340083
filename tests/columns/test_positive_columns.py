"""Draws of columns of positive numbers are positive, whatever regressor they have."""

import numpy as np
import pytest
from cases import quick_gaussian
from sklearn.linear_model import Ridge

from skvnce import ColumnImputer


@pytest.mark.parametrize("sign", [1, -1])
def test_cells_have_the_sign_of_the_observed_ones(rng, sign):
    X = rng.normal(size=(300, 1)) + 0.7 * rng.normal(size=(300, 3))
    gone = rng.random(300) < np.where(X[:, 1] < 0, 0.5, 0.1)
    X[:, 0] = sign * np.exp(X[:, 0])
    X[gone, 0] = np.nan
    given = {"regressor": Ridge(), "weight": 1.0, "random_state": 0}

    def cells_of(**bounds):
        model = quick_gaussian(**bounds)
        imputer = ColumnImputer(model, **given).fit(X)
        draws = np.array(imputer.sample(X, 20, random_state=0))[:, gone, 0]
        return sign * draws, sign * imputer.transform(X)[gone, 0]

    for cells in cells_of():
        assert (cells > 0).all()
    # negative control: without the law a line predicts negative cells
    side = "min_value" if sign > 0 else "max_value"
    draws, fills = cells_of(**{side: -sign * np.inf})
    assert (draws < 0).mean() > 0.02 and (fills < 0).any()
