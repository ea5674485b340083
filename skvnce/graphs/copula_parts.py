"""Copula graphs of tables in parts: what a round of EM does with each part.

The latent variables of a part are kept between the rounds: in a file in a temporary
folder, or, on a cluster of dask, in the memory of the worker that has swept the part.
"""

import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import step
from skvnce._core.random import Uniforms, inside, number_keyed, seed_from
from skvnce._imputer.parts.summary import FirstReading
from skvnce.gaussian.latent import gibbs
from skvnce.gaussian.latent.columns import NOMINAL, Latents, Marginal
from skvnce.gaussian.latent.nominal import Nominal
from skvnce.gaussian.latent.population import Population
from skvnce.gaussian.mixed_fit import kinds_of
from skvnce.graphs import copula
from skvnce.graphs.copula import Theta
from skvnce.graphs.em import EStep

# ----------------------------------------
# The E-step of copula graphs of a table in parts.
#
# Moments of latent variables are sums over the rows, so that parts of a table are
# swept where they are, and keep their latent variables.  If the random numbers of a
# sweep are functions of the number of the row in the table and of the round, the
# result does not depend on how the rows are divided, nor on where they are swept, and
# a part that is lost can be swept again.


class Sums(NamedTuple):
    """Moments of the latent variables of some rows."""

    n_rows: int
    mean: np.ndarray  # (latents,)
    # (latents, latents), sums of products of deviations from the mean
    scatter: np.ndarray

    @classmethod
    def of(cls, z: np.ndarray) -> Self:
        """Compute those of latent variables (latents, n)."""
        # numpy warns of means of no row
        mean = z.mean(1) if z.shape[1] else np.zeros(len(z))
        deviations = z - mean[:, None]
        return cls(z.shape[1], mean, deviations @ deviations.T)

    def merged(self, other: Self) -> "Sums":
        """Merge with those of other rows (Chan, Golub and LeVeque 1983)."""
        total = self.n_rows + other.n_rows
        # two parts without rows are merged, too
        share, gap = other.n_rows / max(total, 1), other.mean - self.mean
        between = self.n_rows * share * np.outer(gap, gap)
        scatter = self.scatter + other.scatter + between
        return Sums(total, self.mean + share * gap, scatter)

    def normal(self) -> Normal:
        """Return mean and covariance."""
        covariance = torch.from_numpy(self.scatter / self.n_rows)
        return Normal(torch.from_numpy(self.mean), covariance)


class Part(NamedTuple):
    """The latent variables of some rows, and what is known about them."""

    z: np.ndarray  # (latents, n)
    # the columns of `Rows`, ordered and nominal ones, for each batch of rows that is
    # swept together
    known: list[tuple[list[gibbs.Ordered], list[Nominal]]]

    @classmethod
    def of(cls, latents: Latents, nodes: np.ndarray) -> Self:
        """Read rows (n, features)."""
        batches = (
            gibbs.Rows.parts(latents, Incomplete.from_array(nodes))
            if len(nodes)
            else []
        )
        mean = Theta.independent(latents.size).mean
        # the first one is for parts without rows
        z = [np.empty((latents.size, 0)), *(rows.start(mean) for rows in batches)]
        known = [(rows.ordered, rows.nominal) for rows in batches]
        return cls(np.concatenate(z, 1), known)

    def batches(self, latents: Latents) -> Iterator[tuple[slice, gibbs.Rows]]:
        """Yield batches of rows, and their places."""
        none, size = np.empty((0, 0)), gibbs.at_once(latents)
        for number, columns in enumerate(self.known):
            place = slice(size * number, size * (number + 1))
            yield place, gibbs.Rows(latents, none, none, *columns)


