"""Prediction from several draws of the missing cells."""

from contextlib import contextmanager

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from errors import refused
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal
from scipy.special import expit
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from statistical import standard_errors, within_standard_errors

from skvnce import (
    GaussianImputer,
    MultipleImputationClassifier,
    MultipleImputationRegressor,
)
from skvnce.predictors import estimator
from skvnce.predictors.out_of_fold import Residuals, splits

pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
PLAIN = GaussianImputer(marginals="normal", n_parameter_draws=0)
SHORT = GaussianImputer(max_iter=20, n_parameter_draws=2)
FEW = {"n_estimators": 3, "n_draws": 6, "random_state": 0}
LINEAR = MultipleImputationRegressor(PLAIN, LinearRegression(), **FEW)
LOGISTIC = MultipleImputationClassifier(PLAIN, LogisticRegression(), **FEW)
both = pytest.mark.parametrize("predictor", [LINEAR, LOGISTIC])


class Numbered(BaseEstimator):
    """Fill the missing cells of the k-th draw by k."""

    def fit(self, *tables, **given):
        self.given_ = tables, given
        self.n_features_in_ = np.shape(tables[0])[1]
        return self

    def sample(self, X, n_draws, random_state):
        return [np.where(np.isnan(X), k, X) for k in range(n_draws)]


def rows(seed=0, n=120):
    """Draw three correlated columns with missing cells, and a target in 0, 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1)) + rng.normal(size=(n, 3))
    y = (X.sum(1) + rng.normal(size=n) > 0).astype(int)
    X[rng.random(X.shape) < 0.3] = np.nan
    return X, y


@pytest.fixture
def X():
    return rows()[0]


@pytest.fixture
def y():
    return rows()[1]


def mixed(n=150):
    """Draw a frame with numbers, categories and strings, and a target."""
    rng = np.random.default_rng(0)
    town = rng.choice(["a", "b", "c"], n)
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "town": pd.Categorical(town),
            "visits": pd.array(rng.poisson(4, n), dtype="Int64"),
            "kind": pd.array(rng.choice(["x", "y"], n), dtype="string"),
        }
    )
    y = frame["age"].to_numpy() / 10 + 3 * (town == "b") + rng.normal(size=n)
    return frame.mask(rng.random(frame.shape) < 0.25), y


def test_predictions_are_averages_over_models_and_draws(X, y):
    few = {"n_estimators": 2, "n_draws": 5}
    model = MultipleImputationRegressor(Numbered(), LinearRegression(), **few).fit(X, y)
    new = X[:30]
    models = [LinearRegression().fit(np.where(np.isnan(X), k, X), y) for k in (0, 1)]
    tables = [np.where(np.isnan(new), k, new) for k in range(5)]
    expected = np.mean([models[k % 2].predict(tables[k]) for k in range(5)], 0)
    assert_allclose(model.predict(new), expected)
    few = {"n_estimators": 1, "n_draws": 3}
    other = MultipleImputationClassifier(Numbered(), LogisticRegression(), **few)
    other.fit(X, y)
    one = LogisticRegression().fit(np.nan_to_num(X), y)
    result = other.predict_proba(new)
    expected = np.mean([one.predict_proba(table) for table in tables[:3]], 0)
    assert_allclose(result, expected)
    assert_array_equal(other.predict(new), expected.argmax(1))


def test_the_imputer_does_not_see_the_target(X, y):
    model = MultipleImputationRegressor(Numbered(), Ridge(), **FEW).fit(X, y)
    [table], given = model.imputer_.given_
    assert_array_equal(table, X)
    assert given == {}
    first = clone(LINEAR).fit(X, y).imputer_
    assert_array_equal(first.covariance_, clone(LINEAR).fit(X, -y).imputer_.covariance_)


@both
def test_complete_tables_get_predictions_of_the_model(predictor, X, y):
    X = np.nan_to_num(X)
    fitted, alone = clone(predictor).fit(X, y), clone(predictor.estimator).fit(X, y)
    assert_allclose(fitted.predict(X), alone.predict(X))
    assert fitted.score(X, y) == pytest.approx(alone.score(X, y))
    if predictor is LOGISTIC:
        assert_allclose(fitted.predict_proba(X), alone.predict_proba(X))


def test_probabilities_are_those_without_the_missing_cell(seed, rng):
    """The mean of expit(a + b x) over the conditional normal, by quadrature."""
    X = rng.normal(size=(1500, 1)) + 0.7 * rng.normal(size=(1500, 2))
    y = rng.random(1500) < expit(4 * X[:, 1])
    n_draws = 500
    model = MultipleImputationClassifier(
        PLAIN, LogisticRegression(), n_estimators=1, n_draws=n_draws, random_state=seed
    ).fit(X, y)
    new = np.column_stack([X[:200, 0], np.full(200, np.nan)])
    mean, cov = model.imputer_.mean_, model.imputer_.covariance_
    center = mean[1] + cov[1, 0] / cov[0, 0] * (new[:, 0] - mean[0])
    spread = np.sqrt(cov[1, 1] - cov[1, 0] ** 2 / cov[0, 0])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    logistic = model.estimators_[0]

    def probability(cells):
        (a, b), c = logistic.coef_[0], logistic.intercept_
        return expit(c + a * new[:, :1] + b * cells)

    values = probability(center[:, None] + spread * nodes)
    exact = values @ weights / weights.sum()
    error = np.sqrt((values**2 @ weights / weights.sum() - exact**2) / n_draws)
    result = model.predict_proba(new)[:, 1]
    assert within_standard_errors(result, exact, error)
    filled = probability(center[:, None])[:, 0]
    assert not within_standard_errors(filled, exact, error)


def regression(seed, n):
    """Draw a table whose second column matters, and is missing in half of the rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1)) + rng.normal(size=(n, 2))
    y = 2 * X[:, 1] + rng.normal(size=n)
    X[rng.random(n) < 0.5, 1] = np.nan
    return X, y


