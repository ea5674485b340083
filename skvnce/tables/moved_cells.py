"""Cells of data frames that move to other rows, and keep their data types."""

from collections.abc import Sequence

import narwhals as nw
import numpy as np

from skvnce.tables.cells import is_missing, item
from skvnce.tables.frames import nullable_type, with_cells, with_levels


def nullable(series: nw.Series) -> nw.Series:
    """Convert a column to a data type that holds missing cells."""
    if not series.implementation.is_pandas():
        return series
    native = series.to_native()
    name = nullable_type(native.dtype)
    native = native if name is None else native.astype(name)
    return nw.from_native(native, series_only=True)


def taken(series: nw.Series, rows: np.ndarray) -> nw.Series:
    """Take cells of a column by their rows (n,); -1 gives a missing cell."""
    is_absent = rows < 0
    series = nullable(series) if is_absent.any() else series
    if series.implementation.is_pandas():
        native = series.to_native()
        cells = native.array.take(rows, allow_fill=bool(is_absent.any()))
        new = type(native)(cells, name=native.name, dtype=native.dtype)
        return nw.from_native(new, series_only=True)
    found = series[np.maximum(rows, 0).tolist()]
    return _replaced(found, np.flatnonzero(is_absent), [None] * int(is_absent.sum()))


def filled_cells(
    series: nw.Series,  # (n_samples,)
    columns: Sequence[list],
    rows: np.ndarray,
    which: np.ndarray,
) -> nw.Series:
    """Fill the missing cells of a column from others.

    `columns`: columns with the cells that fill it, as objects of Python; `rows`,
    `which` int (n_samples,): for each cell of the series, the row and the column of
    what may fill it. Raises `TypeError`: if the data type of the series cannot hold a
    cell.
    """
    dtype, places, values = series.dtype, [], []
    missing = [is_missing(one) for one in series.to_list()]
    for place in np.flatnonzero(missing).tolist():
        value = item(columns[which[place]][rows[place]])
        if not is_missing(value):
            places.append(place)
            values.append(_fitting(value, dtype))
    try:
        return _replaced(series, places, values) if places else series
    except Exception as error:  # polars has errors of its own
        raise TypeError(
            f"filled has cells that column {series.name!r} of type {dtype} cannot hold "
            f"({error}); convert them to that type"
        ) from error


def _fitting(value: object, dtype: nw.dtypes.DType) -> object:
    """Convert a number for a column of integers, booleans or short floats."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if dtype.is_integer():
        return round(value)
    if dtype == nw.Boolean:
        return value >= 0.5
    # pandas would otherwise change the data type
    return float(np.float32(value)) if dtype == nw.Float32 else value


def _replaced(series: nw.Series, rows: Sequence[int], values: list) -> nw.Series:
    """Replace cells of a column by values that its data type holds."""
    if not series.implementation.is_pandas():
        return with_cells(series, rows, values)
    native = series.to_native().copy()
    if hasattr(native, "cat"):
        levels = with_levels(native.cat.categories, values)
        native = native if levels is None else native.cat.set_categories(levels)
    native.iloc[rows] = values
    return nw.from_native(native, series_only=True)


def as_before(series: nw.Series, before: nw.Series) -> nw.Series:
    """Convert a column to its former data type if that holds its cells."""
    if not series.implementation.is_pandas():
        return series
    native, dtype = series.to_native(), before.to_native().dtype
    if native.dtype == dtype or not isinstance(dtype, np.dtype) or native.isna().any():
        return series
    return nw.from_native(native.astype(dtype), series_only=True)


def floats(name: str, values: np.ndarray, frame: nw.DataFrame) -> nw.Series:
    """Make a column of floats, missing where they are NaN."""
    cells = [None if np.isnan(one) else one for one in values.tolist()]
    return nw.new_series(name, cells, nw.Float64, backend=frame.implementation)


def assigned(frame: nw.DataFrame, columns: Sequence[nw.Series]) -> nw.DataFrame:
    """Return a frame with columns added or replaced."""
    if frame.implementation.is_pandas():
        index = frame.to_native().index
        natives = [one.to_native().set_axis(index) for one in columns]
        columns = [nw.from_native(one, series_only=True) for one in natives]
    return frame.with_columns(*columns)


def reset_index(frame: nw.DataFrame) -> nw.DataFrame:
    """Return a frame of pandas with an index of numbers; others as they are."""
    if not frame.implementation.is_pandas():
        return frame
    return nw.from_native(frame.to_native().reset_index(drop=True), eager_only=True)
