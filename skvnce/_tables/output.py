"""Filled tables in the container and the data types of the input."""

import datetime as dt
import numbers
from collections.abc import Sequence
from datetime import datetime, time, timedelta
from functools import partial

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

from skvnce._tables.cells import (
    TIMES,
    Cells,
    cells_of_columns,
    is_frame,
    kind_of_type,
    objects,
    with_marker,
    without_marker,
)
from skvnce._tables.frames import nullable_type, with_cells, with_levels
from skvnce._tables.schema import PASSED, Column, time_of

# ----------------------------------------
# Tables with their missing cells filled, in the container and data types of X.

_TICK = {"s": 1_000_000, "ms": 1000}  # microseconds in a unit of time


def decode(columns: Sequence[Column], table: np.ndarray) -> np.ndarray:
    """Convert codes and microseconds to floats, or to objects with levels and dates."""
    if all(column.is_number for column in columns):
        values = np.empty(table.shape)
        for place, column in enumerate(columns):
            values[..., place].flat = _values(column, table[..., place].ravel(), np.nan)
        return values
    values = np.empty(table.shape, dtype=object)
    for place, column in enumerate(columns):
        values[..., place].flat = _as_objects(column, table[..., place].ravel())
    return values


def as_objects(
    X: ArrayLike,  # (n_samples, n_features)
    columns: Sequence[Column],
    returned: np.ndarray,
    tables: np.ndarray,
    missing: np.ndarray,
) -> np.ndarray:
    """Fill the missing cells of a table, several times, as floats or objects."""
    kinds, cells = [columns[place] for place in returned], cells_of_columns(X)
    passed = [j for j, column in enumerate(kinds) if column.kind == PASSED]
    numbers = [_numbers_or_none(cells[returned[place]]) for place in passed]
    if all(column.is_number for column in kinds) and all(
        values is not None for values in numbers
    ):
        filled = decode(kinds, tables)
        for place, values in zip(passed, numbers, strict=True):
            filled[:, :, place] = values
        for place in [j for j, column in enumerate(kinds) if column.is_count]:
            observed = ~missing[:, place]  # observed numbers need not be levels
            filled[:, observed, place] = cells[returned[place]].numbers("number")[
                observed
            ]
        return filled
    filled = np.empty(tables.shape, dtype=object)
    for place, column in enumerate(kinds):
        filled[:, :, place] = objects(cells[returned[place]].values)
        if column.kind == PASSED:
            continue
        rows = np.flatnonzero(missing[:, place])
        drawn = tables[:, rows, place]
        values = objects(_as_objects(column, drawn.ravel()))
        filled[:, rows, place] = values.reshape(drawn.shape)
    return filled


def _numbers_or_none(cells: Cells) -> np.ndarray | None:
    """Return the cells of a column that is passed through as floats, if they are."""
    try:
        return cells.numbers("number")
    except (TypeError, ValueError):  # objects, or integers that float64 rounds
        return None


def in_frames(
    X: ArrayLike,
    columns: Sequence[Column] | None,
    returned: np.ndarray,
    tables: np.ndarray,
    missing: np.ndarray,
    ends: np.ndarray | None = None,
) -> list[ArrayLike]:
    """Fill the missing cells of a data frame of pandas or polars, several times.

    Data types are kept, but for columns that are entirely missing, in a type that
    cannot hold the values of the fit.  Raises ValueError if integers or booleans cannot
    hold a value, because those of the fit had a wider range.
    """
    frame = nw.from_native(X, eager_only=True)
    frame = frame[:, [int(place) for place in returned]]
    kinds = [columns[place] if columns else Column("numeric") for place in returned]
    ends = np.full((2, len(kinds)), np.nan) if ends is None else ends
    filled, unseen = [], (missing | np.isnan(tables[0])).all(0)
    for place, series in enumerate(frame.iter_columns()):
        rows, column = np.flatnonzero(missing[:, place]), kinds[place]
        if column.kind == PASSED:
            continue
        holds_numbers = series.dtype.is_numeric() or series.dtype == nw.Boolean
        is_unfit = unseen[place] and not _holds(series, column, ends[:, place])
        if (column.is_plain and not holds_numbers) or (len(rows) and is_unfit):
            filled.append(
                [_series_of(series, cells, column) for cells in tables[:, :, place]]
            )
        elif len(rows):
            cells = tables[:, rows, place]
            _check_range(series, column, ends[:, place], cells)
            filled.append(_fill_series(series, rows, cells, column))
    named = [
        [nw.from_native(cells, series_only=True) for cells in parts] for parts in filled
    ]
    return [
        frame.with_columns(*(parts[k] for parts in named)).to_native()
        for k in range(len(tables))
    ]


