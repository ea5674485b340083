"""Limits of single cells, and what else the user states about them.

A table of X's shape, or masks and numbers of some of its columns by name.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import numpy as np

from skvnce._core.warnings import warn_user
from skvnce._tables.cells import is_frame, is_missing
from skvnce._tables.frames import reject_parts
from skvnce._tables.schema import Schema


class CellLimits(NamedTuple):
    """Least and largest values of the missing cells of a table."""

    # (n_samples, n_features), infinite where nothing is known, and in observed cells
    low: np.ndarray
    high: np.ndarray  # (n_samples, n_features)

    @property
    def known(self) -> np.ndarray:
        """Return which cells have a limit; bool, (n_samples, n_features)."""
        return np.isfinite(self.low) | np.isfinite(self.high)

    @property
    def columns(self) -> list[int]:
        """List the columns of which a cell has a limit."""
        return np.flatnonzero(self.known.any(0)).tolist()

    def of(self, rows: np.ndarray, columns: np.ndarray | None = None) -> Self:
        """Select the limits of some rows, and of some columns."""
        some = rows if columns is None else np.ix_(rows, columns)
        return CellLimits(*(part[some] for part in self))

    def rounded(self, integers: np.ndarray) -> Self:
        """Round limits of the columns in `integers`, (n_features,), to integers."""
        low, high = np.ceil(self.low), np.floor(self.high)
        # else no integer is within the limits
        use = integers & (low <= high)
        return CellLimits(np.where(use, low, self.low), np.where(use, high, self.high))

    def clipped(self, cells: np.ndarray) -> np.ndarray:
        """Clip cells (..., n_samples, n_features); the dtype is kept."""
        return np.clip(cells, self.low, self.high).astype(cells.dtype)

    def within(self, low: np.ndarray, high: np.ndarray) -> Self:
        """Return the bounds (n_samples, n) of the first columns, narrowed by limits."""
        own = (end[:, : low.shape[1]] for end in self)
        return CellLimits(np.maximum(low, next(own)), np.minimum(high, next(own)))

    def spare(
        self, cells: np.ndarray, column: int, new: float | np.ndarray
    ) -> np.ndarray:
        """Return new cells of a column, except where cells have limits."""
        return np.where(self.known[:, column], cells[..., column], new)

    def check_bounds(self, schema: Schema, *, is_whole: bool = False) -> None:
        """Raise an error for cells whose limits contradict the bounds of their column.

        With `is_whole`, cells of columns of whole numbers must be able to be
        whole.
        """
        possible = schema.values
        least = np.where(possible.given[0], possible.low, -np.inf)
        most = np.where(possible.given[1], possible.high, np.inf)
        self._check_cells(
            schema,
            (self.high < least) | (self.low > most),
            lambda j: (
                f"are outside of the bounds [{least[j]}, {most[j]}] of the column. "
                "Correct one of them."
            ),
        )
        low, high = np.maximum(self.low, least), np.minimum(self.high, most)
        self._check_cells(
            schema,
            self.known & (np.ceil(low) > np.floor(high)) & possible.integers & is_whole,
            lambda j: (
                "leave no whole number, but the column has whole numbers, by "
                "which cells of data frames are filled. Correct the limits, or pass an "
                "array."
            ),
        )

    def reject(self, reason: str) -> None:
        """Raise an error: something cannot be combined with limits."""
        raise ValueError(reason)

    def _check_cells(self, schema: Schema, wrong: np.ndarray, reason: Callable) -> None:
        """Raise an error for the first cell with wrong limits, if there is one."""
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            ends = [float(end[row, column]) for end in self]
            raise ValueError(
                f"The limits {ends} of {schema.label(column)}, row {row}, "
                f"{reason(column)}"
            )


class NoLimits(NamedTuple):
    """The limits of a table in which no cell has any: false, and without ends."""

    known = np.False_
    columns = ()

    def of(self, rows: np.ndarray, columns: np.ndarray | None = None) -> Self:
        """See `CellLimits.of`."""
        return self

    def rounded(self, integers: np.ndarray) -> Self:
        """See `CellLimits.rounded`."""
        return self

    def clipped(self, cells: np.ndarray) -> np.ndarray:
        """See `CellLimits.clipped`."""
        return cells

    def within(self, low: np.ndarray, high: np.ndarray) -> CellLimits:
        """See `CellLimits.within`."""
        return CellLimits(low, high)

    def spare(
        self, cells: np.ndarray, column: int, new: float | np.ndarray
    ) -> float | np.ndarray:
        """See `CellLimits.spare`."""
        return new

    def check_bounds(self, schema: Schema, *, is_whole: bool = False) -> None:
        """See `CellLimits.check_bounds`."""

    def reject(self, reason: str) -> None:
        """See `CellLimits.reject`."""


Limits = CellLimits | NoLimits
NO_LIMITS = NoLimits()


def check_taken(name: str, *, takes_limits: bool) -> None:
    """Raise an error if an estimator of a class with a name takes no limits."""
    if not takes_limits:
        raise ValueError(
            f"{name} takes no limits of single cells (lower, upper). GaussianImputer, "
            "MixtureImputer and CopulaGraphLearner do."
        )


def limits_of(
    schema: Schema, lower: object, upper: object, X: object, checked: np.ndarray
) -> Limits:
    """Check limits of single cells, and convert them; `NO_LIMITS` if no cell has any.

    `lower`, `upper`: of the shape of X, or dicts of columns; `checked`: X as
    `incomplete_array` has returned it.
    """
    missing, sides = np.isnan(checked), []
    pairs = ((lower, "lower", -np.inf), (upper, "upper", np.inf))
    for given, name, nothing in pairs:
        ends = np.full(checked.shape, nothing)
        columns = ()
        if given is not None:
            columns = columns_given(schema, given, X, len(checked), name)
        for place, cells in columns:
            ends[:, place] = _numbers(schema, place, cells, name, nothing)
        # an observed cell is known, whatever its limits say
        sides.append(np.where(missing, ends, nothing))
    limits = CellLimits(*sides)
    for side, name, wrong in ((0, "lower", np.inf), (1, "upper", -np.inf)):
        if (limits[side] == wrong).any():
            row, column = np.argwhere(limits[side] == wrong)[0]
            raise ValueError(
                f"{name} is {wrong} in {schema.label(column)}, row {row}, so "
                "that no value is possible. Use NaN for cells without a limit."
            )
    most = np.finfo(checked.dtype).max
    if (limits.low > most).any() or (limits.high < -most).any():
        raise ValueError(
            f"lower or upper leaves no value of the data type of X, {checked.dtype}. "
            "Correct the limit, or convert X to float64."
        )
    if (limits.low > limits.high).any():
        row, column = np.argwhere(limits.low > limits.high)[0]
        raise ValueError(
            "lower must not be above upper, got "
            f"{schema.shown(column, limits.low[row, column])} and "
            f"{schema.shown(column, limits.high[row, column])} in "
            f"{schema.label(column)}, row {row}."
        )
    return limits if limits.known.any() else NO_LIMITS


def limited_columns(
    schema: Schema, limits: Limits, *, is_whole: bool = False
) -> list[int]:
    """List the columns in which cells have limits, which agree with their bounds."""
    limits.check_bounds(schema, is_whole=is_whole)
    return list(limits.columns)


def warn_of_absent_limits(schema: Schema, columns: list, checked: np.ndarray) -> None:
    """Warn if missing cells of columns that had limits at `fit` have none now."""
    missing = np.isnan(checked).any(0) if columns else ()
    names = [schema.label(place) for place in columns if missing[place]]
    if names:
        warn_user(
            f"fit was given limits of missing cells of {', '.join(names)}, and now "
            "they are filled without limits. Pass lower and upper, with NaN for cells "
            "without a limit."
        )


def check_distance(schema: Schema, limits: Limits, X: object) -> None:
    """Raise an error for limits that are far from the observed cells of a column."""
    for place in limited_columns(schema, limits):
        seen = X[~np.isnan(X[:, place]), place].astype(np.float64)
        if not len(seen):
            continue
        low, high = limits.low[:, place], limits.high[:, place]
        # a limit within the tail of a normal distribution is no error
        margin = 3 * seen.std()
        for end, far in (
            (high.min(), seen.min() - margin > high.min()),
            (low.max(), seen.max() + margin < low.max()),
        ):
            if far:
                ends = end, seen.min(), seen.max()
                limit, least, most = (schema.shown(place, one, "g") for one in ends)
                raise ValueError(
                    f"The limit {limit} of {schema.label(place)} is far from the "
                    f"observed cells, {least} to {most}, and no normal distribution "
                    "fits both. Correct the limit."
                )


def _numbers(
    schema: Schema, place: int, cells: np.ndarray, name: str, nothing: float
) -> np.ndarray:
    """Convert the limits of a column to floats (n_samples,)."""
    # numpy makes integers of dates in nanoseconds
    listed = list(cells) if cells.dtype.kind in "mM" else cells.tolist()
    values = [nothing if is_missing(one) else one for one in listed]
    columns = schema.columns
    if columns and not columns[place].is_plain:
        # a table in the shape of X has cells of these columns, too
        if all(one == nothing for one in values):
            return values
        if columns[place].is_time:
            return _times(schema, place, values, name, nothing)
        raise TypeError(
            f"{name} has limits of {schema.label(place)}, which has "
            "categories, but limits are for numbers and dates. Whole numbers of a data "
            "frame that have few values are categories, of integer and of float data "
            "types, unless categorical_features={column: 'numeric'}."
        )
    try:
        if any(isinstance(one, str | bytes | bool | np.bool_) for one in values):
            raise TypeError  # numpy would convert them
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must have numbers in {schema.label(place)}."
        ) from error


def _times(
    schema: Schema, place: int, values: list, name: str, nothing: float
) -> np.ndarray:
    """Convert dates or durations to microseconds (n_samples,)."""
    numbers = [schema.number_of(place, one, name) for one in values]
    for number, value in zip(numbers, values, strict=True):
        if number is value and value != nothing:  # no date
            raise TypeError(
                f"{name} must have {schema.columns[place].dtype}s in "
                f"{schema.label(place)}, got {value!r}."
            )
    return np.array(numbers, dtype=np.float64)


def columns_given(
    schema: Schema, given: object, X: object, n_samples: int, name: str
) -> Iterator:
    """Yield the columns that a parameter gives, and their values (n_samples,).

    A data frame and a dict may leave out columns; a number in a dict is that of all
    rows. The index of X must be that of a pandas object in `given`.
    """
    reject_parts(given, name)
    if not isinstance(given, dict) and not is_frame(given):
        table, wanted = np.asarray(given), (n_samples, schema.n_columns)
        if table.shape != wanted:
            raise ValueError(
                f"{name} must have the shape of X, {wanted}, or be a dict by column, "
                f"got shape {table.shape}."
            )
        yield from enumerate(table.T)
        return
    names = given if isinstance(given, dict) else given.columns
    _check_index(given, X, name)
    for key in names:
        place = schema.index_of(key, name)
        _check_index(given[key], X, name)
        cells = np.asarray(given[key])
        if cells.shape == ():
            cells = np.broadcast_to(cells, n_samples)
        if cells.shape != (n_samples,):
            raise ValueError(
                f"{name}[{key!r}] must have a value for each of the {n_samples} rows, "
                f"got shape {cells.shape}."
            )
        yield place, cells


def _check_index(given: object, X: object, name: str) -> None:
    """Raise an error if rows of pandas objects would be matched wrongly."""
    one, other = (getattr(part, "index", None) for part in (X, given))
    if hasattr(one, "equals") and hasattr(other, "equals") and not one.equals(other):
        raise ValueError(
            f"{name} has another index than X. Reindex it by {name}.reindex(X.index)."
        )
