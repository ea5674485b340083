"""Formulas between columns: their fit, and when one counts as exact."""

from collections.abc import Callable, Iterator
from math import erf, prod, sqrt
from typing import NamedTuple, Protocol

import numpy as np

from skvnce.relations.columns import TYPOS, Columns, blocks

CHANCE = -6.0  # log10 of the expected number of chance relations of a kind
KNOWN = -1  # the tier of equations of the user, which hold up to rounding of float64
FEWEST = 10  # rows beyond the coefficients
INFORMATIVE = 5  # rows in which each column leaves its most frequent value
FLOAT64 = 1e-14  # relative rounding error of sums of a few numbers
_FLOAT32 = 3e-7  # relative rounding error of values that were once stored in 32 bits
_LOOSEST = 0.05  # rounding error of a formula, in standard deviations
_SOLVED = 0.02  # error of a column that is solved for, in standard deviations
_ROWS = 4000  # by which coefficients are fitted
_SHUFFLES = 4
_SIMILAR = 1000  # rows by which similar columns are compared
_ALIKE = 0.1  # by which columns differ that are merely similar, in deviations and rows
_STARTS = 8  # blocks of rows by which coefficients are fitted at first
_MISFIT = 5e-3  # typical error of a fit, in standard deviations of the left-hand side
# tiers of rounding, see `Formula`, and relative errors
_LEVELS = (0, FLOAT64), (0, _FLOAT32), (1, _FLOAT32), (2, _FLOAT32)
_N_ROUNDED = 0, 1, None  # columns of each tier whose last digit counts; None: all
_ABOVE = 2.0  # typical errors of rounding, above which a regression is off
_WIDTHS = 30, 10, 3, 1, 0.3, 0  # errors of a coefficient, within which it is rounded
_MOST_DIGITS = 16
_FEW_DIGITS = 4  # after the first, that a coefficient has by itself
_BY_CHANCE = 0.1  # share of intervals with a number of so many digits


class Function(NamedTuple):
    """A function of one column."""

    text: str
    of: Callable  # NaN where it is undefined
    inverse: Callable
    signs: str  # of the columns that have it, see `sign_of`


def sign_of(low: float, high: float) -> str:
    """Name the signs of a column by its smallest and its largest value."""
    return "+" if low > 0 else "0" if low == 0 else "-" if high < 0 else "±"


def _positive(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.nan)


def _inverted(x: np.ndarray) -> np.ndarray:
    return 1 / np.where(x != 0, x, np.nan)


def _root(z: np.ndarray) -> np.ndarray:
    return np.sqrt(np.where(z >= 0, z, np.nan))


FUNCTIONS = {
    "same": Function("{}", lambda x: x, lambda z: z, "-±0+"),
    "log": Function("log({})", lambda x: np.log(_positive(x)), np.exp, "0+"),
    "log1p": Function(
        "log(1 + {})", lambda x: np.log(_positive(1 + x)), np.expm1, "0+"
    ),
    "square": Function("{}^2", np.square, _root, "0+"),
    "even": Function("{}^2", np.square, _root, "-±"),  # see `Formula.solve`
    "cube": Function("{}^3", lambda x: x**3, np.cbrt, "-±0+"),
    "inverse": Function("1/{}", _inverted, _inverted, "-+"),
}