def _fill_series(
    series: nw.Series, rows: np.ndarray, cells: np.ndarray, column: Column
) -> list[ArrayLike]:
    """Fill rows of a column by codes, or numbers, (n_tables, n_rows), all at once."""
    if _is_view(series):  # pyarrow takes no cells of views
        plain = nw.from_native(_as_text(series.to_native(), "string"), series_only=True)
        parts = _fill_series(plain, rows, cells, column)
        return [_as_text(part, "string_view") for part in parts]
    n = len(series)
    places = np.concatenate([np.arange(n), np.tile(rows, len(cells))])
    values = _fitting(column, cells.ravel(), series.dtype)
    # an ordered type keeps the order of the levels at fit
    new = np.arange(n, len(places))
    long = replace_cells(series[places], new, values, column.levels).to_native()
    parts = []
    for part in np.arange(n, len(places)).reshape(cells.shape):
        places[rows] = part
        parts.append(_take(long, places[:n], series))
    return parts


def _is_view(series: nw.Series) -> bool:
    """Return whether a column of pandas has views of text, of pyarrow."""
    is_pandas = series.implementation.is_pandas()
    return is_pandas and str(series.to_native().dtype).startswith("string_view")


def _as_text(series: ArrayLike, dtype: str) -> ArrayLike:
    """Convert text of pyarrow in a column of pandas, which cannot do it itself."""
    cells = type(series.array)(series.array.__arrow_array__().cast(dtype))
    return _like(nw.from_native(series, series_only=True), cells, copy=False)


def _take(long: ArrayLike, places: np.ndarray, series: nw.Series) -> ArrayLike:
    """Take cells of a column; in pandas with the index of a narwhals series."""
    if not series.implementation.is_pandas():
        return long.gather(places)
    return _like(series, long.array.take(places), dtype=long.dtype, copy=False)


def _range_of(dtype: nw.dtypes.DType) -> tuple[int, int] | None:
    """Return the smallest and the largest integer, or boolean, of a data type."""
    if dtype == nw.Boolean:
        return 0, 1
    if not dtype.is_integer():
        return None
    # from names such as UInt16
    bits = int(str(dtype).lstrip("UuInt"))
    if dtype.is_unsigned_integer():
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _is_too_narrow(dtype: nw.dtypes.DType, column: Column, ends: np.ndarray) -> bool:
    """Return whether a data type lacks numbers that a column had at `fit`."""
    possible = _range_of(dtype)
    if possible is None or not column.is_number:
        return False
    low, high = (min(column.levels), max(column.levels)) if column.levels else ends
    if column.is_exact:
        low, high = column.numbers(ends)
    return bool(low < possible[0] or high > possible[1])


def _check_range(
    series: nw.Series, column: Column, ends: np.ndarray, cells: np.ndarray
) -> None:
    """Raise an error for numbers that a data type cannot hold."""
    if not _is_too_narrow(series.dtype, column, ends):
        return
    low, high = _range_of(series.dtype)
    numbers = np.array(_values(column, cells.ravel(), np.nan), dtype=np.float64)
    # rounded, as cells are before they are stored
    unfit = numbers[(np.rint(numbers) < low) | (np.rint(numbers) > high)]
    if len(unfit):
        raise ValueError(
            f"Column {series.name!r} has the data type {series.dtype}, which cannot "
            f"hold the imputed value {unfit[0]:g}. Convert it to the data type that it "
            "had at fit, or to a wider one if the value follows from other columns."
        )


