"""Marginals of numbers of a table in parts: from counts of cells at some knots.

The marginal of a table in memory (`Marginal.of`) has a knot for each value.  Here the
knots are the values of a sample of the rows, at most about `MOST` of them, and the
smallest and the largest value of all rows.  The shares below and up to the knots are
those of all rows: counts are sums over the parts.  If the knots are all values, the
marginal is that in memory.
"""

import numpy as np
import torch
from torch import Tensor

from skvnce.algorithms.mixed.columns import Marginal

MOST = 2048  # knots at quantiles
# quantiles leave wide gaps in the tails
_OUTER = 32  # further knots at each end
# below the share from which a value is an interval (`columns`): such values are knots
_FREQUENT = 0.002  # share of a value that is always a knot
_REPEATED = 0.5  # as in `columns`


def knots_of(cells: np.ndarray, low: float, high: float) -> np.ndarray:
    """Choose knots from a sample of the observed cells of a column; increasing.

    `cells` (n,); `low`, `high`: the smallest and the largest observed cell of all rows.
    """
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
    """Count cells (n,) below, and up to, the knots and the middles between them.

    Returns int (2, 2 * n_knots - 1): the first and each second column belong to knots.
    """
    edges = np.empty(2 * len(knots) - 1)
    # counts up to the middles show which cells are nearest to a knot
    edges[::2], edges[1::2] = knots, knots[:-1] + np.diff(knots) / 2
    cells = np.sort(cells)
    return np.stack([np.searchsorted(cells, edges, side) for side in ("left", "right")])


def marginal_of(knots: np.ndarray, counts: np.ndarray) -> Marginal:
    """Make the marginal of a column from the counts of all its observed cells.

    Values that repeat in most cells are intervals, to which the cells belong that are
    nearest.
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
