"""Levels of categories, by the imputers that average members."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from gaussian.test_gaussian_mixed import frame, loss
from statistical import FAILURE, p_mean

from autoencoder.test_members_mixed import NAMES, imputer
from skvnce import LAIRImputer, VGIImputer
from skvnce._tables.values import ValidValues
from skvnce.autoencoder.model import Ensemble
from skvnce.vgi.model import ChainMember

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


class Certain:
    """A member that draws one of two levels, and records its random numbers."""

    def __init__(self, level):
        self.level, self.uniform = level, []

    def draws(self, nodes, n_draws, numbers):
        assert n_draws > 0
        places = torch.empty(len(nodes), 1)
        streams = numbers(nodes)
        self.uniform = [streams(purpose)(0, places).numpy() for purpose in range(3)]
        drawn = np.full((n_draws, len(nodes), 1), float(self.level))
        return drawn, {0: np.eye(2)[np.full(len(nodes), self.level)]}

    def log_density(self, nodes):
        density = np.full(len(nodes), 1.0 + self.level)
        return np.log(density), np.full(len(nodes), 0.3)


def two_members(n_draws):
    none, one = np.zeros(1, dtype=bool), np.ones(1)
    ends = np.stack([none, none])
    values = ValidValues(0 * one, one, ends, {}, none, none, 0 * one, 0 * one)
    members = [Certain(0), Certain(1)]
    return Ensemble(members, n_draws, values, np.arange(1))


def test_members_count_by_their_draws():
    nodes = np.full((4, 1), np.nan)
    for n_draws, shares in ((1, [1, 0]), (3, [2 / 3, 1 / 3]), (4, [1 / 2, 1 / 2])):
        cells, found = two_members(n_draws).fill(nodes)
        np.testing.assert_allclose(found[0], [shares] * 4)
        assert (cells == 0).all()


def test_members_have_random_numbers_of_their_own():
    found = two_members(2)
    found.fill(np.arange(4.0)[:, None])
    streams = np.concatenate([one.uniform for one in found.members])
    assert len(np.unique(streams)) == streams.size == 24


def test_errors_of_average_densities_by_hand():
    """Of densities 1 and 2 with independent relative errors of 0.3."""
    values, errors = two_members(2).log_density(np.zeros((4, 1)))
    np.testing.assert_allclose(values, np.log(1.5))
    np.testing.assert_allclose(errors, 0.15 * np.sqrt(1 + 4) / 1.5)


class Number(Certain):
    """A member that draws 0 or 0.7 of a column of whole numbers."""

    def draws(self, nodes, n_draws, numbers):
        return 0.7 * super().draws(nodes, n_draws, numbers)[0], {}


def test_draws_are_rounded_before_they_are_summarised():
    found = two_members(2)
    values = found.values._replace(integers=np.ones(1, dtype=bool))
    found = found._replace(members=[Number(0), Number(1)], values=values)
    cells, _ = found.fill(np.full((4, 1), np.nan))
    assert (cells == 0.5).all()


class Chains:
    """A density that counts its draws."""

    def draws(self, nodes, numbers, n_chains, n_sweeps, n_kept):
        return np.zeros((n_chains * n_kept, *nodes.shape))


@pytest.mark.parametrize("n_draws", [1, 20, 30])
def test_chains_have_as_many_draws_as_they_are_asked_for(n_draws):
    drawn, _ = ChainMember(Chains(), 2, 4).draws(np.zeros((3, 1)), n_draws, None)
    assert drawn.shape == (n_draws, 3, 1)
