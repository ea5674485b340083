"""LAIRImputer: exact on a linear model, containers, frozen estimators, refusals."""

from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pandas as pd
import pytest
import torch
from errors import refused
from oracles import GATE, normal_means
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from statistical import FAILURE, standard_errors
from tables import normal_table

from skvnce import GaussianImputer, LAIRImputer, VariationalAutoencoder
from skvnce.autoencoder.model import EncoderMember
from skvnce.autoencoder.samplers import mwg
from skvnce.metrics import coverage, imputation_rmse
from skvnce.missingness import hide, mcar

LINEAR = VariationalAutoencoder(max_iter=0, likelihood="normal", marginals="normal")


@pytest.fixture
def full(seed):
    return normal_table(seed)[0]


@pytest.fixture
def hidden(seed):
    return normal_table(seed)[1]


@pytest.fixture
def X(full, hidden):
    return hide(full, hidden)


@pytest.fixture
def fitted(X):
    return LAIRImputer(LINEAR, n_estimators=1, random_state=0).fit(X)


def means_of_normal(fitted, X, rows):
    """Fill rows by means of the normal distribution that an untrained autoencoder is.

    Not by those of GaussianImputer, which at some seeds calibrates a column.
    """
    shrinkage = fitted.estimators_[0].shrinkage_
    normal = GaussianImputer(shrinkage, marginals="normal").fit(X)
    return normal_means(normal.mean_, normal.covariance_, rows)


@pytest.mark.quick(1)
@pytest.mark.parametrize("sampler", ["lair", "ac-mwg", "mwg", "pseudo-gibbs"])
def test_draws_have_the_conditional_normal(X, fitted, sampler):
    """The means of a normal distribution have a closed form."""
    exact = means_of_normal(fitted, X, X[:60])
    fitted.set_params(sampler=sampler, n_steps=20)
    draws = fitted.sample(X[:60], n_draws=200, random_state=0, as_array=True)
    cells = np.isnan(X[:60])
    apart = (draws.mean(0) - exact)[cells] / (draws.std(0)[cells] / np.sqrt(200))
    assert abs(apart).max() < GATE
    assert (draws[:, ~cells] == X[:60][~cells]).all()


@pytest.mark.slow
def test_intervals_of_draws_cover(full, hidden, X):
    draws = LAIRImputer(random_state=0).fit(X).sample(X, 99, random_state=1)
    result, n = coverage(full, draws, hidden), hidden.sum()
    assert abs(result - 0.9) < 0.02 + GATE * np.sqrt(0.09 / n)


@pytest.mark.quick(1)
@pytest.mark.parametrize("d", [3, 8])
def test_small_tables_are_no_worse_than_means(seed, d):
    full, hidden = normal_table(seed, n=60, d=d)
    X = hide(full, hidden)
    error = imputation_rmse(full, LAIRImputer(random_state=0).fit_transform(X), hidden)
    assert error <= imputation_rmse(full, SimpleImputer().fit_transform(X), hidden)


@pytest.mark.slow
def test_noise_is_imputed_as_by_means(seed):
    """Columns that say nothing of each other, and few rows: nothing to overfit.

    Ratios of errors vary by .06 between tables about a mean of 1.07.
    """
    ratios = []
    for i in range(4):
        full = np.random.default_rng([seed, i]).normal(size=(60, 5))
        hidden = mcar(full, 0.3, random_state=i)
        X = hide(full, hidden)
        filled = LAIRImputer(random_state=0).fit_transform(X)
        means = SimpleImputer().fit_transform(X)
        errors = (imputation_rmse(full, one, hidden) for one in (filled, means))
        ratios.append(np.divide(*errors))
    assert np.mean(ratios) < 1.07 + 3 * 0.06 / 2


def test_transform_sums_draws_up(X, fitted):
    cells = np.isnan(X)
    means, medians, modes = (
        fitted.set_params(strategy=strategy).transform(X)[cells]
        for strategy in ("mean", "median", "mode")
    )
    exact = means_of_normal(fitted, X, X)[cells]
    for result, bound in ((means, 0.25), (medians, 0.35), (modes, 2.0)):
        assert abs(result - exact).max() < bound
    assert not np.allclose(means, medians)
    assert not np.allclose(medians, modes)


@pytest.mark.slow
def test_standard_errors_fall_with_the_number_of_draws(X):
    errors = []
    for number in (16, 256):
        vae = VariationalAutoencoder(max_iter=1, n_importance_samples=number)
        imputer = LAIRImputer(vae, n_estimators=2, n_steps=1, random_state=0).fit(X)
        log_prob, error = imputer.score_samples(X, return_std=True)
        np.testing.assert_array_equal(log_prob, imputer.score_samples(X))
        errors.append(np.median(error))
    assert 2 < errors[0] / errors[1] < 8  # a factor of 4 in theory


def test_complete_rows_are_not_sampled(full, fitted, monkeypatch):
    for name in ("draw", "draws"):
        monkeypatch.setattr(EncoderMember, name, lambda *a: pytest.fail("sampled"))
    np.testing.assert_array_equal(fitted.transform(full), full)
    np.testing.assert_array_equal(fitted.sample(full)[0], full)