def _holds(series: nw.Series, column: Column, ends: np.ndarray) -> bool:
    """Return whether the data type of a series can hold the values of a column."""
    if _is_too_narrow(series.dtype, column, ends):
        return False
    dtype, needed_kind = series.dtype, "number" if column.is_number else column.dtype
    is_pandas = series.implementation.is_pandas()
    if column.levels == () or (is_pandas and series.to_native().dtype == object):
        return True
    if column.levels is not None:
        is_text = all(isinstance(level, str) for level in column.levels)
        needed_kind = "level" if is_text else needed_kind
        if isinstance(dtype, nw.Categorical | nw.Enum):
            return is_text or is_pandas
    if dtype == nw.Boolean:
        return column.dtype == "boolean" or set(column.levels or (-1,)) <= {0, 1}
    kind = "number" if dtype.is_numeric() else kind_of_type(dtype)
    if kind == needed_kind == "datetime":
        return (dtype.time_zone is None) == (column.zone is None)
    return kind == needed_kind


def _series_of(series: nw.Series, cells: np.ndarray, column: Column) -> ArrayLike:
    """Make a column of the values of codes (n,), with the name and the index."""
    values = _values(column, cells)
    if series.implementation.is_pandas():
        return _like(series, objects(values), dtype=object).infer_objects()
    return nw.new_series(series.name, values, backend="polars").to_native()


def _like(series: nw.Series, cells: ArrayLike, **options: object) -> ArrayLike:
    """Make a column of pandas with the name and the index of another one."""
    native = series.to_native()
    return type(native)(cells, index=native.index, name=native.name, **options)


def _values(column: Column, cells: np.ndarray, missing: object = None) -> list:
    """Convert codes (n,), or numbers, to values."""
    if column.is_exact:
        kind = round if column.dtype == "integer" else float
        return [
            missing if number != number else kind(number)
            for number in column.numbers(cells)
        ]
    if column.levels is not None:
        levels = objects([*column.levels, missing])
        places = np.where(np.isnan(cells), len(column.levels), np.rint(cells))
        return levels[places.astype(int)].tolist()
    if column.dtype in TIMES:
        return [
            missing if np.isnan(number) else time_of(column, number) for number in cells
        ]
    return cells.tolist() if column.is_number else [missing] * len(cells)  # passed


def _as_objects(column: Column, cells: np.ndarray) -> list:
    """Convert codes (n,), or numbers, to values for an array of objects."""
    convert = {"boolean": lambda number: number >= 0.5, "integer": round}.get(
        column.dtype
    )
    if not column.is_plain or convert is None:
        return _values(column, cells)
    return [None if np.isnan(number) else convert(number) for number in cells.tolist()]


def _fitting(column: Column, cells: np.ndarray, dtype: nw.dtypes.DType) -> list:
    """Convert codes (n,), or numbers, to values that a data type holds."""
    if dtype.is_integer() and column.is_number:
        numbers = np.array(_values(column, cells, np.nan), dtype=np.float64)
        low, high = _range_of(dtype)
        return [
            None if np.isnan(value) else min(max(round(value), low), high)
            for value in numbers.tolist()
        ]
    if dtype == nw.Boolean and column.is_number:
        numbers = _values(column, cells, None)
        return [None if value is None else value >= 0.5 for value in numbers]
    values = _values(column, cells)
    if dtype.is_float() and column.is_number:
        return [None if value is None else float(value) for value in values]
    if dtype == nw.Date:
        return [
            value.date() if isinstance(value, datetime) else value for value in values
        ]
    if column.dtype == "date" and isinstance(dtype, nw.Datetime):
        values = [value and datetime.combine(value, time()) for value in values]
    tick = _TICK.get(getattr(dtype, "time_unit", None))
    return values if tick is None else [_floor_time(value, tick) for value in values]


