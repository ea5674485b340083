"""What in a table is probably not as it seems; `fit` warns of most of it.

Each check is a function of a `Table` that returns sentences, which name columns, rows
or levels, and what to do.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import fdtrc, gammaln
from scipy.stats import mode, rankdata

from skvnce._core.warnings import warn_user
from skvnce._tables.findings.columns import (
    FEWEST,
    are_names_of_groups,
    are_numbers_of_rows,
    codes_of_missing,
    is_identifier,
    marks_of_missing,
    numbers_as_text,
)
from skvnce._tables.schema import Schema, Table, if_any, listed
from skvnce.exceptions import TableWarning

# ----------------------------------------
# Rows that belong together, and columns that are empty in the rows of a level.

NEVER_OBSERVED = "Never observed at a level of another column"  # begins the warning
_LEVEL = 1e-3  # probability of a false report in a table, at most
_ROWS = 1000, 20_000  # least and most rows that are used, if there are more
_WORK = 5e8  # cells times levels that are counted: about a second
_GROUPS = 20  # levels of a column whose rows may belong together, at least
_LEAST_ROWS = 1.5  # of a group on average: pairs of rows, some of which lack the name
_ROWS_OF_GROUP = 30  # on average, at most: more estimate the mean of their level
_UNEQUAL = 3.0  # most rows of a numbered subject, in averages
_MOST_GROUPS = 5  # columns of groups; of more, most are something else
_JUMPS = 0.4  # variance of neighbours' differences, over that of independent means
_OF_DIFFERENCES = 2 / 3  # degrees of freedom of a squared difference of neighbours
# of fewer, most ranks are tied, and the ratio of variances has no F distribution
_OTHERS = 0.5  # cells apart from the most frequent value, for each group, at least
_EXPLAINED = 0.2  # intra-class correlation from which draws without it mislead


def never_observed(table: Table) -> list[str]:
    """Find columns that are never observed at a level of another column.

    A column is reported if independence would give such a pattern anywhere in the
    table with a probability of at most `_LEVEL`.
    """
    lines = []
    for skip in skips(table):
        names = listed([table.names[place] for place in skip.places])
        gate = table.names[skip.gate]
        lines.append(f"{names} where {gate} is {skip.level!r} ({skip.n_rows} rows)")
    return if_any(
        lines,
        f"{NEVER_OBSERVED}: {{}}. If there is no value, as of a question that was "
        "skipped, say so by where= of transform and sample (user guide, "
        '"What is known of a cell"); otherwise such cells are filled.',
        "; ",
    )


class Skip(NamedTuple):
    """Columns (n,) that are never observed in the rows of a level."""

    gate: int
    level: object
    n_rows: int
    places: np.ndarray


def skips(table: Table) -> list[Skip]:
    """List the levels at which columns are never observed, as `never_observed`."""
    n = len(table.cells)
    partly = np.flatnonzero((table.n_observed > 0) & (table.n_observed < n))
    gates = [(place, len(levels)) for place, levels in table.with_levels()]
    n_tests = len(partly) * sum(n_levels for _, n_levels in gates)
    # a systematic sample of rows, so that many tests do not take long
    step = -(-n // int(np.clip(_WORK / max(n_tests, 1), *_ROWS)))
    seen, skips = ~np.isnan(table.cells[::step][:, partly]), []
    for gate, n_levels in gates if n_tests else ():
        codes = table.cells[::step, gate]
        for code, never in _never_seen(codes, n_levels, seen, n_tests):
            # a row outside of the sample may have an observed cell
            skip = _in_all_rows(table, gate, code, partly[never])
            if skip.places.size:
                skips.append(skip)
    return skips


def _in_all_rows(table: Table, gate: int, code: int, places: np.ndarray) -> Skip:
    """Describe the columns (n,) that are never observed at a level in any row."""
    rows = np.flatnonzero(table.cells[:, gate] == code)
    never = np.isnan(table.cells[np.ix_(rows, places)]).all(0)
    level = table.columns[gate].levels[code]
    return Skip(gate, level, len(rows), places[never])


def _never_seen(
    codes: np.ndarray, n_levels: int, seen: np.ndarray, n_tests: int
) -> Iterator[tuple]:
    """Yield the levels where columns are never observed, and which columns, bool.

    `codes` (n_samples,): of the levels; `seen` bool (n_samples, n_columns);
    `n_tests`: of the table.
    """
    known = ~np.isnan(codes)
    codes, seen = codes[known].astype(int), seen[known]
    n_rows = np.bincount(codes, minlength=n_levels)
    frequent = np.flatnonzero((n_rows >= FEWEST) & (n_rows < len(codes)))
    # products of integers do not use BLAS; float32 counts up to 2**24 exactly
    counts = (codes == frequent[:, None]).astype(np.float32) @ seen.astype(np.float32)
    chance = _chance_of_none(len(codes), seen.sum(0), n_rows[frequent, None])
    never = (counts == 0) & (seen.sum(0) > 0) & (chance * n_tests <= _LEVEL)
    for place in np.flatnonzero(never.any(1)):
        yield int(frequent[place]), never[place]


def _chance_of_none(n: int, n_seen: np.ndarray, n_level: np.ndarray) -> np.ndarray:
    """Compute the hypergeometric probability of no observed cell in n_level rows."""
    free = n - n_level
    with np.errstate(invalid="ignore"):
        # negative numbers have no factorial; below, their probability is 0
        log = gammaln(free + 1) - gammaln(np.maximum(free - n_seen, 0) + 1)
        log -= gammaln(n + 1) - gammaln(n - n_seen + 1)
    return np.where(free >= n_seen, np.exp(log), 0.0)


def repeated_rows(table: Table) -> list[str]:
    """Find columns whose levels have few rows each, which are alike in other columns.

    The intra-class correlation of the ranks of a column with missing cells is at least
    `_EXPLAINED`, and an F test rejects at `_LEVEL`, divided by the number of tests.
    """
    lines = [
        f"{table.names[a.place]} by {table.names[a.group]} ({a.correlation:.2f})"
        for a in repeated(table)
    ]
    return if_any(
        lines,
        "Rows of the same level are alike, as repeated measurements of a subject are "
        "(intra-class correlation): {}. This model has no random effects of them: "
        "imputed values are less alike than observed ones, and analyses that compare "
        "levels are biased. GaussianImputer(groups=column) has such effects; or "
        "impute a table with one row for each level (wide format).",
    )


class Repeated(NamedTuple):
    """A column (place) whose rows are alike within the levels of another (group)."""

    place: int
    group: int
    correlation: float


def repeated(table: Table) -> list[Repeated]:
    """List the columns of which `repeated_rows` tells."""
    explained = _incomplete(table)
    groups = _groups(table) if explained else []
    groups = [one for one in groups if not table.columns[one.place].is_group]
    tests = [(group, j) for group in groups for j in explained if j != group.place]
    named = {group.place for group in groups}
    return [
        Repeated(place, group.place, alike.correlation)
        for group, place in tests
        for alike in [group.alike(table.cells[:, place])]
        if alike.correlation >= _EXPLAINED and alike.p * len(tests) <= _LEVEL
        if place not in named or alike.correlation < 1  # else a second name
    ]


class Alike(NamedTuple):
    """How alike the rows of a group are, and the p-value of the F test."""

    correlation: float
    p: float


class Groups(NamedTuple):
    """Groups of rows."""

    place: int  # the column of the groups
    # (n_samples,), the group of each row, from 0; NaN where it is missing
    codes: np.ndarray
    # whether the groups are numbers. Then only differences between neighbours count,
    # and only if they are nearly those of independent subjects: a column that changes
    # slowly with a number, as with an hour or an age, is no sign of a group, nor is a
    # function of the number, as the decade is of the year
    is_number: bool

    def alike(self, cells: np.ndarray) -> Alike:
        """Compare the variances between and within groups of a column (n_samples,)."""
        known = ~np.isnan(self.codes) & ~np.isnan(cells)
        _, codes = np.unique(self.codes[known], return_inverse=True)
        ranks, sizes = rankdata(cells[known]), np.bincount(codes)
        n, n_groups = len(ranks), len(sizes)
        if n_groups < _GROUPS or n - n_groups < n_groups // 4:
            return Alike(0.0, 1.0)
        if n - mode(ranks).count < _OTHERS * n_groups:
            return Alike(0.0, 1.0)
        means = np.bincount(codes, ranks) / sizes
        within = ((ranks - means[codes]) ** 2).sum() / (n - n_groups)
        # what stands for the group size in the analysis of variance of unequal groups
        size = (n - (sizes**2).sum() / n) / (n_groups - 1)
        if self.is_number:
            # the harmonic mean, because the variance of a mean is inverse to its size
            free, size = (n_groups - 1) * _OF_DIFFERENCES, 1 / (1 / sizes).mean()
            between = size * (np.diff(means) ** 2).mean() / 2
        else:
            free = n_groups - 1
            between = (sizes * (means - ranks.mean()) ** 2).sum() / free
        # means differ about as much between neighbours
        jump = (np.diff(means) ** 2).mean() / 2 >= _JUMPS * means.var(ddof=1)
        if not between or (self.is_number and not (within and jump)):
            return Alike(0.0, 1.0)
        correlation = (between - within) / (between + (size - 1) * within)
        ratio = between / within if within else np.inf
        return Alike(correlation, float(fdtrc(free, n - n_groups, ratio)))


def _groups(table: Table) -> list[Groups]:
    """List the columns whose levels have few rows each."""
    groups = []
    for place, column in enumerate(table.columns):
        if place in table.passed:
            cells, is_number = table.passed[place], column.is_number
            ends = np.nanmin(cells), np.nanmax(cells)
        elif column.kind == "nominal" or column.is_plain:
            cells, is_number = table.cells[:, place], column.is_plain
            ends = table.ends[:, place]
        else:
            continue
        n_groups, n = np.ptp(ends) + 1, table.n_observed[place]
        if n_groups < _GROUPS or not _LEAST_ROWS <= n / n_groups <= _ROWS_OF_GROUP:
            continue
        seen = cells[~np.isnan(cells)]
        if not is_number or _are_running(seen):
            groups.append(Groups(place, _first_groups(cells, seen), is_number))
    return groups[:_MOST_GROUPS]


def _are_running(numbers: np.ndarray) -> bool:
    """Return whether numbers (n,) count subjects.

    They are whole, none is left out, and none is much more frequent than the
    others.
    """
    if not (numbers == np.round(numbers)).all():
        return False
    counts = np.bincount((numbers - numbers.min()).astype(int))
    return bool(counts.min() > 0 and counts.max() <= _UNEQUAL * counts.mean())


def _first_groups(codes: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Replace the codes of all but the first `_ROWS` rows, ordered by code, by NaN."""
    if len(seen) <= _ROWS[1]:
        return codes
    last = np.partition(seen, _ROWS[1])[_ROWS[1]]
    return np.where(codes < last, codes, np.nan)


