"""The cells of a column of a data frame or an array, as numbers or as levels."""

import numbers
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

from skvnce._tables import frames

MOMENTS = "date", "datetime"  # whose zero, the year 1970, means nothing
TIMES = (*MOMENTS, "duration")
DAY = 24 * 3600 * 1e6  # microseconds
# a day, an hour, a minute and a second, each of which is whole in the next
UNITS = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)
# first cells, which mostly include a number that is not whole if there is one
_HEAD = 100
_TYPES = {
    "boolean": (nw.Boolean,),
    "level": (nw.Categorical, nw.Enum, nw.String),
    "date": (nw.Date,),
    "datetime": (nw.Datetime,),
    "duration": (nw.Duration,),
}


def is_frame(X: ArrayLike) -> bool:
    """Return whether a table is a data frame, of pandas, polars or pyarrow."""
    return nw.dependencies.is_into_dataframe(X)


def names_of(X: ArrayLike) -> list:
    """List the names of the columns of a data frame; none of an array."""
    return list(frames.column_names(X)) if is_frame(X) else []


def is_missing(value: object) -> bool:
    """Return whether a cell is None, NaN, NaT or pandas.NA."""
    if isinstance(value, str | float):  # most cells; the others take longer
        return value != value
    # by name, because pandas need not be installed
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, numbers.Real) and bool(value != value)


