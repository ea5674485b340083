"""The values that cells can have: laws of columns, and limits of single cells."""

from collections.abc import Callable, Iterator
from numbers import Real
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from skvnce._core.numbers import MOST_CODES, are_codes, grid_of, masses_at_ends, on_grid
from skvnce._core.warnings import warn_user
from skvnce._tables.cells import MOMENTS, is_frame, is_missing, names_of
from skvnce._tables.frames import reject_parts, unmasked
from skvnce._tables.schema import PASSED, Schema, by_group, columns_of_groups

# ----------------------------------------
# The valid values of each column: a range, codes, and the grid of repeated values.
#
# Cells follow the model, not the observed range.  They are restricted by what the user
# passes, or else by the laws that a column shows:
#
# - Columns of non-negative, or of non-positive, numbers remain so; dates do not.
# - A column ends at its largest or smallest value where many cells have that value,
#   such as percentages at 0 and 100.
# - A column of few values that repeat has codes, such as grades: its cells are observed
#   values.  Bounds that the user passes are obeyed nevertheless, except for two values.
# - Draws of other columns of repeated values are on their grid, such as whole numbers
#   or halves, also beyond the observed cells.
#
# Duplicate rows count once, so that a row of weight two is equivalent to two equal
# rows.

# ----------------------------------------
# Statistics of tables: moments, smallest and largest cells, distinct rows.