@pytest.mark.parametrize("model", [LinearRegression(), KNeighborsRegressor(3)])
def test_intervals_contain_new_targets(seed, model):
    """Whether or not the model is right, if new rows are like the training rows."""
    n, n_new, level = 500, 4000, 0.9
    X, y = regression(2 * seed, n)
    new, target = regression(2 * seed + 1, n_new)
    fitted = MultipleImputationRegressor(PLAIN, model, cv=5, random_state=seed)
    lower, upper = fitted.fit(X, y).interval(new, level)
    allowed = standard_errors() * np.sqrt(level * (1 - level) * (1 / n + 1 / n_new))

    def share(target):
        return ((lower <= target) & (target <= upper)).mean()

    assert abs(share(target) - level) < allowed
    noisy = target + 3 * np.random.default_rng(seed).normal(size=n_new)
    assert share(noisy) < level - allowed
    missing = np.isnan(new[:, 1])
    lengths = upper - lower
    assert lengths[missing].mean() > lengths[~missing].mean()


def test_noise_is_estimated(seed):
    X, y = regression(seed, 2000)
    X[:, 1] = np.where(np.isnan(X[:, 1]), 0.0, X[:, 1])
    y = 2 * X[:, 1] + np.random.default_rng(seed + 50).normal(size=2000)
    noise_variance = clone(LINEAR).set_params(cv=5).fit(X, y).noise_variance_
    assert within_standard_errors(noise_variance, 1.0, np.sqrt(2 / 2000) * 1.01)


def test_ends_of_intervals_are_order_statistics():
    y = np.random.default_rng(0).normal(size=19)
    known = Residuals.of(np.zeros((1, 19)), y, np.ones(19))
    lower, upper = known.interval(np.array([[5.0]]), 0.9)
    assert_allclose([lower[0], upper[0]], [5 + y.min(), 5 + y.max()])
    lower, upper = known.interval(np.array([[5.0]]), 0.5)
    assert_allclose([lower[0], upper[0]], 5 + np.sort(y)[[4, 14]])
    with pytest.raises(ValueError, match="at least 39 training rows, got 19"):
        known.interval(np.zeros((1, 1)), 0.95)


def test_standard_deviations_are_those_of_the_equation():
    """The variance of a prediction, by hand, and that of the noise."""
    predictions = np.array([[0.0, 1.0, 5.0], [2.0, 1.0, 8.0], [4.0, 4.0, 2.0]])
    y = np.array([9.0, -6.0, 7.0])
    between = 4 / 3 * np.array([4.0, 3.0, 9.0])  # (1 + 1 / n) b
    gap = y - [2.0, 2.0, 5.0]
    known = Residuals.of(predictions, y, np.ones(3))
    noise = (gap**2).mean() - between.mean()
    assert known.noise_variance == pytest.approx(noise)
    ratios = np.sort(gap / np.sqrt(noise + between))
    assert_allclose(known.residuals, ratios)
    lower, upper = known.interval(np.array([[1.0], [2.0], [3.0]]), 0.5)
    s = np.sqrt(noise + 4 / 3)
    assert_allclose([lower[0], upper[0]], 2 + s * ratios[[0, 2]])


