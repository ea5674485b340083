"""ColumnImputer: a model for each column, averaged with joint models; stacks."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from errors import refused
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.cluster import KMeans
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestRegressor, StackingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from statistical import FAILURE, p_share

from skvnce import (
    ColumnImputer,
    ConstrainedImputer,
    GaussianImputer,
    MixtureImputer,
    VNCEEstimator,
)
from skvnce.columns.fit import find_associated, hold_out_rows, options_of_quantiles
from skvnce.columns.model import Classification, Design, Quantiles, Regression

pytestmark = pytest.mark.usefixtures("short_training")
QUIET = {"on_misfit": "ignore", "random_state": 0}
PLAIN = GaussianImputer(marginals="normal", n_parameter_draws=0, **QUIET)
# of tables with categories, by a short chain
READER = GaussianImputer(n_parameter_draws=0, max_iter=30, **QUIET)
LINEAR = LinearRegression()
LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression())


class Spy(RegressorMixin, BaseEstimator):
    """Predicts the mean, and writes down what it and its clones are fitted to."""

    log = []

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        self.log.append({"X": X, "y": y, "seed": self.random_state})
        self.mean_ = y.mean()
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


class WeightedSpy(Spy):
    """A spy that takes weights."""

    def fit(self, X, y, sample_weight=None):
        super().fit(X, y)
        self.log[-1]["weight"] = sample_weight
        return self


class SpyClassifier(ClassifierMixin, BaseEstimator):
    """Predicts all levels alike, and writes down what it is fitted to."""

    def fit(self, X, y):
        Spy.log.append({"X": X, "y": y})
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


class Failing(RegressorMixin, BaseEstimator):
    """Cannot be fitted."""

    def fit(self, X, y):
        raise RuntimeError("out of luck.")

    def predict(self, X):
        return np.zeros(len(X))


class OfNormal(RegressorMixin, BaseEstimator):
    """Knows quantiles of the normal distribution around the first column."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X, y):
        return self

    def at(self, X, levels):
        return [X[:, 0] + self.scale * stats.norm.ppf(q) for q in levels]

    def predict(self, X, quantiles=None):
        return X[:, 0] if quantiles is None else np.stack(self.at(X, quantiles), 1)


class LikeTabPFN(OfNormal):
    """Has the interface of TabPFN: a list of quantiles."""

    def predict(self, X, *, output_type="mean", quantiles=None):
        return X[:, 0] if output_type == "mean" else self.at(X, quantiles)


class Nearest(KNeighborsRegressor):
    """Is sure that a row has the cell of the most similar one."""

    def predict(self, X, quantiles=()):
        return np.repeat(super().predict(X)[:, None], len(quantiles), axis=1)


class Duck:
    """Knows nothing of scikit-learn's tags."""

    def get_params(self, deep=True):
        return {}

    def fit(self, X, y):
        self.mean_ = y.mean()
        return self

    def predict(self, X):
        return np.full((len(X), 1), self.mean_)


@pytest.fixture(autouse=True)
def log():
    Spy.log.clear()
    return Spy.log


def columns(**given):
    """Make an imputer whose joint model is normal."""
    return ColumnImputer(given.pop("model", PLAIN), **{"random_state": 0, **given})


def linear(seed=0, n=200, noise=0.5, missing=0.3):
    """Make four columns, of which two are sums of the others and noise."""
    rng = np.random.default_rng(seed)
    pair = rng.normal(size=(n, 2))
    sums = pair @ [[1, 1], [1, -1]] + noise * rng.normal(size=(n, 2))
    full = np.column_stack([pair, sums])
    return np.where(rng.random(full.shape) < missing, np.nan, full), full


@pytest.fixture
def X():
    """Missing cells of four columns of 200 rows; see `linear`."""
    return linear()[0]


def folded(seed=0, n=500):
    """Make a column, a twin of it, and its absolute value, of which no line knows.

    Thanks to the twin, held-out cells of one column leave the others as they are.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    full = np.column_stack([x, x + 0.001 * rng.normal(size=n), abs(x)])
    X = full.copy()
    X[rng.random(n) < 0.3, 2] = np.nan
    return X, full


def mixed(n=150, seed=0):
    """Make a frame of two numbers, a nominal column, an ordered one and a binary."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "x": x,
            "y": 10 + 2 * x + rng.normal(size=n),
            "town": pd.Categorical(
                np.array(["a", "b", "c"])[np.digitize(x, [-0.5, 0.5])]
            ),
            "grade": pd.Categorical(rng.integers(1, 4, n), ordered=True),
            "yes": pd.Categorical(np.where(x > 0, "yes", "no")),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.2)


# which model a column has


def test_columns_have_models_by_type_and_by_name():
    X = mixed()
    imputer = columns(
        regressor=Ridge(),
        classifier=LOGISTIC,
        estimators={"y": KNeighborsRegressor(), "yes": None, "town": DummyClassifier()},
        weight=0.5,
        model=READER,
    ).fit(X)
    models = imputer._fitted.model
    names = X.columns[imputer.feature_indices_]
    found = {names[one.column]: type(one.model) for one in models}
    assert list(found) == ["x", "y", "town", "grade"]
    assert [*found.values()] == [Ridge, KNeighborsRegressor, DummyClassifier, Pipeline]
    assert imputer.weights_.tolist() == [0.5, 0.5, 0.5, 0.5, 0.0]