def _incomplete(table: Table) -> list[int]:
    """List the columns of ordered values that have missing cells."""
    return [
        place
        for place, column in enumerate(table.columns)
        if (column.kind in ("numeric", "ordinal") or len(column.levels or ()) == 2)
        and 0 < table.n_observed[place] < len(table.cells)
    ]


def findings(table: Table) -> list[str]:
    """List what is probably not as it seems in a table."""
    return findings_of_cells(table) + _found(table, (repeated_rows,))


def findings_of_cells(table: Table) -> list[str]:
    """List what is probably not as it seems in cells, of which `fit` warns."""
    of_cells = (marks_of_missing, codes_of_missing, numbers_as_text)
    return _found(table, (*of_cells, numbers_of_rows, never_observed))


def _found(table: Table, checks: Iterable[Callable]) -> list[str]:
    with np.errstate(over="ignore"):  # an infinite range is far from all rules
        return [message for check in checks for message in check(table)]


def warn_of_table(table: Table, n_observed: ArrayLike | None = None) -> None:
    """Warn of what is probably not as it seems in a table.

    `n_observed` int (n_features,) is of all rows, if the table is a sample of them.
    """
    counts = table.n_observed if n_observed is None else n_observed
    messages = many_levels(table, counts) + names_of_groups(table, counts)
    for message in messages + findings_of_cells(table):
        warn_user(message, TableWarning)