def _floor_time(value: datetime | timedelta | None, tick: int) -> object:
    """Round a time down to a multiple of some microseconds."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=tick) * timedelta(microseconds=tick)
    return value.replace(microsecond=value.microsecond // tick * tick % 1_000_000)


def replace_cells(
    series: nw.Series, rows: ArrayLike, values: list, first: Sequence | None = None
) -> nw.Series:
    """Replace cells of a column, whose type is kept; `first`: see `with_levels`."""
    if not series.implementation.is_pandas():
        if isinstance(series.dtype, nw.Enum):
            levels = with_levels(series.dtype.categories, values, first)
            series = series if levels is None else series.cast(nw.Enum(levels))
        return with_cells(series, rows, values)
    filled = series.to_native().copy()
    if hasattr(filled, "cat"):
        levels = with_levels(filled.cat.categories, values, first)
        filled = filled if levels is None else filled.cat.set_categories(levels)
    if series.dtype == nw.Categorical and not hasattr(filled, "cat"):
        cells = objects(filled.tolist())  # pyarrow takes no new levels
        cells[rows] = values
        filled = _like(series, cells, dtype=filled.dtype)
    else:
        filled.iloc[rows] = values
    return nw.from_native(filled, series_only=True)


_LEVELS = (str, numbers.Real, dt.date, dt.timedelta)  # types that polars holds


def as_given(schema, adapter, table, missing, X, indicators=None, names=None):
    """Return filled rows, and indicators, in the container that a user asks for."""
    [output] = tables_as_given(schema, adapter, table[None], missing, X)
    if indicators is None:
        return output
    if adapter is None:
        return np.hstack([output, indicators.astype(output.dtype)])
    new = adapter.create_container(indicators, output, names)
    return adapter.hstack([output, new])


def tables_as_given(schema, adapter, tables, missing, X):
    """Return several filled tables (n_tables, n_samples, n_features_out) of X."""
    returned, columns, original = schema.returned, schema.columns, X
    X = without_marker(X, schema.marker)
    library = None if adapter is None else adapter.container_lib
    frame = _frame(X, library, columns)
    if frame is not None:
        ends = schema.ends[:, returned]
        if schema.relations is not None:  # cells that follow are not clipped
            follow = np.isin(returned, schema.relations.of_formulas)
            most = np.fmin.reduce(tables, (0, 1)), np.fmax.reduce(tables, (0, 1))
            ends = np.where(follow, most, ends)
        outputs = in_frames(
            frame, columns, returned, tables, missing[:, returned], ends
        )
        if library_of(frame) != library:  # without missing cells, data types are kept
            outputs = [nw.from_native(output).to_pandas() for output in outputs]
        elif (library, library_of(X)) == ("pandas", "pyarrow"):
            outputs = list(map(_without_nulls, outputs))
    else:
        outputs = list(_values_of(schema, tables, missing, X))
    if adapter is not None:
        names = schema.all_names[returned]
        outputs = [_create_frame(adapter, table, X, names) for table in outputs]
    return [with_marker(table, schema.marker, original) for table in outputs]


def values_of(schema, tables, missing, X):
    """Return several filled tables as an array; parameters as of `tables_as_given`."""
    values = _values_of(schema, tables, missing, without_marker(X, schema.marker))
    return with_marker(values, schema.marker)


def _values_of(schema, tables, missing, X):
    columns = schema.columns
    if not columns:
        return tables
    returned = schema.returned
    values = as_objects(X, columns, returned, tables, missing[:, returned])
    # a data frame has no type of its own, but may have a column of that name
    dtype = None if is_frame(X) else getattr(X, "dtype", None)
    is_single = values.dtype != object and dtype == np.float32
    return values.astype(np.float32) if is_single else values


def empty_cells(schema, tables, missing, where):
    """Empty the missing cells that are not to be filled; return which are, too."""
    if where is None:
        return tables, missing
    empty = (missing & ~where)[..., schema.returned]
    return np.where(empty, np.nan, tables), missing & where


def samples_of(schema, tables, missing, where, X):
    """Return completed tables as an array; see `empty_cells` and `tables_as_given`."""
    return np.array(_samples(values_of, schema, tables, missing, where, X))


def samples_as_given(schema, adapter, tables, missing, where, X):
    """Return completed tables as a list; see `empty_cells` and `tables_as_given`."""
    convert = partial(tables_as_given, adapter=adapter)
    return _samples(convert, schema, tables, missing, where, X)


def _samples(convert, schema, tables, missing, where, X):
    tables, filled = empty_cells(schema, tables, missing, where)
    if filled.ndim == 2:
        return convert(schema, tables=tables, missing=filled, X=X)
    pairs = zip(tables[:, None], filled, strict=True)  # each has its own cells
    return [
        convert(schema, tables=table, missing=cells, X=X)[0] for table, cells in pairs
    ]


def new_rows(schema, rows):
    """Return rows of codes and numbers that are those of no table, with the marker."""
    values = decode(schema.columns, rows) if schema.columns else rows
    return with_marker(values, schema.marker)


def probabilities_as_given(schema, tables, X):
    """Name probabilities of levels by column, in data frames if X is one."""
    columns, names = schema.columns, schema.keys
    frame = nw.from_native(X, eager_only=True) if is_frame(X) else None
    result = {}
    for place, table in tables.items():
        if frame is not None:
            levels = [str(level) for level in columns[place].levels]
            cells = dict(zip(levels, table.T, strict=True))
            table = nw.from_dict(cells, backend=frame.implementation).to_native()
            if frame.implementation.is_pandas():
                table = table.set_axis(X.index).set_axis(columns[place].levels, axis=1)
        result[names[place] if names else place] = table
    return result


def _frame(X, library, columns):
    """Return a data frame of X's library, or of polars, to fill; None of others."""
    if library is None or not is_frame(X):
        return None
    if library_of(X) == library or (columns and library_of(X) == "polars"):
        return X
    if not columns:
        return None
    frame = nw.from_native(X, eager_only=True)
    if library == "pandas":
        return _of_arrow(X) if library_of(X) == "pyarrow" else frame.to_pandas()
    for name, column in zip(frame.columns, columns, strict=True):
        unfit = [
            level for level in column.levels or () if not isinstance(level, _LEVELS)
        ]
        if unfit:
            raise TypeError(
                f"Column {name!r} has the level {unfit[0]!r}, which polars does not "
                'hold. Convert the levels to text, or set_output(transform="pandas").'
            )
    return frame.to_polars()