class Round(NamedTuple):
    """What happens to all rows in a round."""

    number: int  # the first is 1
    theta: Theta
    # (latents,), by which latent variables are shifted and divided first, see
    # `set_scales`
    shift: Tensor
    scale: Tensor  # (latents,)

    def swept(
        self, latents: Latents, part: Part, uniforms: Callable[[slice], Uniforms]
    ) -> tuple[Part, Sums]:
        """Sweep over some rows; `uniforms` makes the numbers of some of them."""
        new = np.empty_like(part.z)
        factors = gibbs.Factors.of(self.theta.normal(), latents)
        shift, scale = self.shift[:, None].numpy(), self.scale[:, None].numpy()
        sums = Sums.of(new[:, :0])
        for place, rows in part.batches(latents):
            one = (part.z[:, place] - shift) / scale
            uniform = uniforms(place)(self.number, torch.from_numpy(one).T).T
            rows.sweep(one, factors, inside(uniform).numpy())
            new[:, place] = one
            sums = sums.merged(Sums.of(one))
        return part._replace(z=new), sums


class State(NamedTuple):
    """The latent variables after a round, and by what they are scaled next."""

    parts: object
    number: int
    shift: Tensor
    scale: Tensor


def e_step_of_parts(
    latents: Latents,
    advance: Callable[[Round, object], tuple[object, Sums]],
    once: bool,  # whether all latent variables are known
) -> EStep:
    """Build the E-step.

    `advance`: maps a round, and its own last result, None at first, to the latent
    variables of all parts, in any form, and their `Sums`.
    """
    zeros = torch.zeros(latents.size, dtype=torch.float64)

    def init() -> State:
        return State(None, 0, zeros, torch.ones_like(zeros))

    def step(state: State, theta: Theta) -> tuple[State, Normal]:
        one = Round(state.number + 1, theta, state.shift, state.scale)
        parts, sums = advance(one, state.parts)
        normal = sums.normal()
        shift, scale = gibbs.unit_scales(latents, normal)
        state = State(parts, one.number, shift, scale)
        return state, gibbs.rescaled(normal, shift, scale)

    return EStep(init, step, once)


# ----------------------------------------
# Marginals of numbers of a table in parts: from counts of cells at some knots.
#
# The marginal of a table in memory (`Marginal.of`) has a knot for each value.  Here
# the knots are the values of a sample of the rows, at most about `MOST` of them, and
# the smallest and the largest value of all rows.  The shares below and up to the
# knots are those of all rows: counts are sums over the parts.  If the knots are all
# values, the marginal is that in memory.

MOST = 2048  # knots at quantiles
# quantiles leave wide gaps in the tails
_OUTER = 32  # further knots at each end
# below the share from which a value is an interval (`columns`): such values are knots
_FREQUENT = 0.002  # share of a value that is always a knot
_REPEATED = 0.5  # as in `columns`


def knots_of(cells: np.ndarray, low: float, high: float) -> np.ndarray:
    """Choose increasing knots from a sample of the observed cells (n,) of a column."""
    values, number = np.unique(cells, return_counts=True)
    if len(values) > MOST:
        places = np.linspace(0, len(cells) - 1, MOST).round().astype(int)
        chosen = np.searchsorted(number.cumsum(), places, side="right")
        frequent = np.flatnonzero(number > _FREQUENT * len(cells))
        ends = np.arange(_OUTER)
        ends = np.concatenate([ends, len(values) - 1 - ends])
        values = values[np.unique(np.concatenate([chosen, frequent, ends]))]
    return np.unique(np.concatenate([values, [low, high]]))


