"""Members of LAIRImputer and VGIImputer on tables with categories, and their levels."""

import copy
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from gaussian.test_gaussian_mixed import frame, loss
from sklearn.frozen import FrozenEstimator
from statistical import FAILURE, p_counts, p_mean

from skvnce import LAIRImputer, VariationalAutoencoder, VGIImputer
from skvnce._core.training import rounds
from skvnce._imputer.fill import Marginal
from skvnce._tables.values import ValidValues
from skvnce.autoencoder.model import Ensemble
from skvnce.options import LAIR, VGI, Adam, IncompleteDensity, TorchVAE
from skvnce.vgi.model import ChainMember

pytestmark = pytest.mark.filterwarnings("ignore:Chains ran away")


# LAIRImputer, VGIImputer and their models on tables with categories


VAE = {"n_components": 2, "max_iter": 1, "on_misfit": "ignore", "random_state": 0}
ALL_CELLS = Adam(validation_fraction=0)  # runs all rounds
NAMES = ["colour", "grade", "flag"]
KINDS = {
    LAIRImputer: VariationalAutoencoder(**VAE),
    VGIImputer: IncompleteDensity(max_iter=1),
}


def imputer(kind, model=None, **options):
    model = KINDS[kind] if model is None else model
    options = {"n_draws": 20, "n_steps": 5, "on_misfit": "ignore"} | options
    result = kind(model, **{"n_estimators": 1, "random_state": 0} | options)
    return result.set_output(transform="pandas")


def made(kind):
    X, truth, hidden = frame(1)
    return imputer(kind).fit(X), X, truth, hidden


@pytest.fixture(scope="module")
def lair():
    return made(LAIRImputer)


@pytest.fixture(scope="module")
def vgi():
    return made(VGIImputer)


@pytest.fixture
def brief(monkeypatch):
    """Shorten the rounds of the training."""
    monkeypatch.setattr(rounds, "STEPS", 3)


both = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["lair", "vgi"])
def test_scores_count_levels(kind, request):
    """A row of a column alone: shares of its levels, which sum to one."""
    model, X, _, _ = request.getfixturevalue(kind)
    for member in (model, *(model.estimators_ if kind == "lair" else [])):
        one = X.iloc[:4].mask(np.ones((4, 4), dtype=bool))
        one["grade"] = pd.Categorical(list("dcba"), X["grade"].cat.categories, True)
        log_prob, error = member.score_samples(one, return_std=True)
        assert np.exp(log_prob).sum() == pytest.approx(1, abs=5 * error.sum())
        shares = X["grade"].value_counts(normalize=True)[list("dcba")]
        np.testing.assert_allclose(np.exp(log_prob), shares, atol=0.1)


@pytest.mark.quick(1)
@both
def test_several_members_are_averaged(kind, brief):
    X, _, _ = frame(2, n=60)
    model = imputer(kind, n_estimators=3, n_draws=12, n_steps=3).fit(X)
    result = model.category_probabilities(X)["colour"].to_numpy()
    np.testing.assert_allclose(result.sum(1), 1)
    expected = [["normal", "nominal", "ordinal", "ordinal"]] * 3
    assert [member.families_ for member in model.estimators_] == expected


@pytest.mark.quick(1)
@both
def test_categories_alone(kind, brief):
    X, _, _ = frame(3, n=80)
    for names in (NAMES, NAMES[:2]):
        filled = imputer(kind).fit(X[names])
        assert filled.transform(X[names]).notna().all(axis=None)
        assert np.isnan(filled.held_out_gain_)


@pytest.mark.slow
@both
def test_held_out_numbers_and_levels_are_judged(kind, rng_0):
    X, _, _ = frame(5)
    result = imputer(kind, on_misfit="warn").fit(X)
    assert 0.1 < result.held_out_gain_ < 1
    assert not result.marginal_columns_.any()
    result = imputer(kind, on_misfit="warn").fit(X.drop(columns="size"))
    assert 0 < result.held_out_gain_ < 1
    shuffled = X.apply(lambda column: rng_0.permutation(column.astype(object)))
    result = imputer(kind, on_misfit="warn").fit(shuffled.astype(X.dtypes))
    assert result.held_out_gain_ < 0.05  # control


