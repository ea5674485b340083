"""Splits of tables: cells that are held out, and folds of rows."""

import numpy as np
import torch
from scipy.stats import rankdata

from skvnce._keyed import row_keyed

_FEWEST = 10  # minimum number of observed cells of a column from which to hold out
_ROWS = 5000  # approximate number of rows that suffice to choose a parameter


def hold_out(nodes, weights, share):
    """Choose rows, and hold out some of their observed cells.

    The choice is a function of the ranks in each row.  It depends neither on units nor
    on the order of rows, and a row of weight two is equivalent to two equal rows.

    Parameters
    ----------
    nodes : ndarray of shape (n, n_nodes)
    weights : Tensor of shape (n,)
    share : float
        Share of the observed cells to hold out.

    Returns
    -------
    some : Tensor of bool, of shape (n,)
        The chosen rows.
    hidden : Tensor of bool, of shape (n, n_nodes)
        The held-out cells.
    """
    uniform = _keyed_by_ranks(nodes)
    observed = torch.from_numpy(~np.isnan(nodes))
    key = uniform(0, observed.double())[:, 0]
    some = key <= key.unique()[:_ROWS][-1]
    enough = (weights * some) @ observed.double() >= _FEWEST
    return some, (uniform(1, observed.double()) < share) & observed & enough


def row_folds(nodes, n_folds=5):
    """Split rows into folds by their ranks, as `hold_out` does; (n,)."""
    uniform = _keyed_by_ranks(nodes)
    key = uniform(2, torch.from_numpy(nodes))[:, 0]
    return (key * n_folds).long()


def _keyed_by_ranks(nodes):
    ranks = rankdata(nodes, method="dense", axis=0, nan_policy="omit") - 1
    return row_keyed(ranks, 0)
