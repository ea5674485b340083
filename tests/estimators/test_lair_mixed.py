"""LAIRImputer and VariationalAutoencoder on tables with categories."""

import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from statistical import FAILURE, p_counts

from estimators.test_gaussian_mixed import frame
from skvnce import LAIR, LAIRImputer, TorchVAE, VariationalAutoencoder
from skvnce.estimators._misfit import _marginal

VAE = {"n_components": 2, "max_iter": 1, "on_misfit": "ignore", "random_state": 0}


def imputer(model=None, **options):
    model = VariationalAutoencoder(**VAE) if model is None else model
    options = {"n_draws": 20, "n_steps": 5, "on_misfit": "ignore"} | options
    found = LAIRImputer(model, n_estimators=1, random_state=0, **options)
    return found.set_output(transform="pandas")


@pytest.fixture(scope="module")
def fitted():
    X, truth, hidden = frame(1)
    return imputer().fit(X), X, truth, hidden


def test_levels_do_not_depend_on_the_strategy(fitted):
    model, X, _, _ = fitted
    model, levels = copy.deepcopy(model), list(model.categories_)
    mean, *others = (
        model.set_params(strategy=strategy).transform(X)
        for strategy in ("mean", "median", "mode")
    )
    numbers = X.columns.drop(levels)
    for other in others:
        pd.testing.assert_frame_equal(other[levels], mean[levels])
        assert not np.allclose(other[numbers], mean[numbers])  # control


def test_numbers_follow_the_categories(fitted):
    model, X, truth, hidden = fitted
    rows = hidden[:, 0]
    found = np.log(model.transform(X)["size"][rows].astype(float))
    assert np.corrcoef(found, np.log(truth["size"][rows]))[0, 1] > 0.5


def test_scores_count_levels(fitted):
    """A row of a column alone: shares of its levels, which sum to one."""
    model, X, _, _ = fitted
    for member in (model, model.estimators_[0]):
        one = X.iloc[:4].mask(np.ones((4, 4), dtype=bool))
        one["grade"] = pd.Categorical(list("dcba"), X["grade"].cat.categories, True)
        log_prob, error = member.score_samples(one, return_std=True)
        assert np.exp(log_prob).sum() == pytest.approx(1, abs=5 * error.sum())
        shares = X["grade"].value_counts(normalize=True)[list("dcba")]
        np.testing.assert_allclose(np.exp(log_prob), shares, atol=0.1)


@pytest.mark.quick(1)
@pytest.mark.parametrize("sampler", ["mwg", "ac-mwg", "pseudo-gibbs"])
def test_other_samplers_agree(fitted, sampler):
    model, X, _, _ = fitted
    other = imputer(
        FrozenEstimator(model.estimators_[0]), sampler=sampler, n_steps=20
    ).fit(X)
    first, second = (one.category_probabilities(X) for one in (model, other))
    missing = X["colour"].isna().to_numpy()
    pair = [one["colour"].to_numpy()[missing] for one in (first, second)]
    assert abs(pair[0] - pair[1]).mean() < 0.1
    assert abs(pair[0] - pair[1][::-1]).mean() > 0.2  # control


def test_a_frozen_model_keeps_its_levels(fitted):
    model, X, _, _ = fitted
    few = X[X["colour"] != "red"].head(60)
    found = imputer(FrozenEstimator(model.estimators_[0])).fit(few)
    assert list(found.categories_["colour"]) == ["amber", "green", "red"]
    assert found.category_probabilities(few)["colour"].shape == (60, 3)


def test_several_members_are_averaged():
    X, _, _ = frame(2, n=60)
    model = LAIRImputer(
        VariationalAutoencoder(**VAE),
        n_estimators=3,
        n_draws=12,
        n_steps=3,
        on_misfit="ignore",
        random_state=0,
    ).fit(X)
    found = model.category_probabilities(X)["colour"].to_numpy()
    np.testing.assert_allclose(found.sum(1), 1)
    assert [member.families_ for member in model.estimators_] == [
        ["normal", "nominal", "ordinal", "ordinal"]
    ] * 3


def test_categories_alone():
    X, _, _ = frame(3, n=80)
    X = X[["colour", "grade"]]
    filled = imputer(VariationalAutoencoder(**VAE | {"n_components": 1})).fit(X)
    assert filled.transform(X).notna().all(axis=None)
    assert np.isnan(filled.held_out_gain_)


def test_latents_give_levels_back(fitted):
    model, X, _, _ = fitted
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


def test_models_of_users_take_numbers(fitted):
    _, X, _, _ = fitted
    vae = VariationalAutoencoder(**VAE | {"max_iter": 0}).fit(np.eye(4)[:, :2])
    own = TorchVAE(vae.to_torch(), vae._autoencoder().posterior)
    with pytest.raises(ValueError, match="column 'colour' has categories.*TorchVAE"):
        LAIRImputer(own, sampler=LAIR(replenish="prior")).fit(X[["size", "colour"]])


def test_held_out_numbers_and_levels_are_judged():
    X, _, _ = frame(5)
    found = imputer(on_misfit="warn").fit(X)
    assert 0.1 < found.held_out_gain_ < 1
    assert not found.marginal_columns_.any()
    levels = X.drop(columns="size")
    found = imputer(on_misfit="warn").fit(levels)
    assert 0 < found.held_out_gain_ < 1
    rng = np.random.default_rng(0)
    shuffled = X.apply(lambda column: rng.permutation(column.astype(object)))
    found = imputer(on_misfit="warn").fit(shuffled.astype(X.dtypes))
    assert found.held_out_gain_ < 0.05  # control


def test_marginal_columns_get_shares(fitted):
    model, X, _, _ = fitted
    other = copy.deepcopy(model)
    codes = other._checked(X)[:, 1]
    other._marginals_of_columns = {1: _marginal(codes, np.ones(len(codes)), True)}
    found = other.category_probabilities(X)["colour"]
    missing = X["colour"].isna().to_numpy()
    shares = X["colour"].value_counts(normalize=True).reindex(found.columns)
    np.testing.assert_allclose(found[missing], np.tile(shares, (missing.sum(), 1)))
    assert (other.transform(X)["colour"][missing] == shares.idxmax()).all()
    drawn = other.sample(X, 20, random_state=0)
    drawn = pd.concat([table["colour"][missing] for table in drawn])
    counts = drawn.value_counts().reindex(found.columns)
    assert p_counts(counts, shares) > FAILURE