# LAIRImputer


def test_numbers_follow_the_categories(lair):
    model, X, truth, hidden = lair
    rows = hidden[:, 0]
    values = np.log(model.transform(X)["size"][rows].astype(float))
    assert np.corrcoef(values, np.log(truth["size"][rows]))[0, 1] > 0.5


@pytest.mark.quick(1)
@pytest.mark.parametrize("sampler", ["mwg", "ac-mwg", "pseudo-gibbs"])
def test_other_samplers_agree(lair, sampler):
    model, X, _, _ = lair
    other = imputer(
        LAIRImputer, FrozenEstimator(model.estimators_[0]), sampler=sampler, n_steps=20
    ).fit(X)
    first, second = (one.category_probabilities(X) for one in (model, other))
    missing = X["colour"].isna().to_numpy()
    pair = [one["colour"].to_numpy()[missing] for one in (first, second)]
    assert abs(pair[0] - pair[1]).mean() < 0.1
    assert abs(pair[0] - pair[1][::-1]).mean() > 0.2  # control


def test_a_frozen_model_keeps_its_levels(lair):
    model, X, _, _ = lair
    few = X[X["colour"] != "red"].head(60)
    result = imputer(LAIRImputer, FrozenEstimator(model.estimators_[0])).fit(few)
    assert list(result.categories_["colour"]) == ["amber", "green", "red"]
    assert result.category_probabilities(few)["colour"].shape == (60, 3)


def test_latents_give_levels_back(lair):
    model, X, _, _ = lair
    vae = model.estimators_[0]
    rows = vae.inverse_transform(vae.transform(X))
    assert rows.dtype == object and rows.shape == X.shape
    seen = X["colour"].notna().to_numpy()
    assert (rows[seen, 1] == X["colour"][seen]).mean() > 0.7
    drawn = pd.DataFrame(vae.sample_rows(400, random_state=0), columns=X.columns)
    shares = drawn["colour"].value_counts(normalize=True)
    expected = X["colour"].value_counts(normalize=True)
    assert (shares - expected).abs().max() < 0.15


def test_numbers_without_a_family_for_levels():
    X, _, _ = frame(4, n=60)
    with pytest.raises(ValueError, match="likelihood='student'.*column 'colour'"):
        VariationalAutoencoder(
            likelihood=["normal", "student", "auto", "auto"], **VAE
        ).fit(X)
    with pytest.raises(ValueError, match="vbgi-vae.*column 'colour' has categories"):
        VariationalAutoencoder(algorithm="vbgi-vae", **VAE).fit(X)
    vae = VariationalAutoencoder(likelihood="student", **VAE | {"max_iter": 0}).fit(X)
    assert vae.families_ == ["student", "nominal", "ordinal", "ordinal"]


def test_nominal_columns_count_as_many_latents_as_levels():
    X, _, _ = frame(4, n=60)
    options = VAE | {"max_iter": 0}
    vae = VariationalAutoencoder(**options | {"n_components": "auto"}).fit(X)
    assert vae.n_components_ == 5  # 1 + 3 + 1 + 1 latent variables
    assert VariationalAutoencoder(**options | {"n_components": 6}).fit(X)
    with pytest.raises(ValueError, match="n_components=7 must be at most"):
        VariationalAutoencoder(**options | {"n_components": 7}).fit(X)


def test_models_of_users_take_numbers(lair):
    _, X, _, _ = lair
    vae = VariationalAutoencoder(**VAE | {"max_iter": 0}).fit(np.eye(4)[:, :2])
    own = TorchVAE(vae.to_torch(), vae._modules().posterior)
    with pytest.raises(ValueError, match="column 'colour' has categories.*TorchVAE"):
        LAIRImputer(own, sampler=LAIR(replenish="prior")).fit(X[["size", "colour"]])


