"""Medians and modes: exact where they have closed forms, and functions of the row."""

from inspect import signature

import numpy as np
import pandas as pd
import pytest
import torch
from oracles import normal_means
from scipy.stats import norm, truncnorm
from sklearn.base import clone

import skvnce
from skvnce._imputer.fill import STRATEGIES, Marginal
from skvnce._imputer.imputer import Imputer
from skvnce._tables.values import half_sample_mode
from skvnce.options import IncompleteDensity

pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings(
        "ignore::sklearn.exceptions.ConvergenceWarning"  # of few rounds
    ),
]

VAE = skvnce.VariationalAutoencoder(max_iter=1, hidden_layer_sizes=(4,))
QUIET = {"on_misfit": "ignore", "random_state": 0}
NORMAL = skvnce.GaussianImputer(max_iter=40, **QUIET)
IMPUTERS = {
    "normal": skvnce.GaussianImputer(max_iter=40, **QUIET),
    "bounded normal": skvnce.GaussianImputer(min_value=0.2, max_value=9.0, **QUIET),
    "table": skvnce.TableImputer(n_estimators=3, n_parameter_draws=2, random_state=0),
    "energy": skvnce.VNCEEstimator(max_iter=2, **QUIET),
    "lair": skvnce.LAIRImputer(VAE, n_estimators=1, n_steps=3, n_draws=33, **QUIET),
    "vgi": skvnce.VGIImputer(
        IncompleteDensity("vae", max_iter=0), n_estimators=1, n_draws=17, **QUIET
    ),
}
OF_LEVELS = ["normal", "table", "lair"]


def skewed(seed, n=150):
    """Draw lognormal columns; returns the table with and without missing cells."""
    rng = np.random.default_rng(seed)
    full = np.exp(0.6 * rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(n, 4)))
    full = full.clip(0.2, 9.0)
    return full, np.where(rng.random(full.shape) < 0.25, np.nan, full)


def with_levels(X, seed):
    rng, frame = np.random.default_rng(seed), pd.DataFrame(X, columns=list("abcd"))
    high = frame["a"].fillna(1) + rng.normal(size=len(X)) > 1
    levels = np.where(high, "x", rng.choice(["y", "z"], len(X)))
    levels[rng.random(len(X)) < 0.2] = ""
    return frame.assign(level=pd.Categorical(np.where(levels == "", None, levels)))


def filled(fitted, X, strategy, **limits):
    return np.asarray(fitted.set_params(strategy=strategy).transform(X, **limits))


