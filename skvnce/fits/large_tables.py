"""Fits to tables in parts: what is read of them, and sums over their rows.

`fit` reads a table in parts several times.  The first time it learns means, standard
deviations and ranges of the columns; the second time it gathers the rows that it keeps
in memory, see `_summary`; then it reads once in each round of EM.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from skvnce._progress import step
from skvnce._units import Units
from skvnce.algorithms.gaussian.condensed import n_condensed
from skvnce.algorithms.gaussian.rows import Parts, Rows
from skvnce.sources.chunks import Chunks
from skvnce.sources.summary import (
    Count,
    FirstReading,
    Gathered,
    Summary,
    gathered,
    rows_in_memory,
    summarised,
)
from skvnce.tables.checks import check_deviations
from skvnce.tables.model_columns import ModelCells

_FEW = 0.2  # condensed share of the rows in memory up to which the table is condensed
_CELLS_AT_ONCE = 2**22  # maximum number of cells of a part that are used at once
_SUMMARISED = 2**17  # of the first reading, whose many large arrays scatter the heap


class LargeTable(NamedTuple):
    """What is known about a table in parts."""

    cells: ModelCells  # of the rows in memory; location and scale are those of all rows
    summary: Summary
    powers: np.ndarray  # (4, n_nodes), see `Gathered`
    tables: list  # the rows in memory, if they are not all, and the table; scaled
    reader: object  # its ``read(number, X, weights)`` validates a part
    known: FirstReading

    @property
    def is_sample(self):
        """Whether only some of the rows are in memory."""
        return len(self.tables) > 1

    def sums(self, nodes=slice(None)):
        """Return what `heavy_in_sums` needs of some columns; None if all are in memory.

        `nodes` chooses among the columns of the model.
        """
        if not self.is_sample:
            return None
        cells, powers = self.cells, self.powers[:, nodes]
        moments = cells.location[nodes], cells.scale[nodes]
        return *moments, powers, self.summary.n_observed


class AsRead:
    """Reads parts of a table that has been validated."""

    def read(self, number, X, weights):
        """Return the part."""
        return X, weights


def is_large(X):
    """Return whether a table is too large to be tuned by all of its rows."""
    return len(X) > rows_in_memory(X.shape[1])


def reject_limits(lower, upper):
    """Raise an error for limits of single cells of a table in parts."""
    if lower is not None or upper is not None:
        raise ValueError(
            "Limits of single cells, lower and upper of fit, are not available "
            "for a table in parts. Fit to a sample of its rows in memory."
        )


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
    """Read a table for the second time, and gather rows in memory.

    Returns LargeTable.
    """
    columns = schema.model_columns
    location, scale = summary.mean[columns], _deviations(summary)[columns]
    check_deviations(schema, columns, scale)
    known = FirstReading.of(summary, schema.all_names)
    share = rows_in_memory(schema.n_columns) / summary.n_rows
    of = partial(_gathered_of, reader, known, share, columns, location, scale)
    with step("gathering rows"):
        found = source._reduced(of, Gathered.merged, weights)
    # location and scale are those of all rows, not of the sample
    cells = _cells(schema, found, location, scale)
    units = Units(location, scale)
    reduced = partial(_reduced_rows, source, weights, reader, known, columns, units)
    rows = Rows(units.scaled(cells.nodes), torch.from_numpy(cells.weights))
    total = torch.tensor(found.total, dtype=torch.float64)
    # the sample shows how many patterns of missing cells all rows have
    few = n_condensed(rows.data.observed) < _FEW * len(cells.nodes)
    tables = [Parts(reduced, total, few_patterns=few)]
    if share < 1:
        # EM begins with the sample, which is much faster to read
        tables.insert(0, rows)
    return LargeTable(cells, summary, found.powers, tables, reader, known)


def with_all_rows(large, X, weights, columns):
    """Replace the table in parts by the array (n, n_features) that it was."""
    nodes = X[:, columns].astype(np.float64)
    kept = (weights > 0) & ~np.isnan(nodes).all(1)
    units = Units(large.cells.location, large.cells.scale)
    rows = Rows(units.scaled(nodes[kept]), torch.from_numpy(weights[kept]))
    return large._replace(tables=[*large.tables[:-1], rows])


def in_chunks(*arrays):
    """Divide arrays of the same rows, of which the first is a table, into chunks."""
    size = max(1, _CELLS_AT_ONCE // arrays[0].shape[1])
    return [Chunks.from_array(one, size) for one in arrays]


def _deviations(summary):
    weight = np.where(summary.weight > 0, summary.weight, 1.0)
    return np.sqrt(summary.square / weight)


def _cells(schema, found, location, scale):
    """Make `ModelCells` of the rows in memory."""
    columns, X = schema.model_columns, found.X
    kept = (found.weights > 0) & ~np.isnan(X).all(1)
    table, weights = X[kept], found.weights[kept]
    nodes = table[:, columns].astype(np.float64)
    seen = ~np.isnan(nodes).all(1)
    nodes, weights = nodes[seen], weights[seen]
    empty = np.isnan(nodes).all(0) if len(columns) else np.zeros(0, dtype=bool)
    if empty.any():
        name = schema.all_names[columns[empty][0]]
        raise ValueError(
            f"Column {name!r} has no observed cell in a sample of {len(X)} rows, by "
            "which the model is tuned. Drop the column: too little is observed to "
            "impute it."
        )
    counted = found.weights > 0
    return ModelCells(table, nodes, weights, location, scale, counted)


def _slices(X, weights, n_cells):
    size = max(1, n_cells // max(X.shape[1], 1))
    # one slice at least, because a part may have no rows
    for first in range(0, max(len(X), 1), size):
        part = slice(first, first + size)
        yield X[part], weights[part]


def _merged(values, merge):
    found = None
    for value in values:
        found = value if found is None else merge(found, value)
    return found


def _summary_of(reader, number, chunk, weights):
    X, weights = reader.read(number, chunk, weights)
    parts = (summarised(*part) for part in _slices(X, weights, _SUMMARISED))
    # of the whole part, as later readings are compared with it
    return _merged(parts, Summary.merged)._replace(parts=(Count.of(X),))


def _gathered_of(reader, known, share, columns, location, scale, number, *chunk):
    X, weights = reader.read(number, *chunk)
    known.check(number, X)
    first, found = known.firsts[number], []
    for part in _slices(X, weights, _CELLS_AT_ONCE):
        found.append(gathered(*part, first, share, columns, location, scale))
        first += len(part[0])
    return _merged(found, Gathered.merged)


def _reduced_rows(source, weights, reader, known, columns, units, of, merge):
    """Map rows to sums, and merge them: `Parts.reduce`."""
    sums = partial(_sums_of, reader, known, columns, units, of, merge)
    return source._reduced(sums, merge, weights)


def _sums_of(reader, known, columns, units, of, merge, number, chunk, weights):
    X, weights = reader.read(number, chunk, weights)
    known.check(number, X)

    def sums(X, weights):
        # indexing copies, and all columns are the usual case
        nodes = X if len(columns) == X.shape[1] else X[:, columns]
        kept = (weights > 0) & ~np.isnan(nodes).all(1)
        if not kept.all():
            nodes, weights = nodes[kept], weights[kept]
        return of(Rows(units.scaled(nodes), torch.tensor(weights)))

    return _merged((sums(*part) for part in _slices(X, weights, _CELLS_AT_ONCE)), merge)
