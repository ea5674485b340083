"""Rows of a stream that are kept, and the repeated fits of `partial_fit`.

A few rows do not show which marginals, how much shrinkage, or how many rounds are best.
So the first rows of a stream are kept, and the fit is repeated with all rows so far
when their number has doubled.  Beyond `MOST_KEPT` rows the choices are final.
"""

from typing import NamedTuple, Self

import numpy as np

from skvnce.estimators._tables import rows_with_data
from skvnce.estimators._validation import Encoded
from skvnce.sources.summary import rows_in_memory
from skvnce.tables.statistics import ends_of

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
    n_fitted : int or None
        That number at the last fit; None if the fit is not to be repeated.
    n_new : int
        Number of the last of the kept rows from which nothing has been learned yet.
    """

    rows: np.ndarray
    weights: np.ndarray
    n_rows: int
    n_fitted: int | None
    n_new: int = 0

    @classmethod
    def of(cls, X, sample_weight=None):
        """Begin with a validated table, after a fit to it."""
        weights, kept = rows_with_data(X, sample_weight)
        return cls(X[kept], weights[kept], len(X), len(X))

    def followed_by(self, more: Self) -> Self:
        """Add new rows."""
        pairs = zip(self[:2], more[:2], strict=True)
        rows, weights = (np.concatenate(pair) for pair in pairs)
        n_rows, n_new = self.n_rows + more.n_rows, self.n_new + len(more.rows)
        return type(self)(rows, weights, n_rows, self.n_fitted, n_new)

    @classmethod
    def after(cls, stored: tuple | None, new: Self) -> Self:
        """Add new rows to what `stored` returned.

        None means that the rows before are not kept, after a call of `fit`.
        """
        if stored is None:
            return new._replace(n_fitted=None, n_new=len(new.rows))
        return cls(*stored).followed_by(new)

    @property
    def most(self):
        """The number of rows that are kept."""
        return min(MOST_KEPT, rows_in_memory(self.rows.shape[1]) // _PART_KEPT)

    @property
    def is_due(self):
        """Whether the fit is to be repeated."""
        known = self.n_fitted is not None
        return known and 2 * self.n_fitted <= self.n_rows <= self.most

    def refitted(self, estimator, **fit_params):
        """Repeat the fit of an estimator, and return what it keeps."""
        schema = estimator._schema._replace(ends=ends_of(self.rows))
        estimator.fit(Encoded(self.rows, schema), **fit_params)
        return self._replace(n_fitted=self.n_rows, n_new=0)

    def learned(self, rng):
        """Keep a random sample of all rows, if there are more than can be kept.

        Its weights are the numbers of rows that each stands for.
        """
        if len(self.rows) <= self.most:
            return self._replace(n_new=0)
        total, n_before = self.weights.sum(), len(self.rows) - self.n_new
        n_old = round(self.most * self.weights[:n_before].sum() / total)
        n_old = min(n_before, max(n_old, self.most - self.n_new))
        old = rng.permutation(n_before)[:n_old]
        new = n_before + rng.permutation(self.n_new)[: self.most - n_old]
        chosen = np.concatenate([old, new])
        weights = np.full(self.most, total / self.most)
        return self._replace(rows=self.rows[chosen], weights=weights, n_new=0)

    def stored(self):
        """Return a plain tuple with copies of the arrays, which skops can store."""
        return self.rows.copy(), self.weights.copy(), *self[2:]


def widened(schema, X):
    """Extend the ranges of the columns, and their repeated values, to new cells.

    Returns
    -------
    found : ValidValues
    ends : ndarray of shape (2, n_features)
        Smallest and largest observed cells.

    Raises
    ------
    ValueError
        If new cells are outside the user's bounds.
    """
    known, old = schema.values, schema.ends
    new = ends_of(X)
    ends = np.stack([np.fmin(old[0], new[0]), np.fmax(old[1], new[1])])
    return known.extended(schema, X, old, ends), ends
