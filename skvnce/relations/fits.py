"""The fit of formulas, and when one counts as exact."""

from collections.abc import Iterator
from math import erf, sqrt
from typing import NamedTuple, Self

import numpy as np

from skvnce.relations.columns import TYPOS, Bounds, Columns, blocks
from skvnce.relations.formulas import FLOAT32, FLOAT64, Checked, Formula

CHANCE = -6.0  # log10 of the expected number of chance relations of a kind
FEWEST = 10  # rows beyond the coefficients
INFORMATIVE = 5  # rows in which each column leaves its most frequent value
_LOOSEST = 0.05  # rounding error of a formula, in standard deviations
_SOLVED = 0.02  # error of a column that is solved for, in standard deviations
_ROWS = 4000  # by which coefficients are fitted
_SHUFFLES = 4
_SIMILAR = 1000  # rows by which similar columns are compared
_ALIKE = 0.1  # by which columns differ that are merely similar, in deviations and rows
_STARTS = 8  # blocks of rows by which coefficients are fitted at first
_MISFIT = 5e-3  # typical error of a fit, in standard deviations of the left-hand side
_USUAL = 0.8  # share of the rows whose errors are typical
_ABOVE = 2.0  # typical errors of rounding, above which a regression is off
# tiers of rounding, see `Formula`; relative errors; columns, of the first ones, whose
# last digit counts
_LEVELS = (0, FLOAT64, 0), (0, FLOAT32, 0), (1, FLOAT32, 1), (2, FLOAT32, None)
_WIDTHS = 30, 10, 3, 1, 0.3, 0  # errors of a coefficient, within which it is rounded
_MOST_DIGITS = 16
_FEW_DIGITS = 4  # after the first, that a coefficient has by itself
_BY_CHANCE = 0.1  # share of intervals with a number of so many digits


class Trial(NamedTuple):
    """A formula in rows that observe its columns."""

    formula: Formula
    part: np.ndarray  # (rows, k), the cells of its columns
    bounds: Bounds  # of these

    @classmethod
    def of(cls, columns: Columns, formula: Formula, rows: np.ndarray) -> Self:
        """Select rows; in a narrow range of a column its rounding is coarse."""
        places = list(formula.columns)
        part, bounds = columns.cells[np.ix_(rows, places)], columns.bounds.of(places)
        if len(rows) and (spread := part.std(0)).all():
            smaller = np.minimum(bounds.deviation, spread)
            bounds = bounds._replace(deviation=smaller)
        return cls(formula, part, bounds)

    def with_coefs(self, coefs: np.ndarray, constant: float) -> Self:
        """Set the coefficients of the right-hand side."""
        coefs = (1.0, *(-coefs).tolist())
        formula = self.formula._replace(coefs=coefs, constant=float(constant))
        return self._replace(formula=formula)

    def limit(self, level: int) -> np.ndarray:
        """Return the largest gaps of rows by a level of rounding (rows,)."""
        _, precision, n_rounded = _LEVELS[level]
        units = enumerate(self.bounds.unit[:n_rounded])
        steps = [self.formula.change(self.part, k, unit) / 2 for k, unit in units]
        return precision * self.formula.size(self.part) + 1.02 * sum(steps)

    def rounding(self) -> float:
        """Return the typical rounding error of the left-hand side; 0 of sums.

        Factors and exponents are rounded afterwards, coefficients of sums are not.
        """
        unit = self.bounds.unit[0]
        if self.formula.is_sum or not unit:
            return 0.0
        terms = self.formula._replace(coefs=(1.0,) * len(self.formula.terms))
        return float(np.median(terms.change(self.part, 0, unit))) / 2

    def solves(self, place: int) -> bool:
        """Tell whether the formula gives the observed cells of a column."""
        hidden, cells = self.part.copy(), self.part[:, place]
        hidden[:, place] = np.nan
        solved = self.formula.solve(hidden, place)
        good = np.isfinite(solved)
        if good.sum() < max(FEWEST, 0.2 * len(cells)):
            return False
        unit, near = self.bounds.unit[place], _SOLVED * self.bounds.deviation[place]
        solved, cells = self.bounds.snapped(solved[good], place), cells[good]
        allowed = 1.01 * unit * (unit < near) if unit else near
        allowed = np.maximum(allowed, 4 * FLOAT32 * abs(cells))
        return (abs(solved - cells) <= allowed).mean() >= 1 - 2 * TYPOS

    def maps_grids(self) -> bool:
        """Tell whether a map of a column's grid on that of another has no rounding.

        Two columns of the same digits that differ in the last one are merely similar.
        """
        formula, units = self.formula, self.bounds.unit
        if not formula.is_sum or len(units) > 2 or not units.all():
            return False
        steps = np.array([*units * formula.weights, formula.constant]) / units[0]
        return abs(steps[1]) <= 1.001 and (abs(steps - np.rint(steps)) < 1e-6).all()


