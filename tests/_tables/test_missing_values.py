"""The parameter `missing_values`: a table with a marker is one with NaN."""

import copy
import re
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from cases import SMALL, quick_gaussian
from errors import refused
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from skvnce import ConstrainedImputer
from skvnce._tables.cells import read_marked, with_marker, without_marker
from skvnce.options import Chunks
from skvnce.testing._requirements import imputes

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::skvnce.exceptions.MisfitWarning",
    "ignore::skvnce.exceptions.TableWarning",
)

NAMES = "GaussianImputer ColumnImputer CopulaGraphLearner LAIRImputer VGIImputer"
NORMAL, COLUMNS, COPULA, LATENT, DENSITY = map(SMALL.get, NAMES.split())
IMPUTERS = [one for one in SMALL.values() if imputes(one)]
MIXED = [one for one in IMPUTERS if one.__sklearn_tags__().input_tags.categorical]


def named(estimators):
    return pytest.mark.parametrize(
        "imputer", estimators, ids=lambda one: type(one).__name__
    )


def with_values(imputer, marker):
    """Copy an imputer that reads a marker, which that of `model` does for some."""
    imputer = clone(imputer)
    of_model = not hasattr(imputer, "missing_values")
    return imputer.set_params(**{"model__" * of_model + "missing_values": marker})


def holes(n=60, width=3):
    return np.random.default_rng(1).random((n, width)) < 0.2


def numbers(n=60):
    """Positive whole numbers, which columns of integers hold, too."""
    rng = np.random.default_rng(0)
    return (20 * (rng.gamma(9.0, size=(n, 1)) + rng.gamma(9.0, size=(n, 3)))).round()


def mixed(marker, n=60):
    """Make a frame of numbers and levels, of which text or a number marks some."""
    hidden, table = holes(n), numbers(n)
    levels = np.where(table[:, 1] > np.median(table[:, 1]), "yes", "no")
    frame = pd.DataFrame(
        {"a": table[:, 0], "b": levels.astype(object), "c": table[:, 2]}
    )
    if isinstance(marker, str):
        frame.loc[hidden[:, 1], "b"] = marker
    else:
        frame.loc[hidden[:, 0], "a"] = marker
        frame.loc[hidden[:, 2], "c"] = marker
    return frame


def done(imputer, X):
    """List what the methods of an imputer return for a table to which it is fitted."""
    found = [imputer.fit_transform(X), *imputer.sample(X, 2, random_state=1)]
    found += imputer.interval(X, 0.5, n_draws=3, random_state=1)
    found.append(imputer.quantile(X, n_draws=3, random_state=1))
    for name in ("score_samples", "category_probabilities"):
        if hasattr(imputer, name):
            one = getattr(imputer, name)(X)
            found += list(one.values()) if isinstance(one, dict) else [one]
    return found


def assert_same(found, expected, marker=np.nan):
    """Compare lists of tables; a marker is where NaN is expected."""
    for one, other in zip(found, expected, strict=True):
        one, other = (np.asarray(part, dtype=object) for part in (one, other))
        missing = pd.isna(other)
        assert all(value == marker for value in one[missing])
        np.testing.assert_array_equal(one[~missing], other[~missing])


@named(IMPUTERS)
@pytest.mark.quick(4)
@pytest.mark.parametrize("marker", [-1, 0, np.float32(0.5)])
def test_a_number_marks_as_nan_does(imputer, marker, short_training):
    hidden, table = holes(), numbers()
    X = np.where(hidden, marker, table)
    before = X.copy()
    found = done(with_values(imputer, marker), X)
    expected = done(clone(imputer), np.where(hidden, np.nan, table))
    assert_same(found, expected, marker)
    assert [one.dtype for one in found] == [one.dtype for one in expected]
    np.testing.assert_array_equal(X, before)


