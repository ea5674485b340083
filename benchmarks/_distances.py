"""The energy distance between two tables."""

import numpy as np
from scipy.spatial.distance import cdist


def energy_distance(x, y):
    """Compute the V-statistic of Szekely and Rizzo (2013), Energy statistics.

    Twice the mean distance of a row of x from one of y, minus the mean distances within
    x and within y. It is 0 if both tables have the same rows.
    """
    x, y = (np.asarray(one, dtype=float) for one in (x, y))
    within = cdist(x, x).mean() + cdist(y, y).mean()
    return max(float(2 * cdist(x, y).mean() - within), 0.0)
