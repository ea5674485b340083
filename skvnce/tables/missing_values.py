"""Markers of missing cells that a user has chosen, such as -1 or "unknown".

NaN, None and NA mark missing cells of all tables.  Any other marker is replaced by
these when a table is read, and put back into cells that stay missing.
"""

import numbers

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

from skvnce.tables.cells import is_frame, is_missing, item
from skvnce.tables.containers import column_label, is_in_parts
from skvnce.tables.frames import nullable_type, with_cells

_ANSWERS = (nw.Boolean, nw.Date, nw.Datetime, nw.Duration, nw.Time)  # equal no marker


def read_marked(X: ArrayLike, marker: object) -> ArrayLike:
    """Replace a marker by missing cells, after a check that nothing else marks them.

    Parameters and returns are those of `without_marker`.

    Raises `ValueError`: if a cell is NaN, None, NaT or NA although the marker is none
    of these; names column, row and remedy.
    """
    found = without_marker(X, marker)
    if is_missing(marker) or is_in_parts(X):
        return found
    for column, missing in _missing_of_columns(X):
        rows = np.flatnonzero(missing)
        if len(rows):
            raise ValueError(
                "Input X contains NaN, None or NA, the first in column "
                f"{column_label(X, column)}, row {rows[0]}, but "
                f"missing_values={marker!r}. Mark missing cells by {marker!r} alone, "
                f"or replace {marker!r} by NaN and leave missing_values at its default."
            )
    return found


def without_marker(X: ArrayLike, marker: object) -> ArrayLike:
    """Replace a marker by missing cells.

    `X` (n_samples, n_features): it is not modified; `marker`: a number marks cells of
    numbers that equal it, and text marks cells of text. Returns X itself if no cell
    equals the marker, if the marker is NaN, None or NA, and if X is a table in parts,
    or is none. Otherwise a frame like X, whose integers are of a type that can be
    missing; a masked array if X has integers; or an array, NaN where the cell is
    missing.
    """
    if is_missing(marker) or is_in_parts(X):
        return X
    marker = item(marker)
    if is_frame(X):
        return _frame_without(X, marker)
    cells = _array(X)
    if cells is None:
        return X
    found = _equal(np.ma.getdata(cells), marker)
    if not found.any():
        return X
    found |= np.ma.getmaskarray(cells)
    cells = np.ma.getdata(cells)
    if cells.dtype.kind in "iu":  # which may be too large for floats
        return np.ma.MaskedArray(cells, mask=found)
    # other types hold no NaN
    made = np.array(cells, dtype=cells.dtype if cells.dtype.kind in "fc" else object)
    made[found] = np.nan
    return made


def with_marker(table: ArrayLike, marker: object, X: ArrayLike = None) -> ArrayLike:
    """Mark the cells of a completed table that are still missing.

    `table`: it is not modified; `marker`: with NaN, None and NA the cells stay as they
    are; `X`: the table with the marker, to whose integers columns of frames return.
    An array of numbers becomes one of objects if cells are marked by text.
    """
    if is_missing(marker):
        return table
    marker = item(marker)
    if is_frame(table):
        return _frame_with(table, marker, X)
    missing = _missing(table)
    if not missing.any():
        return table
    found = table.astype(object) if isinstance(marker, str) else table.copy()
    found[missing] = marker
    return found


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
        found = [_is_marker(one, marker) for one in cells.flat]
        return np.array(found, dtype=bool).reshape(cells.shape)
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
    found = [is_missing(one) for one in cells.flat]
    return np.array(found, dtype=bool).reshape(cells.shape)


def _missing_of_columns(X: ArrayLike) -> list[tuple[int, np.ndarray]]:
    """List the columns of a table, and which of their cells are missing."""
    if is_frame(X):
        frame = nw.from_native(X, eager_only=True)
        return [(j, _null(one)) for j, one in enumerate(frame.iter_columns())]
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
    found = {
        place: is_marker
        for place, series in enumerate(frame.iter_columns())
        if (is_marker := _equal_in(series, marker)).any()
    }
    if not found:
        return X
    if frame.implementation.is_pandas():
        copy = X.copy(deep=False)
        for place, rows in found.items():
            copy.isetitem(place, _able_to_miss(X.iloc[:, place]).mask(rows))
        return copy
    columns = [_filled(frame[:, place], rows, None) for place, rows in found.items()]
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
    copy, dtypes = table.copy(deep=False), _types_of_integers(X)
    for place, rows in enumerate(missing):
        column = table.iloc[:, place]
        if rows.any():
            column = _marked(column, rows, marker)
        dtype = dtypes.get(column.name)
        is_able = dtype is not None and column.dtype == nullable_type(dtype)
        if is_able and not column.isna().any():
            column = column.astype(dtype)
        if column is not table.iloc[:, place]:
            copy.isetitem(place, column)
    return copy


def _equal_in(series: nw.Series, marker: object) -> np.ndarray:
    """Return which cells of a column are a marker; bool."""
    if series.implementation.is_pandas() and hasattr(series.to_native(), "sparse"):
        return _equal(np.asarray(series.to_native()), marker)
    if series.dtype.is_numeric():
        if isinstance(marker, str):
            return np.zeros(len(series), dtype=bool)
        try:
            return (series == marker).fill_null(False).to_numpy().astype(bool)
        except OverflowError:  # the type has no such integer
            return np.zeros(len(series), dtype=bool)
    if isinstance(series.dtype, _ANSWERS):
        return np.zeros(len(series), dtype=bool)
    found = [_is_marker(one, marker) for one in series.to_list()]
    return np.array(found, dtype=bool)


def _able_to_miss(column: ArrayLike) -> ArrayLike:
    """Convert a column of pandas to a type whose cells can be missing."""
    if hasattr(column, "sparse"):
        column = column.sparse.to_dense()
    found = nullable_type(column.dtype)
    return column if found is None else column.astype(found)


def _types_of_integers(X: ArrayLike) -> dict:
    """Map the columns of a frame of pandas that have integers to their types."""
    if not hasattr(X, "iloc"):
        return {}
    return {
        name: one for name, one in X.dtypes.items() if nullable_type(one) is not None
    }


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
    return with_cells(series, rows, [value] * len(rows))
