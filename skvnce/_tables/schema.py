"""The schema of a table: names, kinds and codes of its columns."""

import numbers
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from types import MappingProxyType
from typing import NamedTuple, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

from skvnce._core.numbers import are_codes
from skvnce._tables.cells import (
    TIMES,
    UNITS,
    Cells,
    cells_of_columns,
    is_frame,
    is_missing,
    is_text,
    item,
    names_of,
)
from skvnce._tables.frames import column_label

# ----------------------------------------
# Columns of tables: which are categories, and their codes.
#
# `read_columns` decides at `fit` what each column is:
#
# - Categories and strings are nominal.  Ordered categories are ordinal: the ordered
#   ``category`` of pandas, and polars' ``Enum``, which compares its levels in their
#   order (its ``Categorical`` compares them as text, and is nominal).
# - Booleans are ordinal, with the levels False and True.
# - Whole numbers of a data frame, of integer or of float data types, are ordinal if
#   they have at most ten different values, each in two cells on average (`are_codes`).
#   Other numbers are numeric, as are floats that are constant.
# - Dates and durations are numeric: microseconds, since 1970 (UTC) for dates.
#
# The levels of the model are the observed ones.  Their order is that of the data type
# if it is ordered, and else that of sorting.

# ----------------------------------------
# Groups of rows, and columns that are constant within them.

_FEWEST = 3  # groups with two equal cells, from which a column is one of groups


