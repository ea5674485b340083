"""What every method reads as a table, and what it rejects, naming a remedy."""

import datetime as dt
import re
import warnings
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from cases import FIRST
from errors import refused
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone

from skvnce import metrics, missingness, pooling
from skvnce._tables.frames import readable

pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.xdist_group("containers"),  # which share fits
    pytest.mark.filterwarnings("ignore::UserWarning"),  # tables too small to settle
]

ROWS, PLACE = 16, (2, 1)
DAY = dt.datetime(2020, 1, 1)
TIMES = "column 'b', row 0. Drop dates and durations, or turn them into numbers."


def numbers():
    x = np.exp(np.random.default_rng(0).normal(size=(ROWS, 3)))
    x[3, 0] = np.nan
    return x


def frame(**columns):
    return pd.DataFrame(numbers(), columns=list("abc")).assign(**columns)


def polars_frame(**columns):
    return pl.DataFrame(numbers(), schema=list("abc")).with_columns(**columns)


def times(unit="ns", container=np.asarray):
    days = np.full((ROWS, 3), "2020-01-01", dtype=f"datetime64[{unit}]")
    days[2, 1] = np.datetime64("NaT")
    return container(days)


def large(dtype=np.int64):
    x = np.arange(3 * ROWS).reshape(-1, 3).astype(dtype)
    x[PLACE] = 2**53 + 1
    return x


def records():
    fields = [(name, float) for name in "abc"]
    return np.array([tuple(row) for row in numbers()], dtype=fields)


NO_TABLES = {  # how to make it, and what the error says
    "datetime64": (times, "column 0, row 0. Drop dates and durations"),
    "dates in lists": (lambda: times("D").tolist(), "column 0, row 0. Drop dates"),
    "dates as objects": (
        lambda: np.array([[1.0, np.datetime64("2020-01-01")]] * 5, dtype=object),
        "column 1, row 0. Drop dates",
    ),
    "no date known": (lambda: frame(b=pd.NaT), f"NaT in {TIMES}"),
    "dates only": (
        lambda: pd.DataFrame(times(), columns=list("bcd")),
        f"Timestamp('2020-01-01 00:00:00') in {TIMES}",
    ),
    "time zone": (lambda: frame(b=pd.Timestamp("2020-01-01", tz="UTC")), TIMES),
    "one date": (lambda: frame(b=DAY), TIMES),
    "period": (lambda: frame(b=pd.Period("2020-01")), TIMES),
    "interval": (
        lambda: frame(b=pd.interval_range(0, ROWS)),
        "column 'b', row 0. Each cell must be one number, or NaN",
    ),
    "NaT": (lambda: frame(b=[pd.NaT] + [1.0] * (ROWS - 1)).astype(object), TIMES),
    "arrow dates": (
        lambda: frame(b=pd.Series([DAY.date()] * ROWS, dtype="date32[pyarrow]")),
        TIMES,
    ),
    "polars dates": (lambda: polars_frame(b=pl.lit(DAY.date())), TIMES),
    "polars times": (lambda: polars_frame(b=pl.lit(dt.time(3))), TIMES),
    "polars durations": (lambda: polars_frame(b=pl.lit(dt.timedelta(1))), TIMES),
    "pyarrow table": (
        lambda: pa.table({"b": pa.array([DAY.date()] * 5), "c": [1.0] * 5}),
        TIMES,
    ),
    "file name": (lambda: "survey.csv", "no table.*pandas.read_csv('survey.csv')."),
    "reader": (
        lambda: pd.read_csv(StringIO("a,b\n1,2\n"), chunksize=1),
        "X is a TextFileReader, .*pandas.concat(X).*skvnce.options.Chunks of functions",
    ),
    "generator": (lambda: (row for row in [[1.0, 2.0]]), "X is a generator, "),
    "path": (lambda: Path("survey.parquet"), "no table.*Chunks.from_parquet(Posix"),
    "no column": (lambda: frame()[[]], "X has no columns."),
    "None": (lambda: None, "X is None. Pass a table"),
    "LazyFrame": (lambda: polars_frame().lazy(), "LazyFrame.* collect() it first"),
    "records": (records, "fields 'a', 'b', 'c'. Turn it into a table.*DataFrame(X)"),
    "dicts": (lambda: [{"a": 1.0, "b": 2.0}] * 5, "dicts.*pandas.DataFrame(X)"),
    "gradients": (
        lambda: torch.tensor(numbers(), requires_grad=True),
        "pass X.detach().",
    ),
    "sparse tensor": (lambda: torch.eye(4).to_sparse(), "pass X.to_dense()."),
    "bfloat16": (lambda: torch.eye(4).bfloat16(), "pass X.float()."),
    "sparse frame": (
        lambda: frame().astype(pd.SparseDtype(float, np.nan)),
        "column 'a' is Sparse[float64, nan]. Pass X.sparse.to_dense().",
    ),
    "list in a cell": (
        lambda: frame(b=[[1, 2]] * ROWS),
        "column 'b', row 0. Each cell must be one number",
    ),
    "complex cell": (
        lambda: frame(b=[1.0, 2j] + [3.0] * (ROWS - 2)).astype(object),
        "column 'b', row 0. Each cell must be one number",
    ),
    "integer beyond floats": (
        lambda: [[1, 10**400]] * 4,
        "0000... in column 1, row 0. Rescale the column.",
    ),
    "text": (lambda: frame(b="q"), "'q' in column 'b', row 0. "),
    "three dimensions": (lambda: np.zeros((4, 3, 2)), "dim 3"),
    "one dimension": (
        lambda: pd.Series(list("abc")),
        "got 1. Reshape your data: X.to_frame()",
    ),
    "NA in lists": (
        lambda: [[1.0, pd.NA], *[[2.0, 1.0]] * (ROWS - 1)],
        "column 1, row 0. Mark missing cells by NaN",
    ),
}