def test_marginal_columns_get_shares(lair):
    model, X, _, _ = lair
    other = copy.deepcopy(model)
    codes = other._checked(X)[:, 1]
    marginals = {1: Marginal.of(codes, np.ones(len(codes)), is_category=True)}
    schema = other._schema._replace(marginals=marginals)
    other._publish(other._fitted._replace(schema=schema))
    result = other.category_probabilities(X)["colour"]
    missing = X["colour"].isna().to_numpy()
    shares = X["colour"].value_counts(normalize=True).reindex(result.columns)
    np.testing.assert_allclose(result[missing], np.tile(shares, (missing.sum(), 1)))
    assert (other.transform(X)["colour"][missing] == shares.idxmax()).all()
    drawn = other.sample(X, 20, random_state=0)
    drawn = pd.concat([table["colour"][missing] for table in drawn])
    counts = drawn.value_counts().reindex(result.columns)
    assert p_counts(counts, shares) > FAILURE


# VGIImputer


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "algorithm",
    [
        VGI("mixture", network="extended", n_selected=2),
        VGI("normal", network="independent", start="marginals", n_warm_up=1),
        VGI("spline"),
    ],
    ids=lambda one: one.conditionals,
)
def test_all_settings_of_vgi_take_categories(algorithm, brief):
    X, _, _ = frame(5, n=80)
    X["count"] = np.arange(80) % 4
    model = IncompleteDensity(algorithm=algorithm, max_iter=2)
    result = imputer(VGIImputer, model).fit(X)
    assert np.isfinite(result.estimators_[0].loss_curve_).all()
    for table in result.category_probabilities(X).values():
        np.testing.assert_allclose(table.sum(axis=1), 1)
    assert set(result.transform(X)["count"]) <= {0.0, 1.0, 2.0, 3.0}


def test_training_moves_categorical_conditionals(brief):
    """The logits of levels are trained, and those of levels that a column lacks not."""
    X, _, _ = frame(6, n=80)
    models = (IncompleteDensity(max_iter=n, solver=ALL_CELLS) for n in (0, 3))
    states = [imputer(VGIImputer, one).fit(X).estimators_[0] for one in models]
    before, after = (one.conditionals_state_["networks.biases.1"] for one in states)
    changed = (before != after)[1:, 0, 2:]  # after location and log-scale
    expected = [[True, True, True, False], [True] * 4, [True, True, False, False]]
    assert changed.tolist() == expected


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
    result = VGIImputer(model, random_state=0)
    for columns, named in (
        (["size", "colour"], "column 'colour' has categories"),
        (None, "column 'colour', column 'grade', column 'flag' have categories"),
    ):
        part = X if columns is None else X[columns]
        with pytest.raises(ValueError, match=f"{named}.*model='vae'") as raised:
            result.fit(part)
        assert said in str(raised.value)
    assert not hasattr(result, "estimators_")


# Levels of categories, by the imputers that average members


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
    probabilities = make().fit(X).category_probabilities(X)
    gains = []
    for column in NAMES:
        rows = hidden[:, truth.columns.get_loc(column)]
        shares = X[column].value_counts(normalize=True)
        table = pd.DataFrame(
            np.tile(shares, (len(X), 1)), X.index, columns=shares.index
        )
        gains.append(loss(table, truth[column], rows))
        gains[-1] = gains[-1] - loss(probabilities[column], truth[column], rows)
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
        cells, result = two_members(n_draws).fill(nodes)
        np.testing.assert_allclose(result[0], [shares] * 4)
        assert (cells == 0).all()


def test_members_have_random_numbers_of_their_own():
    result = two_members(2)
    result.fill(np.arange(4.0)[:, None])
    streams = np.concatenate([one.uniform for one in result.members])
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
    result = two_members(2)
    values = result.values._replace(integers=np.ones(1, dtype=bool))
    result = result._replace(members=[Number(0), Number(1)], values=values)
    cells, _ = result.fill(np.full((4, 1), np.nan))
    assert (cells == 0.5).all()


class Chains:
    """A density that counts its draws."""

    def draws(self, nodes, numbers, n_chains, n_sweeps, n_tables):
        return np.zeros((n_chains * n_tables, *nodes.shape))


@pytest.mark.parametrize("n_draws", [1, 20, 30])
def test_chains_have_as_many_draws_as_they_are_asked_for(n_draws):
    drawn, _ = ChainMember(Chains(), 2).draws(np.zeros((3, 1)), n_draws, None)
    assert drawn.shape == (n_draws, 3, 1)