class Formula(NamedTuple):
    """sum_k coefs[k] prod_{(j, g) in terms[k]} g(x_j) = constant.

    Each column is in one term.  Below, `part` (rows, k) are the cells of `columns`.
    """

    columns: tuple[int, ...]  # the first one is the left-hand side
    terms: tuple  # of tuples of (place in `columns`, key of FUNCTIONS)
    coefs: tuple[float, ...] = ()  # the first one is 1
    constant: float = 0.0
    tier: int = 0  # whose rounding it holds up to: 0 float32, 1 a column's, 2 all
    # cells of the left-hand side where the formula is undefined: log(0) stored as 0
    voids: tuple[float, ...] = ()
    # (place, cell, another place, its cell): what is always stored beside the latter
    stored: tuple[tuple[int, float, int, float], ...] = ()

    def features(self, part: np.ndarray) -> np.ndarray:
        """Return the terms without their coefficients (rows, terms)."""
        if self.is_sum:
            return part[:, [j for [(j, _)] in self.terms]]
        products = [
            prod(FUNCTIONS[g].of(part[:, j]) for j, g in term) for term in self.terms
        ]
        return np.stack(products, 1)

    def gap(self, part: np.ndarray) -> np.ndarray:
        """Return by how much the sides differ (rows,)."""
        return self.features(part) @ np.array(self.coefs) - self.constant

    def size(self, part: np.ndarray) -> np.ndarray:
        """Return what rounding errors of the gap are relative to (rows,).

        It is the sum of absolute terms; that of a logarithm is 1 at least, as it moves
        by the relative error of its column.
        """
        least = [any(g.startswith("log") for _, g in term) for term in self.terms]
        size = np.maximum(abs(self.features(part)), least) @ abs(np.array(self.coefs))
        return size + abs(self.constant)

    @property
    def rank(self) -> int:
        """Exact formulas come before lookups, rounded ones after them."""
        return 2 * (self.tier > 0)

    @property
    def is_sum(self) -> bool:
        """Whether the columns are added as they are."""
        return all(len(term) == 1 and term[0][1] == "same" for term in self.terms)

    @property
    def weights(self) -> np.ndarray:
        """The coefficients of the columns of a sum, in their order."""
        weights = np.zeros(len(self.columns))
        for coef, [(place, _)] in zip(self.coefs, self.terms, strict=True):
            weights[place] = coef
        return weights

    @property
    def total(self) -> int:
        """The place of the left-hand side; of a sum the one column of its sign."""
        if not self.is_sum:
            return 0
        signs = np.sign(self.weights)
        alone = np.flatnonzero((signs[:, None] == signs).sum(1) == 1)
        return int(alone[0]) if len(alone) == 1 else 0

    def split(self, place: int) -> tuple[int, str, list]:
        """Return the term of a column, its function, and the other factors."""
        for k, term in enumerate(self.terms):
            for j, g in term:
                if j == place:
                    return k, g, [factor for factor in term if factor[0] != place]
        raise KeyError(place)

    def change(self, part: np.ndarray, place: int, step: float) -> np.ndarray:
        """Return how the gap changes as a column moves by a step (rows,)."""
        k, g, others = self.split(place)
        x, of = part[:, place], FUNCTIONS[g].of
        moved = self.coefs[k] * (of(x + step / 2) - of(x - step / 2))
        for j, other in others:
            moved = moved * FUNCTIONS[other].of(part[:, j])
        return np.nan_to_num(abs(moved))

    def solve(self, part: np.ndarray, place: int) -> np.ndarray:
        """Compute a column from the others; NaN where that is impossible (rows,).

        The root of a square with both signs has the sign of the cell of `part`.
        """
        k, g, others = self.split(place)
        cells = part.copy()
        if place and g != "same":
            cells[np.isin(part[:, 0], self.voids), 0] = np.nan
        cells[:, place] = 1.0  # whatever: its term is not in the sum
        rest = self.features(cells) * self.coefs
        value = (self.constant - np.delete(rest, k, 1).sum(1)) / self.coefs[k]
        for j, other in others:
            factor = FUNCTIONS[other].of(cells[:, j])
            value = value / np.where(factor != 0, factor, np.nan)
        solved = FUNCTIONS[g].inverse(value)
        if g == "even":
            solved = np.where(part[:, place] < 0, -1, 1) * solved
            solved = np.where(np.isnan(part[:, place]), np.nan, solved)
        for j, cell, other, beside in self.stored:
            if j == place:
                solved = np.where(part[:, other] == beside, cell, solved)
        return solved

    def text(self, names: list[str]) -> str:
        """Write the equation."""
        written = [self._term(k, names) for k in range(len(self.terms))]
        right = ""
        for coef, term in zip(self.coefs[1:], written[1:], strict=True):
            right += _signed(-coef, term)
        if self.constant or not right:
            right += _signed(self.constant)
        return f"{written[0]} = {right.removeprefix(' + ').removeprefix(' ')}"

    def _term(self, k: int, names: list[str]) -> str:
        text = ""
        for j, g in self.terms[k]:
            name = names[self.columns[j]]
            is_divisor = text and g == "inverse"
            factor = name if is_divisor else FUNCTIONS[g].text.format(name)
            text += (" / " if is_divisor else " * ") * bool(text) + factor
        return text