def test_columns_without_an_estimator_are_joint(X):
    imputer = columns(estimators={0: KNeighborsRegressor(), 1: None}).fit(X)
    assert imputer.weights_[1:].tolist() == [0, 0, 0]
    alone, found = imputer.model_.transform(X), imputer.transform(X)
    np.testing.assert_allclose(found[:, 1:], alone[:, 1:])
    assert (found[:, 0] != alone[:, 0]).any()  # negative control


def test_without_estimators_the_joint_model_is_all(X):
    imputer = ColumnImputer(PLAIN, random_state=0).fit(X)
    np.testing.assert_allclose(imputer.transform(X), imputer.model_.transform(X))
    assert type(ColumnImputer(random_state=0).fit(X).model_) is GaussianImputer


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_weights_can_be_given(weight):
    """A line of the completed rows, or nothing but the joint model."""
    X, _ = linear(missing=0.0)
    X[:20, 2] = np.nan
    imputer = columns(regressor=LINEAR, weight=weight).fit(X)
    line = LinearRegression().fit(X[20:][:, [0, 1, 3]], X[20:, 2])
    alone = line.predict(X[:20][:, [0, 1, 3]])
    expected = alone if weight else imputer.model_.transform(X)[:20, 2]
    np.testing.assert_allclose(imputer.transform(X)[:20, 2], expected)


def test_estimators_are_cloned_with_seeds_of_their_own(log, X):
    given = {"estimators": {0: Spy(), 1: Spy(), 2: Spy(7)}, "weight": 1.0}
    columns(**given).fit(X)
    seeds = {one["seed"] for one in log}
    assert None not in seeds and 7 in seeds and len(seeds) == 5  # two fits of two
    before = [one["seed"] for one in log]
    log.clear()
    columns(**given).fit(X)
    assert [one["seed"] for one in log] == before
    log.clear()
    columns(**given, random_state=1).fit(X)
    assert [one["seed"] for one in log] != before
    assert not any(hasattr(one, "mean_") for one in given["estimators"].values())


def test_seeds_reach_into_pipelines(log, X):
    columns(regressor=make_pipeline(StandardScaler(), Spy()), weight=1.0).fit(X)
    assert all(one["seed"] is not None for one in log)


# what it sees


def shifted_columns():
    """Make five columns around 0, 100, ..., 400, by which a spy tells them apart."""
    X = np.random.default_rng(0).normal(size=(80, 5)) + 100 * np.arange(5)
    X[:8, 1] = X[8:12, 3] = np.nan
    return X


def columns_seen(log):
    """List the places of the columns that each column was predicted by."""
    target = [round(one["y"].mean() / 100) for one in log]
    seen = [np.rint(one["X"].mean(0) / 100).astype(int).tolist() for one in log]
    return dict(zip(target, seen, strict=True))


SOME = {1: [0, 4], 3: [2]}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, {1: [0, 2, 3, 4], 3: [0, 1, 2, 4]}),
        (SOME, SOME),
        ({1: [0, 4], 3: None}, {1: [0, 4], 3: [0, 1, 2, 4]}),
        ({1: [4, 1]}, {1: [4], 3: [0, 1, 2, 4]}),  # a column does not see itself
        ({1: []}, {3: [0, 1, 2, 4]}),  # and without others it has no model
    ],
)
def test_estimators_see_the_columns_that_are_asked_for(asked, expected, log):
    X = shifted_columns()
    columns(estimators={1: Spy(), 3: Spy()}, predictors=asked, weight=1.0).fit(X)
    assert columns_seen(log) == expected


def test_columns_are_asked_for_by_name(log):
    X = pd.DataFrame(shifted_columns(), columns=list("abcde"))
    given = {"estimators": {"b": Spy()}, "predictors": {"b": ["a", "e"]}}
    columns(**given, weight=1.0).fit(X)
    assert columns_seen(log) == {1: [0, 4]}


def test_associated_columns_are_chosen(log, rng_0):
    """Column 4 repeats column 0, and column 2 is larger where column 1 is missing."""
    X = shifted_columns()
    X = np.concatenate([X, rng_0.normal(size=(2000, 5)) + 100 * np.arange(5)])
    X[:, 4] = X[:, 0] + 400 + rng_0.normal(size=len(X))
    X[X[:, 2] > 201, 1] = np.nan
    columns(estimators={0: Spy(), 1: Spy()}, predictors="auto", weight=1.0).fit(X)
    assert columns_seen(log) == {0: [4], 1: [2]}


def test_associations_are_correlations_of_rows_that_observe_both():
    X = pd.DataFrame(linear(n=60)[0]).assign(few=np.nan, constant=1.0)
    X.loc[:1, "few"] = [0.0, 1.0]  # of two rows
    nodes = X.to_numpy()
    seen = pd.DataFrame(X.notna().to_numpy().astype(float))
    values = pd.DataFrame(nodes)
    own = values.corr(min_periods=3).abs().fillna(0).to_numpy()
    missing = [[abs(seen[j].corr(values[k])) for k in values] for j in seen]
    with np.errstate(all="ignore"):
        expected = np.fmax(own, np.nan_to_num(missing)) >= 0.1
    found = find_associated(nodes, [False] * 6)
    few = np.array([4])
    np.testing.assert_array_equal(np.delete(found, few, 1), np.delete(expected, few, 1))
    assert not found[:, [4, 5]].any()


def test_nominal_predictors_are_indicators_ordered_codes(log):
    X = mixed()
    given = {"estimators": {"y": Spy(), "town": SpyClassifier()}, "weight": 1.0}
    columns(**given, model=READER).fit(X)
    kinds = {one["X"].shape[1]: one for one in log}
    assert set(kinds) == {6, 4}  # x, three towns, grade and yes; x, y, grade and yes
    seen = kinds[6]["X"]
    assert (seen[:, 1:4].sum(1) == 1).all() and set(np.unique(seen[:, 1:4])) == {0, 1}
    assert [set(np.unique(x)) for x in seen[:, 4:].T] == [{0, 1, 2}, {0, 1}]
    assert kinds[4]["y"].dtype.kind == "i"


