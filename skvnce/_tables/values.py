"""The valid values of each column: a range, codes, and the grid of repeated values.

Cells follow the model, not the observed range.  They are restricted by what the user
passes, or else by the laws that a column shows:

- Columns of non-negative, or of non-positive, numbers remain so.
- A column ends at its largest or smallest value where many cells have that value, such
  as percentages at 0 and 100.
- A column of few values that repeat has codes, such as grades: its cells are observed
  values.  Bounds that the user passes are obeyed nevertheless, except for two values.
- Draws of other columns of repeated values are on their grid, such as whole numbers or
  halves, also beyond the observed cells.

Duplicate rows count once, so that a row of weight two is equivalent to two equal rows.
"""

from numbers import Real
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from skvnce._core.numbers import MOST_CODES, are_codes, grid_of, masses_at_ends, on_grid
from skvnce._tables.column_kinds import PASSED, by_group, columns_of_groups
from skvnce._tables.schema import Schema

# ----------------------------------------
# Statistics of tables: moments, smallest and largest cells, distinct rows.


def column_moments(
    nodes: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute weighted means and standard deviations of the observed cells."""
    seen = ~np.isnan(nodes) * weights[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # the check of the scale follows
        mean = _means(nodes, seen)
        return mean, np.sqrt(_means((nodes - mean) ** 2, seen))


def column_means(nodes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute weighted means of the observed cells."""
    return _means(nodes, ~np.isnan(nodes) * weights[:, None])


def _means(values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return np.nansum(values * seen, 0) / seen.sum(0)


def fair_scores(errors: np.ndarray) -> np.ndarray:
    """Compute the fair score of Ferro (2014) from draws minus the truth (m, ...).

    With m draws x_k of a cell of truth y it is

        sum_k |x_k - y| / m - sum_kl |x_k - x_l| / (2 m (m - 1)),

    whose expectation does not depend on m.
    """
    m, errors = len(errors), np.sort(errors, axis=0)
    # the double sum is 2 sum_k (2k - m - 1) x_(k) over the sorted draws
    weights = (2 * np.arange(1, m + 1) - m - 1) / (m * (m - 1))
    return np.abs(errors).mean(0) - np.tensordot(weights, errors, 1)


def constant_columns(nodes: np.ndarray) -> np.ndarray:
    """Return which columns have observed cells that are equal, up to rounding."""
    # unlike nanmin and nanmax, these do not warn of columns without a cell
    low, high = np.fmin.reduce(nodes, 0), np.fmax.reduce(nodes, 0)
    with np.errstate(over="ignore"):  # an infinite range is none of a constant
        return high - low <= 1e-13 * np.maximum(abs(low), abs(high))


def distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct rows of a table; NaN equals NaN, and -0.0 equals 0.0.

    Returns the indices of rows that are all distinct, and for each row the place of
    its equal among them.
    """
    # bytes are compared, and NaN and zero have several bit patterns
    clean = np.ascontiguousarray(np.where(np.isnan(rows), np.nan, rows + 0.0))
    width = clean.itemsize * clean.shape[1]
    keys = clean.view(np.dtype((np.void, width))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group


def into_dtype(cells: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """Convert floats to a dtype, and clip values beyond its range."""
    most = np.finfo(dtype).max
    return np.clip(np.asarray(cells), -most, most).astype(dtype)


def half_sample_mode(draws: np.ndarray) -> np.ndarray:
    """Estimate the mode over draws (n_draws, ...) (Bickel and Fruehwirth 2006)."""
    sorted_draws = np.sort(draws, 0)
    while len(sorted_draws) > 2:
        half = (len(sorted_draws) + 1) // 2
        widths = sorted_draws[half - 1 :] - sorted_draws[: len(sorted_draws) - half + 1]
        first = widths.argmin(0)
        places = first[None] + np.arange(half).reshape(-1, *[1] * first.ndim)
        sorted_draws = np.take_along_axis(sorted_draws, places, 0)
    return sorted_draws.mean(0)


def ends_of(table: np.ndarray) -> np.ndarray:
    """Find the smallest and the largest cell of each column, NaN if it has none."""
    return np.stack(
        [np.fmin.reduce(table, 0), np.fmax.reduce(table, 0)], dtype=np.float64
    )


def observed_cells(column: np.ndarray) -> np.ndarray:
    """Drop the missing cells of a column."""
    return column[~np.isnan(column)]


def lower_median(column: np.ndarray) -> float:
    """Find the median of the observed cells, or the lower one of two."""
    seen = np.sort(column[~np.isnan(column)])
    # the mean of two would be a value that no cell has
    return seen[(len(seen) - 1) // 2]


_SAME = 1e-5  # of a step, within which cells are an observed value
REPEATED = 0.5  # share of cells with equal values, from which a column has repeats
OBSERVED = "observed"


class ValidValues(NamedTuple):
    """The valid values of each column."""

    # (n_features,), smallest and largest valid value. For a column without an observed
    # cell, both are 0, or the nearest value within the user's bounds
    low: np.ndarray
    high: np.ndarray  # (n_features,)
    # bool (2, n_features), which of `low` and `high` the user passed; the rule gives
    # the others
    given: np.ndarray
    # dict of int to ndarray: sorted observed values of the columns with repeated values
    values: dict
    # bool (n_features,), columns whose observed cells are all integers
    integers: np.ndarray
    # bool (n_features,), columns with repeated values whose cells are observed values
    codes: np.ndarray
    # (n_features,), steps between the values of other columns with repeated values; 0
    # without any
    grid: np.ndarray
    origin: np.ndarray  # (n_features,), a place of each grid; 0 without any

    @property
    def ranges(self) -> np.ndarray:
        """The attribute `feature_ranges_`, of shape (2, n_features)."""
        return np.stack([self.low, self.high])

    def reaching(self, limits: tuple, columns: np.ndarray) -> Self:
        """Widen ranges to all that missing cells within their limits may be.

        Such columns have no repeated values: what is not observed may be
        between them.
        """
        low, high, values = self.low.copy(), self.high.copy(), dict(self.values)
        codes, grid = self.codes.copy(), self.grid.copy()
        for place in limits.columns:
            column, known = columns[place], limits.known[:, place]
            values.pop(column, None)
            codes[column], grid[column] = False, 0.0
            ends = limits.low[known, place].min(), limits.high[known, place].max()
            finite = [end for end in (*ends, low[column]) if np.isfinite(end)]
            # as by the rule of this module
            if np.isfinite(low[column]) and min(finite) >= 0:
                ends = max(ends[0], 0.0), ends[1]
            if not self.given[0, column]:
                low[column] = min(low[column], ends[0])
            if not self.given[1, column]:
                high[column] = max(high[column], ends[1])
        given = {"values": values, "codes": codes, "grid": grid}
        return self._replace(low=low, high=high, **given)

    def extended(
        self, schema: Schema, X: np.ndarray, before: np.ndarray, ends: np.ndarray
    ) -> Self:
        """Extend ranges by as much as the observed ranges grow, and repeated values.

        `X`: new rows; `before`, `ends` (2, n_features): smallest and largest
        observed cells before, and with the new rows. Raises `ValueError` if new
        cells are outside the user's bounds.
        """
        free = ~self.given
        _check_inside(schema, X, np.where(free, [[-np.inf], [np.inf]], self.ranges))
        values = {
            j: np.union1d(known, X[~np.isnan(X[:, j]), j].astype(np.float64))
            for j, known in self.values.items()
        }
        few = [len(values.get(j, ())) <= MOST_CODES for j in range(X.shape[1])]
        marked = [one.levels is not None for one in schema.columns or ()]
        codes = self.codes & (few if not marked else few | np.array(marked))
        # else a value that many cells have
        at_end = (self.ranges == before) & (self.ranges != _laws(before)) & ~self.codes
        ruled = np.where(codes | at_end, ends, _laws(ends))
        # a column without an observed cell has no law
        low, high = np.where(free & ~np.isnan(before), ruled, self.ranges)
        integers = self.integers & np.all((X == np.round(X)) | np.isnan(X), 0)
        grid, origin = np.zeros((2, len(self.grid)))
        for j in np.flatnonzero(self.grid):
            # new cells keep the grid, or have a finer one
            grid[j], origin[j] = grid_of(np.repeat(values[j], 2))
        known = self.given, values, integers, codes, grid, origin
        return ValidValues(low, high, *known)

    def signs(self, ends: np.ndarray) -> np.ndarray:
        """Return 1 for columns of positive numbers, -1 of negative ones, 0 of others.

        Their signs are the only law of their ends: no user's bound, and no mass
        of cells. Draws of these columns are not zero. `ends` (2, n): observed.
        """
        at_law = ~self.given & ~self.codes & (self.ranges == _laws(ends))
        positive, negative = at_law[0] & (ends[0] > 0), at_law[1] & (ends[1] < 0)
        return positive.astype(np.float64) - negative

    def least_sizes(self) -> np.ndarray:
        """Return how far from zero the cells of columns of one sign are at least.

        On grids that have the place zero it is a step.
        """
        steps = np.where(self.grid > 0, self.grid, self.integers)
        unit = np.where(steps > 0, steps, 1.0)
        has_zero = abs(np.remainder(self.origin / unit + 0.5, 1.0) - 0.5) < _SAME
        return np.where((steps > 0) & has_zero, steps, 0.0)

    def grid_of(self, column: int) -> tuple[float, float]:
        """Return the step, 0 without any, and a place of the grid of a column."""
        step = self.grid[column] or float(self.integers[column])
        return step, self.origin[column]

    def with_beyond(self, column: int, known: np.ndarray) -> np.ndarray:
        """Add valid values on the grid, as far beyond the known ones as these reach."""
        step = self.grid[column]
        if not step:
            return known
        beyond = step * np.arange(1, round((known[-1] - known[0]) / step) + 1)
        beyond = np.append(known[0] - beyond, known[-1] + beyond)
        beyond = on_grid(beyond, self.grid_of(column))
        beyond = beyond[(beyond >= self.low[column]) & (beyond <= self.high[column])]
        return np.sort(np.append(known, beyond))

    def ranges_alone(self) -> Self:
        """Leave out codes and grids."""
        none = {"codes": np.zeros_like(self.codes), "grid": np.zeros_like(self.grid)}
        return self._replace(values={}, **none)

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
        valid = self.clipped(cells, columns)
        for place, column in enumerate(columns):
            known, ends = self.values.get(column), self.ranges[:, column]
            step, origin = self.grid_of(column)
            moved = cells = valid[..., place]
            if self.codes[column]:
                moved = nearest(known, cells)
            elif step:
                moved = on_grid(cells, (step, origin), *ends)
            if known is not None and not self.codes[column]:
                near = nearest(known, moved)
                # of a column without a grid, only what is beyond is between its values
                same = abs(near - moved) < _SAME * step
                inside = (cells >= known[0]) & (cells <= known[-1]) & (step == 0)
                moved = np.where(same | inside, near, moved)
                moved = np.where(nearest(known, cells) == cells, cells, moved)
            valid[..., place] = moved
        return valid


def _laws(ends: np.ndarray) -> np.ndarray:
    """Return the range (2, n) that follows from the signs of observed ends (2, n)."""
    return np.stack(
        [np.where(ends[0] >= 0, 0.0, -np.inf), np.where(ends[1] <= 0, 0.0, np.inf)]
    )


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

    `min_value`, `max_value`: bounds of all columns, of each, or of those that a
    dict or a Series names: a number, ``"observed"`` (the smallest or the largest
    observed value), None (the rule of this module), or of a column of dates a date;
    `whole`: of all rows, if X is a sample of them. Then ranges are the observed
    ones of all rows, widened by the excess in the sample, and repeated values are
    those of the sample and the ends of the range.
    """
    d = X.shape[1]
    asked = [
        _as_list(schema, value, name, d)
        for value, name in ((min_value, "min_value"), (max_value, "max_value"))
    ]
    marked = np.zeros(d, dtype=bool)
    for place, column in enumerate(schema.columns or ()):
        marked[place] = column.levels is not None
        # bounds are for numbers
        if marked[place] or column.kind == PASSED:
            asked[0][place] = asked[1][place] = None
    given = np.array([[value is not None for value in side] for side in asked])
    ranges, values, (grid, origin) = np.zeros((2, d)), {}, np.zeros((2, d))
    integers, codes = np.zeros((2, d), dtype=bool)
    # with a single column, equal rows are repeated values and not duplicates
    table = X[distinct_rows(X)[0]] if d > 1 else X
    once = _once_a_group(schema, X)
    for j, column in enumerate(table.T.astype(np.float64)):
        column, is_code = once.get(j, column), marked[j]
        seen = np.sort(column[~np.isnan(column)])
        observed = (seen[0], seen[-1]) if len(seen) else (0.0, 0.0)
        if len(seen):
            integers[j] = (seen == np.round(seen)).all()
            if whole is not None:
                observed, integers[j] = tuple(whole.ends[:, j]), whole.integers[j]
            if repeats(seen):
                # of a table in parts, a sample of the rows may lack the ends
                values[j] = np.unique(np.append(seen, observed))
                always = marked[j] or len(values[j]) == 2
                is_code = always or are_codes(len(values[j]), len(seen))
                has_bound = any(isinstance(ends[j], float) for ends in asked)
                codes[j] = always or (is_code and not has_bound)
                if not codes[j]:
                    grid[j], origin[j] = grid_of(seen)
        ruled = _ruled(seen, observed, is_code=is_code)
        for side, ends in enumerate(asked):
            end = observed[side] if isinstance(ends[j], str) else ends[j]
            ranges[side, j] = ruled[side] if end is None else end
        if not len(seen):
            ranges[:, j] = _of_empty(schema, j, *(ends[j] for ends in asked))
    for j in schema.group_columns:  # other tables have other numbers of groups
        ranges[:, j] = -np.inf, np.inf
        values.pop(j, None)
        codes[j], grid[j] = False, 0.0
    for column in np.flatnonzero(given.all(0)):
        _check_order(schema, column, *ranges[:, column])
    _check_inside(schema, X if whole is None else whole.ends, ranges, whole is None)
    return ValidValues(*ranges, given, values, integers, codes, grid, origin)


def _once_a_group(schema: Schema, X: np.ndarray) -> dict[int, np.ndarray]:
    """Return one cell of each group for columns that are constant within them."""
    firsts = {}
    for numbers in X[:, schema.group_columns].T:
        cells = by_group(np.fmax, X, numbers)
        firsts |= {j: cells[:, j] for j in columns_of_groups(X, numbers)}
    return firsts


def repeats(values: np.ndarray) -> bool:
    """Return whether at least half of some values are equal to another one."""
    unique, counts = np.unique(values, return_counts=True)
    shared = counts[counts > 1].sum() >= REPEATED * len(values)
    return bool(shared and len(unique) > 1)


def _ruled(seen: np.ndarray, observed: tuple, *, is_code: bool) -> np.ndarray:
    """Find the range of a column of sorted cells by the rules of this module."""
    ends = np.array(observed, dtype=np.float64)
    different, counts = np.unique(seen, return_counts=True)
    if is_code or len(different) < 2:
        return ends
    return np.where(masses_at_ends(different, counts), ends, _laws(ends[:, None])[:, 0])


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
        bounds = [None] * d
        for key, bound in value.items():
            place = schema.index_of(key, name)
            bound = schema.number_of(place, bound, f"{name}[{key!r}]")
            bounds[place] = _checked_bound(bound, name, key)
        return bounds
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


def spreads(schema, X):
    """Compute standard deviations of the observed cells of each column.

    `X` (n_samples, n_features).  Returns (n_features,): in the units of X, also for
    counts that X has as codes; 0 without an observed cell.
    """
    found = np.zeros(X.shape[1])
    columns = schema.columns
    for place, cells in enumerate(X.T.astype(np.float64)):
        seen = cells[~np.isnan(cells)]
        if columns and columns[place].is_count:
            seen = np.array(columns[place].levels, dtype=np.float64)[seen.astype(int)]
        found[place] = seen.std() if len(seen) else 0.0
    return found
