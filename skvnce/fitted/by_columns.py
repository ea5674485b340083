"""A joint model whose cells some models of single columns predict and draw, too.

In rows with several missing cells a column model sees draws of the others: predictions
are averages over Gibbs chains, which start at the fillings of the joint model and draw
the missing cells in turn.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from skvnce._keyed import row_keyed
from skvnce.fitted.base import CellModel, n_chains
from skvnce.fitted.column_models import ColumnModel
from skvnce.fitted.pools import MIDDLES, averaged, narrowed, pooled_shares, quantiles
from skvnce.tables.cell_limits import CellLimits


class Chains(NamedTuple):
    """Lengths of the Gibbs chains that draw the other missing cells of a row."""

    n_chains: int
    n_burn_in: int  # sweeps before those that count
    n_sweeps: int  # sweeps that count
    keeps_draws: bool = False  # whether the draws of the chains are wanted


class Found(NamedTuple):
    """Predictions of a column in the rows that miss it."""

    means: np.ndarray  # (n_missing, width), means, or probabilities of levels
    draws: np.ndarray  # (n_chains, n_missing), of the last sweep


ALONE = Chains(1, 0, 1)
_OF_POINTS = Chains(63, 2, 1, keeps_draws=True)  # an odd number, whose median is a draw


class ByColumns(NamedTuple):
    """A joint model averaged with models of columns; see `CellModel`."""

    joint: CellModel
    columns: Sequence[ColumnModel]  # in the order of a sweep
    weights: np.ndarray  # (n_nodes,), of the column models
    # (n_nodes,), factors of the deviations of draws from their means; 1 for categories
    spreads: np.ndarray
    chains: Chains  # of predictions
    n_sweeps: int  # of draws

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        predicts = n_draws is None or bool((self.spreads < 1).any())
        own = self.chains.n_chains if predicts else 1
        return max(own, n_chains(self.joint, n_draws))

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by averages; see `CellModel`."""
        start, shares = self.joint.fill(nodes.copy(), limits)
        filled = start.copy()
        levels = {node: one.copy() for node, one in shares.items()}
        for node, rows, found in self._predictions(nodes, start, self.chains):
            if node in levels:
                levels[node][rows] = found.means
            else:
                filled[rows, node] = found.means[:, 0]
        return averaged([start, filled], [shares, levels], self._both)

    @property
    def n_points(self) -> int:
        """Number of tables in memory while points are computed."""
        return len(MIDDLES) + _OF_POINTS.n_chains

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Find quantiles of the average; see `skvnce.fitted.strategies`."""
        start, _ = self.joint.fill(nodes.copy(), limits)
        points, shares = self.joint.points(nodes.copy(), MIDDLES, limits)
        drawn = np.repeat(start[None], _OF_POINTS.n_chains, axis=0)
        own = {node: one.copy() for node, one in shares.items()}
        for node, rows, found in self._predictions(nodes, start, _OF_POINTS):
            drawn[:, rows, node] = found.draws
            if node in own:
                own[node][rows] = found.means
        averages = pooled_shares([shares, own], self._both)
        found = quantiles([points, drawn], self._both, levels)
        return self._narrowed(found, nodes, limits), averages

    @property
    def _both(self) -> np.ndarray:
        """Weights of the joint model and of the column models; (2, n_nodes)."""
        return np.stack([1 - self.weights, self.weights])

    def _predictions(self, nodes, start, chains):
        """Predict by the column models; yields columns, rows and `Found`."""
        missing = np.isnan(nodes)
        several = missing.sum(1) > 1
        # the chains of rows with one missing cell would be equal, but for their draws
        alone = chains if chains.keeps_draws else ALONE
        for rows, own in ((several, chains), (~several, alone)):
            if not rows.any():
                continue
            given = start[rows], missing[rows], own, uniforms_of(nodes[rows])
            for node, found in predict(self.columns, *given).items():
                yield node, np.flatnonzero(rows)[missing[rows, node]], found

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        drawn, missing = self.joint.draw(nodes.copy(), n_draws, limits), np.isnan(nodes)
        redraw(self.columns, drawn, missing, self.weights, self.n_sweeps)
        return self._narrowed(drawn, nodes, limits)

    def _narrowed(self, cells, nodes, limits):
        """Move draws, or quantiles, of missing cells towards the means."""
        some = np.isnan(nodes) & (self.spreads < 1)
        if not some.any():
            return cells
        means, _ = self.fill(nodes, limits)
        return np.where(some, narrowed(cells, means, self.spreads), cells)


def predict(
    columns: Sequence[ColumnModel],  # in the order of a sweep
    start: np.ndarray,  # (n, n_nodes), filled rows, where the chains start
    missing: np.ndarray,  # (n, n_nodes), bool
    chains: Chains,
    uniforms: Callable,
) -> dict:
    """Average the predictions of columns over draws of the other missing cells.

    `uniforms`: maps the number of a sweep and a shape (n_chains, n, n_nodes) to uniform
    numbers. Result: for each column, of the rows that miss it.
    """
    state = np.repeat(start[None], chains.n_chains, axis=0)
    means, drawn = {}, {}
    for number in range(chains.n_burn_in + chains.n_sweeps):
        uniform, counts = uniforms(number, state.shape), number >= chains.n_burn_in
        for column in columns:
            j = column.column
            rows = np.flatnonzero(missing[:, j])
            if not len(rows):
                continue
            given = np.ascontiguousarray(state[:, rows].reshape(-1, state.shape[-1]))
            numbers = uniform[:, rows, j].ravel()
            drawn[j], cells = column.draw(given, numbers, with_means=counts)
            drawn[j] = drawn[j].reshape(chains.n_chains, -1)
            if counts:
                cells = cells.reshape(chains.n_chains, len(rows), -1).mean(0)
                means[j] = means.get(j, 0.0) + cells / chains.n_sweeps
            state[:, rows, j] = drawn[j]
    return {j: Found(means[j], drawn[j]) for j in means}


def redraw(
    columns: Sequence[ColumnModel],
    drawn: np.ndarray,  # (n_draws, n, n_nodes), completed tables; changed in place
    missing: np.ndarray,  # (n, n_nodes), bool
    weights: np.ndarray,  # (n_nodes,)
    n_sweeps: int,
) -> np.ndarray:  # (n_draws, n, n_nodes), bool
    """Draw some of the missing cells again, from the column models given the others.

    The other missing cells keep the draws of the joint model, so that a draw is one of
    the mixture of both.  `weights`: probabilities with which a cell is drawn again, in
    all sweeps.  Result: the cells that were drawn.
    """
    chosen = missing & (_of_stream(drawn.shape) < weights)
    for _ in range(n_sweeps):
        for column in columns:
            tables, rows = chosen[..., column.column].nonzero()
            if len(rows):
                given = drawn[tables, rows]
                cells, _ = column.draw(given, _of_stream(len(rows)))
                drawn[tables, rows, column.column] = cells
    return chosen


def uniforms_of(rows: np.ndarray) -> Callable:
    """Make uniform numbers that are functions of the rows."""
    numbers = row_keyed(rows, 0)

    def uniforms(number: int, shape: tuple) -> np.ndarray:
        return numbers(number, torch.empty(shape, dtype=torch.float64)).numpy()

    return uniforms


def _of_stream(shape: tuple | int) -> np.ndarray:
    """Draw uniform numbers with torch's global stream."""
    return torch.rand(shape, dtype=torch.float64).numpy()
