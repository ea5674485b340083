"""What the user states about single cells of a table.

A table of X's shape, or masks and numbers of some of its columns by name.
"""

import numpy as np

from skvnce._cells import is_frame
from skvnce.estimators._validation import column_name, column_of_key


def mask_of(estimator, where, X, checked):
    """Check the parameter `where`, and convert it.

    Parameters
    ----------
    estimator : IncompleteTransformer
    where : array-like of bool of shape (n_samples, n_features), dict or None
    X : array-like of shape (n_samples, n_features)
    checked : ndarray of shape (n_samples, n_features)
        As `incomplete_array` has returned it.

    Returns
    -------
    ndarray of bool, of shape (n_samples, n_features), or None
    """
    if where is None:
        return None
    found = np.ones(checked.shape, dtype=bool)
    for place, cells in columns_given(estimator, where, X, len(checked), "where"):
        if not all(isinstance(one, bool | np.bool_) for one in cells.tolist()):
            raise TypeError(
                "where must have True and False only, but has other values in "
                f"{column_name(estimator, place)}."
            )
        found[:, place] = cells
    return found


def columns_given(estimator, given, X, n_samples, name):
    """Yield the columns that a parameter gives, and their values for each row.

    Parameters
    ----------
    estimator : IncompleteTransformer
    given : array-like of shape (n_samples, n_features), data frame or dict
        A data frame and a dict may leave out columns.
    X : array-like of shape (n_samples, n_features)
        Its index must be that of a pandas object in `given`.
    n_samples : int
    name : str
        Of the parameter.

    Yields
    ------
    place : int
        Index of the column.
    cells : ndarray of shape (n_samples,)
    """
    if not isinstance(given, dict) and not is_frame(given):
        table, wanted = np.asarray(given), (n_samples, estimator.n_features_in_)
        if table.shape != wanted:
            raise ValueError(
                f"{name} must have the shape of X, {wanted}, or be a dict by column, "
                f"got shape {table.shape}."
            )
        yield from enumerate(table.T)
        return
    names = given if isinstance(given, dict) else given.columns
    _check_index(given, X, name)
    for key in names:
        place = column_of_key(estimator, key, name)
        _check_index(given[key], X, name)
        cells = np.asarray(given[key])
        if cells.shape != (n_samples,):
            raise ValueError(
                f"{name}[{key!r}] must have a value for each of the {n_samples} rows, "
                f"got shape {cells.shape}."
            )
        yield place, cells


def _check_index(given, X, name):
    """Raise an error if rows of pandas objects would be matched wrongly."""
    one, other = (getattr(part, "index", None) for part in (X, given))
    if hasattr(one, "equals") and hasattr(other, "equals") and not one.equals(other):
        raise ValueError(
            f"{name} has another index than X. Reindex it by {name}.reindex(X.index)."
        )