def places_of_numbers(table: Table) -> list[int]:
    """Find columns with missing cells whose numbers seem to name rows."""
    return [
        place
        for place in _partly_missing(table)
        if table.columns[place].is_plain and are_numbers_of_rows(table.observed(place))
    ]


def _partly_missing(table: Table) -> list[int]:
    return np.flatnonzero(table.n_observed < len(table.cells)).tolist()


def made_up(table: Table) -> list[int]:
    """Find columns that seem to name rows, or groups of rows, and would be imputed."""
    return sorted(places_of_numbers(table) + places_of_names(table, table.n_observed))


def numbers_of_rows(table: Table) -> list[str]:
    """Find numbers that name rows, some of which are missing and would be imputed."""
    return if_any(
        [table.names[place] for place in places_of_numbers(table)],
        "Whole numbers that are all different: {}. If they name or number rows, "
        "imputed values are made up: leave the columns out by "
        'categorical_features={column: "passthrough"}, or drop them.',
    )


def places_of_names(table: Table, n_observed: np.ndarray) -> list[int]:
    """Find columns with missing cells whose levels seem to name groups of rows."""
    places = []
    for place in _partly_missing(table):
        column, n = table.columns[place], n_observed[place]
        if column.kind != "nominal":
            continue
        is_passed = is_identifier(column, _cells_of_levels(table, place, n))
        cells_of = np.bincount(table.observed(place).astype(int))
        if not is_passed and are_names_of_groups(column, cells_of, n):
            places.append(place)
    return places