class Tolerance(NamedTuple):
    """The rounding that explains the gaps of a formula."""

    tier: int  # see `Formula`
    limit: np.ndarray  # (rows,), the largest gaps
    n_wrong: int  # rows of larger gaps


def tolerance_of(trial: Trial) -> Tolerance | None:
    """Return the least rounding that explains the gaps of most rows."""
    gap = abs(trial.formula.gap(trial.part))
    for level, (tier, *_) in enumerate(_LEVELS):
        limit = trial.limit(level)
        n_wrong = int((gap > limit).sum())
        if n_wrong <= (TYPOS * len(gap) if level else 0):
            return Tolerance(tier, limit, n_wrong)
    return None


# ----------------------------------------
# The fit


def fit(columns: Columns, formula: Formula, tried: int) -> Checked | None:
    """Fit the coefficients of terms, and check the formula in all rows."""
    rows = columns.complete(list(formula.columns))
    if len(rows) > _ROWS:
        rows = columns.rng.choice(rows, _ROWS, replace=False)
    trial = Trial.of(columns, formula, rows)
    features = formula.features(trial.part)
    good = np.isfinite(features).all(1)
    trial, features = trial._replace(part=trial.part[good]), features[good]
    if len(features) < FEWEST + len(formula.terms) or not features.std(0).all():
        return None
    regressed = _regressed(features, trial.rounding())
    if regressed is None:
        return None
    beta, constant, good = regressed
    trial, features = trial._replace(part=trial.part[good]), features[good]
    y = features[:, 0]
    # terms below the rounding of the others are noise
    least = max((y - features[:, 1:] @ beta).std(), 1e-4 * y.std())
    effect = abs(beta) * features[:, 1:].std(0) > least
    if not effect.all():
        noise = np.flatnonzero(~effect) + 1
        return fit(columns, _without(formula, noise), tried) if effect.any() else None
    if not _many_rows_show(features):
        return None
    return _exact(columns, trial.with_coefs(beta, constant), features, tried)


def _exact(
    columns: Columns, regression: Trial, features: np.ndarray, tried: int
) -> Checked | None:
    """Find the least rounding, and then the fewest digits, with which all rows agree.

    `features`: the terms of the rows.
    """
    error = regression.formula.gap(regression.part).std()
    for level, (tier, *_) in enumerate(_LEVELS):
        limit = regression.limit(level)
        if error > _ABOVE * np.sqrt((limit**2).mean()):
            continue
        for coefs, constant in _simplest(regression.formula, features, limit):
            trial = regression.with_coefs(coefs, constant)
            gap = abs(trial.formula.gap(trial.part))
            if (gap > trial.limit(level)).mean() > TYPOS:
                continue
            checked = check(columns, trial.formula, tried)
            if checked is None:
                break
            if checked.rule.tier <= tier:
                return checked
    return None


