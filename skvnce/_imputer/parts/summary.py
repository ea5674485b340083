"""What a table in parts is like: sums over its rows, and a sample of them.

A table of up to `rows_in_memory` rows is gathered, and a larger one is sampled: the row
i is chosen if a hash of i is below a limit.  So the sample depends on the order of the
rows, and not on their division into parts.
"""

from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import torch

from skvnce._core.incomplete import Parts, Rows, Units, n_condensed
from skvnce._core.progress import step
from skvnce._core.random import numbered
from skvnce._imputer.parts.chunks import Chunks, rows_in_memory
from skvnce._tables.findings import check_deviations
from skvnce._tables.model_columns import ModelCells

_ROUNDING = 1e-9  # relative difference of sums of the same cells


class Count(NamedTuple):
    """The size and the sums of a part, equal each time that it is read."""

    n_rows: int  # rows, and observed cells
    n_observed: int
    # (n_features,), sums of the observed cells and of their absolute values
    total: np.ndarray
    size: np.ndarray  # (n_features,)

    @classmethod
    def of(cls, X):
        """Count the rows and cells of a part (n, n_features); NaN where missing."""
        cells = _tensor(X)
        size = cells.abs().nansum(0, dtype=torch.float64)
        return cls(len(X), *_counted(cells), size.numpy())


def _tensor(X):
    """Share the memory of an array with torch, if torch can read it."""
    # torch warns of read-only arrays and raises an error for negative strides
    shared = X.flags.writeable and min(X.strides) >= 0
    return torch.from_numpy(X if shared else X.copy())


def _counted(cells):
    n_missing = int(cells.isnan().sum())
    return cells.numel() - n_missing, cells.nansum(0, dtype=torch.float64).numpy()


class SecondReader(NamedTuple):
    """Reads parts again; raises an error if they differ from the first reading."""

    reader: object  # a `TableReader`, or `AsRead`
    counts: tuple  # tuple of Count: one for each part
    # int (n_parts + 1,), the numbers of the first rows of the parts in the table, and
    # of all rows
    firsts: np.ndarray
    names: np.ndarray  # (n_features,)

    @classmethod
    def of(cls, reader, summary, names):
        """Make the reader of a table that a summary describes."""
        firsts = np.cumsum([0, *(count.n_rows for count in summary.parts)])
        return cls(reader, summary.parts, firsts, names)

    def read(self, number, chunk, weights):
        """Validate a part, and compare it with the first reading, up to rounding."""
        X, weights = self.reader.read(number, chunk, weights)
        before = self.counts[number]
        if len(X) != before.n_rows:
            _reject_change(number, f"{before.n_rows} rows", len(X))
        n_observed, total = _counted(_tensor(X))
        if n_observed != before.n_observed:
            _reject_change(number, f"{before.n_observed} observed cells", n_observed)
        # infinite sums, whose difference is NaN
        with np.errstate(invalid="ignore"):
            changed = abs(total - before.total) > _ROUNDING * before.size
        if changed.any():
            place = np.flatnonzero(changed)[0]
            text = f"sum {before.total[place]:.9g} in column {self.names[place]!r}"
            _reject_change(number, text, f"{total[place]:.9g}")
        return X, weights


def _reject_change(number, before, now):
    raise ValueError(
        f"Part {number} of X had {before} when it was first read, and now {now}. Parts "
        "must be the same each time; a function that draws random numbers needs a "
        "fixed seed."
    )


