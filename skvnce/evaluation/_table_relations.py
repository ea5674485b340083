"""Exact relations of a table: what follows from them, and cells that violate them."""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

from skvnce._tables.mixed import select_columns
from skvnce.evaluation._user_table import UserTable
from skvnce.relations.closure import closed
from skvnce.relations.columns import Columns, read_columns
from skvnce.relations.formulas import Formula, tier_of
from skvnce.relations.search import Relation, relations_of

_WIDEST = 300  # columns of tables that are searched
_TYPOS = 10  # that are listed
_CURVES = "square", "even", "cube"


class Typo(NamedTuple):
    """A cell that violates a formula which holds in nearly all other rows."""

    row: int  # the first one is 0
    column: str
    value: float
    expected: float  # the value by the formula and the other cells of the row
    relation: Relation

    def __str__(self) -> str:
        """State the cell, and the value that the formula gives."""
        formula, is_left = self.relation.text, self.column == self.relation.columns[0]
        if is_left and formula.startswith(f"{self.column} = "):
            formula, verb = formula.removeprefix(f"{self.column} = "), "is"
        else:
            verb = "gives"
        value, expected = _distinct(self.value, self.expected)
        return f"row {self.row}: {self.column} is {value}, {formula} {verb} {expected}"


class RelationsFound(NamedTuple):
    """The exact relations of a table."""

    found: list[Relation]  # as of `find_relations`
    n_follow: int  # missing cells that follow from observed ones
    redundant: dict[str, str]  # columns, and another one that determines each
    products: list[str]  # columns that are products, squares or cubes
    typos: list[Typo]  # the first ones
    n_typos: int
    why_not: str = ""  # why nothing was sought


def relations_in(read: UserTable) -> RelationsFound:
    """Find the relations of a table, among the columns that can be read."""
    nothing = RelationsFound([], 0, {}, [], [], 0)
    places = [j for j in range(len(read.keys)) if j not in read.problems]
    if len(places) > _WIDEST:
        why = f"The table has more than {_WIDEST} columns. find_relations searches it."
        return nothing._replace(why_not=why)
    if not places:
        return nothing
    try:
        with np.errstate(all="ignore"):
            columns = read_columns(select_columns(read.frame, places))
            relations = relations_of(columns)
            typos = list(_typos(columns, relations))
    except (ArithmeticError, TypeError, ValueError) as error:
        return nothing._replace(why_not=f"The search failed: {error}")
    checked = [relation.checked for relation in relations]
    cells = closed(columns.bounds, columns.cells, checked)
    return RelationsFound(
        relations,
        int((~columns.observed & ~np.isnan(cells)).sum()),
        _redundant(relations),
        [relation.columns[0] for relation in relations if _is_product(relation)],
        typos[:_TYPOS],
        len(typos),
    )


def _is_product(relation):
    functions = [g for term in getattr(relation.rule, "terms", ()) for _, g in term]
    return relation.kind == "product" or not set(functions).isdisjoint(_CURVES)


def _redundant(relations: list[Relation]) -> dict[str, str]:
    """Map columns to another one that determines them; one of each pair stays."""
    by = {}
    for relation in relations:
        for column in relation.solves if len(relation.columns) == 2 else ():
            first, second = relation.columns
            source = end = second if column == first else first
            while end in by:
                end = by[end]
            if column not in by and end != column:
                by[column] = source
                break
    return by


def _typos(columns: Columns, relations: list[Relation]) -> Iterator[Typo]:
    """List cells that violate formulas, those of the rarest violations first.

    The cell that most formulas of its row accuse, and fewest support, is named; of
    several ones that which is far from others of its column.
    """
    far = columns.bounds.gross(columns.cells)
    formulas = [
        relation for relation in relations if isinstance(relation.rule, Formula)
    ]
    wrong = {
        relation.text: _violated(columns, relation)
        for relation in formulas
        if relation.violations
    }
    rows = set(map(int, chain.from_iterable(wrong.values())))
    accused = {row: np.zeros(len(columns.names)) for row in rows}
    for relation in formulas:
        places = list(relation.rule.columns)
        violated = set(wrong.get(relation.text, ()))
        for row in rows:
            if columns.observed[row, places].all():
                accused[row][places] += 1 if row in violated else -1
    reported = set()
    for relation in sorted(formulas, key=lambda relation: relation.violations):
        places, checked = list(relation.rule.columns), relation.checked
        for row in map(int, wrong.get(relation.text, ())):
            part = columns.cells[[row]][:, places]
            blame = accused[row] + far[row] / 2  # a tie only
            place = max(checked.solves, key=lambda j, blame=blame: blame[j])
            k = places.index(place)
            expected = columns.bounds.snapped(relation.rule.solve(part, k), place)[0]
            if (row, place) not in reported and expected != part[0, k]:
                reported.add((row, place))
                name, value = columns.names[place], part[0, k]
                yield Typo(row, name, float(value), float(expected), relation)


def _violated(columns: Columns, relation: Relation) -> np.ndarray:
    """List the rows that violate a formula by more than rounding."""
    rule, places = relation.rule, list(relation.rule.columns)
    rows = columns.complete(places)
    part = columns.cells[np.ix_(rows, places)]
    good = np.isfinite(rule.gap(part)) & ~np.isin(part[:, 0], rule.voids)
    tolerance = tier_of(columns, rule, part[good])
    if tolerance is None:
        return rows[:0]
    return rows[good][abs(rule.gap(part[good])) > tolerance[1]]


def _distinct(value, expected):
    """Format two numbers by as many digits as tell them apart; three at least."""
    for digits in range(4, 17):
        texts = f"{value:.{digits}g}", f"{expected:.{digits}g}"
        if abs(float(texts[0]) - float(texts[1])) > 0.5 * abs(value - expected):
            break
    return texts
