"""Probabilities of classes that are as large as the shares of rows."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvnce import GaussianImputer, MultipleImputationClassifier
from skvnce.predictors.out_of_fold import Recalibration, class_weights

QUIET = {"n_parameter_draws": 0, "on_misfit": "ignore"}
PLAIN = GaussianImputer(marginals="normal", shrinkage=0.1, **QUIET)
SLOPES = np.array([1.5, -1.0, 1.0, 0.5, 0.0])


def rows(n, share, rng, intercept=0.0):
    """Draw correlated columns and classes; hide a share of the cells."""
    X = rng.normal(size=(n, 1)) + rng.normal(size=(n, 5))
    y = (rng.random(n) < expit(X @ SLOPES + intercept)).astype(int)
    X[rng.random(X.shape) < share] = np.nan
    return X, y


def fitted(X, y, model=None, **settings):
    settings = {"n_draws": 20, "random_state": 0} | settings
    model = LogisticRegression() if model is None else model
    return MultipleImputationClassifier(PLAIN, model, **settings).fit(X, y)


def excess(said, y):
    """Find the largest gap in bins of probability beyond three standard errors."""
    place = np.digitize(said, [0.2, 0.4, 0.6, 0.8])
    bins = [place == k for k in np.unique(place)]
    gaps = [abs(said[own].mean() - y[own].mean()) for own in bins]
    errors = [np.sqrt((said[own] * (1 - said[own])).sum()) / own.sum() for own in bins]
    return max(gap - 3 * error for gap, error in zip(gaps, errors, strict=True))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("share", "intercept"), [(0.0, 0.0), (0.2, 0.0), (0.4, 0.0), (0.4, -2.0)]
)
def test_probabilities_are_calibrated(share, intercept, rng):
    X, y = rows(3000, share, rng, intercept)
    new, truth = rows(8000, share, rng, intercept)
    with_folds, without = (fitted(X, y, calibration_cv=cv) for cv in (5, None))
    said, plain = (one.predict_proba(new)[:, 1] for one in (with_folds, without))
    assert excess(said, truth) < 0.05
    if share == 0:
        assert_array_equal(said, plain)
        assert with_folds.slope_ == 1
    if share == 0.4:  # negative control
        assert excess(plain, truth) > 0.02
        assert log_loss(truth, said) < log_loss(truth, plain)
        assert with_folds.slope_ > 1.2


def test_the_parameters_are_those_of_the_log_odds(rng):
    logs = rng.normal(size=(20_000, 3))
    intercepts = np.array([0.5, 0.0, -0.5])
    said, true = softmax(logs, 1), softmax(1.5 * logs + intercepts, 1)
    codes = (rng.random((len(true), 1)) > true.cumsum(1)).sum(1)
    result = Recalibration.of(said, codes, np.ones(len(codes)))
    # the information of a row about the slope is at least that of three classes' odds
    assert result.slope == pytest.approx(1.5, abs=0.1)
    assert_allclose(result.apply(said).mean(0), true.mean(0), atol=0.02)
    assert_allclose(result.apply(said), true, atol=0.05)
    assert Recalibration.none(3).apply(said) is said


def test_weights_are_copies(rng_0):
    said = softmax(rng_0.normal(size=(60, 2)), 1)
    codes, weights = rng_0.integers(2, size=60), rng_0.integers(4, size=60)
    one = Recalibration.of(said, codes, weights.astype(float))
    many = np.repeat(np.arange(60), weights)
    other = Recalibration.of(said[many], codes[many], np.ones(len(many)))
    assert one.slope == pytest.approx(other.slope, rel=1e-4)
    assert_allclose(one.intercepts, other.intercepts, rtol=1e-4, atol=1e-6)


def test_weights_of_classes_stay_where_cells_are_missing(rng):
    """Balanced, the shares of rows that are said to be of a class are the same."""
    X, y = rows(1500, 0.0, rng, -4.0)
    lost = np.where(rng.random(X.shape) < 0.01, np.nan, X)
    balanced = LogisticRegression(class_weight="balanced")
    said = {}
    for name, model in (("plain", LogisticRegression()), ("balanced", balanced)):
        for table in (X, lost):
            learned = fitted(table, y, model, n_estimators=2, n_draws=2)
            said[name, table is X] = learned.predict_proba(X)[y == 1, 1].mean()
    # a hundredth of the cells, 5 % of the rows, changes the mean by less than that
    for name in ("plain", "balanced"):
        assert said[name, True] == pytest.approx(said[name, False], abs=0.05)
    assert said["balanced", False] > said["plain", False] + 0.1  # the control


def test_weights_of_classes_are_found_inside_other_models(rng_0):
    X, y = rows(200, 0.0, rng_0, -2.0)
    logistic = LogisticRegression(class_weight={1: 3.0})
    expected = np.where(y == 1, 3.0, 1.0) / np.where(y == 1, 3.0, 1.0).mean()
    search = {"class_weight": [{1: 3.0}]}
    for model in (
        logistic,
        make_pipeline(StandardScaler(), logistic),
        GridSearchCV(make_pipeline(logistic), {"logisticregression__C": [1.0]}),
        GridSearchCV(LogisticRegression(), search),
    ):
        assert_allclose(class_weights(model.fit(X, y), y), expected)
    forest = RandomForestClassifier(5, class_weight="balanced_subsample").fit(X, y)
    balanced = class_weights(forest, y)
    assert balanced[y == 1].sum() == pytest.approx(balanced[y == 0].sum())
    for model in (LogisticRegression(), CalibratedClassifierCV(logistic)):
        assert_array_equal(class_weights(model.fit(X, y), y), 1)


def test_the_order_of_rows_stays_where_nothing_is_learned():
    said = np.linspace(0.01, 0.99, 99)[:, None] * [1, -1] + [0, 1]
    likely = said.argmax(1)
    worst = Recalibration.of(said, 1 - likely, np.ones(99))
    assert worst.slope == 0  # without the limit it is negative
    assert Recalibration.of(said, likely, np.ones(99)).slope > 1  # the control
    assert (np.diff(worst.apply(said)[:, 0]) >= 0).all()


@pytest.mark.filterwarnings("error")
def test_rare_classes(rng_0):
    X, y = rows(60, 0.2, rng_0)
    y = np.array(["no", "yes"], dtype=object)[y]
    y[:3] = "rare"
    frame = pd.DataFrame(X, columns=list("abcde"))
    three = fitted(frame, y, n_estimators=2)
    assert three.slope_ != 1
    assert_allclose(three.predict_proba(frame).sum(1), 1)
    y[1:3] = "no"
    assert fitted(X, y, n_estimators=2).slope_ == 1  # a class of one row
    assert fitted(X, y == "no", n_estimators=1).slope_ == 1  # a single model


def test_folds_without_a_class():
    X, y = rows(40, 0.2, np.random.default_rng(0))
    y[:2] = 2
    folds = [(np.arange(2, 40), np.arange(2)), (np.arange(20), np.arange(20, 40))]
    model = fitted(X, y, calibration_cv=folds, n_estimators=2)
    assert model.predict_proba(X).shape == (40, 3)
    other = fitted(X, y, calibration_cv=StratifiedKFold(2), n_estimators=2)
    assert np.isfinite(other.predict_proba(X)).all()


@pytest.mark.parametrize("label", ["rare", "zz"])  # between the others, and last
def test_classes_of_rows_without_weight_are_none_of_the_default_model(label):
    X, y = rows(60, 0.2, np.random.default_rng(0))
    y = np.array(["no", "yes"], dtype=object)[y]
    y[:5] = label
    weights = np.r_[np.zeros(5), np.ones(55)]
    model = MultipleImputationClassifier(
        PLAIN, n_estimators=2, n_draws=2, calibration_cv=2, random_state=0
    ).fit(X, y, sample_weight=weights)
    assert_array_equal(model.classes_, ["no", "yes"])
    assert model.slope_ != 1
    assert_allclose(model.predict_proba(X).sum(1), 1)