def test_the_target_is_the_observed_cells(log, X):
    columns(estimators={2: Spy()}, weight=1.0).fit(X)
    own = X[~np.isnan(X[:, 2]), 2]
    np.testing.assert_array_equal(log[-1]["y"], own)
    assert not np.isnan(log[-1]["X"]).any()


def test_a_limit_of_rows(log, X):
    columns(estimators={2: Spy()}, max_samples=50, weight=1.0).fit(X)
    assert max(len(one["y"]) for one in log) == 50


# draws


def test_residuals_are_those_of_the_nearest_predictions(rng_0):
    """The oracle takes the 20 residuals around the place of the prediction."""
    predictions, residuals = np.sort(rng_0.normal(size=50)), rng_0.normal(size=50)
    design = Design((0,), (0,))
    line = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    one = Regression(1, line, design, predictions, residuals)
    uniform = (np.arange(20) + 0.5) / 20
    for mean in (-9.0, 0.1, 9.0):
        rows = np.full((20, 2), [mean, np.nan])
        drawn, means = one.draw(rows, uniform, with_means=True)
        np.testing.assert_allclose(means[:, 0], mean)
        above = int((predictions < mean).sum())
        first = min(max(above - 10, 0), 30)
        some = residuals[first : first + 20]
        np.testing.assert_allclose(drawn - mean, some, atol=1e-12)
    few = Regression(1, line, design, predictions[:3], residuals[:3])
    drawn = few.draw(rows, uniform)[0]
    assert np.isclose(drawn[:, None], 9 + residuals[:3]).any(1).all()


@pytest.mark.parametrize(("slope", "expected"), [(0.9, 0.91 / 0.19), (0.0, 1.0)])
def test_spreads_depend_on_the_prediction(slope, expected, seed):
    """Each spread is one of residuals of about 400 rows, with an error of 1 / 28.

    The noise has the standard deviation 0.1 + slope x; rows have x = 0 to 0.2, and 0.8
    to 1, whose root mean squares are 0.0577 from those of the middle, 1 % at most.
    """
    rng, n = np.random.default_rng(seed), 2000
    x = rng.uniform(size=n)
    y = x + (0.1 + slope * x) * rng.normal(size=n)
    imputer = columns(estimators={1: LINEAR}, weight=1.0).fit(np.column_stack([x, y]))
    deviations = []
    for low in (0.0, 0.8):
        x = low + 0.2 * rng.uniform(size=1000)
        rows = np.column_stack([x, np.full(1000, np.nan)])
        drawn = imputer.sample(rows, 5, 0, as_array=True)[..., 1]
        deviations.append((drawn - rows[:, 0]).std())
    found = np.log(deviations[1] / deviations[0])
    # 5 standard errors of a ratio, and 5 % for what is said above
    assert abs(found - np.log(expected)) < 5 * np.sqrt(2) / 28 + 0.05
    assert abs(found - np.log(1 / expected if slope else 2)) > 0.3  # negative control


@pytest.mark.parametrize("kind", [OfNormal, LikeTabPFN])
def test_quantiles_are_interpolated_exactly(kind):
    model = kind(2.0)
    options = options_of_quantiles(model)
    assert options == ({"output_type": "quantiles"} if kind is LikeTabPFN else {})
    one = Quantiles(1, model, Design((0,), (0,)), options)
    levels = np.arange(1, 100) / 100
    rows = np.full((99, 2), [3.0, np.nan])
    drawn, means = one.draw(rows, levels, with_means=True)
    np.testing.assert_allclose(drawn, 3 + 2 * stats.norm.ppf(levels))
    np.testing.assert_allclose(means, 3, atol=1e-9)
    middle, _ = one.draw(rows[:1], np.array([0.505]))
    ends = stats.norm.ppf([0.5, 0.51])
    np.testing.assert_allclose(middle, 3 + 2 * ends.mean())
    extreme, _ = one.draw(rows[:2], np.array([0.0, 1 - 1e-12]))
    np.testing.assert_allclose(extreme, 3 + 2 * stats.norm.ppf([0.01, 0.99]))


def test_regressors_without_quantiles_have_residuals():
    assert options_of_quantiles(LINEAR) is None
    assert options_of_quantiles(RandomForestRegressor()) is None


class Crossing(OfNormal):
    """Has quantiles in the wrong order."""

    def at(self, X, levels):
        return super().at(X, levels)[::-1]


def test_quantiles_may_cross():
    rows, uniform = np.zeros((9, 2)), np.arange(1, 10) / 10
    rest = Design((0,), (0,)), {}
    models = Quantiles(1, OfNormal(), *rest), Quantiles(1, Crossing(), *rest)
    pair = [one.draw(rows, uniform)[0] for one in models]
    np.testing.assert_allclose(*pair)


@pytest.mark.parametrize("kind", [OfNormal, LikeTabPFN])
def test_draws_follow_the_quantiles(kind, rng):
    """Kolmogorov and Smirnov; 1 % at each end is drawn between other quantiles."""
    x = rng.normal(size=1000)
    X = np.column_stack([x, x + rng.normal(size=1000)])
    rows = np.column_stack([np.zeros(2000), np.full(2000, np.nan)])
    distance = {}
    for scale in (1.0, 1.5):
        imputer = columns(estimators={1: kind(scale)}, weight=1.0).fit(X)
        drawn = imputer.sample(rows, 1, 0, as_array=True)[0, :, 1]
        distance[scale] = stats.kstest(drawn, stats.norm.cdf).statistic
    limit = 0.01 + stats.kstwo.isf(FAILURE, 2000)
    assert distance[1.0] < limit < distance[1.5]