@pytest.mark.quick(2)
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint16, np.float32])
def test_arrays_of_other_types(dtype):
    hidden, table = holes(), np.minimum(numbers() // 10, 120)
    X = np.where(hidden, 0, table).astype(dtype)
    nan = np.where(hidden, np.nan, table)
    expected = done(
        clone(NORMAL), nan.astype(np.float32) if dtype == np.float32 else nan
    )
    assert_same(done(with_values(NORMAL, 0), X.tolist()), done(clone(NORMAL), nan))
    some = hidden & (np.arange(len(X)) % 2 == 1)[:, None]
    for table in (X, np.ma.MaskedArray(np.where(some, 9, X), mask=some, dtype=dtype)):
        found = done(with_values(NORMAL, 0), table)
        assert_same(found, expected)
        assert found[0].dtype == expected[0].dtype


def test_integers_that_floats_round_are_an_error():
    X = np.where(holes(), -1, numbers().astype(int))
    X[5, 1] = 2**60 + 1
    with pytest.raises(ValueError, match="has an integer that float64 rounds.*row 5"):
        with_values(NORMAL, -1).fit(X)


IDS = [10**18 + 7 * k for k in range(20)]  # between multiples of 128
CONTAINERS = {
    "polars": lambda ids: pl.Series(ids, dtype=pl.Int64),
    "polars unsigned": lambda ids: pl.Series(ids, dtype=pl.UInt64),
    "polars decimal": lambda ids: pl.Series(ids, dtype=pl.Decimal(20, 0)),
    "pandas": lambda ids: pd.Series(ids, dtype="Int64"),
    "pandas decimal": lambda ids: pd.Series(
        [one and Decimal(one) for one in ids], dtype=object
    ),
    "arrow in pandas": lambda ids: pd.Series(ids, dtype="int64[pyarrow]"),
    "arrow": lambda ids: pa.array(ids, pa.int64()),
    "arrow decimal": lambda ids: pa.array(ids, pa.decimal128(20, 0)),
    "objects": lambda ids: np.array(ids, dtype=object),
    "text": lambda ids: np.array([one and str(one) for one in ids], dtype=object),
}


@pytest.mark.quick
@pytest.mark.parametrize("missing", [[], [3, 7]])
@pytest.mark.parametrize("container", CONTAINERS)
def test_large_integers_beside_missing_cells_are_an_error(container, missing, seed):
    x = np.random.default_rng(seed).normal(size=20)
    frame = {"p": pl.DataFrame, "a": pa.table}.get(container[0], pd.DataFrame)
    frame = pd.DataFrame if "pandas" in container else frame

    def table(ids):
        ids = [None if k in missing else one for k, one in enumerate(ids)]
        column = CONTAINERS[container](ids)
        if container in ("objects", "text"):
            return np.array([x, column], dtype=object).T
        return frame({"x": x, "id": column})

    imputer = quick_gaussian()
    refused(ValueError, f"float64 rounds: .*{IDS[1]}.*, row 1", imputer.fit, table(IDS))
    imputer.fit(table([one - 10**18 for one in IDS]))  # the remedy
    imputer.fit(table([2**54 * (one % 7 + 1) for one in range(20)]))  # exact


def test_rounded_fractions_are_no_error():
    cells = [Decimal("12345678901234567.25") + k for k in range(20)]
    quick_gaussian().fit(pl.DataFrame({"a": cells}))


@named(MIXED)
@pytest.mark.quick(2)
@pytest.mark.parametrize("marker", ["unknown", -1])
@pytest.mark.parametrize("library", ["pandas", "category", "polars", "array"])
def test_levels(imputer, marker, library, short_training):
    """The level "unknown" is missing, and -1 in columns of numbers is."""
    X, nan = mixed(marker), mixed(np.nan if marker == -1 else "unknown")
    nan = nan.replace("unknown", np.nan)
    marked, plain = with_values(imputer, marker), clone(imputer)
    if library == "array":
        X, nan = X.to_numpy(object), nan.to_numpy(object)
        for one in (marked, plain):
            holder = one if hasattr(one, "missing_values") else one.model
            holder.set_params(categorical_features=[1])
    else:
        if library == "category":
            X, nan = (one.astype({"b": "category"}) for one in (X, nan))
        elif library == "polars":
            X, nan = pl.from_pandas(X), pl.from_pandas(nan)
        for one in (marked, plain):
            one.set_output(transform="polars" if library == "polars" else "pandas")
    before = copy.deepcopy(X)
    found = done(marked, X)
    assert_same(found, done(plain, nan), marker)
    assert set(next(iter(marked.categories_.values()))) == {"yes", "no"}
    if library == "array":
        assert (X == before).all()
    else:
        assert X.equals(before)
        assert [*map(str, found[0].dtypes)] == [*map(str, X.dtypes)]


@pytest.mark.quick(2)
@pytest.mark.parametrize("marker", [None, pd.NA, float("nan"), np.float32("nan")])
def test_nan_none_and_na_are_one_marker(marker):
    frame = mixed(np.nan).convert_dtypes()
    frame["d"] = pd.Series([None, pd.NA, np.nan, *numbers()[3:, 1]], dtype=object)
    expected = done(clone(NORMAL), frame)
    assert_same(done(with_values(NORMAL, marker), frame), expected, None)
    assert with_values(NORMAL, marker).__sklearn_tags__().input_tags.allow_nan
    assert not with_values(NORMAL, -1).__sklearn_tags__().input_tags.allow_nan


OUTPUTS = {
    "pandas": lambda frame: frame,
    "category": lambda frame: frame.astype({"b": "category"}),
    "string": lambda frame: frame.astype({"b": "string"}),
    "nullable": lambda frame: frame.convert_dtypes(),
    "arrow": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.from_pandas,
    "enum": lambda frame: pl.from_pandas(frame).with_columns(
        pl.col("b").cast(pl.Enum(["yes", "no", "unknown"]))
    ),
}


@pytest.mark.quick(5)
@pytest.mark.parametrize("marker", ["unknown", -1])
@pytest.mark.parametrize("kind", OUTPUTS)
def test_cells_that_stay_missing_keep_the_marker(kind, marker):
    """Whatever is not filled is as it was, and so is the data type."""
    frame = mixed(marker).astype({"a": np.int16, "c": np.int64})
    X = OUTPUTS[kind](frame)
    output = "polars" if isinstance(X, pl.DataFrame) else "pandas"
    imputer = with_values(NORMAL, marker).set_output(transform=output).fit(X)
    nowhere = {name: np.zeros(60, dtype=bool) for name in "abc"}
    tables = [imputer.transform(X, where=nowhere)]
    tables += imputer.sample(X, 2, random_state=0, where=nowhere)
    for table in tables:
        assert table.equals(X)
        assert [*map(str, table.dtypes)] == [*map(str, X.dtypes)]
    filled = imputer.transform(X)
    assert [*map(str, filled.dtypes)] == [*map(str, X.dtypes)]
    assert marker not in filled["b" if marker == "unknown" else "a"].to_list()
    if (
        marker == "unknown" and kind != "enum"
    ):  # levels without an order have no interval
        low, high = imputer.interval(X)
        assert low["b"].equals(X["b"]) and high["b"].equals(X["b"])


def test_arrays_keep_the_marker():
    hidden = holes()
    X = np.where(hidden, -1, numbers().astype(int))
    imputer, nowhere = with_values(NORMAL, -1).fit(X), np.zeros(X.shape, dtype=bool)
    found = imputer.transform(X, where=nowhere)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, X)
    drawn = imputer.sample(X, 2, random_state=0, as_array=True, where=nowhere)
    np.testing.assert_array_equal(drawn, [X, X])
    text = np.where(hidden, "?", X.astype(object))
    imputer = with_values(NORMAL, "?").fit(text)
    assert imputer.transform(text).dtype == np.float64
    np.testing.assert_array_equal(imputer.transform(text, where=nowhere), text)


