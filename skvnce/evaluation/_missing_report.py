"""A report of a table with missing values, as one page."""

import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skvnce import metrics
from skvnce._core.numbers import check_count
from skvnce._tables.cells import DAY, TIMES
from skvnce._tables.findings import made_up, repeated
from skvnce._tables.mixed import select_columns
from skvnce._tables.schema import PASSED, if_any, listed
from skvnce._types import Seed
from skvnce.evaluation import _table_findings
from skvnce.evaluation._missing_html import fragment, text
from skvnce.evaluation._user_table import UserTable, percent, read_user_table
from skvnce.missingness import _generator
from skvnce.relations.closure import closed
from skvnce.relations.columns import Columns, read_columns
from skvnce.relations.fits import Trial, tolerance_of
from skvnce.relations.formulas import Formula
from skvnce.relations.search import Relation, relations_of

# ----------------------------------------
# Exact relations of a table: what follows from them, and cells that violate them.


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
    rule, rows = relation.rule, columns.complete(list(relation.rule.columns))
    trial = Trial.of(columns, rule, rows)
    gap = abs(rule.gap(trial.part))
    good = np.isfinite(gap) & ~np.isin(trial.part[:, 0], rule.voids)
    tolerance = tolerance_of(trial._replace(part=trial.part[good]))
    if tolerance is None:
        return rows[:0]
    return rows[good][gap[good] > tolerance.limit]


def _distinct(value, expected):
    """Format two numbers by as many digits as tell them apart; three at least."""
    for digits in range(4, 17):
        texts = f"{value:.{digits}g}", f"{expected:.{digits}g}"
        if abs(float(texts[0]) - float(texts[1])) > 0.5 * abs(value - expected):
            break
    return texts


# ----------------------------------------
# How well hidden cells of a table are predicted by a model of a sample of its rows.

HIDDEN = 0.1  # share of the observed cells
LEVEL = 0.9  # of the intervals
_DRAWS = 20  # of a hidden cell
_FEWEST = 10  # hidden cells of a column that is scored
_ROWS = 30  # with fewer, nothing is hidden
_SIZE = 100  # of the model, at most: numbers and ordered columns, and all other levels
_LEVELS = 30  # of a nominal column in the model, at most


class Predicted(NamedTuple):
    """How well hidden cells of a column are predicted."""

    name: str
    n_cells: int  # number of hidden cells
    # of numbers: one minus the ratio of the mean squared errors of the imputer and of
    # the mean of the column. NaN for levels
    gain: float = np.nan
    # of levels: the share of cells whose level is right, and that of the most frequent
    # level. NaN for numbers
    accuracy: float = np.nan
    usual: float = np.nan
    # of numbers: the share of cells in the 90 % interval of their draws
    coverage: float = np.nan


class HiddenCells(NamedTuple):
    """The columns that were scored, and what was used."""

    columns: list  # list of Predicted
    n_rows: int = 0  # of the table in which cells were hidden
    n_columns: int = 0
    # list of str: columns with missing cells that were not scored
    left_out: list = []  # noqa: RUF012  it is never written to
    why_not: str = ""  # why nothing was scored; empty if something was


def score_hidden_cells(read, group, most_rows, rng):
    """Hide cells of a sample of rows, fit `GaussianImputer`, and compare."""
    table, n = read.table, len(read.table.cells)
    incomplete = [j for j in _modelled(table) if table.n_observed[j] < n]
    if not incomplete:
        return HiddenCells([], why_not="No cell is missing that an imputer would fill.")
    rows = _sample(table, group, most_rows, rng)
    if len(rows) < _ROWS:
        why = f"The table has fewer than {_ROWS} rows that can be used."
        return HiddenCells([], why_not=why)
    places = _places(table, rows, group)
    X, kinds = _part_of(table, rows, places)
    hidden = ~np.isnan(X) & (rng.random(X.shape) < HIDDEN)
    training = np.where(hidden, np.nan, X)
    groups = None
    if group is not None:
        training = np.column_stack([training, _codes(table, group)[rows]])
        groups = len(places)
    try:
        filled, draws = _fill_and_draw(training, kinds, groups, rng)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        return HiddenCells([], why_not=f"GaussianImputer failed: {error}")
    scores = []
    for k in (k for k, j in enumerate(places) if j in incomplete):
        if hidden[:, k].sum() >= _FEWEST:
            parts = X[:, k], training[:, k], hidden[:, k], filled[:, k], draws[:, :, k]
            score = _of_numbers if k not in kinds else _of_levels
            scores.append(score(table.names[places[k]], *parts))
    scored = {predicted.name for predicted in scores}
    left_out = [table.names[j] for j in incomplete if table.names[j] not in scored]
    why = "" if scores else "Too few cells of the columns are observed."
    return HiddenCells(scores, len(rows), len(places), left_out, why)


