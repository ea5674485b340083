"""The valid values of each column: a range, repeated values, integers.

By default imputed cells are restricted to valid values.  The range of a column is
given by the user, or else by a rule:

- In columns with repeated values it is the observed range, and draws are observed
  values.
- In other columns the observed range is widened at each end by three times the mean
  excess of the outermost values (the sqrt(n) most extreme of n) over the next one.  A
  new value lies beyond this range with probability ``exp(-3) / n`` if the tail is
  exponential, and with lower probability if the tail is lighter.  If zero is not in the
  observed range, the range is not widened across zero.

Duplicate rows count once, so that a row of weight two is equivalent to two equal rows.
"""

from math import ceil, sqrt
from numbers import Real
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from skvnce.tables.column_kinds import PASSED
from skvnce.tables.groups import by_group, columns_of_groups
from skvnce.tables.schema import Schema
from skvnce.tables.statistics import distinct_rows

EXTENDED = 3.0  # mean excesses by which the range of a continuous column is widened
REPEATED = 0.5  # share of cells with equal values, from which a column has repeats
OBSERVED = "observed"


class ValidValues(NamedTuple):
    """The valid values of each column.

    Attributes
    ----------
    low, high : ndarray of shape (n_features,)
        Smallest and largest valid value.  For a column without an observed cell,
        both are 0, or the nearest value within the user's bounds.
    given : ndarray of bool, of shape (2, n_features)
        Which of `low` and `high` the user passed; the rule gives the others.
    values : dict of int to ndarray
        Sorted observed values of the columns with repeated values.
    integers : ndarray of bool, of shape (n_features,)
        Columns whose observed cells are all integers.
    """

    low: np.ndarray
    high: np.ndarray
    given: np.ndarray
    values: dict
    integers: np.ndarray

    @property
    def ranges(self) -> np.ndarray:
        """The attribute `feature_ranges_`, of shape (2, n_features)."""
        return np.stack([self.low, self.high])

    def reaching(self, limits: tuple, columns: np.ndarray) -> Self:
        """Widen ranges to all that missing cells within their limits may be.

        Such columns have no repeated values: what is not observed may be between them.

        Parameters
        ----------
        limits : CellLimits
            Of the columns.
        columns : ndarray of int, of shape (n_columns,)

        Returns
        -------
        ValidValues
        """
        low, high, values = self.low.copy(), self.high.copy(), dict(self.values)
        for place, column in enumerate(columns):
            known = limits.known[:, place]
            if not known.any():
                continue
            values.pop(column, None)
            ends = limits.low[known, place].min(), limits.high[known, place].max()
            finite = [end for end in (*ends, low[column]) if np.isfinite(end)]
            if min(finite) >= 0:  # as by the rule of this module
                ends = max(ends[0], 0.0), ends[1]
            if not self.given[0, column]:
                low[column] = min(low[column], ends[0])
            if not self.given[1, column]:
                high[column] = max(high[column], ends[1])
        return self._replace(low=low, high=high, values=values)

    def extended(
        self, schema: Schema, X: np.ndarray, before: np.ndarray, ends: np.ndarray
    ) -> Self:
        """Extend ranges by as much as the observed ranges grow, and repeated values.

        Parameters
        ----------
        schema : Schema
            For errors.
        X : ndarray of shape (n_samples, n_features)
            New rows.
        before, ends : ndarray of shape (2, n_features)
            Smallest and largest observed cells before, and with the new rows.

        Returns
        -------
        ValidValues

        Raises
        ------
        ValueError
            If new cells are outside the user's bounds.
        """
        free = ~self.given
        _check_inside(schema, X, np.where(free, [[-np.inf], [np.inf]], self.ranges))
        # NaN in columns that had no observed cell
        low, high = np.where(
            free, self.ranges + np.nan_to_num(ends - before), self.ranges
        )
        low = np.where(free[0] & (ends[0] >= 0), np.maximum(low, 0.0), low)
        high = np.where(free[1] & (ends[1] <= 0), np.minimum(high, 0.0), high)
        values = {
            j: np.union1d(known, X[~np.isnan(X[:, j]), j].astype(np.float64))
            for j, known in self.values.items()
        }
        are_integers = np.all((X == np.round(X)) | np.isnan(X), 0)
        return ValidValues(low, high, self.given, values, self.integers & are_integers)

    def clipped(self, cells: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Clip cells (..., n_columns) of some columns to their ranges."""
        return np.clip(cells, self.low[columns], self.high[columns])

    def converted(
        self, cells: np.ndarray, columns: np.ndarray, dtype: DTypeLike
    ) -> np.ndarray:
        """Convert cells (..., n_columns) to a dtype in which they are within ranges."""
        return np.clip(cells, *within(self.ranges[:, columns], dtype)).astype(dtype)

    def whole(
        self, cells: np.ndarray, columns: np.ndarray, wanted: np.ndarray
    ) -> np.ndarray:
        """Round the wanted cells (..., n_columns) of columns of whole numbers.

        Those within the range of their column stay there; equations move others.
        """
        low, high = self.low[columns], self.high[columns]
        inside = (low <= cells) & (cells <= high)
        rounded = np.round(cells)
        # rounding may lead beyond an end that is not whole
        rounded = np.where(
            inside, np.clip(rounded, np.ceil(low), np.floor(high)), rounded
        )
        can = self.integers[columns] & (np.ceil(low) <= np.floor(high))
        return np.where(wanted & can, rounded, cells).astype(cells.dtype)

    def rounded(self, cells: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Round cells (..., n_columns) of some columns to valid values."""
        found = self.clipped(cells, columns)
        for place, column in enumerate(columns):
            if column in self.values:
                found[..., place] = nearest(self.values[column], found[..., place])
            elif self.integers[column]:
                low, high = np.ceil(self.low[column]), np.floor(self.high[column])
                found[..., place] = np.clip(found[..., place].round(), low, high)
        return found


def within(ranges: np.ndarray, dtype: DTypeLike) -> tuple[np.ndarray, np.ndarray]:
    """Round ranges (2, n) inwards to finite numbers of a dtype."""
    most = np.finfo(dtype).max
    low, high = np.clip(ranges, -most, most).astype(dtype)
    # conversion may have rounded an end outwards
    low = np.where(low < ranges[0], np.nextafter(low, most), low)
    high = np.where(high > ranges[1], np.nextafter(high, -most), high)
    # a range narrower than the spacing of the dtype has one number left
    return low, np.maximum(low, high)


def nearest(values: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Find the nearest of some increasing values to each cell; shape of the cells."""
    # the sum of two values could overflow
    halves = values[:-1] + np.diff(values) / 2
    return values[np.searchsorted(halves, cells)]


def valid_values(
    schema: Schema,
    X: np.ndarray,
    min_value: object = None,
    max_value: object = None,
    whole: tuple | None = None,
) -> ValidValues:
    """Determine the valid values of each column.

    Parameters
    ----------
    schema : Schema
        Its names are in errors.
    X : ndarray of shape (n_samples, n_features)
        NaN marks missing cells.
    min_value, max_value : float, array-like of shape (n_features,), dict, Series, \
            "observed" or None, default=None
        Bounds of all columns, of each column, or of the columns that a dict or a Series
        names (by column name, or by index).  Each is a number, ``"observed"`` or None,
        or of a column of dates a date.
        ``"observed"`` is the smallest or the largest observed value, None is the rule
        of this module, and ``-inf`` and ``inf`` mean no bound.
    whole : Summary, default=None
        Of all rows, if X is a sample of them.  Then ranges are the observed ones of all
        rows, widened by the excess in the sample, and repeated values are those of the
        sample and the ends of the range.

    Returns
    -------
    ValidValues

    Raises
    ------
    ValueError
        If bounds have a wrong shape, are NaN, or refer to unknown columns, if observed
        cells are outside the bounds, or if a lower bound is not below the upper bound.
    TypeError
        If bounds are not numbers.
    """
    d = X.shape[1]
    asked = [
        _as_list(schema, value, name, d)
        for value, name in ((min_value, "min_value"), (max_value, "max_value"))
    ]
    for place, column in enumerate(schema.columns or ()):
        # bounds are for numbers
        if column.levels is not None or column.kind == PASSED:
            asked[0][place] = asked[1][place] = None
    given = np.array([[value is not None for value in side] for side in asked])
    ranges, values, integers = np.zeros((2, d)), {}, np.zeros(d, dtype=bool)
    # with a single column, equal rows are repeated values and not duplicates
    table = X[distinct_rows(X)[0]] if d > 1 else X
    once = _once_a_group(schema, X)
    for j, column in enumerate(table.T.astype(np.float64)):
        column = once.get(j, column)
        seen = np.sort(column[~np.isnan(column)])
        observed = (seen[0], seen[-1]) if len(seen) else (0.0, 0.0)
        if len(seen):
            integers[j] = (seen == np.round(seen)).all()
            if whole is not None:
                observed, integers[j] = tuple(whole.ends[:, j]), whole.integers[j]
            if repeats(seen):
                # of a table in parts, a sample of the rows may lack the ends
                values[j] = np.unique(np.append(seen, observed))
        ruled = (
            observed
            if j in values or len(seen) < 2
            else extended_values(seen, *observed)
        )
        for side, ends in enumerate(asked):
            end = observed[side] if isinstance(ends[j], str) else ends[j]
            ranges[side, j] = ruled[side] if end is None else end
        if not len(seen):
            ranges[:, j] = _of_empty(schema, j, *(ends[j] for ends in asked))
    if schema.group is not None:  # other tables have other numbers of groups
        ranges[:, schema.group] = -np.inf, np.inf
        values.pop(schema.group, None)
    for column in np.flatnonzero(given.all(0)):
        _check_order(schema, column, *ranges[:, column])
    _check_inside(schema, X if whole is None else whole.ends, ranges, whole is None)
    most = np.finfo(X.dtype).max
    # widened ends may exceed the largest number of the dtype
    ranges = np.where(given, ranges, np.clip(ranges, -most, most))
    return ValidValues(*ranges, given, values, integers)


def _once_a_group(schema: Schema, X: np.ndarray) -> dict[int, np.ndarray]:
    """Return one cell of each group for columns that are constant within them."""
    if schema.group is None:
        return {}
    numbers = X[:, schema.group]
    found, cells = columns_of_groups(X, numbers), by_group(np.fmax, X, numbers)
    return {j: cells[:, j] for j in found}


def repeats(values: np.ndarray) -> bool:
    """Return whether at least half of some values are equal to another one."""
    unique, counts = np.unique(values, return_counts=True)
    shared = counts[counts > 1].sum() >= REPEATED * len(values)
    return bool(shared and len(unique) > 1)


def extended_values(values: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Widen a range by the rule of this module, from sorted values; (low, high)."""
    with np.errstate(over="ignore"):
        left = low - EXTENDED * mean_excess(-values[::-1])
        right = high + EXTENDED * mean_excess(values)
    if low >= 0:
        left = max(left, 0.0)
    if high <= 0:
        right = min(right, 0.0)
    return left, right


def mean_excess(values: np.ndarray) -> float:
    """Compute the mean excess of the sqrt(n) largest of n sorted values."""
    # the next value, over which the excess is computed, must exist
    count = min(ceil(sqrt(len(values))), len(values) - 1)
    top = values[-count - 1 :]
    return np.mean(top[1:] - top[0])


def _of_empty(schema: Schema, column: int, low: float, high: float) -> np.ndarray:
    """Choose the range of a column without an observed cell, around 0."""
    ends = [
        default if end is None or isinstance(end, str) else end
        for end, default in ((low, -np.inf), (high, np.inf))
    ]
    _check_order(schema, column, *ends)
    return np.clip(0.0, *ends)


def _as_list(schema: Schema, value: object, name: str, d: int) -> list:
    """Convert the bounds of one side to a list with an item for each column."""
    value = _scalar(value)
    if value is None or isinstance(value, str | Real):
        return [_checked_bound(value, name)] * d
    if hasattr(value, "to_dict") and getattr(value, "ndim", None) == 1:
        value = value.to_dict()  # a pandas Series
    if isinstance(value, dict):
        found = [None] * d
        for key, bound in value.items():
            place = schema.index_of(key, name)
            bound = schema.number_of(place, bound, f"{name}[{key!r}]")
            found[place] = _checked_bound(bound, name, key)
        return found
    try:
        listed = list(value)
    except TypeError as error:
        raise TypeError(
            f"{name} must be a number, {d} numbers, a dict by column, {OBSERVED!r} or "
            f"None, got {value!r}."
        ) from error
    if len(listed) != d:
        raise ValueError(
            f"{name} must be a number or {d} numbers, one a column of X, got "
            f"{len(listed)}."
        )
    listed = [schema.number_of(j, bound, name) for j, bound in enumerate(listed)]
    return [_checked_bound(bound, name) for bound in listed]


def _scalar(value: object) -> object:
    """Get the item of a zero-dimensional array."""
    return value.item() if getattr(value, "shape", None) == () else value


def _checked_bound(value: object, name: str, key: object = None) -> float | str | None:
    name = name if key is None else f"{name}[{key!r}]"
    value = _scalar(value)
    if value is None:
        return None
    if isinstance(value, str):
        if value != OBSERVED:
            raise ValueError(
                f"{name} must be a number, {OBSERVED!r} or None, got {value!r}."
            )
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(
            f"{name} must be a number, {OBSERVED!r} or None, got {value!r}."
        )
    try:
        value = float(value)
    except OverflowError as error:
        raise ValueError(f"{name} leaves the range of float64; use inf.") from error
    if np.isnan(value):
        raise ValueError(f"{name} must not be NaN; use None for the default bound.")
    return value


def _check_order(schema: Schema, column: int, low: float, high: float) -> None:
    if low > high:
        raise ValueError(
            f"min_value must be below max_value, got {schema.shown(column, low)} and "
            f"{schema.shown(column, high)} for {schema.label(column)}."
        )


def _check_inside(
    schema: Schema, X: np.ndarray, ranges: np.ndarray, has_rows: bool = True
) -> None:
    """Raise an error if observed cells are outside the range of their column.

    Without rows, X has the smallest and the largest cells.
    """
    with np.errstate(over="ignore"):
        low, high = ranges.astype(X.dtype)  # e.g. 0.1 is larger in single precision
    outside = (X < low) | (X > high)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        side = int(X[row, column] > high[column])
        name, beyond = (("min_value", "below"), ("max_value", "above"))[side]
        where = f", row {row}" if has_rows else ""
        raise ValueError(
            f"X has {schema.shown(column, X[row, column])} in {schema.label(column)}"
            f"{where}, {beyond} its {name} "
            f"{schema.shown(column, ranges[side, column])}. Correct {name}, or mark "
            "the cell as missing."
        )
