"""Repeated rows: visits of patients, years of countries.

Imputers take the rows of a table as independent. In a long table, where a patient has a
row for each visit, they are not, and a missing cell is best predicted from other visits
of the same patient. Two functions bring these into the row:

- `to_wide`: one row for each group, with a column for each variable and time, for
  planned visits and few times; `Wide.to_long` goes back;
- `with_neighbours`: the values of the rows before and after as additional columns, for
  times that differ from group to group.

Tables are data frames of pandas or polars, and are not modified.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isclose
from numbers import Integral
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

from skvnce._core.warnings import warn_user
from skvnce._tables import model_columns
from skvnce._tables.cells import (
    DAY,
    TIMES,
    Cells,
    cells_of_columns,
    is_frame,
    is_missing,
    item,
    names_of,
)
from skvnce._tables.frames import reject_parts
from skvnce._tables.schema import numbered
from skvnce.exceptions import TableWarning

# ----------------------------------------
# Groups and times of long tables, which have several rows for a group.


class Long(NamedTuple):
    """A long table, with several rows for a group."""

    frame: nw.DataFrame
    cells: dict[str, Cells]  # by column
    groups: list[str]  # columns that name the groups
    time: str
    # (n_samples,), of the groups; without groups, all rows are of one
    codes: np.ndarray

    @property
    def others(self) -> list[str]:
        """The columns besides those of groups and time."""
        keys = (*self.groups, self.time)
        return [name for name in self.frame.columns if name not in keys]

    def check_pairs(self, times: np.ndarray) -> None:
        """Raise an error if a group has two rows for a time."""
        first, pairs = {}, zip(self.codes.tolist(), times.tolist(), strict=True)
        for row, pair in enumerate(pairs):
            if first.setdefault(pair, row) != row:
                keys = (*self.groups, self.time)
                shown = [f"{name}={self.cells[name].values[row]!s}" for name in keys]
                raise ValueError(
                    f"Rows {first[pair]} and {row} of table are both of "
                    f"{', '.join(shown)}; keep one row for each group and time, or "
                    "name columns that tell them apart in groups"
                )

    def varying(self, columns: str | Sequence[str] | None) -> list[str]:
        """List the columns that vary within groups, as named or by their cells."""
        if columns is not None:
            return _listed(columns, "columns", self.others)
        changes = {name: self._different(name) for name in self.others}
        return [name for name, (rows, equal) in changes.items() if rows or not equal]

    def check_constant(self, names: list[str]) -> None:
        """Raise an error for a column that varies within a group."""
        for name in names:
            rows, _ = self._different(name)
            if rows:
                first, other = (self.cells[name].values[row] for row in rows)
                raise ValueError(
                    f"Column {name!r} is not in columns, but varies within a group: "
                    f"{first!s} in row {rows[0]} of table, {other!s} in row {rows[1]}; "
                    "list it in columns, or drop it"
                )

    def _different(self, name: str) -> tuple[tuple | None, bool]:
        """Return two rows of a group with different values, and if any are equal."""
        first, any_equal, cells = {}, False, self.cells[name]
        for row in np.flatnonzero(~cells.missing()).tolist():
            before = first.setdefault(self.codes[row], row)
            if before != row and cells.values[before] != cells.values[row]:
                return (before, row), any_equal
            any_equal |= before != row
        return None, any_equal


def read_repeated(
    table: ArrayLike, groups: str | Sequence[str] | None, time: str
) -> Long:
    """Check and read a long table."""
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
    codes = np.zeros(len(long), dtype=int)
    if groups:
        keys = zip(*(cells[name].values for name in groups), strict=True)
        codes = np.array(numbered(keys))
    return Long(long, cells, groups, time, codes)


def _listed(names: str | Sequence[str], parameter: str, existing: list) -> list[str]:
    """Return names of columns as a list, after checking that they are known."""
    is_one = isinstance(names, str) or not hasattr(names, "__iter__")
    chosen = [names] if is_one else list(names)
    unknown = [name for name in chosen if name not in existing]
    if unknown or not chosen:
        shown = repr(unknown[0]) if unknown else "none"
        raise ValueError(
            f"{parameter} must be columns of table, got {shown}; choose from "
            f"{existing}, and turn an index of pandas into columns by reset_index()"
        )
    return list(dict.fromkeys(chosen))


def sorted_times(series: nw.Series, cells: Cells) -> tuple[list, np.ndarray]:
    """Return the times in their order, and the place of each row's among them."""
    values = list(map(item, cells.values))
    times = list(dict.fromkeys(values))
    if isinstance(series.dtype, nw.Enum):  # also the ordered categories of pandas
        levels = {time: k for k, time in enumerate(series.dtype.categories)}
        times.sort(key=levels.get)
    else:
        try:
            times.sort()
        except TypeError as error:
            raise TypeError(
                f"Times of column {cells.label} cannot be sorted ({error}); convert "
                "them to one data type"
            ) from error
    places = {time: place for place, time in enumerate(times)}
    return times, np.array([places[time] for time in values])


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