def test_levels_are_drawn_by_probabilities():
    """The classifier has seen two of four levels; the others are nearly impossible."""
    model = DummyClassifier(strategy="prior").fit(np.zeros((4, 1)), [0, 0, 0, 2])
    one = Classification(1, model, Design((0,), (0,)), 4)
    uniform = (np.arange(4000) + 0.5) / 4000
    drawn, shares = one.draw(np.zeros((4000, 2)), uniform, with_means=True)
    np.testing.assert_allclose(shares[0], [0.75, 0, 0.25, 0], atol=3e-6)
    assert (shares > 0).all()
    counts = np.bincount(drawn.astype(int), minlength=4)
    assert abs(counts - [3000, 0, 1000, 0]).max() <= 1
    last, _ = one.draw(np.zeros((1, 2)), np.array([np.nextafter(1, 0)]))
    assert last == 3


def test_draws_of_repeated_values_are_on_their_grid(X):
    """Halves; codes of three levels are observed ones."""
    X[:, 1] = 7 * np.clip(np.rint(X[:, 1]), -1, 1)
    X[:, 2] = np.rint(2 * X[:, 2]) / 2
    imputer = columns(regressor=LINEAR, weight=1.0).fit(X)
    drawn = imputer.sample(X, 2, random_state=0, as_array=True)
    np.testing.assert_array_equal(2 * drawn[..., 2], np.rint(2 * drawn[..., 2]))
    assert np.isin(drawn[..., 1], X[:, 1]).all()
    hidden = np.isnan(X[:, 0])
    assert not np.isin(drawn[:, hidden, 0], X[:, 0]).all()  # negative control


# weights


def test_weights_are_chosen_by_rows_that_no_first_model_has_seen(log, X):
    """The first six fits are of five folds and all; the next six of all rows."""
    # noise, of which the joint model knows no more than the spy: it keeps a weight
    noise = np.random.default_rng(0).normal(size=len(X))
    X[:, 2] = np.where(np.isnan(X[:, 2]), np.nan, noise)
    columns(estimators={2: Spy()}).fit(X)
    held, seen = hold_out_rows(X), ~np.isnan(X[:, 2])
    assert 5 < (held & seen).sum()
    first = np.concatenate([one["y"] for one in log[:6]])
    assert len(log) == 12 and set(first) == set(X[seen & ~held, 2])
    np.testing.assert_array_equal(log[11]["y"], X[seen, 2])  # negative control


def test_no_held_out_cells_where_weights_are_given(log, X):
    columns(estimators={2: Spy()}, weight=0.5).fit(X)
    seen = int((~np.isnan(X[:, 2])).sum())
    assert {len(one["y"]) for one in log if len(one["y"]) > 130} == {seen}


def test_what_repeats_its_training_rows_gets_no_weight(rng):
    """Of noise the nearest row says nothing, of a step everything.

    The score with weight w is 1.13 (1 + w^2) / 2, for about 300 held-out cells and 50
    of the kind, and 5 cells for equal weights.
    """
    noise = rng.normal(size=(3000, 3))
    x, other, _ = noise.T
    step = np.column_stack([x, x + 1e-3 * other, x > 0])
    step[:, 2] += 1e-3 * noise[:, 2]
    given = {"estimators": {2: Nearest(1)}}
    weights = [columns(**given).fit(one).weights_[2] for one in (noise, step)]
    assert weights[0] < 0.3 and weights[1] > 0.5


def test_the_better_model_has_the_weight(seed):
    X, full = folded(seed)
    hidden = np.isnan(X)
    right = columns(estimators={2: KNeighborsRegressor(3)}).fit(X)
    assert right.weights_[2] > 0.6  # at 20 seeds, .77 at least
    pair = right, right.model_
    errors = [abs(one.transform(X) - full)[hidden].mean() for one in pair]
    assert errors[0] < errors[1] / 2
    X, _ = linear(seed, n=600, noise=0.05, missing=0.05)
    wrong = columns(regressor=DummyRegressor()).fit(X)
    assert wrong.weights_[2:].max() < 0.15


def test_levels_have_weights_of_their_own(rng):
    """Bands of a number are not what a joint normal model draws."""
    x = rng.normal(size=1500)
    truth = np.where(abs(x) < 0.7, "in", "out")
    X = pd.DataFrame({"x": x, "band": pd.Categorical(truth)})
    X.loc[rng.random(1500) < 0.3, "band"] = None
    X["x"] = X["x"].mask(rng.random(1500) < 0.1)
    given = {"regressor": DummyRegressor(), "classifier": KNeighborsClassifier(9)}
    imputer = columns(**given, model=READER).fit(X)
    assert imputer.weights_[1] > 0.9
    hidden = X["band"].isna() & X["x"].notna()
    right = (imputer.transform(X)[:, 1] == truth)[hidden]
    alone = (imputer.model_.transform(X)[:, 1] == truth)[hidden]
    assert right.mean() > 0.9 > alone.mean()


def test_repeated_numbers_are_left_to_the_joint_model():
    X, _ = linear(missing=0.0)
    X[:, 1] = 2 * X[:, 0] + 1e-3 * X[:, 1]
    X[:40, 1] = X[40:60, 2] = np.nan
    imputer = columns(regressor=KNeighborsRegressor()).fit(X)
    assert imputer.weights_[:2].tolist() == [0, 0]
    given = columns(regressor=KNeighborsRegressor(), weight=0.5).fit(X)
    assert (given.weights_ == 0.5).all()


