"""Long tables become wide and come back; neighbours are those of the group."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from skvnce import GaussianImputer
from skvnce.exceptions import TableWarning
from skvnce.longitudinal import Wide, to_wide, with_neighbours

pytestmark = pytest.mark.usefixtures("short_training")
GRADES = ["low", "middle", "high"]
VARYING = ["x", "short", "n", "cars", "well", "sure", "grade", "town", "note", "seen"]
NAMES = {"groups": "patient", "time": "month"}


def visits(seed=0, n_groups=6, times=(0, 6, 12), share=0.8, missing=0.25):
    """Return a long table of each data type, shuffled, with rows that are absent."""
    rng = np.random.default_rng(seed)
    patient, month = map(np.ravel, np.meshgrid(range(n_groups), times, indexing="ij"))
    n = len(patient)
    grade = pd.Categorical.from_codes(rng.integers(3, size=n), GRADES, ordered=True)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "patient": [f"p{one}" for one in patient],
            "short": rng.normal(size=n).astype(np.float32),
            "n": rng.integers(100, size=n),
            "cars": pd.array(rng.integers(100, size=n), dtype="Int64"),
            "sex": pd.Categorical(np.where(patient % 2, "f", "m")),
            "well": rng.random(n) < 0.5,
            "sure": pd.array(rng.random(n) < 0.5, dtype="boolean"),
            "grade": grade,
            "town": pd.Categorical(rng.choice(["S", "Q", "C"], n), ["S", "Q", "C"]),
            "month": month,
            "note": pd.array(rng.choice(["a", "b"], n), dtype="string"),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), "D"),
        },
        index=[f"row {i}" for i in range(n)],
    )
    for name in [*VARYING, "sex"]:
        if name not in ("n", "well"):  # whose data types hold no missing cells
            frame.loc[rng.random(n) < missing, name] = None
    rows = rng.permutation(n)[rng.random(n) < share]
    return frame.iloc[rows if len(rows) else [0]]


def in_polars(frame):
    """Convert without the index, grades to an Enum."""
    grades = pl.selectors.starts_with("grade")
    table = pl.from_pandas(frame).with_columns(grades.cast(pl.String))
    return table.with_columns(grades.cast(pl.Enum(GRADES)))


def in_both(frame):
    return [frame, in_polars(frame)]


def same(found, expected):
    if isinstance(expected, pl.DataFrame):
        assert found.schema == expected.schema
        assert found.equals(expected)
    else:
        pd.testing.assert_frame_equal(found, expected)


tables = st.builds(
    visits,
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.sampled_from([(0,), (6, 0), (0, 1, 2, 3.5)]),
    st.floats(0.3, 1),
    st.floats(0, 0.9),
)


@pytest.mark.filterwarnings("ignore::skvnce.exceptions.TableWarning")
@settings(max_examples=8)
@given(tables)
def test_round_trip(frame):
    for table in in_both(frame.drop(columns="sex")):
        kept = table.copy() if hasattr(table, "iloc") else table
        wide = to_wide(table, columns=VARYING, **NAMES)
        same(wide.to_long(wide.table), table)
        same(table, kept)
        every = wide.to_long(wide.table, all_times=True)
        assert len(every) == len(wide.table) * len(wide.times)


@pytest.mark.filterwarnings("ignore::skvnce.exceptions.TableWarning")
@settings(max_examples=10)
@given(tables)
def test_cells_are_those_of_a_pivot(frame):
    wide = to_wide(frame, columns=VARYING, **NAMES)
    assert wide.times == sorted(set(frame["month"]))
    assert wide.table.index.tolist() == list(dict.fromkeys(frame["patient"]))
    cells = frame.set_index(["patient", "month"])
    for name in VARYING:
        known, found = cells[name].dropna(), {}
        for time in wide.times:
            column = wide.table[f"{name}@{int(time) if time == int(time) else time}"]
            found |= {(key, time): one for key, one in column.dropna().items()}
        assert found == dict(known.items())


def test_wide_keeps_data_types():
    frame = visits(share=1.0)
    wide = to_wide(frame, columns=VARYING, **NAMES).table
    assert list(wide)[3] == "short@0" and list(wide).count("sex") == 1
    for name in VARYING:
        assert wide[f"{name}@6"].dtype == frame[name].dtype
    wide = to_wide(frame.iloc[1:], columns=VARYING, **NAMES).table
    changed = {"n": "Int64", "well": "boolean"}
    for name in VARYING:
        assert wide[f"{name}@6"].dtype == changed.get(name, frame[name].dtype)
    assert wide["sex"].dtype == frame["sex"].dtype
    table = in_polars(frame.iloc[1:])
    wide = to_wide(table, columns=VARYING, **NAMES).table
    for name in VARYING:
        assert wide[f"{name}@6"].dtype == table[name].dtype


ARROW = [pa.int64(), pa.string(), pa.float32(), pa.bool_(), pa.timestamp("us")]


@pytest.mark.parametrize("dtype", ["uint8", "UInt16", "object", "float64[pyarrow]"])
def test_other_data_types_come_back(dtype):
    frame = visits().assign(y=lambda t: t["n"].astype(dtype))[["patient", "month", "y"]]
    wide = to_wide(frame, **NAMES)
    same(wide.to_long(wide.table), frame)
    every = wide.to_long(
        wide.table.map(lambda one: 7 if pd.isna(one) else one), all_times=True
    )
    assert every["y"].dtype == frame["y"].dtype and every["y"].notna().all()


@pytest.mark.parametrize("dtype", ARROW, ids=str)
def test_tables_of_pyarrow_come_back(dtype):
    cells = pa.array([1, 0, None, 1]).cast(dtype if dtype != pa.bool_() else pa.int64())
    columns = {"g": [2, 1, 2, 1], "t": [0, 1, 1, 0], "y": cells.cast(dtype)}
    table = pa.table(columns).slice(0, 3)
    wide = to_wide(table, groups="g", time="t", columns="y")
    assert wide.table.column("y@1").type == dtype
    assert wide.to_long(wide.table).equals(table)


def test_constant_columns_complete_their_groups():
    frame = pd.DataFrame(
        {
            "g": [1, 1, 1, 2, 2],
            "t": [0, 1, 2, 0, 1],
            "constant": ["a", None, "a", None, "b"],
            "once": [1.0, None, None, None, 2.0],
            "varies": [1.0, 1.0, 2.0, None, 2.0],
        }
    )
    for table in (frame, pl.from_pandas(frame)):
        wide = to_wide(table, groups="g", time="t")
        names = list(wide.table.columns)
        assert names == ["constant"] + [
            f"{a}@{t}" for a in ("once", "varies") for t in range(3)
        ]
        assert list(wide.table["constant"]) == ["a", "b"]
        long = wide.to_long(wide.table)
        assert list(long["constant"]) == ["a"] * 3 + ["b"] * 2
        same(long[["once", "varies"]], table[["once", "varies"]])
        once = to_wide(table, groups="g", time="t", columns="varies")
        assert list(once.to_long(once.table)["once"]) == [1, 1, 1, 2, 2]


def test_rows_can_be_added_for_all_times():
    frame = visits()
    wide = to_wide(frame, columns=VARYING, **NAMES)
    fill = {"n": 3, "cars": 4, "well": True, "sure": False, "grade": "high", "x": 0.5}
    fill |= {"short": 0.5, "town": "C", "note": "c", "seen": pd.Timestamp("2025-01-01")}
    filled = wide.table.copy()
    for name in filled:
        value = fill.get(name.split("@")[0], "m")
        filled[name] = filled[name].fillna(value)
    for table, cells in ((frame, filled), (in_polars(frame), in_polars(filled))):
        wide = to_wide(table, columns=VARYING, **NAMES)
        every = wide.to_long(cells, all_times=True)
        pairs = [(one, t) for one in wide.groups["patient"] for t in wide.times]
        assert list(zip(every["patient"], every["month"], strict=True)) == pairs
        if table is frame:
            assert every.index.tolist() == list(range(len(pairs)))
            assert every.dtypes.to_dict() == frame.dtypes.to_dict()
            own = every.set_index(["patient", "month"])
            assert not every.isna().any(axis=None)
        else:
            assert every.schema == table.schema
            assert every.null_count().sum_horizontal().item() == 0
        long = wide.to_long(cells)
        assert list(long["month"]) == list(table["month"])
    for (_, row), key in zip(
        long.to_pandas().iterrows(), long.select("patient", "month").rows(), strict=True
    ):
        assert (own.loc[key][VARYING].astype(object) == row[VARYING]).all()


def simulated(n_groups=80, seed=0):
    rng = np.random.default_rng(seed)
    patient, month = map(
        np.ravel, np.meshgrid(np.arange(n_groups), [0, 6, 12], indexing="ij")
    )
    level = rng.normal(size=n_groups)[patient]
    frame = pd.DataFrame(
        {
            "patient": patient,
            "month": month,
            "sex": np.where(patient % 2, "f", "m"),
            "x": level + 0.3 * rng.normal(size=len(patient)),
            "n": pd.array(rng.poisson(np.exp(1 + 0.3 * level)), dtype="Int64"),
        }
    )
    frame.loc[rng.random(len(frame)) < 0.2, "x"] = np.nan
    frame.loc[rng.random(len(frame)) < 0.2, "n"] = pd.NA
    return frame.sample(frac=0.9, random_state=seed)


@pytest.mark.parametrize("library", ["pandas", "polars", "default"])
def test_draws_come_back(library):
    frame = simulated()
    table = pl.from_pandas(frame) if library == "polars" else frame
    wide = to_wide(table, **NAMES)
    short = {"max_iter": 20, "n_parameter_draws": 2, "on_misfit": "ignore"}
    imputer = GaussianImputer(random_state=0, **short).set_output(transform=library)
    draws = imputer.fit(wide.table).sample(wide.table, n_draws=3, random_state=0)
    longs = [wide.to_long(draw) for draw in draws]
    longs = [one.to_pandas() if library == "polars" else one for one in longs]
    assert not longs[0].equals(longs[1])
    for long in longs:
        assert not long.isna().any(axis=None)
        if library != "polars":
            assert long.index.equals(frame.index)
            assert long.dtypes.to_dict() == frame.dtypes.to_dict()
        seen = frame.notna().to_numpy()
        np.testing.assert_array_equal(long.to_numpy()[seen], frame.to_numpy()[seen])


def test_cells_that_stay_missing_and_new_levels():
    frame = visits()
    wide = to_wide(frame, columns=VARYING, **NAMES)
    filled = wide.table.copy()
    names = [one for one in filled if one.startswith("town@")]
    filled[names] = filled[names].astype(object).fillna("X")
    long = wide.to_long(filled)
    assert list(long["town"].cat.categories) == ["S", "Q", "C", "X"]
    assert list(frame["town"].cat.categories) == ["S", "Q", "C"]
    assert long["x"].isna().sum() == frame["x"].isna().sum() > 0


def test_times_have_readable_names_and_their_order():
    frame = pd.DataFrame({"g": [1, 1], "t": [1.0, 0.5], "y": [1.0, 2.0]})
    assert list(to_wide(frame, groups="g", time="t").table) == ["y@0.5", "y@1"]
    frame["t"] = pd.to_datetime(["2024-02-01", "2024-01-31"])
    assert list(to_wide(frame, groups="g", time="t").table)[0] == "y@2024-01-31"
    frame["t"] = pd.Categorical(["start", "end"], ["start", "end"], ordered=True)
    assert list(to_wide(frame, groups="g", time="t").table) == ["y@start", "y@end"]
    table = pl.DataFrame({"g": [1, 1], "t": ["end", "start"], "y": [1.0, 2.0]})
    table = table.with_columns(pl.col("t").cast(pl.Enum(["start", "end"])))
    assert to_wide(table, groups="g", time="t").table.columns == ["y@start", "y@end"]


def test_several_columns_name_a_group():
    frame = visits()
    frame["site"] = np.where(np.arange(len(frame)) % 2, "a", "b")
    wide = to_wide(frame, groups=["site", "patient"], time="month", columns=VARYING)
    assert list(wide.groups) == ["site", "patient"]
    assert wide.table.index.names == ["site", "patient"]
    long = wide.to_long(wide.table)
    same(long.drop(columns="sex"), frame.drop(columns="sex"))
    assert repr(wide) == f"Wide({len(wide.groups)} groups, 3 times, 31 columns)"
    assert isinstance(wide, Wide)


def long(**changed):
    columns = {"g": [1, 1, 2], "t": [0, 1, 0], "y": [1.0, None, 2.0], "z": [1, 2, 1]}
    return pd.DataFrame(columns | changed)


@pytest.mark.parametrize(
    ("table", "given", "message"),
    [
        (long(t=[0, 0, 0]), {}, "Rows 0 and 1 of table are both of g=1, t=0"),
        (long(g=[1, None, 2]), {}, "'g' must be complete, but is missing in row 1"),
        (long(t=[0, 1, None]), {}, "'t' must be complete, but is missing in row 2"),
        (long(), {"groups": "patient"}, "groups must be .*'patient'.*reset_index"),
        (long(), {"groups": []}, "groups must be columns of table, got none"),
        (long(), {"time": "month"}, "time must be columns of table, got 'month'"),
        (long(), {"columns": ["y", "a"]}, "columns must be columns of table, got 'a'"),
        (long(), {"columns": "t"}, "columns must be columns of table, got 't'"),
        (long(), {"time": "g"}, "time and groups must be different"),
        (long().iloc[:0], {}, "at least one row"),
        (long()[["g", "t"]], {}, "columns besides"),
        (long().rename(columns={"y": 5}), {}, "must be text, got 5"),
        (long().set_axis(["g", "t", "y", "y"], axis=1), {}, "columns named 'y'"),
    ],
)
@pytest.mark.parametrize("function", [to_wide, with_neighbours])
def test_errors_name_the_place_and_the_remedy(function, table, given, message):
    with pytest.raises(ValueError, match=message):
        function(table, **({"groups": "g", "time": "t"} | given))


def test_errors_of_wide_tables():
    names = {"groups": "g", "time": "t"}
    message = "'z' is not in columns.* 1 in row 0 .* 2 in row 1"
    with pytest.raises(ValueError, match=message):
        to_wide(long(), columns="y", **names)
    with pytest.raises(ValueError, match="would be named 'y@0'"):
        to_wide(long(**{"y@0": [1, 1, 1]}), **names)
    refused(TypeError, "'t' cannot be sorted", to_wide, long(t=[0, "a", 0]), **names)
    for table in (long().to_numpy(), pl.LazyFrame({"g": [1]}), None, "long.csv"):
        refused(TypeError, "table must be a data frame", to_wide, table, **names)


def test_irregular_times_are_announced():
    X = pd.DataFrame({"g": np.arange(20) // 4, "t": np.arange(20), "y": np.arange(20)})
    with pytest.warns(TableWarning, match="80% of the pairs .* 't' .*with_neighbours"):
        to_wide(X, groups="g", time="t")


def test_errors_of_filled_tables():
    wide = to_wide(long(), groups="g", time="t")
    table = wide.table
    refused(ValueError, "must have the 2 rows", wide.to_long, table.iloc[:1])
    refused(ValueError, "with their index", wide.to_long, table.iloc[::-1])
    with pytest.raises(ValueError, match="no column 'y@0', which has observed"):
        wide.to_long(table.drop(columns="y@0"))
    refused(ValueError, r"must have the shape \(2, 4\)", wide.to_long, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="has 7.0 in column 'y@0', row 1,.* has 2.0"):
        wide.to_long(table.replace(2.0, 7.0))
    filled = table.astype(object).assign(**{"y@1": "a"})
    refused(TypeError, "column 'y' of type Float64 cannot hold", wide.to_long, filled)
    other = to_wide(pl.from_pandas(long()), groups="g", time="t")
    filled = other.table.with_columns(pl.lit("a").alias("y@1"))
    refused(TypeError, "column 'y' of type Float64 cannot hold", other.to_long, filled)
    same(wide.to_long(table.drop(columns="y@1")), long())  # which has no observed cell


@pytest.mark.filterwarnings("ignore::skvnce.exceptions.TableWarning")
@settings(max_examples=6)
@given(tables)
def test_neighbours_are_those_of_pandas(frame):
    order = frame.sort_values(["patient", "month"])
    groups = order.groupby("patient")
    for table in in_both(frame):
        kept = table.copy() if hasattr(table, "iloc") else table
        found = with_neighbours(table, columns=["x", "n"], lags=(1, 2), **NAMES)
        same(table, kept)
        same(found[list(table.columns)], table)
        new = ["x_lag1", "n_lag1", "month_lag1", "x_lag2", "n_lag2", "month_lag2"]
        new += ["x_lead1", "n_lead1", "month_lead1"]
        assert list(found.columns) == [*table.columns, *new]
        found = (
            found.to_pandas().set_axis(frame.index)
            if isinstance(found, pl.DataFrame)
            else found
        )
        for step, word in ((1, "lag1"), (2, "lag2"), (-1, "lead1")):
            expected = (
                groups[["x", "n", "month"]].shift(step).loc[frame.index].astype(float)
            )
            apart = (frame["month"] - expected["month"]).abs()
            expected = expected.assign(month=apart)
            for name in expected:
                cells = found[f"{name}_{word}"].astype(float)
                np.testing.assert_array_equal(cells, expected[name])


def test_neighbours_keep_data_types():
    frame = visits(share=1.0)
    changed = {"n": "Int64", "well": "boolean"}
    for table in in_both(frame):
        found = with_neighbours(table, columns=VARYING, distances=False, **NAMES)
        for name in VARYING:
            for new in (f"{name}_lag1", f"{name}_lead1"):
                dtype = table[name].dtype
                expected = changed.get(name, dtype) if table is frame else dtype
                assert found[new].dtype == expected
    assert list(with_neighbours(frame, lags=1, leads=(), **NAMES))[-1] == "month_lag1"
    assert "sex_lag1" not in with_neighbours(frame, **NAMES)


def test_objects_stay_objects():
    cells = pd.Series([1, "b", None], dtype=object)
    wide = to_wide(long(y=cells), groups="g", time="t")
    assert wide.table["y@1"].dtype == wide.table["y@0"].dtype == object
    same(wide.to_long(wide.table), long(y=cells))


def test_distances_of_dates_are_days():
    frame = pd.DataFrame(
        {
            "g": [1, 1, 1],
            "t": pd.to_datetime(
                ["2024-01-03 00:00", "2024-01-01 00:00", "2024-01-03 12:00"]
            ),
        }
    ).assign(y=[1, 2, 3])
    for table in (frame, pl.from_pandas(frame)):
        found = with_neighbours(table, groups="g", time="t", leads=())
        assert list(found["t_lag1"])[::2] == [2.0, 0.5]
        assert list(found["y_lag1"])[::2] == [2, 1]
    days = frame.assign(t=frame["t"].dt.date)
    assert days["t"].dtype == object
    days = pl.from_pandas(frame.iloc[:2]).with_columns(pl.col("t").dt.date())
    assert list(with_neighbours(days, groups="g", time="t")["t_lead1"]) == [None, 2.0]


def test_indices_that_repeat_are_kept():
    frame = visits().set_axis([0] * len(visits()))
    same(with_neighbours(frame, **NAMES)[list(frame.columns)], frame)
    wide = to_wide(frame.drop(columns="sex"), columns=VARYING, **NAMES)
    same(wide.to_long(wide.table), frame.drop(columns="sex"))


@pytest.mark.parametrize("steps", [0, -1, (1, 1), (1.5,), "a", (True,), None])
def test_errors_of_lags(steps):
    for name in ("lags", "leads"):
        with pytest.raises(ValueError, match=f"{name} must be different positive"):
            with_neighbours(long(), groups="g", time="t", **{name: steps})


def test_errors_of_neighbours():
    with pytest.raises(TypeError, match="numbers or dates, but 't' is one of String"):
        with_neighbours(long(t=["a", "b", "c"]), groups="g", time="t")
    with pytest.raises(ValueError, match="would be named 'y_lag1'"):
        with_neighbours(long(y_lag1=0), groups="g", time="t")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_series_needs_no_groups(library):
    series = pd.DataFrame({"t": [3, 1, 2], "y": [1.0, None, 2.0], "z": [1, 2, 1]})
    with_one = series.assign(g="north")
    if library == "polars":
        pl = pytest.importorskip("polars")
        series, with_one = pl.from_pandas(series), pl.from_pandas(with_one)
    found = with_neighbours(series, groups=None, time="t")
    expected = with_neighbours(with_one, groups="g", time="t")
    assert list(found.columns) == [name for name in expected.columns if name != "g"]
    assert list(found["y_lag1"])[0] == 2.0
    for name in found.columns:
        exact = pd.Series(expected[name].to_list())
        pd.testing.assert_series_equal(pd.Series(found[name].to_list()), exact)


def test_errors_without_groups():
    with pytest.raises(ValueError, match="Rows 0 and 2 of table are both of t=0"):
        with_neighbours(long(), groups=None, time="t")
    with pytest.raises(ValueError, match="got None.* with_neighbours takes"):
        to_wide(long(), groups=None, time="t")