def column_moments(
    nodes: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute weighted means and standard deviations of the observed cells."""
    observed = ~np.isnan(nodes) * weights[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # the check of the scale follows
        mean = _means(nodes, observed)
        return mean, np.sqrt(_means((nodes - mean) ** 2, observed))


def _means(values: np.ndarray, observed: np.ndarray) -> np.ndarray:
    return np.nansum(values * observed, 0) / observed.sum(0)


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
    """Find distinct rows and each row's place among them; NaN and -0.0 as NaN and 0."""
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


def observed_cells(column: np.ndarray) -> np.ndarray:
    """Drop the missing cells of a column."""
    return column[~np.isnan(column)]


def lower_median(column: np.ndarray) -> float:
    """Find the median of the observed cells, or the lower one of two."""
    observed = np.sort(observed_cells(column))
    # the mean of two would be a value that no cell has
    return observed[(len(observed) - 1) // 2]


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
    by_user: np.ndarray
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
        """Widen ranges of columns to limits, between which values do not repeat."""
        low, high, values = self.low.copy(), self.high.copy(), dict(self.values)
        codes, grid = self.codes.copy(), self.grid.copy()
        for place in limits.columns:
            column, limited = columns[place], limits.has_limit[:, place]
            values.pop(column, None)
            codes[column], grid[column] = False, 0.0
            ends = limits.low[limited, place].min(), limits.high[limited, place].max()
            finite = [end for end in (*ends, low[column]) if np.isfinite(end)]
            # as by the rule of this module
            if np.isfinite(low[column]) and min(finite) >= 0:
                ends = max(ends[0], 0.0), ends[1]
            if not self.by_user[0, column]:
                low[column] = min(low[column], ends[0])
            if not self.by_user[1, column]:
                high[column] = max(high[column], ends[1])
        laws = {"values": values, "codes": codes, "grid": grid}
        return self._replace(low=low, high=high, **laws)

    def extended(
        self, schema: Schema, X: np.ndarray, before: np.ndarray, ends: np.ndarray
    ) -> Self:
        """Extend ranges by as much as the observed ranges grow, and repeated values."""
        free = ~self.by_user
        _check_inside(schema, X, np.where(free, [[-np.inf], [np.inf]], self.ranges))
        values = {
            j: np.union1d(listed, X[~np.isnan(X[:, j]), j].astype(np.float64))
            for j, listed in self.values.items()
        }
        few = [len(values.get(j, ())) <= MOST_CODES for j in range(X.shape[1])]
        marked = [column.levels is not None for column in schema.columns or ()]
        codes = self.codes & (few if not marked else few | np.array(marked))
        # else a value that many cells have
        at_end = (self.ranges == before) & (self.ranges != _laws(before)) & ~self.codes
        laws = np.where(np.isinf(self.ranges), self.ranges, _laws(ends))
        ruled = np.where(codes | at_end, ends, laws)
        # a column without an observed cell has no law
        low, high = np.where(free & ~np.isnan(before), ruled, self.ranges)
        integers = self.integers & np.all((X == np.round(X)) | np.isnan(X), 0)
        grid, origin = np.zeros((2, len(self.grid)))
        for j in np.flatnonzero(self.grid):
            # new cells keep the grid, or have a finer one
            grid[j], origin[j] = grid_of(np.repeat(values[j], 2))
        laws = values, integers, codes, grid, origin
        return ValidValues(low, high, self.by_user, *laws)

    def signs(self, ends: np.ndarray) -> np.ndarray:
        """Return the sign of columns whose signs are the only law of their ends, or 0.

        No user's bound, and no mass of cells; draws of these columns are not zero.
        """
        at_law = ~self.by_user & ~self.codes & (self.ranges == _laws(ends))
        positive, negative = at_law[0] & (ends[0] > 0), at_law[1] & (ends[1] < 0)
        return positive.astype(np.float64) - negative

    def least_sizes(self) -> np.ndarray:
        """Return how far from zero columns of one sign are, on grids a step."""
        steps = np.where(self.grid > 0, self.grid, self.integers)
        unit = np.where(steps > 0, steps, 1.0)
        has_zero = abs(np.remainder(self.origin / unit + 0.5, 1.0) - 0.5) < _SAME
        return np.where((steps > 0) & has_zero, steps, 0.0)

    def grid_of(self, column: int) -> tuple[float, float]:
        """Return the step, 0 without any, and a place of the grid of a column."""
        step = self.grid[column] or float(self.integers[column])
        return step, self.origin[column]

    def with_beyond(self, column: int, values: np.ndarray) -> np.ndarray:
        """Add valid values on the grid, as far beyond the known ones as these reach."""
        step = self.grid[column]
        if not step:
            return values
        beyond = step * np.arange(1, round((values[-1] - values[0]) / step) + 1)
        beyond = np.append(values[0] - beyond, values[-1] + beyond)
        beyond = on_grid(beyond, self.grid_of(column))
        beyond = beyond[(beyond >= self.low[column]) & (beyond <= self.high[column])]
        return np.sort(np.append(values, beyond))

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
        self, cells: np.ndarray, columns: np.ndarray, where: np.ndarray
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
        return np.where(where & can, rounded, cells).astype(cells.dtype)

    def rounded(self, cells: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Round cells (..., n_columns) of some columns to valid values."""
        valid = self.clipped(cells, columns)
        for place, column in enumerate(columns):
            listed, ends = self.values.get(column), self.ranges[:, column]
            step, origin = self.grid_of(column)
            moved = cells = valid[..., place]
            if self.codes[column]:
                moved = nearest(listed, cells)
            elif step:
                moved = on_grid(cells, (step, origin), *ends)
            if listed is not None and not self.codes[column]:
                near = nearest(listed, moved)
                # of a column without a grid, only what is beyond is between its values
                same = abs(near - moved) < _SAME * step
                inside = (cells >= listed[0]) & (cells <= listed[-1]) & (step == 0)
                moved = np.where(same | inside, near, moved)
                moved = np.where(nearest(listed, cells) == cells, cells, moved)
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
    """Determine the valid values of each column, within bounds.

    Bounds are of all columns, of each, or of those that a dict or a Series names: a
    number, ``"observed"``, None (the rule of this module), or a date.  If X is a sample
    of rows that `whole` sums, ranges are the observed ones of all rows, widened by the
    excess in the sample.
    """
    d = X.shape[1]
    bounds = [
        _as_list(schema, value, name, d)
        for value, name in ((min_value, "min_value"), (max_value, "max_value"))
    ]
    marked = np.zeros(d, dtype=bool)
    for place, column in enumerate(schema.columns or ()):
        marked[place] = column.levels is not None
        # bounds are for numbers
        if marked[place] or column.kind == PASSED:
            bounds[0][place] = bounds[1][place] = None
    is_stated = np.array([[value is not None for value in side] for side in bounds])
    ranges, values, (grid, origin) = np.zeros((2, d)), {}, np.zeros((2, d))
    integers, codes = np.zeros((2, d), dtype=bool)
    # with a single column, equal rows are repeated values and not duplicates
    table = X[distinct_rows(X)[0]] if d > 1 else X
    once = _once_a_group(schema, X)
    for j, column in enumerate(table.T.astype(np.float64)):
        column, is_code = once.get(j, column), marked[j]
        cells = np.sort(observed_cells(column))
        observed = (cells[0], cells[-1]) if len(cells) else (0.0, 0.0)
        if len(cells):
            integers[j] = (cells == np.round(cells)).all()
            if whole is not None:
                observed, integers[j] = tuple(whole.ends[:, j]), whole.integers[j]
            if repeats(cells):
                # of a table in parts, a sample of the rows may lack the ends
                values[j] = np.unique(np.append(cells, observed))
                always = marked[j] or len(values[j]) == 2
                is_code = always or are_codes(len(values[j]), len(cells))
                has_bound = any(isinstance(ends[j], float) for ends in bounds)
                codes[j] = always or (is_code and not has_bound)
                if not codes[j]:
                    grid[j], origin[j] = grid_of(cells)
        is_moment = schema.columns and schema.columns[j].dtype in MOMENTS
        ruled = _range(cells, observed, is_code=is_code, has_sign=not is_moment)
        for side, ends in enumerate(bounds):
            end = observed[side] if isinstance(ends[j], str) else ends[j]
            ranges[side, j] = ruled[side] if end is None else end
        if not len(cells):
            ranges[:, j] = _of_empty(schema, j, *(ends[j] for ends in bounds))
    exact = [j for j, column in enumerate(schema.columns or ()) if column.is_exact]
    integers[exact] = False  # codes between those of levels
    # other tables have other numbers, or other numbers of groups
    for j in [*exact, *schema.group_columns]:
        ranges[:, j] = -np.inf, np.inf
        values.pop(j, None)
        codes[j], grid[j] = False, 0.0
    for column in np.flatnonzero(is_stated.all(0)):
        _check_order(schema, column, *ranges[:, column])
    _check_inside(schema, X if whole is None else whole.ends, ranges, whole is None)
    return ValidValues(*ranges, is_stated, values, integers, codes, grid, origin)


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


def _range(
    sorted_cells: np.ndarray, observed: tuple, *, is_code: bool, has_sign: bool
) -> np.ndarray:
    """Find the range of a column of sorted cells by the rules of this module."""
    ends = np.array(observed, dtype=np.float64)
    different, counts = np.unique(sorted_cells, return_counts=True)
    if is_code or len(different) < 2:
        return ends
    laws = _laws(ends[:, None])[:, 0] if has_sign else np.array([-np.inf, np.inf])
    return np.where(masses_at_ends(different, counts), ends, laws)


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
                f"{name} must be a number, {OBSERVED!r} or None, got {value!r}. Bounds "
                "of dates are dates, such as pandas.Timestamp('2020-01-01')."
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
    """Raise an error if observed cells, or their ends, are outside their range."""
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


def spreads(schema: Schema, X: np.ndarray) -> np.ndarray:
    """Compute standard deviations of observed cells, of counts too; 0 without any."""
    deviations = np.zeros(X.shape[1])
    columns = schema.columns
    for place, cells in enumerate(X.T.astype(np.float64)):
        observed = observed_cells(cells)
        if columns and columns[place].is_count:
            observed = np.array(columns[place].levels, dtype=np.float64)[
                observed.astype(int)
            ]
        deviations[place] = observed.std() if len(observed) else 0.0
    return deviations


# ----------------------------------------
# Limits of single cells, and what else the user states about them.
#
# A table of X's shape, or masks and numbers of some of its columns by name.


class CellLimits(NamedTuple):
    """Least and largest values of the missing cells of a table."""

    # (n_samples, n_features), infinite where nothing is known, and in observed cells
    low: np.ndarray
    high: np.ndarray  # (n_samples, n_features)

    @property
    def has_limit(self) -> np.ndarray:
        """Return which cells have a limit; bool, (n_samples, n_features)."""
        return np.isfinite(self.low) | np.isfinite(self.high)

    @property
    def columns(self) -> list[int]:
        """List the columns of which a cell has a limit."""
        return np.flatnonzero(self.has_limit.any(0)).tolist()

    def of(self, rows: np.ndarray, columns: np.ndarray | None = None) -> Self:
        """Select the limits of some rows, and of some columns."""
        index = rows if columns is None else np.ix_(rows, columns)
        return CellLimits(*(part[index] for part in self))

    def rounded(self, integers: np.ndarray) -> Self:
        """Round limits of the columns in `integers`, (n_features,), to integers."""
        low, high = np.ceil(self.low), np.floor(self.high)
        # else no integer is within the limits
        use = integers & (low <= high)
        return CellLimits(np.where(use, low, self.low), np.where(use, high, self.high))

    def clipped(self, cells: np.ndarray) -> np.ndarray:
        """Clip cells (..., n_samples, n_features); the dtype is kept."""
        return np.clip(cells, self.low, self.high).astype(cells.dtype)

    def scaled(
        self, location: np.ndarray, scale: np.ndarray, bounds: tuple | None
    ) -> tuple:
        """Return bounds of scaled cells, narrowed by limits."""
        ends = ((end - location) / scale for end in self)
        if bounds is not None:
            ends = (end.clip(*map(np.asarray, bounds)) for end in ends)
        return tuple(ends)

    def within(self, low: np.ndarray, high: np.ndarray) -> Self:
        """Return the bounds (n_samples, n) of the first columns, narrowed by limits."""
        ends = (end[:, : low.shape[1]] for end in self)
        return CellLimits(np.maximum(low, next(ends)), np.minimum(high, next(ends)))

    def spare(
        self, cells: np.ndarray, column: int, new: float | np.ndarray
    ) -> np.ndarray:
        """Return new cells of a column, except where cells have limits."""
        return np.where(self.has_limit[:, column], cells[..., column], new)

    def check_bounds(self, schema: Schema, *, is_whole: bool = False) -> None:
        """Raise an error for limits that contradict bounds, or whole numbers."""
        possible = schema.values
        least = np.where(possible.by_user[0], possible.low, -np.inf)
        most = np.where(possible.by_user[1], possible.high, np.inf)
        self._check_cells(
            schema,
            (self.high < least) | (self.low > most),
            lambda j: (
                f"are outside of the bounds [{least[j]}, {most[j]}] of the column. "
                "Correct one of them."
            ),
        )
        low, high = np.maximum(self.low, least), np.minimum(self.high, most)
        no_whole = np.ceil(low) > np.floor(high)
        self._check_cells(
            schema,
            self.has_limit & no_whole & possible.integers & is_whole,
            lambda j: (
                "leave no whole number, but the column has whole numbers, by "
                "which cells of data frames are filled. Correct the limits, or pass an "
                "array."
            ),
        )

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

    has_limit = np.False_
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

    def scaled(
        self, location: np.ndarray, scale: np.ndarray, bounds: tuple | None
    ) -> tuple | None:
        """See `CellLimits.scaled`."""
        return bounds

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


Limits = CellLimits | NoLimits
NO_LIMITS = NoLimits()


def reject_limits(lower: object, upper: object, reason: str) -> None:
    """Raise an error for limits of single cells where none are possible."""
    if lower is not None or upper is not None:
        raise ValueError(reason)


def limits_of(
    schema: Schema, lower: object, upper: object, X: object, checked: np.ndarray
) -> Limits:
    """Check limits of single cells, and convert them; `NO_LIMITS` if there are none."""
    if lower is None and upper is None:
        _warn_of_absent_limits(schema, checked)
        return NO_LIMITS
    missing, sides = np.isnan(checked), []
    pairs = ((lower, "lower", -np.inf), (upper, "upper", np.inf))
    for bound, name, nothing in pairs:
        ends = np.full(checked.shape, nothing)
        columns = ()
        if bound is not None:
            columns = columns_given(schema, bound, X, len(checked), name)
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
    return limits if limits.has_limit.any() else NO_LIMITS


def limited_columns(
    schema: Schema, limits: Limits, *, is_whole: bool = False
) -> list[int]:
    """List the columns in which cells have limits, which agree with their bounds."""
    limits.check_bounds(schema, is_whole=is_whole)
    return list(limits.columns)


def _warn_of_absent_limits(schema: Schema, X: np.ndarray) -> None:
    """Warn if missing cells of columns that had limits at `fit` have none now."""
    places = [place for place in schema.limited if np.isnan(X[:, place]).any()]
    names = [schema.label(place) for place in places]
    if names:
        warn_user(
            f"fit was given limits of missing cells of {', '.join(names)}, and now "
            "they are filled without limits. Pass lower and upper, with NaN for cells "
            "without a limit."
        )


def check_distance(schema: Schema, limits: Limits, X: object) -> None:
    """Raise an error for limits that are far from the observed cells of a column."""
    for place in limited_columns(schema, limits):
        observed = X[~np.isnan(X[:, place]), place].astype(np.float64)
        if not len(observed):
            continue
        low, high = limits.low[:, place], limits.high[:, place]
        # a limit within the tail of a normal distribution is no error
        margin = 3 * observed.std()
        for end, far in (
            (high.min(), observed.min() - margin > high.min()),
            (low.max(), observed.max() + margin < low.max()),
        ):
            if far:
                ends = end, observed.min(), observed.max()
                limit, least, most = (schema.shown(place, end, "g") for end in ends)
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
    values = [nothing if is_missing(value) else value for value in listed]
    columns = schema.columns
    if columns and not columns[place].is_plain:
        # a table in the shape of X has cells of these columns, too
        if all(value == nothing for value in values):
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
        if any(isinstance(value, str | bytes | bool | np.bool_) for value in values):
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
    numbers = [schema.number_of(place, value, name) for value in values]
    for number, value in zip(numbers, values, strict=True):
        if number is value and value != nothing:  # no date
            raise TypeError(
                f"{name} must have {schema.columns[place].dtype}s in "
                f"{schema.label(place)}, got {value!r}."
            )
    return np.array(numbers, dtype=np.float64)


def columns_given(
    schema: Schema, parameter: object, X: object, n_samples: int, name: str
) -> Iterator:
    """Yield the columns that a parameter gives, and their values (n_samples,).

    A data frame and a dict may leave out columns; a number in a dict is that of all
    rows. The index of X must be that of a pandas object in `parameter`.
    """
    reject_parts(parameter, name)
    if not isinstance(parameter, dict) and not is_frame(parameter):
        table, shape = unmasked(parameter), (n_samples, schema.n_columns)
        if table.shape != shape:
            raise ValueError(
                f"{name} must have the shape of X, {shape}, or be a dict by column, "
                f"got shape {table.shape}."
            )
        yield from enumerate(table.T)
        return
    names = parameter if isinstance(parameter, dict) else names_of(parameter)
    _check_index(parameter, X, name)
    for key in names:
        place = schema.index_of(key, name)
        _check_index(parameter[key], X, name)
        cells = unmasked(parameter[key])
        if cells.shape == ():
            cells = np.broadcast_to(cells, n_samples)
        if cells.shape != (n_samples,):
            raise ValueError(
                f"{name}[{key!r}] must have a value for each of the {n_samples} rows, "
                f"got shape {cells.shape}."
            )
        yield place, cells


def _check_index(parameter: object, X: object, name: str) -> None:
    """Raise an error if rows of pandas objects would be matched wrongly."""
    index, other_index = (getattr(part, "index", None) for part in (X, parameter))
    if (
        hasattr(index, "equals")
        and hasattr(other_index, "equals")
        and not index.equals(other_index)
    ):
        raise ValueError(
            f"{name} has another index than X. Reindex it by {name}.reindex(X.index)."
        )