def test_weights_of_residuals_count_as_rows(rng_0):
    y, predictions = rng_0.normal(size=300), rng_0.normal(size=(4, 300))
    weights = rng_0.integers(0, 4, 300).astype(float)
    often = np.repeat(np.arange(300), weights.astype(int))
    given = Residuals.of(predictions, y, weights)
    repeated = Residuals.of(predictions[:, often], y[often], np.ones(len(often)))
    assert given.noise_variance == pytest.approx(repeated.noise_variance)
    assert given.weights.mean() == pytest.approx(1)
    new = rng_0.normal(size=(4, 5))
    pairs = zip(given.interval(new, 0.8), repeated.interval(new, 0.8), strict=True)
    for one, other in pairs:
        assert_allclose(one, other, atol=0.05)


def test_perfect_predictions_have_intervals_of_length_zero():
    X, _ = rows()
    X = np.nan_to_num(X)
    fitted = clone(LINEAR).set_params(cv=5).fit(X, np.full(len(X), 3.0))
    lower, upper = fitted.interval(X)
    assert_allclose(lower, 3, atol=1e-9)
    assert_allclose(upper, 3, atol=1e-9)


@pytest.mark.quick
@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("how", ["trees", "pipeline"])
def test_mixed_frames_reach_the_models_with_their_data_types(library, how):
    frame, y = mixed()
    kept = frame.copy()
    model = HistGradientBoostingRegressor(max_iter=10)
    if how == "pipeline":
        encoder = OneHotEncoder(handle_unknown="ignore")
        names = ["town", "kind"]
        columns = make_column_transformer((encoder, names), remainder=StandardScaler())
        model = make_pipeline(columns, Ridge())
        if library == "pandas":
            numbers = make_column_selector(dtype_include="number")
            model.steps[0][1].set_params(remainder="drop")
            model.steps[0][1].transformers.append(("n", StandardScaler(), numbers))
    elif library == "polars":
        frame = frame.drop(columns="kind")
    X = frame if library == "pandas" else pl.from_pandas(frame)
    if how == "trees" and library == "pandas":
        X = X.astype({"kind": "category"})
    predictor = MultipleImputationRegressor(SHORT, model, cv=2, **FEW)
    predictor.fit(X[:100], y[:100])
    assert list(predictor.feature_names_in_) == list(frame)
    assert predictor.score(X[100:], y[100:]) > 0.3
    lower, upper = predictor.interval(X[100:], 0.5)
    assert (lower < upper).all()
    if how == "trees":
        categories = predictor.estimators_[0].is_categorical_
        assert categories[list(frame).index("town")]
    if library == "pandas" and how == "pipeline":
        assert_frame_equal(frame, kept)


def test_labels_may_be_strings_and_containers_do_not_matter(X, y):
    names = np.array(["no", "yes"])[y]
    expected = clone(LOGISTIC).fit(X, y)
    series = pd.Series(names, dtype="string"), pl.Series(names)
    for given in (names, list(names), *series):
        fitted = clone(LOGISTIC).fit(pd.DataFrame(X, columns=list("abc")), given)
        assert list(fitted.classes_) == ["no", "yes"]
        frame = pd.DataFrame(X, columns=list("abc"), dtype="Float64")
        assert_allclose(fitted.predict_proba(frame), expected.predict_proba(X))
        assert set(fitted.predict(frame)) == {"no", "yes"}
    result = clone(LOGISTIC).fit(X.tolist(), y.tolist()).predict_proba(X.tolist())
    assert_allclose(result, expected.predict_proba(X))


def test_a_fitted_imputer_is_kept_in_a_frozen_estimator(X, y):
    fitted = clone(PLAIN).fit(X)
    before = dict(vars(fitted))
    predictor = clone(LINEAR).set_params(imputer=FrozenEstimator(fitted))
    expected = clone(LINEAR).fit(X, y).imputer_
    imputer = predictor.fit(X[:60], y[:60]).imputer_
    assert_array_equal(imputer.covariance_, expected.covariance_)
    frame = pd.DataFrame(X)
    assert np.isfinite(predictor.fit(frame, y).predict(frame)).all()
    assert vars(fitted).keys() == before.keys()