class Cells:
    """The cells of one column of a table."""

    def __init__(self, X: ArrayLike, place: int, series: nw.Series | None) -> None:
        self.label = frames.column_label(X, place)  # its name, or its index
        self.series = series  # of a data frame
        self._table, self._place = X, place

    def __len__(self) -> int:
        """Count the cells."""
        return len(self._table if self.series is None else self.series)

    @cached_property
    def values(self) -> list:
        """The cells, as objects of Python."""
        if self.series is None:
            return self._table[:, self._place].tolist()
        return self.series.to_list()

    def at(self, rows: np.ndarray) -> list:
        """Return the cells of some rows (n_rows,), as objects of Python."""
        if self.series is None:
            return self._table[rows, self._place].tolist()
        return self.series[rows.tolist()].to_list()

    @cached_property
    def dtype(self) -> str:
        """The data type: that of a `Column`, or "unreadable" or "mixed"."""
        dtype = None if self.series is None else self.series.dtype
        name = kind_of_type(dtype)
        if name is not None:
            return name
        if dtype is not None and dtype.is_numeric():
            return "integer" if dtype.is_integer() else "number"
        if dtype is None or dtype == nw.Object:
            return _kind_of_objects(self.values)
        # columns without a type, such as pyarrow's null, have only missing cells
        return "number" if all(map(is_missing, self.values)) else "unreadable"

    def missing(self) -> np.ndarray:
        """Return which cells are missing; bool, (n_samples,)."""
        return np.array([is_missing(value) for value in self.values], dtype=bool)

    def whole_numbers(self) -> np.ndarray:
        """Return the observed numbers of a frame (n,); none if one is not whole."""
        if self.series.dtype.is_integer():
            return self.series.drop_nulls().to_numpy()
        cells = self.series.cast(nw.Float64).to_numpy()
        observed = cells[~np.isnan(cells)]
        parts = observed[:_HEAD], observed  # most columns end at the first
        are_whole = all(
            (np.isfinite(part) & (part == part.round())).all() for part in parts
        )
        return observed if are_whole else observed[:0]

    def unit(self) -> int:
        """Return the largest of `UNITS` in which all moments are whole, or 0."""
        if self.dtype not in ("datetime", "duration"):
            return 0
        series = self.series
        if self.dtype == "datetime" and series.dtype.time_zone is not None:
            series = series.dt.replace_time_zone(None)  # by the clock there
        cells = _microseconds(series)
        observed = cells[~np.isnan(cells)]
        return next((unit for unit in UNITS if not (observed % unit).any()), 0)

    def levels(self) -> set:
        """Collect the levels that are observed."""
        try:
            return {item(value) for value in set(self.values) if not is_missing(value)}
        except TypeError as error:
            raise TypeError(
                f"X has {self.first(_is_unhashable)}, which is neither a number nor a "
                "category."
            ) from error

    def are_levels(self) -> bool:
        """Return whether all cells can be levels, of which a set can be made."""
        return not any(map(_is_unhashable, self.values))

    def codes(self, levels: tuple) -> np.ndarray:
        """Find the places (n_samples,) of the cells among levels; NaN for others."""
        places = {level: float(code) for code, level in enumerate(levels)}
        self.levels()  # raises an error for cells that are none
        return np.array([places.get(value, np.nan) for value in self.values], float)

    def first(self, unfit: Callable[[object], bool]) -> str:
        """Describe the first observed cell that satisfies a condition."""
        row, value = next(
            (row, value)
            for row, value in enumerate(self.values)
            if not is_missing(value) and unfit(item(value))
        )
        return f"{item(value)!r} in column {self.label}, row {row}"

    def numbers(self, expected: str) -> np.ndarray:
        """Convert numbers, dates or durations to floats (n_samples,)."""
        at_fit, actual = _quantity(expected), _quantity(self.dtype)
        if at_fit != actual and not all(map(is_missing, self.values)):
            raise TypeError(
                f"Column {self.label} has {at_fit} in the table of fit, but {actual} "
                "now. Convert it to the data type of fit."
            )
        if self.dtype in TIMES:
            return _microseconds(self.series)
        if self.series is not None and self.series.dtype.is_numeric():
            floats = self._cast()
        elif self.series is None and self._table.dtype.kind in "fiu":
            floats = self._table[:, self._place].astype(np.float64)
        else:
            floats = self._floats()
        frames.check_exact(self._alone(), floats[:, None])
        return floats

    def _cast(self) -> np.ndarray:
        """Convert a column of a numeric data type to floats (n_samples,)."""
        try:
            return self.series.cast(nw.Float64).to_numpy()
        except ValueError:  # pyarrow refuses all integers that may be rounded
            return self._of_objects()

    def _of_objects(self) -> np.ndarray:
        """Convert objects of Python to floats (n_samples,)."""
        cells = [np.nan if is_missing(value) else value for value in self.values]
        return objects(cells).astype(np.float64)

    def _floats(self) -> np.ndarray:
        """Convert objects, or what narwhals does not know, to floats (n_samples,)."""
        if self.dtype in ("level", "mixed"):
            # in arrays numpy reads text such as "1.5" as a number
            unfit = frames.is_unreadable_text if self.series is None else is_text
            if any(map(unfit, self.values)):
                raise ValueError(
                    f"X has text where numbers are expected: {self.first(unfit)}. "
                    "List the column in categorical_features, or turn it into numbers "
                    'by pandas.to_numeric(column, errors="coerce").'
                )
        if any(frames.is_time(value) for value in self.values if not is_missing(value)):
            raise TypeError(
                "X has dates or durations in a data type that is not read: "
                f"{self.first(frames.is_time)}. Convert the column, for example by "
                "pandas.to_datetime, pandas.to_timedelta or, for periods, "
                "dt.to_timestamp(), or drop it."
            )
        with frames.cell_errors_named(self._alone()):
            if self.dtype == "unreadable":
                alone = self._alone()
                if hasattr(alone, "sparse"):  # of pandas
                    alone = alone.sparse.to_dense()
                cells = np.asarray(frames.readable(alone))[:, 0]
                if cells.dtype.kind == "c":
                    raise ValueError(
                        f"Column {self.label} has complex numbers, which are not "
                        "supported. Split them into columns of real numbers."
                    )
                return cells.astype(np.float64)
            return self._of_objects()

    def _alone(self) -> ArrayLike:
        """Return the column as a table of its own."""
        if self.series is None:
            return self._table[:, [self._place]]
        return self.series.to_frame().to_native()