class Rule(Protocol):
    """What computes a column from others."""

    columns: tuple[int, ...]
    rank: int  # cells that two rules determine are those of the lower one

    def solve(self, part: np.ndarray, place: int) -> np.ndarray:
        """Compute a column; `part` (rows, k) are the cells of `columns`."""


class Checked(NamedTuple):
    """A rule that holds."""

    rule: Rule
    support: int  # rows, or repeats of a key, that could show a violation
    violations: int
    solves: tuple[int, ...]  # columns that it determines
    error: float = 0.0  # of its first column in the table, by its rounding

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns of the rule."""
        return self.rule.columns


def _signed(number: float, term: str = "") -> str:
    size = f"{abs(number):.6g}"
    size = term if term and size == "1" else f"{size} {term}".rstrip()
    return f" {'-' if number < 0 else '+'} {size}"


# ----------------------------------------
# The fit


def fit(columns: Columns, formula: Formula, tried: int) -> Checked | None:
    """Fit the coefficients of terms, and check the formula in all rows."""
    rows = columns.complete(list(formula.columns))
    if len(rows) > _ROWS:
        rows = columns.rng.choice(rows, _ROWS, replace=False)
    part = columns.cells[np.ix_(rows, formula.columns)]
    features = formula.features(part)
    good = np.isfinite(features).all(1)
    part, features = part[good], features[good]
    if len(part) < FEWEST + len(formula.terms) or not features.std(0).all():
        return None
    regressed = _regressed(features, _rounding(columns, formula, part))
    if regressed is None:
        return None
    beta, constant, good = regressed
    part, features = part[good], features[good]
    error = (features[:, 0] - features[:, 1:] @ beta).std()
    # terms below the rounding of the others are noise
    least = max(error, 1e-4 * features[:, 0].std())
    effect = abs(beta) * features[:, 1:].std(0) > least
    if not effect.all():
        noise = np.flatnonzero(~effect) + 1
        return fit(columns, _without(formula, noise), tried) if effect.any() else None
    if not _many_rows_show(features):
        return None
    return _exact(columns, _with(formula, beta, constant), part, features, error, tried)


def _exact(
    columns: Columns,
    start: Formula,
    part: np.ndarray,
    features: np.ndarray,
    error: float,
    tried: int,
) -> Checked | None:
    """Find the least rounding, and then the fewest digits, with which all rows agree.

    `start`: the regression, which leaves an error, of the rows (rows, k).
    """
    for level, (tier, _) in enumerate(_LEVELS):
        limit = _limit(columns, start, part, level)
        if error > _ABOVE * np.sqrt((limit**2).mean()):
            continue
        for coefs, constant in _simplest(start, features, limit):
            simple = _with(start, coefs, constant)
            gap = abs(simple.gap(part))
            if (gap > _limit(columns, simple, part, level)).mean() > TYPOS:
                continue
            checked = check(columns, simple, tried)
            if checked is None:
                break
            if checked.rule.tier <= tier:
                return checked
    return None


def _with(formula: Formula, coefs: np.ndarray, constant: float) -> Formula:
    """Set the coefficients of the right-hand side."""
    return formula._replace(coefs=(1.0, *(-coefs).tolist()), constant=float(constant))


def _simplest(
    start: Formula, features: np.ndarray, limit: np.ndarray
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
    is_power = all(g == "log" for term in start.terms for _, g in term)
    without, ones = np.linalg.lstsq(X, y, rcond=None)[0], np.ones(len(y))
    for beta, design in ((without, X), (-np.array(start.coefs[1:]), X - X.mean(0))):
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


def _rounding(columns: Columns, formula: Formula, part: np.ndarray) -> float:
    """Return the typical rounding error of the left-hand side; 0 of sums.

    Factors and exponents are rounded afterwards, coefficients of sums are not.
    """
    unit = columns.bounds.unit[formula.columns[0]]
    if formula.is_sum or not unit:
        return 0.0
    terms = formula._replace(coefs=(1.0,) * len(formula.terms))
    return float(np.median(terms.change(part, 0, unit))) / 2


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
    y, X, n_usual = features[:, 0], features[:, 1:], int(0.8 * len(features))
    for _ in range(3):
        mean, centre, deviation = X[rows].mean(0), y[rows].mean(), X[rows].std(0)
        if not deviation.all():
            return None
        scaled = (X[rows] - mean) / deviation
        beta, _, rank, _ = np.linalg.lstsq(scaled, y[rows] - centre, rcond=1e-11)
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
    return Formula(
        tuple(formula.columns[j] for j in places),
        tuple(tuple((moved[j], g) for j, g in term) for term in terms),
    )


# ----------------------------------------
# The check


def check(columns: Columns, formula: Formula, tried: int) -> Checked | None:
    """Check a formula in all rows that observe its columns; None if it fails."""
    places = list(formula.columns)
    part = columns.cells[np.ix_(columns.complete(places), places)]
    formula, part = _defined(formula, part)
    n, n_coefs = len(part), len(formula.terms)
    if n < max(FEWEST, 2 * n_coefs) + n_coefs:
        return None
    if (part != columns.mode[places]).sum(0).min() < INFORMATIVE:
        return None
    if len(places) - n_coefs or n_coefs == 2:
        # a curve through as many points as it has coefficients is a lookup
        if len(np.unique(part[:, 1:], axis=0)) < n_coefs + 3:
            return None
    tolerated = tier_of(columns, formula, part)
    if tolerated is None:
        return None
    tier, limit, wrong = tolerated
    if tier and _maps_grids(columns, formula):
        return None
    deviation, unit = columns.bounds.deviation[places], columns.bounds.unit[places]
    steps = 2e-5 * deviation
    slopes = [formula.change(part, k, step) / step for k, step in enumerate(steps)]
    slack = np.array([np.median(limit / np.maximum(slope, 1e-300)) for slope in slopes])
    fine = slack <= np.maximum(0.51 * unit, _SOLVED * deviation)
    solves = [k for k in range(len(places)) if _solves(columns, formula, part, k)]
    if not fine[solves].any() or (slack / deviation).min() > _LOOSEST:
        return None
    shuffled = int((slack / deviation).argmin())
    agree = _agreement(columns, formula, part, limit, shuffled)
    if tier:
        agree = max(agree, _agreement_of_similar(formula, part, limit, shuffled))
    elif formula.is_sum and len(places) == 2:
        agree = max(agree, _agreement_of_copies(part, deviation))
    chance = (n - wrong - n_coefs) * np.log10(agree) + np.log10(max(tried, 1))
    if chance + wrong * np.log10(n) > CHANCE:  # any rows could be the violations
        return None
    solves, error = tuple(places[k] for k in solves), float(slack[np.argmin(places)])
    return Checked(formula._replace(tier=tier), n, wrong, solves, error)


def _defined(formula: Formula, part: np.ndarray) -> tuple[Formula, np.ndarray]:
    """Leave out rows in which the formula is undefined, and remember their cells."""
    good = np.isfinite(formula.gap(part))
    if good.all():
        return formula, part
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
    good = good & ~np.isin(part[:, 0], voids)
    return formula._replace(voids=voids, stored=tuple(stored)), part[good]


def tier_of(columns: Columns, formula: Formula, part: np.ndarray) -> tuple | None:
    """Return the first tier of rounding that explains the gaps.

    Returns the tier, the tolerance of each row (rows,), and the number of violations.
    """
    gap = abs(formula.gap(part))
    for level, (tier, _) in enumerate(_LEVELS):
        limit = _limit(columns, formula, part, level)
        wrong = int((gap > limit).sum())
        if wrong <= (TYPOS * len(part) if level else 0):
            return tier, limit, wrong
    return None


def _limit(
    columns: Columns, formula: Formula, part: np.ndarray, level: int
) -> np.ndarray:
    """Return the largest gaps of rows by a level of rounding (rows,)."""
    tier, precision = _LEVELS[level]
    units = columns.bounds.unit[list(formula.columns)][: _N_ROUNDED[tier]]
    steps = [formula.change(part, k, unit) / 2 for k, unit in enumerate(units)]
    return precision * formula.size(part) + 1.02 * sum(steps)


def _solves(columns: Columns, formula: Formula, part: np.ndarray, place: int) -> bool:
    """Tell whether the formula gives the observed cells of a column."""
    j = formula.columns[place]
    hidden, cells = part.copy(), part[:, place]
    hidden[:, place] = np.nan
    solved = formula.solve(hidden, place)
    good = np.isfinite(solved)
    if good.sum() < max(FEWEST, 0.2 * len(part)):
        return False
    unit, near = columns.bounds.unit[j], _SOLVED * columns.bounds.deviation[j]
    solved, cells = columns.bounds.snapped(solved[good], j), cells[good]
    allowed = 1.01 * unit * (unit < near) if unit else near
    allowed = np.maximum(allowed, 4 * _FLOAT32 * abs(cells))
    return (abs(solved - cells) <= allowed).mean() >= 1 - 2 * TYPOS


def _agreement(
    columns: Columns, formula: Formula, part: np.ndarray, limit: np.ndarray, place: int
) -> float:
    """Return the share of rows that agree if a column is shuffled."""
    shares = []
    for _ in range(_SHUFFLES):
        moved = part.copy()
        moved[:, place] = columns.rng.permutation(moved[:, place])
        shares.append((abs(formula.gap(moved)) <= limit).mean())
    return max(np.mean(shares), 1 / (_SHUFFLES * len(part)), 1e-5)


def _agreement_of_similar(
    formula: Formula, part: np.ndarray, limit: np.ndarray, place: int
) -> float:
    """Return the fraction of rows that agree by a regression on all columns but two.

    Columns that are nearly equal seem to have formulas if rounding is coarse: what a
    column is beyond the others, without a further one, is shuffled.
    """
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(part))[:_SIMILAR]
    part, limit, shares = part[rows], limit[rows], [0.0]
    for left_out in set(range(part.shape[1])) - {place}:
        design = part.copy()
        design[:, [place, left_out]] = [1.0, 0.0]
        beta = np.linalg.lstsq(design, part[:, place], rcond=None)[0]
        moved, guess = part.copy(), design @ beta
        moved[:, place] = guess + rng.permutation(part[:, place] - guess)
        shares.append((abs(formula.gap(moved)) <= limit).mean())
    return max(shares)


def _agreement_of_copies(part: np.ndarray, deviation: np.ndarray) -> float:
    """Return the share of rows in which similar columns of coarse grids are equal.

    The grid is the least step between values of a column, and similar ones differ by a
    normal error of a tenth of the standard deviation, and in a tenth of the rows.
    """
    steps = [np.diff(np.unique(column)).min() for column in part.T]
    grid = (np.array(steps) / deviation).max()
    return min(erf(grid / 2 / (_ALIKE * sqrt(2))), 1 - _ALIKE)


def _maps_grids(columns: Columns, formula: Formula) -> bool:
    """Tell whether a map of a column's grid on that of another one knows no rounding.

    Two columns of the same digits that differ in the last one are merely similar.
    """
    if not formula.is_sum or len(formula.columns) > 2:
        return False
    units = columns.bounds.unit[list(formula.columns)]
    steps = np.array([*units * formula.weights, formula.constant]) / units[0]
    return (
        units.all()
        and abs(steps[1]) <= 1.001
        and (abs(steps - np.rint(steps)) < 1e-6).all()
    )
