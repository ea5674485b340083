"""Weights of averages of two imputers, chosen by hidden cells.

The first imputer is fitted without the hidden cells, and the second predicts them by
trees that were not grown on their rows.  Weights that are estimated from few cells are
worse than equal weights, so that they are moved towards one half, as if `_PRIOR`
further cells were predicted best by equal weights.  A number that nearly repeats
another one has the weight 0: a leaf is wider than what the other one leaves open.
"""

import warnings

import numpy as np
from sklearn.base import clone

from skvnce.tables.schema import Encoded

# a level that no tree has seen would have probability 0 in the mean, whatever the other
# imputer says
_FLOOR = 0.003  # least probability in a geometric mean
_PRIOR = 100  # cells that are added as if equal weights predicted them best
# 5 % of the standard deviation
_LEFT = 0.0025  # share of the variance that a repeated number leaves open
_FEWEST = 20  # rows that show it
_WEIGHTS = np.linspace(0, 1, 21)  # to choose from, for probabilities


def hide_one(nodes, n_levels, most, rng):
    """Choose rows with at least two observed cells, and one of these cells in each.

    One cell of each level, and the smallest and largest number of each column, are
    never chosen, so that a fit without the cells knows all levels and ranges.

    Parameters
    ----------
    nodes : ndarray of shape (n, n_nodes)
        NaN marks missing cells.
    n_levels : ndarray of int, of shape (n_nodes,)
        Number of levels of each column; 0 for numbers.
    most : int
        Maximum number of rows.
    rng : numpy.random.Generator

    Returns
    -------
    rows, columns : ndarray of int, of shape (n_chosen,)
    """
    observed = ~np.isnan(nodes)
    free = observed & (observed.sum(1) > 1)[:, None]
    for column, levels, mask in zip(nodes.T, n_levels, free.T, strict=True):
        if not levels:
            mask[[np.nanargmin(column), np.nanargmax(column)]] = False
        else:
            seen = np.flatnonzero(~np.isnan(column))
            mask[seen[np.unique(column[seen], return_index=True)[1]]] = False
    rows = rng.permutation(np.flatnonzero(free.any(1)))[:most]
    chance = rng.random((len(rows), free.shape[1]))
    return rows, (free[rows] * chance).argmax(1)


def repeated(nodes, n_levels):
    """Find the numbers of which another column leaves hardly anything open.

    Parameters
    ----------
    nodes : ndarray of shape (n, n_nodes)
        NaN marks missing cells.
    n_levels : ndarray of int, of shape (n_nodes,)
        Number of levels of each column; 0 for numbers.

    Returns
    -------
    ndarray of bool, of shape (n_nodes,)
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


def fitted_without(model, cells, hidden, seed, weights=None):
    """Fit a clone of an imputer to validated rows without some cells.

    Parameters
    ----------
    model : Imputer
        Fitted to these rows.
    cells : ndarray of shape (n, n_features)
    hidden : tuple of ndarray of int
        Rows and columns of the cells.
    seed : int
    weights : ndarray of shape (n,), default=None
        Frequencies of the rows; None means 1 for each.

    Returns
    -------
    Imputer
    """
    kept = cells.copy()
    kept[hidden] = np.nan
    other = clone(model)
    wanted = {"random_state": seed, "on_misfit": "ignore", "verbose": 0}
    known = other.get_params(deep=False)
    other.set_params(**{name: wanted[name] for name in wanted if name in known})
    with warnings.catch_warnings():  # `model` has given them already
        warnings.simplefilter("ignore")
        given = {} if weights is None else {"sample_weight": weights}
        return other.fit(Encoded(kept, model._schema), **given)


def choose(cells, hidden, places, units, own, other):
    """Choose one weight for numbers and one for categories.

    Parameters
    ----------
    cells : ndarray of shape (n, n_features)
        Rows before a cell of each was hidden.
    hidden : ndarray of int, of shape (n,)
        The column of the model of that cell.
    places : ndarray of int, of shape (n_nodes,)
        The columns of the model, among those of `cells`.
    units : dict of int to float
        Standard deviations of the columns of the model.
    own, other : Predicted
        Predictions, of which the second is weighted.

    Returns
    -------
    ndarray of shape (n_nodes,)
        The weight of each column.
    """
    numbers, levels = [np.zeros((0, 3))], ([], [])
    for node, place in enumerate(places):
        rows = np.flatnonzero(hidden == node)
        if place not in own.probabilities:
            parts = [table[rows, place] for table in (own.filled, other.filled, cells)]
            numbers.append(np.column_stack(parts) / units[node])
            continue
        for row in rows:
            code = int(cells[row, place])
            for found, one in zip(levels, (own, other), strict=True):
                # so that the probability of the true level comes first
                found.append(np.roll(one.probabilities[place][row], -code))
    numbers = np.concatenate(numbers)
    of_numbers = shrunk(best_weight(*numbers.T), len(numbers))
    of_levels = shrunk(best_weight_of_levels(*levels), len(levels[0]))
    return np.array(
        [of_levels if place in own.probabilities else of_numbers for place in places]
    )


def shrunk(weight, n_cells):
    """Move a weight that n_cells have chosen towards one half."""
    return (n_cells * weight + _PRIOR * 0.5) / (n_cells + _PRIOR)


def best_weight(own, other, truth):
    """Choose the weight of the second of two predictions (n,) of numbers.

    It minimises the mean squared error of the weighted mean, within 0 and 1.
    """
    apart = other - own
    squares = (apart**2).sum()
    # both predict the same, and any weight is as good
    if squares == 0:
        return 0.5
    return float(np.clip((apart * (truth - own)).sum() / squares, 0.0, 1.0))


def best_weight_of_levels(own, other):
    """Choose the weight of the second of two tables of probabilities.

    It minimises the mean log-loss of `pooled` probabilities.

    Parameters
    ----------
    own, other : list of ndarray of shape (n_levels,)
        The probabilities of a cell; the observed level comes first.
    """
    if not own:
        return 0.5
    losses = np.zeros(len(_WEIGHTS))
    for width in {len(p) for p in own}:  # the cells of columns of as many levels
        tables = [np.stack([p for p in one if len(p) == width]) for one in (own, other)]
        losses -= [np.log(pooled(*tables, w)[:, 0]).sum() for w in _WEIGHTS]
    return float(_WEIGHTS[np.argmin(losses)])


def pooled(own, other, weight):
    """Average probabilities (n, n_levels) geometrically."""
    logs = [np.log(np.maximum(one, _FLOOR)) for one in (own, other)]
    found = np.exp((1 - weight) * logs[0] + weight * logs[1])
    return found / found.sum(1, keepdims=True)