if np.finfo(np.longdouble).max > np.finfo(float).max:
    NO_TABLES["long double"] = (
        lambda: np.full((4, 2), np.longdouble("1e400")),
        "infinity.*column 0, row 0. Replace it by NaN",
    )

MIXED = {  # frames of dates or categories, which estimators of mixed tables read
    "no date known",
    "dates only",
    "time zone",
    "one date",
    "arrow dates",
    "polars dates",
    "polars durations",
    "pyarrow table",
    "text",
}
UNREAD = {"period", "polars times"}  # times that these estimators do not read
CONSTANT = {"dates only", "pyarrow table"}
READERS = {n for n, one in FIRST.items() if hasattr(one, "categorical_features")}
# by their `model`
READERS |= {"ConstrainedImputer", "ColumnImputer", "CopulaGraphLearnerCV"}

ROUNDED = {
    "integers": large,
    "unsigned": lambda: large(np.uint64),
    "objects": lambda: large(object),
    "list": lambda: large().tolist(),
    "frame": lambda: pd.DataFrame(large(), columns=list("abc")),
    "nullable": lambda: pd.DataFrame(large(), columns=list("abc")).astype("Int64"),
    "one column": lambda: frame(b=large()[:, 1]),
    "polars": lambda: pl.DataFrame(large(), schema=list("abc")),
    "pyarrow": lambda: pa.table({c: large()[:, j] for j, c in enumerate("abc")}),
    "masked": lambda: np.ma.masked_equal(large(), 0),
}


def pattern(text):
    """Escape all but the dots that stand before an asterisk."""
    return ".*".join(map(re.escape, text.split(".*")))