def cells_of_columns(X: ArrayLike) -> list[Cells] | None:
    """List the columns of a table; None if it has no rows and columns."""
    if is_frame(X):
        _check_names(X)
        frame = nw.from_native(X, eager_only=True)
        return [Cells(X, j, series) for j, series in enumerate(frame.iter_columns())]
    X = frames.readable(X)
    try:
        # in lists of text and numbers, numpy would turn all into text
        X = np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
    except (ValueError, TypeError, RuntimeError):
        return None
    if X.ndim != 2:
        return None
    return [Cells(X, j, None) for j in range(X.shape[1])]


def kind_of_type(dtype: nw.dtypes.DType | None) -> str | None:
    """Name a data type of narwhals; None for numbers, objects and unknown ones."""
    return next((name for name, of in _TYPES.items() if isinstance(dtype, of)), None)


def objects(values: Sequence) -> np.ndarray:
    """Make an array of objects (n,)."""
    return np.fromiter(values, dtype=object, count=len(values))  # tuples stay cells


def item(value: object) -> object:
    """Convert a scalar of numpy to Python's type."""
    return value.item() if isinstance(value, np.generic) else value


def _check_names(X: ArrayLike) -> None:
    """Raise an error for names that occur twice."""
    names = names_of(X)
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"X has {names.count(twice[0])} columns named {twice[0]!r}. Rename them."
        )


