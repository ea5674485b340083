"""Fits of mixtures to tables with limits of cells: limited cells are drawn in rounds.

In each round of stochastic EM the limited cells are drawn given the observed cells of
their row, their limits and the parameters so far, and then count as observed.

References
----------
Celeux, G. and Diebolt, J. (1985), The SEM algorithm: a probabilistic teacher algorithm
derived from the EM algorithm for the mixture problem.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.mixed.columns import Marginal
from skvnce.algorithms.mixed.normal import cdf
from skvnce.algorithms.mixture import limited, margins
from skvnce.algorithms.mixture.limited import Limited
from skvnce.algorithms.mixture.margins import Pair, Points
from skvnce.algorithms.mixture.model import Arranged, Mixture
from skvnce.fits.gaussian_mixed import marginals_of
from skvnce.fitted.mixture import split_columns
from skvnce.fitted.normal import tensors
from skvnce.tables.model_columns import ModelCells
from skvnce.tables.schema import Schema

Redraw = Callable[[Mixture], Arranged]

_POINTS = 16  # of probabilities of several limits, which are estimated in each round
_ANCHOR = 10.0  # v of `anchored`; with 3 and 30 errors are about the same


def limited_rows(
    cells: ModelCells, schema: Schema, points: Points, valid: Points
) -> Limited | None:
    """Map the rows of a fit, and their limits, to scores; None without limits."""
    if cells.limits is None:
        return None
    rows = split_columns(cells.nodes, schema.is_categorical)
    ends = tuple(end[:, ~schema.is_categorical] for end in cells.limits)
    return Limited.of(*rows, ends, points, valid)


def redrawing(given: Limited, rng: np.random.Generator) -> Redraw:
    """Make the function by which a round of one normal draws limited cells."""
    lattice = _numbers(rng)

    def redrawn(mixture: Mixture) -> Arranged:
        shares = limited.posterior(mixture, given, lattice, _POINTS)
        scores = limited.completed(mixture, given, shares, lattice)
        return Arranged.of(scores, given.codes)

    return redrawn


def anchored(
    given: Limited, weights: np.ndarray, start: Mixture, rng: np.random.Generator
) -> Redraw:
    """Make the function by which a round of several components draws limited cells.

    Nothing says where the rows of a component lie beyond a limit if none of them is
    observed, and its mean would drift away from the limit.  Cells of a component with
    n observed cells of the column are therefore drawn from `start`, one normal
    distribution of all rows, with probability v / (v + n), as by a prior of v rows.

    `weights` (n,).  Returns see `em.fit_mixture`.
    """
    lattice = _numbers(rng)
    certain = np.ones((len(weights), 1))
    seen = weights[:, None] * ~np.isnan(given.scores)

    def redrawn(mixture: Mixture) -> Arranged:
        shares = limited.posterior(mixture, given, lattice, _POINTS)
        scores = limited.completed(mixture, given, shares, lattice)
        chances = shares @ (_ANCHOR / (_ANCHOR + shares.T @ seen))
        rows = rng.random(len(scores)) < np.where(given.known, chances, 0.0).max(1)
        known = given.take(rows), certain[rows], lattice
        scores[rows] = limited.completed(start, *known)
        return Arranged.of(scores, given.codes)

    return redrawn


def _numbers(rng: np.random.Generator) -> Callable:
    def uniforms(step: int, like: Tensor) -> Tensor:
        return torch.from_numpy(rng.random(tuple(like.shape)))

    return lambda data: uniforms


def known_scores(cells: ModelCells, schema: Schema) -> tuple[dict[int, Pair], dict]:
    """Estimate normal scores of the columns with limits, as `GaussianImputer` does.

    Returns `known`: by number column: see `margins.normal_scores`; `doubts`: by column
    of the model: see `gaussian_mixed.warn_of_tails`.
    """
    if cells.limits is None:
        return {}, {}
    data, weights = Incomplete.from_array(cells.nodes), torch.from_numpy(cells.weights)
    given = data, weights, tensors(cells.limits)
    found, doubts = marginals_of(schema, cells, "auto", given)
    places = np.cumsum(~schema.is_categorical) - 1
    return {int(places[j]): _pair(one) for j, one in found.items()}, doubts


def _pair(marginal: Marginal) -> Pair:
    values, low, high = (part.numpy() for part in marginal)
    return margins.by_share(values, (cdf(low) + cdf(high)) / 2)
