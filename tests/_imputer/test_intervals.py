"""Intervals and quantiles of missing cells, in all estimators that draw cells."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import SMALL_IMPUTERS, quick_gaussian
from numpy.testing import assert_array_equal
from scipy import stats
from sklearn.base import clone
from statistical import FAILURE, p_mean

import skvnce
from skvnce._core.random import seed_from
from skvnce._imputer import fill as _intervals

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
DRAWING = [
    *SMALL_IMPUTERS,
    skvnce.CopulaGraphLearner(random_state=0),
    skvnce.TruncatedGaussianGraphLearner(random_state=0),
    skvnce.VNCEEstimator(max_iter=1, random_state=0),
]
names = pytest.mark.parametrize(
    "imputer", DRAWING, indirect=True, ids=lambda one: type(one).__name__
)
PLAIN = skvnce.GaussianImputer(marginals="normal", n_parameter_draws=0)


def normal_rows(seed, n=2000):
    """Draw normal rows, in each of which one cell of the last two is missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1)) + rng.normal(size=(n, 3))
    X[np.arange(n), rng.integers(1, 3, n)] = np.nan
    return X


def positive_rows():
    rng = np.random.default_rng(0)
    X = rng.gamma(4.0, size=(60, 1)) + rng.gamma(2.0, size=(60, 3))
    X[rng.random(X.shape) < 0.3] = np.nan
    return X


def survey():
    rng = np.random.default_rng(1)
    n = 80
    grade = pd.Categorical(
        rng.choice(["low", "mid", "high"], n), ["low", "mid", "high"], ordered=True
    )
    frame = pd.DataFrame(
        {
            "grade": grade,
            "visits": pd.array(rng.poisson(4, n), dtype="Int64"),
            "age": rng.normal(50, 10, n),
            "town": pd.Categorical(rng.choice(["a", "b", "c"], n)),
            "asked": pd.array(rng.random(n) < 0.5, dtype="boolean"),
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 900, n), "D"),
        },
        index=[f"row {i}" for i in range(n)],
    )
    return frame.mask(rng.random(frame.shape) < 0.3)


def conditional_cdf(model, X, table):
    """Compute the probability below each missing cell of a filled table (n,)."""
    found = np.empty(len(X))
    for j in (1, 2):
        others = [k for k in range(3) if k != j]
        mean, cov = model.mean_, model.covariance_
        slope = np.linalg.solve(cov[np.ix_(others, others)], cov[others, j])
        rows = np.isnan(X[:, j])
        center = mean[j] + (X[np.ix_(rows, others)] - mean[others]) @ slope
        spread = np.sqrt(cov[j, j] - slope @ cov[others, j])
        found[rows] = stats.norm.cdf(table[rows, j], center, spread)
    return found


@pytest.mark.parametrize(("level", "n_draws"), [(0.9, 199), (0.5, 19)])
def test_ends_are_quantiles_of_the_conditional_normal(seed, level, n_draws):
    """The probability below the k-th of m draws has a beta distribution."""
    X = normal_rows(seed)
    model = clone(PLAIN).fit(X)
    ends = model.interval(X, level, n_draws, seed)
    below, upto = (conditional_cdf(model, X, end) for end in ends)
    outside = (1 - level) / 2
    assert p_mean(below, outside) > FAILURE
    assert p_mean(upto, 1 - outside) > FAILURE
    assert p_mean(below, outside - 0.02) < FAILURE
    k = round(outside * (n_draws + 1))
    exact = stats.beta(k, n_draws + 1 - k)
    assert stats.kstest(below, exact.cdf).pvalue > FAILURE
    assert stats.kstest(1 - upto, exact.cdf).pvalue > FAILURE


def test_quantiles_are_those_of_the_conditional_normal(seed):
    X = normal_rows(seed)
    model = clone(PLAIN).fit(X)
    tables = model.quantile(X, [0.25, 0.5, 0.8], 19, seed)
    for table, q in zip(tables, [0.25, 0.5, 0.8], strict=True):
        assert p_mean(conditional_cdf(model, X, table), q) > FAILURE
        assert p_mean(conditional_cdf(model, X, table), q + 0.05) < FAILURE


@names
def test_ends_are_sorted_draws_and_observed_cells_are_kept(imputer):
    X = positive_rows()
    fitted = clone(imputer).fit(X)
    lower, upper = fitted.interval(X, 0.5, 7, 0)
    observed = ~np.isnan(X)
    for end in (lower, upper):
        assert type(end) is np.ndarray and np.isfinite(end).all()
        assert_array_equal(end[observed], X[observed])
    assert (lower <= upper).all() and (lower < upper)[~observed].mean() > 0.9
    pairs = zip((lower, upper), fitted.quantile(X, [0.25, 0.75], 7, 0), strict=True)
    for end, same in pairs:
        assert_array_equal(end, same)
    assert_array_equal(fitted.quantile(X, 0.25, 7, 0), lower)
    incomplete = np.isnan(X).any(1)
    drawn = np.sort(
        fitted.sample(
            X[incomplete], 7, np.random.default_rng(seed_from(0)), as_array=True
        ),
        0,
    )
    assert_array_equal(lower[incomplete], drawn[1])
    assert_array_equal(upper[incomplete], drawn[5])


