"""Scores of columns: standardised cells, or normal scores of their ranks.

A score is a piecewise linear, increasing function of the cell.  Beyond the observed
cells it continues with its average slope, and cells that are valid end at the range of
the column, so that means are those of draws which are clipped to it.
"""

from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce._core.numbers import power_of_two
from skvnce.gaussian import tails

Pair = tuple[np.ndarray, np.ndarray]
Peaks = list[tuple[float, float, float]]  # cells, and the scores between which they are

_N_POINTS = 40  # more change errors of the means in the third digit only
_FARTHEST = 3.7  # largest normal score of an observed cell: P = 1 / 9,000
_LARGEST = 1e6  # absolute score of a cell of other rows, whose square is no problem
_PEAK = 0.03  # share of equal cells from which these are a peak
_ROWS_OF_PEAK = 3  # at least, as one of a few rows has a large share
_ERRORS = 6.0  # standard deviations that a peak exceeds equal cells by chance
_OF_ONE_ROW = 0.1  # largest share of equal cells that are taken for copies of one row
_JUMP = 1e-6  # between the scores of peaks that follow one another
_TAIL = np.linspace(0.0, 6.0, 25)  # minus logarithms of the points of a tail
_FAR = 100.0  # distance, in scores, of the last points, which make the tails linear


class Points(NamedTuple):
    """Piecewise linear functions from scores to cells, one a column."""

    # (d, n_points), the last is repeated if a column has fewer points
    scores: np.ndarray
    cells: np.ndarray
    counts: np.ndarray  # int (d,)

    @classmethod
    def of(cls, pairs: list[Pair]) -> Self:
        """Collect scores and cells of the columns, the last of equal scores."""
        rise = [np.append(np.diff(scores) > 0, True) for scores, _ in pairs]
        pairs = [(s[r], c[r]) for (s, c), r in zip(pairs, rise, strict=True)]
        counts = np.array([len(scores) for scores, _ in pairs], dtype=np.int64)
        widest = counts.max(initial=2)
        scores, cells = np.zeros((2, len(pairs), widest))
        for j, pair in enumerate(pairs):
            for table, row in zip((scores, cells), pair, strict=True):
                table[j, : len(row)], table[j, len(row) :] = row, row[-1]
        return cls(scores, cells, counts)

    def pair(self, j: int) -> Pair:
        """Return the scores and cells of a column."""
        return self.scores[j, : self.counts[j]], self.cells[j, : self.counts[j]]

    def take(self, columns: np.ndarray) -> Self:
        """Return the functions of some columns."""
        return type(self)(*(part[columns] for part in self))

    def to_scores(self, x: np.ndarray) -> np.ndarray:
        """Map cells (n, d) to scores; NaN stays."""
        scores = np.empty(x.shape)
        for j, column in enumerate(x.T):
            scores[:, j] = self.scores_of(j, column)
        return scores

    def scores_of(self, j: int, column: np.ndarray) -> np.ndarray:
        """Map cells (*batch) of a column to scores; NaN stays."""
        scores, cells = self.pair(j)
        mapped = np.interp(column, cells, scores)
        slopes = np.diff(scores)[[0, -1]] / np.diff(cells)[[0, -1]]
        mapped += slopes[0] * np.minimum(column - cells[0], 0.0)
        mapped += slopes[1] * np.maximum(column - cells[-1], 0.0)
        return mapped.clip(-_LARGEST, _LARGEST)

    def to_cells(self, scores: np.ndarray) -> np.ndarray:
        """Map scores (..., d) to cells."""
        cells = np.empty(scores.shape)
        for j in range(len(self.counts)):
            cells[..., j] = np.interp(scores[..., j], *self.pair(j))
        return cells

    def log_slopes(self, x: np.ndarray) -> np.ndarray:
        """Sum, over the observed cells of rows (n, d), logs of slopes of the scores."""
        total = np.zeros(len(x))
        for j, column in enumerate(x.T):
            scores, cells = self.pair(j)
            slopes = np.log(np.diff(scores) / np.diff(cells))
            piece = np.searchsorted(cells[1:-1], column)
            total += np.where(np.isnan(column), 0.0, slopes[piece])
        return total

    def within(self, low: np.ndarray, high: np.ndarray) -> Self:
        """Let cells end at a range (d,) each; infinite ends are none."""
        return type(self).of(
            [
                _ended(*self.pair(j), *ends)
                for j, ends in enumerate(zip(low, high, strict=True))
            ]
        )

    def with_signs(
        self,
        x: np.ndarray,  # (n, d), cells
        weights: np.ndarray,  # (n,)
        signs: np.ndarray,  # (d,), of the cells, which functions keep; 0 of others
        least: np.ndarray,  # (d,), least sizes of these cells
    ) -> Self:
        """Let the tails of columns of one sign keep it; see `gaussian.tails`."""
        pairs = [self.pair(j) for j in range(len(self.counts))]
        for j in np.flatnonzero(signs):
            turn = slice(None, None, int(signs[j]))
            pair = (signs[j] * part[turn] for part in pairs[j])
            values, of_values = _observed(signs[j] * x[:, j], weights)
            pair = _positive(*pair, values, of_values, least[j])
            pairs[j] = tuple(signs[j] * part[turn] for part in pair)
        return type(self).of(pairs)

    def with_peaks(self, peaks: list[Peaks]) -> Self:
        """Let intervals of scores have the same cell, in each column."""
        return type(self).of(
            [_peaked(*self.pair(j), peaks[j]) for j in range(len(self.counts))]
        )