__all__ = ["Wide", "to_wide", "with_neighbours"]

_PASS = "pass what transform or sample of an imputer return for it"
_MOST_WITHOUT_ROW = 0.75  # more than that are hardly planned times


@dataclass(frozen=True, repr=False, eq=False)
class Wide:
    """A table with one row for each group, and the way back; made by `to_wide`.

    Attributes
    ----------
    table : DataFrame of shape (n_groups, n_wide_columns)
        For imputers. A column that varies over time is there once for each time, named
        ``"{column}@{time}"``; others keep their names. In pandas the index has the
        groups.
    groups : DataFrame of shape (n_groups, n_group_columns)
        The columns that name the groups, in the order of ``table``.
    times : list of length n_times
        The times in their order.

    Examples
    --------
    >>> import pandas as pd
    >>> from skvnce.longitudinal import to_wide
    >>> visits = pd.DataFrame({
    ...     "patient": [2, 2, 1],
    ...     "month": [6, 0, 0],
    ...     "weight": [71.0, None, 80.0],
    ... })
    >>> wide = to_wide(visits, groups="patient", time="month", columns="weight")
    >>> wide.to_long(wide.table.fillna(75.0))
       patient  month  weight
    0        2      6    71.0
    1        2      0    75.0
    2        1      0    80.0
    >>> wide.to_long(wide.table.fillna(75.0), all_times=True)
       patient  month  weight
    0        2      0    75.0
    1        2      6    71.0
    2        1      0    80.0
    3        1      6    75.0
    """

    table: Any
    groups: Any
    times: list
    _long: nw.DataFrame
    _rows: np.ndarray  # (n_groups, n_times), -1 without a row
    _time: str
    _names: dict[str, list[str]]  # other columns to those of `table`

    def __repr__(self):
        """Describe the sizes."""
        n, width = nw.from_native(self.table, eager_only=True).shape
        return f"Wide({n} groups, {len(self.times)} times, {width} columns)"

    def to_long(self, filled: ArrayLike, *, all_times: bool = False) -> Any:
        """Return the long table with its missing cells filled.

        Missing cells of columns that are constant within groups get the value of their
        group.

        Parameters
        ----------
        filled : DataFrame or array-like of shape (n_groups, n_wide_columns)
            ``table`` with filled cells, as ``transform`` returns it, or one of the
            tables of ``sample``. Data frames may have other columns in addition, and
            may lack those that have no observed cell. An array must have all columns.
        all_times : bool, default=False
            Whether to add the rows of groups and times that have none. The rows are
            then those of all groups and times, in this order, with a new index.

        Returns
        -------
        DataFrame of shape (n_samples, n_columns), or (n_groups * n_times, n_columns)
            With the order of rows, index, columns and data types of the long table.
            Rows that are added may change data types that hold no missing cells, if a
            cell stays missing. Categories that are new are added. Numbers that fill
            columns of integers are rounded.

        Raises
        ------
        TypeError
            If ``filled`` has cells that the data type of their column cannot hold.
        ValueError
            If ``filled`` lacks rows or columns of ``table``, or has other values in
            cells that are observed.
        """
        columns, long = self._columns_of(filled), self._long
        group_of, time_of = np.indices(self._rows.shape).reshape(2, -1)
        rows = self._rows.ravel()
        if all_times:
            of_group, of_time = self._rows.max(1)[group_of], self._rows.max(0)[time_of]
            long = model_columns.reset_index(
                long[np.zeros(len(rows), dtype=int).tolist()]
            )
        else:
            order = np.argsort(rows)[-len(long) :]  # behind those that have no row
            group_of, time_of = group_of[order], time_of[order]
        columns_long = []
        for name in long.columns:
            series, names = self._long[name], self._names.get(name)
            if all_times and names is None:
                places = of_time if name == self._time else of_group
                columns_long.append(model_columns.take_rows(series, places))
            elif names is not None:
                new = model_columns.take_rows(series, rows) if all_times else series
                places = time_of if len(names) > 1 else np.zeros_like(time_of)
                values = [columns[wide_name] for wide_name in names]
                new = model_columns.filled_cells(new, values, group_of, places)
                columns_long.append(model_columns.as_before(new, series))
        return model_columns.assigned(long, columns_long).to_native()

    def _columns_of(self, filled):
        """Return columns of `table` as lists, by name; of missing cells if absent."""
        reject_parts(filled, "filled")
        wide = nw.from_native(self.table, eager_only=True)
        wide = {name: wide[name].to_list() for name in wide.columns}
        n = len(self._rows)
        if is_frame(filled):
            frame = nw.from_native(filled, eager_only=True)
            frames = [table for table in (filled, self.table) if hasattr(table, "iloc")]
            is_same = len(frames) < 2 or filled.index.equals(self.table.index)
            if len(frame) != n or not is_same:
                raise ValueError(
                    f"filled must have the {n} rows of the attribute table, in their "
                    f"order and with their index, got {len(frame)} rows; {_PASS}"
                )
            cells_of = {name: frame[name].to_list() for name in frame.columns}
        else:
            cells = np.asarray(filled)
            if cells.shape != (n, len(wide)):
                raise ValueError(
                    f"filled must have the shape {(n, len(wide))} of the attribute "
                    f"table, got {cells.shape}; {_PASS}, as data frames if columns are "
                    'left out or added: imputer.set_output(transform="pandas")'
                )
            cells_of = dict(zip(wide, cells.T.tolist(), strict=True))
        for name, values in wide.items():
            if name in cells_of:
                _check_observed(name, values, cells_of[name])
            elif not all(map(is_missing, values)):
                raise ValueError(
                    f"filled has no column {name!r}, which has observed cells in the "
                    f"attribute table; {_PASS}"
                )
        return wide | cells_of