@both
def test_missing_cells_may_be_anywhere(predictor, X, y):
    X[[2, 40]] = np.nan
    fitted = clone(predictor).fit(X, y)
    empty = X.copy()
    empty[:, 1] = np.nan
    for table in (X, np.nan_to_num(X), empty, X[:1], X[2:3], X.astype(np.float32)):
        predicted = fitted.predict(table)
        assert predicted.shape == (len(table),) and np.isfinite(predicted).all()
    assert np.isfinite(clone(predictor).fit(empty, y).predict(X)).all()
    X[0, 0] = np.inf
    for call in (fitted.predict, lambda X: clone(predictor).fit(X, y)):
        refused(ValueError, "column 0, row 0|infinity", call, X)


def test_defaults_take_numbers_and_categories():
    frame, y = mixed()
    frame = frame.astype({"kind": "category"})
    few = {"n_estimators": 1, "n_draws": 1, "random_state": 0}
    fitted = MultipleImputationRegressor(**few).fit(frame, y)
    assert isinstance(fitted.imputer_, GaussianImputer)
    assert isinstance(fitted.estimators_[0], HistGradientBoostingRegressor)
    assert fitted.score(frame, y) > 0.5
    fitted = MultipleImputationClassifier(SHORT, **few).fit(frame, y > 6)
    assert isinstance(fitted.estimators_[0], HistGradientBoostingClassifier)
    assert fitted.score(frame, y > 6) > 0.7


@pytest.mark.quick(1)
@pytest.mark.parametrize("make", [pd.DataFrame.copy, pl.from_pandas, np.array])
def test_the_default_model_takes_strings_and_dates(make, rng):
    """A target that follows a string, and in frames a date, is predicted from them."""
    kind, day = rng.choice(["z", "x", "y"], 150), rng.integers(0, 300, 150)
    frame = pd.DataFrame({"age": rng.normal(50, 10, 150), "kind": kind})
    imputer, y = clone(SHORT), 10.0 * (kind == "x")
    if make is np.array:
        imputer.set_params(categorical_features=[1])
    else:
        frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(day, "D")
        y = y + day / 30
    frame = frame.mask(rng.random(frame.shape) < 0.05)
    few = {"n_estimators": 2, "n_draws": 2, "random_state": 0}
    train, test = make(frame[:100].reset_index(drop=True)), make(frame[100:])
    model = MultipleImputationRegressor(imputer, **few).fit(train, y[:100])
    assert model.score(test, y[100:]) > 0.6
    wrong = frame[100:].assign(kind=frame["kind"][:50].to_numpy())  # the control
    assert model.score(make(wrong), y[100:]) < 0.6
    classes = np.where(kind == "x", "yes", "no")
    model = MultipleImputationClassifier(imputer, calibration_cv=None, **few)
    assert model.fit(train, classes[:100]).score(test, classes[100:]) > 0.8


def test_codes_of_the_default_model_are_numbers_where_levels_are():
    frame, y = mixed()
    grade = pd.Categorical(np.where(y > 6, "high", "low"), ["low", "high"], True)
    frame = frame.assign(grade=grade, day=pd.Timestamp("2020-01-01"))
    few = {"n_estimators": 1, "n_draws": 1, "random_state": 0}
    model = MultipleImputationRegressor(SHORT, **few).fit(frame, y)
    (table,) = model._draw_tables(model.imputer_, frame, 1, np.random.default_rng(0))
    seen = frame["visits"].notna().to_numpy()
    assert_array_equal(table[seen, 2], frame["visits"][seen].astype(float))
    assert_array_equal(table[:, 4], grade.codes)
    nominal = model.estimators_[0].categorical_features
    assert nominal == [False, True, False, True, False, False]


@both
def test_defaults_compute_in_one_thread(predictor, monkeypatch):
    """Also where folds are predicted; other models have the threads of the user."""
    X, y = rows(n=60)
    limits = []

    @contextmanager
    def counted():
        limits.append(1)
        yield

    monkeypatch.setattr(estimator, "one_thread", counted)
    folds = {"cv" if predictor is LINEAR else "calibration_cv": 2}
    model = type(predictor)(PLAIN, n_estimators=2, n_draws=2, random_state=0, **folds)
    model.fit(X, y)
    assert len(limits) == 2 + 2 * (2 + 2)  # fits, and of each fold fits, predictions
    model.predict(X)
    assert len(limits) == 12
    clone(predictor).fit(X, y).predict(X)
    assert len(limits) == 12