def counts_at(cells: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Count cells (n,) below, and up to, knots and middles; int (2, 2 n_knots - 1)."""
    edges = np.empty(2 * len(knots) - 1)
    # counts up to the middles show which cells are nearest to a knot
    edges[::2], edges[1::2] = knots, knots[:-1] + np.diff(knots) / 2
    cells = np.sort(cells)
    return np.stack([np.searchsorted(cells, edges, side) for side in ("left", "right")])


def marginal_of(knots: np.ndarray, counts: np.ndarray) -> Marginal:
    """Make the marginal of a column from the counts of all its observed cells.

    Values that repeat in most cells are intervals, to which the nearest cells
    belong.
    """
    values = torch.from_numpy(knots)
    below, upto = (torch.from_numpy(part).double() for part in counts)
    total, number = upto[-1], (upto - below)[::2]
    if number[number > 1].sum() >= _REPEATED * total:
        return Marginal.of_intervals(values, _nearest(upto, total))
    ends = below[::2] / total, upto[::2] / total
    return Marginal.of_ends(values, number, number / total, ends)


def _nearest(upto: Tensor, total: Tensor) -> Tensor:
    """Count the cells that are nearest to each knot, from those up to the middles."""
    return torch.cat([upto[1::2], total[None]]).diff(prepend=torch.zeros(1).to(upto))


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

        `given` is the part in the first round, then the `Part` and the numbers
        of its rows.
        """
        if one.number == 1:
            nodes, numbers = self.rows.read(number, given)
            part = Part.of(self.latents, nodes)
        else:
            part, numbers = given

        def uniforms(place):
            return number_keyed(numbers[place], self.seed)

        part, sums = one.swept(self.latents, part, uniforms)
        return (part, numbers), sums


@contextmanager
def problem_of(schema, source, large, random_state):
    """Yield the `copula.Problem` of a table in parts, which the context keeps."""
    columns = schema.model_columns
    rows = PartRows(large.reader, columns, large.known)
    kinds, sizes = kinds_of(schema), schema.n_categories.tolist()
    with step("counting values"):
        marginals, n_rows = _marginals(source, rows, large, kinds, sizes)
    data = Incomplete.from_array(large.cells.nodes)
    weights = torch.ones(len(data.x), dtype=torch.float64)
    latents = Latents.of(data, weights, kinds, sizes)._replace(marginals=marginals)
    latents, mean = Population.of(latents, data, weights)
    latents = latents.opened(data, kinds)
    # else all latent variables are known from the cells
    intervals = any((one.low < one.high).any() for _, _, one in latents.ordered)
    missing = large.summary.missing[columns].any()
    once = not (missing or intervals or latents.nominal)
    sweeps = Sweeps(rows, latents, seed_from(random_state))
    with _kept(source, sweeps) as advance:
        e_step = e_step_of_parts(latents, advance, once)
        some = gibbs.Rows.parts(latents, data)
        yield copula.problem_from(latents, some, e_step, n_rows, mean)


def _marginals(source, rows, large, kinds, sizes):
    """Estimate the marginals of the columns from all rows, and count these."""
    ends = large.summary.ends[:, rows.columns].T
    knots = [
        np.arange(size, dtype=float)
        if size
        else knots_of(cells[~np.isnan(cells)], *own)
        for cells, own, size in zip(large.cells.nodes.T, ends, sizes, strict=True)
    ]
    counts, n_rows = source._reduced(partial(_counted, rows, knots), _added)
    each = zip(knots, counts, kinds, sizes, strict=True)
    return [_marginal(*one) for one in each], n_rows


def _marginal(knots, counts, kind, size):
    if not size:
        return marginal_of(knots, counts)
    # latent variables of nominal levels have no marginals
    if kind == NOMINAL and size != 2:
        return None
    below, upto = torch.from_numpy(counts[:, ::2]).double()
    return Marginal.of_levels(torch.from_numpy(knots), upto - below, size)


def _counted(rows, knots, number, chunk, weights):
    nodes, numbers = rows.read(number, chunk)
    counts = [
        counts_at(cells[~np.isnan(cells)], own)
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
        chunk = Part(np.load(latents), known), numbers
    (part, numbers), sums = sweeps(one, number, chunk)
    np.save(latents, part.z)
    if one.number == 1:
        # cells and numbers of rows stay the same in all rounds
        others.write_bytes(pickle.dumps((part.known, numbers)))
    return sums