@pytest.mark.quick(7)
@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("kind", NO_TABLES)
def test_what_is_no_table_is_refused_by_name(kind, name):
    make, message = NO_TABLES[kind]
    estimator = clone(FIRST[name])
    if kind in UNREAD and name in READERS:
        message = "column 'b', row 0. Convert the column"
    if kind in CONSTANT and name == "VariationalAutoencoder":
        message = "All columns of X are constant"
    elif kind in MIXED and name in READERS:
        with warnings.catch_warnings(action="ignore"):  # constant columns
            assert estimator.fit(make()) is estimator
        return
    before = dict(vars(estimator))
    refused((TypeError, ValueError), "(?s)" + pattern(message), estimator.fit, make())
    assert vars(estimator) == before


@pytest.mark.parametrize("kind", ROUNDED)
def test_integers_that_floats_cannot_hold_are_refused(kind):
    X = ROUNDED[kind]()
    column = "'b'" if hasattr(X, "columns") else "1"
    message = f"9007199254740993 in column {column}, row 2"
    for name in set(FIRST) - {"NoisyOr"}:  # which only compares them to a threshold
        refused(ValueError, message, clone(FIRST[name]).fit, X)
    if "polars" not in kind and "pyarrow" not in kind:
        with pytest.raises(ValueError, match=message):
            missingness.hide(X, np.zeros((ROWS, 3), dtype=bool))


@pytest.fixture(scope="module")
def fitted():
    """Fit each class once, to the table with NaN."""
    found = {}

    def fit(name):
        if name not in found:
            found[name] = seeded(name).fit(incomplete_table())
        return found[name]

    return fit


def seeded(name):
    estimator = clone(FIRST[name])
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    return estimator


def incomplete_table(hidden=np.nan):
    """Make a table of integers between 1 and 40 whose hidden cells are given."""
    x = np.random.default_rng(1).integers(1, 40, (ROWS, 3)).astype(float)
    x[[0, 3, 7], [0, 1, 2]] = hidden
    return x


MASKED = {
    "float": lambda: np.ma.masked_equal(incomplete_table(-999.0), -999.0),
    "integer": lambda: np.ma.masked_equal(incomplete_table(-999).astype(int), -999),
    "object": lambda: np.ma.masked_equal(
        incomplete_table(-999.0).astype(object), -999.0
    ),
    "list of rows": lambda: list(np.ma.masked_equal(incomplete_table(-999.0), -999.0)),
    "infinite below": lambda: np.ma.masked_invalid(incomplete_table(np.inf)),
}


def test_new_rows_are_checked_too(fitted):
    model = fitted("GaussianImputer")
    for make, message in NO_TABLES.values():
        match = "(?s)" + pattern(message)
        refused((TypeError, ValueError), match, model.transform, make())
    refused(ValueError, "9007199254740993 in column 1, row 2", model.transform, large())


@pytest.mark.parametrize("kind", MASKED)
def test_masks_are_read_and_left_alone(kind):
    X = MASKED[kind]()
    before = [np.ma.array(row, copy=True) for row in X]
    assert_array_equal(np.asarray(readable(X), dtype=float), incomplete_table())
    for row, kept in zip(X, before, strict=True):
        assert_array_equal(row.data, kept.data)
        assert_array_equal(np.ma.getmaskarray(row), kept.mask)


def test_dtypes_of_masked_arrays():
    for dtype in (np.float32, np.float64):
        X = np.ma.masked_equal(incomplete_table(-999).astype(dtype), -999)
        assert readable(X).dtype == dtype
    text = np.ma.array([["1", "x"], ["3", "4"]], mask=[[0, 1], [0, 0]])
    expected = [[1, np.nan], [3, 4]]
    assert_array_equal(readable(text).astype(float), expected)
    whole = np.ma.array(incomplete_table(), mask=False)
    assert_array_equal(readable(whole), incomplete_table())


