"""Detection of columns whose squared errors are dominated by a few cells."""

import numpy as np

from skvnce.tables.statistics import observed_cells

_CELLS, _SHARE = 10, 0.02  # limits of the effective number of cells, and of its share
_LARGE = 10.0  # limit of the root mean square of the distances over their median
_FAR = 100.0  # the same limit, with weights proportional to the squares
_FEWEST = 3  # minimum number of cells that differ from the median


def heavy_tailed(X, columns):
    """Find columns whose squared errors are dominated by a few cells.

    Let d be the distances of the observed cells from their median, without zeros.
    Then ``(sum d^2)^2 / sum d^4`` is the effective number of cells that contribute to
    ``sum d^2``, and the relative standard error of a variance is one over its root.  A
    column is heavy-tailed if three conditions hold.  This number is below 10 or below
    2 % of the observed cells.  ``mean d^2`` exceeds the square of 10 medians of d.  The
    mean of d^2 with weights d^2, ``sum d^4 / sum d^2``, exceeds the square of 100
    medians.

    In simulations with 20 to 10,000 cells the function finds less than 1 % of columns
    that are normal, exponential, of Student's t with 3 degrees of freedom or lognormal
    (standard deviation of the logarithm 1), and 98 % of lognormal columns with standard
    deviation 2 and 1000 cells.  It does not find indicators and counts of rare events,
    as their nonzero cells are equally far from 0.  The result depends neither on the
    units nor on the sign of a column.

    `X` (n_samples, n_features): NaN marks missing cells; `columns` sequence of int:
    indices of the columns to check. Returns ndarray of int: indices of the heavy-tailed
    columns.
    """
    found = [j for j in columns if _is_heavy_tailed(observed_cells(X[:, j]))]
    return np.array(found, dtype=int)


def _is_heavy_tailed(values):
    values = values.astype(np.float64)
    largest = abs(values).max(initial=0.0)
    if not largest:
        return False
    values = values / largest  # avoids overflow of squares
    distance = abs(values - np.median(values))
    distance = distance[distance > 0]
    if len(distance) < _FEWEST:
        return False
    # so that fourth powers neither overflow nor vanish
    distance = distance / distance.max()
    typical, square = np.median(distance), np.square(distance)
    sums = square.sum(), np.square(square).sum()
    return _are_dominated(typical, *sums, len(square), len(values))


def _are_dominated(typical, total, fourth, n_different, n_observed):
    """Apply the three conditions of `heavy_tailed`.

    `typical` float: median of the distances; `total`, `fourth` float: sums of their
    squares and fourth powers; `n_different`, `n_observed` float: number of cells with a
    distance above 0, and of all.
    """
    few = total**2 < fourth * max(_CELLS, _SHARE * n_observed)
    large = total > n_different * (_LARGE * typical) ** 2
    return bool(few and large and fourth > total * (_FAR * typical) ** 2)


def heavy_in_sums(X, columns, location, scale, powers, n_observed):
    """Find columns as `heavy_tailed` does, from a sample of rows and sums over all.

    Medians are those of the sample.

    `X` (n_samples, n_features): the sample; `columns` sequence of int; `location`,
    `scale` (n_columns,): by which cells are standardised; `powers` (4, n_columns): sums
    of the first to fourth powers of standardised cells; `n_observed` int (n_features,).
    Returns ndarray of int.
    """
    found = []
    for place, j in enumerate(columns):
        z = (observed_cells(X[:, j]) - location[place]) / scale[place]
        middle, n = np.median(z), n_observed[j]
        distance = abs(z - middle)
        is_different = distance > 0
        if is_different.sum() < _FEWEST:
            continue
        one, two, three, four = powers[:, place]
        # sums of powers of z - middle, by the binomial theorem
        total = two - 2 * middle * one + n * middle**2
        fourth = four - 4 * middle * three + 6 * middle**2 * two
        fourth += n * middle**4 - 4 * middle**3 * one
        typical = np.median(distance[is_different])
        if _are_dominated(typical, total, fourth, n * is_different.mean(), n):
            found.append(j)
    return np.array(found, dtype=int)