def numbered(keys: Iterable[Hashable]) -> list[int]:
    """Give equal keys a number, in the order in which they appear."""
    numbers: dict = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def by_group(most: np.ufunc, cells: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Reduce the rows of each group by a ufunc; (n_groups, n_columns)."""
    order = numbers.argsort(kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return most.reduceat(cells[order], starts, axis=0)


def columns_of_groups(cells: np.ndarray, numbers: np.ndarray) -> list[int]:
    """Find columns that are constant within all groups.

    Three groups or more have two observed cells of it, or half of the groups; of others
    nothing is known.
    """
    low, high = (by_group(most, cells, numbers) for most in (np.fmin, np.fmax))
    counts = by_group(np.add, ~np.isnan(cells) * 1, numbers)
    with np.errstate(invalid="ignore"):
        constant = ~(high > low).any(0)
    enough = (counts > 1).sum(0) >= min(_FEWEST, -(-len(counts) // 2))
    return np.flatnonzero(constant & enough).tolist()


_DECIMALS = 9  # of numbers between levels, which are whole
FROM_DTYPE = "from_dtype"
PASSED = "passthrough"
KINDS = ("numeric", "ordinal", "nominal", PASSED)


class Column(NamedTuple):
    """What `fit` has learned about a column."""

    # {"numeric", "ordinal", "nominal", "passthrough"}: a column that is passed through
    # is in no model, and its cells come back as they were. Its code is 0
    kind: str
    # the levels, in the order of their codes; None for numbers, and for columns that
    # are passed through
    levels: tuple | None = None
    # {"number", "integer", "boolean", "date", "datetime", "duration", "level"}
    dtype: str = "number"
    zone: str | None = None  # the time zone of dates
    # whether the levels are whole numbers that nobody named. A new number of such a
    # column counts as the nearest level
    is_count: bool = False
    # whether a formula relates such numbers: other ones than the levels stay what they
    # are, and are the nearest level for a model only
    is_exact: bool = False
    # whether filled cells may be other ones, too, as a formula computes them
    is_open: bool = False
    # number of levels of a column that `fit` passes through because of them
    n_levels: int = 0
    # tuple of str: those of its levels that usually mark missing values
    marks: tuple = ()
    # whether a column that is passed through names the groups of rows. Its codes are
    # the numbers of groups in a table, in which they appear
    is_group: bool = False
    # microseconds of the largest unit (day, hour, minute or second) in which all
    # moments, or durations, are whole, as filled cells then are; or 0
    unit: int = 0

    def level(self, code: float) -> object:
        """Return the level of a code; a number is its own."""
        return code if self.levels is None else self.levels[int(code)]

    def code(self, level: object) -> float:
        """Return the code of a level; a number is its own."""
        return level if self.levels is None else float(self.levels.index(level))

    def codes(self, numbers: np.ndarray) -> np.ndarray:
        """Convert numbers to the codes of levels that are numbers; NaN stays NaN.

        A number of an exact column that is between two levels is in the same proportion
        between their codes, and beyond the levels the steps of codes are 1. For other
        columns it is the nearest level, the lower one of two.
        """
        levels = np.array(self.levels, dtype=float)
        if self.is_exact:
            low, high = levels[[0, -1]]
            beyond = np.minimum(numbers - low, 0) + np.maximum(numbers - high, 0)
            return np.interp(numbers, levels, np.arange(len(levels))) + beyond
        halves = (levels[:-1] + levels[1:]) / 2
        return np.where(np.isnan(numbers), np.nan, np.searchsorted(halves, numbers))

    def numbers(self, codes: np.ndarray) -> np.ndarray:
        """Convert the codes of levels that are numbers to these; NaN stays NaN."""
        levels = np.array(self.levels, dtype=float)
        beyond = np.minimum(codes, 0) + np.maximum(codes - (len(levels) - 1), 0)
        inside = np.interp(codes, np.arange(len(levels)), levels)
        return np.round(inside + beyond, _DECIMALS)

    @property
    def is_time(self) -> bool:
        """Return whether the cells are dates or durations, as numbers."""
        return self.dtype in TIMES and self.kind == "numeric"

    @property
    def is_plain(self) -> bool:
        """Return whether the cells are their own codes."""
        is_number = self.levels is None and self.dtype not in TIMES
        return is_number and self.kind != PASSED

    @property
    def is_number(self) -> bool:
        """Return whether all values are numbers or booleans."""
        if self.kind == PASSED:
            return self.dtype in ("number", "integer", "boolean")
        if self.levels is None:
            return self.dtype not in TIMES
        return all(isinstance(level, numbers.Real) for level in self.levels)


def read_columns(
    X: ArrayLike, categorical_features: object = FROM_DTYPE, groups: object = None
) -> list[Column] | None:
    """Determine the kinds and levels of columns; None if each cell is a number.

    Raises ValueError for columns that a parameter names and X does not have, and for
    cells that it cannot read.
    """
    cells = cells_of_columns(X)
    if is_frame(X) and not cells:
        raise ValueError("X has no columns.")
    in_groups = column_of_groups(groups)
    is_plain = not (_named(categorical_features) or in_groups.columns)
    if cells is None or (not is_frame(X) and is_plain):
        return None
    kinds = asked_kinds(X, len(cells), categorical_features)
    by_dtype = isinstance(categorical_features, dict) or (
        is_frame(X) and isinstance(categorical_features, str)
    )
    of_groups, slopes = (
        [place_of(name, names_of(X), len(cells), "groups") for name in names]
        for names in (in_groups.columns, in_groups.slopes)
    )
    kinds |= dict.fromkeys(of_groups, PASSED)
    for place in slopes:  # whole numbers would be ordinal
        if cells[place].dtype in ("number", "integer"):
            kinds.setdefault(place, "numeric")
    columns = [
        _column(source, kinds.get(j), by_dtype)._replace(is_group=j in of_groups)
        for j, source in enumerate(cells)
    ]
    return None if all(column.is_plain for column in columns) else columns


def encode(
    X: ArrayLike, columns: Sequence[Column], *, handle_unknown: str = "error"
) -> np.ndarray:
    """Convert a table to numbers: codes of levels, microseconds of dates."""
    cells = cells_of_columns(X)
    if not cells:
        raise ValueError("X must be a table of rows and columns.")
    table = np.empty((len(cells[0]), len(cells)))
    for place, (source, column) in enumerate(zip(cells, columns, strict=True)):
        if column.is_group:
            table[:, place] = _numbers_of_groups(source)
        elif column.kind == PASSED:
            table[:, place] = np.where(source.missing(), np.nan, 0.0)
        elif column.levels is None:
            _check_zone(source, column)
            table[:, place] = source.numbers(column.dtype)
        else:
            table[:, place] = _codes(source, column, handle_unknown)
    return table


def reject_categories(X: ArrayLike) -> None:
    """Raise an error for a data frame with columns of categories."""
    if not is_frame(X):
        return
    for name, dtype in nw.from_native(X, eager_only=True).schema.items():
        if isinstance(dtype, nw.Categorical | nw.Enum):
            raise ValueError(
                f"X has categories in column {name!r}. Encode or drop the column, or "
                "use TableImputer, which models categories."
            )


def _named(categorical_features: object) -> bool:
    """Return whether a parameter names columns."""
    if categorical_features is None or isinstance(categorical_features, str):
        return False
    return len(categorical_features) > 0


def asked_kinds(
    X: ArrayLike, width: int, categorical_features: object
) -> dict[int, object]:
    """Convert `categorical_features` to a dict of indices to kinds or levels."""
    kinds = categorical_features
    if kinds is None or isinstance(kinds, str):
        return {}
    names = names_of(X)
    if isinstance(kinds, dict):
        items = {place_of(key, names, width): value for key, value in kinds.items()}
        for key, value in items.items():
            items[key] = _checked_kind(value, column_label(X, key))
        return items
    kinds = list(kinds)
    if not all(isinstance(key, Hashable) for key in kinds):
        raise ValueError(
            "categorical_features must be a mask, indices or names of columns, of one "
            f"dimension. It contains {kinds[0]!r}."
        )
    if kinds and all(isinstance(key, bool | np.bool_) for key in kinds):
        if len(kinds) != width:
            raise ValueError(
                f"categorical_features is a mask of {len(kinds)} columns, and X has "
                f"{width}."
            )
        kinds = np.flatnonzero(kinds).tolist()
    return {place_of(key, names, width): "nominal" for key in kinds}


def _checked_kind(value: object, label: str) -> str | tuple:
    """Check the value of a column in a dict: a kind, or levels in their order."""
    if isinstance(value, str):
        if value in KINDS:
            return value
    elif isinstance(value, Iterable):
        levels = tuple(map(item, value))
        can_differ = all(isinstance(level, Hashable) for level in levels)
        if levels and can_differ and len(set(levels)) == len(levels):
            return levels
    raise ValueError(
        f"categorical_features has {value!r} for column {label}: it must be one of "
        f"{', '.join(map(repr, KINDS))}, or a list of different levels in their order."
    )


class GroupColumns(NamedTuple):
    """The columns, by name or index, that the parameter `groups` names."""

    columns: list  # str or int: that names groups, or none
    # those whose slopes are random, and those that are constant within groups
    slopes: list
    constant: list


def column_of_groups(groups: object) -> GroupColumns:
    """Read the parameter `groups` of `GaussianImputer`."""
    if not isinstance(groups, dict):
        return GroupColumns([] if groups is None else [groups], [], [])
    if len(groups) != 1:
        raise ValueError(
            f"groups must have one column, got {groups!r}. Three levels, such as "
            "pupils in classes in schools, are not there: choose one of them."
        )
    [(column, others)] = groups.items()
    others = others if isinstance(others, dict) else {"slopes": others}
    lists = [others.get(name, []) for name in ("slopes", "constant")]
    if not {*others} <= {"slopes", "constant"} or not all(map(_is_list, lists)):
        raise ValueError(
            f"groups[{column!r}] must be a list of columns whose slopes differ between "
            "groups, or a dict with the keys 'slopes' and 'constant' (columns that are "
            f"constant within groups) and lists of columns, got {others!r}."
        )
    return GroupColumns([column], *map(list, lists))


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def place_of(
    key: object, names: list, width: int, parameter: str = "categorical_features"
) -> int:
    """Find the column of a name; a number is an index only if columns have no names."""
    if key in names:
        return names.index(key)
    is_index = isinstance(key, numbers.Integral) and not isinstance(key, bool)
    if not names and is_index and -width <= key < width:
        return int(key) % width
    possible = ", ".join(map(repr, names)) if names else f"0 to {width - 1}"
    raise ValueError(f"{parameter} has the key {key!r}, no column of X: {possible}.")


def _column(source: Cells, choice: object, by_dtype: bool) -> Column:
    """Determine what a column is, from its data type or by the choice of the user."""
    dtype, numeric = source.dtype, choice == "numeric"
    if choice == PASSED:
        return Column(PASSED, dtype=dtype)
    if dtype in TIMES and (choice is None or numeric):
        zone = source.series.dtype.time_zone if dtype == "datetime" else None
        return Column("numeric", dtype=dtype, zone=zone, unit=source.unit())
    is_count = dtype == "integer"
    if choice is None and by_dtype:
        choice, is_count = _kind_by_dtype(source), dtype in ("integer", "number")
    number_type = dtype if dtype in ("integer", "boolean") else None
    if choice is None or numeric:
        if dtype in ("level", "mixed", "unreadable"):
            source.numbers("number")
        return Column("numeric", dtype=number_type or "number")
    if dtype == "mixed":
        _reject_mixed(source)
    kind = choice if isinstance(choice, str) else "ordinal"
    levels = _levels(source, choice)
    return Column(
        kind, levels, number_type or "level", is_count=is_count and choice == "ordinal"
    )


def _kind_by_dtype(source: Cells) -> str | None:
    """Choose the kind of a column that nobody named; None if it has numbers."""
    dtype, series = source.dtype, source.series
    if dtype == "boolean":
        return "ordinal"
    if dtype in ("level", "mixed"):
        is_ordered = series is not None and series.dtype == nw.Enum
        return "ordinal" if is_ordered else "nominal"
    if series is not None and series.dtype.is_numeric():
        whole, least = source.whole_numbers(), 1 if dtype == "integer" else 2
        n_values = len(np.unique(whole))
        is_code = n_values >= least and are_codes(n_values, len(whole))
        return "ordinal" if is_code else None
    return None


def _levels(source: Cells, choice: str | tuple) -> tuple:
    """Find the observed levels of a column, in their order."""
    observed = source.levels()
    if isinstance(choice, tuple):
        unknown = observed - set(choice)
        if unknown:
            raise ValueError(
                f"X has {source.first(lambda value: value in unknown)}, which is not "
                "among the levels that categorical_features lists. Add it."
            )
        return in_order(observed, choice)
    if source.dtype == "boolean":
        return (False, True)
    if source.series is not None and source.series.dtype == nw.Enum:
        return in_order(observed, map(item, source.series.dtype.categories))
    return in_order(observed)


def in_order(levels: Iterable, order: Iterable | None = None) -> tuple:
    """Sort levels in a given order, or as text if they cannot be compared."""
    if order is not None:
        different = set(levels)
        return tuple(level for level in order if level in different)
    try:
        return tuple(sorted(levels))
    except TypeError:
        # by type first, so that the order does not depend on that of the rows
        return tuple(sorted(levels, key=lambda level: (str(type(level)), str(level))))


def _check_zone(source: Cells, column: Column) -> None:
    """Raise an error for dates of which only those of `fit` have a time zone."""
    if source.dtype != "datetime" or source.series.is_null().all():
        return
    if column.dtype not in ("date", "datetime"):
        return
    zone_at_fit, zone_now = (
        column.zone is not None,
        source.series.dtype.time_zone is not None,
    )
    if zone_at_fit != zone_now:
        said = {False: "no time zone", True: "a time zone"}
        raise TypeError(
            f"Column {source.label} has {said[zone_at_fit]} in the table of fit, but "
            f"{said[zone_now]} now. Convert it to the data type of fit."
        )


def _numbers_of_groups(source: Cells) -> np.ndarray:
    """Give groups numbers, in the order of their first rows."""
    source.levels()  # raises an error for cells that are none
    missing = np.flatnonzero(source.missing())
    if len(missing):
        raise ValueError(
            f"Column {source.label}, which groups names, is missing in row "
            f"{missing[0]}. Drop such rows, or give each a group of its own."
        )
    return np.array(numbered(map(item, source.values)), dtype=float)


def _codes(source: Cells, column: Column, handle_unknown: str) -> np.ndarray:
    """Convert the levels of a column to their codes (n_samples,)."""
    if column.is_count:
        return column.codes(source.numbers("number"))
    codes = source.codes(column.levels)
    if handle_unknown == "error":
        for row in np.flatnonzero(np.isnan(codes)):
            level = source.values[row]
            if not is_missing(level):
                raise ValueError(
                    f"X has the level {item(level)!r} in column {source.label}, row "
                    f"{row}, which fit has not observed. Correct the cell, mark it as "
                    'missing, or set handle_unknown="missing".'
                )
    return codes


def _reject_mixed(source: Cells) -> None:
    """Raise an error for a column of text and other objects."""
    texts = [is_text(value) for value in source.values if not is_missing(value)]
    # the example is of the rarer kind, which is probably the error
    is_rare = 2 * sum(texts) <= len(texts)
    raise ValueError(
        f"Column {source.label} has text and other objects: "
        f"{source.first(lambda value: is_text(value) == is_rare)}. If it has numbers, "
        'and text for missing ones, use pandas.to_numeric(column, errors="coerce"); '
        "if the cells are names of categories, convert the others to text and leave "
        "missing values empty (None or NaN)."
    )


# ----------------------------------------
# Dates and durations from the microseconds that stand for them in a table.

_START = datetime(1970, 1, 1)
_TICK = timedelta(microseconds=1)
_DAY = UNITS[0]
# of the first and the last moment that datetime represents
_ENDS = [(end - _START) // _TICK for end in (datetime.min, datetime.max)]


def time_of(column: Column, microseconds: float) -> date | datetime | timedelta:
    """Convert microseconds to a date, a moment or a duration, in the column's unit."""
    if column.dtype == "duration":
        return timedelta(microseconds=_nearest_multiple(microseconds, column.unit))
    low, high = _ENDS
    if column.zone is not None:  # whose clock may be a day ahead of UTC, or behind
        low, high = low + _DAY, high - _DAY
    # a number of the model may be beyond the last date of Python
    since = round(min(max(microseconds, low), high))
    if column.dtype == "date":
        return _moment(since, _DAY).date()
    if column.zone is None:
        return _moment(since, column.unit)
    moment = _moment(since, 0).replace(tzinfo=UTC)
    zone = _zone(column.zone) if column.unit else None
    return moment if zone is None else _by_clock(moment, zone, column.unit)


def microseconds_of(column: Column, value: object, name: str) -> object:
    """Convert a date, a moment or a duration to microseconds, and nothing else."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        kind = "M8[us]" if isinstance(value, np.datetime64) else "m8[us]"
        value = value.astype(kind).item()
    if is_missing(value) or not isinstance(value, date | timedelta):
        return value
    if column.dtype not in TIMES or (column.dtype == "duration") != isinstance(
        value, timedelta
    ):
        raise TypeError(f"{name} has {value!r}, and the column has {column.dtype}s.")
    if isinstance(value, timedelta):
        return value / _TICK
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if (value.tzinfo is None) != (column.zone is None):
        has = "no time zone" if column.zone is None else f"the zone {column.zone}"
        raise TypeError(f"{name} has {value!r}, and the dates of the column {has}.")
    start = _START if value.tzinfo is None else _START.replace(tzinfo=UTC)
    return (value - start) / _TICK


def in_words(column: Column, microseconds: float) -> str:
    """Format a date or a duration for messages; infinite ones stay numbers."""
    is_finite = np.isfinite(microseconds)
    return str(time_of(column, microseconds) if is_finite else microseconds)


def _by_clock(moment: datetime, zone: tzinfo, unit: int) -> datetime:
    """Round a moment to a unit by the clock of a time zone."""
    there = moment.astimezone(zone)
    since = (there.replace(tzinfo=None) - _START) // _TICK
    rounded = _moment(since, unit).replace(tzinfo=zone, fold=there.fold)
    return rounded.astimezone(UTC)


def _moment(microseconds: int, unit: int) -> datetime:
    last = _ENDS[1] // unit * unit if unit else _ENDS[1]
    return _START + min(_nearest_multiple(microseconds, unit), last) * _TICK


def _nearest_multiple(microseconds: float, unit: int) -> int:
    """Round to a multiple of a unit; 0 means none."""
    whole = round(microseconds)
    return (whole + unit // 2) // unit * unit if unit else whole


@cache
def _zone(name: str) -> tzinfo | None:
    """Find a time zone; None if Python does not know it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    try:  # a fixed distance, such as UTC+02:00
        return datetime.fromisoformat(f"2000-01-01T00{name.removeprefix('UTC')}").tzinfo
    except ValueError:
        return None


# ----------------------------------------
# What a table is: its columns, and what `fit` has learned about them.


class Schema(NamedTuple):
    """What `fit` has learned about the columns of a table."""

    n_columns: int
    # (n_columns,), None if the table has no names, or names that are not text
    names: np.ndarray | None = None
    # list of n_columns Column: None if all columns are numbers
    columns: list[Column] | None = None
    # (2, n_columns), smallest and largest observed cell of each column, NaN if it has
    # none
    ends: np.ndarray | None = None
    # int (n_model_columns,), indices of the columns that the model uses, increasing
    model_columns: np.ndarray = np.arange(0)
    # dict of int to number or category: the columns that were constant where they were
    # observed
    constants: dict = {}  # noqa: RUF012  it is never written to
    values: tuple | None = None  # ValidValues: which values cells of a column may have
    # (n_columns,), standard deviations of the observed cells
    spreads: np.ndarray | None = None
    # the columns of categories that others determine, see `skvnce._imputer.determined`
    determined: tuple = ()
    # Related: the relations of columns, see `skvnce._imputer.related`; None if there
    # are none
    relations: tuple | None = None
    # sequence of int: the columns of which missing cells had limits
    limited: Sequence[int] = ()
    # dict of int to Marginal: the columns of the model that are filled by their
    # marginal distributions
    marginals: dict = {}  # noqa: RUF012  it is never written to
    keeps_empty: bool = False  # whether columns without an observed cell are returned
    # int, float, str, NaN, None or NA: what marks missing cells
    marker: object = np.nan
    # list of n_columns names: those of a data frame, if they are not text, such as
    # integers
    other_names: list | None = None

    @property
    def as_read(self) -> Self:
        """The schema of a table of which no model has chosen columns."""
        return Schema(
            self.n_columns,
            self.names,
            self.columns,
            self.ends,
            other_names=self.other_names,
        )

    def with_exact(self, places: Collection[int], closed: Collection[int] = ()) -> Self:
        """Let columns of levels that are numbers have other numbers, too.

        Filled cells of `closed` columns are levels nevertheless.
        """
        columns = []
        for j, column in enumerate(self.columns or ()):
            is_exact = column.is_count and j in places
            is_open = is_exact and j not in closed
            columns.append(column._replace(is_exact=is_exact, is_open=is_open))
        return self._replace(columns=columns or None)

    def at_levels(
        self, cells: np.ndarray, places: Sequence[int] | None = None
    ) -> np.ndarray:
        """Replace numbers (..., n) of exact columns by the nearest levels, for a model.

        `places` (n,): the columns of the cells; None: all.
        """
        for k, j in enumerate(range(self.n_columns) if places is None else places):
            if self.columns and self.columns[j].is_exact:
                cells = cells.copy()
                codes = np.ceil(cells[..., k] - 0.5)  # the lower one of two
                cells[..., k] = codes.clip(0, len(self.columns[j].levels) - 1)
        return cells

    @property
    def joined(self) -> np.ndarray:
        """Numbers of the columns of the model; those that follow from others share one.

        Their cells are missing together: a missing cell is computed from the others.
        """
        if self.relations is None:
            return np.arange(len(self.model_columns))
        return self.relations.joined(self.model_columns)

    def label(self, column: int) -> str:
        """Format the name or the index of a column for messages."""
        name = repr(self.keys[column]) if self.keys else column
        return f"column {name}"

    def shown(self, column: int, value: float, form: str = "") -> str:
        """Format a number of a column for messages, a date as such."""
        if self.columns and self.columns[column].is_time:
            return in_words(self.columns[column], value)
        return f"{value:{form}}"

    def number_of(self, column: int, value: object, name: str) -> object:
        """Convert a date of a column to its number; others stay as they are."""
        if not self.columns:
            return value
        return microseconds_of(self.columns[column], value, name)

    def labels(self, columns: np.ndarray, most: int | None = None) -> str:
        """List the names or the indices of columns for messages, the first ones."""
        shown = columns[:most]
        more = len(columns) - len(shown)
        return ", ".join(map(self.label, shown)) + (f" and {more} more" if more else "")

    @property
    def keys(self) -> list:
        """The names of the columns of a data frame; none of an array."""
        return self.other_names or [] if self.names is None else list(self.names)

    def index_of(self, key: object, parameter: str) -> int:
        """Find the column of a name, or of an index if the columns have no names."""
        return place_of(key, self.keys, self.n_columns, parameter)

    @property
    def all_names(self) -> np.ndarray:
        """The names of all columns; x0, x1, ... if the table has none."""
        if self.names is not None:
            return self.names
        return np.array([f"x{j}" for j in range(self.n_columns)], dtype=object)

    @property
    def passed(self) -> np.ndarray:
        """Indices of the columns that are passed through."""
        columns = self.columns or ()
        places = [j for j, column in enumerate(columns) if column.kind == PASSED]
        return np.array(places, dtype=int)

    @property
    def group_columns(self) -> list[int]:
        """The column that names the groups of rows, or none."""
        return [j for j, column in enumerate(self.columns or ()) if column.is_group]

    def groups_of(self, X: np.ndarray) -> np.ndarray:
        """Return the groups of rows; without groups each row is one of its own."""
        return next(iter(X[:, self.group_columns].T), np.arange(len(X)))

    @property
    def node_columns(self) -> np.ndarray:
        """Indices of the columns of the model, and then that of groups."""
        return np.array([*self.model_columns, *self.group_columns], dtype=int)

    @property
    def n_categories(self) -> np.ndarray:
        """Number of categories of each column of the model; 0 for numbers."""
        if self.columns is None:
            return np.zeros(len(self.model_columns), dtype=int)
        counts = [len(self.columns[j].levels or ()) for j in self.model_columns]
        return np.array(counts, dtype=int)

    @property
    def is_categorical(self) -> np.ndarray:
        """Which columns of the model have categories; bool."""
        return self.n_categories > 0

    @property
    def constant_cells(self) -> list:
        """The numbers, or the codes, of the columns in `constants`."""
        if not self.columns:
            return list(self.constants.values())
        return [self.columns[j].code(level) for j, level in self.constants.items()]

    @property
    def with_data(self) -> np.ndarray:
        """Indices of the columns of the model and of the constant ones."""
        return np.union1d(self.model_columns, list(self.constants)).astype(int)

    @property
    def returned(self) -> np.ndarray:
        """Indices of the columns that `transform` returns."""
        if self.keeps_empty:
            return np.arange(self.n_columns)
        return np.union1d(self.with_data, self.passed).astype(int)


class Encoded(NamedTuple):
    """A table that `fit` of an estimator has read, for `fit` of another one."""

    table: np.ndarray  # (n, features), as `read_table` has returned it
    schema: Schema


# ----------------------------------------
# The table that `fit` has read, for checks of what it means.

_SHOWN = 5  # findings that a message lists


def ends_of(table: np.ndarray) -> np.ndarray:
    """Find the smallest and the largest cell of each column, NaN if it has none."""
    # fmin and fmax ignore NaN without a warning of empty columns
    ends = [np.fmin.reduce(table, 0), np.fmax.reduce(table, 0)]
    # float64, whose range holds differences of float32
    return np.stack(ends, dtype=np.float64)


class Table(NamedTuple):
    """A table that `fit` has read."""

    # (n_samples, n_features), codes of levels, and numbers; NaN marks missing cells
    cells: np.ndarray
    columns: Sequence[Column]  # list of n_features Column
    names: Sequence[str]  # list of n_features str: as messages show them
    # (2, n_features), the smallest and the largest cell of each column, NaN if it has
    # none
    ends: np.ndarray
    n_observed: np.ndarray  # int (n_features,)
    # (n_samples,) by column: codes of the levels of columns that are passed through,
    # whose `cells` are 0
    passed: Mapping = MappingProxyType({})

    @classmethod
    def of(
        cls, cells: np.ndarray, columns: Sequence[Column] | None, names: Sequence[str]
    ) -> Self:
        """Describe a table; None instead of columns means that all are numbers."""
        columns = columns or [Column("numeric")] * len(names)
        return cls(cells, columns, names, ends_of(cells), (~np.isnan(cells)).sum(0))

    @classmethod
    def of_schema(cls, cells: np.ndarray, schema: Schema) -> Self:
        """Describe a table of which a schema is known."""
        names = [schema.label(j) for j in range(cells.shape[1])]
        return cls.of(cells, schema.columns, names)

    def observed(self, place: int) -> np.ndarray:
        """Return the observed cells of a column (n,), as codes."""
        cells = self.cells[:, place]
        return cells[~np.isnan(cells)]

    def with_levels(self) -> Iterator[tuple[int, tuple]]:
        """Yield the columns of categories, and their levels."""
        for place, column in enumerate(self.columns):
            if column.levels:
                yield place, column.levels


def listed(items: Sequence[str], mark: str = ", ") -> str:
    """List the first items, and the number of others."""
    rest = len(items) - _SHOWN
    return mark.join(items[:_SHOWN]) + (f"{mark}and {rest} more" if rest > 0 else "")


def if_any(items: Sequence[str], sentence: str, mark: str = ", ") -> list[str]:
    """Put items in place of the first {} of a sentence; say nothing without items."""
    return [sentence.replace("{}", listed(items, mark), 1)] if items else []
