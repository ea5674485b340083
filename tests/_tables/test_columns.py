"""Tables of numbers, categories and dates: their codes, and the way back."""

import datetime as dt
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from errors import refused
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from skvnce import GaussianImputer, MixtureImputer, TableImputer
from skvnce._core.numbers import MOST_CODES
from skvnce._tables.cells import UNITS
from skvnce._tables.output import as_objects, decode, in_frames
from skvnce._tables.schema import Column, encode, read_columns

pytestmark = pytest.mark.usefixtures("short_training")
TEXTS = ["b", "a", "", "10", "9", "ä", "NaN", "None"]
DAYS = [dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(1800, 1, 1)]
MOMENTS = [dt.datetime(2020, 3, 29, 1, 30, 0, 123456), dt.datetime(1950, 7, 1)]
SPANS = [dt.timedelta(0), dt.timedelta(days=-3, microseconds=7)]
LARGE = [3, -(2**40), 2**52, 17, 2, 99, 5, 6, 7, 8, 1, 0]
FLOATS = [0.1, -3.5, 1e300, 0.0]


def in_frame(X, columns, kept, table, missing):
    return in_frames(X, columns, kept, table[None], missing)[0]


def in_array(X, columns, kept, table, missing):
    return as_objects(X, columns, kept, table[None], missing)[0]


def arrow(kind):
    return lambda cells: pd.Series(pd.array(cells, dtype=pd.ArrowDtype(kind)))


def pandas(dtype):
    return lambda cells: pd.Series(pd.array(cells, dtype=dtype))


def categories(levels, ordered):
    return lambda cells: pd.Series(pd.Categorical(cells, levels, ordered=ordered))


def polars(dtype):
    return lambda cells: pl.Series(cells, dtype=dtype)


def zoned(cells):
    return pandas("datetime64[us]")(cells).dt.tz_localize("UTC").dt.tz_convert(ZONE)


ZONE = "Europe/Berlin"
INTERVALS = [pd.Interval(0, 1), pd.Interval(1, 2), pd.Interval(2, 9)]
PANDAS = {  # values, and how to make a column with missing cells of them
    "category": (TEXTS, categories(TEXTS, False)),
    "ordered": (TEXTS, categories(TEXTS, True)),
    "intervals": (INTERVALS, categories(INTERVALS, True)),
    "numbers as categories": ([3, 1, 2], categories([3, 1, 2, 4], False)),
    "str": (TEXTS, pandas("str")),
    "views of text": (TEXTS, arrow(pa.string_view())),
    "string": (TEXTS, pandas("string")),
    "text objects": (TEXTS, lambda cells: pd.Series(cells, dtype=object)),
    "booleans as objects": ([True, False], lambda c: pd.Series(c, dtype=object)),
    "arrow text": (TEXTS, arrow(pa.string())),
    "arrow dictionary": (TEXTS, arrow(pa.dictionary(pa.int32(), pa.string()))),
    "boolean": ([True, False], pandas("boolean")),
    "arrow bool": ([True, False], arrow(pa.bool_())),
    "Int8": ([3, 1, -2], pandas("Int8")),
    "UInt16": ([3, 1, 65535], pandas("UInt16")),
    "Int64": (LARGE, pandas("Int64")),
    "arrow int": (LARGE, arrow(pa.int64())),
    "float64": (FLOATS, pandas("float64")),
    "float32": ([0.5, -1.5], pandas("float32")),
    "Float64": (FLOATS, pandas("Float64")),
    "datetime": (MOMENTS, pandas("datetime64[us]")),
    "nanoseconds": (
        [pd.Timestamp("2020-01-01 00:00:00.000000001"), pd.Timestamp("1999")],
        pandas("datetime64[ns]"),
    ),
    "seconds": ([dt.datetime(2020, 1, 1, 3)], pandas("datetime64[s]")),
    "zone": (MOMENTS, zoned),
    "duration": (SPANS, pandas("timedelta64[us]")),
    "arrow date": (DAYS, arrow(pa.date32())),
    "arrow zone": (MOMENTS, arrow(pa.timestamp("us", ZONE))),
    "arrow duration": (SPANS, arrow(pa.duration("us"))),
}
POLARS = {
    "Categorical": (TEXTS, polars(pl.Categorical)),
    "Enum": (TEXTS, polars(pl.Enum([*TEXTS, "unused"]))),
    "String": (TEXTS, polars(pl.String)),
    "Boolean": ([True, False], polars(pl.Boolean)),
    "Int64": (LARGE, polars(pl.Int64)),
    "UInt8": ([3, 255, 0], polars(pl.UInt8)),
    "Float64": (FLOATS, polars(pl.Float64)),
    "Float32": ([0.5, -1.5], polars(pl.Float32)),
    "Date": (DAYS, polars(pl.Date)),
    "Datetime": (MOMENTS, polars(pl.Datetime("us"))),
    "milliseconds": ([dt.datetime(2020, 1, 1, 3)], polars(pl.Datetime("ms"))),
    "nanoseconds": (MOMENTS, polars(pl.Datetime("ns"))),
    "zone": (
        [one.replace(tzinfo=dt.UTC) for one in MOMENTS],
        polars(pl.Datetime("us", ZONE)),
    ),
    "Duration": (SPANS, polars(pl.Duration("us"))),
}
LIBRARIES = {"pandas": PANDAS, "polars": POLARS}
KINDS = [(library, kind) for library, kinds in LIBRARIES.items() for kind in kinds]


