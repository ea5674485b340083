"""Mixed tables, as `skvnce.missingness` and `skvnce.metrics` read them."""

from collections.abc import Sequence

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

from skvnce._tables.cells import cells_of_columns, is_frame
from skvnce._tables.frames import column_names, nullable_type, reject_parts, with_cells
from skvnce._tables.schema import Column, read_columns

_NUMBERS = "fiu"  # kinds of dtypes


def columns_by_dtype(X: ArrayLike) -> list[Column] | None:
    """Determine the columns of a mixed table, integers as numbers; None for others."""
    reject_parts(X, "X")
    if is_frame(X):
        # known from the data types, without a look at the cells
        if hasattr(X, "iloc") and all(dtype.kind in _NUMBERS for dtype in X.dtypes):
            return None
        columns = read_columns(X)
    else:
        text = _columns_of_text(X)
        columns = read_columns(X, dict.fromkeys(text, "nominal")) if text else None
    if columns is None:
        return None
    columns = [_as_number(column) for column in columns]
    return None if all(column.is_plain for column in columns) else columns


def select_columns(X: ArrayLike, places: Sequence[int]) -> ArrayLike:
    """Select columns of a data frame or an array, with their data types."""
    if is_frame(X):
        frame = nw.from_native(X, eager_only=True)
        return frame[:, [int(place) for place in places]].to_native()
    return np.asarray(X)[:, list(places)]


def check_order(X: ArrayLike, other: ArrayLike, name: str, of: str) -> None:
    """Raise an error for a table with the columns or rows of X in another order."""
    check_columns(X, other, name, of)
    check_rows(X, other, name, of)


def check_columns(X: ArrayLike, other: ArrayLike, name: str, of: str) -> None:
    """Raise an error for a data frame or a Series with the columns in another order."""
    labels = column_names(other) if is_frame(other) else getattr(other, "index", ())
    if is_frame(X) and _is_other_order(column_names(X), labels):
        raise ValueError(
            f"{name} has the columns of {of} in another order, {list(labels)}, but "
            f"they are matched by their places; pass {name}[list({of}.columns)]"
        )


def check_rows(X: ArrayLike, other: ArrayLike, name: str, of: str) -> None:
    """Raise an error for a data frame of pandas with the rows in another order."""
    if not (hasattr(X, "iloc") and hasattr(other, "iloc")):
        return
    if not X.index.equals(other.index) and _is_other_order(X.index, other.index):
        raise ValueError(
            f"{name} has the rows of {of} in another order, but they are matched by "
            f"their places; pass {name}.reindex({of}.index), or after reset_index() "
            "if labels of rows mean nothing"
        )


def _is_other_order(labels: Sequence, others: Sequence) -> bool:
    """Return whether labels are the same in another order."""
    # a list has a method index, and a default index of pandas has no labels
    if callable(others) or getattr(others, "step", None) == 1:
        return False
    labels, others = list(labels), list(others)
    return labels != others and set(labels) == set(others)


def hide_in_frame(X: ArrayLike, hidden: np.ndarray) -> ArrayLike:
    """Copy a data frame with missing values in cells, of types that hold these."""
    if hasattr(X, "iloc"):
        copy = X.apply(_nullable).mask(hidden)
        for place, dtype in enumerate(X.dtypes):
            if str(dtype).startswith("dictionary"):  # `mask` gives levels to nulls
                copy.isetitem(place, _with_na(X.iloc[:, place], hidden[:, place]))
        return copy
    frame = nw.from_native(X, eager_only=True)
    cells = map(np.flatnonzero, hidden.T)
    return frame.with_columns(
        *(
            with_cells(series, rows, [None] * len(rows))
            for series, rows in zip(frame.iter_columns(), cells, strict=True)
        )
    ).to_native()


def _columns_of_text(X: ArrayLike) -> list[int]:
    """List the columns of an array of objects that hold text."""
    if getattr(getattr(X, "dtype", None), "kind", "") != "O" or np.ndim(X) != 2:
        return []
    cells = cells_of_columns(X) or []
    return [j for j, source in enumerate(cells) if source.dtype in ("level", "mixed")]


def _as_number(column: Column) -> Column:
    if not column.is_count:
        return column
    return Column("numeric", dtype="integer" if column.dtype == "integer" else "number")


def _nullable(series: ArrayLike) -> ArrayLike:
    """Convert a column of pandas to a data type that holds missing values."""
    name = nullable_type(series.dtype)
    if name is None:
        return series
    return series.astype("boolean" if name == "boolean" else np.float64)


def _with_na(series: ArrayLike, hidden: np.ndarray) -> ArrayLike:
    """Replace cells of a column of pandas by NA."""
    series = series.copy()
    series.iloc[np.flatnonzero(hidden)] = None
    return series
