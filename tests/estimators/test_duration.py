"""Warnings before fits to many columns that take minutes."""

import itertools
import time
import warnings

import numpy as np
import pandas as pd
import pytest

from skvnce import (
    CopulaGraphLearner,
    GaussianImputer,
    LAIRImputer,
    VGIImputer,
)
from skvnce.exceptions import DurationWarning
from skvnce.fits import duration
from skvnce.training import rounds

PLAIN = GaussianImputer(marginals="normal", shrinkage=0.1, n_parameter_draws=1)
GRAPH = CopulaGraphLearner(max_iter=2, random_state=0)
MEMBERS = LAIRImputer(random_state=0)


def table(d, n=12):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 1)) + rng.normal(size=(n, d))
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, 0] = 1.0  # constant columns are not measured
    return X


@pytest.mark.parametrize("convert", [np.asarray, pd.DataFrame])
@pytest.mark.parametrize(
    ("estimator", "remedy", "d"),
    [
        (GRAPH, "Leave out columns", 210),
        (MEMBERS, "n_estimators", 610),
    ],
)
def test_a_long_fit_is_announced_before_it_starts(
    estimator, remedy, d, convert, monkeypatch
):
    X = convert(table(d))
    if convert is pd.DataFrame:
        X.columns = [f"c{j}" for j in range(d)]
    monkeypatch.setattr(duration, "_seconds_of_fit", lambda one, cells: 30.0)
    message = f"12 rows and {d} columns will take about .*{remedy}"
    before = dict(vars(estimator))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", DurationWarning)  # ends the fit
        with pytest.raises(DurationWarning, match=message):
            estimator.fit(X)
    assert vars(estimator) == before


def test_the_time_is_that_of_a_copy(monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 13.0])  # the first fit loads modules
    monkeypatch.setattr(duration, "perf_counter", lambda: next(clock))
    with pytest.warns(DurationWarning, match="about 5 minutes") as caught:
        duration.warn_of_duration(PLAIN, table(500), "Go.", n_parameter_draws=0)
    assert len(caught) == 1
    assert not hasattr(PLAIN, "mean_")


def test_short_fits_are_not_announced(monkeypatch):
    monkeypatch.setattr(duration, "_seconds_of_fit", lambda one, cells: 0.5)
    duration.warn_of_duration(PLAIN, table(300), "Go.")

    def measured(one, cells):
        raise AssertionError("few columns take no measurement")

    monkeypatch.setattr(duration, "_seconds_of_fit", measured)
    duration.warn_of_duration(PLAIN, table(199), "Go.")
    duration.warn_of_duration(PLAIN, table(599), "Go.", columns=150)


def test_the_time_is_multiplied_by_a_factor(monkeypatch):
    monkeypatch.setattr(duration, "_seconds_of_fit", lambda one, cells: 30.0)
    for factor, words in [(1.0, "about 18 minutes"), (2.0, "about 36 minutes")]:
        with pytest.warns(DurationWarning, match=words):
            duration.warn_of_duration(PLAIN, table(301)[:, 1:], "Go.", factor)


def test_columns_that_vary_are_measured(monkeypatch):
    X, measured = table(300), []
    X[:, ::2] = 1.0
    X[0, ::4] = np.nan
    monkeypatch.setattr(
        duration, "_seconds_of_fit", lambda one, cells: measured.append(cells) or 0.0
    )
    duration.warn_of_duration(PLAIN, X, "Go.")
    assert [cells.shape for cells in measured] == [(12, 5), (12, 50)]
    assert (np.nanmax(measured[1], 0) > np.nanmin(measured[1], 0)).all()


def test_a_copy_that_cannot_be_fitted_says_nothing():
    begin = time.perf_counter()
    duration.warn_of_duration(PLAIN, np.ones((5, 300)), "Go.")
    assert time.perf_counter() - begin < 5


def test_growth_and_words():
    assert duration.growth((2000, 1000), (1000, 50)) == pytest.approx(800)
    assert duration.in_words(90.0) == "2 minutes"
    assert duration.in_words(7200.0) == "2 hours"
    assert duration.in_words(10 * 86400.0) == "10 days"


@pytest.mark.parametrize("cls", [LAIRImputer, VGIImputer])
def test_the_time_of_the_first_member_announces_that_of_all(cls, monkeypatch):
    monkeypatch.setattr(rounds, "STEPS", 2)
    clock = itertools.count(0.0, 5.0)
    monkeypatch.setattr(duration, "perf_counter", lambda: next(clock))
    X = table(4, n=60)[:, 1:]
    message = "Imputer.fit will take about .* more, by .* first of 1,000,000 members"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", DurationWarning)  # ends the fit
        with pytest.raises(DurationWarning, match=message):
            cls(n_estimators=10**6, random_state=0).fit(X)
    assert [*duration.with_warning("Imputer", "a", 1)] == ["a"]
    assert [*duration.with_warning("Imputer", "abc", 3)] == ["a", "b", "c"]