def _of_arrow(X):
    """Convert a table of pyarrow to pandas: integers and booleans hold nulls there."""
    import pandas as pd
    import pyarrow as pa

    kinds = {}
    for name in ("bool", *(f"{u}int{2**k}" for u in ("", "u") for k in range(3, 7))):
        dtype = pd.api.types.pandas_dtype(nullable_type(np.dtype(name)))
        kinds[pa.type_for_alias(name)] = dtype
    return X.to_pandas(types_mapper=kinds.get)


def _without_nulls(table):
    """Give completed columns of pandas the data types of numpy."""
    kinds = {
        name: column.dtype.numpy_dtype
        for name, column in table.items()
        if hasattr(column.dtype, "numpy_dtype") and not column.isna().any()
    }
    return table.astype(kinds)


def library_of(frame):
    """Name the library of a data frame: "pandas", "polars" or "pyarrow"."""
    return str(nw.from_native(frame, eager_only=True).implementation)


def _create_frame(adapter, table, X, names):
    """Create a data frame with names from a table."""
    if isinstance(table, np.ndarray) and table.dtype == object:
        cells = {name: table[:, place].tolist() for place, name in enumerate(names)}
        return nw.from_dict(cells, backend=adapter.container_lib).to_native()
    return adapter.create_container(table, X, names)
