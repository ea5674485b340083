"""Statistics and splits of tables: moments, constant columns, held-out cells."""

import numpy as np
import torch
from scipy.stats import rankdata

from skvnce._keyed import row_keyed
from skvnce.estimators._weights import checked_weights

_FEWEST = 10  # minimum number of observed cells of a column from which to hold out
_ROWS = 5000  # approximate number of rows that suffice to choose a parameter


def rows_with_data(X, sample_weight, known=None):
    """Check the weights, and select rows of positive weight with a known cell.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    sample_weight : array-like of shape (n_samples,) or None
    known : ndarray of bool, of shape (n_samples, n_features), default=None
        Cells about which something is known; None means the observed ones.

    Returns
    -------
    weights : ndarray of shape (n_samples,)
    kept : ndarray of bool, of shape (n_samples,)
    """
    weights = checked_weights(sample_weight, X)
    known = ~np.isnan(X) if known is None else known
    kept = (weights > 0) & known.any(1)
    if not kept.any():
        raise ValueError("No row of X has an observed cell and a positive weight.")
    return weights, kept


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
