"""Methods of fitted estimators, applied to each part of a table when it is read."""

import functools
import inspect
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import narwhals as nw
import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvnce._core.random import seed_from
from skvnce._imputer.validation import check_sample, in_parts
from skvnce._tables.cells import (
    TIMES,
    cells_of_columns,
    is_frame,
    is_missing,
    names_of,
    without_marker,
)
from skvnce._tables.findings import Counted, count_levels, passed_through
from skvnce._tables.frames import is_in_parts
from skvnce._tables.output import decode
from skvnce._tables.schema import Column, asked_kinds, in_order, read_columns
from skvnce._types import Method

KEEP_PARTS = set()  # the decorated methods


def kept_in_parts(method: Method) -> Method:
    """Call a method that scikit-learn has decorated, undecorated for parts."""

    @functools.wraps(method)
    def applied(self, X, *args, **options):
        # scikit-learn's wrapper would convert parts to the container of set_output
        chosen = method.__wrapped__ if is_in_parts(X) else method
        return chosen(self, X, *args, **options)

    KEEP_PARTS.add(applied)  # so that subclasses do not decorate it again
    return applied


def by_parts(method: Method) -> Method:
    """Decorate a method of rows so that it accepts, and returns, tables in parts."""
    name, signature = method.__name__, inspect.signature(method)
    defaults = {key: value.default for key, value in signature.parameters.items()}

    @functools.wraps(method)
    def applied(self, X, *args, **options):
        source = in_parts(X)
        if source is None:
            return method(self, X, *args, **options)
        options = signature.bind(self, X, *args, **options).arguments
        passed = [key for key, value in options.items() if value is not defaults[key]]
        if len(passed) > 2:  # more than self and X
            raise ValueError(
                f"{passed[2]} is not available for a table in parts. Call {name} for "
                "each part, with its own."
            )
        check_is_fitted(self)
        reject_groups(self._schema.group_columns)
        self._check_parameters()
        fitted = self._without_training()
        if name == "transform":
            names = self.get_feature_names_out()
            return fitted._mapped(source, names, type(fitted)._transform_part)
        empty = np.zeros(0)
        score = functools.partial(call_with_rows, fitted._score_part, empty)
        return source._numbers(score)

    return applied


def samples_by_parts(method: Method) -> Method:
    """Decorate `sample` for tables in parts, all drawn with the same parameters."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def applied(self, X, n_draws=1, random_state=None, *, as_array=False, **options):
        source = in_parts(X)
        if source is None:
            options["as_array"] = as_array
            return method(self, X, n_draws, random_state, **options)
        # raises Python's error for unknown arguments
        signature.bind(self, X, **options)
        check_sample(n_draws, as_array)
        passed = [key for key, value in options.items() if value is not None]
        if as_array or passed:
            raise ValueError(
                f"{'as_array' if as_array else passed[0]} is not available for a table "
                "in parts. Parts that are drawn by calls of their own would not share "
                "a draw of the parameters."
            )
        check_is_fitted(self)
        reject_groups(self._schema.group_columns)
        self._check_parameters()
        seed = seed_from(random_state)
        names = self._schema.all_names[self._schema.returned]
        return [
            imputer._mapped(source, names, type(imputer)._sample_part, (seed, turn))
            for turn, imputer in enumerate(self._in_turns(n_draws, seed))
        ]

    return applied


def call_with_rows(fill, empty, number, chunk):
    """Fill a part; without rows return `empty`, or call it for a table without rows."""
    if len(chunk):
        return fill(number, chunk)
    if callable(empty):  # what it returns is of the type of other parts
        return empty(number, _missing_row(chunk))[:0]
    return empty


def _missing_row(chunk):
    """Make a row without an observed cell, in the container of a part without rows."""
    if hasattr(chunk, "reindex"):  # of pandas
        return chunk.reindex([0])
    if hasattr(chunk, "clear"):  # of polars
        return chunk.clear(1)
    return np.full((1, np.shape(chunk)[1]), np.nan)


def typical_row(schema, frame):
    """Make a row of a data frame's types, of values that `fit` has seen."""
    [values] = decode(schema.columns, schema.ends[:1]).tolist()
    cells = {}
    for value, (name, dtype) in zip(values, frame.dtypes.items(), strict=True):
        is_level = value in getattr(dtype, "categories", [value])
        cells[name] = type(frame[name])([value if is_level else None], dtype=dtype)
    return type(frame)(cells)