def null(series):
    return np.asarray(series.isna() if hasattr(series, "isna") else series.is_null())


def frame_of(library, columns, index=None):
    if library == "polars":
        return pl.DataFrame(columns)
    frame = pd.DataFrame({k: v.reset_index(drop=True) for k, v in columns.items()})
    return frame if index is None else frame.set_axis(index)


def assert_given_back(X, codes, columns, is_exact=True):
    """Hide observed cells, fill all from codes, and compare with X."""
    observed = ~np.isnan(codes)
    lists = {name: X[name].to_list() for name in X.columns}
    kept = np.arange(X.shape[1])
    filled = in_frame(X, columns, kept, codes, observed)
    untouched = in_frame(X, columns, kept, np.where(observed, codes, 0), ~observed)
    for found in (filled, untouched):
        assert type(found) is type(X)
        assert list(found.columns) == list(X.columns)
        assert list(found.dtypes) == list(X.dtypes)
        if hasattr(X, "index"):
            assert found.index.equals(X.index)
    for place, name in enumerate(X.columns):
        seen = observed[:, place]
        assert columns[place].levels == () or not null(untouched[name]).any()
        for found in (filled, untouched) if is_exact else (untouched,):
            here = found[name].to_list()
            for row in np.flatnonzero(seen):
                assert here[row] == lists[name][row]


