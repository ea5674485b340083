"""What columns of pandas, polars and pyarrow have in common: types, and new cells."""

from collections.abc import Sequence

import narwhals as nw
import numpy as np


def nullable_type(dtype: object) -> str | None:
    """Name the type of pandas that a type of numpy needs to hold missing cells.

    None for types other than integers and booleans.
    """
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iub":
        return None
    if dtype.kind == "b":
        return "boolean"
    return {"i": "Int", "u": "UInt"}[dtype.kind] + str(8 * dtype.itemsize)


def with_cells(series: nw.Series, rows: np.ndarray, values: Sequence) -> nw.Series:
    """Replace cells of a column of polars or pyarrow, whose type is kept.

    The other cells are taken from the column itself, not from Python's objects.
    """
    backend, cells = series.implementation, [None] * len(series)
    is_kept = np.ones(len(series), dtype=bool)
    is_kept[rows] = False
    for row, value in zip(rows, values, strict=True):
        cells[row] = value
    new = nw.new_series(series.name, cells, series.dtype, backend=backend)
    kept = nw.new_series("", is_kept.tolist(), nw.Boolean, backend=backend)
    return series.zip_with(kept, new)


def with_levels(
    known: Sequence, values: Sequence, first: Sequence | None = None
) -> list | None:
    """List the levels of a column that gets new values; None if it has them all.

    With `first`, these levels lead in their order, as an ordered type needs them.
    """
    if set(values) <= {None, *known}:
        return None
    if first is None:
        return list(dict.fromkeys([*known, *values]))
    return [*first, *(level for level in known if level not in set(first))]
