"""IncompleteFactorAnalysis: units, rotation, weights, tables that break naive code."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning

from skvnce import IncompleteFactorAnalysis
from skvnce.missingness import hide, mcar

D = 8
LOCATION = np.array([50.0, -3.0, 0.0, 1e4, 1.0, 2.0, 3.0, 4.0])
UNIT = np.array([10.0, 0.1, 1.0, 1e3, 1.0, 2.0, 1.0, 5.0])
ignore_convergence = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning"
)


def complete_table(seed, n=400, noise=1.0):
    rng = np.random.default_rng(seed)
    loadings = np.sqrt(D) * np.linalg.qr(rng.normal(size=(D, 2))).Q * [1.5, 1.0]
    x = rng.normal(size=(n, 2)) @ loadings.T + noise * rng.normal(size=(n, D))
    return LOCATION + UNIT * x


@pytest.fixture
def full(seed):
    return complete_table(seed)


@pytest.fixture
def X(full, seed):
    return hide(full, mcar(full, 0.3, random_state=seed))


def fitted(X, n_components=2, **parameters):
    return IncompleteFactorAnalysis(n_components, **parameters).fit(X)


def same(first, second, X, **close):
    assert_allclose(first.get_covariance(), second.get_covariance(), **close)
    assert_allclose(first.transform(X), second.transform(X), **close)


def test_on_complete_rows_it_is_that_of_scikit_learn(full):
    x = (full - full.mean(0)) / full.std(0)
    theirs = FactorAnalysis(2, tol=1e-10, max_iter=20_000, svd_method="lapack").fit(x)
    ours = fitted(x, tol=1e-10, max_iter=20_000)
    product = theirs.components_.T @ theirs.components_
    assert_allclose(ours.components_.T @ ours.components_, product, atol=1e-4)
    assert_allclose(ours.noise_variance_, theirs.noise_variance_, atol=1e-4)
    assert_allclose(ours.mean_, theirs.mean_, atol=1e-9)
    assert ours.score(x) == pytest.approx(theirs.score(x), abs=1e-7)
    assert_allclose(ours.get_precision(), theirs.get_precision(), atol=1e-2)
    turn = np.linalg.lstsq(theirs.transform(x), ours.transform(x))[0]
    assert_allclose(turn @ turn.T, np.eye(2), atol=1e-3)


def test_scores_are_densities_in_the_units_of_X(X):
    analysis = fitted(X)
    rows, covariance = X[:20].copy(), analysis.get_covariance()
    rows[3] = np.nan
    for row, score in zip(rows, analysis.score_samples(rows), strict=True):
        o = ~np.isnan(row)
        exact = 0.0
        if o.any():
            exact = multivariate_normal(
                analysis.mean_[o], covariance[np.ix_(o, o)]
            ).logpdf(row[o])
        assert score == pytest.approx(exact, abs=1e-5)  # scipy loses digits
    assert analysis.score(rows) == pytest.approx(analysis.score_samples(rows).mean())


def test_transform_is_the_conditional_mean(X):
    analysis = fitted(X)
    covariance = analysis.get_covariance()
    for row, z in zip(X[:20], analysis.transform(X[:20]), strict=True):
        o = ~np.isnan(row)
        gain = np.linalg.solve(covariance[np.ix_(o, o)], analysis.components_[:, o].T)
        assert_allclose(z, (row - analysis.mean_)[o] @ gain, atol=1e-8)


def test_inverse_transform_is_the_mean_given_latents(X):
    analysis = fitted(X)
    assert_allclose(analysis.inverse_transform(np.zeros((1, 2)))[0], analysis.mean_)
    step = analysis.inverse_transform([[1.0, 0.0], [0.0, 1.0]]) - analysis.mean_
    assert_allclose(step, analysis.components_, rtol=1e-6)
    with pytest.raises(ValueError, match="Z has 3 columns, but the model has n_comp"):
        analysis.inverse_transform(np.zeros((1, 3)))


def test_covariance_and_precision_are_inverse(X):
    analysis = fitted(X)
    unit = analysis.get_covariance() @ analysis.get_precision()
    assert_allclose(unit / np.outer(UNIT, 1 / UNIT), np.eye(D), atol=1e-9)


def test_latents_are_in_canonical_position(X):
    analysis = fitted(X)
    scaled = analysis.components_ / np.sqrt(analysis.noise_variance_)
    inner = scaled @ scaled.T
    assert abs(inner[0, 1]) < 1e-9 * inner[0, 0]
    assert inner[0, 0] > inner[1, 1]
    largest = np.abs(scaled).argmax(1)
    assert (scaled[[0, 1], largest] > 0).all()


@pytest.mark.parametrize("n_components", [2, "auto"])
def test_the_order_of_rows_does_not_matter(n_components, X, seed):
    order = np.random.default_rng(seed).permutation(len(X))
    same(fitted(X, n_components), fitted(X[order], n_components), X, rtol=1e-5)


@pytest.mark.parametrize("n_components", [2, "auto"])
def test_units_do_not_matter(n_components, X, seed):
    factor = 10 ** np.random.default_rng(seed).uniform(-20, 20, size=D)
    first, second = fitted(X, n_components), fitted(X * factor, n_components)
    expected = second.components_ / UNIT / factor
    assert_allclose(first.components_ / UNIT, expected, atol=1e-6)
    exact = second.transform(X * factor)
    assert_allclose(first.transform(X), exact, rtol=1e-5, atol=1e-9)
    count = (~np.isnan(X)) @ np.log(factor)
    found = first.score_samples(X) - count
    assert_allclose(found, second.score_samples(X * factor), rtol=1e-6)


@pytest.mark.parametrize("n_components", [2, "auto"])
def test_weights_count_rows(n_components, X):
    weights = np.arange(len(X)) % 3
    weighted = IncompleteFactorAnalysis(n_components).fit(X, sample_weight=weights)
    same(weighted, fitted(np.repeat(X, weights, axis=0), n_components), X, rtol=1e-5)


def test_auto_finds_the_rank_and_is_the_fit_of_that_rank(seed):
    """Latents are strong and rows many; a chance third latent is one in ten."""
    tables = [complete_table([seed, i], n=500) for i in range(5)]
    tables = [hide(x, mcar(x, 0.2, random_state=seed)) for x in tables]
    ranks = [fitted(x, "auto").n_components_ for x in tables]
    assert np.median(ranks) == min(ranks) == 2
    X = tables[0]
    same(fitted(X, "auto"), fitted(X, ranks[0]), X, rtol=1e-12)


# Tables that break naive code


def sound(X, n_components=2, **parameters):
    """Fit, and check that every answer is finite."""
    analysis = fitted(X, n_components, **parameters)
    assert np.isfinite(analysis.transform(X)).all()
    assert np.isfinite(analysis.score_samples(X)).all()
    assert np.isfinite(analysis.get_covariance()).all()
    assert np.isfinite(analysis.get_precision()).all()
    return analysis


@ignore_convergence
@pytest.mark.parametrize("n_components", [2, 15, "auto"])
def test_more_columns_than_rows(n_components, seed):
    X = np.random.default_rng(seed).normal(size=(10, 40))
    X[::2, ::3] = np.nan
    sound(X, n_components)


@pytest.mark.filterwarnings("ignore:Constant where observed:UserWarning")
@pytest.mark.parametrize("constant", [False, True])
def test_more_components_than_columns_is_an_error(constant, X):
    if constant:  # columns in the model count, not those in the table
        X[:, 2:6] = 1.0
    with pytest.raises(ValueError, match=r"n_components=9 must be at most n_features="):
        fitted(X, 9)


@ignore_convergence
def test_as_many_components_as_columns(X):
    sound(X, D)


def test_duplicated_columns_are_named(X):
    frame = pd.DataFrame(X, columns=list("abcdefgh")).assign(twin=X[:, 0])
    named = r"(?s)column 'a', column 'twin'.*[Dd]rop"
    with pytest.warns(ConvergenceWarning, match=named):
        analysis = sound(frame, 3, max_iter=3000, tol=1e-4)
    ratio = analysis.noise_variance_[[0, -1]] / np.nanvar(X[:, 0])
    assert_allclose(ratio, 1e-4, rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e9])
def test_a_constant_column_is_left_out(X, value):
    with_constant = np.insert(X, 2, value, axis=1)
    with_constant[::4, 2] = np.nan
    with pytest.warns(UserWarning, match="column 2. .*`inverse_transform` gives the"):
        plain, analysis = fitted(X), sound(with_constant)
    assert_array_equal(analysis.components_[:, 2], 0)
    assert analysis.noise_variance_[2] == 0
    assert analysis.mean_[2] == value
    assert_allclose(analysis.score_samples(with_constant), plain.score_samples(X))
    assert_allclose(analysis.transform(with_constant), plain.transform(X), rtol=1e-9)


def test_an_empty_column_is_left_out_with_a_warning(X):
    X[:, 2] = np.nan
    with pytest.warns(UserWarning, match="Entirely missing: column 2; left out of the"):
        analysis = sound(X)
    assert np.isnan(analysis.mean_[2])
    assert_array_equal(analysis.components_[:, 2], 0)
    back = analysis.inverse_transform(analysis.transform(X))
    assert np.isnan(back[:, 2]).all()
    assert np.isfinite(np.delete(back, 2, axis=1)).all()
    # values there say nothing later
    later = X.copy()
    later[:, 2] = 7.0
    assert_array_equal(analysis.transform(later), analysis.transform(X))


@ignore_convergence
@pytest.mark.parametrize("n_components", [2, "auto"])
def test_a_column_with_two_observed_values(n_components, X):
    X[1] = 2 * np.nanmean(X, 0) - X[0]  # opposite rows: the mean is between the cells
    X[2:, 1] = np.nan
    X[:2, 1] = [1.0, 2.0]
    analysis = sound(X, n_components)
    assert 1 < analysis.mean_[1] < 2


def test_rows_that_are_entirely_missing(X):
    empty = np.full((2, D), np.nan)
    analysis, other = fitted(X), fitted(np.vstack([X, empty]))
    assert_array_equal(analysis.transform(empty), 0)
    assert_array_equal(analysis.score_samples(empty), 0)
    same(analysis, other, X, rtol=1e-12)