@both
def test_weights_reach_the_model_and_the_imputer(predictor, monkeypatch, X, y, rng_0):
    weights = rng_0.integers(0, 3, len(X)).astype(float)
    fitted = clone(predictor).fit(X, y, sample_weight=weights)
    alone = clone(PLAIN).fit(X, sample_weight=weights)
    assert_allclose(fitted.imputer_.covariance_, alone.covariance_)
    equal = clone(predictor).fit(X, y, np.ones(len(X)))
    assert_allclose(equal.predict(X), clone(predictor).fit(X, y).predict(X))
    complete = np.nan_to_num(X)
    fitted = clone(predictor).fit(complete, y, weights)
    model = clone(predictor.estimator).fit(complete, y, weights)
    assert_allclose(fitted.estimators_[0].coef_, model.coef_)
    with pytest.raises(ValueError, match="Negative values|negative"):
        clone(predictor).fit(X, y, -weights)


def test_weights_of_the_default_regressor_count_as_rows(rng):
    X, y = rng.normal(size=(150, 3)), rng.normal(size=150)
    weights = rng.integers(0, 4, len(X))
    often = np.repeat(np.arange(len(X)), weights)
    few = {"n_estimators": 1, "n_draws": 1, "random_state": 0}
    new = X[weights > 0]  # elsewhere ties between splits matter
    given = MultipleImputationRegressor(**few).fit(X, y, weights).predict(new)
    repeated = MultipleImputationRegressor(**few).fit(X[often], y[often]).predict(new)
    assert_allclose(given, repeated, atol=1e-6)
    counted = HistGradientBoostingRegressor()  # leaves have 20 rows, of any weight
    predictor = MultipleImputationRegressor(None, counted, **few)
    given = predictor.fit(X, y, weights).predict(new)
    repeated = predictor.fit(X[often], y[often]).predict(new)
    assert abs(given - repeated).max() > 0.1


def test_weights_in_another_order_are_an_error(X, y):
    weights = pd.Series(np.arange(1.0, len(X) + 1))[::-1]
    message = "sample_weight has the rows of X in another order"
    refused(ValueError, message, clone(LINEAR).fit, pd.DataFrame(X), y, weights)


def test_weights_count_in_intervals():
    X, y = regression(0, 400)
    X = np.nan_to_num(X)
    weights = (np.arange(400) < 200).astype(float)
    cv = [(np.arange(400) % 2 == k, np.arange(400) % 2 != k) for k in (0, 1)]
    cv = [tuple(map(np.flatnonzero, fold)) for fold in cv]
    half = [tuple(rows[rows < 200] for rows in fold) for fold in cv]
    whole = clone(LINEAR).set_params(cv=cv).fit(X, y, weights)
    part = clone(LINEAR).set_params(cv=half).fit(X[:200], y[:200])
    assert_allclose(whole.interval(X), part.interval(X))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "predictor",
    [MultipleImputationRegressor(), MultipleImputationClassifier()],
    ids=lambda one: type(one).__name__,
)
def test_default_models_request_weights(predictor, X, y):
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    predictor = clone(predictor).set_params(n_estimators=1, n_draws=1, random_state=0)
    plain = clone(predictor).fit(X, y, sample_weight=weights).predict(X)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(predictor).fit(X, y, sample_weight=weights).predict(X)
    assert_array_equal(routed, plain)
    assert (plain != clone(predictor).fit(X, y).predict(X)).any()


def test_rows_without_weight_are_no_borders_of_the_default_model():
    rng = np.random.default_rng(3)
    X, new = rng.normal(size=(120, 2)), rng.normal(size=(500, 2))
    y, weights = X[:, 0] + rng.normal(size=120), np.repeat([1.0, 0.0], 60)
    predictor = MultipleImputationRegressor(n_estimators=1, n_draws=1, random_state=0)
    predicted = clone(predictor).fit(X, y, weights).predict(new)
    assert_array_equal(predicted, clone(predictor).fit(X[:60], y[:60]).predict(new))
    assert (predicted != clone(predictor).fit(X, y).predict(new)).any()


