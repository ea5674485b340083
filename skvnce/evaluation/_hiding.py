"""Cells to hide in a table that has missing cells already."""

import numpy as np

from skvnce.missingness import _fractions, _generator, _numbers, mar, mcar


def own_patterns(X, fraction, *, random_state=None):
    """Choose cells by the patterns of the table's own rows.

    Some rows each get the missing cells of another row, drawn from those with missing
    cells: what is missing together in the table is then hidden together. The share of
    such rows is chosen such that the expected share of hidden cells is ``fraction``.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_samples, n_features)
        A numeric or mixed table with missing cells.
    fraction : float
        Expected fraction of the observed cells to hide, in [0, 1). Less is hidden if
        otherwise a column would lose more than half of its observed cells.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    hidden : ndarray of bool of shape (n_samples, n_features)
        True at the cells to hide, which are observed.

    Raises
    ------
    ValueError
        If no cell of ``X`` is missing, or all cells of each incomplete row are.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce.evaluation import own_patterns
    >>> X = np.ones((100, 3))
    >>> X[:10, :2] = np.nan
    >>> hidden = own_patterns(X, 0.2, random_state=0)
    >>> np.unique(hidden, axis=0)
    array([[False, False, False],
           [ True,  True, False]])
    """
    missing = np.isnan(_numbers(X)[0])
    _fractions(fraction, missing.shape[1])
    donors = missing[missing.any(1) & ~missing.all(1)]
    if not len(donors):
        raise ValueError(
            "X must have rows with missing and observed cells, whose patterns are "
            "hidden, got none; use mcar or mar"
        )
    rng = _generator(random_state)
    hidden = donors[rng.integers(len(donors), size=len(missing))] & ~missing
    rates = donors.mean(0)  # of a column, were all rows chosen
    expected = (rates * (~missing).sum(0)).sum() / (~missing).sum()
    # no column is to lose more than half of its cells
    share = min(fraction / expected, 0.5 / rates.max(), 1) if expected else 0.0
    return hidden & (rng.random(len(missing)) < share)[:, None]


def by_complete_columns(X, fraction, *, random_state=None):
    """Choose cells by `mar`, given at most a third of the columns, complete ones."""
    missing = np.isnan(_numbers(X)[0])
    complete = np.flatnonzero(~missing.any(0))
    if not len(complete):
        raise ValueError(
            "mechanism 'mar' needs a column of X without missing cells, which decides "
            "what is hidden, got none; use 'mcar' or 'patterns'"
        )
    drivers = complete[: -(-missing.shape[1] // 3)]
    if len(drivers) == missing.shape[1]:
        raise ValueError("mechanism 'mar' needs two columns or more; use 'mcar'")
    return mar(X, fraction, drivers=drivers, random_state=random_state)


def whole_rows(X, fraction, *, random_state=None):
    """Choose all observed cells of some rows, such as visits of patients."""
    missing = np.isnan(_numbers(X)[0])
    _fractions(fraction, missing.shape[1])
    chosen = _generator(random_state).random(len(missing)) < fraction
    return ~missing & chosen[:, None]


MECHANISMS = {
    "mcar": mcar,
    "mar": by_complete_columns,
    "patterns": own_patterns,
    "rows": whole_rows,
}