def many_levels(table: Table, n_observed: np.ndarray) -> list[str]:
    """Find columns of names or free text: passed through, or modelled as asked for.

    `n_observed` int (n_features,): of all rows, if the table is a sample of them.
    """
    triples = list(zip(table.names, table.columns, n_observed, strict=True))
    passed = [f"{a} ({b.n_levels} in {n} cells)" for a, b, n in triples if b.n_levels]
    asked = [
        f"{name} ({len(column.levels)} in {n} cells)"
        for place, (name, column, n) in enumerate(triples)
        if is_identifier(column, _cells_of_levels(table, place, n))
    ]
    return if_any(
        passed,
        "Identifiers or free text, which have too many levels to learn from: {}. They "
        "are not in the model, and their missing cells stay missing. If they are "
        "numbers or dates, convert them by pandas.to_numeric or pandas.to_datetime. "
        'categorical_features={column: "nominal"} of the imputer, or of its '
        "model=GaussianImputer(...), models them, and "
        '{column: "passthrough"} leaves them out without this warning.',
    ) + if_any(
        asked,
        "Nominal columns with more levels than half of their observed cells: {}. "
        "Nothing can be learned from levels that occur once, and they take time. Drop "
        "the columns if they are identifiers; convert them if they are numbers or "
        "dates.",
    )


def names_of_groups(table: Table, n_observed: np.ndarray) -> list[str]:
    """Find levels that name groups of rows, some of which would be imputed."""
    lines = [
        f"{table.names[j]} ({len(table.columns[j].levels)} in {n_observed[j]} cells)"
        for j in places_of_names(table, n_observed)
    ]
    return if_any(
        lines,
        "Nominal columns of many levels, each in few cells: {}. If they name groups "
        "of rows, such as patients, imputed names are made up: leave the columns out "
        'by categorical_features={column: "passthrough"}, or drop the rows without a '
        "name and use groups=column of GaussianImputer.",
    )


def _cells_of_levels(table: Table, place: int, n_observed: int) -> np.ndarray:
    """Count the cells of each level of a column; all together in a sample of rows."""
    if table.columns[place].kind != "nominal":
        return np.zeros(0, int)
    if n_observed > table.n_observed[place]:
        return np.array([n_observed])
    return np.bincount(table.observed(place).astype(int))


def check_deviations(
    schema: Schema, columns: np.ndarray, deviation: np.ndarray
) -> None:
    """Check that standard deviations (n_columns,) have finite, positive squares."""
    # 1e-300 is above 2.2e-308, below which float64 loses digits
    check_squares(schema, columns, np.isfinite(deviation**2) & (deviation**2 > 1e-300))


def check_squares(schema: Schema, columns: np.ndarray, fit: np.ndarray) -> None:
    """Raise an error for the first column whose squares do not fit into float64."""
    if not fit.all():
        name = schema.label(columns[np.flatnonzero(~fit)[0]])
        raise ValueError(
            f"{name} has values whose squares leave the range of float64. Rescale it."
        )


def check_non_negative(schema: Schema, X: np.ndarray, name: str) -> None:
    """Reject negative cells; scikit-learn's helper misses them in columns with NaN."""
    negative = X < 0
    if negative.any():
        row, column = np.argwhere(negative)[0]
        raise ValueError(
            f"Negative values in data passed to {name}: "
            f"{X[row, column]} in {schema.label(column)}, row {row}. The "
            "model is for non-negative columns; drop or shift columns that are not. "
            "CopulaGraphLearner learns a graph of columns of any distribution."
        )
