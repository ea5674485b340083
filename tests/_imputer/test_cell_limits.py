"""Limits of single cells: censored likelihood, and draws within the limits."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import quick_gaussian
from errors import refused
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.stats import kstest, multivariate_normal, norm, truncnorm
from sklearn.base import clone
from statistical import FAILURE
from tables import fills

from skvnce import ColumnImputer, CopulaGraphLearner, GaussianImputer
from skvnce._tables.values import check_distance, limits_of
from skvnce.exceptions import MisfitWarning
from skvnce.options import Chunks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
MEAN, COVARIANCE = np.array([10.0, 5.0]), np.array([[4.0, 2.4], [2.4, 3.0]])


def below_limits(seed, n=1000):
    """Draw rows, their limits, and which cells are below."""
    rng = np.random.default_rng([seed, 2])
    X = rng.multivariate_normal(MEAN, COVARIANCE, n)
    limits = np.column_stack([rng.choice([9.0, 10.0], n), rng.choice([4.5, 5.0], n)])
    return X, limits, X < limits


def parameters(t):
    """Make mean and covariance of five free parameters."""
    root = np.array([[np.exp(t[2]), 0.0], [t[3], np.exp(t[4])]])
    return t[:2], root @ root.T


def censored_loss(t, X, limits, below):
    """Compute minus the exact log-likelihood of rows with cells below their limits."""
    mean, covariance = parameters(t)
    both, none = below.all(1), ~below.any(1)
    both_below = multivariate_normal(mean, covariance).cdf(limits[both])
    total = multivariate_normal(mean, covariance).logpdf(X[none]).sum()
    total += np.log(np.maximum(both_below, 1e-300)).sum()
    for j, k in ((0, 1), (1, 0)):
        first_only = below[:, j] & ~below[:, k]
        slope = covariance[j, k] / covariance[k, k]
        location = mean[j] + slope * (X[first_only, k] - mean[k])
        scale = np.sqrt(covariance[j, j] - slope * covariance[j, k])
        total += norm.logpdf(X[first_only, k], mean[k], np.sqrt(covariance[k, k])).sum()
        total += norm.logcdf((limits[first_only, j] - location) / scale).sum()
    return -total


def words(mean, covariance):
    """List the five different moments."""
    return np.array([*mean, *covariance[np.triu_indices(2)]])


@pytest.mark.filterwarnings("ignore:The Markov chain of the fit is short")
def test_the_fit_maximises_the_censored_likelihood(seed):
    """The average of 300 draws of a chain is within a few tenths of a standard error.

    Standard errors are those of the complete data, which are smaller.
    """
    X, limits, below = below_limits(seed)
    start = [*X.mean(0), np.log(2), 1.0, 0.0]
    best = minimize(censored_loss, start, args=(X, limits, below), method="BFGS").x
    expected = words(*parameters(best))
    S = parameters(best)[1]
    square = [2 * S[0, 0] ** 2, S[0, 0] * S[1, 1] + S[0, 1] ** 2, 2 * S[1, 1] ** 2]
    errors = np.sqrt([S[0, 0], S[1, 1], *square]) / np.sqrt(len(X))
    hidden = np.where(below, np.nan, X)
    model = GaussianImputer(
        1e-6, marginals="normal", max_iter=1000, on_misfit="ignore", random_state=seed
    )

    def distance(fitted):
        found = words(fitted.mean_, fitted.covariance_)
        return abs((found - expected) / errors).max()

    fitted = clone(model).fit(hidden, upper=limits)
    assert not fitted.nonlinear_columns_.any()
    assert distance(fitted) < 1
    assert distance(clone(model).fit(hidden)) > 5
    halves = np.where(below, limits / 2, X)
    assert distance(clone(model).fit(halves)) > 5
    means, covariances = fitted.sample_parameters()
    error = np.array([words(*one) for one in zip(means, covariances, strict=True)])
    assert (abs(error.mean(0) - expected) < 1.5 * errors).all()


@pytest.fixture(scope="module")
def fitted():
    """Fit to many rows, with limits that tell much."""
    X, limits, below = below_limits(0, n=2000)
    imputer = GaussianImputer(
        marginals="normal", n_parameter_draws=0, max_iter=80, random_state=0
    )
    return imputer.fit(np.where(below, np.nan, X), upper=limits)


def conditional(fitted, x):
    """Compute mean and standard deviation of the first cell given the second."""
    mean, S = fitted.mean_, fitted.covariance_
    slope = S[0, 1] / S[1, 1]
    return mean[0] + slope * (x - mean[1]), np.sqrt(S[0, 0] - slope * S[0, 1])


def test_draws_are_truncated_normal(fitted):
    rng = np.random.default_rng(1)
    x = rng.normal(5, 1.5, 3000)
    X = np.column_stack([np.full(len(x), np.nan), x])
    low, high = rng.uniform(4, 9, len(x)), rng.uniform(9.5, 14, len(x))
    low[::3], high[1::3] = -np.inf, np.nan
    limits = {"lower": {0: low}, "upper": {0: high}}
    [drawn] = fitted.sample(X, 1, 0, **limits)
    mean, scale = conditional(fitted, x)
    ends = (low - mean) / scale, (np.nan_to_num(high, nan=np.inf) - mean) / scale
    assert kstest(truncnorm(*ends).cdf((drawn[:, 0] - mean) / scale), "uniform")[1] > (
        FAILURE
    )
    [free] = fitted.sample(X, 1, 0)
    z = truncnorm(*ends).cdf((free[:, 0] - mean) / scale)
    assert kstest(z, "uniform")[1] < 1e-6
    means = fitted.transform(X, **limits)[:, 0]
    expected = mean + scale * truncnorm(*ends).mean()
    assert abs(means - expected).max() < 0.02 * scale
    assert_array_equal(drawn[:, 1], x)


def test_lognormal_columns_keep_their_shape(seed):
    """The mean and the standard deviation of logarithms, of which half are not seen."""
    rng = np.random.default_rng([seed, 3])
    z = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 2000)
    X = np.column_stack([np.exp(z[:, 0]), z[:, 1]])
    hidden = np.where(X < [1.0, -np.inf], np.nan, X)
    limit = {"upper": {0: 1.0}}
    imputer = GaussianImputer(random_state=seed).fit(hidden, **limit)
    assert imputer.nonlinear_columns_.all()
    draws = imputer.sample(hidden, 5, seed, **limit)
    assert all((one[np.isnan(hidden)] <= 1).all() for one in draws)
    logs = np.log([one[:, 0] for one in draws])
    assert abs(logs.mean()) < 0.12 and abs(logs.std() - 1) < 0.15
    found = np.mean([np.corrcoef(one, z[:, 1])[0, 1] for one in logs])
    assert abs(found - 0.6) < 0.1
    half = np.log(np.where(np.isnan(hidden[:, 0]), 0.5, hidden[:, 0]))
    tenth = [np.quantile(one, 0.1) - norm.ppf(0.1) for one in (logs, half)]
    assert abs(tenth[0]) < 0.3 < abs(tenth[1])


@pytest.mark.slow
def test_columns_that_may_be_negative_are_normal(seed):
    """A normal column of positive observed values, and values below a limit."""
    rng = np.random.default_rng([seed, 4])
    n = 6000
    z = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], n)
    X = np.column_stack([10 + 5 * z[:, 0], z[:, 1]])
    hidden = np.where(X < [10.0, -np.inf], np.nan, X)
    limit = {"upper": {0: 10.0}}
    means = []
    for low in (-np.inf, {0: -20.0}, None):
        imputer = GaussianImputer(min_value=low, random_state=seed)
        draws = imputer.fit(hidden, **limit).sample(hidden, 5, seed, **limit)
        cells = np.array(draws)[:, np.isnan(hidden[:, 0]), 0]
        means.append(cells.mean() - X[np.isnan(hidden[:, 0]), 0].mean())
        assert (cells.min() < 0) == (low is not None)
    # at 21 seeds: -.06, standard deviation .095
    assert abs(means[0]) < 0.6 and abs(means[1]) < 0.6
    # gamma, Weibull and lognormal cells are positive: .67 more, standard deviation .053
    assert means[2] - means[0] > 0.35


@pytest.mark.slow
def test_limits_are_arrays_frames_dicts_or_numbers():
    X, limits, _ = below_limits(4, n=80)
    limits[:] = [9.5, 4.5]
    frame = pd.DataFrame(X, columns=["lead", "zinc"]).mask(X < limits)
    model = quick_gaussian().set_output(transform="pandas")
    as_frame = pd.DataFrame(limits, columns=list(frame))
    unseen = as_frame.mask(frame.notna())  # of missing cells only
    both, series = {"lead": 9.5, "zinc": 4.5}, as_frame.to_dict("series")
    first, *others = (
        clone(model).fit(frame, upper=one).sample(frame, 1, 0, upper=one)[0]
        for one in (limits, limits.tolist(), as_frame, unseen, both, series)
    )
    for other in others:
        pd.testing.assert_frame_equal(first, other)
    where = {"zinc": np.arange(80) < 40}
    filled = clone(model).fit_transform(frame, upper=both, where=where)
    alone = clone(model).fit(frame, upper=both).transform(frame, upper=both)
    empty = frame["zinc"].isna() & ~where["zinc"]
    assert empty.any() and (filled["lead"][frame["lead"].isna()] <= 9.5).all()
    pd.testing.assert_frame_equal(filled, alone.assign(zinc=alone["zinc"].mask(empty)))


@pytest.mark.parametrize("kind", ["arrow", "polars", "masked", "masked column"])
def test_limits_are_tables_of_any_kind(kind):
    X, _, _ = below_limits(4, n=80)
    X[:40, 1] = np.nan
    upper = np.full(X.shape, np.nan)
    upper[:20, 1] = 3.0  # other missing cells have none
    frame = pl.DataFrame(upper, schema=["lead", "zinc"], nan_to_null=True)
    masked = np.ma.masked_invalid(upper)
    masked.data[masked.mask] = 3.0  # which is hidden
    limits = {
        "arrow": frame.to_arrow(),
        "polars": frame,
        "masked": masked,
        "masked column": {"zinc": masked[:, 1]},
    }[kind]
    table = pl.DataFrame(X, schema=["lead", "zinc"]).to_arrow()
    model = quick_gaussian()
    [drawn] = model.fit(table).sample(table, random_state=0, upper=limits)
    [expected] = model.sample(table, random_state=0, upper=upper)
    [free] = model.sample(table, random_state=0)
    assert_array_equal(drawn, expected)
    assert (drawn[:20, 1] < free[:20, 1]).any()
    assert_array_equal(drawn[20:], free[20:])


def test_masks_are_tables_of_any_kind():
    X = np.random.default_rng(0).normal(size=(20, 2))
    X[:10, 1] = np.nan
    fills = np.ones(X.shape, bool)
    fills[5:, 1] = False
    frame = pl.DataFrame(fills, schema=["lead", "zinc"])
    table = pl.DataFrame(X, schema=["lead", "zinc"])
    model = quick_gaussian().fit(table)
    for mask in (fills, frame, frame.to_arrow(), np.ma.array(fills)):
        filled = np.asarray(model.transform(table, where=mask))
        assert_array_equal(np.isnan(filled), np.isnan(X) & ~fills)


def test_limits_of_no_missing_cell_change_nothing():
    X, _, _ = below_limits(5, n=100)
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    limits = np.where(np.isnan(X), np.nan, 3.0)
    model = quick_gaussian()
    found = clone(model).fit(X, upper=limits).transform(X, upper=limits)
    assert_array_equal(found, clone(model).fit(X).transform(X))
    result = np.stack(clone(model).fit(X).sample(X, 2, 0, lower=limits))
    assert_array_equal(result, np.stack(clone(model).fit(X).sample(X, 2, 0)))


def test_rows_of_limits_alone_inform_the_fit():
    """Three quarters of the rows of a single column are below the limit."""
    x = norm.ppf((np.arange(400) + 0.5) / 400)[:, None]
    X = np.where(x < norm.ppf(0.75), np.nan, x)
    model = GaussianImputer(1e-6, marginals="normal", random_state=0, max_iter=400)
    fitted = model.fit(X, upper={0: norm.ppf(0.75)})
    assert abs(fitted.mean_[0]) < 0.5 and abs(fitted.covariance_[0, 0] - 1) < 0.7


def test_draws_stay_within_limits_without_a_censored_fit():
    """The copula of a table of numbers, a mixed table, and a graph."""
    X, limits, below = below_limits(6, n=150)
    X[:, 0] = np.exp(X[:, 0] / 4)
    limits = np.column_stack([np.exp(limits[:, 0] / 4), limits[:, 1]])
    frame = pd.DataFrame(np.where(below, np.nan, X), columns=["a", "b"])
    grouped = frame.assign(group=pd.Categorical(np.where(X[:, 1] > 5, "x", "y")))
    ends = {"a": limits[:, 0], "b": limits[:, 1]}
    for model, table in [
        (quick_gaussian(), frame),
        (quick_gaussian(min_value=0.0), frame),
        (quick_gaussian(), grouped),
        (CopulaGraphLearner(max_iter=20, random_state=0), grouped),
    ]:
        model.set_output(transform="pandas").fit(table)
        for one in fills(model, table, 3, upper=ends):
            cells = one[["a", "b"]].to_numpy()
            assert (cells[below] <= limits[below]).all()
            assert_array_equal(cells[~below], X[~below])


def test_mixed_tables_have_limits_too():
    """A category of which the number below its limit is a part of the reason."""
    rng = np.random.default_rng(7)
    z = rng.normal(size=1500)
    ill = z + rng.normal(size=1500) > 0
    frame = pd.DataFrame({"lead": np.exp(z), "ill": pd.Categorical(ill), "n": z})
    frame["n"] = pd.array(rng.poisson(np.exp(z / 2 + 3)), dtype="Int64")
    frame.loc[z < 0, "lead"] = np.nan
    frame.loc[rng.random(1500) < 0.2, "n"] = pd.NA
    limit = {"lead": 1.0, "n": pd.array([30] * 1500, dtype="Int64")}
    model = GaussianImputer(random_state=0, max_iter=60).set_output(transform="pandas")
    model.fit(frame, upper=limit)
    for one in fills(model, frame, 2, upper=limit):
        assert (one["lead"][z < 0] <= 1).all() and (one["lead"] >= 0).all()
        assert (one["n"][frame["n"].isna()] <= 30).all()
        assert one.dtypes.equals(frame.dtypes)
    logs = np.log(one["lead"])
    difference = logs[ill].mean() - logs[~ill].mean()
    assert difference == pytest.approx(z[ill].mean() - z[~ill].mean(), abs=0.2)


def test_rows_within_limits_are_filled_independently(fitted):
    X, limits, below = below_limits(8, n=40)
    X = np.where(below, np.nan, X)
    whole = fitted.transform(X, upper=limits)
    rows = [slice(i, i + 1) for i in range(40)]
    parts = [fitted.transform(X[row], upper=limits[row]) for row in rows]
    assert_allclose(np.concatenate(parts), whole, rtol=1e-9)
    assert np.isfinite(fitted.score_samples(X)).all()


def test_intervals_and_quantiles_are_within_limits(fitted):
    """Medians are those of truncated normal distributions."""
    X, limits, below = below_limits(7, n=300)
    X = np.where(below, np.nan, X)
    options = {"random_state": 3, "upper": limits}
    lower, upper = fitted.interval(X, 0.9, **options)
    assert (lower <= upper).all() and (upper[below] <= limits[below]).all()
    assert_array_equal(lower[~below], X[~below])
    low, middle = fitted.quantile(X, [0.05, 0.5], **options)
    assert_array_equal(low, lower)
    first_only = below[:, 0] & ~below[:, 1]
    mean, scale = conditional(fitted, X[first_only, 1])
    ends = -np.inf, (limits[first_only, 0] - mean) / scale
    gaps = (middle[first_only, 0] - mean) / scale - truncnorm.ppf(0.5, *ends)
    assert abs(gaps.mean()) < 5 * gaps.std() / np.sqrt(len(gaps)) < 0.1
    with pytest.warns(UserWarning, match="without limits"):
        free = fitted.quantile(X, random_state=3)
    assert ((free[first_only, 0] - middle[first_only, 0]) / scale).mean() > 0.3


def test_missing_limits_are_announced(fitted):
    X, limits, below = below_limits(8, n=40)
    X = np.where(below, np.nan, X)
    few = {"n_draws": 19}
    calls = [
        (fitted.transform, {}),
        (fitted.sample, {}),
        (fitted.interval, few),
        (fitted.quantile, few),
    ]
    for call, options in calls:
        with pytest.warns(UserWarning, match="filled without limits. Pass lower"):
            call(X, **options)
        with warnings.catch_warnings(action="error"):
            call(X, upper=limits, **options)
            call(X, upper=np.full(X.shape, np.nan), **options)
            call(np.nan_to_num(X), **options)


def whole_and_lost():
    """Make a frame with a column of whole numbers, of which one is missing."""
    rng = np.random.default_rng(3)
    count = np.round(rng.normal(20, 5, 120))
    count[7] = np.nan
    return pd.DataFrame({"x": rng.normal(size=120), "count": count})


@pytest.mark.parametrize("dtype", ["float64", "Int64"])
def test_limits_of_whole_numbers_need_one_between_them(dtype):
    """Arrays have no columns of whole numbers, and are filled between the limits."""
    X = whole_and_lost()
    frame = X.astype({"count": dtype})
    imputer = quick_gaussian().fit(frame)
    wrong = {"lower": {"count": 17.3}, "upper": {"count": 17.6}}
    for call in (imputer.fit, imputer.transform, imputer.sample, imputer.interval):
        with pytest.raises(ValueError, match=r"17.6\] of column 'count', row 7, leave"):
            call(frame, **wrong)
    right = {"lower": {"count": 17.3}, "upper": {"count": 18.6}}
    fitted = quick_gaussian().fit(frame, **right)
    tables = fitted.set_output(transform="pandas").sample(frame, 5, 0, **right)
    for table in [*tables, fitted.transform(frame, **right)]:
        assert table["count"][7] == 18
    ends = [{1: side["count"]} for side in wrong.values()]
    array = quick_gaussian().fit(X.to_numpy())
    filled = array.transform(X.to_numpy(), lower=ends[0], upper=ends[1])
    assert 17.3 <= filled[7, 1] <= 17.6


def test_bounds_and_limits_leave_a_whole_number():
    frame = whole_and_lost()
    most = frame["count"].max() + 0.5
    imputer = quick_gaussian(max_value={"count": most}).fit(frame)
    with pytest.raises(ValueError, match="leave no whole number"):
        imputer.transform(frame, lower={"count": most - 0.2})
    imputer.transform(frame, lower={"count": most - 0.5})


@pytest.mark.parametrize("dtype", ["float64", "Int64"])
def test_limits_of_grades_name_the_remedy(dtype):
    frame = whole_and_lost()
    frame["count"] = (frame["count"] % 5).astype(dtype)
    with pytest.raises(TypeError, match="Whole numbers .* float .*: 'numeric'"):
        GaussianImputer().fit(frame, upper={"count": 3.0})
    numeric = GaussianImputer(categorical_features={"count": "numeric"})
    filled = numeric.fit_transform(frame, upper={"count": 3.0})
    assert filled[7, 1] <= 3


def test_cells_whose_limit_is_far_from_the_others_are_near_it():
    X, _, below = below_limits(9, n=60)
    X = np.where(below, np.nan, X)
    column = np.argwhere(below)[0, 1]
    upper, cells = {int(column): -5000.0}, np.isnan(X[:, column])
    far = quick_gaussian(marginals="normal").fit(X, upper=upper)
    filled = far.transform(X, upper=upper)
    assert np.isfinite(filled).all()
    np.testing.assert_allclose(filled[cells, column], -5000, rtol=0.01)
    assert (filled[cells, column] <= -5000).all()


@pytest.mark.parametrize("side", [-1, 1])
def test_limits_three_deviations_away_are_too_far(side):
    """They are looked for where a fit has failed."""
    cells = side * np.arange(10.0)[:, None]
    X = np.vstack([cells, [[np.nan]]])
    imputer = quick_gaussian().fit(X)

    def check(deviations):
        end = cells[-1, 0] + deviations * side * np.std(cells)
        ends = (end, None) if side > 0 else (None, end)
        limits = [None if value is None else {0: value} for value in ends]
        schema = imputer._schema
        check_distance(schema, limits_of(schema, *limits, X, X), X)

    check(2.9)
    refused(ValueError, "is far from the observed cells", check, 3.1)


def refused_table():
    """Make rows with cells below limits, the limits, and the first of these cells."""
    X, limits, below = below_limits(9, n=60)
    return np.where(below, np.nan, X), limits, *map(int, np.argwhere(below)[0])


REFUSED, LIMITS, ROW, COLUMN = refused_table()
LEAST, MOST = np.nanmin(REFUSED, axis=0) - 1, np.nanmax(REFUSED) + 1
PLACE = f"column {COLUMN}, row {ROW}"
CROSSED = np.full(REFUSED.shape, -np.inf)
CROSSED[ROW, COLUMN] = 50.0
SIMPLE = {"on_misfit": "ignore", "random_state": 0}
OF_CELLS = [GaussianImputer(**SIMPLE), CopulaGraphLearner(max_iter=2, **SIMPLE)]
WRONG_LIMITS = [
    ({"lower": CROSSED, "upper": LIMITS}, ValueError, PLACE),
    ({"upper": LIMITS[:3]}, ValueError, "upper must have the shape of X"),
    *(
        ({"upper": {1: wrong}}, TypeError, "upper must have numbers in column 1")
        for wrong in ("low", "1.5", True)
    ),
    ({"upper": {COLUMN: -np.inf}}, ValueError, f"upper is -inf in {PLACE}"),
    ({"lower": {COLUMN: np.inf}}, ValueError, f"lower is inf in {PLACE}"),
    ({"upper": {7: 0.0}}, ValueError, "no column of X"),
    ({"upper": {0: [1.0, 2.0]}}, ValueError, "must have a value for each of the 60 r"),
]


@pytest.fixture(scope="module")
def of_cells():
    """Fit a copy of each to the refused table, without limits."""
    return {type(one): clone(one).fit(REFUSED) for one in OF_CELLS}


@pytest.mark.parametrize(("limits", "error", "words"), WRONG_LIMITS)
@pytest.mark.parametrize("model", OF_CELLS, ids=lambda one: type(one).__name__)
def test_wrong_limits_are_refused(model, limits, error, words, of_cells):
    fitted = of_cells[type(model)]
    for call in (clone(model).fit, fitted.transform, fitted.sample):
        refused(error, words, call, REFUSED, **limits)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"upper": {COLUMN: LEAST[COLUMN] - 1}}, f"limits .* of {PLACE}, are outside"),
        ({"lower": {0: MOST + 1}}, "are outside of the bounds"),
        ({"upper": {0: LEAST[0] - 9}}, "are outside of the bounds"),
    ],
)
def test_limits_outside_of_the_bounds_of_a_column(limits, words):
    bounded = quick_gaussian(min_value=LEAST, max_value=MOST)
    bounded.fit(REFUSED, lower={0: MOST - 0.5})  # within
    for call in (bounded.fit, bounded.sample, bounded.transform):
        refused(ValueError, words, call, REFUSED, **limits)


@pytest.mark.parametrize("model", OF_CELLS, ids=lambda one: type(one).__name__)
def test_categories_and_tables_in_parts_have_no_limits(model):
    frame = pd.DataFrame({"a": np.arange(60.0), "b": pd.Categorical(["x", None] * 30)})
    refused(TypeError, "limits of column 'b'", clone(model).fit, frame, lower={"b": 0})
    with pytest.raises(ValueError, match="not available for a table in parts"):
        clone(model).fit(Chunks([REFUSED] * 2), upper={0: 1.0})


def test_limits_that_a_call_does_not_take(of_cells):
    fitted = of_cells[GaussianImputer]
    with pytest.raises(ValueError, match="cannot be combined with shift"):
        fitted.sample(REFUSED, upper=LIMITS, shift={0: 0.5})
    with pytest.raises(ValueError, match="no value of the data type of X, float32"):
        fitted.transform(REFUSED.astype(np.float32), lower={0: 1e39})
    with pytest.raises(TypeError, match="ColumnImputer.fit.*argument .upper"):
        ColumnImputer().fit(REFUSED, upper=LIMITS)
    with pytest.raises(ValueError, match="ColumnImputer takes no limits of single"):
        ColumnImputer().fit(REFUSED).transform(REFUSED, lower={0: 1.0})
    limited = GaussianImputer(max_iter=9, **SIMPLE).fit(REFUSED, upper=LIMITS)
    refused(ValueError, "from a fit to limits of cells", limited.partial_fit, REFUSED)
    with warnings.catch_warnings(
        action="error"
    ):  # shifts and limits exclude each other
        limited.sample(REFUSED, shift={0: 0.1}, random_state=0)


@pytest.mark.slow
def test_a_gamma_column_below_its_limit_is_filled_right(seed):
    """A bias of .35 standard deviations of the cells is what a line would give."""
    rng, errors = np.random.default_rng(seed), []
    for _ in range(4):
        x = rng.gamma(2.0, size=1500)
        X = np.column_stack([x, x + rng.normal(size=1500)])
        hidden, limit = x < 1.4, {"upper": {0: 1.4}}
        X[hidden, 0] = np.nan
        imputer = GaussianImputer(random_state=0).fit(X, **limit)
        cells = np.array(imputer.sample(X, 3, 0, **limit))[:, hidden, 0]
        errors.append((cells.mean() - x[hidden].mean()) / x[hidden].std())
    assert abs(np.mean(errors)) < 0.1 + 3 * np.std(errors, ddof=1) / 4**0.5


def test_tails_that_the_data_do_not_tell_are_announced(rng_0):
    """Five of 60 values are seen."""
    lead = np.exp(norm.ppf((np.arange(60) + 0.5) / 60))
    limit = float(np.sort(lead)[-5]) - 0.01
    frame = pd.DataFrame({"lead": lead, "age": rng_0.normal(size=60)})
    frame["lead"] = frame["lead"].where(lead > limit)
    model = quick_gaussian()
    with pytest.warns(MisfitWarning, match="'lead' do not tell the shape.*logarithms"):
        model.fit(frame, upper={"lead": limit})


def test_shapes_above_zero_without_a_bound_are_announced():
    """10 + exponential cells: without min_value=10 the bias is 2.4 deviations."""
    x = 10 + np.random.default_rng(0).exponential(size=(1000, 1))
    limit = np.quantile(x, 0.4)
    X = np.where(x < limit, np.nan, x)
    limits = {"upper": np.where(np.isnan(X), limit, np.nan)}
    with pytest.warns(MisfitWarning, match="follow none of these.*min_value"):
        quick_gaussian().fit(X, **limits)
    imputer = GaussianImputer(min_value=10.0, random_state=0, max_iter=20)
    drawn = imputer.fit(X, **limits).sample(X, random_state=0, **limits)[0]
    hidden = np.isnan(X)
    assert abs(drawn[hidden].mean() - x[hidden].mean()) < 0.3 * x[hidden].std()


def test_a_graph_is_learned_from_cells_below_limits(seed):
    """Standard errors of the edge: .012 with limits, .021 without (of 12 seeds)."""
    rng = np.random.default_rng([seed, 9])
    covariance = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, 0.5], [0.0, 0.5, 1.0]])
    X = np.exp(rng.multivariate_normal(np.zeros(3), covariance, 2500))
    limit = np.median(X[:, 0])
    X[X[:, 0] < limit, 0] = np.nan
    precision = np.linalg.inv(covariance)
    edge = -precision[0, 1] / np.sqrt(precision[0, 0] * precision[1, 1])
    learner = CopulaGraphLearner(alpha=0.02, random_state=0)
    within = clone(learner).fit(X, upper={0: limit})
    assert abs(within.associations_[0, 1] - edge) < 0.075
    filled = within.transform(X, upper={0: limit})
    assert (filled[np.isnan(X[:, 0]), 0] <= limit).all()
    # control: cells that are missing at random, as without limits, change the edge
    assert clone(learner).fit(X).associations_[0, 1] < edge - 0.075


def test_limits_stay_with_their_rows_beside_rows_without_data():
    X, limits, below = below_limits(9, n=150)
    X = np.where(below, np.nan, X)
    model = quick_gaussian()
    one = clone(model).fit(X, upper=limits)
    empty = [np.insert(cells, 0, np.nan, axis=0) for cells in (X, limits)]
    other = clone(model).fit(empty[0], upper=empty[1])
    assert_array_equal(one.mean_, other.mean_)
    wrong = clone(model).fit(X, upper=np.roll(limits, 1, axis=0))  # control
    assert abs(one.mean_ - wrong.mean_).max() > 1e-6