def _positive(
    scores: np.ndarray,
    cells: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    least: float,
) -> Pair:
    """Replace the left tail of a function by a positive one, and end it there."""
    scale = _standard(values, weights)[1] @ [-0.5, 0.5] / _FAR
    levels = tails.levels(torch.zeros(1).double()).numpy()
    among = np.interp(levels, scores, cells)[:, None].repeat(len(values), 1) / scale
    t, b = tails.tail_of(*map(torch.from_numpy, (weights, values / scale, among)))
    # where the function has these cells, as far as it goes
    below = (t - _TAIL / b)[::-1] * scale
    inside = cells > t * scale
    tail = np.maximum(t * scale * np.exp(-_TAIL[::-1]), 0.6 * least)
    tail_scores = np.interp(below, cells, scores)
    return np.append(tail_scores, scores[inside]), np.append(tail, cells[inside])


def _peaked(scores: np.ndarray, cells: np.ndarray, peaks: Peaks) -> Pair:
    """Make a function constant where the cell is that of a peak."""
    for cell, low, high in peaks:
        if cells[0] <= cell <= cells[-1]:
            low, high = max(low + _JUMP, scores[0]), min(high, scores[-1])
            below, above = scores < low, scores > high
            at = np.array([low - _JUMP, low, high, high + _JUMP])
            to = np.array([cell] * 4)
            to[[0, 3]] = np.interp([low, high], scores, cells)
            # a tail goes on where it is without the peak
            used = [below.sum() == 1, True, True, above.sum() == 1]
            scores = np.concatenate([scores[below], at[used], scores[above]])
            cells = np.concatenate([cells[below], to[used], cells[above]])
    return scores, cells


def _ended(scores: np.ndarray, cells: np.ndarray, low: float, high: float) -> Pair:
    """Replace the tails of a function by constants, from where it reaches its range."""
    low = max(low, cells[0]) if np.isfinite(low) else low  # ends may be far beyond
    high = min(high, cells[-1]) if np.isfinite(high) else high
    inside = (cells > low) & (cells < high)
    first, last = np.interp([low, high], cells, scores)
    parts_scores, parts_cells = [scores[inside]], [cells[inside]]
    if np.isfinite(low):
        parts_scores.insert(0, np.array([first - 1.0, first]))
        parts_cells.insert(0, np.array([low, low]))
    if np.isfinite(high):
        parts_scores.append(np.array([last, last + 1.0]))
        parts_cells.append(np.array([high, high]))
    return np.concatenate(parts_scores), np.concatenate(parts_cells)


def standardised(
    x: np.ndarray, weights: np.ndarray, by_rank: np.ndarray | None = None
) -> Points:
    """Make the scores that have mean 0 and variance 1, of columns of (n, d).

    Columns `by_rank` (d,) have normal scores, by default those that `have_peaks`: no
    linear function has these.
    """
    by_rank = have_peaks(x, weights) if by_rank is None else by_rank
    makers = (_by_rank if ranked else _standard for ranked in by_rank)
    columns = zip(makers, x.T, strict=True)
    return Points.of([make(*_observed(column, weights)) for make, column in columns])