_GROUPS_IN_PARTS = (
    "groups is not available for a table in parts, as the rows of a group may "
    "be in several. Fit to a table in memory, of whole groups if there are too "
    "many; then call the methods for one table of whole groups after the "
    "other, such as the computed partitions of ddf.shuffle(on=groups) of dask."
)


def reject_groups(columns, reason=_GROUPS_IN_PARTS):
    """Raise an error if a column names groups, which may be in several tables."""
    if columns:
        raise ValueError(reason)


# ----------------------------------------
# Which columns of a table in parts are categories, and their levels in all parts.


_NO_COUNTS = Counter()  # counts of columns that are not nominal

TEXT_IN_PARTS = (  # what to do about text in a column of numbers in the first part
    'categorical_features={column: "passthrough"} leaves out a column of names of '
    'rows, and "nominal" models categories; or read all parts with one data type, for '
    "example pandas.read_csv(..., dtype={column: str})."
)


@contextmanager
def part_named(number):
    """Name the part of X in errors."""
    try:
        yield
    except (TypeError, ValueError) as error:
        where = f"Part {number} of X (the first is 0)"
        # scikit-learn names the class that has read the first part
        text = str(error).replace("TableReader is expecting", "the first part has")
        raise type(error)(f"{where}: {text}") from error


class PartColumn(NamedTuple):
    """A column of some parts."""

    column: Column
    order: tuple | None = None  # all levels of an ordered data type, in their order
    # numbers of observed cells of the levels of a nominal column
    counts: Counter = _NO_COUNTS
    # number of observed numbers, if the first rows do not tell what the column is
    n_numbers: int = 0

    def united(self, other):
        """Unite with the column in the next parts."""
        both = column, after = self.column, other.column
        counts = self.counts + other.counts
        n_numbers = self.n_numbers + other.n_numbers
        if column.levels is None or after.levels is None:
            # the other may have had only missing cells
            if column.levels is None and column.dtype not in TIMES:
                column = after
            units = [part.unit for part in both if part.dtype in TIMES]
            column = column._replace(unit=min(units, default=0))
            _check_kinds(column, n_numbers)
            return PartColumn(column, self.order or other.order, counts, n_numbers)
        levels = set(column.levels)
        new = [level for level in after.levels if level not in levels]
        order = self.order and _united_order(self.order, other.order or self.order)
        column = column._replace(levels=column.levels + tuple(new))
        return PartColumn(column, order, counts)


def _check_kinds(column, n_numbers):
    """Raise an error for numbers in some parts and levels in others."""
    if column.levels and n_numbers:
        raise ValueError(
            "A column has numbers in some parts of X, and the levels "
            f"{list(column.levels[:3])} in others. Read all parts with one data type, "
            "for example pandas.read_csv(..., dtype={column: str})."
        )


def _united_order(order, other):
    """Unite the orders of levels of two parts, which may lack some levels."""
    common = [level for level in other if level in order]
    if common != [level for level in order if level in other]:
        raise ValueError(
            f"The levels of a column have the order {list(order)} in some parts of X, "
            f"and {list(other)} in others. Give all parts the same data type."
        )
    levels = list(order)
    for level in reversed(other):  # the next level is known
        if level not in levels:
            after = other[other.index(level) + 1 :]
            levels.insert(levels.index(after[0]) if after else len(levels), level)
    return tuple(levels)


