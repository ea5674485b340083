"""What a table is and what is missing in it: columns, patterns and reasons."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import chi2, rankdata

from skvnce._core.numbers import MOST_CODES
from skvnce._tables.cells import TIMES
from skvnce._tables.findings import (
    findings,
    heavy_tailed,
    is_identifier,
    many_levels,
    names_of_groups,
    repeated_rows,
    skips,
)
from skvnce._tables.schema import PASSED, if_any
from skvnce._tables.values import lower_median
from skvnce.evaluation._user_table import percent
from skvnce.inspection._common import missing_patterns

_BINS = 16  # of a histogram
_WHOLE = 30  # range of whole numbers, each of which has a bin
_LEVELS = 6  # that are shown, the most frequent ones
_ROWS = 20_000  # in which reasons are sought
TARGETS, PREDICTORS = 100, 200  # most columns between which they are sought
_FEWEST = 10  # missing and observed cells of a column of which a reason is sought
_LEVEL = 0.01  # probability of a false reason in a table, at most
_WEAKEST = 0.1  # strength of a reason that is listed
_EACH, _ALL = 3, 30  # reasons of a column, and of a table, that are listed
_KINDS = {
    "numeric": "number",
    "ordinal": "ordinal: {} levels in their order",
    "nominal": "nominal: {} levels without an order",
    PASSED: "passed through, in no model",
}


class ColumnFound(NamedTuple):
    """What a column is."""

    name: str
    kind: str  # the type as the imputers see it, in words
    n_observed: int
    n_missing: int
    share_missing: float
    # list of int: cells in each bin of a histogram, or with each of the most frequent
    # levels
    heights: list
    # list of str: the smallest value, the median and the largest one, or the levels
    labels: list
    n_levels: int  # number of levels; 0 for numbers
    examples: list  # list of str


class Patterns(NamedTuple):
    """Which cells are missing together."""

    columns: list  # list of str: names of the columns with missing cells
    # bool (n_patterns, n_columns), the different rows, the most frequent one first
    missing: np.ndarray
    counts: np.ndarray  # int (n_patterns,), numbers of rows


class Reason(NamedTuple):
    """A column whose values predict where another one is missing."""

    name: str  # the column with missing cells, and the other one
    by: str
    # between 0 and 1: ``|2 AUC - 1|`` of values in their order, Cramér's V of levels
    # without one
    strength: float
    # times the number of pairs that were compared, at most 1 (Bonferroni)
    p_value: float
    text: str  # in words


class Reasons(NamedTuple):
    """The strongest reasons, how many there are, and what was compared."""

    found: list
    n_found: int
    n_targets: int
    n_explained: int
    n_pairs: int
    n_rows: int


class SkipFound(NamedTuple):
    """Columns that are never observed where another column has a level."""

    names: list
    by: str
    level: str
    n_rows: int


class Identifier(NamedTuple):
    """A column of identifiers or free text."""

    name: str
    n_levels: int
    n_observed: int
    examples: list


def describe_column(read, place):
    """Describe a column of a `UserTable`."""
    table, column = read.table, read.table.columns[place]
    n, n_observed = len(table.cells), int(table.n_observed[place])
    heights, labels = [], []
    if column.levels is not None:
        heights, labels = _frequent(read, place)
    elif column.kind != PASSED and n_observed:
        heights, labels = _histogram(read, place)
    return ColumnFound(
        name=table.names[place],
        kind=_kind(column, place in read.problems),
        n_observed=n_observed,
        n_missing=n - n_observed,
        share_missing=1 - n_observed / n,
        heights=heights,
        labels=labels,
        n_levels=len(column.levels or ()) or column.n_levels,
        examples=read.examples(place),
    )


def _kind(column, is_unreadable):
    if is_unreadable:
        return "cannot be read, in no model"
    if column.dtype in TIMES and column.kind == "numeric":
        return "duration" if column.dtype == "duration" else "date"
    if column.dtype == "boolean" and column.levels:
        return "false or true"
    return _KINDS[column.kind].format(f"{len(column.levels or ()):,}")


def _frequent(read, place):
    codes, column = read.table.observed(place).astype(int), read.table.columns[place]
    counts = np.bincount(codes, minlength=len(column.levels))
    order = np.arange(len(counts))
    if len(counts) > (MOST_CODES if column.kind == "ordinal" else _LEVELS):
        order = np.argsort(-counts, kind="stable")[:_LEVELS]
    return counts[order].tolist(), [read.level(place, code) for code in order]


def _histogram(read, place):
    values = read.table.observed(place)
    low, high = read.table.ends[:, place]
    # halves, because the range of float64 does not hold all differences
    bins, width = min(_BINS, len(values)), high / 2 - low / 2
    if 2 * width < _WHOLE and (values == np.round(values)).all():
        bins, low, high = int(2 * width) + 1, low - 0.5, high + 0.5
    if low < high:
        part = (values / 2 - low / 2) / (high / 2 - low / 2)
        places = np.minimum((part * bins).astype(int), bins - 1)
        heights = np.bincount(places, minlength=bins).tolist()
    else:
        heights = [len(values)]
    middle = np.sort(values)[(len(values) - 1) // 2]
    low, high = read.table.ends[:, place]
    return heights, [read.level(place, value) for value in (low, middle, high)]


def warnings_of(read):
    """List the warnings of `fit`, and columns that it cannot read."""
    table, names = read.table, read.table.names
    sentences = [
        why if names[j] in why else f"{names[j]}: {why}"
        for j, why in read.problems.items()
    ]
    sentences = if_any(sentences, "Columns that an imputer cannot read: {}")
    modelled = [j for j, column in enumerate(table.columns) if column.kind != PASSED]
    empty = [names[j] for j in modelled if not table.n_observed[j]]
    sentences += if_any(
        empty,
        "Entirely missing: {}. Imputers drop such columns, or keep them with "
        "keep_empty_features=True.",
    )
    constant = [names[j] for j in modelled if table.ends[0, j] == table.ends[1, j]]
    sentences += if_any(
        constant,
        "Constant where observed: {}. Such columns are left out of the model, and "
        "their missing cells get this value.",
    )
    numbers = [j for j in modelled if table.columns[j].is_plain]
    heavy = [names[j] for j in heavy_tailed(table.cells, numbers)]
    sentences += if_any(
        heavy,
        "A few cells of {} are so far from the others that they dominate the squared "
        "errors. Set cells that are errors to NaN; otherwise take logarithms of such "
        "columns, or transform them by scikit-learn's PowerTransformer or "
        "QuantileTransformer.",
    )
    for check in (many_levels, names_of_groups):
        sentences += check(table, table.n_observed)
    return sentences + findings(table) + repeated_rows(table)


def patterns_of(read):
    """List the patterns of missing cells (`Patterns`)."""
    places = np.flatnonzero(read.missing.any(0))
    names = [read.table.names[j] for j in places]
    return Patterns(names, *missing_patterns(read.missing[:, places]))


def skips_of(read):
    """List skip patterns, and columns of names or free text."""
    table = read.table
    sentences = [
        SkipFound(
            [table.names[j] for j in skip.places],
            table.names[skip.gate],
            read.level(skip.gate, table.columns[skip.gate].code(skip.level)),
            skip.n_rows,
        )
        for skip in skips(table)
    ]
    names = []
    for place, column in enumerate(table.columns):
        cells = np.zeros(0, int)
        if column.kind == "nominal":
            cells = np.bincount(table.observed(place).astype(int))
        if column.n_levels or is_identifier(column, cells):
            n_levels = column.n_levels or len(column.levels)
            n = int(table.n_observed[place])
            name = table.names[place]
            names.append(Identifier(name, n_levels, n, read.examples(place)))
    return sentences, names


def reasons_of(read, rng):
    """Find columns whose values predict where other ones are missing.

    Values in an order are compared by their ranks (Mann and Whitney), others by
    chi-square.
    """
    table, n = read.table, len(read.table.cells)
    rows = np.arange(n)
    if n > _ROWS:
        rows = np.sort(rng.choice(n, _ROWS, replace=False))
    cells = table.cells[rows]
    modelled = np.flatnonzero([column.kind != PASSED for column in table.columns])
    n_missing = np.isnan(cells).sum(0)
    fit = (n_missing >= _FEWEST) & (len(rows) - n_missing >= _FEWEST)
    targets = modelled[fit[modelled]]
    targets = targets[np.argsort(-n_missing[targets], kind="stable")[:TARGETS]]
    by = modelled[np.argsort(n_missing[modelled], kind="stable")[:PREDICTORS]]
    links, n_pairs = _links(table, cells, targets, by.tolist())
    reasons, of_target = [], {}
    for target, place, strength, p in links:
        of_target[target] = of_target.get(target, 0) + 1
        if of_target[target] <= _EACH and len(reasons) < _ALL:
            names = table.names[target], table.names[place]
            text = _in_words(read, cells, target, place)
            reasons.append(Reason(*names, float(strength), float(p * n_pairs), text))
    return Reasons(
        reasons, len(links), len(targets), len(of_target), n_pairs, len(rows)
    )


def _links(table, cells, targets, by):
    """Compare the values of columns `by` where targets are missing and observed.

    Returns significant differences, the strongest first: target, column, strength and
    p-value; and the number of comparisons.
    """
    links, n_pairs, missing = [], 0, np.isnan(cells)
    for place in by:
        is_observed = ~missing[:, place]
        x, M = cells[is_observed, place], missing[is_observed][:, targets].astype(float)
        counts = M.sum(0)
        usable = (counts >= _FEWEST) & (len(x) - counts >= _FEWEST)
        if not usable.any() or x.min() == x.max():
            continue
        n_pairs += int(usable.sum())
        is_nominal = table.columns[place].kind == "nominal"
        compare = _by_levels if is_nominal else _by_ranks
        strengths, p_values = compare(x, M[:, usable])
        pairs = zip(targets[usable].tolist(), strengths, p_values, strict=True)
        links += [
            (target, place, strength, p)
            for target, strength, p in pairs
            if strength >= _WEAKEST
        ]
    links = [link for link in links if link[3] * n_pairs <= _LEVEL]
    return sorted(links, key=lambda link: -link[2]), n_pairs


def _by_ranks(x, M):
    """Compare the ranks of missing and observed cells: strengths, and p-values."""
    n, ones = len(x), M.sum(0)
    ranks = rankdata(x)
    _, ties = np.unique(x, return_counts=True)
    pairs = ones * (n - ones)
    area = (ranks @ M - ones * (ones + 1) / 2) / pairs
    # without ties, the variance of the sum of ranks is pairs * (n + 1) / 12
    tied = (ties.astype(float) ** 3 - ties).sum() / (n * (n - 1.0))
    z = (area - 0.5) * np.sqrt(12 * pairs / (n + 1 - tied))
    return abs(2 * area - 1), 2 * ndtr(-abs(z))


def _by_levels(x, M):
    """Compare the shares of missing cells of levels: strengths, and p-values."""
    _, codes, counts = np.unique(x, return_inverse=True, return_counts=True)
    rare = counts < _FEWEST  # together they are one level
    codes = np.unique(np.where(rare[codes], -1, codes), return_inverse=True)[1]
    counts = np.bincount(codes)
    if len(counts) < 2:
        return np.zeros(M.shape[1]), np.ones(M.shape[1])
    n_missing = np.stack([np.bincount(codes, column) for column in M.T], axis=1)
    expected = counts[:, None] * M.mean(0)
    square = (n_missing - expected) ** 2
    total = (square / expected + square / (counts[:, None] - expected)).sum(0)
    return np.sqrt(total / len(x)), chi2.sf(total, len(counts) - 1)


def _in_words(read, cells, target, place):
    """Say how the values differ between missing and observed cells."""
    x, M = cells[:, place], np.isnan(cells[:, target])
    is_observed, name = ~np.isnan(x), read.table.names[place]
    x, M = x[is_observed], M[is_observed]
    if read.table.columns[place].kind == "nominal":
        counts = np.bincount(x.astype(int))
        shares = np.bincount(x.astype(int), M) / np.maximum(counts, 1)
        most = int(np.argmax(np.where(counts >= _FEWEST, shares, -1)))
        level = read.level(place, most)
        return (
            f"missing in {percent(shares[most])} of the rows with {name} = {level}, "
            f"and in {percent(M.mean())} of all"
        )
    if read.table.columns[place].levels is None:
        gone, observed = (lower_median(part) for part in (x[M], x[~M]))
        if gone != observed:
            gone, observed = read.level(place, gone), read.level(place, observed)
            return f"median of {name}: {gone} where missing, {observed} where observed"
    levels = np.unique(x)
    cut = levels[np.argmin([abs((x <= end).mean() - 0.5) for end in levels[:-1]])]
    low, high = M[x <= cut].mean(), M[x > cut].mean()
    level = read.level(place, cut)
    return (
        f"missing in {percent(low)} of the rows with {name} up to {level}, and in "
        f"{percent(high)} of the others"
    )