def test_a_frozen_estimator_is_only_sampled(X):
    vae = VariationalAutoencoder(max_iter=0).fit(X)
    state = vae.model_state_
    imputer = LAIRImputer(FrozenEstimator(vae), random_state=0).fit(X[:5])
    assert imputer.estimators_ == [vae]
    assert vae.model_state_ is state
    result, expected = (one.to_torch().state_dict() for one in (imputer, vae))
    assert result.keys() == expected.keys() and len(result) > 1
    assert all(torch.equal(result[key], expected[key]) for key in result)
    assert not np.isnan(imputer.transform(X)).any()


def test_a_table_of_constants_has_no_decoder():
    with pytest.warns(UserWarning, match="Constant where observed"):
        imputer = LAIRImputer(random_state=0).fit(np.ones((9, 2)))
    refused(ValueError, "All columns were constant at fit: there is ", imputer.to_torch)


def test_constants_of_frozen_estimators_are_named(X):
    constant = np.insert(X, 4, 3.0, axis=1)
    with pytest.warns(UserWarning, match="Constant where observed: column 4. "):
        inside = clone(LINEAR).fit(constant)
    imputer = LAIRImputer(FrozenEstimator(inside), n_estimators=1, n_draws=4)
    with pytest.warns(UserWarning, match="Constant where observed: column 4. "):
        imputer.fit(constant)
    constant[:9, 4] = 5.0
    imputer.fit(constant)  # without a warning
    assert imputer.constants_ == {4: 3.0}


def test_a_frozen_estimator_must_fit_the_table(X):
    vae = VariationalAutoencoder(max_iter=0)
    with pytest.raises(ValueError, match="frozen but not fitted"):
        LAIRImputer(FrozenEstimator(vae)).fit(X)
    vae.fit(X[:, :3])
    with pytest.raises(ValueError, match="model was fitted on 3 columns"):
        LAIRImputer(FrozenEstimator(vae)).fit(X)
    vae.fit(pd.DataFrame(X, columns=list("abcd")))
    with pytest.raises(ValueError, match="'a' where X has 'd'"):
        LAIRImputer(FrozenEstimator(vae)).fit(pd.DataFrame(X, columns=list("dcba")))


@pytest.mark.slow
def test_several_members_differ_and_all_are_drawn_from(X):
    imputer = LAIRImputer(LINEAR, n_estimators=3, random_state=0).fit(X)
    means = [member.model_state_["mean"] for member in imputer.estimators_]
    assert len(means) == 3
    assert not np.allclose(means[0], means[1])
    auto = LAIRImputer(LINEAR, n_estimators="auto", on_misfit="ignore", random_state=0)
    counts = [len(auto.fit(X[:n]).estimators_) for n in (200, 100, 60, 20)]
    assert counts == [1, 2, 3, 4]
    one, other = (imputer.sample(X, n_draws=n, random_state=0) for n in (1, 4))
    assert (len(one), len(other)) == (1, 4)
    apart = [member.score_samples(X) for member in imputer.estimators_]
    assert (imputer.score_samples(X) <= np.max(apart, 0) + 1e-12).all()
    assert (imputer.score_samples(X) >= np.min(apart, 0) - 1e-12).all()


@pytest.mark.slow
def test_a_sampler_of_ones_own(X, fitted):
    few = X[:40]
    fitted.set_params(sampler=lambda model, posterior: mwg(model, posterior))
    one, two = fitted.transform(few), fitted.transform(few)
    assert (one == two).all()
    exact = means_of_normal(fitted, X, few)
    cells = np.isnan(few)
    assert abs(one - exact)[cells].max() < 0.3


def test_a_sampler_of_ones_own_must_be_one(X, fitted):
    fitted.set_params(sampler=lambda model, posterior: 3)
    refused(ValueError, "sampler must return a .*Sampler.*got 3", fitted.transform, X)


def test_a_frozen_estimator_that_was_fitted_anew_is_seen(X):
    vae = VariationalAutoencoder(max_iter=0).fit(X)
    imputer = LAIRImputer(FrozenEstimator(vae)).fit(X)
    vae.fit(np.column_stack([X, X + 1]))
    refused(ValueError, "Fit the imputer again", imputer.transform, X)


def test_fits_and_draws_in_threads_do_not_wait_for_each_other(X, fitted):
    """Locks that are taken in two orders would stop both for good."""
    with ThreadPoolExecutor(2) as pool:
        fits = [pool.submit(clone(LINEAR).fit, X[:40]) for _ in range(3)]
        fills = [pool.submit(fitted.sample, X[:40], 2, 0) for _ in range(3)]
        done, late = wait([*fits, *fills], timeout=120)
    assert not late
    tables = [future.result()[0] for future in fills]
    assert all(np.array_equal(tables[0], table) for table in tables)


def test_several_members_weigh_the_rows_at_random():
    """Means of members differ by what gamma weights of variance 1/8 make of rows."""
    X = hide(*normal_table(0))
    one = LAIRImputer(LINEAR, n_estimators=1, random_state=0).fit(X).estimators_[0]
    np.testing.assert_allclose(one.location_, np.nanmean(X, 0))
    several = LAIRImputer(LINEAR, n_estimators=4, random_state=0).fit(X).estimators_
    apart = np.array([member.location_ for member in several]) - one.location_
    expected = np.nanstd(X, 0) / np.sqrt(8 * (~np.isnan(X)).sum(0))
    assert (abs(apart / expected) < standard_errors(16)).all()
    # the sum of 4 squares, at least: columns are correlated
    assert ((apart / expected) ** 2).mean() * 4 > chi2(4).ppf(FAILURE)