def _microseconds(series: nw.Series) -> np.ndarray:
    """Convert dates, since 1970 in UTC, or durations to microseconds (n_samples,)."""
    if series.dtype == nw.Date:
        series = series.cast(nw.Datetime("us"))
    cells = series.to_numpy()
    if cells.dtype.kind == "O":  # durations of pyarrow in a frame of pandas
        cells = np.array(
            [None if is_missing(moment) else moment for moment in cells], "m8[ns]"
        )
    kind, (unit, _) = cells.dtype.kind, np.datetime_data(cells.dtype)
    per = 1000 if unit == "ns" else 1
    ticks = cells.astype(f"{kind}8[{unit if per > 1 else 'us'}]").astype(np.int64)
    # in integers first, because float64 rounds nanoseconds since 1970
    return np.where(np.isnat(cells), np.nan, ticks // per + ticks % per / per)


def _kind_of_objects(values: list) -> str:
    """Choose the `dtype` of a column of objects by its cells."""
    observed = [value for value in values if not is_missing(value)]
    if not observed:
        return "number"
    if all(isinstance(value, bool | np.bool_) for value in observed):
        return "boolean"
    are_text = [isinstance(value, str) for value in observed]
    if all(are_text):
        return "level"
    if any(are_text):
        return "mixed"
    return "unreadable" if any(map(frames.is_time, observed)) else "number"


def _quantity(dtype: str) -> str:
    """Name what the numbers of a data type measure."""
    return {"duration": "durations", "date": "dates", "datetime": "dates"}.get(
        dtype, "numbers"
    )


def is_text(value: object) -> bool:
    """Return whether a cell is text."""
    return isinstance(value, str)


def _is_unhashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return True
    return False


# ----------------------------------------
# Markers of missing cells that a user has chosen, such as -1 or "unknown".
#
# NaN, None and NA mark missing cells of all tables.  Any other marker is replaced by
# these when a table is read, and put back into cells that stay missing.

_ANSWERS = (nw.Boolean, nw.Date, nw.Datetime, nw.Duration, nw.Time)  # equal no marker


def read_marked(X: ArrayLike, marker: object) -> ArrayLike:
    """Replace a marker as `without_marker`; other missing cells are errors then."""
    table = without_marker(X, marker)
    if is_missing(marker) or frames.is_in_parts(X):
        return table
    for column, missing in _missing_of_columns(X):
        rows = np.flatnonzero(missing)
        if len(rows):
            raise ValueError(
                "Input X contains NaN, None or NA, the first in column "
                f"{frames.column_label(X, column)}, row {rows[0]}, but "
                f"missing_values={marker!r}. Mark missing cells by {marker!r} alone, "
                f"or replace {marker!r} by NaN and leave missing_values at its default."
            )
    return table


def without_marker(X: ArrayLike, marker: object) -> ArrayLike:
    """Replace a marker by missing cells, in a copy.

    A number marks cells of numbers that equal it, and text marks cells of text.
    Returns X itself if no cell equals the marker, or if it is NaN, None or NA; else
    a frame like X, whose integers are of a type that can be missing; a masked array
    if X has integers; or an array, NaN where the cell is missing.
    """
    if is_missing(marker) or frames.is_in_parts(X):
        return X
    marker = item(marker)
    if is_frame(X):
        return _frame_without(X, marker)
    cells = _array(X)
    if cells is None:
        return X
    is_marker = _equal(np.ma.getdata(cells), marker)
    if not is_marker.any():
        return X
    is_marker |= np.ma.getmaskarray(cells)
    cells = np.ma.getdata(cells)
    if cells.dtype.kind in "iu":  # which may be too large for floats
        return np.ma.MaskedArray(cells, mask=is_marker)
    # other types hold no NaN
    marked = np.array(cells, dtype=cells.dtype if cells.dtype.kind in "fc" else object)
    marked[is_marker] = np.nan
    return marked


def with_marker(table: ArrayLike, marker: object, X: ArrayLike = None) -> ArrayLike:
    """Mark the cells of a completed table that are still missing, in a copy.

    `X`: the table with the marker, to whose integers columns of frames return. An
    array of numbers becomes one of objects if cells are marked by text.
    """
    if is_missing(marker):
        return table
    marker = item(marker)
    if is_frame(table):
        return _frame_with(table, marker, X)
    missing = _missing(table)
    if not missing.any():
        return table
    marked = table.astype(object) if isinstance(marker, str) else table.copy()
    marked[missing] = marker
    return marked


def _array(X: ArrayLike) -> np.ndarray | None:
    """Convert what is no frame to an array of rows and columns; None if it is none."""
    if hasattr(X, "toarray"):  # sparse
        return None
    listed = isinstance(X, list | tuple)
    try:
        if listed and any(isinstance(row, np.ma.MaskedArray) for row in X):
            X = np.ma.stack(X)
        elif not isinstance(X, np.ndarray):
            X = np.asarray(X, dtype=object if listed else None)
    except (ValueError, TypeError, RuntimeError):  # what reads X explains the reason
        return None
    return X if X.ndim == 2 else None


def _equal(cells: np.ndarray, marker: object) -> np.ndarray:
    """Return which cells of an array are a marker; bool."""
    kind, is_text = cells.dtype.kind, isinstance(marker, str)
    if kind == "O":
        equal = [_is_marker(cell, marker) for cell in cells.flat]
        return np.array(equal, dtype=bool).reshape(cells.shape)
    if kind not in ("UT" if is_text else "iufc"):
        return np.zeros(cells.shape, dtype=bool)
    return np.asarray(cells == marker)


def _is_marker(value: object, marker: object) -> bool:
    if isinstance(marker, str):
        return isinstance(value, str) and value == marker
    # True equals 1, but a boolean is an answer
    is_number = isinstance(value, numbers.Number)
    return is_number and not isinstance(value, bool | np.bool_) and value == marker


def _missing(cells: np.ndarray) -> np.ndarray:
    """Return which cells of an array are missing; bool."""
    if cells.dtype.kind in "fc":
        return np.isnan(cells)
    if cells.dtype.kind != "O":
        return np.zeros(cells.shape, dtype=bool)
    missing = [is_missing(cell) for cell in cells.flat]
    return np.array(missing, dtype=bool).reshape(cells.shape)


def _missing_of_columns(X: ArrayLike) -> list[tuple[int, np.ndarray]]:
    """List the columns of a table, and which of their cells are missing."""
    if is_frame(X):
        frame = nw.from_native(X, eager_only=True)
        return [(j, _null(series)) for j, series in enumerate(frame.iter_columns())]
    cells = _array(X)
    if cells is None:
        return []
    missing = _missing(np.ma.getdata(cells)) & ~np.ma.getmaskarray(cells)
    return list(enumerate(missing.T))


def _null(series: nw.Series) -> np.ndarray:
    """Return which cells of a column are missing; bool."""
    null = series.is_null().to_numpy().astype(bool)
    if series.dtype.is_float() and not series.implementation.is_pandas():
        null |= series.is_nan().fill_null(True).to_numpy().astype(bool)
    return null


def _frame_without(X: ArrayLike, marker: object) -> ArrayLike:
    """Replace a marker in a data frame."""
    frame = nw.from_native(X, eager_only=True)
    marked = {
        place: is_marker
        for place, series in enumerate(frame.iter_columns())
        if (is_marker := _equal_in(series, marker)).any()
    }
    if not marked:
        return X
    if frame.implementation.is_pandas():
        copy = X.copy(deep=False)
        for place, rows in marked.items():
            column = X.iloc[:, place]
            column = column.sparse.to_dense() if hasattr(column, "sparse") else column
            able = frames.nullable_type(column.dtype)  # whose cells can be missing
            column = column if able is None else column.astype(able)
            copy.isetitem(place, column.mask(rows))
        return copy
    columns = [_filled(frame[:, place], rows, None) for place, rows in marked.items()]
    return frame.with_columns(*columns).to_native()


def _frame_with(table: ArrayLike, marker: object, X: ArrayLike) -> ArrayLike:
    """Mark the missing cells of a data frame."""
    frame = nw.from_native(table, eager_only=True)
    missing = [_null(series) for series in frame.iter_columns()]
    if not frame.implementation.is_pandas():
        columns = [
            _filled(frame[:, place], rows, marker)
            for place, rows in enumerate(missing)
            if rows.any()
        ]
        return frame.with_columns(*columns).to_native() if columns else table
    copy = table.copy(deep=False)
    dtypes = dict(X.dtypes) if hasattr(X, "iloc") else {}
    for place, rows in enumerate(missing):
        column = table.iloc[:, place]
        if rows.any():
            column = _marked(column, rows, marker)
        able = frames.nullable_type(dtypes.get(column.name))
        if able is not None and column.dtype == able and not column.isna().any():
            column = column.astype(dtypes[column.name])
        if column is not table.iloc[:, place]:
            copy.isetitem(place, column)
    return copy


def _equal_in(series: nw.Series, marker: object) -> np.ndarray:
    """Return which cells of a column are a marker; bool."""
    if series.implementation.is_pandas() and hasattr(series.to_native(), "sparse"):
        return _equal(np.asarray(series.to_native()), marker)
    if series.dtype.is_numeric():
        if not isinstance(marker, str):
            with suppress(OverflowError):  # the type has no such integer
                return (series == marker).fill_null(False).to_numpy().astype(bool)
    elif not isinstance(series.dtype, _ANSWERS):
        return np.array([_is_marker(cell, marker) for cell in series.to_list()], bool)
    return np.zeros(len(series), dtype=bool)


def _marked(column: ArrayLike, rows: np.ndarray, marker: object) -> ArrayLike:
    """Mark cells of a column of pandas, whose type is kept if it holds the marker."""
    if hasattr(column, "cat") and marker not in column.cat.categories:
        column = column.cat.add_categories([marker])
    is_number = getattr(column.dtype, "kind", "O") in "iufb"
    if is_number and isinstance(marker, str):
        column = column.astype(object)
    if column.dtype == object:
        # a column of markers, because numpy cuts NUL characters off a single text
        of_column = {"index": column.index, "dtype": object}
        return column.mask(rows, type(column)([marker] * len(column), **of_column))
    return column.mask(rows, marker)


def _filled(series: nw.Series, are_new: np.ndarray, value: object) -> nw.Series:
    """Set cells of a column of polars or pyarrow to a value."""
    rows = np.flatnonzero(are_new)
    return frames.with_cells(series, rows, [value] * len(rows))