def test_columns_that_are_passed_through_keep_the_marker():
    frame = mixed(-1).assign(name=[f"row {k}" for k in range(60)])
    frame.loc[3, "name"] = "?"
    frame.loc[:9, "b"] = "?"
    imputer = with_values(NORMAL, "?").set_output(transform="pandas").fit(frame)
    found = imputer.transform(frame)
    pd.testing.assert_series_equal(found["name"], frame["name"])
    assert set(found["b"]) == {"yes", "no"}


@pytest.mark.filterwarnings("ignore:where denies observed cells")
def test_rules_see_missing_cells_and_not_the_marker():
    X = np.where(holes(), -1.0, numbers())
    nan = np.where(holes(), np.nan, numbers())
    middle = np.nanmedian(nan[:, 0])
    rule = {1: lambda table: table[:, 0] < middle, 0: lambda table: table[:, 2] > 300}
    found = with_values(NORMAL, -1).fit_transform(X, where=rule)
    assert_same([found], [clone(NORMAL).fit_transform(nan, where=rule)], -1)
    assert (found == -1).any()


def test_limits_and_reference():
    hidden = holes()
    X, nan = np.where(hidden, -1, numbers()), np.where(hidden, np.nan, numbers())
    limits = {"upper": {0: 300.0}, "random_state": 0}
    found = with_values(NORMAL, -1).fit(X).sample(X, **limits)
    assert_same(found, clone(NORMAL).fit(nan).sample(nan, **limits))
    found = with_values(NORMAL, -1).fit(X).sample(X, reference=X[:40], random_state=0)
    other = clone(NORMAL).fit(nan).sample(nan, reference=nan[:40], random_state=0)
    assert_same(found, other)


