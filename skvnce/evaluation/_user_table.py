"""The table of a report, as the imputers read it, and how its cells are shown."""

from datetime import timedelta
from typing import NamedTuple

import numpy as np

from skvnce._tables.cells import (
    TIMES,
    Cells,
    cells_of_columns,
    is_frame,
    is_missing,
    item,
    names_of,
)
from skvnce._tables.findings import codes_of_passed, modelled_columns
from skvnce._tables.frames import readable, reject_no_table, reject_parts
from skvnce._tables.mixed import select_columns
from skvnce._tables.output import library_of
from skvnce._tables.schema import FROM_DTYPE, PASSED, Column, Table, encode
from skvnce.inspection._common import shown_name

_MIDNIGHT = " 00:00:00"
_LONGEST = 60  # characters of a cell that are shown


class UserTable(NamedTuple):
    """A table as the imputers read it."""

    table: Table  # all rows; columns that cannot be read are passed through
    keys: list  # names of the columns, or their indices, as the user writes them
    library: str  # {"pandas", "polars", "pyarrow", "array"}
    kinds: dict  # `categorical_features` of an imputer, beyond what it sees itself
    problems: dict  # dict of int to str: why columns cannot be read
    sources: list[Cells]  # list of Cells: the columns as they are
    frame: object  # the data frame, or the array of two dimensions

    @property
    def missing(self):
        """Which cells are missing; bool, of shape (n_samples, n_features)."""
        return np.isnan(self.table.cells)

    def level(self, place, code):
        """Format a number or the level of a code."""
        column = self.table.columns[place]
        if column.dtype in TIMES and column.levels is None:
            return _time(code, column.dtype)
        return number(code) if column.levels is None else shown(column.level(code))

    def examples(self, place):
        """Format the first different values of a column."""
        values, source = {}, self.sources[place]
        for rows in np.split(np.arange(len(source)), [200]):
            for value in source.at(rows):
                if not is_missing(value):
                    values.setdefault(shown(item(value)))
                if len(values) == 3:
                    return list(values)
        return list(values)


def read_user_table(X):
    """Read a table as an imputer does, and pass through columns that it cannot read."""
    reject_no_table(X)
    reject_parts(X)
    X = _as_table(X)
    kinds = {} if is_frame(X) else dict.fromkeys(_columns_of_text(X), "nominal")
    try:
        columns, cells = _read(X, kinds)
        problems = {}
    except (TypeError, ValueError):
        problems = _problems(X) if is_frame(X) else {}
        if not problems:
            raise
        kinds = {names_of(X)[j]: PASSED for j in problems}
        columns, cells = _read(X, kinds)
    names = names_of(X) or [f"x{j}" for j in range(cells.shape[1])]
    keys = names_of(X) or list(range(cells.shape[1]))
    for j in np.flatnonzero(np.isinf(cells).any(0)).tolist():
        problems[j] = "It has infinite values. Replace them by NaN if they are missing."
        kinds = kinds | {keys[j]: PASSED}
        columns[j] = columns[j]._replace(kind=PASSED, levels=None)
        cells[:, j] = np.where(np.isnan(cells[:, j]), np.nan, 0.0)
    table = Table.of(cells, columns, [shown_name(name) for name in names])
    readables = [j for j in range(len(columns)) if j not in problems]
    codes = codes_of_passed(X, columns)
    table = table._replace(passed={j: codes[j] for j in codes if j in readables})
    sources = cells_of_columns(X)
    library = library_of(X) if is_frame(X) else "array"
    return UserTable(table, keys, library, kinds, problems, sources, X)


def shown(value):
    """Format a cell, shortened."""
    if isinstance(value, float):
        text = f"{value:.6g}"
    else:
        text = str(value).removesuffix(_MIDNIGHT)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def number(value):
    """Format a number by its four leading digits, or as a whole number."""
    if value == np.round(value) and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.4g}"


def percent(share):
    """Format a share; none but 0 and 1 looks like these."""
    if 0 < share < 0.005:
        return "<1\N{NO-BREAK SPACE}%"
    if 0.995 <= share < 1:
        return ">99\N{NO-BREAK SPACE}%"
    return f"{round(100 * share)}\N{NO-BREAK SPACE}%"


def _as_table(X):
    """Return a data frame, or an array of two dimensions, with rows and columns."""
    if not is_frame(X):
        X = readable(X)
        if not hasattr(X, "dtype"):
            try:
                numbers = np.asarray(X)
            except ValueError as error:
                raise ValueError(
                    f"X must be a table, with rows of equal length: {error}"
                ) from error
            is_numeric = numbers.dtype.kind in "biuf"
            X = numbers if is_numeric else np.asarray(X, dtype=object)
        X = np.asarray(X)
        X = X.astype(object) if X.dtype.kind in "US" else X
    shape = np.shape(X)
    if len(shape) != 2:
        raise ValueError(
            f"X must be a table of rows and columns, got {len(shape)} dimensions; pass "
            "df[[name]] of a data frame, or X.reshape(-1, 1), for a single column"
        )
    if 0 in shape:
        raise ValueError(
            f"X must have at least one row and one column, got shape {shape}"
        )
    return X


def _columns_of_text(X):
    if X.dtype.kind != "O":
        return []
    return [j for j, cells in enumerate(cells_of_columns(X)) if cells.dtype == "level"]


def _read(X, kinds):
    columns = modelled_columns(X, kinds or FROM_DTYPE)
    columns = columns or [Column("numeric")] * np.shape(X)[1]
    return list(columns), encode(X, columns)


def _problems(X):
    """Say why columns of a data frame cannot be read, by index."""
    problems = {}
    for j in range(np.shape(X)[1]):
        try:
            _read(select_columns(X, [j]), {})
        except (TypeError, ValueError) as error:
            problems[j] = str(error)
    return problems


def _time(code, dtype):
    """Format microseconds, since 1970 or of a duration."""
    if dtype == "duration":
        return str(timedelta(microseconds=float(code)))
    unit = "D" if dtype == "date" else "s"
    text = str(np.datetime64(int(code), "us").astype(f"M8[{unit}]"))
    return text.replace("T", " ").removesuffix(_MIDNIGHT)
