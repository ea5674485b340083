"""Rows that are held out, and their cells that are predicted.

A model that has seen the other cells of a row predicts its hidden cell better than that
of a new row.  So whole rows are held out to compare models, and each of their cells is
hidden once.
"""

from typing import NamedTuple

import numpy as np

from skvnce.fitted.held_out_cells import Keys, row_folds
from skvnce.tables.statistics import constant_columns

_PARTS = 10  # of which one is held out
_MASKS = 5  # of a row; a fifth of its cells is hidden at a time
_MOST = 400  # held-out rows


class Held(NamedTuple):
    """Held-out rows, once for each mask."""

    nodes: np.ndarray  # (n, n_nodes)
    hidden: np.ndarray  # (n, n_nodes), bool, observed cells


def hold_out_rows(nodes: np.ndarray) -> np.ndarray:  # (n,), bool
    """Choose about a tenth of the rows, without which each column varies.

    The choice is a function of the ranks in each row, as that of `row_folds`.  `nodes`:
    (n, n_nodes), NaN marks missing cells.
    """
    held = row_folds(nodes, _PARTS).numpy() == 0
    held[np.flatnonzero(held)[_MOST:]] = False
    kept = nodes[~held]
    for j in np.flatnonzero(np.isnan(kept).all(0) | constant_columns(kept)):
        held &= np.isnan(nodes[:, j])
    return held


def masked(rows: np.ndarray) -> Held:
    """Hide each observed cell of rows (n, n_nodes) in one of five copies of them."""
    mask = (Keys.of(rows).uniform_cells(0) * _MASKS).astype(int)
    hidden = np.concatenate([(mask == i) & ~np.isnan(rows) for i in range(_MASKS)])
    some = hidden.any(1)
    return Held(np.tile(rows, (_MASKS, 1))[some], hidden[some])
