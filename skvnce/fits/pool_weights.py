"""Weights of averages of models, chosen by draws of held-out cells.

The draws of a pool of models with weights w have in a cell of truth y the fair energy
score

    sum_k w_k E d(X_k, y) - sum_kl w_k w_l E d(X_k, X_l) / 2,                        (1)

with draws X_k of model k, and d the distance of numbers in standard deviations (the
continuous ranked probability score) or 1 for different categories (half of the Brier
score).  It is a convex quadratic function of w.  Weights that few cells of a column
have chosen are worse than those of all columns of its kind, and these worse than equal
ones: both are added as if they were further cells.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

_OF_KIND = 50  # cells that all columns of the kind count for
_EQUAL = 5  # cells that equal weights count for
_SHIFTS = 8  # pairings of the draws of two models


class Distances(NamedTuple):
    """Mean distances of the draws of K models in each held-out cell."""

    column: np.ndarray  # (n_cells,), int
    to_truth: np.ndarray  # (K, n_cells)
    apart: np.ndarray  # (K, K, n_cells)

    def of_columns(self, columns: Sequence[int]) -> "Distances":
        """Select the cells of some columns."""
        own = np.isin(self.column, columns)
        return Distances(self.column[own], self.to_truth[:, own], self.apart[..., own])

    def of_first(self, size: int) -> "Distances":
        """Select the first models."""
        return Distances(self.column, self.to_truth[:size], self.apart[:size, :size])


def distances(
    draws: Sequence[np.ndarray],  # (n_draws, n, n_nodes), of each model
    nodes: np.ndarray,  # (n, n_nodes)
    hidden: np.ndarray,  # (n, n_nodes), bool
    scale: np.ndarray,  # (n_nodes,), standard deviations
    is_categorical: np.ndarray,  # (n_nodes,), bool
) -> Distances:
    """Compare draws with held-out cells, and with each other."""
    rows, column = hidden.nonzero()
    level, unit = is_categorical[column], scale[column]
    cells, truth = [one[:, rows, column] for one in draws], nodes[rows, column]

    def apart(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.where(level, first != second, abs(first - second) / unit)

    n_draws, size = len(cells[0]), len(cells)
    # no draw is paired with itself, which makes the score fair
    shifts = np.unique(np.linspace(1, n_draws - 1, _SHIFTS).astype(int))
    between = np.empty((size, size, len(rows)))
    for k in range(size):
        for m in range(k, size):
            pairs = [apart(cells[k], np.roll(cells[m], s, 0)).mean(0) for s in shifts]
            between[k, m] = between[m, k] = np.mean(pairs, axis=0)
    to_truth = np.stack([apart(one, truth).mean(0) for one in cells])
    return Distances(column, to_truth, between)


def weights_of(found: Distances, is_categorical: np.ndarray) -> np.ndarray:
    """Choose weights (K, n_nodes), of sum 1 in each column, of models."""
    size, width = len(found.to_truth), len(is_categorical)
    weights = np.full((size, width), 1 / size)
    for kind in np.unique(is_categorical):
        columns = np.flatnonzero(is_categorical == kind)
        of_kind = np.isin(found.column, columns)
        if not of_kind.any():
            continue
        for j in columns:
            own = found.column == j
            weights[:, j] = _best(*_objective(found, own, of_kind))
    return weights


def _objective(found, own, of_kind):
    """Add the cells of a column, those of its kind, and equal weights; d and G."""
    count = own.sum()
    linear, square = (
        one[..., own].sum(-1) + _OF_KIND * one[..., of_kind].mean(-1)
        for one in (found.to_truth, found.apart)
    )
    total = count + _OF_KIND
    # in the unit of the column's own errors, so that a clear difference reaches 0 or 1
    unit, size = linear.min() / total, len(linear)
    ridge = 2 * _EQUAL * unit
    # ridge |w - 1/K|^2 / 2, up to a constant
    return linear - ridge / size, square - ridge * np.eye(size)


def _best(linear, square):
    """Minimise linear' w - w' square w / 2 over the weights of an average."""
    size, unit = len(linear), abs(linear).max() or 1.0
    if size == 1:
        return np.ones(1)
    linear, square = linear / unit, square / unit
    found = minimize(
        lambda w: (linear @ w - w @ square @ w / 2, linear - square @ w),
        np.full(size, 1 / size),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * size,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
    )
    # zeros that rounding has moved would cost draws of a model
    weights = np.where(found.x < 1e-6, 0.0, found.x)
    return weights / weights.sum()