# stacks


def test_stacks_average_their_models(seed):
    """The second is right on a curve, and the first on a line."""
    X, full = folded(seed)
    rng = np.random.default_rng(seed + 1)
    line = X[:, 0] + 0.3 * rng.normal(size=len(X))
    full = np.column_stack([full, line])
    X = np.column_stack([X, np.where(rng.random(len(X)) < 0.3, np.nan, line)])
    near = columns(model=PLAIN, regressor=KNeighborsRegressor(5), weight=1.0)
    stack = ColumnImputer([PLAIN, near], random_state=0).fit(X)
    assert [type(one) for one in stack.models_] == [GaussianImputer, ColumnImputer]
    assert stack.model_ is stack.models_[0] and (stack.weights_ == 0).all()
    weights = stack.model_weights_
    assert weights.shape == (2, 4) and (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(0), 1)
    filled = [one.transform(X) for one in (*stack.models_, stack)]
    mean = weights[0] * filled[0] + weights[1] * filled[1]
    np.testing.assert_allclose(filled[2], mean)
    hidden = np.isnan(X)
    gaps = [[abs(one - full)[hidden[:, j], j] for j in (2, 3)] for one in filled]
    errors = [[one.mean() for one in pair] for pair in gaps]
    assert errors[0][0] > errors[1][0] and weights[1, 2] > 0.5
    assert errors[0][1] < errors[1][1] and weights[0, 3] > weights[0, 2]
    assert (np.array(errors[2]) < np.max(errors[:2], axis=0)).all()


def test_a_stack_of_one_is_the_model(X):
    one, other = (ColumnImputer(m, random_state=0).fit(X) for m in ([PLAIN], PLAIN))
    np.testing.assert_array_equal(one.transform(X), other.transform(X))
    np.testing.assert_array_equal(one.sample(X, 1, 0), other.sample(X, 1, 0))


def test_stacks_and_estimators_are_weighted_together(seed):
    X, full = folded(seed)
    given = {"model": [PLAIN, MixtureImputer(1, n_estimators=1, **QUIET)]}
    stack = columns(estimators={2: KNeighborsRegressor(3)}, **given).fit(X)
    assert stack.weights_[2] > 0.6
    np.testing.assert_allclose(stack.model_weights_.sum(0), 1)
    hidden = np.isnan(X)
    assert abs(stack.transform(X) - full)[hidden].mean() < 0.1


def test_draws_of_a_stack_keep_the_correlation_of_missing_cells(rng):
    """Of residuals .9 apart; columns of a draw from different models would lose it."""
    X = rng.normal(size=(600, 3))
    X[:, 2] = 0.9 * X[:, 1] + np.sqrt(1 - 0.81) * X[:, 2]
    X[:300, 1:] = np.nan
    other = clone(PLAIN).set_params(shrinkage=1.0)
    stack = ColumnImputer([PLAIN, other], random_state=0).fit(X)
    drawn = stack.sample(X, 20, random_state=0, as_array=True)[:, :300]
    first, second = drawn[..., 1], drawn[..., 2]
    # draws in which the weights of the columns choose different models have none
    shared = 1 - abs(np.diff(stack.model_weights_[0, 1:])[0])
    # of 300 training rows, so that the standard error is .19 / 17; one draw of 20 more
    # or less has different models
    correlation = np.corrcoef(first.ravel(), second.ravel())[0, 1]
    assert shared > 0.85 and abs(correlation - 0.9 * shared) < 0.08
    mixed_up = np.roll(second, 1, axis=0)  # negative control
    assert abs(np.corrcoef(first.ravel(), mixed_up.ravel())[0, 1]) < 0.2


def test_copies_have_one_draw_in_each_model(X):
    """With a model of two draws and one of none, which is used again."""
    two = clone(PLAIN).set_params(n_parameter_draws=2)
    stack = ColumnImputer([PLAIN, two], random_state=0).fit(X)
    copies = stack._with_one_draw()
    assert len(copies) == 2 and len(stack._by_columns(4).joint.models[1].drawers) == 2
    for one in copies:
        assert [len(m.drawers) for m in one._by_columns(4).joint.models] == [1, 1]
        assert one.model_ is one.models_[0]
    drawn = [one.sample(X, 1, 0)[0] for one in copies]
    assert (drawn[0] != drawn[1]).any()
    alone = columns(model=two, regressor=LINEAR).fit(X)
    assert len(alone._by_columns(4).joint.drawers) == 2
    joint = [one._by_columns(4).joint for one in alone._with_one_draw()]
    assert [len(one.drawers) for one in joint] == [1, 1]


# frequencies


def test_rows_of_other_estimators_are_drawn_by_weights(log):
    X, _ = linear(n=2000)
    weights = np.repeat([1.0, 3.0], 1000)
    columns(estimators={2: Spy()}, weight=1.0).fit(X, sample_weight=weights)
    seen = ~np.isnan(X[:, 2])
    share = weights[1000:][seen[1000:]].sum() / weights[seen].sum()
    heavy = int(np.isin(log[-1]["y"], X[1000:, 2]).sum())
    assert len(log[-1]["y"]) == seen.sum()
    assert p_share(heavy, seen.sum(), share) > FAILURE > p_share(heavy, seen.sum(), 0.5)