def test_weights_of_a_pipeline_are_routed(X, y):
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    model = make_pipeline(StandardScaler(), Ridge())
    predictor = clone(LINEAR).set_params(estimator=model)
    with pytest.raises(TypeError, match="Pipeline does not take sample_weight"):
        predictor.fit(X, y, weights)
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError):
            predictor.fit(X, y, sample_weight=weights)
        model[0].set_fit_request(sample_weight=False)
        model[1].set_fit_request(sample_weight=True)
        imputer = clone(PLAIN).set_fit_request(sample_weight=False)
        predictor.set_params(imputer=imputer).fit(X, y, sample_weight=weights)
        result = predictor.imputer_.covariance_
        assert_array_equal(result, clone(PLAIN).fit(X).covariance_)
        complete = np.nan_to_num(X)
        result = predictor.fit(complete, y, sample_weight=weights).predict(complete)
        scaled = StandardScaler().fit_transform(complete)
        expected = Ridge().fit(scaled, y, weights).predict(scaled)
        assert_allclose(result, expected)
        given = {"cv": 2, "params": {"sample_weight": weights}}
        scores = cross_val_score(predictor, X, y, **given)
        assert np.isfinite(scores).all()


def test_threads_and_chunks_do_not_matter(monkeypatch, X, y):
    expected = clone(LINEAR).fit(X, y)
    with joblib.parallel_config("threading"):
        fitted = clone(LINEAR).set_params(n_jobs=2).fit(X, y)
    assert_array_equal(fitted.predict(X), expected.predict(X))
    whole = expected.predict(X)
    monkeypatch.setattr(estimator, "_CHUNK", 6 * 3 * 50)
    parts = expected.predict(X)
    assert parts.shape == whole.shape
    complete = ~np.isnan(X).any(1)
    assert_allclose(parts[complete], whole[complete])
    assert np.corrcoef(parts, whole)[0, 1] > 0.9
    assert_allclose(parts[:50], expected.predict(X[:50]))


def test_a_fit_without_folds_has_no_residuals(X, y):
    fitted = clone(LINEAR).set_params(cv=5).fit(X, y)
    assert fitted.noise_variance_ > 0
    fitted.set_params(cv=None).fit(X, y)
    assert not hasattr(fitted, "noise_variance_")
    refused(ValueError, "fit with cv=5", fitted.interval, X)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"imputer": GaussianImputer}, TypeError, "imputer of .* must be an instance"),
        ({"estimator": Ridge}, TypeError, "estimator of .* must be an inst"),
        ({"estimator": LinearSVC()}, ValueError, "Wrap it: CalibratedClassifierCV"),
        ({"n_draws": 2}, ValueError, "n_draws=2 must be at least n_estimators=3"),
        ({"n_estimators": 0}, ValueError, "'n_estimators' parameter"),
    ],
)
def test_errors_of_parameters(change, error, message):
    refused(error, message, clone(LOGISTIC).set_params(**change).fit, *rows())
    with pytest.raises(ValueError, match="a regressor, got the classifier LogisticReg"):
        MultipleImputationRegressor(estimator=LogisticRegression()).fit(*rows())


@both
@pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
def test_missing_targets_are_an_error(predictor, missing, X, y):
    target = [*y[:5].tolist(), missing, *y[6:].tolist()]
    if missing is np.nan:
        target = np.array(target)
    with pytest.raises(ValueError, match="y contains NaN, the first in row 5. Leave"):
        clone(predictor).fit(X, target)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clone(predictor).fit(X, y[:-1])
    refused(ValueError, "requires y to be passed", clone(predictor).fit, X, None)


@pytest.mark.parametrize("by_class", [False, True])
def test_folds_have_whole_groups(by_class):
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(12), 5))
    y, rng = np.arange(60) % 2, np.random.default_rng(0)
    result = list(splits(4, y, rng, by_class=by_class, groups=groups))
    assert len(result) == 4
    for train, test in result:
        assert not set(groups[train]) & set(groups[test])
    apart = list(splits(4, y, rng, by_class=by_class))
    assert any(set(groups[train]) & set(groups[test]) for train, test in apart)
    assert len(list(splits(20, y, rng, groups=groups))) == 12


def test_intervals_leave_out_whole_groups(rng_0):
    code = np.repeat(np.arange(40), 6)
    X = pd.DataFrame({"g": code, "x": rng_0.normal(size=240)})
    X.loc[::5, "x"] = np.nan
    y = rng_0.normal(size=40)[code] * 3 + rng_0.normal(size=240)
    imputer = GaussianImputer(groups="g", max_iter=20, random_state=0)
    # a model that learns the groups by heart has small errors in their other rows
    model = KNeighborsRegressor(3)
    given = {"cv": 5, "n_estimators": 2, "random_state": 0}
    result = MultipleImputationRegressor(imputer, model, **given)
    low, high = result.fit(X, y).interval(X)
    assert (high - low).mean() > 8