@named([NORMAL])
def test_partial_fit(imputer, short_training):
    hidden = holes(200)
    X, nan = np.where(hidden, -1, numbers(200)), np.where(hidden, np.nan, numbers(200))
    results = []
    for one, table in ((with_values(imputer, -1), X), (clone(imputer), nan)):
        for rows in (slice(0, 60), slice(60, 100), slice(100, 200)):
            one.partial_fit(table[rows])
        results.append(one.transform(table))
    assert_same(results[:1], results[1:])


@pytest.mark.quick(4)
@named([NORMAL, COPULA])
@pytest.mark.parametrize("marker", ["unknown", -1])
@pytest.mark.parametrize("kind", ["array", "pandas", "polars"])
def test_chunks(imputer, marker, kind):
    """Also of parts without rows, and in which a column has the marker alone."""
    X, nan = mixed(marker), mixed(np.nan if marker == -1 else "unknown")
    nan = nan.replace("unknown", np.nan)
    name = "b" if marker == "unknown" else "a"
    X.loc[:9, name], nan.loc[:9, name] = marker, np.nan
    if kind == "array":
        X, nan = (one[["a", "c"]].to_numpy() for one in (X, nan))
    elif kind == "polars":
        X, nan = pl.from_pandas(X), pl.from_pandas(nan)
    parts = [
        Chunks([table[:10], table[10:10], table[10:25], table[25:]])
        for table in (X, nan)
    ]
    marked = with_values(imputer, marker).fit(parts[0])
    plain = clone(imputer).fit(parts[1])
    pairs = [(marked.transform(parts[0]), plain.transform(parts[1]))]
    drawn = (
        one.sample(part, 1, 0) for one, part in zip((marked, plain), parts, strict=True)
    )
    pairs += zip(*drawn, strict=True)
    pairs.append((marked.score_samples(parts[0]), plain.score_samples(parts[1])))
    for one, other in pairs:
        assert [len(part) for part in one] == [10, 0, 15, 35]
        assert_same(one, other, marker)


@pytest.mark.parametrize("marker", ["unknown", -1])
def test_dask(marker):
    dd = pytest.importorskip("dask.dataframe")
    X = mixed(marker).astype({"a": int, "c": int})
    nan = mixed(np.nan if marker == -1 else "unknown").replace("unknown", np.nan)
    marked = with_values(NORMAL, marker).fit(dd.from_pandas(X, npartitions=2))
    plain = clone(NORMAL).fit(dd.from_pandas(nan, npartitions=2))
    table = dd.from_pandas(X, npartitions=2)
    found = marked.transform(table)
    whole = found.compute()
    assert (found.dtypes == table.dtypes).all() and (whole.dtypes == table.dtypes).all()
    assert [str(one) for one in whole.dtypes[["a", "c"]]] == ["int64"] * 2
    assert_same(
        [whole], [plain.transform(dd.from_pandas(nan, npartitions=2)).compute()]
    )


def test_a_model_fills_parts_without_rows_whatever_its_marker():
    X = np.where(holes(), -1, numbers())
    imputer = with_values(ConstrainedImputer(NORMAL, random_state=0), -1).fit(X)
    found = [*imputer.transform(Chunks([X[:10], X[10:10], X[10:]]))]
    assert [len(part) for part in found] == [10, 0, len(X) - 10]
    np.testing.assert_allclose(np.concatenate(found), imputer.transform(X))


def test_arrow_tables():
    X, nan = mixed("unknown"), mixed("unknown").replace("unknown", np.nan)
    X, nan = (pa.Table.from_pandas(one) for one in (X, nan))
    assert_same(
        done(with_values(NORMAL, "unknown"), X), done(clone(NORMAL), nan), "unknown"
    )


def test_new_rows_keep_the_marker():
    """In a column without an observed cell."""
    X = np.where(holes(), -1, numbers())
    X[:, 1] = -1
    with pytest.warns(UserWarning, match="Entirely missing"):
        imputer = with_values(NORMAL, -1).fit(X)
    rows = imputer.sample_rows(5, random_state=0)
    assert (rows[:, 1] == -1).all() and (rows[:, [0, 2]] > 0).all()
    assert imputer.transform(rows).shape == (5, 2)


@pytest.mark.parametrize(
    "marker", [True, np.inf, [-1], b"?", (1, 2), np.True_, object()]
)
@named([one for one in IMPUTERS if hasattr(one, "missing_values")])
def test_other_types_are_an_error(imputer, marker):
    message = "'missing_values' parameter of .* must be .*numpy.nan, pandas.NA.*Got"
    for error in (TypeError, ValueError):
        with pytest.raises(error, match=message):
            clone(imputer).set_params(missing_values=marker).fit(numbers())


