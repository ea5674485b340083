"""Averages of fitted models, with weights for each column (linear pools).

A draw of a table takes each column from one of the models, with its weights as the
probabilities.  One uniform number chooses for all columns, so that columns of the same
weights come from the same model, with the dependence that this has found.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from skvnce.distributions.quantiles import weighted_quantiles
from skvnce.fitted.base import CellModel, in_turn, n_chains
from skvnce.tables.cell_limits import CellLimits

# a level of which one model is sure that it is impossible would have probability 0 in
# the geometric mean, whatever the others say
_FLOOR = 0.003  # least probability in a geometric mean
_N_POINTS = 31  # quantiles that represent the distribution of a cell
MIDDLES = (np.arange(_N_POINTS) + 0.5) / _N_POINTS  # their levels


def averaged(
    filled: Sequence[np.ndarray], shares: Sequence[dict], weights: np.ndarray
) -> tuple[np.ndarray, dict]:
    """Average predictions: numbers arithmetically, probabilities geometrically.

    `filled`: (n, n_nodes), of each model. `shares`: (n, n_levels), probabilities of the
    levels of columns of categories. `weights`: (n_models, n_nodes), those of a column
    add up to one. Returns `filled` (n, n_nodes); `shares` (n, n_levels).
    """
    cells = sum(own * weight for own, weight in zip(filled, weights, strict=True))
    found = pooled_shares(shares, weights)
    for node, levels in found.items():
        cells[:, node] = levels.argmax(1)
    return cells, found


def pooled_shares(shares: Sequence[dict], weights: np.ndarray) -> dict:
    """Average the probabilities of all columns of categories; see `averaged`."""
    return {
        node: geometric([one[node] for one in shares], weights[:, node])
        for node in shares[0]
    }


def quantiles(
    points: Sequence[np.ndarray], weights: np.ndarray, levels: np.ndarray
) -> np.ndarray:  # (n_levels, n, n_nodes)
    """Find quantiles of averages of distributions that equally weighted points show."""
    counts = [len(one) for one in points]
    own = weights / np.array(counts)[:, None]
    each = torch.from_numpy(np.repeat(own, counts, axis=0))[:, None]
    values = torch.from_numpy(np.concatenate(points))
    return weighted_quantiles(values, each, torch.from_numpy(levels)).numpy()


def narrowed(draws: np.ndarray, means: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """Move draws (..., n_nodes) towards their means; see `skvnce.fits.draw_spread`."""
    return means + spreads * (draws - means)


def geometric(shares: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Average probabilities (n, n_levels) of several models geometrically."""
    logs = np.log(np.maximum(shares, _FLOOR))
    found = np.exp(np.tensordot(weights, logs, 1))
    return found / found.sum(1, keepdims=True)


class Pool(NamedTuple):
    """Several models of the same columns; see `CellModel`."""

    models: Sequence[CellModel]
    weights: np.ndarray  # (n_models, n_nodes), those of a column add up to one

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return max(n_chains(one, n_draws) for one in self.models)

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by averages; see `CellModel`."""
        found = [one.fill(nodes.copy(), limits) for one in self.models]
        cells, shares = zip(*found, strict=True)
        return averaged(cells, shares, self.weights)

    @property
    def n_points(self) -> int:
        """Number of tables in memory while points are computed."""
        return len(self.models) * len(MIDDLES)

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Find quantiles of the average; see `skvnce.fitted.strategies`."""
        found = [one.points(nodes.copy(), MIDDLES, limits) for one in self.models]
        points, shares = zip(*found, strict=True)
        averages = pooled_shares(shares, self.weights)
        return quantiles(points, self.weights, levels), averages

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        found = np.repeat(nodes[None], n_draws, axis=0)
        for draws, which in self.chosen(n_draws):
            for model in np.unique(which):
                own = np.flatnonzero(which == model)
                cells = self.models[model].draw(nodes.copy(), len(draws), limits)
                found[np.ix_(draws, np.arange(len(nodes)), own)] = cells[..., own]
        return found

    def chosen(self, n_draws: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Choose models (n_nodes,) of the columns of draws, and list these draws."""
        # stratified, so that the models have their shares of few draws, too
        places = torch.randperm(n_draws) + torch.rand(n_draws, dtype=torch.float64)
        uniform = places.numpy() / n_draws
        ends = self.weights.cumsum(0)[:-1]
        which = (ends <= uniform[:, None, None]).sum(1)
        kinds, group = np.unique(which, axis=0, return_inverse=True)
        group = group.ravel()
        return [(np.flatnonzero(group == i), kind) for i, kind in enumerate(kinds)]


class Turns(NamedTuple):
    """A fitted imputer, with draws of several models in turn; see `CellModel`."""

    filler: CellModel
    # each is used equally often, in random order; none if nothing is drawn
    drawers: Sequence[CellModel]

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return n_chains(self.filler if n_draws is None else self.drawers[0], n_draws)

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells; see `CellModel`."""
        cells, shares = self.filler.fill(nodes.copy(), limits)
        return _with_observed(cells, nodes), shares

    @property
    def n_points(self) -> int:
        """Number of tables in memory while points are computed."""
        return getattr(self.filler, "n_points", 1)

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Represent distributions; see `skvnce.fitted.strategies`."""
        return self.filler.points(nodes, levels, limits)

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        turns = in_turn(len(self.drawers), n_draws)
        found = np.empty((n_draws, *nodes.shape))
        for turn in np.unique(turns):
            own = np.flatnonzero(turns == turn)
            found[own] = self.drawers[turn].draw(nodes.copy(), len(own), limits)
        return _with_observed(found, nodes)


def _with_observed(cells, nodes):
    """Restore observed cells, which models may return with a rounding error."""
    return np.where(np.isnan(nodes), cells, nodes)