def test_every_imputer_with_a_strategy_is_here():
    public = [getattr(skvnce, name) for name in skvnce.__all__]
    imputers = {
        one
        for one in public
        if isinstance(one, type)
        and issubclass(one, Imputer)
        and "strategy" in signature(one).parameters
    }
    assert imputers == {type(one) for one in IMPUTERS.values()}


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", IMPUTERS)
def test_predictions_are_functions_of_the_row(name, seed):
    _, X = skewed(seed)
    fitted, rng = clone(IMPUTERS[name]).fit(X), np.random.default_rng(seed)
    subset = rng.permutation(len(X))[:50]
    means = filled(fitted, X, "mean")
    for strategy in ("median", "mode"):
        found, cells = filled(fitted, X, strategy), ~np.isnan(X)
        result = filled(fitted, X[subset], strategy)
        np.testing.assert_allclose(result, found[subset], rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(found[cells], X[cells])
        low, high = fitted.feature_ranges_
        assert ((low <= found) & (found <= high)).all()
        if name != "energy":  # whose model is normal
            assert not np.allclose(found, means)


@pytest.mark.quick(5)
@pytest.mark.filterwarnings(r"ignore:\d+% of the draws of column")
# medians of TableImputer are those given the filled other cells of a row
@pytest.mark.parametrize("name", [name for name in IMPUTERS if name != "table"])
def test_medians_are_those_of_draws(name, seed):
    """Half of the draws are below, up to few of them and the error of chains."""
    _, X = skewed(seed)
    fitted = clone(IMPUTERS[name])
    if "n_draws" in fitted.get_params(deep=False):
        fitted.set_params(n_draws=256)
    if hasattr(fitted, "n_parameter_draws"):
        fitted.set_params(n_parameter_draws=0)
    fitted.fit(X)
    drawn = fitted.sample(X, 200, random_state=0, as_array=True)
    below = (drawn < filled(fitted, X, "median")).mean(0)[np.isnan(X)]
    assert abs(below.mean() - 0.5) < 0.03
    assert abs(below - 0.5).mean() < 0.09
    below = (drawn < filled(fitted, X, "mean")).mean(0)[np.isnan(X)]
    if name != "energy":
        assert below.mean() > 0.53  # control: draws are skewed


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", OF_LEVELS)
def test_levels_do_not_depend_on_the_strategy(name, seed):
    frame = with_levels(skewed(seed)[1], seed)
    fitted = clone(IMPUTERS[name]).set_output(transform="pandas").fit(frame)
    mean, *others = (fitted.set_params(strategy=s).transform(frame) for s in STRATEGIES)
    for other in others:
        pd.testing.assert_series_equal(other["level"], mean["level"])
        assert not np.allclose(other[list("abcd")], mean[list("abcd")])  # control


@pytest.mark.parametrize("name", OF_LEVELS)
def test_a_table_of_levels_alone_has_no_strategy(name, seed):
    frame = with_levels(skewed(seed)[1], seed)[["level"]]
    frame["other"] = frame["level"].sample(frac=1, random_state=0).to_numpy()
    imputer = clone(IMPUTERS[name]).set_params(strategy="median")
    with pytest.warns(UserWarning, match="strategy='median' has no effect: no column"):
        imputer.fit(frame)


def test_the_strategy_of_the_model_counts(seed):
    _, X = skewed(seed, n=80)
    of_median = skvnce.ConstrainedImputer(
        skvnce.GaussianImputer(strategy="median", **QUIET)
    )
    median = clone(of_median).fit(X)
    mean = clone(of_median).set_params(model__strategy="mean").fit(X)
    assert not np.allclose(median.transform(X), mean.transform(X))


@pytest.mark.parametrize("name", ["normal", "lair"])
def test_medians_and_modes_are_valid_values(name, seed):
    X = np.round(3 * skewed(seed)[1])
    frame = pd.DataFrame(X).assign(e=2 * X[:, 0] + X[:, 1] ** 3)
    fitted, hidden = clone(IMPUTERS[name]).fit(frame.to_numpy()), np.isnan(X)
    for strategy in ("median", "mode"):
        found = filled(fitted, frame.to_numpy(), strategy)
        assert (found == np.round(found)).all()
        # on the grid of the values, and of their sign
        assert (found[:, 0][hidden[:, 0]] >= 0).all() or np.nanmin(X[:, 0]) < 0


# exact answers


def test_medians_of_lognormal_columns_are_exact(seed):
    """Scores are normal: the median is the cell of their conditional mean."""
    _, X = skewed(seed, n=400)
    imputer = skvnce.GaussianImputer(strategy="median", shrinkage=0.1, **QUIET).fit(X)
    assert imputer.nonlinear_columns_.any()
    imputer.calibrated_columns_[:] = False
    model = imputer._cell_model()
    plain = model._replace(model=model.model._replace(calibration=None, steps=None))
    copula, units = plain.model, plain.units
    scores = copula.predictor_scores(units.scaled(X)).to_array()
    mean, covariance = (part.numpy() for part in copula.normal)
    exact = copula.cells(torch.from_numpy(normal_means(mean, covariance, scores)))
    found, _ = plain.points(X, np.array([0.5]))
    hidden = np.isnan(X)
    expected = units.restored(exact)[hidden]
    np.testing.assert_allclose(found[0][hidden], expected, rtol=1e-9)


@pytest.mark.parametrize("sides", [("lower",), ("lower", "upper")])
def test_medians_within_limits_are_those_of_the_truncated_normal(sides, rng):
    X = rng.normal(size=(300, 1)) + rng.normal(size=(300, 3))
    X[:100, 0] = np.nan
    imputer = skvnce.GaussianImputer(
        strategy="median", marginals="normal", shrinkage=0.01, **QUIET
    ).fit(X)
    ends = {"lower": np.full(X.shape, np.nan), "upper": np.full(X.shape, np.nan)}
    ends["lower"][:100, 0], ends["upper"][:100, 0] = 0.5, 2.0
    ends = {side: ends[side] for side in sides}
    missing = X[:100]
    mean = normal_means(imputer.mean_, imputer.covariance_, missing)[:, 0]
    cov = imputer.covariance_
    scale = np.sqrt(cov[0, 0] - cov[0, 1:] @ np.linalg.solve(cov[1:, 1:], cov[1:, 0]))
    high = 2.0 if "upper" in sides else np.inf
    low, high = (0.5 - mean) / scale, (high - mean) / scale
    exact = truncnorm(low, high, loc=mean, scale=scale).ppf(0.5)
    found = imputer.transform(X, **ends)[:100, 0]
    if not imputer.calibrated_columns_[0]:
        np.testing.assert_allclose(found, exact, atol=5e-3 * scale)
    assert (found >= 0.5).all()
    everywhere = imputer.transform(X)[:100, 0]
    assert abs(everywhere - exact).mean() > 0.05 * scale  # control


def test_medians_by_chains_are_those_of_the_normal_distribution(seed):
    """Numbers without repeated values and limits have jointly normal scores."""
    _, X = skewed(seed)
    X += 1e-9 * np.random.default_rng(seed).random(X.shape)  # no ties at the ends
    learner = skvnce.CopulaGraphLearner(max_iter=20, **QUIET).fit(X)
    model, hidden = learner._cell_model(), np.isnan(X)
    marginals = model.latents.marginals
    columns = [
        one.scores(torch.from_numpy(x)) for one, x in zip(marginals, X.T, strict=True)
    ]
    scores = np.where(hidden, np.nan, np.column_stack([low for low, _ in columns]))
    mean, covariance = (part.numpy() for part in model.normal)
    exact = normal_means(mean, covariance, scores)
    exact = np.column_stack(
        [
            one.cells(torch.from_numpy(x))
            for one, x in zip(marginals, exact.T, strict=True)
        ]
    )
    [median], _ = model.points(X, np.array([0.5]))
    assert abs((median - exact)[hidden]).mean() < 0.03 * np.nanstd(X)
    others = learner.transform(X) - exact
    assert abs(others[hidden]).mean() > 0.1 * np.nanstd(X)  # control


def test_marginal_columns_have_weighted_medians(rng):
    X = rng.lognormal(size=(101, 2))
    X[:20, 0] = np.nan
    imputer = skvnce.GaussianImputer(marginals="normal", **QUIET).fit(X)
    best = np.nanmean(X[:, 0])
    values = np.sort(X[20:, 0])
    below = np.arange(1, 81) / 81
    marginals = {0: Marginal(best, values, below)}
    schema = imputer._schema._replace(marginals=marginals)
    imputer._publish(imputer._fitted._replace(schema=schema))
    for strategy, expected in (("mean", best), ("median", np.median(values))):
        found = filled(imputer, X, strategy)[:20, 0]
        np.testing.assert_allclose(found, expected)


def test_modes_are_near_the_most_probable_value(seed):
    """Quantiles of a normal distribution are closest to each other at its mean."""
    strategy = STRATEGIES["mode"]
    points = norm(2.0, 0.5).ppf(strategy.levels)
    assert abs(half_sample_mode(points) - 2.0) < 0.05
    points = np.exp(norm(0.0, 0.7).ppf(strategy.levels))
    assert abs(half_sample_mode(points) - np.exp(-0.49)) < 0.05
