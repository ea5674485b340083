"""Fits of imputers to some of the rows, and columns that other ones repeat."""

import warnings

import numpy as np
from sklearn.base import clone

from skvnce.tables.schema import Encoded

# 5 % of the standard deviation
_LEFT = 0.0025  # share of the variance that a repeated number leaves open
_FEWEST = 20  # rows that show it


def repeated(nodes, n_levels):  # (n_nodes,), bool
    """Find the numbers of which another column leaves hardly anything open.

    `nodes`: (n, n_nodes), NaN marks missing cells. `n_levels`: (n_nodes,), int, number
    of levels of each column; 0 for numbers.
    """
    seen = ~np.isnan(nodes)
    z = np.where(seen, nodes - np.nanmean(nodes, 0), 0.0) / np.nanstd(nodes, 0)
    both = seen.T.astype(float) @ seen
    n, first = np.maximum(both, 1), z.T @ seen  # sums of the first column of a pair
    covariance = z.T @ z / n - first * first.T / n**2
    variance = (z**2).T @ seen / n - (first / n) ** 2
    # multiplied out, because a variance may be 0
    close = covariance**2 > (1 - _LEFT) * variance * variance.T
    close &= (both >= _FEWEST) & (variance > 0) & (variance.T > 0)
    number = np.asarray(n_levels) == 0
    np.fill_diagonal(close, False)
    return (close & number[:, None] & number).any(1)


def refitted(model, cells, seed, weights=None):
    """Fit a clone of an imputer to some of its rows, validated (n, n_features)."""
    other = clone(model)
    wanted = {"random_state": seed, "on_misfit": "ignore", "verbose": 0}
    known = other.get_params(deep=False)
    other.set_params(**{name: wanted[name] for name in wanted if name in known})
    with warnings.catch_warnings():  # `model` has given them already
        warnings.simplefilter("ignore")
        given = {} if weights is None else {"sample_weight": weights}
        return other.fit(Encoded(cells, model._schema), **given)
