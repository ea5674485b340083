"""Copula graphs of tables in parts: what a round of EM does with each part.

The latent variables of a part are kept between the rounds: in a file in a temporary
folder, or, on a cluster of dask, in the memory of the worker that has swept the part.
"""

import pickle
import tempfile
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._keyed import number_keyed
from skvnce._progress import step
from skvnce._random import seed_from
from skvnce.algorithms.graph import copula, copula_parts
from skvnce.algorithms.mixed import counted
from skvnce.algorithms.mixed.columns import NOMINAL, Latents, Marginal
from skvnce.algorithms.mixed.gibbs import Rows
from skvnce.algorithms.mixed.population import Population
from skvnce.fits.gaussian_mixed import kinds_of
from skvnce.sources.summary import FirstReading


class PartRows(NamedTuple):
    """Reads the rows of a part that have observed cells of the model."""

    reader: object
    columns: np.ndarray  # (n_nodes,), int, those of the model
    known: FirstReading

    def read(self, number, chunk):
        """Return rows (n, n_nodes), and their numbers in the table (n,)."""
        X, _ = self.reader.read(number, chunk)
        self.known.check(number, X)
        nodes = X[:, self.columns].astype(np.float64)
        kept = ~np.isnan(nodes).all(1)
        return nodes[kept], self.known.firsts[number] + np.flatnonzero(kept)


class Sweeps(NamedTuple):
    """Applies a round to a part."""

    rows: PartRows
    latents: Latents
    seed: int

    def __call__(self, one, number, given):
        """Make a sweep of the part of this number; returns what is kept, and `Sums`.

        `given` is the part in the first round, which is not read again, then what was
        kept: the `Part` for the next round, and the numbers of its rows.
        """
        if one.number == 1:
            nodes, numbers = self.rows.read(number, given)
            part = copula_parts.Part.of(self.latents, nodes)
        else:
            part, numbers = given

        def uniforms(place):
            return number_keyed(numbers[place], self.seed)

        part, sums = one.swept(self.latents, part, uniforms)
        return (part, numbers), sums


@contextmanager
def problem_of(schema, source, large, random_state):
    """Yield the `copula.Problem` of a table in parts, which the context keeps."""
    columns, summary = schema.model_columns, large.summary
    rows = PartRows(large.reader, columns, large.known)
    kinds, sizes = kinds_of(schema), schema.n_categories.tolist()
    with step("counting values"):
        marginals, n_rows = _marginals(source, rows, large, kinds, sizes)
    data = Incomplete.from_array(large.cells.nodes)
    weights = torch.ones(len(data.x), dtype=torch.float64)
    latents = Latents.of(data, weights, kinds, sizes)._replace(marginals=marginals)
    latents, mean = Population.of(latents, data, weights)
    latents = latents.opened(data, kinds)
    once = not copula_parts.needs_sweeps(latents, summary.missing[columns])
    sweeps = Sweeps(rows, latents, seed_from(random_state))
    with _kept(source, sweeps) as advance:
        e_step = copula_parts.e_step(latents, advance, once)
        some = Rows.parts(latents, data)
        yield copula.problem_from(latents, some, e_step, n_rows, mean)


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
    # latent variables of nominal levels have no marginals
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
    of = partial(_swept_in_files, sweeps, folder, one)
    if one.number == 1:
        return folder, source._reduced(of, _merged)
    return folder, reduce(_merged, map(of, range(len(source))))


def _swept_in_files(sweeps, folder, one, number, chunk=None, weights=None):
    latents, others = folder / f"{number}.npy", folder / f"{number}.pickle"
    if one.number > 1:
        known, numbers = pickle.loads(others.read_bytes())
        chunk = copula_parts.Part(np.load(latents), known), numbers
    (part, numbers), sums = sweeps(one, number, chunk)
    np.save(latents, part.z)
    if one.number == 1:
        # cells and numbers of rows stay the same in all rounds
        others.write_bytes(pickle.dumps((part.known, numbers)))
    return sums