def to_wide(
    table: ArrayLike,
    *,
    groups: str | Sequence[str],
    time: str,
    columns: str | Sequence[str] | None = None,
) -> Wide:
    """Arrange a long table so that a group is a row.

    Parameters
    ----------
    table : DataFrame of shape (n_samples, n_columns)
        A row for each group and time, in any order. Rows of some times may be absent.
    groups : str or list of str
        Columns that name the group, such as the patient.
    time : str
        Column that names the time, such as the month of the planned visit: numbers,
        dates, text or categories. Real times that differ from group to group would
        give a column each: round them to those that were planned.
    columns : str or list of str, default=None
        Columns that vary over time. The others must be constant within groups, but for
        missing cells. None finds them: columns of which no group has two different
        values, and at least one has two equal ones, are constant.

    Returns
    -------
    Wide
        ``table`` is the wide table, for imputers, and ``to_long`` the way back.
        Columns that vary are named ``"{column}@{time}"``, such as ``"weight@6"`` (dates
        as ``"weight@2024-01-31"``), and have missing cells where a group has no row for
        a time. Data types are kept; in pandas, integers and booleans become those that
        hold missing cells ("Int64", "boolean") if a row is absent. Groups are in the
        order of their first rows, and times are sorted, categories that are ordered by
        their order.

    Raises
    ------
    TypeError
        If ``table`` is no data frame, or times cannot be sorted.
    ValueError
        If ``table`` has no rows or no such columns, a cell of ``groups`` or ``time`` is
        missing, a group has two rows for a time, a column that is not in ``columns``
        varies within a group, or two columns would have the same name.

    Warns
    -----
    TableWarning
        If most groups have no row at most times, which are then hardly planned ones.

    Notes
    -----
    Two columns that vary, at ten times, become 20 columns: a normal distribution of
    them has 210 covariances, so that there should be many more groups than columns.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skvnce.longitudinal import to_wide
    >>> visits = pd.DataFrame({
    ...     "patient": ["a", "a", "b", "b"],
    ...     "month": [0, 6, 0, 12],
    ...     "sex": ["f", "f", "m", "m"],
    ...     "weight": [61.0, np.nan, 80.0, 82.0],
    ... })
    >>> wide = to_wide(visits, groups="patient", time="month", columns="weight")
    >>> wide.table.reset_index()
      patient sex  weight@0  weight@6  weight@12
    0       a   f      61.0       NaN        NaN
    1       b   m      80.0       NaN       82.0
    """
    if groups is None:
        raise ValueError(
            "groups must be columns of table, got None: a row of the wide table is a "
            "group; with_neighbours takes groups=None for a single series"
        )
    read = read_repeated(table, groups, time)
    long, cells, groups, time, codes = read
    times, time_codes = sorted_times(long[time], cells[time])
    read.check_pairs(time_codes)
    varying = read.varying(columns)
    read.check_constant([name for name in read.others if name not in varying])
    first = _first_rows(codes, np.arange(len(long)))
    _warn_of_few_rows(len(long) / (len(first) * len(times)), time)
    rows = np.full((len(first), len(times)), -1)
    rows[codes, time_codes] = np.arange(len(long))

    wide, names = [], {}
    for name in read.others:
        series = long[name]
        if name in varying:
            names[name], places = [f"{name}@{_shown(at)}" for at in times], rows.T
            series = model_columns.nullable(series) if (rows < 0).any() else series
        else:
            observed = np.flatnonzero(~cells[name].missing())
            first_observed = _first_rows(codes[observed], observed, len(first))
            names[name] = [name]
            places = [np.where(first_observed >= 0, first_observed, first)]
        pairs = zip(names[name], places, strict=True)
        wide += [model_columns.take_rows(series, at).alias(new) for new, at in pairs]
    _check_names([new for news in names.values() for new in news])
    start = model_columns.reset_index(long[first.tolist()])
    new_names = [column.name for column in wide]
    result = model_columns.assigned(start, wide).select(new_names).to_native()
    keys = start.select(groups).to_native()
    if hasattr(result, "iloc"):
        result = result.set_axis(keys.set_index(groups).index)
    return Wide(result, keys, times, long.clone(), rows, time, names)


