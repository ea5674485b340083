"""Rows of a stream that are kept, and the repeated fits of `partial_fit`.

A few rows do not show which marginals, how much shrinkage, or how many rounds are best.
So the first rows of a stream are kept, and the fit is repeated with all rows so far
when their number has doubled.  Beyond `MOST_KEPT` rows the choices are final.
"""

from typing import NamedTuple, Self

import numpy as np

from skvnce.estimators._possible import PossibleValues
from skvnce.estimators._summary import rows_in_memory
from skvnce.estimators._tables import rows_with_data
from skvnce.estimators._validation import Encoded, ends_of

MOST_KEPT = 20_000  # rows of a stream by which its choices are made
_PART_KEPT = 5  # one of so many of the rows that a table in parts has in memory


class Stream(NamedTuple):
    """What is kept of a stream, an attribute `_stream` of the estimator.

    Attributes
    ----------
    rows : ndarray of shape (n_kept, n_features)
        As `incomplete_array` has returned them; each has an observed cell.
    weights : ndarray of shape (n_kept,)
        Positive.
    n_rows : int
        Number of rows so far, those without a cell included.
    n_fitted : int
        That number at the last fit.
    """

    rows: np.ndarray
    weights: np.ndarray
    n_rows: int
    n_fitted: int

    @classmethod
    def of(cls, X, sample_weight=None):
        """Begin with a validated table, after the fit to it."""
        weights, kept = rows_with_data(X, sample_weight)
        return cls(X[kept], weights[kept], len(X), len(X))

    def followed_by(self, more: Self) -> Self:
        """Add rows."""
        pairs = zip(self[:2], more[:2], strict=True)
        rows, weights = (np.concatenate(pair) for pair in pairs)
        return type(self)(rows, weights, self.n_rows + more.n_rows, self.n_fitted)

    @property
    def most(self):
        """The number of rows that are kept."""
        return min(MOST_KEPT, rows_in_memory(self.rows.shape[1]) // _PART_KEPT)

    @property
    def is_due(self):
        """Whether the fit is to be repeated."""
        return 2 * self.n_fitted <= self.n_rows <= self.most

    def refitted(self, estimator, **fit_params):
        """Repeat the fit of an estimator, and return what it keeps."""
        estimator._fitted_ends = ends_of(self.rows)
        estimator.fit(Encoded(self.rows, estimator), **fit_params)
        return self._replace(n_fitted=self.n_rows)

    def stored(self):
        """Return a plain tuple of copies, which skops can store."""
        return self.rows.copy(), self.weights.copy(), self.n_rows, self.n_fitted


def widened(estimator, X):
    """Extend the ranges of the columns, and their repeated values, to new cells.

    Returns
    -------
    found : PossibleValues
    ends : ndarray of shape (2, n_features)
        Smallest and largest observed cells.

    Raises
    ------
    ValueError
        If new cells are outside the user's bounds.
    """
    known, old = PossibleValues(*estimator._possible), estimator._fitted_ends
    new = ends_of(X)
    ends = np.stack([np.fmin(old[0], new[0]), np.fmax(old[1], new[1])])
    return known.extended(estimator, X, old, ends), ends


def widen(estimator, X):
    """Set the ranges that `widened` returns."""
    found, estimator._fitted_ends = widened(estimator, X)
    estimator._set_possible(found)