@pytest.mark.parametrize("model", [WeightedSpy(), Spy()], ids=["taken", "drawn"])
def test_residuals_are_drawn_by_weights(model, rng):
    """Rows of weight 3 have the cell 1, and the others 0, besides small noise.

    The number of residuals of each kind is binomial if rows are drawn, and varies less
    if residuals are repeated in proportion.
    """
    heavy = rng.random(400) < 0.5
    cells = heavy + 0.01 * rng.normal(size=400)
    X = np.column_stack([rng.normal(size=400), cells])
    weights = np.where(heavy, 3.0, 1.0)
    imputer = columns(estimators={1: model}, weight=1.0).fit(X, sample_weight=weights)
    *_, predictions, residuals, _ = imputer._fitted.model[0]
    assert len(residuals) == 400 and (np.diff(predictions) >= 0).all()
    share = 3 * heavy.sum() / weights.sum()
    found = (residuals + predictions > 0.5).sum()
    assert p_share(found, 400, share) > FAILURE > p_share(found, 400, heavy.mean())


class Around(RegressorMixin, BaseEstimator):
    """Passes weights on to another estimator, which may not take them."""

    def __init__(self, estimator=None):
        self.estimator = estimator

    def fit(self, X, y, sample_weight=None):
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.fitted_ = clone(self.estimator or Spy(7)).fit(X, y, **given)
        return self

    def predict(self, X):
        return self.fitted_.predict(X)


@pytest.mark.parametrize(
    "model", [Around(Spy()), Around(make_pipeline(StandardScaler(), WeightedSpy()))]
)
def test_rows_are_drawn_if_a_part_takes_no_weights(model, log):
    X, _ = linear(n=100)
    weights = np.where(np.arange(100) < 50, 0.0, 1.0)
    weights[0] = 1.0
    columns(estimators={2: model}, weight=1.0).fit(X, sample_weight=weights)
    assert np.isin(log[-1]["y"], X[weights > 0, 2]).all()
    assert len(set(log[-1]["y"])) < len(log[-1]["y"])


@pytest.mark.parametrize("model", [WeightedSpy(), Around(WeightedSpy())])
def test_weights_reach_estimators_whose_parts_all_take_them(model, log):
    X, _ = linear(n=100)
    weights, seen = 1.0 + np.arange(100), ~np.isnan(X[:, 2])
    columns(estimators={2: model}, weight=1.0).fit(X, None, weights)
    np.testing.assert_array_equal(log[-1]["weight"], weights[seen])
    np.testing.assert_array_equal(log[-1]["y"], X[seen, 2])


def test_failures_with_weights_advise_to_leave_them_out():
    X, _ = linear(n=100)
    message = "on column 2: .*sample_weight.* or leave out sample_weight, which its fit"
    with pytest.raises(ValueError, match=message):
        columns(estimators={2: Around()}, weight=1.0).fit(X, None, np.ones(100))
    columns(estimators={2: Around()}, weight=1.0).fit(X)


def test_estimators_without_weights_see_all_rows_once(log):
    X, _ = linear(n=100)
    columns(estimators={2: WeightedSpy()}, weight=1.0).fit(X)
    assert log[-1]["weight"] is None


# tables


def test_what_has_the_methods_of_an_estimator_is_one(X):
    """Without scikit-learn's base classes, and with predictions in a column."""
    imputer = columns(estimators={0: Duck()}, weight=1.0).fit(X)
    hidden = np.isnan(X[:, 0])
    filled = imputer.transform(X)[hidden, 0]
    np.testing.assert_allclose(filled, np.nanmean(X[:, 0]))


def test_a_single_column_is_left_to_the_joint_model():
    X = np.append(np.random.default_rng(0).normal(size=30), [np.nan])[:, None]
    imputer = columns(regressor=LINEAR).fit(X)
    np.testing.assert_array_equal(imputer.transform(X), imputer.model_.transform(X))
    assert imputer.weights_.tolist() == [0] and np.isfinite(imputer.sample(X)[0]).all()


def test_columns_with_few_cells_are_left_to_the_joint_model(log):
    X, _ = linear(missing=0.0)
    X[5:, 1] = np.nan
    given = {"regressor": LINEAR}
    assert columns(**given).fit(X).weights_[1] == 0  # no warning: nobody named it
    message = "Fewer than 10 observed cells: 'b'. Left to the joint model"
    frame = pd.DataFrame(X, columns=list("abcd"))
    with pytest.warns(UserWarning, match=message.replace("'b'", ".*b.*")):
        imputer = columns(estimators={"b": Spy()}).fit(frame)
    assert imputer.weights_.tolist() == [0] * 4 and not log
    X[5:10, 1] = 1.0, 2.0, 3.0, 4.0, 5.0
    columns(estimators={1: Spy()}, weight=1.0).fit(X)  # negative control: ten cells
    assert log


# what an attack has found


def test_copies_of_rows_are_in_one_fold(log, X):
    """An estimator without weights learns from rows that are drawn by them."""
    columns(estimators={2: Spy()}, weight=1.0).fit(X, sample_weight=np.ones(len(X)))
    for fold in log[:5]:
        assert len(set(fold["y"])) < len(fold["y"])  # of a bootstrap sample
    every = set(log[5]["y"])
    missing = [every - set(fold["y"]) for fold in log[:5]]
    # a row is out of one fold, with all its copies
    assert sum(map(len, missing)) == len(every) == len(set.union(*missing))


def test_estimators_that_have_methods_once_they_are_fitted(X):
    stacked = StackingRegressor([("ridge", Ridge())])
    for model in (stacked, make_pipeline(StandardScaler(), stacked)):
        columns(estimators={0: model}).fit(X)


