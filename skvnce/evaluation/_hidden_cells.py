"""How well hidden cells of a table are predicted by a model of a sample of its rows."""

import warnings
from typing import NamedTuple

import numpy as np

from skvnce import metrics
from skvnce._tables.cells import DAY, TIMES
from skvnce._tables.column_kinds import PASSED
from skvnce._tables.schema import listed

HIDDEN = 0.1  # share of the observed cells
LEVEL = 0.9  # of the intervals
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


def score_hidden_cells(read, group, most_rows, n_draws, rng):
    """Hide cells of a sample of rows, fit `GaussianImputer`, and compare.

    `group` int or None: the column that names the groups of rows; `most_rows`,
    `n_draws` int; `rng` Generator.
    """
    table, n = read.table, len(read.table.cells)
    wanted = [j for j in _modelled(table) if table.n_observed[j] < n]
    if not wanted:
        return HiddenCells([], why_not="No cell is missing that an imputer would fill.")
    rows = _sample(table, group, most_rows, rng)
    if len(rows) < _ROWS:
        why = f"The table has fewer than {_ROWS} rows that can be used."
        return HiddenCells([], why_not=why)
    places = _places(table, rows, group)
    X, kinds = _part_of(table, rows, places)
    hidden = ~np.isnan(X) & (rng.random(X.shape) < HIDDEN)
    given = np.where(hidden, np.nan, X)
    groups = None
    if group is not None:
        given = np.column_stack([given, _codes(table, group)[rows]])
        groups = len(places)
    try:
        filled, draws = _fitted(given, kinds, groups, n_draws, rng)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        return HiddenCells([], why_not=f"GaussianImputer failed: {error}")
    found = []
    for k in (k for k, j in enumerate(places) if j in wanted):
        if hidden[:, k].sum() >= _FEWEST:
            parts = X[:, k], given[:, k], hidden[:, k], filled[:, k], draws[:, :, k]
            score = _of_numbers if k not in kinds else _of_levels
            found.append(score(table.names[places[k]], *parts))
    scored = {one.name for one in found}
    left_out = [table.names[j] for j in wanted if table.names[j] not in scored]
    why = "" if found else "Too few cells of the columns are observed."
    return HiddenCells(found, len(rows), len(places), left_out, why)


def products_in(read, most_rows, rng):
    """Say which squares and products `TableImputer` finds in a sample of rows.

    Returns list of str: at most one sentence.
    """
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
            return []  # what a fit rejects, other parts of the report tell
    names = [
        [table.names[places[int(one.removeprefix("x"))]] for one in columns]
        for *columns, _ in products
    ]
    found = [f"{first} times {second} for {target}" for first, second, target in names]
    if not found:
        return []
    return [f"It finds squares and products, and draws them: {listed(found)}."]


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
        seen = table.cells[rows, j]
        n_levels = len(np.unique(seen[~np.isnan(seen)]))
        is_nominal = table.columns[j].kind == "nominal"
        if j != group and 1 < n_levels <= (_LEVELS if is_nominal else n_levels):
            sizes[j] = n_levels if is_nominal else 1
    found, size = [], 0
    for j in sorted(sizes, key=lambda j: table.n_observed[j] == len(table.cells)):
        if size + sizes[j] <= _SIZE:
            found.append(j)
            size += sizes[j]
    return sorted(found)


def _fitted(given, kinds, groups, n_draws, rng):
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
        filled = imputer.fit(given).transform(given)
        draws = imputer.sample(given, n_draws=n_draws, random_state=seeds[1])
    return filled.astype(float), np.asarray(draws, dtype=float)


def _of_numbers(name, truth, given, hidden, filled, draws):
    errors = [
        np.mean((guess - truth[hidden]) ** 2)
        for guess in (filled[hidden], np.nanmean(given))
    ]
    gain = 1 - errors[0] / errors[1] if errors[1] else np.nan
    columns = truth[:, None], draws[:, :, None], hidden[:, None]
    covered = metrics.coverage(*columns, level=LEVEL, ties="shared")
    return Predicted(name, int(hidden.sum()), float(gain), coverage=covered)


def _of_levels(name, truth, given, hidden, filled, draws):
    seen = given[~np.isnan(given)].astype(int)
    usual = np.bincount(seen).argmax() if len(seen) else -1
    shares = [np.mean(truth[hidden] == one) for one in (filled[hidden], usual)]
    return Predicted(
        name, int(hidden.sum()), accuracy=float(shares[0]), usual=float(shares[1])
    )
