"""Weights of averages of two imputers, chosen by hidden cells.

The first imputer was fitted to the hidden cells, too, so that the best weight of the
second is too small in tables with few rows.  And weights that are estimated from few
cells are worse than equal weights.  So a weight is halfway between the best one and
one half.
"""

import numpy as np

_FLOOR = 0.003  # least probability in a geometric mean
_WEIGHTS = np.linspace(0, 1, 21)  # to choose from, for probabilities


def hide_one(observed, most, rng):
    """Choose rows with at least two observed cells, and one of these cells in each.

    Parameters
    ----------
    observed : ndarray of bool, of shape (n, n_nodes)
    most : int
        Maximum number of rows.
    rng : numpy.random.Generator

    Returns
    -------
    rows, columns : ndarray of int, of shape (n_chosen,)
    """
    rows = rng.permutation(np.flatnonzero(observed.sum(1) > 1))[:most]
    chance = rng.random((len(rows), observed.shape[1]))
    return rows, (observed[rows] * chance).argmax(1)


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
    units : list of float
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
                found.append(np.roll(one.probabilities[place][row], -code))
    of_numbers = best_weight(*np.concatenate(numbers).T)
    of_levels = best_weight_of_levels(*levels)
    found = np.array(
        [of_levels if place in own.probabilities else of_numbers for place in places]
    )
    return (found + 0.5) / 2


def best_weight(own, other, truth):
    """Choose the weight of the second of two predictions (n,) of numbers.

    It minimises the mean squared error of the weighted mean, within 0 and 1.
    """
    apart = other - own
    squares = (apart**2).sum()
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
    losses = [
        -sum(
            np.log(pooled(p[None], q[None], weight)[0, 0])
            for p, q in zip(own, other, strict=True)
        )
        for weight in _WEIGHTS
    ]
    return float(_WEIGHTS[np.argmin(losses)])


def pooled(own, other, weight):
    """Average probabilities (n, n_levels) geometrically."""
    logs = [np.log(np.maximum(one, _FLOOR)) for one in (own, other)]
    found = np.exp((1 - weight) * logs[0] + weight * logs[1])
    return found / found.sum(1, keepdims=True)
