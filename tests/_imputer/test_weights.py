"""Frequencies, and sampling weights that were not divided by their mean."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

import skvnce
from skvnce._tables.model_columns import check_scale, random_weights
from skvnce.options import Chunks, IncompleteDensity
from skvnce.table_imputer import fit as fit_module

REMEDY = r"sample_weight / numpy.mean\(sample_weight\)"


def survey(n=200, seed=0):
    """Draw rows of three columns, and sampling weights of mean 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1)) + rng.normal(size=(n, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    weights = rng.lognormal(0, 0.5, n)
    return X, weights / weights.mean()


def sampled(weights):
    """Return the standard deviation of the draws of the mean of a column."""
    imputer = skvnce.GaussianImputer(
        marginals="normal", shrinkage=0.1, n_parameter_draws=300, random_state=0
    )
    means, _ = imputer.fit(survey()[0], sample_weight=weights).sample_parameters()
    return means[:, 0].std()


@pytest.mark.slow
@pytest.mark.parametrize("factor", [5000, 0.001])
def test_weights_of_another_scale_change_draws_and_warn(factor):
    """Variances of a mean are in proportion to the inverse sum of the weights."""
    weights = survey()[1]
    expected = sampled(weights)
    with pytest.warns(UserWarning, match=f"mean of {factor}.*{REMEDY}"):
        found = sampled(factor * weights)
    # the prior of .3 rows matters if the weights' sum is .2 rows
    assert found / expected < 0.05 if factor > 1 else found / expected > 3
    mended = sampled(factor * weights / np.mean(factor * weights))
    assert mended == pytest.approx(expected, rel=1e-6)


def test_one_warning_wherever_weights_are_read(monkeypatch):
    X, weights = survey()
    y = np.nan_to_num(X).sum(1)
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", 120)
    parts, many = Chunks([X[:50], X[50:]]), 300 * weights
    in_parts = Chunks([many[:50], many[50:]])
    imputer, rows = skvnce.GaussianImputer(random_state=0, n_parameter_draws=0), 40
    calls = [
        lambda: imputer.fit(X[:rows], sample_weight=many[:rows]),
        lambda: imputer.fit(X, sample_weight=many),  # of which a sample is in memory
        lambda: imputer.fit(parts, sample_weight=in_parts),
        lambda: skvnce.IncompleteFactorAnalysis(1).fit(X, sample_weight=many),
        lambda: skvnce.MultipleImputationRegressor(
            imputer, n_estimators=1, n_draws=1, random_state=0
        ).fit(X, y, sample_weight=many),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match=REMEDY) as caught:
            call()
        assert sum("sample_weight" in str(one.message) for one in caught) == 1


@pytest.mark.parametrize("cls", [skvnce.GaussianImputer, skvnce.TableImputer])
@pytest.mark.parametrize(
    "extreme, message",
    [
        (np.full(200, 1e-300), "has 1e-300 in row 0. A weight must be 0, or between"),
        (np.full(200, 5e-324), "has 4.941e-324 in row 0"),
        (np.full(200, 1e300), "has 1e.300 in row 0"),  # squares overflow
        (np.full(200, 1e308), "has 1e.308 in row 0"),  # their sum overflows
        (np.where(np.arange(200) == 7, 1e-300, 1.0), "has 1e-300 in row 7"),
        (np.where(np.arange(200) == 7, 1e300, 1.0), "has 1e.300 in row 7"),
        (np.full(200, 1e-9), "adds up to 2e-07.* must count as 0.01 rows"),
    ],
)
def test_extreme_weights_are_errors(cls, extreme, message):
    with pytest.raises(ValueError, match=f"sample_weight {message}.*{REMEDY}"):
        cls(random_state=0).fit(survey()[0], sample_weight=extreme)


@pytest.mark.filterwarnings("ignore:sample_weight has a mean")
@pytest.mark.parametrize("small, large", [(1e-15, 1.0), (1.0, 1e12), (1e-15, 1e12)])
def test_negligible_weights_count_as_nothing(small, large, monkeypatch):
    """The row of the largest, skewed, number has a weight below a float's spacing."""
    # folds differ by that row, and with them a close choice between powers
    monkeypatch.setattr(fit_module, "EXPONENTS", (0.0,))
    X = survey()[0]
    X[:, 0] = np.exp(X[:, 0])
    is_small = np.arange(200) >= 150
    is_small[np.nanargmax(X[:, 0])] = True
    moments = []
    for other in (small, 0.0):
        imputer = skvnce.TableImputer(n_estimators=0, interactions=None, random_state=0)
        imputer.fit(X, sample_weight=np.where(is_small, other, large))
        model = imputer._fitted.model
        places = model.source.order.argsort()
        covariance = model.normal.covariance[np.ix_(places, places)]
        moments.append(np.vstack([model.normal.mean[places], covariance]))
    np.testing.assert_allclose(*moments, atol=2e-2)  # EM ends at changes of 2e-3
    assert np.isfinite(imputer.transform(X)).all()


COUNTS = np.random.default_rng(0).integers(0, 4, 300)


@pytest.mark.parametrize(
    "weights",
    [
        np.ones(300),
        COUNTS,
        np.repeat([0.0, 1.0], 150),
        np.random.default_rng(0).poisson(60, 300),
        survey(300)[1],
        survey(300)[1][:60],  # a fold of normalised weights
        survey(300)[1] * (np.arange(300) % 5 > 0) / 0.8,
        np.where(np.arange(300) < 200, 0, 3 * survey(300)[1]),
        np.zeros(3),
    ],
)
def test_frequencies_and_normalised_weights_are_silent(weights):
    with warnings.catch_warnings(action="error"):
        check_scale(np.asarray(weights, dtype=float), len(weights))


@pytest.mark.parametrize(
    ("weights", "mean"),
    [
        (np.random.default_rng(0).poisson(800, 300), "80"),
        (0.4 * survey(300)[1], "0.4"),
        (1.7 * survey(300)[1], "1.7"),
        (0.001 * COUNTS, "0.00"),
    ],
)
def test_other_weights_warn(weights, mean):
    with pytest.warns(UserWarning, match=f"has a mean of {mean}") as caught:
        check_scale(np.asarray(weights, dtype=float), len(weights))
    assert f"not of {(weights > 0).sum()}" in str(caught[0].message)


def test_random_weights_of_members_are_no_sampling_weights():
    """Several members are fitted to rows with random weights of mean 8."""
    X = survey(60)[0]
    model = skvnce.VariationalAutoencoder(max_iter=1, random_state=0)
    imputer = skvnce.LAIRImputer(
        model, n_estimators=2, n_steps=1, n_draws=4, on_misfit="ignore", random_state=0
    )
    with warnings.catch_warnings(action="error"):
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        imputer.fit(X)


VAE = skvnce.VariationalAutoencoder(1, max_iter=1, marginals="normal", random_state=0)
QUIET = {"on_misfit": "ignore", "random_state": 0}
DENSITY = IncompleteDensity("factor-analysis", max_iter=1)
PLAIN = skvnce.GaussianImputer(marginals="normal", n_parameter_draws=0, **QUIET)
MEMBERS = [
    skvnce.LAIRImputer(VAE, n_estimators=1, n_draws=64, **QUIET),
    skvnce.LAIRImputer(VAE, n_estimators=2, n_draws=64, **QUIET),
    skvnce.VGIImputer(DENSITY, n_estimators=1, n_draws=64, **QUIET),
    skvnce.VGIImputer(DENSITY, n_estimators=2, n_draws=64, **QUIET),
]
MANY = {"n_draws": 500, "random_state": 0}  # of two groups of rows
WEIGHING = [
    *MEMBERS,
    skvnce.ColumnImputer(PLAIN, regressor=LinearRegression(), **MANY),
    skvnce.ColumnImputer(PLAIN, regressor=KNeighborsRegressor(20), **MANY),
    skvnce.MixtureImputer(2, n_estimators=4, **QUIET),
    skvnce.ConstrainedImputer(PLAIN, random_state=0),
]


def two_groups():
    """Make as many rows around (0, 0) as around (4, -4), and weights of 3 and 1."""
    rng, groups = np.random.default_rng(0), np.repeat([0.0, 4.0], 60)
    X = rng.normal(size=(120, 2)) + np.outer(groups, [1, -1])
    X[rng.random(X.shape) < 0.1] = np.nan
    order = rng.permutation(120)
    X, groups = X[order], groups[order]
    with_data = ~np.isnan(X).all(1)
    return X[with_data], np.where(groups == 0, 3, 1)[with_data]


@pytest.mark.quick(2)
@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("imputer", WEIGHING, ids=lambda one: type(one).__name__)
def test_weights_count_as_equal_rows(imputer):
    """Means of a row without observed cells: about (1, -1) instead of (2, -2)."""
    X, weights = two_groups()
    empty = np.full((1, 2), np.nan)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        found = clone(imputer).fit(X, sample_weight=weights).transform(empty)
        repeated = clone(imputer).fit(np.repeat(X, weights, axis=0)).transform(empty)
        without = clone(imputer).fit(X).transform(empty)
    assert abs(found - repeated).max() < 0.4 < abs(found - without).min()
    exact = isinstance(imputer, skvnce.ConstrainedImputer)
    assert not exact or abs(found - repeated).max() < 1e-6


@pytest.mark.quick(2)
@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("imputer", MEMBERS, ids=lambda one: type(one).__name__)
def test_rows_of_weight_zero_are_left_out(imputer):
    X, _ = two_groups()
    weights = (np.arange(len(X)) % 3 > 0).astype(float)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        found = clone(imputer).fit(X, sample_weight=weights).transform(X)
        expected = clone(imputer).fit(X[weights > 0]).transform(X)
    np.testing.assert_array_equal(found, expected)


def test_random_weights_of_equal_rows_add_up(rng_0):
    """A sum of k Gamma variables of shape 8 is one of shape 8 k."""
    found = random_weights(rng_0, 20_000, np.full(20_000, 3.0))
    assert abs(found.mean() - 24) < 5 * (24 / 20_000) ** 0.5
    assert abs(found.var() / 24 - 1) < 0.06
    tiny = random_weights(rng_0, 1000, np.full(1000, 1e-6))
    assert (tiny > 0).all()


def test_weights_that_nothing_uses_are_reported():
    X, weights = two_groups()
    frozen = skvnce.LAIRImputer(FrozenEstimator(clone(VAE).fit(X)), **QUIET)
    with pytest.warns(UserWarning, match="sample_weight has no effect: model=Frozen"):
        frozen.fit(X, sample_weight=weights)
    graph = skvnce.TruncatedGaussianGraphLearner(max_iter=1)
    with pytest.raises(TypeError, match="TruncatedGaussianGraphLearner.fit takes no"):
        skvnce.ConstrainedImputer(graph).fit(np.abs(X), sample_weight=weights)
    for imputer in WEIGHING:
        message = "weights must contain at least one non-zero"
        with pytest.raises(ValueError, match=message):
            clone(imputer).fit(X, sample_weight=np.zeros(len(X)))
    with pytest.warns(UserWarning, match=REMEDY):
        clone(MEMBERS[0]).fit(X, sample_weight=weights * 1234.5)


def test_weights_of_a_frozen_model_may_have_empty_rows():
    X, weights = two_groups()
    frozen = FrozenEstimator(clone(VAE).fit(X))
    X[:5] = np.nan
    imputer = skvnce.LAIRImputer(frozen, n_draws=8, random_state=0)
    with pytest.warns(UserWarning, match="sample_weight has no effect"):
        found = imputer.fit(X, sample_weight=weights).transform(X)
    assert not np.isnan(found).any()
