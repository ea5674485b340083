"""Copula graphs of tables in parts: what a round of EM does with each part.

The latent variables of a part are kept between the rounds: in a file in a temporary
folder, or, on a cluster of dask, in the memory of the worker that has swept the part.
"""

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._progress import step
from skvnce._random import number_keyed, seed_from
from skvnce.algorithms.graph import copula, copula_parts
from skvnce.algorithms.mixed import counted
from skvnce.algorithms.mixed.columns import NOMINAL, Latents, Marginal
from skvnce.algorithms.mixed.gibbs import Rows
from skvnce.estimators._gaussian_mixed import kinds_of
from skvnce.estimators._large import TableReader, check_same_rows
from skvnce.estimators._validation import level_counts


class PartRows(NamedTuple):
    """Reads the rows of a part that have observed cells of the model.

    Attributes
    ----------
    reader : TableReader
    columns : ndarray of int, of shape (n_nodes,)
        Those of the model.
    firsts : ndarray of int, of shape (n_parts + 1,)
        The numbers of the first rows of the parts.
    """

    reader: TableReader
    columns: np.ndarray
    firsts: np.ndarray

    def read(self, number, chunk):
        """Return rows (n, n_nodes), and their numbers in the table (n,)."""
        X, _ = self.reader.read(number, chunk)
        check_same_rows(number, len(X), self.firsts)
        nodes = X[:, self.columns].astype(np.float64)
        kept = ~np.isnan(nodes).all(1)
        return nodes[kept], self.firsts[number] + np.flatnonzero(kept)


class Sweeps(NamedTuple):
    """Applies a round to a part."""

    rows: PartRows
    latents: Latents
    seed: int

    def __call__(self, one, number, chunk, z):
        """Sweep over a part; returns its latent variables and their sums."""
        nodes, numbers = self.rows.read(number, chunk)
        return one.swept(
            self.latents, nodes, z, lambda part: number_keyed(numbers[part], self.seed)
        )


@contextmanager
def problem_of(learner, source, large):
    """Pose the problem of a table in parts, of which a sample is in memory.

    Parameters
    ----------
    learner : CopulaGraphLearner
        Its columns are known.
    source : Chunks or DaskTable
    large : LargeTable

    Yields
    ------
    copula.Problem
        Its method reads the parts, which only exist within the context.
    """
    columns, summary = learner.feature_indices_, large.summary
    rows = PartRows(large.reader, columns, np.cumsum([0, *summary.n_rows]))
    kinds, sizes = kinds_of(learner), level_counts(learner).tolist()
    with step("counting values"):
        marginals, n_rows = _marginals(source, rows, large, kinds, sizes)
    data = Incomplete.from_array(large.cells.nodes)
    weights = torch.ones(len(data.x), dtype=torch.float64)
    latents = Latents.of(data, weights, kinds, sizes)._replace(marginals=marginals)
    once = not copula_parts.needs_sweeps(latents, summary.missing[columns])
    sweeps = Sweeps(rows, latents, seed_from(learner.random_state))
    with _kept(source, sweeps) as advance:
        e_step = copula_parts.e_step(latents, advance, once)
        yield copula.posed(latents, Rows.parts(latents, data), e_step, n_rows)


def _marginals(source, rows, large, kinds, sizes):
    """Estimate the marginals of the columns from all rows, and count these."""
    ends = large.summary.ends[:, rows.columns].T
    knots = [
        np.arange(size, dtype=float)
        if size
        else counted.knots_of(cells[~np.isnan(cells)], *own)
        for cells, own, size in zip(large.cells.nodes.T, ends, sizes, strict=True)
    ]
    counts, n_rows = source._reduced(partial(_counted, rows, knots), _added)
    each = zip(knots, counts, kinds, sizes, strict=True)
    return [_marginal(*one) for one in each], n_rows


def _marginal(knots, counts, kind, size):
    if not size:
        return counted.marginal_of(knots, counts)
    if kind == NOMINAL and size != 2:
        return None
    below, upto = torch.from_numpy(counts[:, ::2]).double()
    return Marginal.of_levels(torch.from_numpy(knots), upto - below, size)


def _counted(rows, knots, number, chunk, weights):
    nodes, numbers = rows.read(number, chunk)
    counts = [
        counted.counts_at(cells[~np.isnan(cells)], own)
        for cells, own in zip(nodes.T, knots, strict=True)
    ]
    return counts, len(numbers)


def _added(one, other):
    return [a + b for a, b in zip(one[0], other[0], strict=True)], one[1] + other[1]


def _merged(one, other):
    return one.merged(other)


@contextmanager
def _kept(source, sweeps):
    """Yield `advance` of `copula_parts.e_step`, which keeps the latent variables."""
    if hasattr(source, "_advanced") and source._has_cluster():
        yield partial(source._advanced, source._on_workers(sweeps), _merged)
        return
    with tempfile.TemporaryDirectory(prefix="skvnce_") as folder:
        yield partial(_advanced, source, sweeps, Path(folder))


def _advanced(source, sweeps, folder, one, parts):
    of = partial(_swept_from_file, sweeps, folder, one)
    return folder, source._reduced(of, _merged)


def _swept_from_file(sweeps, folder, one, number, chunk, weights):
    path = folder / f"{number}.npy"
    z, sums = sweeps(one, number, chunk, np.load(path) if one.number > 1 else None)
    np.save(path, z)
    return sums