def test_samples_of_rows_have_all_levels():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=300), "z": rng.normal(size=300)})
    rare = np.array(["n"] * 300, dtype=object)
    rare[[5, 9]], rare[:3] = "y", None
    frame["b"] = pd.Categorical(rare)
    weights = np.where(np.arange(300) < 12, 0.05, 1.0)
    for seed in range(4):
        given = {"classifier": Shares(), "random_state": seed, "weight": 1.0}
        columns(max_samples=100, model=READER, **given).fit(frame)
        columns(model=READER, **given).fit(frame, sample_weight=weights)


class Shares(ClassifierMixin, BaseEstimator):
    """Needs two classes, and takes no weights."""

    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        if len(counts) < 2:
            raise ValueError("one class.")
        self.shares_ = counts / counts.sum()
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def predict_proba(self, X):
        return np.tile(self.shares_, (len(X), 1))


def test_the_strategy_of_a_model_is_that_of_its_own_transform():
    X = np.exp(linear()[0])
    models = [clone(READER).set_params(strategy=one) for one in ("mean", "median")]
    filled = [columns(regressor=LINEAR, model=one).fit_transform(X) for one in models]
    np.testing.assert_array_equal(*filled)
    assert not np.allclose(*(one.fit_transform(X) for one in models))


def test_auto_predictors_see_all_levels_of_a_nominal_column(log):
    rng = np.random.default_rng(1)
    town = rng.choice(list("abc"), 400)
    y = (town == "b") * 3.0 + 0.1 * rng.normal(size=400)
    y[::5] = np.nan
    frame = pd.DataFrame({"town": pd.Categorical(town), "y": y})
    frame["noise"] = rng.normal(size=400)
    columns(estimators={"y": Spy()}, predictors="auto", model=READER).fit(frame)
    assert {one["X"].shape[1] for one in log} <= {3, 4} and log


def test_a_tuple_of_models_and_of_quantiles(X):

    class Pair(OfNormal):
        def predict(self, X, quantiles=None):
            return X[:, 0] if quantiles is None else tuple(self.at(X, quantiles))

    columns(regressor=Pair(), weight=1.0).fit(X).transform(X)
    columns(model=(READER, PLAIN)).fit(X)


# errors


def test_a_failing_estimator_is_named_with_its_column():
    X = pd.DataFrame(linear()[0], columns=list("abcd"))
    message = r"Failing\(\) failed on column .*c.*: out of luck. Pass another estimator"
    with pytest.raises(ValueError, match=message) as call:
        columns(estimators={"c": Failing()}).fit(X)
    assert isinstance(call.value.__cause__, RuntimeError)
    with pytest.raises(ValueError, match="failed on column .*2"):
        columns(estimators={2: Failing()}).fit(X.to_numpy())


def fail(*args, **kwargs):
    raise KeyError


@pytest.mark.parametrize(
    ("name", "model", "part"),
    [
        ("y", Spy(7), "predict"),
        ("y", OfNormal(), "predict"),
        ("town", SpyClassifier(), "predict_proba"),
    ],
)
@pytest.mark.filterwarnings("ignore:.* of the draws of column:UserWarning")
def test_an_estimator_that_fails_later_is_named_with_its_column(
    name, model, part, monkeypatch
):
    X = mixed()
    imputer = columns(estimators={name: model}, weight=1.0, model=READER).fit(X)
    imputer = pickle.loads(pickle.dumps(imputer))
    methods = imputer.transform, imputer.sample
    for method in methods:
        method(X)  # negative control
    monkeypatch.setattr(type(model), part, fail)
    kind = type(model).__name__
    said = rf"^{kind}\(.*\) failed on column '{name}': KeyError. Pass an"
    for method in methods:
        with pytest.raises(ValueError, match=said) as call:
            method(X)
        assert isinstance(call.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("name", "model", "part", "shape", "words"),
    [
        ("y", Spy(7), "predict", (), "returns NaN"),
        ("town", SpyClassifier(), "predict_proba", (3,), "no probabilities"),
    ],
)
def test_predictions_that_are_missing_are_an_error(
    name, model, part, shape, words, monkeypatch
):
    def missing(self, X):
        return np.full((len(X), *shape), np.nan)

    monkeypatch.setattr(type(model), part, missing)
    with pytest.raises(ValueError, match=f"failed on column '{name}'.*{words}"):
        columns(estimators={name: model}, model=READER).fit(mixed())


def test_warnings_of_estimators_come_as_they_are(monkeypatch, X):
    def complain(self, X):
        warnings.warn("I do not like this.", UserWarning, stacklevel=2)
        return np.full(len(X), self.mean_)

    monkeypatch.setattr(Spy, "predict", complain)
    with pytest.warns(UserWarning, match="I do not like this"):
        columns(estimators={0: Spy()}).fit(X)
    with pytest.raises(UserWarning, match="^I do not like this.$"):  # by our filter
        columns(estimators={0: Spy()}).fit(X)


class WithoutPredict(BaseEstimator):
    """Has no `predict`."""

    def fit(self, X, y):
        return self


