"""What `sample`, `sample_latents` and `sample_rows` return, in all that have them."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from cases import SMALL, quick_gaussian
from energies import Factor
from errors import refused
from sklearn.linear_model import LinearRegression
from statistical import FAILURE, p_mean, within_standard_errors

from skvnce import (
    ColumnImputer,
    ConstrainedImputer,
    CopulaGraphLearner,
    GaussianImputer,
    IncompleteFactorAnalysis,
    LAIRImputer,
    MixtureImputer,
    MultipleImputationRegressor,
    VariationalAutoencoder,
    VGIImputer,
    VNCEEstimator,
)
from skvnce.evaluation import imputation_report
from skvnce.options import IncompleteDensity
from skvnce.testing._requirements import draws_cells

LINEAR = VariationalAutoencoder(max_iter=0)
QUICK = {"random_state": 0, "on_misfit": "ignore"}
SHORT = {"n_steps": 1, "n_draws": 4, "add_indicator": True, **QUICK}


def with_indicators(estimator):
    options = {"add_indicator": True} if hasattr(estimator, "add_indicator") else {}
    return sklearn.clone(estimator).set_params(**options)


OF_CELLS = {name: with_indicators(v) for name, v in SMALL.items() if draws_cells(v)}
OF_CELLS["latents"] = VNCEEstimator(Factor, max_iter=1, **QUICK)
OF_ROWS = {name: one for name, one in SMALL.items() if hasattr(one, "sample_rows")}
OF_ROWS["NoisyOr"] = sklearn.clone(SMALL["NoisyOr"]).set_params(binarize=2.0)
NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def frame():
    """A frame with a constant column, and one without an observed cell."""
    rng = np.random.default_rng(0)
    X = rng.gamma(4.0, size=(60, 1)) + rng.gamma(2.0, size=(60, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    X[0] = np.nan
    index = [f"row {i}" for i in range(60)]
    return pd.DataFrame(X, index, list("abc")).assign(d=2.0, e=np.nan)


@pytest.fixture(scope="module")
def fitted(frame):
    """Give estimators fitted to the frame, each made once."""
    cache = {}

    def fit(kind, name):
        if (id(kind), name) not in cache:
            cache[id(kind), name] = sklearn.clone(kind[name]).fit(frame)
        return cache[id(kind), name].set_output(transform="default")

    return fit


pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings(
        "ignore:Entirely missing",
        "ignore:Constant where observed",
        "ignore::sklearn.exceptions.ConvergenceWarning",
    ),
]


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", OF_CELLS)
def test_draws_are_a_list_of_arrays_or_one_array(fitted, frame, name):
    model = fitted(OF_CELLS, name)
    for X in (frame, frame.astype(np.float32)):
        tables = model.sample(X, 3, 0)
        assert type(tables) is list and len(tables) == 3
        stacked = model.sample(X, n_draws=3, random_state=0, as_array=True)
        assert type(stacked) is np.ndarray and stacked.shape == (3, 60, 4)
        for table, same in zip(tables, stacked, strict=True):
            assert type(table) is np.ndarray
            assert table.dtype == model.transform(X).dtype == np.asarray(X).dtype
            np.testing.assert_array_equal(table, same)
            assert np.isfinite(table).all() and (table[:, 3] == 2).all()
        cells = np.asarray(X)[:, :4]
        observed = ~np.isnan(cells)
        np.testing.assert_array_equal(tables[0][observed], cells[observed])
        assert (tables[0] != tables[1])[:, :3].any()


@pytest.mark.quick
@pytest.mark.parametrize("name", OF_CELLS)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_draws_come_in_the_container_of_transform(fitted, frame, name, library):
    model = fitted(OF_CELLS, name)
    expected = model.sample(frame, 2, random_state=0)
    with sklearn.config_context(transform_output=library):
        globally = sklearn.clone(model)
        vars(globally).update(vars(model))
        vars(globally).pop("_sklearn_output_config")
        found = globally.sample(frame, 2, random_state=0)
    model.set_output(transform=library)
    kind = {"pandas": pd.DataFrame, "polars": pl.DataFrame}[library]
    assert type(model.transform(frame)) is kind
    for tables in (found, model.sample(frame, 2, random_state=0)):
        for table, values in zip(tables, expected, strict=True):
            assert type(table) is kind and list(table.columns) == NAMES
            np.testing.assert_array_equal(table.to_numpy(), values)
            if library == "pandas":
                assert list(table.index) == list(frame.index)
    assert type(model.sample(frame, as_array=True)) is np.ndarray


@pytest.mark.parametrize("name", OF_CELLS)
def test_parameters_of_sample_are_checked(fitted, frame, name):
    methods = [fitted(OF_CELLS, name).sample]
    if name == "latents":
        methods.append(fitted(OF_CELLS, name).sample_latents)
    for method in methods:
        refused(ValueError, "n_draws must be finite and at least 1", method, frame, 0)
        refused(TypeError, "n_draws must be an integer", method, frame, 1.5)
        refused(TypeError, "as_array must be a bool", method, frame, as_array=1)
        refused(TypeError, "positional", method, frame, 1, 0, True)


def test_latents_are_drawn_in_the_container_of_transform(fitted, frame):
    model = fitted(OF_CELLS, "latents")
    drawn = model.sample_latents(frame, 3, 0, as_array=True)
    assert drawn.shape == (3, 60, 1) and np.isfinite(drawn).all()
    tables = model.sample_latents(frame, 3, 0)
    np.testing.assert_array_equal(tables, drawn)
    model.set_output(transform="pandas")
    tables = model.sample_latents(frame, 3, 0)
    for table, values in zip(tables, drawn, strict=True):
        expected = pd.DataFrame(values, frame.index, ["vnceestimator0"])
        pd.testing.assert_frame_equal(table, expected)
    with pytest.raises(ValueError, match="no latents. sample draws missing cells"):
        fitted(OF_CELLS, "VNCEEstimator").sample_latents(frame)


@pytest.mark.parametrize(
    ("model", "method", "why"),
    [
        (VGIImputer(), "sample_rows", "MixtureImputer and CopulaGraphLearner draw new"),
        (GaussianImputer(groups="a"), "sample_rows", "GaussianImputer without groups"),
        (ColumnImputer(), "score_samples", "no log-density"),
    ],
)
def test_what_a_model_lacks_is_an_error_with_a_reason(model, method, why):
    message = f"{type(model).__name__}.* has no attribute '{method}'"
    with pytest.raises(AttributeError, match=message) as failure:
        getattr(model, method)
    assert why in str(failure.value.__cause__)
    assert not hasattr(model, method)
    other = GaussianImputer()
    assert getattr(other, method).__self__ is other
    assert getattr(GaussianImputer, method).__name__ == method


@pytest.mark.parametrize("name", OF_ROWS)
def test_new_rows_are_an_array_of_all_columns(fitted, name):
    model = fitted(OF_ROWS, name)
    rows = model.sample_rows(5, 0)
    assert type(rows) is np.ndarray and rows.dtype == float and rows.shape == (5, 5)
    assert (np.isnan(rows) == (np.arange(5) == 4)).all()
    np.testing.assert_array_equal(rows, model.sample_rows(n_rows=5, random_state=0))
    assert not np.array_equal(rows, model.sample_rows(5, 1), equal_nan=True)
    assert model.sample_rows().shape == (1, 5)
    if name != "NoisyOr":
        assert (rows[:, 3] == 2).all()
    refused(ValueError, "n_rows must be finite and at least 1", model.sample_rows, 0)
    refused(TypeError, "n_rows must be an integer", model.sample_rows, 2.0)


def correlated(seed, n=400):
    """Draw rows of a normal distribution with missing values."""
    rng = np.random.default_rng(seed)
    root = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [-0.5, 0.2, 1.0]])
    X = [5.0, -2.0, 100.0] + rng.normal(size=(n, 3)) @ root.T * [1.0, 3.0, 10.0]
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def has_moments(rows, mean, covariance):
    """Tell whether rows may come from a normal distribution of these moments."""
    residual = rows - mean
    found = residual.T @ residual / len(rows)
    variance = np.diag(covariance)
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / len(rows))
    return p_mean(rows, mean) > FAILURE and within_standard_errors(
        found, covariance, error
    )


def test_new_rows_have_the_fitted_moments(seed):
    X = correlated(seed)
    free = {"min_value": -np.inf, "max_value": np.inf, "on_misfit": "ignore"}
    normal = GaussianImputer(marginals="normal", random_state=seed, **free).fit(X)
    model = normal._cell_model()
    # calibration moves draws of about one such table in 170
    copula = model.model._replace(calibration=None)
    normal._replace_in_model(model=model._replace(model=copula))
    factors = IncompleteFactorAnalysis(1).fit(X)
    for model, covariance in (
        (normal, normal.covariance_),
        (factors, factors.get_covariance()),
    ):
        rows = model.sample_rows(20000, random_state=seed)
        assert has_moments(rows, model.mean_, covariance)
        assert not has_moments(rows, model.mean_, covariance * 1.1)
        assert not has_moments(rows, model.mean_ + 0.1 * np.nanstd(X, 0), covariance)


FILLS = [
    LAIRImputer(LINEAR, n_estimators=1, n_draws=5, n_steps=2, random_state=0),
    VGIImputer(IncompleteDensity("flow", max_iter=0), n_estimators=1, **SHORT),
    MixtureImputer(1, n_estimators=1, categorical_features=[2], random_state=0),
    ColumnImputer(regressor=LinearRegression(), random_state=0),
    ConstrainedImputer(
        MixtureImputer(1, n_estimators=1, categorical_features=[2]), random_state=0
    ),
    CopulaGraphLearner(0.1, random_state=0),
    VNCEEstimator(random_state=0),
]
POOLED = [
    quick_gaussian(categorical_features=[2]),
    MixtureImputer(1, n_estimators=1, random_state=0),
    ConstrainedImputer(random_state=0),
]


@pytest.mark.parametrize("imputer", FILLS + POOLED, ids=lambda i: type(i).__name__)
def test_several_draws_that_are_for_filling_are_announced(imputer, rng_0):
    """Once a call."""
    X = rng_0.normal(size=(100, 1)) + rng_0.normal(size=(100, 3))
    X[:, 2] = X[:, 2] > 0
    X[:20, 0], X[20:40, 1] = np.nan, np.nan
    imputer.fit(X)
    with warnings.catch_warnings(record=True, action="always") as caught:
        imputer.sample(X, n_draws=2, random_state=0)
    said = [str(one.message) for one in caught if "for filling" in str(one.message)]
    assert len(said) == (imputer in FILLS)
    if said:
        assert said[0].startswith(f"Draws of {type(imputer).__name__} are for filling")
        assert "Use TableImputer for estimates with standard errors." in said[0]
        assert caught[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        imputer.sample(X, random_state=0)
        imputer.quantile(X, n_draws=3, random_state=0)


def test_draws_are_not_announced_where_no_estimates_are_pooled(rng):
    X = rng.normal(size=(100, 1)) + rng.normal(size=(100, 2))
    X[:20, 0], X[20:40, 1] = np.nan, np.nan
    options = {"n_estimators": 2, "n_draws": 2, "random_state": 0}
    with warnings.catch_warnings(action="error"):
        imputation_report({"draws": FILLS[0]}, X, n_repeats=1, random_state=0)
        model = MultipleImputationRegressor(FILLS[0], LinearRegression(), **options)
        model.fit(X, rng.normal(size=100)).predict(X[:5])
