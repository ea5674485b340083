r"""Filled cells that are changed until formulas hold.

Formulas are solved one after the other: for the total if it is missing, and else for
another missing cell, after those of a sum have moved to the nearest solution in units
of the standard deviations s of the columns,

.. math:: \min_\delta \sum_j \delta_j^2 / s_j^2, \quad A (x + \delta) = 0, \qquad (1)

which is what conditioning does to independent normal cells.  Where that fails, because
formulas have columns in common, all missing cells of the row move together.
"""

from collections.abc import Sequence
from itertools import compress, permutations, product
from typing import NamedTuple, Self

import numpy as np

from skvnce.relations.closure import has_more_digits
from skvnce.relations.columns import BEYOND, Bounds
from skvnce.relations.formulas import (
    FLOAT64,
    KNOWN,
    OTHER,
    Checked,
    Formula,
    joined_columns,
)

# digits of a cell, and relative errors, up to which formulas hold
_PRECISIONS = {KNOWN: (1e-9, 1e-9), 0: (1e-3, 1.2e-6)}
EXACT = 1e-9  # relative error of an equation that is solved, or of the user
_ROUNDED = 1e6  # squared distance: digits of a column may admit no exact numbers
_WITHIN = 0.45  # digits of a rounded total, within which numbers agree with it
_WHOLE = 1e-6  # by which whole numbers may differ from one
_FAR = 3  # ranges by which parts leave their own
_MOVES = np.linspace(-1, 1, 81)  # of a factor, in ranges of its column or 40 units
_STEPS = 50  # by which formulas are solved together
_CUTS = 20  # times that a step is halved
_CREEPING = 0.99  # a step that leaves more of the squared gaps leads to no solution
_DIFFERENCE = 1e-7  # by which slopes are computed, relative to cells
_RANK = 1e-13  # relative squared slope below which a formula follows from others


class Filled(NamedTuple):
    """Rows (n, p) with filled cells, which may change."""

    values: np.ndarray
    free: np.ndarray  # bool, which cells are filled
    ranges: np.ndarray  # (2, n, p), where they are
    scores: np.ndarray  # in a set, the column of the highest one is 1

    def of(self, rows: np.ndarray, values: np.ndarray | None = None) -> Self:
        """Select rows, with other values, if given."""
        cells = (self.values if values is None else values)[rows]
        return Filled(cells, self.free[rows], self.ranges[:, rows], self.scores[rows])