def _simplest(
    formula: Formula, features: np.ndarray, limit: np.ndarray
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield coefficients and constants of ever more digits.

    `limit` (rows,): the errors of the left-hand side, from which those of the
    coefficients follow. A single coefficient follows from the most accurate row.
    """
    y, X = features[:, 0], features[:, 1:]
    if X.shape[1] == 1:
        factor = _shortest(*_interval(y, limit, X[:, 0]))
        if factor:
            yield np.array([factor]), 0.0
    is_power = all(g == "log" for term in formula.terms for _, g in term)
    without, ones = np.linalg.lstsq(X, y, rcond=None)[0], np.ones(len(y))
    for beta, design in ((without, X), (-np.array(formula.coefs[1:]), X - X.mean(0))):
        size = np.sqrt((design**2).sum(0))
        inverse = np.linalg.pinv((design / size).T @ (design / size), hermitian=True)
        error = np.sqrt((limit**2).mean() * np.diag(inverse)) / size
        for width in _WIDTHS:
            ends = zip(beta - width * error, beta + width * error, strict=True)
            coefs = np.array([_shortest(*both) for both in ends])
            if not coefs.all():
                continue
            if design is X:
                yield coefs, 0.0
                continue
            low, high = _interval(y - X @ coefs, limit, ones)
            if low <= high:
                factor = _shortest(np.exp(low), np.exp(high)) if is_power else 0.0
                yield coefs, np.log(factor) if factor else _shortest(low, high)


def _interval(y: np.ndarray, limit: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """Return the least and the largest b with abs(y - b x) <= limit in most rows."""
    y, limit, x = np.stack([y, limit, x])[:, x != 0]
    ends = np.sort(np.stack([y - limit, y + limit]) / x, 0)
    low, high = np.sort(ends, 1)
    n_wrong = int(TYPOS * len(y))
    return low[-1 - n_wrong], high[n_wrong]


def _shortest(low: float, high: float) -> float | None:
    """Return a number, or the inverse of one, of the fewest digits between others.

    Where one of so many digits is there by chance, it is the middle.
    """
    if not low <= high or low <= 0 <= high:
        return 0.0 if low <= high else None
    middle = (low + high) / 2
    for digits in range(_MOST_DIGITS):
        share = (high - low) * 10**digits / abs(middle)  # of an interval, with a number
        if digits >= _FEW_DIGITS and share > _BY_CHANCE:
            break
        number = float(f"{middle:.{digits}e}")
        if low <= number <= high:
            return number
        number = 1 / float(f"{(1 / low + 1 / high) / 2:.{digits}e}")
        if low <= number <= high:
            return number
    return middle


def _regressed(features: np.ndarray, rounding: float) -> tuple | None:
    """Regress the first term on the others, without the rows that fit worst.

    A typo may attract a fit to all rows: blocks of them are tried next.  Returns
    coefficients, constant and the rows that fit.
    """
    every = np.arange(len(features))
    for block in blocks(len(features))[: 1 + _STARTS]:
        regression = _trimmed(features, every[block], rounding)
        if regression is not None:
            return regression
    return None


def _trimmed(features: np.ndarray, rows: np.ndarray, rounding: float) -> tuple | None:
    """Regress by some rows, and then by all that fit; see `_regressed`."""
    y, X, n_usual = features[:, 0], features[:, 1:], int(_USUAL * len(features))
    for _ in range(3):
        predictors, target = X[rows], y[rows]
        mean, centre, deviation = predictors.mean(0), target.mean(), predictors.std(0)
        if not deviation.all():
            return None
        scaled = (predictors - mean) / deviation
        beta, _, rank, _ = np.linalg.lstsq(scaled, target - centre, rcond=1e-11)
        if rank < X.shape[1]:
            return None
        beta = beta / deviation
        error = abs(y - centre - (X - mean) @ beta)
        typical = np.partition(error, n_usual)[n_usual]
        close = np.flatnonzero(error <= 4 * typical + 1e-12 * abs(y))
        if len(close) < n_usual or len(close) == len(rows):
            break
        rows = close
    deviation = y[rows].std()
    if typical > max(_MISFIT * deviation, min(rounding, _LOOSEST * deviation)):
        return None
    return beta, float(centre - mean @ beta), rows


def _many_rows_show(features: np.ndarray) -> bool:
    """Tell whether each coefficient stays determined without its two main rows."""
    X = features[:, 1:]
    design = np.column_stack([np.ones(len(X)), (X - X.mean(0)) / X.std(0)])
    inverse = np.linalg.pinv(design.T @ design)
    alone = abs(design @ inverse)  # the influence of each row
    for k in range(1, design.shape[1]):
        rest = np.delete(design, np.argpartition(alone[:, k], -2)[-2:], 0)
        spread = rest / np.maximum(abs(rest).max(0), 1e-300)
        if np.linalg.matrix_rank(spread, tol=1e-9 * len(X)) < design.shape[1]:
            return False
    return True


def _without(formula: Formula, dropped: np.ndarray) -> Formula:
    """Leave out terms, and their columns."""
    terms = [t for k, t in enumerate(formula.terms) if k not in dropped]
    places = sorted({j for term in terms for j, _ in term})
    moved = {j: k for k, j in enumerate(places)}
    terms = tuple(tuple((moved[j], g) for j, g in term) for term in terms)
    return Formula(tuple(formula.columns[j] for j in places), terms)


# ----------------------------------------
# The check


def check(columns: Columns, formula: Formula, tried: int) -> Checked | None:
    """Check a formula in all rows that observe its columns; None if it fails."""
    places = list(formula.columns)
    trial = _defined(Trial.of(columns, formula, columns.complete(places)))
    if not _is_supported(trial, columns.mode[places]):
        return None
    tolerance = tolerance_of(trial)
    if tolerance is None or (tolerance.tier and trial.maps_grids()):
        return None
    formula, part, bounds = trial
    moves = 2e-5 * bounds.deviation
    slopes = [formula.change(part, k, move) / move for k, move in enumerate(moves)]
    slack = [np.median(tolerance.limit / np.maximum(s, 1e-300)) for s in slopes]
    fine = slack <= np.maximum(0.51 * bounds.unit, _SOLVED * bounds.deviation)
    solves = [k for k in range(len(places)) if trial.solves(k)]
    share = slack / bounds.deviation
    if not fine[solves].any() or share.min() > _LOOSEST:
        return None
    agree = _agreement(columns.rng, trial, tolerance, share.argmin())
    n, wrong = len(part), tolerance.n_wrong
    chance = (n - wrong - len(formula.terms)) * np.log10(agree) + np.log10(tried)
    if chance + wrong * np.log10(n) > CHANCE:  # any rows could be the violations
        return None
    solves, error = tuple(places[k] for k in solves), float(slack[np.argmin(places)])
    is_set = bounds.is_dummy.all() and {*formula.coefs, formula.constant} == {1.0}
    formula = formula._replace(tier=tolerance.tier, is_set=bool(is_set))
    return Checked(formula, n, wrong, solves, error)


def _defined(trial: Trial) -> Trial:
    """Leave out rows in which the formula is undefined, and remember their cells."""
    formula, part, _ = trial
    good = np.isfinite(formula.gap(part))
    if good.all():
        return trial
    odd = [tuple(np.unique(cells).tolist()) for cells in part[~good].T]
    voids = odd[0] if len(odd[0]) <= 3 else ()
    stored, ends = [], [0, len(odd) - 1]  # a divisor is the last column
    alone = len(formula.terms) == 2 and all(len(odd[k]) == 1 for k in ends)
    if alone and (~good).sum() >= INFORMATIVE:
        cells = [odd[k][0] for k in ends]
        is_end = part[:, ends] == cells
        # a ratio may be 0 by its numerator, too
        for k in range(2 if cells[0] or len(odd) == 2 else 1):
            if is_end[is_end[:, 1 - k], k].all():
                stored.append((ends[k], cells[k], ends[1 - k], cells[1 - k]))
    part = part[good & ~np.isin(part[:, 0], voids)]
    formula = formula._replace(voids=voids, stored=tuple(stored))
    return trial._replace(formula=formula, part=part)


def _is_supported(trial: Trial, mode: np.ndarray) -> bool:
    """Tell whether enough rows, and different ones, could show a violation."""
    (n, n_columns), n_coefs = trial.part.shape, len(trial.formula.terms)
    if n < max(FEWEST, 2 * n_coefs) + n_coefs:
        return False
    if (trial.part != mode).sum(0).min() < INFORMATIVE:
        return False
    if n_columns == n_coefs > 2:
        return True
    # a curve through as many points as it has coefficients is a lookup
    return len(np.unique(trial.part[:, 1:], axis=0)) >= n_coefs + 3


def _agreement(
    rng: np.random.Generator, trial: Trial, tolerance: Tolerance, place: int
) -> float:
    """Return the share of rows that agree if a column is shuffled."""
    formula, part, bounds = trial
    shuffled = [
        _share_of(trial, rng.permutation(part[:, place]), tolerance.limit, place)
        for _ in range(_SHUFFLES)
    ]
    share = max(np.mean(shuffled), 1 / (_SHUFFLES * len(part)), 1e-5)
    if tolerance.tier:
        return max(share, _agreement_of_similar(trial, tolerance.limit, place))
    if formula.is_sum and part.shape[1] == 2:
        return max(share, _agreement_of_copies(part, bounds.deviation))
    return share


def _share_of(trial: Trial, cells: np.ndarray, limit: np.ndarray, place: int) -> float:
    """Return the share of rows that agree with other cells of a column."""
    moved = trial.part.copy()
    moved[:, place] = cells
    return (abs(trial.formula.gap(moved)) <= limit).mean()


def _agreement_of_similar(trial: Trial, limit: np.ndarray, place: int) -> float:
    """Return the fraction of rows that agree by a regression on all columns but two.

    Columns that are nearly equal seem to have formulas if rounding is coarse: what a
    column is beyond the others, without a further one, is shuffled.
    """
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(limit))[:_SIMILAR]
    part, shares = trial.part[rows], [0.0]
    trial = trial._replace(part=part)
    for left_out in set(range(part.shape[1])) - {place}:
        design = part.copy()
        design[:, [place, left_out]] = [1.0, 0.0]
        guess = design @ np.linalg.lstsq(design, part[:, place], rcond=None)[0]
        cells = guess + rng.permutation(part[:, place] - guess)
        shares.append(_share_of(trial, cells, limit[rows], place))
    return max(shares)


def _agreement_of_copies(part: np.ndarray, deviation: np.ndarray) -> float:
    """Return the share of rows in which similar columns of coarse grids are equal.

    The grid is the least step between values of a column, and similar ones differ by a
    normal error of a tenth of the standard deviation, and in a tenth of the rows.
    """
    steps = [np.diff(np.unique(column)).min() for column in part.T]
    grid = (np.array(steps) / deviation).max()
    return min(erf(grid / 2 / (_ALIKE * sqrt(2))), 1 - _ALIKE)
