"""Levels of categories, by the imputers that average members."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from statistical import FAILURE, p_mean

from estimators.test_gaussian_mixed import frame, loss
from estimators.test_members_mixed import NAMES, imputer
from skvnce import LAIRImputer, VGIImputer

pytestmark = pytest.mark.filterwarnings("ignore:Chains ran away")
MAKERS = [
    pytest.param(partial(imputer, LAIRImputer), id="LAIR"),
    pytest.param(partial(imputer, VGIImputer), id="VGI", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=MAKERS)
def fitted(request):
    X, truth, hidden = frame(1)
    return request.param().fit(X), X, truth, hidden


@pytest.mark.parametrize("make", MAKERS)
def test_probabilities_are_better_than_shares(make, seed):
    X, truth, hidden = frame(seed)
    found = make().fit(X).category_probabilities(X)
    gains = []
    for column in NAMES:
        rows = hidden[:, truth.columns.get_loc(column)]
        shares = X[column].value_counts(normalize=True)
        table = pd.DataFrame(
            np.tile(shares, (len(X), 1)), X.index, columns=shares.index
        )
        gains.append(loss(table, truth[column], rows))
        gains[-1] = gains[-1] - loss(found[column], truth[column], rows)
    assert p_mean(np.concatenate(gains), 0.0, alternative="greater") < FAILURE


def test_probabilities_sum_to_one_and_name_the_most_probable_level(fitted):
    model, X, _, _ = fitted
    probabilities, filled = model.category_probabilities(X), model.transform(X)
    assert set(probabilities) == set(model.categories_) == set(NAMES)
    for name, table in probabilities.items():
        assert list(table.columns) == list(model.categories_[name])
        np.testing.assert_allclose(table.sum(axis=1), 1)
        assert (filled[name] == table.idxmax(axis=1)).all()
        seen = X[name].notna().to_numpy()
        assert (table.to_numpy()[seen].max(1) == 1).all()
        assert table.to_numpy()[~seen].max() < 1
        assert filled[name].dtype == X[name].dtype


def test_draws_follow_the_probabilities(fitted):
    model, X, _, _ = fitted
    tables = model.sample(X, 30, random_state=0)
    for name, probabilities in model.category_probabilities(X).items():
        missing = X[name].isna().to_numpy()
        for level in probabilities.columns[1:]:
            shares = np.mean([table[name][missing] == level for table in tables], 0)
            difference = shares - probabilities[level][missing]
            assert p_mean(difference, 0.0) > FAILURE
            wrong = shares - probabilities[level][missing].sample(
                frac=1.0, random_state=0
            )
            assert np.square(wrong).mean() > 2 * np.square(difference).mean()  # control


def test_rows_are_filled_one_by_one(fitted):
    model, X, _, _ = fitted
    part = X.iloc[[7, 3, 11]]
    whole = model.transform(X).loc[part.index]
    pd.testing.assert_frame_equal(model.transform(part), whole)
    found = model.category_probabilities(part)["colour"]
    expected = model.category_probabilities(X)["colour"].loc[part.index]
    pd.testing.assert_frame_equal(found, expected)
