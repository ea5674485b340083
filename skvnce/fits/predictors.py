"""Which columns the model of a column sees."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from skvnce.tables.schema import Schema

_LEAST = 0.1  # absolute correlation (van Buuren, Boshuizen and Knook 1999)
_FEWEST = 3  # rows from which a correlation is computed


def predictors_of(
    asked: Mapping | ArrayLike | str | None, schema: Schema, nodes: np.ndarray
) -> np.ndarray:
    """Convert what the user asks for to a matrix.

    Parameters
    ----------
    asked : dict, array-like of shape (n_features, n_features), "auto" or None
    schema : Schema
    nodes : ndarray of shape (n, n_nodes)

    Returns
    -------
    ndarray of bool, of shape (n_nodes, n_nodes)
        Whether the model of the column of a row sees another column.

    Raises
    ------
    ValueError
        If columns are unknown, or a matrix has a wrong shape.
    """
    columns = schema.model_columns
    found = np.ones((len(columns), len(columns)), dtype=bool)
    if isinstance(asked, str):
        found = associated(nodes)
    elif isinstance(asked, Mapping):
        for key, others in asked.items():
            own = columns == schema.index_of(key, "predictors")
            places = [schema.index_of(one, f"predictors[{key!r}]") for one in others]
            found[own] = np.isin(columns, places)
    elif asked is not None:
        table = np.asarray(asked)
        expected = (schema.n_columns, schema.n_columns)
        if table.shape != expected or not np.isin(table, [0, 1]).all():
            raise ValueError(
                f"predictors must be a matrix of zeros and ones of shape {expected}, "
                f"got one of shape {table.shape} and type {table.dtype}."
            )
        found = table.astype(bool)[np.ix_(columns, columns)]
    np.fill_diagonal(found, val=False)
    return found


def associated(nodes: np.ndarray) -> np.ndarray:
    """Find the columns that are correlated with a column, or with its being observed.

    Parameters
    ----------
    nodes : ndarray of shape (n, n_nodes)
        NaN marks missing cells.

    Returns
    -------
    ndarray of bool, of shape (n_nodes, n_nodes)
    """
    seen = ~np.isnan(nodes)
    of_cells = _correlations(nodes, nodes)
    of_seen = _correlations(seen.astype(float), nodes)
    return np.maximum(of_cells, of_seen) >= _LEAST


def _correlations(targets, others):
    """Compute absolute correlations of columns, by the rows that observe both."""
    found = np.zeros((targets.shape[1], others.shape[1]))
    for j, target in enumerate(targets.T):
        for k, other in enumerate(others.T):
            both = ~np.isnan(target) & ~np.isnan(other)
            x, y = target[both], other[both]
            if len(x) >= _FEWEST and np.ptp(x) > 0 and np.ptp(y) > 0:
                found[j, k] = abs(np.corrcoef(x, y)[0, 1])
    return found