class Summary(NamedTuple):
    """Sums over the rows of some parts."""

    # tuple of Count: one for each part; none for slices of a part, which are counted as
    # a whole
    parts: tuple
    # (n_features,), sum of the weights of the observed cells of each column
    weight: np.ndarray
    # int (n_features,), in rows of positive weight, as in what follows
    n_observed: np.ndarray
    # (n_features,), weighted means of observed cells, and sums of squared deviations
    # from them
    mean: np.ndarray
    square: np.ndarray  # (n_features,)
    # (n_features,), smallest and largest observed cells; NaN without one
    low: np.ndarray
    high: np.ndarray  # (n_features,)
    # bool (n_features,), whether all observed cells are integers, and whether a cell is
    # missing
    integers: np.ndarray
    missing: np.ndarray  # bool (n_features,)
    is_single: bool  # whether the table is of single precision

    @property
    def n_rows(self):
        """Number of rows of all parts."""
        return sum(part.n_rows for part in self.parts)

    @property
    def ends(self):
        """Smallest and largest observed cells; (2, n_features)."""
        return np.stack([self.low, self.high]).astype(np.float64)

    def merged(self, other):
        """Merge with the summary of the next parts (Chan, Golub and LeVeque 1983)."""
        weight = self.weight + other.weight
        # columns without an observed cell so far have weight 0
        safe = np.where(weight > 0, weight, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = other.mean - self.mean
            mean = self.mean + gap * other.weight / safe
            # exactly, so that a column that begins with empty parts is not rounded
            mean = np.where(self.weight > 0, mean, other.mean)
            between = gap**2 * self.weight * other.weight / safe
        return Summary(
            self.parts + other.parts,
            weight,
            self.n_observed + other.n_observed,
            mean,
            self.square + other.square + between,
            np.fmin(self.low, other.low),
            np.fmax(self.high, other.high),
            self.integers & other.integers,
            self.missing | other.missing,
            self.is_single and other.is_single,
        )


def summarised(X, weights):
    """Summarise the rows (n, n_features) of a part."""
    counted = X[weights > 0]
    weights = weights[weights > 0]
    observed = ~np.isnan(counted)
    weight = weights @ observed
    filled = np.where(observed, counted, 0.0).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = weights @ filled / np.where(weight > 0, weight, 1.0)
        square = weights @ np.where(observed, filled - mean, 0.0) ** 2
    none = np.full((1, X.shape[1]), np.nan)  # for parts without rows
    low, high = (
        ufunc.reduce(np.concatenate([counted, none])) for ufunc in (np.fmin, np.fmax)
    )
    return Summary(
        (),
        weight,
        observed.sum(0),
        mean,
        square,
        low,
        high,
        (filled == np.round(filled)).all(0),
        (~observed).any(0),
        X.dtype == np.float32,
    )


class Gathered(NamedTuple):
    """Rows in memory, and sums over all rows."""

    X: np.ndarray  # (n, n_features)
    weights: np.ndarray  # (n,)
    total: float  # weight of the rows that have an observed cell of the model

    def merged(self, other):
        """Merge with the rows of the next parts."""
        rows = np.concatenate([self.X, other.X])
        weights = np.concatenate([self.weights, other.weights])
        return Gathered(rows, weights, self.total + other.total)


def gathered(X, weights, first, share, columns):
    """Choose a share of the rows of a part, and sum the weights of all of them.

    `first` is the number of the first of these rows in the table.
    """
    # numbers in the whole table, so that its division into parts does not matter
    numbers = np.arange(first, first + len(X))
    chosen = np.ones(len(X), dtype=bool) if share >= 1 else numbered(numbers) < share
    nodes = X[:, columns]
    counted = weights > 0
    is_used = counted & ~np.isnan(nodes).all(1) if len(columns) else counted & False
    return Gathered(X[chosen], weights[chosen], weights[is_used].sum())


# ----------------------------------------
# Fits to tables in parts: what is read of them, and sums over their rows.
#
# `fit` reads a table in parts several times.  The first time it learns means,
# standard deviations and ranges of the columns; the second time it gathers the rows
# that it keeps in memory, see `_summary`; then it reads once in each round of EM.


_FEW = 0.2  # condensed share of the rows in memory up to which the table is condensed
_CELLS_AT_ONCE = 2**22  # maximum number of cells of a part that are used at once
_SUMMARISED = 2**17  # of the first reading, whose many large arrays scatter the heap


class LargeTable(NamedTuple):
    """What is known about a table in parts."""

    cells: ModelCells  # of the rows in memory; location and scale are those of all rows
    summary: Summary
    tables: list  # the rows in memory, if they are not all, and the table; scaled

    @property
    def is_sample(self):
        """Whether only some of the rows are in memory."""
        return len(self.tables) > 1

    @property
    def with_ends(self):
        """The rows in memory, and the smallest and largest cells of all others."""
        rows = self.cells.table
        return np.concatenate([rows, self.summary.ends]) if self.is_sample else rows


LIMITS_IN_PARTS = (
    "Limits of single cells, lower and upper of fit, are not available for a table in "
    "parts. Fit to a sample of its rows in memory."
)


class AsRead:
    """Reads parts of a table that has been validated."""

    def read(self, number, X, weights):
        """Return the part."""
        return X, weights


def summary_of(source, reader, weights):
    """Read a table for the first time; `weights` are in parts like it."""
    with step("reading the table"):
        of = partial(_summary_of, reader)
        return source._reduced(of, Summary.merged, weights)


def check_rows(summary):
    """Raise an error if there are too few rows, or no observed cell."""
    if summary.n_rows < 2:
        raise ValueError(
            f"Found array with {summary.n_rows} sample(s) in all parts of X while "
            "a minimum of 2 is required."
        )
    if not summary.n_observed.any():
        raise ValueError(
            "No row of X has an observed cell and a positive weight: nothing to learn."
        )


def gather(source, reader, weights, summary, schema):
    """Read a table for the second time, and gather rows in memory."""
    columns = schema.model_columns
    location, scale = summary.mean[columns], _deviations(summary)[columns]
    check_deviations(schema, columns, scale)
    reader = SecondReader.of(reader, summary, schema.all_names)
    share = rows_in_memory(schema.n_columns) / summary.n_rows
    of = partial(_gathered_of, reader, share, columns)
    with step("gathering rows"):
        gathered = source._reduced(of, Gathered.merged, weights)
    # location and scale are those of all rows, not of the sample
    cells = _cells(schema, gathered, location, scale)
    units = Units(location, scale)
    reduced = partial(_reduced_rows, source, weights, reader, columns, units)
    rows = Rows(units.scaled(cells.nodes), torch.from_numpy(cells.weights))
    total = torch.tensor(gathered.total, dtype=torch.float64)
    # the sample shows how many patterns of missing cells all rows have
    few = n_condensed(rows.data.observed) < _FEW * len(cells.nodes)
    tables = [Parts(reduced, total, few_patterns=few)]
    if share < 1:
        # EM begins with the sample, which is much faster to read
        tables.insert(0, rows)
    return LargeTable(cells, summary, tables)


def with_all_rows(large, X, weights, columns):
    """Replace the table in parts by the array (n, n_features) that it was."""
    nodes = X[:, columns].astype(np.float64)
    with_data = (weights > 0) & ~np.isnan(nodes).all(1)
    units = Units(large.cells.location, large.cells.scale)
    rows = Rows(units.scaled(nodes[with_data]), torch.from_numpy(weights[with_data]))
    return large._replace(tables=[*large.tables[:-1], rows])


def in_chunks(*arrays):
    """Divide arrays of the same rows, of which the first is a table, into chunks."""
    size = max(1, _CELLS_AT_ONCE // arrays[0].shape[1])
    return [Chunks.from_array(array, size) for array in arrays]


def _deviations(summary):
    weight = np.where(summary.weight > 0, summary.weight, 1.0)
    return np.sqrt(summary.square / weight)


def _cells(schema, rows, location, scale):
    """Make `ModelCells` of the rows in memory."""
    columns, X = schema.model_columns, rows.X
    with_data = (rows.weights > 0) & ~np.isnan(X).all(1)
    table, weights = X[with_data], rows.weights[with_data]
    nodes = table[:, columns].astype(np.float64)
    has_nodes = ~np.isnan(nodes).all(1)
    nodes, weights = nodes[has_nodes], weights[has_nodes]
    empty = np.isnan(nodes).all(0) if len(columns) else np.zeros(0, dtype=bool)
    if empty.any():
        name = schema.all_names[columns[empty][0]]
        raise ValueError(
            f"Column {name!r} has no observed cell in a sample of {len(X)} rows, by "
            "which the model is tuned. Drop the column: too little is observed to "
            "impute it."
        )
    counted = rows.weights > 0
    return ModelCells(table, nodes, weights, location, scale, counted)


def _slices(X, weights, n_cells):
    size = max(1, n_cells // max(X.shape[1], 1))
    # one slice at least, because a part may have no rows
    for first in range(0, max(len(X), 1), size):
        part = slice(first, first + size)
        yield X[part], weights[part]


def _summary_of(reader, number, chunk, weights):
    X, weights = reader.read(number, chunk, weights)
    parts = (summarised(*part) for part in _slices(X, weights, _SUMMARISED))
    # of the whole part, as later readings are compared with it
    return reduce(Summary.merged, parts)._replace(parts=(Count.of(X),))


def _gathered_of(reader, share, columns, number, chunk, weights):
    X, weights = reader.read(number, chunk, weights)
    first, samples = reader.firsts[number], []
    for part in _slices(X, weights, _CELLS_AT_ONCE):
        samples.append(gathered(*part, first, share, columns))
        first += len(part[0])
    return reduce(Gathered.merged, samples)


def _reduced_rows(source, weights, reader, columns, units, of, merge):
    """Map rows to sums, and merge them: `Parts.reduce`."""
    sums = partial(_sums_of, reader, columns, units, of, merge)
    return source._reduced(sums, merge, weights)


def _sums_of(reader, columns, units, of, merge, number, chunk, weights):
    X, weights = reader.read(number, chunk, weights)

    def sums(X, weights):
        # indexing copies, and all columns are the usual case
        nodes = X if len(columns) == X.shape[1] else X[:, columns]
        with_data = (weights > 0) & ~np.isnan(nodes).all(1)
        if not with_data.all():
            nodes, weights = nodes[with_data], weights[with_data]
        return of(Rows(units.scaled(nodes), torch.tensor(weights)))

    return reduce(merge, (sums(*part) for part in _slices(X, weights, _CELLS_AT_ONCE)))
