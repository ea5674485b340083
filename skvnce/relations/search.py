"""The search for relations, and what it returns."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.linalg import matrix_rank
from numpy.typing import ArrayLike

from skvnce.relations import candidates
from skvnce.relations.closure import closed
from skvnce.relations.columns import Columns, read_columns
from skvnce.relations.fits import fit
from skvnce.relations.formulas import Checked, Formula, Rule
from skvnce.relations.lookups import lookups, names_of_sets, one_of_sets, steps

_FEWEST_ROWS = 15  # rows of a table
_FEWEST_OF_LOOKUPS = 60
_WIDEST = 120  # columns of which pairs are combined with all others
_FAILURES = 200  # candidates of a kind that may fail
_FILLED = 1500  # rows by which long linear relations are chosen
_SAME = 1e-4  # singular value below which coefficients say the same


class Relation(NamedTuple):
    """An exact relation between columns; its text is ``str(relation)``."""

    text: str  # such as "lwage = log(wage)"
    # {"affine", "function", "product", "ratio", "powers", "linear", "one-of", "lookup",
    # "steps"}
    kind: str
    columns: tuple  # of str
    support: int  # rows, or repeats of a key, that could show a violation
    violations: int  # rows that violate it: perhaps errors of the table
    solves: tuple  # of str: the columns that it determines if the others are observed
    rule: Rule  # how it computes cells, of indices of columns and of codes

    @property
    def checked(self) -> Checked:
        """The rule, with the indices of the columns that it solves for."""
        named = zip(self.columns, self.rule.columns, strict=True)
        solves = tuple(j for name, j in named if name in self.solves)
        return Checked(self.rule, self.support, self.violations, solves)

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def __repr__(self) -> str:
        """Show the text, the kind and the support."""
        return f"<{self.kind}: {self.text} ({self.support} rows)>"


def find_relations(X: ArrayLike) -> list[Relation]:
    """Find exact relations between the columns of an incomplete table.

    Tables often contain columns that follow from others: logarithms, squares, sums,
    per-capita values, sets of dummies, names of codes, classes of a number. Each
    relation here holds in all rows that observe its columns, up to rounding, and is
    too improbable to hold by chance.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_samples, n_features)
        A numeric or mixed table with missing cells: a data frame of pandas, polars or
        pyarrow, or an array.

    Returns
    -------
    list of Relation
        Named tuples of `text`, `kind`, `columns`, `support`, `violations`, `solves`
        and `rule`. Kinds are "affine", "function" (log, square, cube, inverse),
        "product", "ratio", "powers" (a linear relation of logarithms), "linear",
        "one-of" (columns of zeros and ones, one of which is 1), "lookup" (one or two
        columns determine another one) and "steps" (a column is constant between cut
        points of a number). `solves` names the columns that follow if all others are
        observed.

    Raises
    ------
    TypeError
        If ``X`` is no table, sparse, or a table in parts.
    ValueError
        If ``X`` has no rows, no columns, not two dimensions, or infinite cells.

    See Also
    --------
    skvnce.evaluation.missing_report : Describes a table with missing values.
    ConstrainedImputer : Keeps equations true that the user knows.

    Notes
    -----
    Four conditions must hold:

    1. Up to rounding of float32, or of the last stored digit, a relation holds in every
       row; 0.5 % of the rows may violate a formula, and none another relation.
    2. If the values of one of its columns were shuffled, fewer than 1e-6 relations of
       its kind would be expected in the table (1e-9 of lookups by two columns). Of
       columns that repeat others on a coarse grid the same holds of columns that
       differ from these by a tenth of a standard deviation, in a tenth of the rows.
    3. At least ten rows more than coefficients, or ten repeats of a key, support it:
       40 rows of steps.
    4. Each column leaves its most frequent value in five of these rows, and no
       coefficient depends on one or two rows. Rarer levels are in a set if shuffled
       ones would complete it by a chance of less than 1e-6: three ones in 500 rows
       without missing cells are enough, and a single one is not.

    Coefficients are those of the fewest digits with which the rows agree up to the
    least rounding that explains them.

    Candidates are chosen in a sample of the rows, which is the same in each call, and
    checked in all. Products, ratios, powers and lookups by two columns are sought in
    tables of up to 120 columns, lookups and steps in those of 60 rows or more. Dates
    are in lookups only, and numbers of rows in formulas only. A value that implies one
    of another column is no relation: such rules are often mere tendencies. A set of
    columns determines the names of its columns, such as regions, if these do so.

    Where a formula is undefined, such as the logarithm of 0, cells may be stored all
    the same. If these are always the same, they follow, too.

    Rounding hides relations: errors beyond 0.5 % of a column's standard deviation are
    too large, or beyond 5 % of it in products and powers. A body mass index is found
    with one decimal, if height and weight are those from which it was computed, and not
    as a whole number.

    A relation describes the rows of this table. New rows may violate it, above all a
    lookup. A cell that follows is not necessarily a gap: a question that was skipped
    has no answer.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skvnce import find_relations
    >>> rng = np.random.default_rng(0)
    >>> df = pd.DataFrame(rng.gamma(4.0, size=(200, 2)), columns=["wage", "hours"])
    >>> df["lwage"] = np.log(df["wage"])
    >>> df["income"] = df["wage"] * df["hours"]
    >>> df = df.mask(rng.random(df.shape) < 0.1)
    >>> for relation in find_relations(df):
    ...     print(relation.kind, "|", relation, "|", relation.solves)
    function | lwage = log(wage) | ('lwage', 'wage')
    product | income = wage * hours | ('income', 'wage', 'hours')
    """
    with np.errstate(all="ignore"):
        return relations_of(read_columns(X))


def relations_of(columns: Columns) -> list[Relation]:
    """Find the relations of columns that are read."""
    n, p = columns.cells.shape
    if n < _FEWEST_ROWS:
        return []
    links = _Links(p)
    rules = _formulas(columns, links)
    if n >= _FEWEST_OF_LOOKUPS:
        rules += _others(columns, links)
        rules += names_of_sets(rules)
    return [_described(columns, checked) for checked in rules]


class _Links:
    """Which columns repeat others, and which sets of columns have a formula."""

    def __init__(self, p: int) -> None:
        self.same = np.arange(p)  # the column that each one repeats, or itself
        self._linked = set()

    def add(self, checked: Checked) -> None:
        """Remember a formula."""
        columns = list(checked.columns)
        self._linked.add(frozenset(self.same[columns].tolist()))
        if len(columns) == len(checked.solves) == 2:
            first, second = self.same[columns]
            self.same[self.same == first] = second

    def have(self, columns: Iterable[int]) -> bool:
        """Tell whether columns, or those that they repeat, have a formula."""
        columns = list(columns)
        short = frozenset(self.same[columns].tolist())
        return len(short) < len(columns) or short in self._linked


def _formulas(columns: Columns, links: _Links) -> list[Checked]:
    """Find sets of which one is 1, and formulas: short ones first."""
    formulas = one_of_sets(columns)
    for checked in formulas:
        links.add(checked)
    formulas += _fitted(columns, links, [candidates.curves(columns)])
    places = columns.numbers
    pairs = candidates.pairs_of(places, links.same) if len(places) <= _WIDEST else []
    linear, powers = (candidates.triples(columns, pairs, g) for g in ("same", "log"))
    for lists in ([candidates.products(columns, pairs), linear], [powers]):
        formulas += _fitted(columns, links, lists)
    return formulas + _long(columns, links, formulas)


def _fitted(
    columns: Columns, links: _Links, lists: list[tuple[int, list[Formula]]]
) -> list[Checked]:
    """Keep the candidates that hold and that say something new.

    Those that hold up to rounding come last, the most precise left-hand side first: in
    narrow ranges a ratio is nearly a difference.
    """
    fits, rounded = [], []
    for tried, formulas in lists:
        failures = 0
        for formula in formulas:
            if links.have(formula.columns):
                continue
            checked = fit(columns, formula, tried)
            if checked is None or links.have(checked.columns):
                failures += 1
                if failures == _FAILURES:
                    break
            elif checked.rule.tier > 0:
                rounded.append(checked)
            else:
                links.add(checked)
                fits.append(checked)
    for checked in sorted(rounded, key=lambda each: (each.rule.tier, each.error)):
        if not links.have(checked.columns):
            links.add(checked)
            fits.append(checked)
    return fits


def _long(columns: Columns, links: _Links, short: list[Checked]) -> list[Checked]:
    """Find linear relations of many columns, by cells that others fill."""
    places = [j for j in columns.numbers if links.same[j] == j]
    if len(places) < 3:
        return []
    rows = np.sort(columns.rng.permutation(len(columns.cells))[:_FILLED])
    filled = closed(columns.bounds, columns.cells[rows], short)
    filled = np.where(columns.bounds.gross(filled), np.nan, filled)[:, places]
    gram, targets = candidates.explained(filled)
    more, linked, longer, excluded, tried = [], [], [], set(), 50 * len(places)
    for target in targets:
        for formula in candidates.pursued(columns, places, gram, target, excluded):
            if links.have(formula.columns):
                # not in wide tables, where this would take long
                linked += [(target, formula)] * (len(places) <= _WIDEST)
                break
            checked = fit(columns, formula, tried)
            if checked is not None and not links.have(checked.columns):
                links.add(checked)
                more.append(checked)
                excluded.add(target)
            if checked is not None:
                break
    for target, formula in linked:  # what tells most hides another one
        others = excluded | {places.index(formula.columns[1])}
        formulas = candidates.pursued(columns, places, gram, target, others)
        fits = (fit(columns, formula, tried) for formula in formulas)
        longer += [next(filter(None, fits), None)]
    rules = [*short, *more]
    for checked in sorted(filter(None, longer), key=lambda each: len(each.columns)):
        if not _follows(rules, checked, len(columns.names)):
            rules.append(checked)
    return rules[len(short) :]


def _follows(rules: list[Checked], checked: Checked, p: int) -> bool:
    """Tell whether a sum is one of sums that others say."""
    sums = [rule.rule for rule in [*rules, checked] if rule.rule.is_sum]
    weights = np.zeros((len(sums), p))
    for row, rule in zip(weights, sums, strict=True):
        row[list(rule.columns)] = rule.weights
    return matrix_rank(weights, _SAME) == matrix_rank(weights[:-1], _SAME)


def _others(columns: Columns, links: _Links) -> list[Checked]:
    """Find lookups and steps that formulas do not contain."""
    sources = [j for j in range(len(columns.names)) if links.same[j] == j]
    rules = [
        checked
        for checked in steps(columns, [j for j in sources if columns.is_number[j]])
        if not links.have(checked.columns)
    ]
    pairs = {checked.columns for checked in rules}  # steps say more than lookups
    for checked in lookups(columns, sources, wide=len(columns.names) > _WIDEST):
        target, *keys = checked.columns
        is_new = not any(links.have([target, key]) for key in keys)
        if is_new and checked.columns not in pairs and not links.have([target, *keys]):
            rules.append(checked)
    return rules


def _described(columns: Columns, checked: Checked) -> Relation:
    rule = checked.rule
    names = tuple(columns.names[j] for j in checked.columns)
    solves = tuple(columns.names[j] for j in checked.solves)
    rest = checked.support, checked.violations, solves, rule
    return Relation(rule.text(columns.names), rule.kind, names, *rest)
