"""Fit an ensemble of mixtures, and choose the numbers of components and factors."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

from skvnce._progress import steps
from skvnce._random import seeded
from skvnce.algorithms.mixture import margins
from skvnce.fits.mixture_limits import known_scores
from skvnce.fits.mixtures import (
    MARGINALS,
    Shape,
    Start,
    count_components,
    count_factors,
    fit_member,
    has_factors,
    is_beyond,
    model_of_start,
    posterior_weights,
    start_of,
)
from skvnce.fitted.draw_scores import draw_score
from skvnce.fitted.held_out_cells import Keys, spare_limited
from skvnce.fitted.held_out_check import cells_to_hide
from skvnce.fitted.mixture import MixtureModel
from skvnce.tables.model_columns import ModelCells
from skvnce.tables.schema import Schema

_FEWER = 2  # how many times fewer rounds decide on the number of components
_NEXT = 4  # how many times fewer components categories may have, and those with factors


class Settings(NamedTuple):
    """What an ensemble of mixtures is fitted with; see `MixtureImputer`."""

    n_components: int | str
    n_members: int
    marginals: str
    n_rounds: int
    n_jobs: int | None
    is_checked: bool  # whether mixtures are wanted that have not used some cells


class Ensemble(NamedTuple):
    """Fitted mixtures."""

    members: list[MixtureModel]
    hidden: np.ndarray  # bool (n, n_nodes), observed cells
    # one with each kind of marginals, fitted without these cells
    without: list[MixtureModel]
    shape: Shape  # of all of them
    doubts: dict  # see `known_scores`


class _Fits(NamedTuple):
    """Fits of mixtures to one table."""

    schema: Schema
    starts: list[Start]
    settings: Settings
    rng: np.random.Generator

    def members(
        self,
        cells: ModelCells,
        weights: Sequence[np.ndarray],
        shape: Shape,
        n_rounds: int,
    ) -> list[MixtureModel]:
        """Fit a mixture to each of the weights of the rows."""
        streams, n = self.rng.spawn(len(weights)), len(weights)
        starts = [self.starts[i % len(self.starts)] for i in range(n)]
        jobs = (
            delayed(fit_member)(cells, self.schema, own, start, shape, n_rounds, rng)
            for own, start, rng in zip(weights, starts, streams, strict=True)
        )
        run = Parallel(self.settings.n_jobs, prefer="threads", return_as="generator")
        return [*steps("member", run(jobs), n)]

    def of_each_kind(self, cells: ModelCells, shape: Shape) -> list[MixtureModel]:
        """Fit a mixture with each kind of marginals, in fewer rounds."""
        if shape == (1, 0):  # which `starts` have fitted
            return [model_of_start(cells, self.schema, start) for start in self.starts]
        few = -(-self.settings.n_rounds // _FEWER)
        return self.members(cells, [cells.weights] * len(self.starts), shape, few)


def fit_ensemble(
    cells: ModelCells, schema: Schema, settings: Settings, rng: np.random.Generator
) -> Ensemble:
    """Fit an ensemble of mixtures.

    One mixture with each kind of marginals is fitted without a tenth of the cells, by
    which the numbers of components and of factors are chosen if they are open.

    `rng`: draws the weights of rows, and the rows at which components start.
    """
    n_numbers = np.count_nonzero(~schema.is_categorical)
    size = count_components(settings.n_components, cells.weights.sum(), n_numbers)
    size, is_auto = min(size, len(cells.nodes)), isinstance(settings.n_components, str)
    is_open = size > 1 and (is_auto or has_factors(n_numbers))
    hidden = np.zeros(cells.nodes.shape, dtype=bool)
    if is_open or settings.is_checked:
        hidden = cells_to_hide(cells.nodes, cells.weights)
    hidden = spare_limited(hidden, cells.limits)
    kept = cells._replace(nodes=np.where(hidden, np.nan, cells.nodes))
    known, doubts = known_scores(cells, schema)
    by_rank = margins.have_peaks(cells.nodes[:, ~schema.is_categorical], cells.weights)
    kinds = {
        margins.normal_scores: partial(margins.normal_scores, known=known),
        # chosen once, as random weights of members make peaks of single rows
        margins.standardised: partial(margins.standardised, by_rank=by_rank),
    }
    chosen = MARGINALS[settings.marginals]
    starts = [start_of(kept, schema, kinds[kind], rng) for kind in chosen]
    # the last of both kinds has the columns as they are
    if len(starts) > 1 and is_beyond(cells, schema, starts[-1]):
        starts = starts[-1:]
    starts = starts[: settings.n_members]
    fits, without, shape = _Fits(schema, starts, settings, rng), [], Shape(size)
    weights = _weights_of_members(cells, settings, rng)
    if hidden.any():
        shapes = [shape]
        if is_open:
            sizes = _sizes(size, schema) if is_auto else [size]
            shapes = _candidates(sizes, count_factors(kept, n_numbers, starts[0]))
        found = {one: fits.of_each_kind(kept, one) for one in shapes}
        if is_open:
            shape = _best(found, cells, hidden, schema.is_categorical)
        without = found[shape]
    members = fits.members(cells, weights, shape, settings.n_rounds)
    return Ensemble(members, hidden, without, shape, doubts)


def _sizes(size, schema):
    """List the numbers of components that are compared."""
    few = size // _NEXT if schema.is_categorical.any() else 1
    return [size, few, 1] if few > 1 else [size, 1]


def _candidates(sizes, n_factors):
    """List the mixtures that are compared."""
    if not n_factors:
        return [Shape(size) for size in sizes]
    several = max(1, sizes[0] // _NEXT) if len(sizes) > 1 else sizes[0]
    few = -(-n_factors // _NEXT)  # components describe much without factors
    pairs = [(several, few), (several, n_factors), (sizes[-1], n_factors)]
    pairs = [*product(sizes, [0]), *pairs]
    return [Shape(*pair) for pair in dict.fromkeys(pairs)]


def _weights_of_members(cells, settings, rng):
    """Draw weights of the rows for each member, but for a single one."""
    if settings.n_members == 1:
        return [cells.weights]
    return [posterior_weights(rng, cells.weights) for _ in range(settings.n_members)]


def _best(found, cells, hidden, is_categorical):
    """Return the mixture whose draws of held-out cells are closest.

    Random numbers of draws belong to places of columns, which are sorted by content.
    """
    order = Keys.of(cells.nodes, cells.weights).columns.argsort()
    known = cells.nodes, hidden, cells.scale, is_categorical
    known = [part[..., order] for part in known]

    def score(shape):
        with seeded(0):
            return draw_score([one.take(order) for one in found[shape]], *known)

    return min(found, key=score)
