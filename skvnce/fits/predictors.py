"""Which columns the model of a column sees."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from skvnce.tables.schema import Schema

_LEAST = 0.1  # absolute correlation (van Buuren, Boshuizen and Knook 1999)
_FEWEST = 3  # rows from which a correlation is computed


def predictors_of(
    asked: Mapping | ArrayLike | str | None,  # (n_features, n_features)
    schema: Schema,
    nodes: np.ndarray,  # (n, n_nodes)
    nominal: Sequence[bool],  # length n_nodes
) -> np.ndarray:  # (n_nodes, n_nodes), bool
    """Convert what the user asks for to a matrix.

    `nominal`: which columns have categories without an order. Result: whether the model
    of the column of a row sees another column. Raises ValueError if columns are
    unknown, or a matrix has a wrong shape. Raises TypeError if a value of a dict is no
    list.
    """
    columns = schema.model_columns
    if isinstance(asked, str):
        found = associated(nodes, nominal)
    else:
        found = matrix_of(asked, schema)[np.ix_(columns, columns)]
    np.fill_diagonal(found, val=False)
    return found


def matrix_of(asked: Mapping | ArrayLike | str | None, schema: Schema) -> np.ndarray:
    """Convert what is known without the cells to a matrix of all columns.

    Parameters and errors are those of `predictors_of`.  Result: (n_features,
    n_features), bool; all are True with "auto".
    """
    expected = schema.n_columns, schema.n_columns
    found = np.ones(expected, dtype=bool)
    if isinstance(asked, Mapping):
        for key, others in asked.items():
            own = schema.index_of(key, "predictors")
            if others is None:
                continue
            if isinstance(others, str) or not isinstance(others, Iterable):
                raise TypeError(
                    f"predictors[{key!r}] must be a list of columns or None, got "
                    f"{others!r}."
                )
            places = [schema.index_of(one, f"predictors[{key!r}]") for one in others]
            found[own] = np.isin(np.arange(schema.n_columns), places)
    elif asked is not None and not isinstance(asked, str):
        table = _table_of(_in_order(asked, schema))
        if table.shape != expected or not np.isin(table, [0, 1]).all():
            raise ValueError(
                f"predictors must be a matrix of zeros and ones of shape {expected}, "
                f"got one of shape {table.shape} and type {table.dtype}."
            )
        found = table.astype(bool)
    return found


def _table_of(asked):
    try:
        return np.asarray(asked)
    except ValueError as error:
        raise ValueError(
            "predictors is no matrix: its rows have different lengths. Pass a row of "
            "equal length for each column."
        ) from error


def _in_order(asked, schema):
    """Sort the rows and columns of a data frame as those of X."""
    if not (hasattr(asked, "columns") and hasattr(asked, "index")):
        return asked
    names = list(schema.all_names)
    if sorted(map(str, asked.columns)) != sorted(map(str, names)) or sorted(
        map(str, asked.index)
    ) != sorted(map(str, names)):
        raise ValueError(
            "predictors is a data frame whose index and columns are not the columns of "
            f"X: {', '.join(map(str, names))}. Pass an array for their order."
        )
    return asked.loc[names, names]


def associated(nodes: np.ndarray, nominal: Sequence[bool]) -> np.ndarray:
    """Find the columns that are correlated with a column, or with its being observed.

    The correlation of a nominal column is the largest one of its indicators.  `nodes`:
    (n, n_nodes), NaN marks missing cells.  `nominal`: length n_nodes.  Result:
    (n_nodes, n_nodes), bool.
    """
    wide, owner = [], []
    for j, (column, has_levels) in enumerate(zip(nodes.T, nominal, strict=True)):
        levels = np.unique(column[~np.isnan(column)]) if has_levels else [None]
        for level in levels:
            own = column if level is None else np.where(column == level, 1.0, 0.0)
            wide.append(np.where(np.isnan(column), np.nan, own))
            owner.append(j)
    wide, seen = np.stack(wide, 1), (~np.isnan(nodes)).astype(float)
    strength = np.zeros((nodes.shape[1], nodes.shape[1]))
    np.maximum.at(strength, np.ix_(owner, owner), _correlations(wide, wide))
    everyone = np.arange(nodes.shape[1])
    np.maximum.at(strength, np.ix_(everyone, owner), _correlations(seen, wide))
    return strength >= _LEAST


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
