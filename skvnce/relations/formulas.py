"""Formulas between columns, and what all rules have in common."""

from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

EXACT, OTHER, ROUNDED = range(3)  # ranks of exact formulas, other rules, and the rest
KNOWN = -1  # the tier of equations of the user, which hold up to rounding of float64
FLOAT64 = 1e-14  # relative rounding error of sums of a few numbers
FLOAT32 = 3e-7  # relative rounding error of values that were once stored in 32 bits


class Function(NamedTuple):
    """A function of one column."""

    text: str
    of: Callable  # NaN where it is undefined
    inverse: Callable
    signs: str  # of the columns that have it, see `Columns.sign`


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
    is_set: bool = False  # whether one of the columns, of zeros and ones, is 1
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
        """See `Rule`."""
        return ROUNDED if self.tier > 0 else EXACT

    @property
    def kind(self) -> str:
        """See `Relation`."""
        if self.is_set:
            return "one-of"
        last = [g for _, g in self.terms[-1]]
        if len(last) == 2:
            return "ratio" if last[1] == "inverse" else "product"
        if len(self.terms) == 2:
            return "affine" if self.is_sum else "function"
        return "linear" if self.is_sum else "powers"

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
        return np.where(np.isnan(moved), 0.0, abs(moved))

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
        if self.is_set:
            return f"{' + '.join(names[j] for j in self.columns)} = 1"
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
    is_set: bool  # see `Formula`

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


def joined_columns(relations: Iterable[Checked], p: int) -> np.ndarray:
    """Give the columns that relations join a number in common; int (p,)."""
    number = np.arange(p)
    for relation in relations:
        places = list(relation.rule.columns)
        number[np.isin(number, number[places])] = number[places].min()
    return number


def _signed(number: float, term: str = "") -> str:
    size = f"{abs(number):.6g}"
    size = term if term and size == "1" else f"{size} {term}".rstrip()
    return f" {'-' if number < 0 else '+'} {size}"
