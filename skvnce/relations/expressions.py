"""Equations of the user: sums, and columns that are functions of others."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skvnce.relations.candidates import linear
from skvnce.relations.columns import Bounds
from skvnce.relations.formulas import KNOWN, OTHER, Checked

_OFFSETS = 2.0 ** np.arange(-8, 8.5, 0.5)  # where roots are sought, in deviations
# more than the 53 bits of a float, for roots that are small in their interval
_HALVINGS = 80


def sum_of(target: int, sources: list[int]) -> Checked:
    """Relate a total to its parts."""
    total = linear((target, *sources), 1.0, -1.0)._replace(tier=KNOWN)
    return Checked(total, 0, 0, total.columns)


class Expression(NamedTuple):
    """A column that is a function of others; see `Formula` for its interface.

    Of several unknown columns the first one that can be solved for moves: the sources
    are in reverse order, so that it is the last one that the user lists.
    """

    columns: tuple[int, ...]
    function: Callable
    name: str  # in messages
    bounds: Bounds  # of all columns
    ranges: np.ndarray  # (2, p), where solutions are sought

    rank = OTHER
    total = 0
    tier = KNOWN
    is_sum = is_set = False

    def value(self, part: np.ndarray) -> np.ndarray:
        """Compute the function of rows (rows,)."""
        try:
            with np.errstate(all="ignore"):
                # a copy, because the user's function may write to its arguments
                values = self.function(*(column.copy() for column in part.T[:0:-1]))
        except Exception as error:
            error.add_note(f"Raised by the function of {self.name}.")
            raise
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            raise TypeError(
                f"The function of {self.name} must return an array of real numbers, "
                f"got {values.dtype}."
            )
        values = values.astype(np.float64)
        if values.shape != (len(part),):
            raise ValueError(
                f"The function of {self.name} must return an array of shape "
                f"({len(part)},), as its arguments have, got shape {values.shape}."
            )
        return values

    def gap(self, part: np.ndarray) -> np.ndarray:
        """Return by how much the sides differ (rows,)."""
        return part[:, 0] - self.value(part)

    def size(self, part: np.ndarray) -> np.ndarray:
        """Return what errors are relative to (rows,)."""
        return np.maximum(abs(part[:, 0]), abs(self.value(part)))

    def solve(self, part: np.ndarray, place: int) -> np.ndarray:
        """Compute a column from the others (rows,).

        Of several solutions it is the one nearest to the cell of `part`, or, if that is
        missing, to the median; NaN without one, or if the column makes no difference.
        """
        if place == 0:
            return self.value(part)
        column, moved = self.columns[place], part.copy()
        low, high = self.ranges[:, column]

        def gap(cells: np.ndarray) -> np.ndarray:
            moved[:, place] = cells
            return self.gap(moved)

        middle = self.bounds.middle[column]
        start = np.where(np.isnan(part[:, place]), middle, part[:, place])
        moves = np.concatenate([-_OFFSETS[::-1], [0.0], _OFFSETS])
        moves = self.bounds.deviation[column] * moves[:, None]
        moves = moves.clip(low - start, high - start)
        # rounding errors must not move points beyond the ends
        return _zero_of(gap, (start + moves).clip(low, high), abs(moves))


def _zero_of(
    gap: Callable[[np.ndarray], np.ndarray], points: np.ndarray, distances: np.ndarray
) -> np.ndarray:
    """Find zeros of a gap between points (n_points, n) by bisection; (n,).

    Of several zeros it is that of the smallest distance; NaN without one, or if the
    gap is 0 everywhere.  Where it jumps across 0 there is none.
    """
    gaps = np.array([gap(point) for point in points])
    with np.errstate(invalid="ignore"):
        # signs, because products of large gaps overflow
        change = np.sign(gaps[:-1]) * np.sign(gaps[1:]) <= 0
    # a gap that is 0 wherever it is a number determines nothing
    change &= ~(np.isnan(gaps) | (gaps == 0)).all(0)
    distance = np.maximum(distances[:-1], distances[1:])
    root, rows = np.full(points.shape[1], np.nan), np.arange(points.shape[1])
    # each pass but the first leaves out changes of sign where the gap jumps
    for _ in range(len(change)):
        best = np.where(change, distance, np.inf).argmin(0)
        crosses = change[best, rows] & np.isnan(root)
        if not crosses.any():
            break
        ends = points[best, rows], points[best + 1, rows]
        new = _bisected(gap, *ends, gaps[best, rows])
        error, apart = abs(gap(new)), abs(gaps[[best, best + 1], rows]).max(0)
        root = np.where(crosses & np.isfinite(error) & (2 * error <= apart), new, root)
        change[best, rows] = False
    return root


def _bisected(
    gap: Callable[[np.ndarray], np.ndarray],
    low: np.ndarray,
    high: np.ndarray,
    first: np.ndarray,
) -> np.ndarray:
    """Find where a gap changes its sign between points (n,); `first`: of `low`."""
    sign = np.sign(first)
    # bisection comes close to a zero at 0, but not relative to its size
    around = (low <= 0) & (high >= 0) & (gap(np.zeros(len(low))) == 0)
    exact = np.where(around, 0.0, np.where(sign == 0, low, np.nan))
    for _ in range(_HALVINGS):
        # low + high may overflow
        middle = low + (high - low) / 2
        below = np.sign(gap(middle)) == sign
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(np.isnan(exact), high, exact)