def columns_of_parts(source, head, categorical_features, marker=np.nan):
    """Determine the columns of a table in parts, by one pass over it.

    Numbers of data frames are numeric if nobody names them: whether they are whole,
    with few values, is only known from all parts.  Returns None if each cell is a
    number.
    """
    head = without_marker(head, marker)
    unseen = _unseen(head)  # of text, too, which is read as floats if it is missing
    kinds = without_counts(head, categorical_features, unseen)
    # all numbers in the first part: no other part is read
    if not unseen and read_columns(head, _without_levels(kinds)) is None:
        return None
    columns = source._reduced(partial(_columns_in, kinds, marker), _united)
    named = asked_kinds(head, len(columns), kinds)
    counted = [
        Counted(_sorted(column, named.get(place)), column.counts.values())
        for place, column in enumerate(columns)
    ]
    return passed_through(counted, named)


def without_counts(head, kinds, unseen=()):
    """Name the numbers of a data frame as numeric, if nobody names them."""
    if not is_frame(head) or not isinstance(kinds, str | dict):
        return kinds
    series = [cells.series for cells in cells_of_columns(head)]
    schema = {column.name: column.dtype for column in series}
    names = [
        name
        for name, dtype in schema.items()
        if dtype.is_numeric() and name not in unseen
    ]
    kinds = {} if isinstance(kinds, str) else kinds
    places = asked_kinds(head, len(schema), kinds)
    free = [name for place, name in enumerate(schema) if place not in places]
    return {name: "numeric" for name in names if name in free} | kinds


def _unseen(head):
    """List the columns of a data frame that have rows, and only missing cells."""
    if not is_frame(head) or not len(head):
        return []
    names, first = names_of(head), np.array([0])
    return [
        name
        for name, cells in zip(names, cells_of_columns(head), strict=True)
        if is_missing(cells.at(first)[0]) and cells.missing().all()
    ]


def _without_levels(kinds):
    """Replace lists of levels: the head of a table of dask has others."""
    if not isinstance(kinds, dict):
        return kinds
    return {
        key: value if isinstance(value, str) else "ordinal"
        for key, value in kinds.items()
    }


def _columns_in(kinds, marker, number, chunk, weights):
    """Return the columns of a part; None if it has no rows."""
    with part_named(number):
        if not len(chunk):
            return None
        chunk = without_marker(chunk, marker)
        named = without_counts(chunk, kinds)
        columns = read_columns(chunk, named)
    if not is_frame(chunk):
        none = [None] * len(columns or ())
        return columns and _part_columns(chunk, columns, none, none)
    schema = nw.from_native(chunk, eager_only=True).schema
    columns = columns or [Column("numeric")] * len(schema)
    orders = [
        tuple(dtype.categories) if isinstance(dtype, nw.Enum) else None
        for dtype in schema.values()
    ]
    is_dict = isinstance(kinds, dict)
    new = [is_dict and name in named and name not in kinds for name in schema]
    return _part_columns(chunk, columns, orders, new)


def _part_columns(chunk, columns, orders, new):
    """Make a `PartColumn` of each column; count the cells of `new` numbers."""
    parts = zip(cells_of_columns(chunk), columns, orders, new, strict=True)
    return [
        PartColumn(
            column,
            order,
            count_levels(cells) if column.kind == "nominal" else _NO_COUNTS,
            int((~cells.missing()).sum()) if is_new else 0,
        )
        for cells, column, order, is_new in parts
    ]


def _united(first, second):
    if first is None or second is None:
        return first or second
    return [a.united(b) for a, b in zip(first, second, strict=True)]


def _sorted(levels, named):
    """Sort the levels of a column as `read_columns` does."""
    column, order = levels.column, levels.order
    if column.levels is None or column.dtype == "boolean":
        return column
    if isinstance(named, tuple):
        order = named
    return column._replace(levels=in_order(column.levels, order))
