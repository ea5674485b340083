"""Statistics and splits of tables: moments, constant columns, held-out cells."""

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn.utils._set_output import _get_container_adapter

from skvnce._random import row_keyed
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


def column_moments(nodes, weights):
    """Compute weighted means and standard deviations of the observed cells."""
    seen = ~np.isnan(nodes) * weights[:, None]
    total = seen.sum(0)
    with np.errstate(over="ignore", invalid="ignore"):  # the check of the scale follows
        mean = np.nansum(nodes * seen, 0) / total
        return mean, np.sqrt(np.nansum((nodes - mean) ** 2 * seen, 0) / total)


def constant_columns(nodes):
    """Return which columns have observed cells that are equal, up to rounding."""
    low, high = np.fmin.reduce(nodes, 0), np.fmax.reduce(nodes, 0)
    with np.errstate(over="ignore"):  # an infinite range is none of a constant
        return high - low <= 1e-13 * np.maximum(abs(low), abs(high))


def distinct_rows(rows):
    """Find the distinct rows of a table; NaN equals NaN, and -0.0 equals 0.0.

    Parameters
    ----------
    rows : ndarray of shape (n, features)
        With at least one column.

    Returns
    -------
    first : ndarray of int, of shape (n_different,)
        Indices of rows that are all distinct.
    group : ndarray of int, of shape (n,)
        Index into `first` of the row that equals each row.
    """
    clean = np.ascontiguousarray(np.where(np.isnan(rows), np.nan, rows + 0.0))
    width = clean.itemsize * clean.shape[1]
    keys = clean.view(np.dtype((np.void, width))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group


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


def into_dtype(cells, dtype):
    """Convert floats to a dtype, and clip values beyond its range."""
    most = np.finfo(dtype).max
    return np.clip(np.asarray(cells), -most, most).astype(dtype)


def in_container(estimator, array, X, names):
    """Put an array into the container that `transform` of an estimator returns.

    Parameters
    ----------
    estimator : transformer with `set_output`
    array : ndarray of shape (n_samples, n_columns)
    X : array-like of shape (n_samples, n_features)
        The input, whose index a pandas data frame keeps.
    names : ndarray of str, of shape (n_columns,)

    Returns
    -------
    ndarray or data frame
    """
    adapter = _get_container_adapter("transform", estimator)
    return array if adapter is None else adapter.create_container(array, X, names)


def half_sample_mode(draws):
    """Estimate the mode of draws for each cell (Bickel and Fruehwirth 2006).

    Parameters
    ----------
    draws : ndarray of shape (n_draws, ...)

    Returns
    -------
    ndarray of shape (...)
    """
    sorted_draws = np.sort(draws, 0)
    while len(sorted_draws) > 2:
        half = (len(sorted_draws) + 1) // 2
        widths = sorted_draws[half - 1 :] - sorted_draws[: len(sorted_draws) - half + 1]
        first = widths.argmin(0)
        places = first[None] + np.arange(half).reshape(-1, *[1] * first.ndim)
        sorted_draws = np.take_along_axis(sorted_draws, places, 0)
    return sorted_draws.mean(0)