SUMMED = ConstrainedImputer(sums={"x": ["y"]})
LISTED = "model is an empty list. Pass at least one imputer"
ERRORS = {
    TypeError: [
        ({"regressor": WithoutPredict()}, "'regressor' parameter.*'predict'"),
        ({"estimators": {"x": WithoutPredict()}}, r"estimators\['x'\].*predict"),
        (
            {"regressor": LinearRegression},
            "regressor of ColumnImputer must be an instance",
        ),
        ({"estimators": {"x": Ridge}}, r"estimators\['x'\] must have the met"),
        ({"estimators": {"x": "ridge"}}, r"estimators\['x'\] must have"),
        ({"regressor": "ridge"}, "'regressor' parameter"),
        ({"regressor": LOGISTIC}, "regressor must be a regressor"),
        ({"regressor": KMeans()}, "regressor must be a regressor"),
        ({"classifier": LINEAR}, "'classifier' parameter.*'predict_proba'"),
        ({"estimators": {"x": LOGISTIC}}, "column .*x.* has numbers"),
        ({"estimators": {"x": KMeans()}}, "column .*x.* has numbers"),
        ({"estimators": {"town": LINEAR}}, "column .*town.* has categories"),
        ({"estimators": [LINEAR]}, "'estimators' parameter"),
        ({"predictors": {"x": "yes"}}, r"predictors\['x'\] must be a list"),
        ({"predictors": {"x": 5}}, "'x'.* must be a list of columns or None"),
        ({"model": SUMMED}, "Pass ColumnImputer as its model instead"),
        ({"model": [READER, Ridge()]}, r"model has Ridge\(\), no imputer"),
        ({"model": Ridge()}, "'model' parameter"),
    ],
    ValueError: [
        ({"estimators": {"z": LINEAR}}, "estimators.*z"),
        ({"estimators": {9: LINEAR}}, "estimators.*9"),
        ({"predictors": {"z": ["x"]}}, "predictors.*z"),
        ({"predictors": {"x": ["z"]}}, r"predictors\['x'\].*z"),
        ({"predictors": np.ones((5, 5))}, "'predictors' parameter"),
        ({"predictors": "quickpred"}, "'predictors' parameter"),
        ({"model": []}, LISTED),
        ({"weight": 2.0}, "'weight' parameter"),
    ],
}
ERROR_CASES = [(one, kind, words) for kind in ERRORS for one, words in ERRORS[kind]]


class Unfitted(GaussianImputer):
    """Must not be fitted."""

    def fit(self, X, y=None, sample_weight=None):
        raise AssertionError


@pytest.mark.parametrize(("given", "kind", "message"), ERROR_CASES)
def test_wrong_parameters_are_named_before_a_model_is_fitted(given, kind, message):
    given = {"regressor": LINEAR, "model": Unfitted(**QUIET), **given}
    refused(kind, message, columns(**given).fit, mixed(40))
    with pytest.raises(AssertionError):  # negative control
        columns(regressor=LINEAR, model=Unfitted(**QUIET)).fit(mixed(40))


@pytest.mark.filterwarnings("ignore:Constant where observed")
def test_estimators_of_constant_columns_are_of_any_kind():
    X = mixed(60).assign(same=1.0)
    with pytest.warns(UserWarning, match="Not in the model: column 'same'"):
        columns(estimators={"same": LOGISTIC}, model=READER).fit(X)


@pytest.mark.parametrize(
    ("second", "kind", "message"),
    [
        (GaussianImputer(min_value=100.0), ValueError, ": X has .* min_value 100"),
        (GaussianImputer(min_value=[1.0]), ValueError, ": min_value must be a number"),
        (ColumnImputer(GaussianImputer(min_value=100.0)), ValueError, ": X has .* min"),
        (MixtureImputer(n_estimators=0), TypeError, ": The 'n_estimators' para"),
        (
            GaussianImputer(missing_values=-1),
            ValueError,
            r" has missing_values=-1, and model\[0\], .* has nan. Set missing_values",
        ),
    ],
    ids=str,
)
def test_errors_of_models_of_a_stack_name_them(second, kind, message, X):
    whose = rf"^model\[1\] \({type(second).__name__}\) of the stack"
    refused(kind, whose + message, columns(model=[PLAIN, second]).fit, X)


def test_errors_of_a_single_model_are_its_own(X):
    with pytest.raises(ValueError, match="^X has .* min_value 100.0"):
        columns(model=GaussianImputer(min_value=100.0)).fit(X)


def test_parameters_of_all_models_are_checked_first(X):
    models = [Unfitted(**QUIET), GaussianImputer(max_iter=-1)]
    refused(ValueError, "'max_iter' parameter", columns(model=models).fit, X)


@pytest.mark.parametrize("marker", [-1, np.nan])
def test_a_stack_has_the_marker_of_its_first_model(marker, X):
    given = np.where(np.isnan(X), -1, X)
    first = clone(PLAIN).set_params(missing_values=-1)
    stack = columns(model=[first, clone(PLAIN).set_params(missing_values=marker)])
    expected = columns(model=[PLAIN, PLAIN]).fit_transform(X)
    np.testing.assert_array_equal(stack.fit_transform(given), expected)


def test_parameters_of_tables_are_passed_on_to_the_first_model():
    X, _ = linear(n=60)
    given = np.where(np.isnan(X), -1, X)
    asked = {"missing_values": -1, "add_indicator": True}
    first = clone(PLAIN).set_params(**asked)
    expected = columns(model=[first, PLAIN]).fit_transform(given)
    found = columns(model=[PLAIN, PLAIN], **asked).fit_transform(given)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="Invalid parameter 'add_indicator'"):
        columns(model=VNCEEstimator(), add_indicator=True).fit(X)


def test_errors_of_tables_name_the_class_of_the_user():
    X, _ = linear(n=40)
    with pytest.raises(ValueError, match="minimum of 2 is required by ColumnImputer"):
        ColumnImputer(PLAIN).fit(X[:1])
    imputer = ColumnImputer(PLAIN, random_state=0).fit(X)
    with pytest.raises(ValueError, match="but ColumnImputer is expecting 4 feat"):
        imputer.transform(X[:, :3])
