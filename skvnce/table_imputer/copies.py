"""Columns that are copies of another one, or linear functions of it.

The prior of the normal distribution blurs such a relation.  So copies are in no model:
their missing cells are computed from the other column, and those of that from them.
"""

from typing import NamedTuple

import numpy as np

from skvnce._core.numbers import MOST_CODES

_FEWEST = 20  # rows that show a relation
_EXACT = 1e-3  # of the distance of quartiles: a relation of rounded numbers
_SCREENED = 2000  # rows by which pairs are chosen
_LINEAR = 1 - 1e-5  # squared correlation, from which on a pair is compared


class Copy(NamedTuple):
    """A column that is ``slope * source + intercept``."""

    place: int
    source: int
    slope: float
    intercept: float


def copies_among(cells, columns):
    """Find the copies of columns that come before them.

    `cells` (n, p): NaN marks missing cells; `columns`, sequence of int: the columns of
    numbers, in an order of their content.  Returns list of Copy.
    """
    found, columns = {}, np.asarray(columns, int)
    for first, second in _linear_pairs(cells[:, columns]).tolist():
        source, place = int(columns[first]), int(columns[second])
        if source not in found and place not in found:
            if line := _line(cells[:, source], cells[:, place]):
                found[place] = Copy(place, source, *line)
    return list(found.values())


def _linear_pairs(X):
    """List pairs of columns (n_pairs, 2) that are nearly linear functions."""
    X = X[:: max(1, len(X) // _SCREENED)]
    seen = ~np.isnan(X)
    centre = np.where(seen, X, 0.0).sum(0) / np.maximum(seen.sum(0), 1)
    Z = np.where(seen, X - centre, 0.0)
    Z = Z / np.maximum(abs(Z).max(0), 1e-300)  # whose squares are finite
    seen = seen.astype(float)
    n = np.maximum(seen.T @ seen, 1.0)
    sums = Z.T @ seen
    squares = (Z**2).T @ seen - sums**2 / n
    products = Z.T @ Z - sums * sums.T / n
    size = squares * squares.T
    are_linear = (products**2 >= _LINEAR * size) & (size > 0)
    return np.argwhere(np.triu(are_linear, 1))


def _line(x, y):
    """Return slope and intercept of y on x, if all cells are on the line, else None."""
    both = ~np.isnan(x) & ~np.isnan(y)
    x, y = x[both], y[both]
    if len(x) < _FEWEST or min(len(np.unique(x)), len(np.unique(y))) <= MOST_CODES:
        return None
    i, j = x.argmin(), x.argmax()
    slope = (y[j] - y[i]) / (x[j] - x[i])
    intercept = y[i] - slope * x[i]
    low, high = np.quantile(y, (0.25, 0.75))
    if abs(y - intercept - slope * x).max() >= _EXACT * (high - low):
        return None
    return float(slope), float(intercept)


def with_sources(nodes, copies):
    """Compute missing cells of columns (n, p) from those of their copies."""
    nodes = nodes.copy()
    for place, source, slope, intercept in copies:
        rows = np.isnan(nodes[:, source])
        nodes[rows, source] = (nodes[rows, place] - intercept) / slope
    return nodes


def put_copies(filled, nodes, copies, mirrored=None):
    """Write the missing cells of copies into filled tables (..., n, p).

    `mirrored` has the quantiles at one less the levels of those of `filled`.
    """
    for place, source, slope, intercept in copies:
        rows = np.isnan(nodes[:, place])
        table = filled if slope > 0 or mirrored is None else mirrored
        filled[..., rows, place] = slope * table[..., rows, source] + intercept
