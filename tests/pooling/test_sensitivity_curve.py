"""Analyses under several assumptions on missing values."""

import numpy as np
import pandas as pd
import pytest
from cases import quick_gaussian
from errors import refused
from numpy.testing import assert_allclose
from sklearn.impute import SimpleImputer

from skvnce import GaussianImputer
from skvnce.pooling import fit_each, pool, sensitivity_curve

DELTA = -0.8  # missing values are lower by so many standard deviations


def rows(n, seed):
    """Draw (x, y); y misses half of its cells by x, and those are lower."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = 0.6 * x + 0.8 * rng.normal(size=n)
    hidden = rng.random(n) < 1 / (1 + np.exp(-x))
    spread = y[~hidden].std()
    full = np.column_stack([x, y + hidden * DELTA * spread])
    X = full.copy()
    X[hidden, 1] = np.nan
    return X, full


def mean_of_y(table):
    """Analyse a table: the mean of y, and its variance."""
    y = np.asarray(table)[:, 1].astype(float)
    return y.mean(), y.var(ddof=1) / len(y)


@pytest.fixture(scope="module")
def fitted():
    X, _ = rows(400, 0)
    return quick_gaussian().fit(X), X


def test_it_is_the_pooled_analysis_of_the_draws(fitted):
    imputer, X = fitted
    shifts = [{}, {1: 0.5}]
    curve = sensitivity_curve(imputer, X, mean_of_y, shifts, 4, 7)
    for shift, result in zip(shifts, curve.pooled, strict=True):
        draws = imputer.sample(X, 4, 7, shift=shift)
        expected = pool(*zip(*fit_each(mean_of_y, draws), strict=True))
        assert result == expected
    table = curve.summary(level=0.9)
    assert table["shift"].tolist() == shifts
    low, high = curve.pooled[1].interval(0.9)
    assert table.loc[1, ["low", "high"]].tolist() == [low, high]


def test_shifts_have_the_same_random_numbers_as_none():
    """Of x and y, both of which miss cells, one is shifted; x follows.

    On a line, as with less than 50 observed cells a column nothing is calibrated.
    """
    X, _ = rows(65, 2)
    X[np.random.default_rng(2).random(65) < 0.3, 0] = np.nan
    normal = {"marginals": "normal", "n_parameter_draws": 0}
    imputer = GaussianImputer(**normal, random_state=0).fit(X)
    tables = []
    shifts = [{}, {1: -0.01}]
    keep = lambda table: tables.append(table) or (0.0, 1.0)  # noqa: E731
    sensitivity_curve(imputer, X, keep, shifts, 4, 0)
    none, shifted = np.array(tables[:4]), np.array(tables[4:])
    hidden = np.isnan(X)
    moved = (shifted - none) / np.nanstd(X, axis=0)
    assert_allclose(moved[:, hidden[:, 1], 1], -0.01, rtol=1e-6)
    both, spread = hidden.all(1), np.nanstd(X, axis=0)
    slope = np.diff(imputer.transform([[np.nan, 0.0], [np.nan, 1.0]])[:, 0])
    expected = np.where(both, -0.01 * slope * spread[1] / spread[0], 0.0)
    assert_allclose(moved[..., 0], np.tile(expected, (4, 1)), rtol=1e-6, atol=1e-12)
    # another seed: the root mean square is near sqrt(2 * conditional variance)
    others = imputer.sample(X, 4, 1, shift={}, as_array=True)
    assert np.sqrt(((others - none)[:, hidden[:, 0], 0] ** 2).mean()) > 0.5


@pytest.mark.filterwarnings("ignore:shift moves the missing cells:UserWarning")
def test_tipping_point(fitted):
    imputer, X = fitted
    shifts = [{1: delta} for delta in (0, 0.1, 4, 5)]
    curve = sensitivity_curve(imputer, X, mean_of_y, shifts, 4, 0)
    base, _, strong, _ = (result.estimate for result in curve.pooled)
    assert curve.tipping_point(null=base) == {1: 4}  # leaves the interval
    assert curve.tipping_point(null=strong) == {1: 4}  # enters it
    assert curve.tipping_point(null=100.0) is None
    for null in (np.nan, "0"):
        with pytest.raises(ValueError, match="null must be a finite number"):
            curve.tipping_point(null=null)


def test_models_by_name():
    smf = pytest.importorskip("statsmodels.formula.api")
    X, _ = rows(300, 1)
    frame = pd.DataFrame(X, columns=["x", "y"])
    imputer = quick_gaussian().set_output(transform="pandas").fit(frame)

    def analyse(table):
        return smf.ols("y ~ x", table).fit()

    curve = sensitivity_curve(imputer, frame, analyse, [{}, {"y": -1}], 3, 0)
    coefficients = curve.summary("x")["coef"]
    by_hand = [result.summary().loc["x", "coef"] for result in curve.pooled]
    assert coefficients.tolist() == by_hand
    assert curve.summary(1)["coef"].tolist() == by_hand
    assert coefficients[1] < coefficients[0]  # y is missing where x is large
    every = curve.summary()
    assert every["name"].tolist() == ["Intercept", "x"] * 2
    assert every["shift"].tolist() == [{}, {}, {"y": -1}, {"y": -1}]
    of_x = every[every["name"] == "x"].drop(columns="name").reset_index(drop=True)
    pd.testing.assert_frame_equal(of_x, curve.summary("x"))
    refused(ValueError, "name has 'z', no name .*'Intercept', 'x'", curve.summary, "z")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shifts": []}, ValueError, "needs a shift or more and two draws or more"),
        ({"n_draws": 1}, ValueError, "two draws or more, got 1 and n_draws=1"),
        ({"n_draws": "2"}, TypeError, "n_draws must be an integer"),
        ({"shifts": {1: 2}}, TypeError, "shifts must be a list of dicts"),
        ({"shifts": [0.5]}, TypeError, "shifts must be a list of dicts"),
        ({"analyse": 3}, TypeError, "analyse must be a function"),
        ({"shifts": [{9: 1}]}, ValueError, "shift has the key 9"),
        ({"imputer": SimpleImputer()}, TypeError, "must have sample.*SimpleImputer"),
    ],
)
def test_wrong_input(fitted, options, error, message):
    imputer, X = fitted
    arguments = {"imputer": imputer, "analyse": mean_of_y, "shifts": [{}], "n_draws": 2}
    refused(error, message, sensitivity_curve, X=X, **arguments | options)


def test_series_keep_their_names(fitted):
    def analyse(table, names="ab"):
        frame = pd.DataFrame(table, columns=["a", "b"])
        return frame.mean(), frame.var()[list(names)] / len(frame)

    curve = sensitivity_curve(*fitted, analyse, [{}], 2, 0)
    places = [curve.summary(name)["coef"].tolist() for name in ("b", 1)]
    assert places[0] == places[1]
    with pytest.raises(ValueError, match="the same names in the same order"):
        sensitivity_curve(*fitted, lambda table: analyse(table, "ba"), [{}], 2, 0)


def test_an_analysis_of_one_number_has_no_names(fitted):
    imputer, X = fitted
    curve = sensitivity_curve(imputer, X, mean_of_y, [{}], 2, 0)
    refused(ValueError, "one estimate, without names", curve.summary, "y")


@pytest.mark.parametrize("wrong", [1.0, (1.0,), "text"])
def test_an_analysis_that_returns_something_else(fitted, wrong):
    imputer, X = fitted
    with pytest.raises(TypeError, match="analyse must return"):
        sensitivity_curve(imputer, X, lambda table: wrong, [{}], 2, 0)