@pytest.mark.quick(13)
@pytest.mark.parametrize(("library", "kind"), KINDS)
@settings(max_examples=8, deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_cells_come_back_equal_and_of_the_same_dtype(library, kind, data):
    values, make = LIBRARIES[library][kind]
    cells = data.draw(st.lists(st.sampled_from([*values, None]), min_size=3))
    index = data.draw(st.sampled_from([None, "text", "same"]))
    if index is not None:
        index = [
            "i" * (place % 2 if index == "same" else place)
            for place in range(len(cells))
        ]
    numbers = np.arange(len(cells)) + 0.5
    own = {"x": make(cells), "n": make([None] * len(cells))}
    own["y"] = pl.Series(numbers) if library == "polars" else pd.Series(numbers)
    X = frame_of(library, own, index)
    columns = read_columns(X) or [Column("numeric")] * 3
    columns = pickle.loads(pickle.dumps(columns))
    codes = encode(X, columns)
    np.testing.assert_array_equal(np.isnan(codes[:, 0]), null(X["x"]))
    np.testing.assert_array_equal(codes[:, 2], numbers)
    # microseconds as floats do not hold nanoseconds
    assert_given_back(X, codes, columns, is_exact=kind != "nanoseconds")


def test_times_are_exact_to_the_microsecond():
    days = pd.Series(DAYS, dtype="datetime64[s]")
    [column], codes = read_columns(days.to_frame("t")), None
    codes = encode(days.to_frame("t"), [column])
    assert codes[0, 0] == -86_400e6
    assert decode([column], codes)[:, 0].tolist() == days.tolist()
    zone = pd.DataFrame({"t": zoned([MOMENTS[0]] * 2)})
    [column] = read_columns(zone)
    assert column.zone == ZONE and column.kind == "numeric"
    assert decode([column], encode(zone, [column]))[0, 0] == zone.t[0]
    late = pd.DataFrame({"t": pandas("datetime64[ns]")(["2020-01-01", None])})
    late.t += pd.Timedelta(1, "ns")
    found = encode(late, read_columns(late))[0, 0]
    assert found == pytest.approx(1577836800e6, abs=0.3)
    spans = pd.DataFrame({"t": pandas("timedelta64[ns]")([1, 2007])})
    assert encode(spans, read_columns(spans))[:, 0].tolist() == [0.001, 2.007]


@pytest.mark.parametrize(("unit", "tick"), [("s", 10**6), ("ms", 1000), ("us", 1)])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_times_are_rounded_down_to_the_unit_of_their_column(kind, unit, tick):
    X = pd.DataFrame({"t": np.array([7, "NaT", "NaT"], dtype=f"{kind}[{unit}]")})
    frames = [X, pl.from_pandas(X)] if unit != "s" else [X]  # polars has no seconds
    columns, fills = read_columns(X), np.array([[0.0], [1_234_567.0], [-1_234_567.0]])
    columns = [columns[0]._replace(unit=0)]  # as if there were fractions
    for frame in frames:
        missing = np.isnan(encode(frame, columns))
        found = in_frame(frame, columns, [0], fills, missing)
        assert list(found.dtypes) == list(frame.dtypes)
        cells = encode(found, columns)[:, 0]
        assert cells.tolist() == [7 * tick, *(fills[1:, 0] // tick * tick)]


def test_dates_are_rounded_to_the_nearest_day():
    day = 86_400e6
    found = decode([Column("numeric", dtype="date")], np.array([[0.4], [-0.6]]) * day)
    assert found[:, 0].tolist() == [dt.date(1970, 1, 1), dt.date(1969, 12, 31)]


def in_zone(zone):
    return lambda spans: (pd.Timestamp("2024-03-30") + spans).dt.tz_localize(zone)


TIMES = {
    "moments": lambda spans: pd.Timestamp("2024-03-30") + spans,
    "durations": lambda spans: spans - pd.Timedelta("3D"),
    **{zone: in_zone(zone) for zone in (ZONE, "UTC", "Asia/Kolkata", "+02:00")},
    "arrow": lambda spans: arrow(pa.timestamp("us", ZONE))(
        in_zone(ZONE)(spans).tolist()
    ),
}


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize(
    ("name", "unit"), [*zip(["D", "h", "min", "s"], UNITS, strict=True), ("ms", 0)]
)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_whole_units_are_filled_by_whole_units(kind, name, unit, library):
    spans = pd.Series(pd.to_timedelta([0, None, 1], name))
    X = pd.DataFrame({"t": TIMES[kind](spans)})
    X = pl.from_pandas(X) if library == "polars" else X
    [column] = read_columns(X)
    assert column.unit == unit
    fills = encode(X, [column])
    fills[1] = fills[0] + 0.7 * (unit or 1000)
    found = in_frame(X, [column], [0], fills, null(X["t"])[:, None])
    gap = encode(found, [column])[1, 0] - fills[0, 0]
    assert gap == (unit or 700)


def test_days_begin_at_midnight_by_the_clock_of_their_zone():
    days = pd.Series(["2024-03-30", None, "2024-04-01"], dtype="datetime64[us]")
    X = pd.DataFrame({"t": days.dt.tz_localize(ZONE)})  # in between it changes
    [column], hour = read_columns(X), 3600e6
    fills = encode(X, [column])
    for moment, day in ((fills[2, 0] - hour, 1), (fills[0, 0] + 25 * hour, 31)):
        fills[1] = moment
        found = in_frame(X, [column], [0], fills, null(X))["t"][1]
        assert (found.day, found.hour) == (day, 0)


@pytest.mark.parametrize("zone", [None, "UTC", ZONE, "+02:00", "no zone"])
@pytest.mark.parametrize("dtype", ["date", "datetime"])
def test_numbers_beyond_all_dates_are_the_ends(zone, dtype):
    column = Column("numeric", dtype=dtype, zone=zone, unit=UNITS[0])
    found = decode([column], np.array([[-1e30], [1e30]]))[:, 0]
    assert [one.year for one in found] == [1, 9999]


def kinds(X, categorical_features="from_dtype"):
    return {
        name: (column.kind, column.levels)
        for name, column in zip(
            X.columns, read_columns(X, categorical_features), strict=True
        )
    }


def mixed():
    return pd.DataFrame(
        {
            "number": [0.5, 1.5, np.nan, 2.5, 3.5, 4.5],
            "text": ["b", "a", None, "b", "", "10"],
            "grade": pd.Categorical(["lo", "hi", None, "lo", "hi", "lo"],
                                    ["lo", "mid", "hi"], ordered=True),
            "yes": [True] * 6,
            "count": [3, 1, 3, 1, 7, 7],
            "id": [30, 10, 40, 70, 20, 80],
        }
    )  # fmt: skip


def test_kinds_follow_the_data_types():
    expected = {
        "number": ("numeric", None),
        "text": ("nominal", ("", "10", "a", "b")),
        "grade": ("ordinal", ("lo", "hi")),  # "mid" was not observed
        "yes": ("ordinal", (False, True)),
        "count": ("ordinal", (1, 3, 7)),
        "id": ("numeric", None),  # 6 different values in 6 cells
    }
    X = mixed()
    assert kinds(X) == expected
    exact = {name: found for name, found in expected.items() if name != "grade"}
    assert kinds(pl.from_pandas(X.drop(columns="grade"))) == exact
    table = pa.Table.from_pandas(X[["number", "text", "count"]])
    found = [tuple(column[:2]) for column in read_columns(table)]
    assert found == [expected[name] for name in ("number", "text", "count")]
    enum = pl.DataFrame({"e": pl.Series(["b", "a"], dtype=pl.Enum(["b", "c", "a"]))})
    assert kinds(enum) == {"e": ("ordinal", ("b", "a"))}
    categorical = enum.cast(pl.Categorical)
    assert kinds(categorical) == {"e": ("nominal", ("a", "b"))}


def test_integers_with_few_values_are_ordinal():
    for width in (MOST_CODES, MOST_CODES + 1):
        X = pd.DataFrame({"i": np.arange(3 * width) % width, "s": "a"})
        few = width <= MOST_CODES
        assert kinds(X)["i"][0] == ("ordinal" if few else "numeric")
        assert kinds(X.assign(i=X["i"] / 1))["i"][0] == kinds(X)["i"][0]
        assert kinds(X.assign(i=X["i"] / 2))["i"] == ("numeric", None)
        assert kinds(X, {"i": "numeric"})["i"] == ("numeric", None)
        assert kinds(X, ["s"])["i"] == ("numeric", None)


def test_a_new_number_counts_as_the_nearest_level():
    X = pd.DataFrame({"i": [1, 1, 4, 4, 9, 9]})
    columns = read_columns(X)
    new = pd.DataFrame({"i": [0, 2, 3, 100, 6.5, np.nan]})
    codes = encode(new, columns)[:, 0]
    np.testing.assert_array_equal(codes, [0, 0, 1, 2, 1, np.nan])
    missing = np.isnan(codes)[:, None]
    filled = in_array(new, columns, [0], np.full((6, 1), 2.0), missing)
    assert filled.ravel().tolist() == [0, 2, 3, 100, 6.5, 9]


def test_a_dict_decides_about_its_columns():
    X = mixed()
    found = kinds(X, {"text": ["b", "a", "", "10", "c"], "count": "nominal"})
    assert found["text"] == ("ordinal", ("b", "a", "", "10"))
    assert found["count"] == ("nominal", (1, 3, 7))
    assert found["grade"] == ("ordinal", ("lo", "hi"))
    assert kinds(X, {"grade": "nominal"})["grade"] == ("nominal", ("lo", "hi"))


def test_levels_that_are_numbers_can_be_numeric():
    def codes(levels):
        X = pd.DataFrame({"a": pd.Categorical(levels), "b": list("xyxy")})
        return encode(X, read_columns(X, {"a": "numeric"}))[:, 0]

    np.testing.assert_array_equal(codes([3, 1, None, 3]), [3.0, 1.0, np.nan, 3.0])


@pytest.mark.parametrize("make", [np.asarray, np.ndarray.tolist, np.ma.asarray])
def test_arrays_have_the_categories_that_are_named(make):
    X = np.array([["b", 1.0, True], ["a", np.nan, None], [None, 2, False]], object)
    for asked in ([0], [True, False, False], np.array([0]), (-3,)):
        columns = read_columns(make(X), asked)
        assert [column.kind for column in columns] == ["nominal", "numeric", "numeric"]
        codes = encode(make(X), columns)
        expected = [[1, 1, 1], [0, np.nan, np.nan], [np.nan, 2, 0]]
        np.testing.assert_array_equal(codes, expected)
    missing = np.isnan(codes[:, [2, 0]])
    filled = in_array(make(X), columns, [2, 0], np.ones((3, 2)), missing)
    assert filled.tolist() == [[True, "b"], [True, "a"], [False, "b"]]
    assert read_columns(make(X)) is read_columns(make(X), None) is None


def test_arrays_of_numbers_are_nominal_where_named():
    X = np.array([[3.0, 0.1], [1.0, 0.2], [np.nan, 0.3]])
    columns = read_columns(X, [0])
    assert columns[0][:2] == ("nominal", (1.0, 3.0))
    codes = encode(X, columns)
    np.testing.assert_array_equal(codes, [[1, 0.1], [0, 0.2], [np.nan, 0.3]])
    found = in_array(X, columns, [0, 1], np.nan_to_num(codes), np.isnan(codes))
    assert found.dtype == float and found.tolist() == [[3, 0.1], [1, 0.2], [1, 0.3]]


def test_a_cell_that_is_no_number_is_named_once():
    X = pd.DataFrame({"c": ["a", "b"], "p": pd.period_range("2020", None, 2, "M")})
    with pytest.raises(TypeError, match="column 'p', row 0") as caught:
        encode(X, [Column("nominal", ("a", "b"), "level"), Column("numeric")])
    assert str(caught.value).count("column 'p'") == 1


def test_tables_of_numbers_need_no_codes():
    X = np.ones((30, 2))
    for table in (X, X.astype(int), X.tolist(), pd.DataFrame(X), pl.DataFrame(X)):
        assert read_columns(table) is None
    assert read_columns(pd.DataFrame(np.arange(40).reshape(-1, 2))) is None
    assert read_columns(mixed()[["number", "count"]], None) is None


def test_unknown_levels_are_refused_or_missing():
    columns = read_columns(mixed())
    new = mixed().assign(text=["a", None, "b", "zebra", "b", "b"])
    with pytest.raises(ValueError, match="'zebra' in column 'text', row 3.*missing"):
        encode(new, columns)
    codes = encode(new, columns, handle_unknown="missing")
    assert np.isnan(codes[[1, 3], 1]).all() and codes[0, 1] == 2
    unseen = mixed().assign(grade=pd.Categorical(["mid"] * 6, ["lo", "mid", "hi"]))
    refused(ValueError, "'mid' in column 'grade', row 0", encode, unseen, columns)


FOREIGN = {  # data types of columns that are entirely missing
    "pandas": ["float64", "Int64", "boolean", "string", "category", "datetime64[us]",
               "datetime64[us, UTC]", "timedelta64[us]", "object"],
    "polars": [pl.Null, pl.Float64, pl.Int8, pl.Boolean, pl.String, pl.Enum(["q"]),
               pl.Datetime("us"), pl.Date, pl.Duration("us")],
}  # fmt: skip
FILLED = {
    "text": ["b", "a", "b"],
    "yes": [True, False, True],
    "count": [3, 7, 3],
    "moment": [MOMENTS[0], MOMENTS[1], MOMENTS[0]],
    "zone": [one.replace(tzinfo=dt.UTC) for one in (*MOMENTS, MOMENTS[0])],
    "span": [SPANS[0], SPANS[1], SPANS[0]],
}


@pytest.mark.parametrize("library", FOREIGN)
@pytest.mark.parametrize("name", FILLED)
def test_a_missing_column_may_have_any_data_type(library, name):
    expected = FILLED[name]
    [column] = read_columns(pl.DataFrame({name: expected}), {name: _asked(name)})
    codes = encode(pl.DataFrame({name: expected}), [column])
    for dtype in FOREIGN[library]:
        if library == "pandas":
            X = pd.DataFrame({name: pd.Series([None] * 3, list("uvw"), dtype=dtype)})
        else:
            X = pl.DataFrame({name: pl.Series([None] * 3, dtype=dtype)})
        missing = np.isnan(encode(X, [column]))
        assert missing.all()
        found = in_frame(X, [column], [0], codes, missing)
        assert list(found[name]) == expected
        if library == "pandas":
            assert found.index.equals(X.index)
        if dtype == "object" or (name == "text" and dtype in ("category", "string")):
            assert isinstance(found[name].dtype, type(X[name].dtype))


def _asked(name):
    return "nominal" if name in ("text", "yes", "count") else "numeric"


def test_a_missing_column_that_fits_keeps_its_data_type():
    yes = read_columns(pd.DataFrame({"y": [True, False]}))
    for dtype, value in (("float64", 1.0), ("Int8", 1), ("boolean", True)):
        X = pd.DataFrame({"y": pd.Series([None] * 2, dtype=dtype)})
        found = in_frame(X, yes, [0], np.ones((2, 1)), np.ones((2, 1), dtype=bool))
        assert found["y"].dtype == X["y"].dtype and found["y"].tolist() == [value] * 2


NARROW = {
    "pandas": lambda cells, kind: pd.DataFrame({"n": pd.array(cells, dtype=kind)}),
    "polars": lambda cells, kind: pl.DataFrame(
        {"n": pl.Series(cells, dtype=getattr(pl, kind))}
    ),
}


@pytest.mark.parametrize("library", NARROW)
@pytest.mark.parametrize("asked", ["numeric", "ordinal"])
def test_a_data_type_that_is_too_narrow_for_a_value_is_an_error(library, asked):
    """Fills are neither clipped nor wrapped."""
    wide = NARROW[library]([300, 2, 300], "Int64")
    columns = read_columns(wide, {"n": asked})
    codes = encode(wide, columns) if columns else np.array([[300.0], [2.0], [300.0]])
    ends = np.array([[codes.min()], [codes.max()]])
    gap = np.array([[False], [True], [False]])

    def filled(cells, kind, code):
        X = NARROW[library](cells, kind)
        table = np.array([[[0.0], [code], [0.0]]])
        [found] = in_frames(X, columns, [0], table, gap, ends)
        assert found["n"].dtype == X["n"].dtype
        return found["n"].to_list()

    large, small = codes.max(), codes.min()
    for kind, cells in (("Int8", [1, None, 2]), ("boolean", [True, None, False])):
        kind = "Boolean" if library == "polars" and kind == "boolean" else kind
        with pytest.raises(ValueError, match="Column 'n'.*imputed value 300.*fit"):
            filled(cells, kind, large)
    assert filled([1, None, 2], "Int8", small) == [1, 2, 2]
    assert filled([1, None, 2], "Int16", large) == [1, 300, 2]


def test_draws_beyond_the_data_type_of_fit_are_clipped():
    """The range of draws is a little wider than that of the observed cells."""
    X = pd.DataFrame({"n": pd.array([127, None, 3], dtype="Int8")})
    gap = np.array([[False], [True], [False]])
    table = np.array([[[0.0], [131.0], [0.0]]])
    [found] = in_frames(X, None, [0], table, gap, np.array([[3.0], [127.0]]))
    assert found["n"].tolist() == [127, 127, 3]


def test_a_missing_column_that_is_too_narrow_is_widened():
    X = pd.DataFrame({"n": pd.array([None, None], dtype="Int8")})
    gap, ends = np.ones((2, 1), dtype=bool), np.array([[3.0], [300.0]])
    columns = [
        Column("numeric", dtype="integer"),
        Column("ordinal", (3, 300), "integer", None, True),
    ]
    for column, table in zip(columns, ([[300.0], [3.0]], [[1.0], [0.0]]), strict=True):
        [found] = in_frames(X, [column], [0], np.array([table]), gap, ends)
        assert found["n"].tolist() == [300, 3]


def test_integers_of_128_bits():
    X = pl.DataFrame({"n": pl.Series([2**70, None, 3], dtype=pl.Int128)})
    gap = np.array([[False], [True], [False]])
    [found] = in_frames(X, None, [0], np.array([[[0.0], [7.0], [0.0]]]), gap)
    assert found["n"].to_list() == [2**70, 7, 3]


def test_booleans_that_came_as_numbers_are_filled_by_numbers():
    columns = read_columns(pd.DataFrame({"y": [True, False, None]}))
    for X in (
        pd.DataFrame({"y": [1.0, np.nan, 0.0]}),
        pl.DataFrame({"y": [1.0, None, 0.0]}),
    ):
        codes = encode(X, columns)
        found = in_frame(X, columns, [0], np.ones((3, 1)), np.isnan(codes))
        assert found["y"].dtype == X["y"].dtype and list(found["y"]) == [1, 1, 0]


def test_moments_that_came_as_dates_are_filled_by_dates():
    columns = read_columns(pl.DataFrame({"t": MOMENTS}))
    X = pl.DataFrame({"t": [DAYS[1], None]})
    codes = encode(X, columns)
    table = encode(pl.DataFrame({"t": MOMENTS[::-1]}), columns)
    found = in_frame(X, columns, [0], table, np.isnan(codes))
    assert found.schema == X.schema and list(found["t"]) == [DAYS[1], MOMENTS[0].date()]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_that_came_as_moments_are_filled_by_moments(unit):
    days = pl.DataFrame({"day": DAYS})
    columns = read_columns(days)
    moments = [dt.datetime(2020, 1, 1, 7), None, dt.datetime(1999, 1, 1)]
    X = pd.DataFrame({"day": pd.Series(moments, dtype=f"datetime64[{unit}]")})
    found = in_frame(X, columns, [0], encode(days, columns), null(X))
    assert found.dtypes.equals(X.dtypes)
    assert found["day"].tolist() == [moments[0], dt.datetime(2020, 2, 29), moments[2]]
    zone = X.assign(day=X["day"].dt.tz_localize(ZONE))
    with pytest.raises(TypeError, match="'day' has no time zone in the table of fit"):
        encode(zone, columns)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_time_zones_come_with_those_of_fit_or_not_at_all(library):
    naive, zone = (
        pd.DataFrame({"t": cells})
        for cells in (pandas("datetime64[us]")(MOMENTS), zoned(MOMENTS))
    )
    if library == "polars":
        naive, zone = pl.from_pandas(naive), pl.from_pandas(zone)
    with pytest.raises(TypeError, match="'t' has no time zone in.*but a time zone"):
        encode(zone, read_columns(naive))
    with pytest.raises(TypeError, match="'t' has a time zone in.*no time zone now"):
        encode(naive, read_columns(zone))
    other = pd.DataFrame({"t": zoned(MOMENTS).dt.tz_convert("Asia/Tokyo")})
    codes = encode(other, read_columns(zone))
    np.testing.assert_array_equal(codes, encode(zone, read_columns(zone)))


def test_levels_that_the_data_type_lacks_are_added():
    columns = read_columns(mixed())
    for ordered in (True, False):
        grade = pd.Categorical(["hi"] * 5 + [None], ["hi", "other"], ordered=ordered)
        new = mixed().assign(grade=grade)
        filled = in_frame(new, columns, [2], np.zeros((6, 1)), null(new[["grade"]]))
        assert filled.grade.tolist() == ["hi"] * 5 + ["lo"]
        assert filled.grade.cat.categories.tolist() == ["lo", "hi", "other"]
        assert filled.grade.cat.ordered == ordered
    enum = pl.DataFrame({"e": pl.Series(["b", None], dtype=pl.Enum(["b"]))})
    known = [Column("ordinal", ("a", "b"), "level")]
    filled = in_frame(enum, known, [0], np.zeros((2, 1)), np.array([[False], [True]]))
    assert filled["e"].to_list() == ["b", "a"]


LEVELS = pd.Categorical(["u", "v"])
DTYPE, CONVERT = "from_dtype", "pandas.to_datetime"
HOSTILE = [  # a frame, categorical_features, and what the error says
    ({"a": [1.5, 2.0, "x", None]}, DTYPE, "'x'.* row 2.*to_numeric"),
    ({"a": ["u", "v", "w", 2]}, DTYPE, "2 in column 'a', row 3"),
    ({"a": [[1], [2], [1]], "s": "t"}, DTYPE, "'a', row 0"),
    ({"a": [{1}, {2}, {1}]}, ["a"], r"\{1\} in column 'a', row 0"),
    ({"a": ["u", "v"], "b": ["w", "w"]}, ["a"], "'w' in column 'b', row 0"),
    ({"a": ["u", "v"]}, None, "'u' in column 'a', row 0.* List"),
    ({"a": [1, 2]}, ["b"], "'b', no column of X: 'a'"),
    ({"a": [1, 2]}, [1], "the key 1, no column of X: 'a'"),
    ({"a": [1, 2]}, {2: "nominal"}, "has the key 2, no column of X: 'a'"),
    ({"a": [1, 2]}, [True, False], "mask of 2 columns, and X has 1"),
    ({"a": [1, 2]}, np.ones((2, 6), dtype=bool), "categorical_features .*one dim"),
    ({"a": [1, 2]}, [["text"]], "categorical_features .*one dimension"),
    ({"a": [1, 2]}, {"a": "count"}, "'count' for column 'a'"),
    ({"a": ["u", "v"]}, {"a": ["u"]}, "'v' in column 'a', row 1"),
    ({"a": ["u", "v"]}, {"a": ["u", "u"]}, "different levels"),
    ({"a": ["u", "v"]}, {"a": [["u"], ["v"]]}, "'a': it must be .*list of diff"),
    ({"a": ["u", "v"]}, {"a": "numeric"}, "'u' in column 'a', row 0"),
    ({"a": LEVELS}, {"a": "numeric"}, "text where numbers are expected: 'u'"),
    ({"a": pd.period_range("2020", periods=3), "s": "t"}, DTYPE, "'a', row 0"),
    ({"a": np.array(DAYS, object), "s": "t"}, DTYPE, f"'a', row 0.*{CONVERT}"),
    ({"a": np.array(DAYS, object), "x": 1.5}, DTYPE, f"'a', row 0.*{CONVERT}"),
    ({"a": arrow(pa.date64())(DAYS), "s": "t"}, DTYPE, f"'a', row 0.*{CONVERT}"),
    ({"a": [1, 2**53 + 1], "s": "t"}, DTYPE, "9007199254740993 in column 'a', row 1"),
    ({"a": np.arange(2) * 1j, "s": "t"}, DTYPE, "'a' has complex numbers.*real"),
    (pd.DataFrame([["u", 1]], columns=["a", "a"]), DTYPE, "2 columns named 'a'"),
    (pd.DataFrame(index=range(3)), DTYPE, "X has no columns"),
    (pl.DataFrame(), DTYPE, "X has no columns"),
]


@pytest.mark.parametrize(("cells", "asked", "message"), HOSTILE)
def test_hostile_frames_are_refused_by_name(cells, asked, message):
    X = cells if isinstance(cells, pl.DataFrame) else pd.DataFrame(cells)
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        encode(X, read_columns(X, asked))


def test_a_column_that_changes_its_type_is_refused():
    X = mixed().assign(day=pd.Timestamp("2020"))
    columns = read_columns(X)
    for wrong in (X.assign(day=3.0), X.assign(number=pd.Timestamp("2020"))):
        refused(TypeError, "in the table of fit", encode, wrong, columns)
    assert np.isnan(encode(X.assign(day=np.nan), columns)[:, -1]).all()


def test_large_integers_that_floats_represent_are_read():
    X = pd.DataFrame({"sex": ["f", "m", "f"], "id": [1, 2**60, 5]})
    assert encode(X, read_columns(X))[1, 1] == 2.0**60


def test_columns_without_a_type_are_entirely_missing():
    X = pd.DataFrame({"a": list("uvuv"), "b": arrow(pa.null())([None] * 4)})
    for frame in (X, pl.DataFrame({"a": list("uvuv"), "b": [None] * 4})):
        columns = read_columns(frame)
        assert columns[1] == Column("numeric")
        assert np.isnan(encode(frame, columns)[:, 1]).all()


@pytest.mark.parametrize("library", [pa.table, pl.DataFrame])
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_filled_booleans_and_integers_keep_their_types(library, output, rng):
    """With nulls, pandas would have objects and floats."""
    gone = rng.random((60, 4)) < 0.2
    cells = {
        "x": rng.normal(size=60),
        "yes": rng.random(60) < 0.5,
        "count": rng.integers(0, 4, 60),
        "id": 2**60 + rng.integers(0, 9, 60),
    }
    cells = {
        name: [None if gone[k, j] else one for k, one in enumerate(column.tolist())]
        for j, (name, column) in enumerate(cells.items())
    }
    imputer = GaussianImputer(
        categorical_features={"id": "passthrough"}, max_iter=20, random_state=0
    ).set_output(transform=output)
    X = library(cells)
    filled = imputer.fit(X).transform(X)
    for table in (filled, *imputer.sample(X, n_draws=2, random_state=0)):
        kinds = [str(table[name].dtype).lower() for name in ("yes", "count")]
        assert kinds == ["bool" if output == "pandas" else "boolean", "int64"]
        seen = [k for k, one in enumerate(cells["yes"]) if one is not None]
        found = table["yes"].to_numpy()[seen].tolist()
        assert found == [cells["yes"][k] for k in seen]
    if (library, output) == (pa.table, "pandas"):  # pandas reads floats of polars
        is_known = filled["id"].notna()
        assert filled["id"][is_known].tolist() == [one for one in cells["id"] if one]


@pytest.mark.quick(8)
@pytest.mark.parametrize("make", [GaussianImputer, TableImputer, MixtureImputer])
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table, np.array])
@pytest.mark.parametrize("value", ["a", dt.datetime(2020, 1, 1), True])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_dropped_column_may_have_any_cells(make, library, value, rng):
    cells = {"x": rng.normal(size=40), "empty": [None] * 40, "y": rng.normal(size=40)}
    cells["x"][::5] = np.nan
    filled = {**cells, "empty": [value, None] * 20}

    def table(cells):
        if library is np.array:
            return np.array(list(cells.values()), dtype=object).T
        return library(cells)

    model = make(random_state=0).fit(table(cells))
    expected = model.transform(table(cells))
    X = table(filled)
    np.testing.assert_array_equal(model.transform(X), expected)
    assert model.sample(X, n_draws=1, random_state=0)[0].shape == (40, 2)
    if library is pd.DataFrame:
        assert X["empty"].tolist()[0] == value  # X is not modified
    kept = make(keep_empty_features=True, random_state=0).fit(table(cells))
    if value == "a":
        refused((ValueError, TypeError), "'a'", kept.transform, X)