def with_neighbours(
    table: ArrayLike,
    *,
    groups: str | Sequence[str] | None,
    time: str,
    columns: str | Sequence[str] | None = None,
    lags: int | Sequence[int] = (1,),
    leads: int | Sequence[int] = (1,),
    distances: bool = True,
) -> Any:
    """Add the values of earlier and later rows of the same group as columns.

    Parameters
    ----------
    table : DataFrame of shape (n_samples, n_columns)
        A row for each group and time, in any order.
    groups : str, list of str or None
        Columns that name the group, such as the patient. None: all rows are of a
        single series, such as the readings of one station.
    time : str
        Column of the time: numbers, dates or durations.
    columns : str or list of str, default=None
        Columns whose neighbours are added; None takes all that vary within groups.
    lags : int or sequence of int, default=(1,)
        Which earlier rows: 1 is the row before, 2 the one before that.
    leads : int or sequence of int, default=(1,)
        Which later rows. ``()`` takes none, as forecasts need it.
    distances : bool, default=True
        Whether to add how far away the neighbours are, in units of ``time``; in days if
        these are dates or durations. If all times have the same distance, it says
        nothing.

    Returns
    -------
    DataFrame of shape (n_samples, n_columns + n_new_columns)
        The table with its rows, their order and index, and behind its columns the new
        ones: ``"{column}_lag1"``, ``"{column}_lead1"``, ..., and for the distances
        ``"{time}_lag1"``, ... They are missing where there is no such row, and have the
        data types of `to_wide`. The columns of the table alone are
        ``filled[table.columns]`` in pandas, and ``filled.select(table.columns)`` in
        polars.

    Raises
    ------
    TypeError
        If ``table`` is no data frame, or times are neither numbers nor dates.
    ValueError
        If ``table`` has no rows or no such columns, a cell of ``groups`` or ``time`` is
        missing, a group has two rows for a time, ``lags`` or ``leads`` are not
        different positive integers, or a new column would have the name of another.

    Notes
    -----
    Imputers draw the cells of a row together, but each row by itself: draws of two
    missing cells in neighbouring rows do not know of each other. Where this is
    frequent, prefer `to_wide`. Missing cells of the new columns are filled, too; these
    fills are not those of the rows that the neighbours come from, so drop them after.

    Examples
    --------
    >>> import pandas as pd
    >>> from skvnce.longitudinal import with_neighbours
    >>> visits = pd.DataFrame({
    ...     "patient": ["a", "b", "a"], "day": [30, 3, 9], "dose": [1.5, 2.0, 1.0],
    ... })
    >>> with_neighbours(visits, groups="patient", time="day", leads=())
      patient  day  dose  dose_lag1  day_lag1
    0       a   30   1.5        1.0      21.0
    1       b    3   2.0        NaN       NaN
    2       a    9   1.0        NaN       NaN

    A single series:

    >>> series = pd.DataFrame({"hour": [0, 1, 2], "level": [4.0, None, 5.0]})
    >>> with_neighbours(series, groups=None, time="hour", distances=False)
       hour  level  level_lag1  level_lead1
    0     0    4.0         NaN          NaN
    1     1    NaN         4.0          5.0
    2     2    5.0         NaN          NaN
    """
    steps = {"lag": _steps(lags, "lags"), "lead": _steps(leads, "leads")}
    read = read_repeated(table, groups, time)
    long, codes, when = read.frame, read.codes, numbers_of_times(read.cells[time])
    read.check_pairs(when)
    chosen = read.varying(columns)

    order, new = np.lexsort((when, codes)), []
    for word, numbers in steps.items():
        for step in numbers:
            rows = _neighbours(order, codes, -step if word == "lag" else step)
            new += [
                model_columns.take_rows(long[name], rows).alias(f"{name}_{word}{step}")
                for name in chosen
            ]
            if distances:
                apart = np.where(rows < 0, np.nan, np.abs(when[rows] - when))
                new.append(model_columns.floats(f"{time}_{word}{step}", apart, long))
    _check_names([*long.columns, *(series.name for series in new)])
    return model_columns.assigned(long, new).to_native()


