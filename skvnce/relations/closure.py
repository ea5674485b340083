"""Cells that follow from the observed ones by relations."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from skvnce.relations.columns import TYPOS, Columns
from skvnce.relations.formulas import Checked, Formula, Rule, snapped

_ROUNDS = 10
_BEYOND = 0.5  # of the observed range: values farther out are refused
_OFF = 0.02  # standard deviations by which a cell may miss a rule
_DIGIT = 1e-3  # share of the last stored digit: less is rounding of float64
_FEWEST = 20  # cells other than the median, of which others are far
_MOST_WRONG = 0.01  # share of the rows of a table that may violate a rule


class Bounds(NamedTuple):
    """What computed cells of the columns of a table may be."""

    unit: np.ndarray  # (p,), of the last stored digit; 0 if there is none
    deviation: np.ndarray  # (p,), the standard deviation; 1 of constants
    low: np.ndarray  # (p,), the smallest and the largest value
    high: np.ndarray
    pair: np.ndarray  # (p, 2), the values of columns of two; NaN of others

    @classmethod
    def of(cls, columns: Columns) -> Self:
        """Describe the columns of a table."""
        ends = np.full((2, len(columns.values)), np.nan)
        pair = np.full((len(columns.values), 2), np.nan)
        for j, values in enumerate(columns.values):
            if len(values):
                ends[:, j] = values[[0, -1]]
            if len(values) == 2:
                pair[j] = values
        return cls(columns.unit, columns.deviation, *ends, pair)

    def allow(
        self, numbers: np.ndarray, place: int, ranges: float = _BEYOND
    ) -> np.ndarray:
        """Return which numbers a column may have, within `ranges` of it (rows,)."""
        if not np.isnan(self.pair[place, 0]):
            return np.isin(numbers, self.pair[place])
        low, high = self.low[place], self.high[place]
        beyond = ranges * (high - low)
        return (numbers >= low - beyond) & (numbers <= high + beyond)


def closed(bounds: Bounds, cells: np.ndarray, rules: Sequence[Checked]) -> np.ndarray:
    """Compute cells (rows, p) that rules determine, until nothing changes.

    Exact formulas come first, then lookups and steps, then formulas that hold up to
    rounding. Observed cells stay. Numbers far from the observed ones are those of exact
    formulas alone.
    """
    cells = cells.copy()
    rules = sorted(rules, key=lambda one: _rank(one.rule))
    with np.errstate(all="ignore"):
        for _ in range(_ROUNDS):
            before = np.isnan(cells).sum()
            for one in rules:
                _apply(bounds, cells, one.rule, one.solves)
            if np.isnan(cells).sum() == before:
                break
    return cells


def holds(bounds: Bounds, cells: np.ndarray, checked: Checked) -> bool:
    """Return whether at most 1 % of the rows (rows, p), or one row, violate a rule."""
    part = cells[:, list(checked.rule.columns)]
    part = part[~np.isnan(part).any(1)]
    wrong = misses(bounds, part, checked)
    return wrong.sum() <= max(_MOST_WRONG * len(part), 1)


def misses(bounds: Bounds, part: np.ndarray, checked: Checked) -> np.ndarray:
    """Return which rows (rows, k) of the columns of a rule violate it (rows,)."""
    places, wrong = checked.rule.columns, np.ones(len(part), bool)
    with np.errstate(all="ignore"):
        for k, j in enumerate(places):
            if j not in checked.solves:
                continue
            near = max(bounds.unit[j] * 0.51, _OFF * bounds.deviation[j])
            cells = snapped(checked.rule.solve(part, k), bounds.unit[j])
            # where the rule says nothing, nothing is violated
            wrong &= abs(cells - part[:, k]) > near
    return wrong


def is_set(bounds: Bounds, rule: Rule) -> bool:
    """Tell whether a rule is that one of some columns of zeros and ones is 1."""
    if not isinstance(rule, Formula) or rule.constant != 1:
        return False
    are_binary = (bounds.pair[list(rule.columns)] == [0, 1]).all()
    return bool(are_binary) and set(rule.coefs) == {1.0}


def is_exact(rule: Rule) -> bool:
    """Tell whether a rule is a formula that holds without rounding."""
    return isinstance(rule, Formula) and rule.tier == 0


def has_more_digits(part: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Tell which rows (rows, k) have more digits than their columns had (rows,).

    By an exact formula other cells have more of them, too.
    """
    scaled = part / np.where(units > 0, units, np.nan)
    return (abs(scaled - np.rint(scaled)) > _DIGIT + 1e-9 * abs(scaled)).any(1)


def suspects(
    bounds: Bounds, cells: np.ndarray, rules: Sequence[Checked]
) -> list[tuple[int, int, int]]:
    """List gross cells from which a formula computes cells far from the observed ones.

    Returns row, column, and the column that follows.
    """
    gross, listed = np.stack([_gross(column) for column in cells.T], 1), []
    for one in rules:
        places = list(one.rule.columns)
        missing = np.isnan(cells[:, places])
        rows = gross[:, places].any(1) & (missing.sum(1) == 1)
        for row in np.flatnonzero(rows & isinstance(one.rule, Formula)).tolist():
            k, part = int(missing[row].argmax()), cells[[row]][:, places]
            follows = places[k] in one.solves
            if follows and not bounds.allow(one.rule.solve(part, k), places[k])[0]:
                column = places[int(gross[row, places].argmax())]
                listed.append((row, column, places[k]))
    return listed


def _gross(column: np.ndarray) -> np.ndarray:
    """Tell which cells are far from all others (n,), also for a skewed column.

    The k largest distances d from the median are gross if arsinh(d / spread), which
    is like a logarithm, is twice that of all others: heavy tails have no such gaps.
    """
    seen = column[~np.isnan(column)]
    apart = np.sort(abs(seen - np.median(seen))) if len(seen) else seen
    if (apart > 0).sum() < _FEWEST:
        return np.zeros(len(column), bool)
    spread = np.median(apart[apart > 0])
    tail = apart[-1 - max(1, int(TYPOS * len(seen))) :]
    most = 2 * tail[:-1] * np.sqrt(1 + (tail[:-1] / spread) ** 2)
    gaps = np.flatnonzero((tail[1:] > most) & (tail[:-1] > 0))
    farthest = tail[gaps[0]] if len(gaps) else np.inf
    return abs(column - np.median(seen)) > farthest


def _rank(rule: Rule) -> tuple[int, int]:
    is_formula = isinstance(rule, Formula)
    return (1 if not is_formula else 2 * (rule.tier > 0), len(rule.columns))


def _apply(
    bounds: Bounds, cells: np.ndarray, rule: Rule, solves: Sequence[int]
) -> None:
    """Fill, in place, where a single column of a rule is missing."""
    places = list(rule.columns)
    missing = np.isnan(cells[:, places])
    if is_set(bounds, rule):  # beside a 1 there are zeros
        rows = missing.any(1) & (np.nansum(cells[:, places], 1) == 1)
        cells[np.ix_(rows, places)] = np.nan_to_num(cells[np.ix_(rows, places)])
        missing[rows] = False
    alone = missing.sum(1) == 1
    for k, j in enumerate(places):
        rows = np.flatnonzero(missing[:, k] & alone)
        if j not in solves or not len(rows):
            continue
        part = cells[np.ix_(rows, places)]
        new, units = rule.solve(part, k), bounds.unit[places]
        has_more = is_exact(rule) & has_more_digits(part, units)
        new = np.where(has_more, new, snapped(new, units[k]))
        good = np.isfinite(new) if is_exact(rule) else bounds.allow(new, j)
        cells[rows[good], j] = new[good]
