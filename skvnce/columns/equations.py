r"""Equations between the columns of a table: sums, and columns derived from others.

A cell that follows from the others of its row is computed.  If several cells of a row
are missing, they are filled first, and then moved until the equations hold: to the
nearest solution of the sums, in units of the standard deviations s of the columns,

.. math:: \min_\delta \sum_j \delta_j^2 / s_j^2, \quad A (x + \delta) = 0, \qquad (1)

which is what conditioning does to independent normal cells; derived cells are computed
anew, or one of the cells that they are derived from is solved for.  Where that fails,
all missing cells of the row move together.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skvnce.relations.closure import closed
from skvnce.relations.columns import Bounds
from skvnce.relations.formulas import Checked

_EXACT = 1e-9  # relative error of an equation that holds
_ROUNDS = 50  # times that equations with common cells are solved in turn
_CUTS = 20  # times that a step is halved
_DIFFERENCE = 1e-7  # by which slopes are computed, relative to cells
_RANK = 1e-7  # relative singular value below which an equation follows from others
_FREE = 1e6  # weight of a missing total, which follows from its parts
_OFFSETS = 2.0 ** np.arange(-8, 8.5, 0.5)  # where roots are sought, in deviations
# more than the 53 bits of a float, for roots that are small in their interval
_HALVINGS = 80


class Sum(NamedTuple):
    """A column that is the sum of others."""

    target: int
    sources: tuple
    label: str

    rank = 0  # see `Rule`

    def value(self, table):
        """Compute the total of rows (n, n_features)."""
        return table[:, self.sources].sum(1)

    def size(self, table):
        """Return what errors are relative to; (n,)."""
        return abs(table[:, self.columns]).max(1)

    @property
    def columns(self):
        """List all columns."""
        return [self.target, *self.sources]

    def solve(self, part, place):
        """Compute a column from the others; `part` (n, n_columns), see `Rule`."""
        parts = np.delete(part, [0, place], 1).sum(1)
        return parts if place == 0 else part[:, 0] - parts


class Derived(NamedTuple):
    """A column that is a function of others."""

    target: int
    sources: tuple
    label: str
    function: Callable
    near: "Near"  # where cells of `columns` are sought

    rank = 1  # see `Rule`

    def value(self, table):
        """Compute the function of rows (n, n_features)."""
        return self._called(table[:, self.sources])

    def _called(self, part):
        try:
            with np.errstate(all="ignore"):
                # a copy, because the user's function may write to its arguments
                values = self.function(*(column.copy() for column in part.T))
        except Exception as error:
            error.add_note(f"Raised by the function of derived[{self.label}].")
            raise
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            raise TypeError(
                f"The function of derived[{self.label}] must return an array of real "
                f"numbers, got {values.dtype}."
            )
        values = values.astype(np.float64)
        if values.shape != (len(part),):
            raise ValueError(
                f"The function of derived[{self.label}] must return an array of shape "
                f"({len(part)},), as its arguments have, got shape {values.shape}."
            )
        return values

    def size(self, table):
        """Return what errors are relative to; (n,)."""
        return np.maximum(abs(table[:, self.target]), abs(self.value(table)))

    @property
    def columns(self):
        """List all columns."""
        return [self.target, *self.sources]

    def solve(self, part, place):
        """Compute a column from the others; `part` (n, n_columns), see `Rule`.

        Of several solutions it is the one nearest to the cell of `part`, or, if that is
        missing, to the mean; NaN without one, or if the column makes no difference.
        """
        if place == 0:
            return self._called(part[:, 1:])
        location, deviation, low, high = (ends[place] for ends in self.near)
        moved = part.copy()

        def gap(cells):
            moved[:, place] = cells
            return self._called(moved[:, 1:]) - part[:, 0]

        start = np.where(np.isnan(part[:, place]), location, part[:, place])
        moves = deviation * np.concatenate([-_OFFSETS[::-1], [0.0], _OFFSETS])
        moves = moves[:, None].clip(low - start, high - start)
        # rounding errors must not move points beyond the ends
        return _root(gap, (start + moves).clip(low, high), abs(moves))


class Near(NamedTuple):
    """Where solutions are sought, for some columns; see `Equations`."""

    location: np.ndarray
    deviation: np.ndarray
    low: np.ndarray
    high: np.ndarray


class ColumnFacts(NamedTuple):
    """What equations need to know about columns; see `Equations`."""

    mean: np.ndarray  # each of shape (n_features,)
    deviation: np.ndarray
    low: np.ndarray
    high: np.ndarray
    integers: np.ndarray


class Equations(NamedTuple):
    """All equations of a table, and what its training rows say about their columns."""

    sums: list
    derived: list
    # (n_features,), means and standard deviations of the observed cells
    location: np.ndarray
    deviation: np.ndarray
    # (n_features,), 0 if no observed cell is negative, or positive; else infinite
    low: np.ndarray
    high: np.ndarray
    # bool (n_features,), columns whose observed cells are whole numbers
    integers: np.ndarray

    @property
    def every(self):
        """List all equations."""
        return [*self.sums, *self.derived]

    @property
    def used(self):
        """List the columns of all equations."""
        return sorted({j for one in self.every for j in one.columns})

    def deduced(self, table, rtol):
        """Fill the cells that follow from others of their row; (n, n_features).

        `rtol` is the largest relative error of an equation between observed cells.
        Raises ValueError if the cells of a row contradict an equation.
        """
        table = table.astype(np.float64)
        rules = [Checked(one, len(table), 0, tuple(one.columns)) for one in self.every]
        filled = closed(Bounds.none(table.shape[1]), table, rules)
        for one in self.every:
            self._check_solved(one, table, filled, rtol)
        inside = self.snapped(filled.clip(self.low, self.high), slice(None))
        filled = np.where(np.isnan(table), inside, table)
        for one in self.every:
            rows = np.flatnonzero(~np.isnan(filled[:, one.columns]).any(1))
            wrong = rows[~_holds(one, filled[rows], max(rtol, _EXACT))]
            if len(wrong):
                raise ValueError(
                    f"Row {wrong[0]} of X contradicts the equation of {one.label}: it "
                    f"has {filled[wrong[0], one.target]:g}, but its other columns give "
                    f"{one.value(filled[wrong[:1]])[0]:g}. Correct the row, mark a "
                    "cell as missing, or raise rtol if values are rounded."
                )
        return filled

    def enforced(self, tables, missing, fixed=()):
        """Move cells that were missing until the equations hold; tables are modified.

        Columns in `fixed` are moved only in rows where the others do not suffice.
        Raises ValueError if the equations of a row cannot be satisfied.
        """
        rows = np.flatnonzero(missing[:, self.used].any(1))
        if not len(rows):
            return tables
        values = tables[:, rows].reshape(-1, tables.shape[2]).astype(np.float64)
        free = np.tile(missing[rows], (len(tables), 1))
        names = np.tile(rows, len(tables))
        left = self._move(values, free, fixed)
        if len(left):
            self._reject(values[left[0]][None], free[left[0]][None], names[left[0]])
        tables[:, rows] = values.reshape(len(tables), len(rows), -1)
        return tables

    @np.errstate(all="ignore")  # cells without a solution become infinite
    def _move(self, values, free, fixed):
        """Move free cells, in place; returns the rows whose equations do not hold.

        Fixed columns give way in the equations that fail, and then in all of the row.
        """
        left, attempts = np.arange(len(values)), 3 if len(fixed) else 1
        locked = np.zeros(free.shape, dtype=bool)
        locked[:, list(fixed)] = True
        owned = np.zeros((len(self.every), free.shape[1]), dtype=bool)
        for row, one in zip(owned, self.every, strict=True):
            row[one.columns] = True
        for attempt in range(attempts):
            if attempt == 2:
                locked[left] = False
            part, movable = values[left], free[left] & ~locked[left]
            fails = ~self._settle(part, movable, free[left])
            # far cells may lead to no solution; then those of average rows do mostly
            for filled in (values[left], np.where(movable, self.location, part)):
                wrong = np.flatnonzero(fails.any(1))
                joint = self._solve_together(filled[wrong], movable[wrong])
                holds = self._hold(joint, free[left[wrong]]).all(1)
                part[wrong[holds]], fails[wrong[holds]] = joint[holds], False
            wrong = fails.any(1)
            kept = ~wrong if attempt < attempts - 1 else slice(None)
            values[left[kept]] = part[kept]
            locked[left] &= ~(fails @ owned)
            left = left[wrong]
        return left

    def _settle(self, values, movable, free):
        """Move cells, in place, until equations hold; returns which do."""
        for _ in range(_ROUNDS):
            self._project(values, movable)
            for one in self.derived:
                self._derive(values, movable, one)
            # after all equations, because one may have moved the cells of another
            holds = self._hold(values, free)
            if holds.all():
                break
        return holds

    def _hold(self, values, free):
        """Return which equations hold, or have no free cell; (n, n_equations)."""
        return np.stack([_solved(one, values, free) for one in self.every], 1)

    def _solve_together(self, values, movable):
        """Return rows whose movable cells solve all equations, by Gauss-Newton steps.

        For equations that undo each other for ever if they are solved in turn.  Steps
        are the shortest ones of the linearized equations, in the units of eq. (1).
        """
        values = np.where(movable, values.clip(self.low, self.high), values)
        rows = np.arange(len(values))  # those that still come closer to a solution
        for _ in range(_ROUNDS):
            if not len(rows):
                break
            cells, free = values[rows], movable[rows]
            slopes = self._slopes(cells, free)
            size = np.linalg.norm(slopes, axis=2)
            # equations without a movable cell do not count
            weight = np.divide(1.0, size, where=size > 0, out=np.zeros_like(size))
            gaps = weight * self._gaps(cells)
            steps = self._steps(cells, weight[..., None] * slopes, gaps)
            error, length = (gaps**2).sum(1), np.ones((len(rows), 1))
            for _ in range(_CUTS):
                inside = (cells + length * steps).clip(self.low, self.high)
                moved = np.where(free, inside, cells)
                closer = ((weight * self._gaps(moved)) ** 2).sum(1) < error
                if closer.all():
                    break
                length[~closer] /= 2
            rows = rows[closer]
            values[rows] = moved[closer]
        return np.where(movable, self.snapped(values, slice(None)), values)

    def _gaps(self, cells):
        """Return by how much equations are missed; (n, n_equations)."""
        return np.stack(
            [one.value(cells) - cells[:, one.target] for one in self.every], 1
        )

    def _slopes(self, cells, free):
        """Return slopes of the gaps per deviation of free cells, by differences.

        Of shape (n, n_equations, n_columns), with the columns of `used`.
        """
        used, moved = self.used, cells.copy()
        slopes = np.zeros((len(cells), len(self.every), len(used)))
        for k, one in enumerate(self.every):
            slopes[:, k, used.index(one.target)] = -1.0
            for j in one.sources:
                by = _DIFFERENCE * (abs(cells[:, j]) + self.deviation[j])
                moved[:, j] += np.where(cells[:, j] + by > self.high[j], -by, by)
                change = one.value(moved) - one.value(cells)
                slopes[:, k, used.index(j)] = change / (moved[:, j] - cells[:, j])
                moved[:, j] = cells[:, j]
        slopes = np.where(np.isfinite(slopes), slopes, 0.0)
        return slopes * np.where(free, self.deviation, 0.0)[:, None, used]

    def _steps(self, cells, slopes, gaps):
        """Return the shortest steps from gaps to zero that keep signs; as `cells`."""
        gaps = np.where(np.isfinite(gaps), gaps, 0.0)[..., None]
        used, steps = self.used, np.zeros(cells.shape)
        # each pass but the last stops cells at the ends of their range
        for _ in used:
            shortest = -(np.linalg.pinv(slopes, _RANK) @ gaps)[..., 0]
            steps[:, used] = shortest * self.deviation[used]
            outward = (cells <= self.low) & (steps < 0)
            outward |= (cells >= self.high) & (steps > 0)
            if not outward.any():
                break
            slopes = np.where(outward[:, None, used], 0.0, slopes)
        return steps

    def _reject(self, row, free, name):
        """Raise an error for a row (1, n_features) whose equations do not hold."""
        for one in self.derived:
            if free[0, one.target] and np.isnan(row[0, one.target]):
                raise ValueError(_is_nan(one, name))
            if not free[0, one.target] and not _solved(one, row, free)[0]:
                raise ValueError(_has_no_solution(one, name))
        raise ValueError(
            f"The equations of row {name} of X cannot be satisfied together by its "
            "missing cells, without a change of sign. Correct the row, or mark more of "
            "its cells as missing."
        )

    def _check_solved(self, one, table, filled, rtol):
        """Raise an error for rows whose cells an equation does not give."""
        new, part = np.isnan(table[:, one.columns]), filled[:, one.columns]
        unsolved = np.isnan(part)
        unsolved &= unsolved.sum(1, keepdims=True) == 1
        # cells of which any value satisfies the equation are left to the model
        usual = np.where(np.isnan(filled), self.location, filled)
        unsolved &= ~_holds(one, usual, _EXACT)[:, None]
        if unsolved[:, 0].any():
            raise ValueError(_is_nan(one, unsolved[:, 0].argmax()))
        slack = rtol * np.nan_to_num(abs(part)).max(1, keepdims=True)
        low, high = self.low[one.columns] - slack, self.high[one.columns] + slack
        outside = (part < low) | (part > high) | np.isinf(part)
        wrong = (unsolved | (new & outside)).any(1)
        if wrong.any():
            raise ValueError(_has_no_solution(one, wrong.argmax()))

    def snapped(self, cells, places):
        """Round cells (..., n_places) of whole columns that errors of floats move."""
        rounded = np.round(cells)
        # rounding of float32 exceeds _EXACT
        error = max(_EXACT, 8 * np.finfo(cells.dtype).eps)
        near = abs(cells - rounded) <= error * np.maximum(abs(rounded), 1.0)
        return np.where(self.integers[places] & near, rounded, cells)

    def _derive(self, values, free, one):
        """Compute a derived column, or the last free cell that it depends on."""
        rows = np.flatnonzero(free[:, one.target])
        values[rows, one.target] = one.value(values[rows])
        unsolved = ~free[:, one.target] & ~_holds(one, values, _EXACT)
        for place in one.sources[::-1]:
            rows = np.flatnonzero(unsolved & free[:, place])
            if len(rows):
                # finite ones are between `low` and `high`
                solution = one.solve(
                    values[rows][:, one.columns], one.columns.index(place)
                )
                good = np.isfinite(solution)
                values[rows[good], place] = solution[good]
                unsolved[rows] = False

    def _project(self, values, free):
        """Move free cells to the nearest solution of the sums, eq. (1), in place."""
        if not self.sums:
            return
        free = free.copy()
        # each pass but the last fixes a cell of a row at its range
        for _ in range(values.shape[1]):
            self._moved_once(values, free)
            outside = free & ((values < self.low) | (values > self.high))
            if not outside.any():
                break
            np.clip(values, self.low, self.high, out=values, where=outside)
            free &= ~outside
        for one in self.sums:
            self._round(values, free, one)

    def _moved_once(self, values, free):
        matrix = np.zeros((len(self.sums), values.shape[1]))
        weight = self.deviation**2
        for row, one in zip(matrix, self.sums, strict=True):
            row[list(one.sources)], row[one.target] = 1.0, -1.0
        targets = [one.target for one in self.sums]
        used = (matrix != 0).any(0)
        patterns, group = np.unique(free[:, used], axis=0, return_inverse=True)
        for k, pattern in enumerate(patterns):
            rows = np.flatnonzero(group.ravel() == k)
            some = np.flatnonzero(used)[pattern]
            part = matrix[:, some]
            scale = weight[some] * np.where(np.isin(some, targets), _FREE, 1.0)
            # pinv, because sums without a free cell are rows of zeros
            back = (scale[:, None] * part.T) @ np.linalg.pinv(part * scale @ part.T)
            values[np.ix_(rows, some)] -= values[rows] @ matrix.T @ back.T

    def _round(self, values, free, one):
        """Round the free cells of a sum of integers, and compute a missing total."""
        sources, every = list(one.sources), self.integers[one.columns].all()
        parts = np.where(free[:, sources], values[:, sources], 0.0)
        sums = parts.cumsum(1)
        # differences of rounded cumulative sums keep their total
        ends = np.rint(sums)
        are_whole = ~(free[:, one.columns] & ~self.integers[one.columns]).any(1)
        are_whole &= ~free[:, one.target] & (abs(sums - ends)[:, -1] < _EXACT)
        rounded = free[:, sources] & (every | are_whole)[:, None]
        whole = np.diff(ends, prepend=0.0)
        values[:, sources] = np.where(rounded, whole, values[:, sources])
        rows = np.flatnonzero(free[:, one.target])
        values[rows, one.target] = one.value(values[rows])


def _is_nan(one, name):
    """Say that a derived column is NaN."""
    return (
        f"{one.label} is NaN in row {name} of X, by the function of derived. It must "
        "be a number for all values of its columns."
    )


def _has_no_solution(one, name):
    """Say that no value of a cell satisfies an equation."""
    return (
        f"The equation of {one.label} has no solution in row {name} of X, or one with "
        "a sign that no observed cell has. Correct the row, or mark more of its cells "
        "as missing."
    )


def _holds(one, table, rtol):
    """Return in which rows an equation holds; (n,)."""
    gap = abs(one.value(table) - table[:, one.target])
    error = rtol * np.maximum(one.size(table), np.finfo(float).tiny)
    return np.isfinite(gap) & (gap <= error)


def _solved(one, table, free):
    """Return in which rows an equation holds, or has no free cell; (n,)."""
    return _holds(one, table, _EXACT) | ~free[:, one.columns].any(1)


def _root(gap, points, distances):
    """Find zeros of a gap between points (n_points, n) by bisection; (n,).

    Of several zeros it is that of the smallest distance; NaN without one, or if the
    gap is 0 everywhere.
    """
    gaps = np.array([gap(point) for point in points])
    with np.errstate(invalid="ignore"):
        # signs, because products of large gaps overflow
        change = np.sign(gaps[:-1]) * np.sign(gaps[1:]) <= 0
    distance = np.maximum(distances[:-1], distances[1:])
    best = np.where(change, distance, np.inf).argmin(0)
    rows = np.arange(points.shape[1])
    left, right = points[best, rows], points[best + 1, rows]
    sign = np.sign(gaps[best, rows])
    # bisection comes close to a zero at 0, but not relative to its size
    around = (left <= 0) & (right >= 0) & (gap(np.zeros(len(rows))) == 0)
    exact = np.where(around, 0.0, np.where(sign == 0, left, np.nan))
    for _ in range(_HALVINGS):
        # left + right may overflow
        middle = left + (right - left) / 2
        below = np.sign(gap(middle)) == sign
        left, right = np.where(below, middle, left), np.where(below, right, middle)
    root = np.where(np.isnan(exact), right, exact)
    # a gap that is 0 wherever it is a number determines nothing
    is_flat = (np.isnan(gaps) | (gaps == 0)).all(0)
    return np.where(change[best, rows] & ~is_flat, root, np.nan)
