"""VGIImputer on tables with categories."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from estimators.test_gaussian_mixed import frame
from skvnce import VGI, Adam, IncompleteDensity, VGIImputer
from skvnce.algorithms.vgi import density
from skvnce.training import rounds

pytestmark = pytest.mark.filterwarnings("ignore:Chains ran away")
ALL_CELLS = Adam(validation_fraction=0)  # runs all rounds
NAMES = ["colour", "grade", "flag"]


def imputer(model=None, **options):
    model = IncompleteDensity(max_iter=1) if model is None else model
    options = {"n_draws": 20, "n_steps": 5, "on_misfit": "ignore"} | options
    found = VGIImputer(model, n_estimators=1, random_state=0, **options)
    return found.set_output(transform="pandas")


@pytest.fixture(scope="module")
def fitted():
    X, truth, hidden = frame(1)
    return imputer().fit(X), X, truth, hidden


@pytest.fixture
def brief(monkeypatch):
    """Shorten the rounds of the training."""
    monkeypatch.setattr(rounds, "STEPS", 3)


@pytest.mark.slow
@pytest.mark.sampled
def test_scores_count_levels(fitted):
    """A row of a column alone: shares of its levels, which sum to one."""
    model, X, _, _ = fitted
    one = X.iloc[:4].mask(np.ones((4, 4), dtype=bool))
    one["grade"] = pd.Categorical(list("dcba"), X["grade"].cat.categories, True)
    log_prob, error = model.score_samples(one, return_std=True)
    assert np.exp(log_prob).sum() == pytest.approx(1, abs=5 * error.sum())
    shares = X["grade"].value_counts(normalize=True)[list("dcba")]
    np.testing.assert_allclose(np.exp(log_prob), shares, atol=0.1)


def test_the_seed_decides(brief):
    X, _, _ = frame(4, n=80)
    X["count"] = np.arange(80) % 4  # repeated values
    few = IncompleteDensity(max_iter=2)
    first, again = (imputer(few).fit(X) for _ in range(2))
    other = imputer(few).set_params(random_state=1).fit(X)
    tables = [
        one.category_probabilities(X)["colour"].to_numpy()
        for one in (first, again, pickle.loads(pickle.dumps(first)), other)
    ]
    assert (tables[0] == tables[1]).all() and (tables[0] == tables[2]).all()
    assert (tables[0] != tables[3]).any()


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "algorithm",
    [
        VGI("mixture", network="extended", n_selected=2),
        VGI("bounded", network="independent", start="marginals", n_warm_up=1),
        VGI("spline", chain_range="unbounded"),
    ],
    ids=lambda one: one.conditionals,
)
def test_all_settings_of_vgi_take_categories(algorithm, brief):
    X, _, _ = frame(5, n=80)
    X["count"] = np.arange(80) % 4
    found = imputer(IncompleteDensity(algorithm=algorithm, max_iter=2)).fit(X)
    assert np.isfinite(found.estimators_[0].loss_curve_).all()
    for table in found.category_probabilities(X).values():
        np.testing.assert_allclose(table.sum(axis=1), 1)
    assert set(found.transform(X)["count"]) <= {0.0, 1.0, 2.0, 3.0}


def test_training_moves_categorical_conditionals(brief):
    """The logits of levels are trained, and those of levels that a column lacks not."""
    X, _, _ = frame(6, n=80)
    states = [
        imputer(IncompleteDensity(max_iter=n, solver=ALL_CELLS)).fit(X).estimators_[0]
        for n in (0, 3)
    ]
    before, after = (one.conditionals_state_["networks.biases.1"] for one in states)
    changed = (before != after)[1:, 0, 2:]  # after location and log-scale
    assert changed.tolist() == [
        [True, True, True, False],
        [True] * 4,
        [True, True, False, False],
    ]


def test_chains_contain_levels(brief, monkeypatch):
    """Tables of chains: observed cells are kept, and codes are those of levels."""
    seen, train_on_all = [], density.train_on_all

    def kept(pair, start, chains, *args, **options):
        found = train_on_all(pair, start, chains, *args, **options)
        seen.append((start, chains))
        return found

    monkeypatch.setattr(density, "train_on_all", kept)
    X, _, _ = frame(7, n=60)
    imputer(IncompleteDensity(max_iter=2, solver=ALL_CELLS)).fit(X)
    [(start, chains)] = seen
    data = start.data
    for table in chains.x:
        assert (table[data.observed] == data.x[data.observed].float()).all()
        for column, size in ((1, 3), (2, 4), (3, 2)):
            assert set(table[:, column].unique().tolist()) <= set(range(size))
    assert (chains.n_outside[1:] == 0).all() and (chains.n_drawn[1:] > 0).all()


@pytest.mark.slow
def test_fine_tuning_keeps_levels(fitted):
    model, X, _, _ = fitted
    other = pickle.loads(pickle.dumps(model)).partial_fit(X[X["colour"] != "red"])
    assert list(other.categories_["colour"]) == ["amber", "green", "red"]
    before, after = (one.category_probabilities(X)["colour"] for one in (model, other))
    red = abs(after["red"] - before["red"])[X["colour"].isna()]
    assert red.max() > 0
    unknown = X.assign(colour=pd.Categorical(["blue"] * len(X)))
    with pytest.raises(ValueError, match="blue"):
        other.partial_fit(unknown)


def test_several_members_are_averaged(brief):
    X, _, _ = frame(2, n=60)
    model = imputer().set_params(n_estimators=3, n_draws=12).fit(X)
    found = model.category_probabilities(X)["colour"].to_numpy()
    np.testing.assert_allclose(found.sum(1), 1)
    assert [member.families_ for member in model.estimators_] == [
        ["normal", "nominal", "ordinal", "ordinal"]
    ] * 3


def test_categories_alone(brief):
    X, _, _ = frame(3, n=80)
    filled = imputer().fit(X[NAMES]).transform(X[NAMES])
    assert filled.notna().all(axis=None)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("flow", "model='flow'"),
        (IncompleteDensity("factor-analysis"), "model='factor-analysis'"),
        (IncompleteDensity("coupling-flow", algorithm="mcem"), "'coupling-flow'"),
        (torch.nn.Linear, "Linear"),
    ],
)
def test_densities_of_numbers_name_the_columns(model, said):
    X, _, _ = frame(4, n=60)
    found = VGIImputer(model, random_state=0)
    for columns, named in (
        (["size", "colour"], "column 'colour' has categories"),
        (None, "column 'colour', column 'grade', column 'flag' have categories"),
    ):
        part = X if columns is None else X[columns]
        with pytest.raises(ValueError, match=f"{named}.*model='vae'") as raised:
            found.fit(part)
        assert said in str(raised.value)
    assert not hasattr(found, "estimators_")


def test_held_out_numbers_and_levels_are_judged(brief):
    X, _, _ = frame(5)
    found = imputer(on_misfit="warn").fit(X)
    assert 0.1 < found.held_out_gain_ < 1
    assert not found.marginal_columns_.any()
    rng = np.random.default_rng(0)
    shuffled = X.apply(lambda column: rng.permutation(column.astype(object)))
    found = imputer(on_misfit="warn").fit(shuffled.astype(X.dtypes))
    assert found.held_out_gain_ < 0.05  # control
