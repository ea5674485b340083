"""Cells that follow from the observed ones by relations."""

from collections.abc import Sequence

import numpy as np

from skvnce.relations.columns import Columns
from skvnce.relations.formulas import Checked, Formula, Rule, snapped

_ROUNDS = 10
_BEYOND = 0.5  # of the observed range: values farther out are refused


def closed(columns: Columns, cells: np.ndarray, rules: Sequence[Checked]) -> np.ndarray:
    """Compute cells (rows, p) that rules determine, until nothing changes.

    Exact formulas come first, then lookups and steps, then formulas that hold up to
    rounding. Observed cells stay.
    """
    cells = cells.copy()
    with np.errstate(all="ignore"):
        for _ in range(_ROUNDS):
            before = np.isnan(cells).sum()
            for one in sorted(rules, key=lambda one: _rank(one.rule)):
                _apply(columns, cells, one.rule, one.solves)
            if np.isnan(cells).sum() == before:
                break
    return cells


def _rank(rule: Rule) -> tuple[int, int]:
    is_formula = isinstance(rule, Formula)
    return (1 if not is_formula else 2 * (rule.tier > 0), len(rule.columns))


def _apply(
    columns: Columns, cells: np.ndarray, rule: Rule, solves: Sequence[int]
) -> None:
    """Fill, in place, where a single column of a rule is missing."""
    places = list(rule.columns)
    missing = np.isnan(cells[:, places])
    for k, j in enumerate(places):
        rows = np.flatnonzero(missing[:, k] & (missing.sum(1) == 1))
        if j not in solves or not len(rows):
            continue
        new = snapped(rule.solve(cells[np.ix_(rows, places)], k), columns.unit[j])
        low, high = columns.range(j)
        beyond = _BEYOND * (high - low)
        good = (new >= low - beyond) & (new <= high + beyond)
        if len(columns.values[j]) <= 2:
            good &= np.isin(new, columns.values[j])
        cells[rows[good], j] = new[good]