def products_in(read, most_rows, rng):
    """Say which squares and products `TableImputer` finds in a sample of rows."""
    from skvnce import TableImputer

    table = read.table
    rows = _sample(table, None, most_rows, rng)
    places = _places(table, rows, None)
    X, kinds = _part_of(table, rows, places)
    seed = int(rng.integers(2**31 - 1))
    imputer = TableImputer(
        n_estimators=0, categorical_features=kinds, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            products = imputer.fit(X).interactions_
        except (ArithmeticError, RuntimeError, TypeError, ValueError):
            return []  # other parts of the report say what `fit` rejects
    pairs = []
    for *columns, _ in products:
        names = (table.names[places[int(name.removeprefix("x"))]] for name in columns)
        pairs.append("{} times {} for {}".format(*names))
    return if_any(pairs, "It finds squares and products, and draws them: {}.")


def _part_of(table, rows, places):
    """Select rows and columns, with times in days, and kinds that are not numeric."""
    X = table.cells[np.ix_(rows, places)]
    X[:, [table.columns[j].dtype in TIMES for j in places]] /= DAY
    kinds = {k: table.columns[j].kind for k, j in enumerate(places)}
    return X, {k: kind for k, kind in kinds.items() if kind != "numeric"}


def _modelled(table):
    """List the columns of a model."""
    return [
        j
        for j, column in enumerate(table.columns)
        if column.kind != PASSED and table.ends[0, j] < table.ends[1, j]
    ]


def _codes(table, group):
    return table.passed.get(group, table.cells[:, group])


def _sample(table, group, most, rng):
    """Choose rows; whole groups, if there are any."""
    rows = rng.permutation(len(table.cells))
    if group is not None:
        codes = _codes(table, group)
        rows = rows[~np.isnan(codes[rows])]
        turns = rng.permutation(int(np.nanmax(codes)) + 1)
        rows = rows[np.argsort(turns[codes[rows].astype(int)], kind="stable")]
    return np.sort(rows[:most])


def _places(table, rows, group):
    """Choose the columns of the model, those with missing cells first."""
    sizes = {}
    for j in _modelled(table):
        cells = table.cells[rows, j]
        n_levels = len(np.unique(cells[~np.isnan(cells)]))
        is_nominal = table.columns[j].kind == "nominal"
        if j != group and 1 < n_levels <= (_LEVELS if is_nominal else n_levels):
            sizes[j] = n_levels if is_nominal else 1
    chosen, size = [], 0
    for j in sorted(sizes, key=lambda j: table.n_observed[j] == len(table.cells)):
        if size + sizes[j] <= _SIZE:
            chosen.append(j)
            size += sizes[j]
    return sorted(chosen)


def _fill_and_draw(training, kinds, groups, rng):
    """Fill and draw the missing cells."""
    from skvnce import GaussianImputer

    seeds = [int(seed) for seed in rng.integers(2**31 - 1, size=2)]
    imputer = GaussianImputer(
        categorical_features=kinds,
        groups=groups,
        keep_empty_features=True,
        on_misfit="ignore",
        random_state=seeds[0],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filled = imputer.fit(training).transform(training)
        draws = imputer.sample(training, n_draws=_DRAWS, random_state=seeds[1])
    return filled.astype(float), np.asarray(draws, dtype=float)


def _of_numbers(name, truth, training, hidden, filled, draws):
    errors = [
        np.mean((guess - truth[hidden]) ** 2)
        for guess in (filled[hidden], np.nanmean(training))
    ]
    gain = 1 - errors[0] / errors[1] if errors[1] else np.nan
    covered = metrics.coverage(
        truth[:, None], draws[:, :, None], hidden[:, None], level=LEVEL, ties="shared"
    )
    return Predicted(name, int(hidden.sum()), float(gain), coverage=covered)


def _of_levels(name, truth, training, hidden, filled, draws):
    levels = training[~np.isnan(training)].astype(int)
    usual = np.bincount(levels).argmax() if len(levels) else -1
    shares = [np.mean(truth[hidden] == guess) for guess in (filled[hidden], usual)]
    return Predicted(
        name, int(hidden.sum()), accuracy=float(shares[0]), usual=float(shares[1])
    )


# ----------------------------------------
# Which imputer for a table: the rules of the page "Which imputer for which table".

_LARGE = 100_000  # rows
_WIDE = 50  # columns
_FEW = 0.01  # share of missing cells of which little depends


class Recommendation(NamedTuple):
    """An imputer for a table."""

    imputer: str  # the name of its class
    code: str  # lines that fill the table ``df``, or the array ``X``
    reasons: list  # list of str: sentences
    group: int | None  # the column that names the groups of rows


def recommend(read):
    """Choose an imputer for a `UserTable`."""
    table = read.table
    modelled = [j for j, column in enumerate(table.columns) if column.kind != PASSED]
    n, d = len(table.cells), len(modelled)
    alike = Counter(pair.group for pair in repeated(table))
    group = max(alike, key=alike.get) if alike else None
    name, reasons = "TableImputer", []
    if group is not None:
        name = "GaussianImputer"
        reasons.append(
            f"Rows of the same {table.names[group]} are alike, as repeated "
            "measurements are: groups= gives each group an effect of its own."
        )
    elif d > n:
        reasons.append(
            "There are more columns than rows. GaussianImputer takes less time."
        )
    elif n >= _LARGE or d >= _WIDE:
        many = f"{n:,} rows" if n >= _LARGE else f"{d:,} columns"
        reasons.append(
            f"It fills the table, and its draws suit pooled analyses. With {many}, "
            "GaussianImputer takes less time."
        )
    else:
        reasons.append(
            f"With {n:,} rows, it learns nonlinear relations and products as far as "
            "held-out cells confirm them. Its draws suit pooled analyses."
        )
    left_out = [j for j in made_up(table) if j != group]
    if len(left_out) == d:  # a model needs a column
        left_out = []
    if left_out:
        names = listed([table.names[j] for j in left_out])
        reasons.append(
            f"The code leaves out what seems to name rows: {names}. Its missing cells "
            "stay missing."
        )
    code = _code(read, name, group, left_out)
    return Recommendation(name, code, reasons + _notes(table, modelled), group)


def _notes(table, modelled):
    missing = np.isnan(table.cells[:, modelled])
    if not missing.any():
        return [
            "No cell is missing that an imputer would fill: it is of use for new rows "
            "only."
        ]
    if missing.mean() < _FEW:
        return [
            f"{percent(missing.mean())} of the cells are missing: the choice of the "
            "imputer matters little."
        ]
    return []


def _code(read, name, group, left_out):
    """Write the lines that fill the table; columns are left out of the model."""
    options, lines = [], [f"from skvnce import {name}"]
    kinds = read.kinds | {read.keys[j]: PASSED for j in left_out}
    if group is not None:
        key = read.keys[group]
        kinds.pop(key, None)
        options.append(f"groups={_quoted(key)}")
        if np.isnan(_codes(read.table, group)).any():
            lines.append(_without_rows(read.library, key))
    if kinds:
        pairs = [f"{_quoted(key)}: {_quoted(kind)}" for key, kind in kinds.items()]
        options.append(f"categorical_features={{{', '.join(pairs)}}}")
    options.append("random_state=0")
    output, table = "", "X" if read.library == "array" else "df"
    if read.library in ("pandas", "polars"):
        output = f'.set_output(transform="{read.library}")'
    fitted = f"{name}({', '.join(options)}){output}"
    return "\n".join([*lines, f"filled = {fitted}.fit_transform({table})"])


def _without_rows(library, key):
    """Write the line that drops rows without the name of their group."""
    return {
        "pandas": "df = df.dropna(subset=[{key}])",
        "polars": "df = df.drop_nulls({key})",
        "pyarrow": "df = df.filter(df[{key}].is_valid())",
        "array": "X = X[X[:, {key}] == X[:, {key}]]",
    }[library].format(key=_quoted(key))


def _quoted(key):
    """Write a name or an index as Python does, in double quotes if it can be."""
    if isinstance(key, str) and key.isprintable() and not set(key) & set('"\\'):
        return f'"{key}"'
    return repr(key)


class MissingReport(NamedTuple):
    """What `missing_report` has found in a table.

    A notebook shows it as a page.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns.
    share_missing : float
        Share of the cells that are missing.
    recommendation : Recommendation
        ``imputer`` (the name of its class), ``code``, ``reasons`` and ``group``, the
        index of the column that names the groups of rows, or None.
    warnings : list of str
        What is probably not as it seems, as `fit` warns of it.
    columns : list of ColumnFound
        Of each column ``name``, ``kind``, ``n_missing``, ``share_missing`` and others.
    patterns : Patterns
        ``columns`` with missing cells, ``missing``, the different rows, and ``counts``
        of rows.
    reasons : Reasons
        Of its list ``found`` each item has ``name`` of a column with missing cells,
        ``by``, the column whose values predict where, ``strength``, ``p_value`` and
        ``text``.
    hidden : HiddenCells
        Its list ``columns`` has ``name``, ``n_cells``, ``gain``, ``accuracy``,
        ``usual`` and ``coverage``.
    skips : list of SkipFound
        ``names`` of columns that are never observed where the column ``by`` is
        ``level``.
    identifiers : list of Identifier
        ``name`` of columns of identifiers or free text, ``n_levels``, ``n_observed``.
    relations : RelationsFound
        Its list ``found`` is that of `skvnce.find_relations`. Of the missing cells
        ``n_follow`` follow from others; ``redundant`` maps columns to another one that
        determines them, and ``products`` names products, squares and cubes. ``typos``
        are the first of ``n_typos`` cells that violate a formula, with ``row``,
        ``column``, ``value``, ``expected`` and ``relation``.
    """

    shape: tuple
    share_missing: float
    recommendation: Recommendation
    warnings: list
    columns: list
    patterns: _table_findings.Patterns
    reasons: _table_findings.Reasons
    hidden: HiddenCells
    skips: list
    identifiers: list
    relations: RelationsFound

    def to_html(self) -> str:
        """Return the page: HTML with its own style, and without scripts.

        Returns
        -------
        str
        """
        return text("page", body=fragment(self))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file, in UTF-8.

        Parameters
        ----------
        path : str or path-like
            The file to write.

        Returns
        -------
        pathlib.Path
        """
        path = Path(path)
        # a lone surrogate, which names may have, is no text in UTF-8
        path.write_bytes(self.to_html().encode("utf-8", "replace"))
        return path

    def _repr_html_(self):
        return fragment(self)

    def __repr__(self):
        """Describe the report in a line."""
        n, d = self.shape
        return (
            f"<MissingReport of {n:,} rows and {d:,} columns: "
            f"{self.share_missing:.1%} of the cells are missing, "
            f"{self.recommendation.imputer} is recommended, "
            f"{len(self.warnings)} warnings, "
            f"{len(self.relations.found)} relations of columns>"
        )


def missing_report(
    X: ArrayLike, *, n_rows: int = 2000, random_state: Seed = None
) -> MissingReport:
    """Look at a table with missing values before it is imputed.

    The report recommends an imputer, with its code, and lists the warnings of `fit`;
    it describes the columns, patterns of missing cells, which columns predict where
    others are missing, how well hidden cells are predicted, skip patterns, columns of
    names of rows, and exact relations between columns. The page has no scripts and
    needs no network.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_samples, n_features)
        A numeric or mixed table: a data frame of pandas, polars or pyarrow, or an
        array.
    n_rows : int, default=2000
        Number of rows, drawn at random, in which cells are hidden, at most.
    random_state : int, RandomState, Generator or None, default=None
        Source of samples of rows, of the hidden cells and of the draws.

    Returns
    -------
    MissingReport
        Its ``save(path)`` writes the page, and ``to_html()`` returns it.

    See Also
    --------
    imputation_report : Compares several imputers on hidden cells.
    skvnce.find_relations : Lists exact relations between columns.
    skvnce.inspection.MissingnessDisplay : Plots patterns of missing cells.

    Notes
    -----
    The page shows names of columns and values of cells: treat it like the table.

    A tenth of the observed cells is hidden at random, and `skvnce.GaussianImputer` is
    fitted once to the others. Cells that are really missing may be harder to predict.
    Columns that predict where others are missing are tested at a level of 0.01, divided
    by the number of pairs (Bonferroni), in at most 20,000 rows. No table shows whether
    cells are missing because of their own values.

    Examples
    --------
    >>> from skvnce.datasets import load_nhanes
    >>> from skvnce.evaluation import missing_report
    >>> df = load_nhanes(as_frame=True).data
    >>> report = missing_report(df, n_rows=500, random_state=0)
    >>> report.recommendation.imputer
    'TableImputer'
    >>> report.columns[3].name, report.columns[3].n_missing
    ('Weight', 43)
    >>> page = report.to_html()  # or report.save("report.html")
    """
    check_count(n_rows, "n_rows")
    rng = _generator(random_state)
    read = read_user_table(X)
    recommendation = recommend(read)
    skips, identifiers = _table_findings.skips_of(read)
    hidden = score_hidden_cells(read, recommendation.group, n_rows, rng)
    if recommendation.imputer == "TableImputer":
        reasons = recommendation.reasons + products_in(read, n_rows, rng)
        recommendation = recommendation._replace(reasons=reasons)
    n, d = read.table.cells.shape
    return MissingReport(
        shape=(n, d),
        share_missing=float(read.missing.mean()),
        recommendation=recommendation,
        warnings=_table_findings.warnings_of(read),
        columns=[_table_findings.describe_column(read, j) for j in range(d)],
        patterns=_table_findings.patterns_of(read),
        reasons=_table_findings.reasons_of(read, rng),
        hidden=hidden,
        skips=skips,
        identifiers=identifiers,
        relations=relations_in(read),
    )