def have_peaks(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return which columns of (n, d) have numbers that hardly repeat, but for peaks."""
    rows = _different_rows(x, weights)
    peaked = [
        _has_peaks(*_observed(column, weights, counts))
        for column, counts in zip(x.T, rows.T, strict=True)
    ]
    return np.array(peaked, dtype=bool)


def normal_scores(x: np.ndarray, weights: np.ndarray) -> Points:
    """Make the scores that are normal quantiles of the ranks in columns of (n, d)."""
    return Points.of([_by_rank(*_observed(column, weights)) for column in x.T])


def peaks(x: np.ndarray, weights: np.ndarray, points: Points) -> list[Peaks]:
    """Find cells that are often equal, in columns of (n, d) with normal scores.

    All scores between the normal quantiles of the shares of smaller, and of smaller or
    equal cells have this cell, so that it is drawn as often as it is observed.  Linear
    functions have no peaks.
    """
    rows = _different_rows(x, weights)
    return [
        _peaks(*_observed(column, weights, counts)) if count > 2 else []
        for column, counts, count in zip(x.T, rows.T, points.counts, strict=True)
    ]


def _different_rows(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Count rows by their weights, but copies of one row as one; (n, d), by column.

    So a row of weight k is k equal rows, and is not taken for k rows with equal cells.
    Equal rows are copies if a cell of another column is rare, and that hardly repeats.
    """
    are_rare = np.zeros(x.shape, dtype=bool)
    for j, column in enumerate(x.T):
        values, of_values = _observed(column, weights)
        unique, place = np.unique(values, return_inverse=True)
        mass = np.bincount(place, of_values)
        if _ROWS_OF_PEAK * len(unique) >= mass.sum():
            rare = unique[mass < _OF_ONE_ROW * mass.sum()]
            are_rare[:, j] = np.isin(column, rare)
    used = np.flatnonzero(weights > 0)
    comparable = np.where(np.isnan(x[used]), np.inf, x[used])
    first = np.unique(comparable, axis=0, return_index=True)[1]
    is_first = np.zeros(len(x))
    is_first[used[first]] = 1.0
    are_copies = are_rare.sum(1, keepdims=True) > are_rare
    return np.where(are_copies, is_first[:, None], weights[:, None])


def _has_peaks(values: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> bool:
    """Return whether some cells are often equal, and others hardly ever."""
    at = [cell for cell, _, _ in _peaks(values, weights, rows)]
    others = ~np.isin(values, at)
    n_others, total = len(np.unique(values[others])), rows[others].sum()
    if not at or 2 * n_others <= total:
        return False
    # on a grid cells are equal by chance, and about twice as often at the mode
    often = 4 * max(total / n_others - 1, 0.0)
    largest = max(rows[values == cell].sum() for cell in at)
    return bool(largest > often + _ERRORS * np.sqrt(often))


def _peaks(values: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> Peaks:
    unique, place = np.unique(values, return_inverse=True)
    share = np.bincount(place, weights) / weights.sum()
    count = np.bincount(place, rows)
    edges = np.append(0.0, share.cumsum().clip(max=1.0))
    # nothing is beyond a pile at an end, and half a row beyond the end of a grid
    often = (count.sum() - count[[0, -1]]) / max(len(unique) - 1, 1)
    is_grid = count[[0, -1]] <= often + _ERRORS * np.sqrt(often)
    beyond = is_grid * share[[0, -1]] / (2 * count[[0, -1]].clip(min=1.0))
    edges[[0, -1]] += beyond * [1.0, -1.0]
    scores = torch.special.ndtri(torch.from_numpy(edges)).numpy()
    is_peak = (share >= _PEAK) & (count >= _ROWS_OF_PEAK)
    return list(
        zip(unique[is_peak], scores[:-1][is_peak], scores[1:][is_peak], strict=True)
    )


def _observed(column: np.ndarray, *of_rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Select the observed cells of a column, and values of their rows."""
    observed = ~np.isnan(column) & (of_rows[0] > 0)
    return column[observed], *(values[observed] for values in of_rows)


def _standard(values: np.ndarray, weights: np.ndarray) -> Pair:
    mean = np.average(values, weights=weights)
    apart = values - mean
    size = power_of_two(abs(apart).max())  # no square overflows
    scale = size * np.sqrt(np.average((apart / size) ** 2, weights=weights))
    far = np.array([-_FAR, _FAR])
    return far, mean + far * (scale or 1.0)


def _by_rank(values: np.ndarray, weights: np.ndarray) -> Pair:
    unique, place = np.unique(values, return_inverse=True)
    if len(unique) < 3:  # two points have no shape
        return _standard(values, weights)
    mass = np.bincount(place, weights)
    # of smaller cells, and of half of the equal ones
    share = (mass.cumsum() - mass / 2) / mass.sum()
    scores = torch.special.ndtri(torch.from_numpy(share)).numpy()
    scores = scores.clip(-_FARTHEST, _FARTHEST)
    is_new = np.concatenate([[True], np.diff(scores) > 0])
    scores, cells = scores[is_new], unique[is_new]
    cells[-1] = unique[-1]  # of equal clipped scores, `is_new` has the first
    if len(scores) > _N_POINTS:
        grid = np.linspace(scores[0], scores[-1], _N_POINTS)
        cells = np.interp(grid, scores, cells)
        scores = grid
    slope = (cells[-1] - cells[0]) / (scores[-1] - scores[0])
    tails = cells[0] - _FAR * slope, cells[-1] + _FAR * slope
    scores = np.concatenate([[scores[0] - _FAR], scores, [scores[-1] + _FAR]])
    return scores, np.concatenate([tails[:1], cells, tails[1:]])