def _check_observed(name, values, filled):
    """Raise an error if observed cells have other values in a filled column."""
    for row, (value, new) in enumerate(zip(values, filled, strict=True)):
        if is_missing(value) or value == new:
            continue
        are_floats = isinstance(value, float) and isinstance(new, float)
        if not (are_floats and isclose(value, new, rel_tol=1e-6)):  # of short floats
            raise ValueError(
                f"filled has {new!s} in column {name!r}, row {row}, where the "
                f"attribute table has {value!s}; {_PASS}, and turn marks of missing "
                "cells into missing cells before to_wide"
            )


def _check_names(names):
    """Raise an error for names that occur twice."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"Two columns of the new table would be named {twice[0]!r}; rename a "
            "column of table"
        )


def _warn_of_few_rows(share, time):
    """Warn if most pairs of groups and times have no row."""
    if share < 1 - _MOST_WITHOUT_ROW:
        warn_user(
            f"{1 - share:.0%} of the pairs of groups and times have no row. If the "
            f"times in column {time!r} are no planned ones, round them to planned "
            "ones, or use with_neighbours.",
            TableWarning,
        )


def _steps(steps, parameter):
    """Return lags or leads as a list of different positive integers."""
    numbers = list(steps) if np.iterable(steps) else [steps]
    are_counts = [
        isinstance(step, Integral) and not isinstance(step, bool) and step >= 1
        for step in numbers
    ]
    if not all(are_counts) or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{parameter} must be different positive integers, got {steps!r}; pass for "
            "example (1, 2), and () for none"
        )
    return [int(step) for step in numbers]


def _neighbours(order, codes, step):
    """Return the row a step after each row (n_samples,) of its group, or -1."""
    rows = np.full(len(order), -1)
    before, after = order[: -abs(step)], order[abs(step) :]
    at, to = (before, after) if step > 0 else (after, before)
    is_same = codes[at] == codes[to]
    rows[at[is_same]] = to[is_same]
    return rows


def _first_rows(codes, rows, n_groups=None):
    """Return the first of these rows of each group (n_groups,), or -1."""
    n_groups = codes.max() + 1 if n_groups is None else n_groups
    first = np.full(n_groups, -1)
    first[codes[::-1]] = rows[::-1]  # the last assignment counts
    return first


def _shown(time):
    """Write a time for the name of a column."""
    if isinstance(time, datetime):
        return str(time).removesuffix(" 00:00:00")
    return str(int(time) if isinstance(time, float) and time.is_integer() else time)
