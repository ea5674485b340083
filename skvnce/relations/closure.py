"""Cells that follow from the observed ones by relations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skvnce.relations.columns import Bounds
from skvnce.relations.formulas import EXACT, OTHER, Checked

_OFF = 0.02  # standard deviations by which a cell may miss a rule
_DIGIT = 1e-3  # share of the last stored digit: less is rounding of float64
MOST_WRONG = 0.01  # share of the rows of a table that may violate a rule


def closed(
    bounds: Bounds,
    cells: np.ndarray,
    rules: Sequence[Checked],
    *,
    are_observed: bool = True,  # whether no cell has been computed from others
) -> np.ndarray:
    """Compute cells (rows, p) that rules determine, until nothing changes.

    Exact formulas come first, then lookups and steps, then formulas that hold up to
    rounding. Observed cells stay. Numbers far from the observed ones are those of exact
    formulas alone, and parts and factors do not follow from doubtful cells if they are.
    """
    cells = cells.copy()
    rules = sorted(rules, key=lambda checked: (checked.rule.rank, len(checked.columns)))
    with np.errstate(all="ignore"):
        doubtful = _doubtful(bounds, cells, rules, are_observed=are_observed)
        # what follows from doubtful cells comes last
        for uses_all in (False, True) if doubtful.any() else (True,):
            n_left = -1
            while n_left != (n_left := np.isnan(cells).sum()):
                for checked in rules:
                    _apply(bounds, cells, checked, doubtful, uses_all=uses_all)
    return cells


def holds(bounds: Bounds, cells: np.ndarray, checked: Checked) -> bool:
    """Return whether at most 1 % of the rows (rows, p), or one row, violate a rule."""
    part = cells[:, list(checked.columns)]
    part = part[~np.isnan(part).any(1)]
    wrong = misses(bounds, part, checked)
    return wrong.sum() <= max(MOST_WRONG * len(part), 1)


def misses(bounds: Bounds, part: np.ndarray, checked: Checked) -> np.ndarray:
    """Return which rows (rows, k) of the columns of a rule violate it (rows,)."""
    places, wrong = checked.columns, np.ones(len(part), bool)
    with np.errstate(all="ignore"):
        for k, j in enumerate(places):
            if j not in checked.solves:
                continue
            near = max(bounds.unit[j] * 0.51, _OFF * bounds.deviation[j])
            cells = bounds.snapped(checked.rule.solve(part, k), j)
            # where the rule says nothing, nothing is violated
            wrong &= abs(cells - part[:, k]) > near
    return wrong


def has_more_digits(
    bounds: Bounds, cells: np.ndarray, *, by_step: bool = False
) -> np.ndarray:
    """Tell which rows have more digits than their columns had (rows,).

    By an exact formula other cells have more of them, too. By step: which have cells
    between the steps of their columns.
    """
    off = abs(cells - bounds.snapped(cells, by_step=by_step))
    return (off > _DIGIT * bounds.unit + 1e-9 * abs(cells)).any(1)


class Suspect(NamedTuple):
    """A cell that may be a typo, and another one of its row that follows from it."""

    row: int
    column: int
    follower: int
    is_used: bool  # whether the other cell is computed from it all the same


def suspects(
    bounds: Bounds, cells: np.ndarray, rules: Sequence[Checked]
) -> list[Suspect]:
    """List doubtful cells from which formulas compute cells far from observed ones."""
    doubtful, listed = _doubtful(bounds, cells, rules), []
    filled = closed(bounds, cells, rules) if doubtful.any() else cells
    for checked in rules:
        places = list(checked.columns)
        missing = np.isnan(cells[:, places])
        rows = doubtful[:, places].any(1) & (missing.sum(1) == 1)
        for row in np.flatnonzero(rows & (checked.rule.rank != OTHER)).tolist():
            k, part = int(missing[row].argmax()), cells[[row]][:, places]
            follows = places[k] in checked.solves
            solved = checked.rule.solve(part, k)
            if follows and not bounds.allow(solved, places[k])[0]:
                column = places[int(doubtful[row, places].argmax())]
                is_used = bool(np.isclose(filled[row, places[k]], solved)[0])
                listed.append(Suspect(row, column, places[k], is_used))
    return listed


def _doubtful(
    bounds: Bounds,
    cells: np.ndarray,
    rules: Sequence[Checked],
    *,
    are_observed: bool = True,
) -> np.ndarray:
    """Tell which cells are gross and confirmed by no formula of the row (rows, p).

    Cells that may have been computed from a gross one do not confirm it, and are
    doubtful, too.
    """
    gross = bounds.gross(cells)
    rows, blocks = np.flatnonzero(gross.any(1)), []
    for checked in rules if len(rows) else ():
        if checked.rule.rank != OTHER:
            places = list(checked.columns)
            part = cells[np.ix_(rows, places)]
            confirms = ~np.isnan(part).any(1) & ~misses(bounds, part, checked)
            blocks.append(np.ix_(rows[confirms], places))
    if are_observed:
        for block in blocks:
            gross[block] = False
        return gross
    n_doubtful = -1
    while n_doubtful != (n_doubtful := gross.sum()):
        for block in blocks:
            gross[block] |= gross[block].any(1, keepdims=True)
    return gross


def _apply(
    bounds: Bounds,
    cells: np.ndarray,
    checked: Checked,
    doubtful: np.ndarray,
    *,
    uses_all: bool,  # also doubtful cells
) -> None:
    """Fill, in place, where a single column of a rule is missing."""
    rule, places = checked.rule, list(checked.columns)
    missing = np.isnan(cells[:, places])
    if rule.is_set:  # beside a 1 there are zeros
        rows = missing.any(1) & (np.nansum(cells[:, places], 1) == 1)
        cells[np.ix_(rows, places)] = np.nan_to_num(cells[np.ix_(rows, places)])
        missing[rows] = False
    alone = missing.sum(1) == 1
    for k, j in enumerate(places):
        rows = np.flatnonzero(missing[:, k] & alone)
        if j not in checked.solves or not len(rows):
            continue
        part = cells[np.ix_(rows, places)]
        new = rule.solve(part, k)
        has_more = (rule.rank == EXACT) & has_more_digits(bounds.of(places), part)
        new = np.where(has_more, new, bounds.snapped(new, j))
        doubt = doubtful[np.ix_(rows, places)].any(1)
        good = bounds.allow(new, j)
        if rule.rank == EXACT:
            # a total, or a function, says what the others say
            restates = k == rule.total or len(places) == 2
            good |= np.isfinite(new) & (restates | ~doubt)
        good &= uses_all | ~doubt
        cells[rows[good], j], doubtful[rows[good], j] = new[good], doubt[good]
