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
from skvnce.fitted.pools import averaged
from skvnce.tables.cell_limits import CellLimits


class Chains(NamedTuple):
    """Lengths of the Gibbs chains that draw the other missing cells of a row.

    Attributes
    ----------
    n_chains : int
    n_burn_in, n_sweeps : int
        Sweeps before those that count, and those that count.
    """

    n_chains: int
    n_burn_in: int
    n_sweeps: int


_ALONE = Chains(1, 0, 1)  # of rows with one missing cell, whose chains would be equal


class ByColumns(NamedTuple):
    """A joint model averaged with models of columns; see `CellModel`.

    Attributes
    ----------
    joint : CellModel
    columns : sequence of ColumnModel
        In the order of a sweep.
    weights : ndarray of shape (n_nodes,)
        Of the column models.
    chains : Chains
        Of predictions.
    n_sweeps : int
        Of draws.
    """

    joint: CellModel
    columns: Sequence[ColumnModel]
    weights: np.ndarray
    chains: Chains
    n_sweeps: int

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        own = self.chains.n_chains if n_draws is None else 1
        return max(own, n_chains(self.joint, n_draws))

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by averages; see `CellModel`."""
        missing = np.isnan(nodes)
        start, shares = self.joint.fill(nodes.copy(), limits)
        filled, levels = start.copy(), {node: p.copy() for node, p in shares.items()}
        several = missing.sum(1) > 1
        for rows, chains in ((several, self.chains), (~several, _ALONE)):
            if not rows.any():
                continue
            some, numbers = np.flatnonzero(rows), uniforms_of(nodes[rows])
            given = start[rows], missing[rows], chains, numbers
            for node, cells in predict(self.columns, *given).items():
                place = some[missing[rows, node]]
                if node in levels:
                    levels[node][place] = cells
                else:
                    filled[place, node] = cells[:, 0]
        weights = np.stack([1 - self.weights, self.weights])
        return averaged([start, filled], [shares, levels], weights)

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        drawn, missing = self.joint.draw(nodes.copy(), n_draws, limits), np.isnan(nodes)
        redraw(self.columns, drawn, missing, self.weights, self.n_sweeps)
        return drawn


def predict(
    columns: Sequence[ColumnModel],
    start: np.ndarray,
    missing: np.ndarray,
    chains: Chains,
    uniforms: Callable,
) -> dict:
    """Average the predictions of columns over draws of the other missing cells.

    Parameters
    ----------
    columns : sequence of ColumnModel
        In the order of a sweep.
    start : ndarray of shape (n, n_nodes)
        Filled rows, where the chains start.
    missing : ndarray of bool, of shape (n, n_nodes)
    chains : Chains
    uniforms : callable
        Maps the number of a sweep and a shape (n_chains, n, n_nodes) to uniform
        numbers.

    Returns
    -------
    dict of int to ndarray of shape (n_missing, width)
        For each column, the means or probabilities in the rows that miss it.
    """
    state = np.repeat(start[None], chains.n_chains, axis=0)
    found = {}
    for number in range(chains.n_burn_in + chains.n_sweeps):
        uniform, counts = uniforms(number, state.shape), number >= chains.n_burn_in
        for column in columns:
            j = column.column
            rows = np.flatnonzero(missing[:, j])
            if not len(rows):
                continue
            given = np.ascontiguousarray(state[:, rows].reshape(-1, state.shape[-1]))
            numbers = uniform[:, rows, j].ravel()
            drawn, means = column.draw(given, numbers, with_means=counts)
            if counts:
                cells = means.reshape(chains.n_chains, len(rows), -1).mean(0)
                found[j] = found.get(j, 0.0) + cells / chains.n_sweeps
            state[:, rows, j] = drawn.reshape(chains.n_chains, -1)
    return found


def redraw(
    columns: Sequence[ColumnModel],
    drawn: np.ndarray,
    missing: np.ndarray,
    weights: np.ndarray,
    n_sweeps: int,
) -> np.ndarray:
    """Draw some of the missing cells again, from the column models given the others.

    The other missing cells keep the draws of the joint model, so that a draw is one of
    the mixture of both.

    Parameters
    ----------
    columns : sequence of ColumnModel
    drawn : ndarray of shape (n_draws, n, n_nodes)
        Completed tables; changed in place.
    missing : ndarray of bool, of shape (n, n_nodes)
    weights : ndarray of shape (n_nodes,)
        Probabilities with which a cell is drawn again, in all sweeps.
    n_sweeps : int

    Returns
    -------
    ndarray of bool, of shape (n_draws, n, n_nodes)
        The cells that were drawn.
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