def test_chunks_of_rows_have_their_own_draws(monkeypatch, seed):
    X = normal_rows(seed)
    model = clone(PLAIN).fit(X)
    monkeypatch.setattr(_intervals, "_CHUNK", 19 * 3 * 100)
    lower, _ = model.interval(X, 0.5, 19, seed)
    found = conditional_cdf(model, X, lower)
    assert p_mean(found, 0.25) > FAILURE
    assert len(np.unique(found)) == len(X)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_keep_their_data_types(library):
    frame = survey()
    whole = frame
    if library == "polars":  # whose ordered categories are of the type Enum
        order = pl.Enum(["low", "mid", "high"])
        whole = pl.from_pandas(frame.astype({"grade": object}))
        whole = whole.with_columns(pl.col("grade").cast(order))
    fitted = quick_gaussian().fit(whole).set_output(transform=library)
    lower, upper = fitted.interval(whole, 0.8, 19, 0)
    if library == "polars":
        assert lower.schema == upper.schema == whole.schema
        lower, upper = (
            end.to_pandas().set_index(frame.index) for end in (lower, upper)
        )
        lower, upper = lower.astype(frame.dtypes), upper.astype(frame.dtypes)
    else:
        assert (lower.dtypes == frame.dtypes).all()
    for name in frame:
        observed = frame[name].notna()
        for end in (lower, upper):
            assert list(end.index) == list(frame.index)
            cells = end[name][observed]
            assert (cells == frame[name][observed]).all()
            assert end[name][~observed].isna().all() == (name == "town")
        if name != "town":
            assert (lower[name][~observed] <= upper[name][~observed]).all()
            assert (lower[name][~observed] < upper[name][~observed]).any()


def test_arrays_of_objects_and_empty_columns():
    frame = survey().assign(none=np.nan, same=2.0)
    frame.loc["row 3", "same"] = np.nan
    fitted = quick_gaussian(keep_empty_features=True).fit(frame)
    lower, upper = fitted.interval(frame, 0.8, 19, 0)
    assert lower.dtype == object and lower.shape == frame.shape
    for end in (lower, upper):
        assert pd.isna(end[:, 6]).all() and (end[:, 7] == 2).all()
        assert not pd.isna(end[:, [0, 1, 2, 4, 5]]).any()
    everywhere = np.ones(frame.shape, dtype=bool)  # also where levels have no order
    for end in fitted.interval(frame, 0.8, 19, 0, where=everywhere):
        assert (pd.isna(end) == pd.isna(lower)).all()
    numbers = frame[["age", "none"]]
    fitted = quick_gaussian(keep_empty_features=True).fit(numbers)
    [median] = fitted.quantile(numbers, [0.5], 19)
    assert np.isnan(median[:, 1]).all() and np.isfinite(median[:, 0]).all()


def test_defaults_and_complete_tables():
    X = normal_rows(0, 300)
    fitted = clone(PLAIN).fit(X)
    lower, upper = fitted.interval(X)
    middle = fitted.quantile(X)
    holes = np.isnan(X)
    assert ((lower < middle) & (middle < upper))[holes].all()
    complete = np.nan_to_num(X)
    for end in (*fitted.interval(complete), fitted.quantile(complete)):
        assert_array_equal(end, complete)
    single = X.astype(np.float32)
    assert clone(PLAIN).fit(single).quantile(single).dtype == np.float32


BETWEEN, LEVEL = "must be between 0 and 1", "level must be a number"
WRONG_CALLS = [
    ("interval", {"level": 1.0}, ValueError, f"level {BETWEEN}"),
    ("interval", {"level": 0}, ValueError, f"level {BETWEEN}"),
    ("interval", {"level": float("nan")}, ValueError, f"level {BETWEEN}"),
    ("interval", {"level": "0.9"}, TypeError, LEVEL),
    ("interval", {"level": True}, TypeError, LEVEL),
    ("interval", {"n_draws": 18}, ValueError, "n_draws of at least 19, got n_draws=18"),
    ("interval", {"level": 0.999}, ValueError, "needs n_draws of at least 1999"),
    ("interval", {"n_draws": 19.0}, TypeError, "n_draws must be an integer"),
    ("quantile", {"q": 0.0}, ValueError, f"q {BETWEEN}"),
    ("quantile", {"q": [0.5, 1.0]}, ValueError, f"q {BETWEEN}"),
    ("quantile", {"q": []}, ValueError, "q must have a number or more"),
    ("quantile", {"q": "a"}, TypeError, "q must be a number"),
    ("quantile", {"q": 0.95, "n_draws": 18}, ValueError, "q=0.95 needs n_draws of at"),
    ("quantile", {"q": 0.05, "n_draws": 18}, ValueError, "q=0.05 needs n_draws of at"),
]


def test_wrong_calls_are_refused():
    X = normal_rows(0, 50)
    fitted = clone(PLAIN).fit(X)
    for method, options, error, words in WRONG_CALLS:
        with pytest.raises(error, match=words):
            getattr(fitted, method)(X, **options)
    assert len(fitted.interval(X, 0.9, 19)) == 2
