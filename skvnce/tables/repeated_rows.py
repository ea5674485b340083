"""Groups and times of long tables, which have several rows for a group."""

from collections.abc import Sequence

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

from skvnce.tables.cells import (
    DAY,
    TIMES,
    Cells,
    cells_of_columns,
    is_frame,
    item,
    names_of,
)
from skvnce.tables.containers import reject_parts
from skvnce.tables.groups import numbered


def read_repeated(
    table: ArrayLike, groups: str | Sequence[str] | None, time: str
) -> tuple[nw.DataFrame, dict[str, Cells], list[str], np.ndarray]:
    """Return a frame, its `Cells` by column, names of groups, and codes of groups.

    Without groups, all rows are of one.
    """
    reject_parts(table, "table")
    if not is_frame(table):
        raise TypeError(
            f"table must be a data frame, got {type(table).__name__}; pass one of "
            "pandas or polars, a LazyFrame after collect()"
        )
    names = names_of(table)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"table has {names.count(twice[0])} columns named {twice[0]!r}; rename them"
        )
    long = nw.from_native(table, eager_only=True)
    cells = dict(zip(long.columns, cells_of_columns(table), strict=True))
    unfit = [name for name in long.columns if not isinstance(name, str)]
    if unfit:
        raise ValueError(
            f"Names of columns of table must be text, got {unfit[0]!r}; rename them, "
            "for example by table.set_axis(table.columns.map(str), axis=1)"
        )
    groups = [] if groups is None else _listed(groups, "groups", long.columns)
    _listed([time], "time", long.columns)
    if time in groups:
        raise ValueError(
            f"time and groups must be different columns, got {time!r} for both; name "
            "the column of the times"
        )
    if not set(long.columns) - {*groups, time}:
        raise ValueError(
            "table must have columns besides those of groups and time, got none; pass "
            "the whole table"
        )
    if not len(long):
        raise ValueError("table must have at least one row, got none")
    for name in (*groups, time):
        missing = np.flatnonzero(cells[name].missing())
        if len(missing):
            raise ValueError(
                f"Column {name!r} must be complete, but is missing in row {missing[0]} "
                f"of table ({len(missing)} rows in all); fill these cells, or drop the "
                "rows"
            )
    if not groups:
        return long, cells, groups, np.zeros(len(long), dtype=int)
    keys = zip(*(cells[name].values for name in groups), strict=True)
    return long, cells, groups, np.array(numbered(keys))


def _listed(names: str | Sequence[str], parameter: str, known: list) -> list[str]:
    """Return names of columns as a list, after checking that they are known."""
    is_one = isinstance(names, str) or not hasattr(names, "__iter__")
    found = [names] if is_one else list(names)
    unknown = [name for name in found if name not in known]
    if unknown or not found:
        shown = repr(unknown[0]) if unknown else "none"
        raise ValueError(
            f"{parameter} must be columns of table, got {shown}; choose from {known}, "
            "and turn an index of pandas into columns by reset_index()"
        )
    return list(dict.fromkeys(found))


def sorted_times(series: nw.Series, cells: Cells) -> tuple[list, np.ndarray]:
    """Return the times in their order, and the place of each row's among them."""
    values = list(map(item, cells.values))
    times = list(dict.fromkeys(values))
    if isinstance(series.dtype, nw.Enum):  # also the ordered categories of pandas
        levels = {one: k for k, one in enumerate(series.dtype.categories)}
        times.sort(key=levels.get)
    else:
        try:
            times.sort()
        except TypeError as error:
            raise TypeError(
                f"Times of column {cells.label} cannot be sorted ({error}); convert "
                "them to one data type"
            ) from error
    places = {one: place for place, one in enumerate(times)}
    return times, np.array([places[one] for one in values])


def numbers_of_times(cells: Cells) -> np.ndarray:
    """Return times as numbers (n_samples,), those of dates and durations in days."""
    if cells.dtype in TIMES:
        return cells.numbers(cells.dtype) / DAY
    if cells.dtype not in ("number", "integer"):
        raise TypeError(
            f"time must be a column of numbers or dates, but {cells.label} is one of "
            f"{cells.series.dtype}; convert it, for example by pandas.to_datetime, or "
            "number the times in their order"
        )
    return cells.numbers(cells.dtype)


def check_pairs(
    codes: np.ndarray,
    times: np.ndarray,
    cells: dict[str, Cells],
    groups: list[str],
    time: str,
) -> None:
    """Raise an error if a group has two rows for a time."""
    known = {}
    for row, pair in enumerate(zip(codes.tolist(), times.tolist(), strict=True)):
        if known.setdefault(pair, row) != row:
            shown = [f"{name}={cells[name].values[row]!s}" for name in (*groups, time)]
            raise ValueError(
                f"Rows {known[pair]} and {row} of table are both of "
                f"{', '.join(shown)}; keep one row for each group and time, or name "
                "columns that tell them apart in groups"
            )


def _different(cells: Cells, codes: np.ndarray) -> tuple[tuple | None, bool]:
    """Return two rows of a group with different values, or None, and if any are equal.

    Missing cells are ignored.
    """
    first, any_equal = {}, False
    values = cells.values
    for row in np.flatnonzero(~cells.missing()).tolist():
        before = first.setdefault(codes[row], row)
        if before != row and values[before] != values[row]:
            return (before, row), any_equal
        any_equal |= before != row
    return None, any_equal


def varying_columns(
    cells: dict[str, Cells],
    codes: np.ndarray,
    others: list[str],
    columns: str | Sequence[str] | None,
) -> list[str]:
    """List the columns that vary within groups: those given, or those found."""
    if columns is not None:
        return _listed(columns, "columns", others)
    found = {name: _different(cells[name], codes) for name in others}
    return [name for name, (rows, equal) in found.items() if rows or not equal]


def check_constant(
    cells: dict[str, Cells], codes: np.ndarray, names: list[str]
) -> None:
    """Raise an error for a column that varies within a group."""
    for name in names:
        rows, _ = _different(cells[name], codes)
        if rows:
            first, other = (cells[name].values[row] for row in rows)
            raise ValueError(
                f"Column {name!r} is not in columns, but varies within a group: "
                f"{first!s} in row {rows[0]} of table, {other!s} in row {rows[1]}; "
                "list it in columns, or drop it"
            )
