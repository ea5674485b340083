"""Averages of fitted models, with weights for each column (linear pools).

A draw of a table takes each column from one of the models, with its weights as the
probabilities.  One uniform number chooses for all columns, so that columns of the same
weights come from the same model, with the dependence that this has found.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from skvnce.fitted.base import CellModel, n_chains
from skvnce.tables.cell_limits import CellLimits

# a level of which one model is sure that it is impossible would have probability 0 in
# the geometric mean, whatever the others say
_FLOOR = 0.003  # least probability in a geometric mean


def averaged(
    filled: Sequence[np.ndarray], shares: Sequence[dict], weights: np.ndarray
) -> tuple[np.ndarray, dict]:
    """Average predictions: numbers arithmetically, probabilities geometrically.

    Parameters
    ----------
    filled : sequence of ndarray of shape (n, n_nodes)
        Of each model.
    shares : sequence of dict of int to ndarray of shape (n, n_levels)
        Probabilities of the levels of columns of categories.
    weights : ndarray of shape (n_models, n_nodes)
        Those of a column add up to one.

    Returns
    -------
    filled : ndarray of shape (n, n_nodes)
    shares : dict of int to ndarray of shape (n, n_levels)
    """
    cells = sum(own * weight for own, weight in zip(filled, weights, strict=True))
    found = {
        node: geometric([one[node] for one in shares], weights[:, node])
        for node in shares[0]
    }
    for node, levels in found.items():
        cells[:, node] = levels.argmax(1)
    return cells, found


def geometric(shares: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Average probabilities (n, n_levels) of several models geometrically."""
    logs = np.log(np.maximum(shares, _FLOOR))
    found = np.exp(np.tensordot(weights, logs, 1))
    return found / found.sum(1, keepdims=True)


class Pool(NamedTuple):
    """Several models of the same columns; see `CellModel`.

    Attributes
    ----------
    models : sequence of CellModel
    weights : ndarray of shape (n_models, n_nodes)
        Those of a column add up to one.
    """

    models: Sequence[CellModel]
    weights: np.ndarray

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
        """Choose a model for each column of each draw.

        Returns
        -------
        list of pairs of ndarray of int
            The numbers of draws, and the models (n_nodes,) of their columns.
        """
        # stratified, so that the models have their shares of few draws, too
        places = torch.randperm(n_draws) + torch.rand(n_draws, dtype=torch.float64)
        uniform = places.numpy() / n_draws
        ends = self.weights.cumsum(0)[:-1]
        which = (ends <= uniform[:, None, None]).sum(1)
        kinds, group = np.unique(which, axis=0, return_inverse=True)
        group = group.ravel()
        return [(np.flatnonzero(group == i), kind) for i, kind in enumerate(kinds)]


class Turns(NamedTuple):
    """A fitted imputer, whose draws come from several models in turn; see `CellModel`.

    Attributes
    ----------
    filler : CellModel
    drawers : sequence of CellModel
        Each is used equally often, in random order.
    """

    filler: CellModel
    drawers: Sequence[CellModel]

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return n_chains(self.filler if n_draws is None else self.drawers[0], n_draws)

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells; see `CellModel`."""
        return self.filler.fill(nodes, limits)

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        turns = torch.randperm(len(self.drawers)).repeat(n_draws)[:n_draws].numpy()
        found = np.empty((n_draws, *nodes.shape))
        for turn in np.unique(turns):
            own = np.flatnonzero(turns == turn)
            found[own] = self.drawers[turn].draw(nodes.copy(), len(own), limits)
        return found