def test_masks_in_missingness_metrics_and_pooling():
    hidden = np.zeros((ROWS, 3), dtype=bool)
    hidden[5] = True
    for make in MASKED.values():
        expected = missingness.hide(incomplete_table(), hidden)
        assert_array_equal(missingness.hide(make(), hidden), expected)
        for choose in (missingness.mcar, missingness.mnar):
            found = choose(make(), 0.5, random_state=0)
            assert_array_equal(found, choose(incomplete_table(), 0.5, random_state=0))
            assert not found[np.isnan(incomplete_table())].any()
    table, draws = MASKED["float"](), np.ma.stack([MASKED["float"]()] * 2)
    at_mask = np.isnan(incomplete_table())
    with pytest.raises(ValueError, match="X_imputed must be finite"):
        metrics.imputation_rmse(incomplete_table(1.0), table, at_mask)
    with pytest.raises(ValueError, match="draws must be finite"):
        metrics.crps(incomplete_table(1.0), draws, at_mask)
    refused(ValueError, "X must be finite", metrics.energy_distance, table, table)
    with pytest.raises(ValueError, match="must be finite"):
        pooling.pool(np.ma.masked_equal([1.0, 2.0], 2.0), [1.0, 1.0])
    with pytest.raises(ValueError, match="masked cells"):
        pooling.fit_each(FIRST["GaussianImputer"], draws)


def test_missingness_refuses_what_is_no_table():
    for kind in ("datetime64", "records", "gradients", "LazyFrame"):
        make, message = NO_TABLES[kind]
        refused(ValueError, "(?s)" + pattern(message), missingness.mcar, make(), 0.1)
    with pytest.raises(TypeError, match="column 'b', row 0. Convert the column"):
        missingness.mcar(NO_TABLES["period"][0](), 0.1)


def test_sparse_columns_beside_categories_are_read():
    X = frame(b=pd.arrays.SparseArray(numbers()[:, 1]), sex=["f", "m"] * (ROWS // 2))
    model = clone(FIRST["GaussianImputer"]).set_params(random_state=0)
    expected = model.fit(X.assign(b=numbers()[:, 1])).transform(X)
    assert_array_equal(model.fit(X).transform(X), expected)


def test_sparse_frames_of_zeros_are_noisy_or_s():
    x = (numbers() > 1).astype(float)
    thin = pd.DataFrame(x, columns=list("abc")).astype(pd.SparseDtype(float, 0))
    model = clone(FIRST["NoisyOr"]).set_params(random_state=0)
    expected = model.fit(sparse.csr_array(x)).transform(x)
    assert_array_equal(model.fit(thin).transform(thin), expected)
    with pytest.raises(TypeError, match="column 'a' is .* Pass X.sparse.to_dense"):
        clone(FIRST["GaussianImputer"]).fit(thin)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "make",
    [
        lambda: frame().astype("Float64"),
        lambda: frame().astype("double[pyarrow]"),
        lambda: frame().astype(object).where(frame().notna(), None),
        lambda: frame().astype(object).where(frame().notna(), pd.NA).to_numpy(),
        lambda: polars_frame().fill_nan(None),
        lambda: pa.table(dict(zip("abc", numbers().T, strict=True))),
        lambda: torch.tensor(numbers()),
        lambda: numbers().tolist(),
        lambda: frame(b=frame().b.astype(pd.SparseDtype(float, np.nan))),
    ],
    ids=[
        "Float64",
        "arrow",
        "None",
        "NA",
        "polars",
        "table",
        "torch",
        "list",
        "thin column",
    ],
)
def test_what_is_a_table_is_read(make):
    model = clone(FIRST["GaussianImputer"]).set_params(random_state=0)
    expected = model.fit(numbers()).transform(numbers())
    assert_array_equal(model.fit(make()).transform(make()), expected)


def test_integers_that_floats_hold_are_read():
    x = large()
    x[PLACE] = 2**53 + 2
    model = clone(FIRST["GaussianImputer"]).fit(x)
    assert (model.transform(x).astype(np.int64) == x).all()