@np.errstate(all="ignore")  # cells without a solution become infinite
def obeyed(
    bounds: Bounds,
    formulas: Sequence[Checked],
    cells: Filled,
    fixed: Sequence[int] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """Change filled cells within their ranges until formulas hold.

    Columns in `fixed` move only in rows where the others do not suffice. Returns the
    cells (n, p), and in which rows all formulas hold or have no filled cell (n,).
    """
    values = np.where(cells.free, cells.values.clip(*cells.ranges), cells.values)
    number, hold = joined_columns(formulas, values.shape[1]), np.ones(len(values), bool)
    of_formulas = np.array([number[checked.columns[0]] for checked in formulas])
    for group in np.unique(of_formulas):
        connected = _in_order(list(compress(formulas, of_formulas == group)))
        rows = np.flatnonzero(cells.free[:, number == group].any(1))
        for locked in (fixed, ()) if len(fixed) else ((),):
            now = cells.of(rows, values)
            now.free[:, list(locked)] = False
            values[rows], good = _solved(bounds, connected, now)
            rest = [
                checked for checked in connected if set(locked) & set(checked.columns)
            ]
            good &= which_hold(bounds, rest, values[rows], cells.free[rows]).all(1)
            rows = rows[~good]
        hold[rows] = False
    return values, hold


def _solved(
    bounds: Bounds, formulas: list[Checked], cells: Filled
) -> tuple[np.ndarray, np.ndarray]:
    """Solve formulas in turn and, where that fails, together; see `obeyed`."""
    solved = _in_turn(bounds, formulas, cells)
    n_held = which_hold(bounds, formulas, solved, cells.free).sum(1)

    # whole numbers stay whole, but equations of the user hold at any rate
    whole = (bounds.unit >= 1) & all(formula.rule.tier >= 0 for formula in formulas)

    def take(rows: np.ndarray, new: np.ndarray) -> None:
        """Take new cells of rows in which more formulas hold by them."""
        n_new = which_hold(bounds, formulas, new, cells.free[rows]).sum(1)
        part = np.where(cells.free[rows] & whole, new, 0.0)
        is_whole = (abs(part - np.rint(part)) < _WHOLE).all(1)
        better = (n_new > n_held[rows]) & is_whole
        solved[rows[better]], n_held[rows[better]] = new[better], n_new[better]

    smooth = [checked for checked in formulas if not checked.rule.is_set]
    sets = [checked for checked in formulas if checked.rule.is_set]
    if sets:
        # a 1 of a set may contradict an observed total of some of its columns
        wrong = np.flatnonzero(n_held < len(formulas))
        take(wrong, _in_turn(bounds, smooth + sets, cells.of(wrong)))
    # far cells may lead to no solution; then those of average rows do mostly
    usual, unrounded = _usual(bounds, cells), []
    # at last, from the nearest so far
    for start in (cells.values, usual.values, solved):
        wrong = np.flatnonzero(n_held < len(formulas))
        if not len(wrong):
            break
        joint = _together(smooth, bounds.deviation, usual.of(wrong, start))
        unrounded.append((wrong, joint))
        trial = cells.of(wrong)._replace(values=joint)
        take(wrong, _in_turn(bounds, formulas, trial))
    if not sets:
        # last, cells with more digits than their columns have: rounding of one cell
        # may leave other formulas without a solution
        for rows, joint in unrounded:
            take(rows, joint)
    return solved, n_held == len(formulas)


def _usual(bounds: Bounds, cells: Filled) -> Filled:
    """Fill cells by medians, with ranges that are not far from the observed cells."""
    beyond = _FAR * (bounds.high - bounds.low)
    low = np.maximum(cells.ranges[0], bounds.low - beyond)
    high = np.minimum(cells.ranges[1], bounds.high + beyond)
    usual = np.where(cells.free, bounds.middle.clip(*cells.ranges), cells.values)
    return cells._replace(values=usual, ranges=np.stack([low, high]))


def which_hold(
    bounds: Bounds, formulas: Sequence[Checked], values: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """Return which formulas hold, or have no free cell; bool (n, formulas)."""
    hold = np.ones((len(values), len(formulas)), bool)
    for k, checked in enumerate(formulas):
        places = list(checked.columns)
        rows = np.flatnonzero(free[:, places].any(1))
        rule, part = checked.rule, values[np.ix_(rows, places)]
        if rule.tier > 0:
            hold[rows, k] = ~_is_off(bounds.of(places), rule, part, 0.51)
        else:
            hold[rows, k] = is_near(rule, part, _PRECISIONS[rule.tier][1])
    return hold


def is_near(rule: Formula, part: np.ndarray, precision: float) -> np.ndarray:
    """Return in which rows a formula holds up to a relative error (rows,)."""
    with np.errstate(all="ignore"):
        gap = abs(rule.gap(part))
        near = gap <= precision * np.maximum(rule.size(part), np.finfo(float).tiny)
    # where one that has been found is undefined, it says nothing
    return np.isfinite(gap) & near | (np.isnan(gap) & (rule.tier != KNOWN))


# ----------------------------------------
# One formula after the other


def _in_turn(bounds: Bounds, formulas: list[Checked], cells: Filled) -> np.ndarray:
    """Solve formulas for cells that no earlier one has changed; returns (n, p)."""
    unsolved = cells._replace(values=cells.values.copy(), free=cells.free.copy())
    for checked in formulas:
        if checked.rule.is_set:
            _choose(checked, unsolved)
        else:
            _solve(bounds, checked, unsolved)
    return unsolved.values


def _in_order(formulas: Sequence[Checked]) -> list[Checked]:
    """Order formulas so that totals come before those that are made of them."""
    ordered, rest = [], list(formulas)
    while rest:
        totals = [checked.columns[checked.rule.total] for checked in rest]
        pairs = list(zip(rest, totals, strict=True))
        free = [not {*each.columns} & {*totals} - {total} for each, total in pairs]
        if not any(free):  # a circle, in any order
            return ordered + rest
        ordered += compress(rest, free)
        rest = list(compress(rest, ~np.array(free)))
    return ordered


def _choose(checked: Checked, cells: Filled) -> None:
    """Let one column of a set be 1, in place."""
    places = list(checked.columns)
    values, free, _, scores = cells
    rows = np.flatnonzero(free[:, places].any(1))
    block = np.ix_(rows, places)
    missing, part = free[block], values[block]
    total = np.where(missing, 0.0, part).sum(1)
    best = np.where(missing, scores[block], -np.inf).argmax(1)
    new = np.zeros(part.shape)
    new[np.arange(len(rows)), best] = total < 1
    values[block] = np.where(missing, new, part)
    free[block] = False


class Part(NamedTuple):
    """The columns of a formula, in rows in which some of their cells are filled."""

    rule: Formula
    solves: list[int]  # the places of columns that it determines
    bounds: Bounds  # of its columns
    cells: np.ndarray  # (rows, k)
    missing: np.ndarray  # bool (rows, k), which ones are filled
    low: np.ndarray  # (rows, k), their ranges
    high: np.ndarray


def _solve(bounds: Bounds, checked: Checked, cells: Filled) -> None:
    """Solve a formula for a filled cell of the rows that violate it, in place.

    The total comes first.  If it is observed, all other cells of a sum move.  Factors
    that the formula does not determine, for its rounding or their sign, come last.
    """
    rule, places = checked.rule, list(checked.columns)
    rows = np.flatnonzero(cells.free[:, places].any(1))
    block = np.ix_(rows, places)
    solves = [k for k, j in enumerate(places) if j in checked.solves]
    ends = cells.ranges[:, rows[:, None], places]
    filled = cells.values[block], cells.free[block]
    part = Part(rule, solves, bounds.of(places), *filled, *ends)
    if rule.is_sum:
        part = part._replace(cells=_moved(part))
    grids, unsolved = _round(part), np.ones(len(rows), bool)
    if rule.rank != OTHER and not rule.is_sum and len(places) > 2:
        unsolved = ~_move_factors(part)
    tried = solves if rule.is_sum else range(len(places))
    tried = sorted(tried, key=lambda k: (k != rule.total, k not in solves))
    for (by_step, is_on), k in product(grids, tried):
        where = np.flatnonzero(unsolved & is_on & part.missing[:, k])
        if len(where):
            new, good = _solutions(part, where, k, by_step)
            part.cells[where[good], k] = new[good]
            unsolved[where[good]] = False
    solved = np.ix_(rows[~unsolved], places)
    cells.values[solved], cells.free[solved] = part.cells[~unsolved], False


def _round(part: Part) -> list[tuple[bool | None, np.ndarray]]:
    """Round filled cells as observed ones of their columns are, in place.

    Returns how solutions are rounded, by steps of their column or by its digits, and
    in which rows (rows,).  Cells leave the steps of their columns, and then get more
    digits than these have, if no cell agrees without; whole numbers only beside others.
    """
    rule, _, bounds, cells, missing, *ends = part
    observed, grids, is_exact = np.where(missing, np.nan, cells), [], rule.tier <= 0
    for by_step in (False, True):
        is_off = has_more_digits(bounds, observed, by_step=by_step)
        grids.insert(0, (by_step, ~(is_exact & is_off)))
        rounded = bounds.snapped(cells, by_step=by_step)
        cells[:] = np.where(missing & grids[0][1][:, None], rounded, cells)
    cells[:] = np.where(missing, cells.clip(*ends), cells)
    is_whole = (bounds.unit >= 1).all() and rule.tier == 0
    rest = ~grids[1][1] if is_whole else np.ones(len(cells), bool)
    return grids + [(None, rest)] * is_exact


def _solutions(
    part: Part, rows: np.ndarray, k: int, by_step: bool | None
) -> tuple[np.ndarray, np.ndarray]:
    """Solve for a column in some rows; also return where it may have the numbers."""
    rule, bounds = part.rule, part.bounds
    is_exact = rule.tier <= 0
    if k in part.solves:
        solved = new = rule.solve(part.cells[rows], k)
        if by_step is not None:
            new = bounds.snapped(new, k, by_step=by_step)
    else:
        solved = new = _nearest(part, rows, k)
    good = (part.low[rows, k] <= new) & (new <= part.high[rows, k])
    if is_exact:
        digit, error = _PRECISIONS[rule.tier]
        good &= abs(new - solved) <= digit * bounds.unit[k] + error * abs(solved)
    if k != rule.total or not is_exact:
        good &= bounds.allow(new, k, _FAR if is_exact and rule.is_sum else BEYOND)
    return new, good


def _nearest(part: Part, rows: np.ndarray, k: int) -> np.ndarray:
    """Find the numbers nearest to filled ones that give a rounded total (rows,)."""
    rule, bounds, total = part.rule, part.bounds, part.rule.total
    half, solved = _WITHIN * bounds.unit[total] * (k != total), []
    for step in (-half, 0.0, half):
        moved = part.cells[rows]
        moved[:, total] += step
        solved.append(rule.solve(moved, k))
    low, high = np.sort(solved[::2], 0)
    near = bounds.snapped(part.cells[rows, k].clip(low, high), k)
    is_within = (low <= near) & (near <= high) & np.isfinite(solved[1])
    return np.where(is_within, near, bounds.snapped(solved[1], k))


def _move_factors(part: Part) -> np.ndarray:
    """Move two filled columns of a product to the nearest numbers that agree, in place.

    Returns the rows that agree now (rows,).
    """
    rule, solves, bounds, cells, missing, *ends = part
    start, best, is_rounded = cells.copy(), np.full(len(cells), np.inf), rule.tier == 1
    for pair in map(list, permutations(range(len(rule.columns)), 2)):
        k, other = pair
        rows = np.flatnonzero(missing[:, k] & missing[:, other])
        # the other one is solved for; a factor may be finer than a rounded total tells
        if not len(rows) or not {*pair[is_rounded:]} <= {*solves}:
            continue
        low = np.maximum(ends[0][rows][:, pair], bounds.low[pair])
        high = np.minimum(ends[1][rows][:, pair], bounds.high[pair])
        span = 40 * bounds.unit[k] or (high - low)[:, 0]
        for move in _MOVES:
            trial = start[rows]
            moved = (trial[:, k] + move * span).clip(low[:, 0], high[:, 0])
            trial[:, k] = bounds.snapped(moved, k)
            trial[:, other] = bounds.snapped(rule.solve(trial, other), other)
            if is_rounded and k == rule.total:  # of factors with their last digits
                trial[:, k] = bounds.snapped(rule.solve(trial, k), k)
            new = trial[:, pair]
            shift = (new - start[rows][:, pair]) / bounds.deviation[pair]
            far = (shift**2).sum(1) + _ROUNDED * _is_off(bounds, rule, trial)
            good = ((low <= new) & (new <= high)).all(1) & (far < best[rows])
            cells[rows[good]], best[rows[good]] = trial[good], far[good]
    return best < np.inf


def _is_off(
    bounds: Bounds, rule: Formula, cells: np.ndarray, digit: float = _WITHIN
) -> np.ndarray:
    """Tell which rows violate a formula, up to the last digit of its total (rows,).

    Where the total is undefined, as 0 / 0 is, another column tells: of 0.2 / 0 that is
    the divisor, of 0 / 0 none.  `bounds`: of the columns of the formula.
    """
    if rule.tier <= 0:
        return ~is_near(rule, cells, EXACT)
    off, is_open = np.zeros(len(cells), bool), np.full(len(cells), rule.tier == 1)
    with np.errstate(all="ignore"):
        for k in sorted(range(cells.shape[1]), key=lambda k: k != rule.total):
            if not is_open.any():
                break
            gap = rule.solve(cells, k) - cells[:, k]
            off |= is_open & (abs(gap) > digit * bounds.unit[k])
            is_open &= np.isnan(gap)
    return off


def _moved(part: Part) -> np.ndarray:
    """Share the gap of a sum among the filled cells, by their variances, see eq. (1).

    Where a cell would leave its range, all move by the same share of their distance
    from the ends of their ranges: positive parts stay positive.  Rows whose total is
    filled stay.
    """
    rule, _, bounds, cells, missing, low, high = part
    weights, gap = rule.weights, rule.gap(cells)
    movable = missing & ~missing[:, [rule.total]]
    moved = cells - _shares(movable, weights * bounds.deviation**2, weights, gap)
    outside = (movable & ((moved < low) | (moved > high))).any(1)
    room = np.where(gap[:, None] * weights > 0, cells - low, high - cells)
    moves = _shares(movable, np.sign(weights) * room, weights, gap)
    outside &= np.isfinite(moves).all(1) & (abs(moves) <= room).all(1)
    return np.where(outside[:, None], cells - moves, moved)


def _shares(
    movable: np.ndarray, moves: np.ndarray, weights: np.ndarray, gap: np.ndarray
) -> np.ndarray:
    """Scale moves of cells so that a weighted sum changes by a gap."""
    moves = np.where(movable, moves, 0)
    size = moves @ weights
    return np.where(size > 0, gap / np.where(size > 0, size, 1), 0)[:, None] * moves


# ----------------------------------------
# All formulas together


def _together(
    formulas: list[Checked], deviation: np.ndarray, cells: Filled
) -> np.ndarray:
    """Solve formulas by Gauss-Newton steps of the free cells; returns (n, p).

    Steps are the shortest ones of the linearized formulas, in the units of eq. (1).
    """
    used = sorted({j for checked in formulas for j in checked.columns})
    values, rows = cells.values.copy(), np.arange(len(cells.values))
    for _ in range(_STEPS):
        now = values[rows]
        parts = [(checked.rule, now[:, checked.columns]) for checked in formulas]
        hold = np.all([is_near(rule, part, FLOAT64) for rule, part in parts], 0)
        rows = rows[~hold]
        if not len(rows):
            break
        now, movable, ends, _ = cells.of(rows, values)
        by = _DIFFERENCE * (abs(now) + deviation)
        slopes = _slopes(formulas, used, now, np.where(now + by > ends[1], -by, by))
        slopes = slopes * np.where(movable, deviation, 0.0)[:, None, used]
        size = np.linalg.norm(slopes, axis=2)
        # formulas without a movable cell do not count
        weight = np.divide(1.0, size, where=size > 0, out=np.zeros_like(size))
        gaps = weight * _gaps(formulas, now)
        steps = np.zeros(now.shape)
        stuck = now[:, used] <= ends[0][:, used], now[:, used] >= ends[1][:, used]
        shortest = _shortest_steps(weight[..., None] * slopes, gaps, stuck)
        steps[:, used] = shortest * deviation[used]
        enough, active = _CREEPING * (gaps**2).sum(1), np.arange(len(rows))
        for cut in range(_CUTS):
            moved = (now[active] + steps[active] / 2**cut).clip(*ends[:, active])
            moved = np.where(movable[active], moved, now[active])
            error = ((weight[active] * _gaps(formulas, moved)) ** 2).sum(1)
            closer = error < enough[active]
            values[rows[active[closer]]] = moved[closer]
            active = active[~closer]
            if not len(active):
                break
        rows = np.delete(rows, active)  # those that come no closer to a solution
    return values


def _gaps(formulas: list[Checked], cells: np.ndarray) -> np.ndarray:
    """Return by how much formulas are missed; (n, formulas)."""
    return np.stack(
        [checked.rule.gap(cells[:, checked.columns]) for checked in formulas], 1
    )


def _slopes(
    formulas: list[Checked], used: list[int], cells: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Return slopes of the gaps by differences; (n, formulas, n_used)."""
    slopes = np.zeros((len(cells), len(formulas), len(used)))
    for k, checked in enumerate(formulas):
        places = list(checked.columns)
        indices = [used.index(j) for j in places]
        if checked.rule.is_sum:
            slopes[:, k, indices] = checked.rule.weights
            continue
        part = cells[:, places]
        gap = checked.rule.gap(part)
        for i, j in enumerate(places):
            moved = part.copy()
            moved[:, i] += steps[:, j]
            slope = (checked.rule.gap(moved) - gap) / (moved[:, i] - part[:, i])
            slopes[:, k, indices[i]] = np.where(np.isfinite(slope), slope, 0.0)
    return slopes


def _shortest_steps(
    slopes: np.ndarray, gaps: np.ndarray, stuck: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return the shortest steps from gaps to zero that stay in ranges (n, n_used)."""
    gaps = np.where(np.isfinite(gaps), gaps, 0.0)[..., None]
    steps, rows = np.zeros(slopes[:, 0].shape), np.arange(len(slopes))
    # each pass but the last stops cells at the ends of their range
    for _ in range(slopes.shape[2]):
        jacobian = slopes[rows]
        back = jacobian.transpose(0, 2, 1)
        # of all formulas, which are fewer than their columns
        inverse = np.linalg.pinv(jacobian @ back, _RANK, hermitian=True)
        shortest = -(back @ (inverse @ gaps[rows]))[..., 0]
        steps[rows] = shortest
        outward = stuck[0][rows] & (shortest < 0) | stuck[1][rows] & (shortest > 0)
        slopes[rows] = np.where(outward[:, None], 0.0, slopes[rows])
        rows = rows[outward.any(1)]
        if not len(rows):
            break
    return steps