NAN = [
    np.where(holes(), np.nan, numbers()),
    np.where(holes(), None, numbers().astype(object)),
    np.where(holes(), np.nan, numbers()).tolist(),
    pd.DataFrame(np.where(holes(), np.nan, numbers())),
    pd.DataFrame(np.where(holes(), np.nan, numbers())).convert_dtypes(),
    pl.DataFrame(np.where(holes(), np.nan, numbers())),
    pl.DataFrame(np.where(holes(), np.nan, numbers())).fill_nan(None),
    pa.Table.from_pandas(pd.DataFrame(np.where(holes(), np.nan, numbers()))),
]


@pytest.mark.quick(6)
@pytest.mark.parametrize("X", NAN, ids=lambda X: type(X).__module__.split(".")[0])
@pytest.mark.parametrize("marker", [-1, "?"])
def test_nan_beside_another_marker_is_an_error(X, marker):
    column, row = 0, np.flatnonzero(holes()[:, 0])[0]
    name = (
        repr(list(getattr(X, "column_names", X.columns))[0])
        if hasattr(X, "columns")
        else str(column)
    )
    message = (
        f"Input X contains NaN, None or NA, the first in column {re.escape(name)}, row "
        f"{row}, but missing_values={re.escape(repr(marker))}. Mark missing cells by"
    )
    imputer = with_values(NORMAL, marker)
    refused(ValueError, message, imputer.fit, X)
    kept = X if isinstance(X, list) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names of columns
        imputer.fit(numbers())
        for method in ("transform", "sample", "interval", "score_samples"):
            refused(ValueError, message, getattr(imputer, method), kept or X)


def test_nan_in_a_part_is_an_error_that_names_it():
    X = np.where(holes(), -1, numbers())
    X[50, 2] = np.nan
    message = r"Part 1 of X.*contains NaN.*column 2, row 10"
    with pytest.raises(ValueError, match=message):
        with_values(NORMAL, -1).fit(Chunks([X[:40], X[40:]]))


MARKERS = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
)
CELLS = st.one_of(MARKERS, st.booleans())


def test_a_marker_that_ends_with_nul_comes_back_whole():
    """Hypothesis found that pandas cuts it off."""
    frame = pd.DataFrame({"a": np.array(["\x00", 0, "b\x00"], dtype=object)})
    for marker in ("\x00", "b\x00"):
        found = with_marker(without_marker(frame, marker), marker, frame)
        assert found["a"].tolist() == ["\x00", 0, "b\x00"]


@given(st.data(), MARKERS, st.integers(1, 5), st.integers(1, 4))
def test_the_way_back_restores_the_table(data, marker, n, d):
    """Of objects, which may equal the marker, as a frame of pandas and an array."""
    cells = data.draw(st.lists(CELLS | st.just(marker), min_size=n * d, max_size=n * d))
    X = np.empty((n, d), dtype=object)
    X.flat = cells
    before = X.copy()
    same = [type(one) is not bool and one == marker for one in X.flat]
    for table in (X, X.tolist(), pd.DataFrame(X, columns=list("abcd")[:d])):
        found = read_marked(table, marker)
        assert pd.isna(np.asarray(found, dtype=object)).ravel().tolist() == same
        back = with_marker(copy.copy(found), marker, table) if any(same) else found
        assert np.asarray(back, dtype=object).ravel().tolist() == cells
    assert (X == before).all()
    assert without_marker(X, None) is X


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float32", "float64"])
@pytest.mark.parametrize("marker", [-1, 255, 7, 0.5, 10**30])
def test_frames_of_numbers_keep_their_type(dtype, marker):
    frame = pd.DataFrame({"a": [7, 3, 7], "b": [0, 1, 2]}).astype(dtype)
    found = without_marker(frame, marker)
    assert (found is frame) == (marker != 7)
    assert found.isna()["a"].tolist() == [marker == 7, False, marker == 7]
    assert [one.kind for one in found.dtypes] == [np.dtype(dtype).kind] * 2
    pd.testing.assert_frame_equal(with_marker(found, marker, frame), frame)
    frame = pl.DataFrame({"a": [7, 3, 7]}).cast(
        {"a": getattr(pl, dtype.title().replace("Ui", "UI"))}
    )
    found = without_marker(frame, marker)
    assert found.null_count().item() == 2 * (marker == 7)
    assert with_marker(found, marker, frame).equals(frame)


@pytest.mark.parametrize(
    "X", [None, "table.csv", 3, [1, 2], np.zeros(3), [[1], [1, 2]]]
)
def test_what_is_no_table_stays_as_it_is(X):
    assert without_marker(X, -1) is X
    assert read_marked(X, -1) is X
