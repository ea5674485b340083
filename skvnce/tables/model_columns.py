"""Which columns of a table a model uses: neither empty nor constant ones."""

from typing import NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

from skvnce._warnings import warn_user
from skvnce.tables.cells import is_frame
from skvnce.tables.moved_cells import assigned, floats
from skvnce.tables.schema import Schema
from skvnce.tables.statistics import constant_columns, lower_median

FILLED_BY_CONSTANT = "their missing cells are filled by the constant"


class Handling(NamedTuple):
    """What an estimator does with columns outside of its model, for messages."""

    empty: str  # with columns that have no observed cell
    constant: str


class ModelCells(NamedTuple):
    """The cells that a model is fitted to."""

    # (n_kept, n_features), the rows that have an observed cell and a positive weight,
    # in the dtype of X
    table: np.ndarray
    # (n, n_nodes), their columns in `feature_indices_`, without rows that are missing
    # there
    nodes: np.ndarray
    weights: np.ndarray  # (n,)
    # (n_nodes,), means and standard deviations of the observed cells of `nodes`
    location: np.ndarray
    scale: np.ndarray  # (n_nodes,)
    counted: np.ndarray  # bool (n_samples,), the rows of positive weight
    limits: tuple | None = None  # CellLimits: of `nodes`
    # (n,), the numbers of the groups of the rows of `nodes`
    groups: np.ndarray | None = None


def observed_columns(schema: Schema, X: np.ndarray) -> np.ndarray:
    """Return the indices of columns that are neither empty nor passed through."""
    seen = ~np.isnan(X).all(0)
    seen[schema.passed] = False
    return np.flatnonzero(seen)


def without_dropped(schema: Schema, X: ArrayLike) -> ArrayLike:
    """Empty the columns of new rows that `fit` has dropped, if they are no numbers.

    Without an observed cell, `fit` could not know what they hold.

    `X` (n_samples, n_features): it is not modified. Returns (n_samples, n_features).
    """
    dropped = np.setdiff1d(np.arange(schema.n_columns), schema.returned)
    if not schema.model_columns.size or not dropped.size:
        return X
    if is_frame(X):
        frame = nw.from_native(X, eager_only=True)
        if len(frame.columns) != schema.n_columns:  # which is an error elsewhere
            return X
        nothing = np.full(len(frame), np.nan)
        names = [frame.columns[place] for place in dropped]
        others = [name for name in names if not frame[name].dtype.is_numeric()]
        new = [floats(name, nothing, frame) for name in others]
        return assigned(frame, new).to_native() if new else X
    is_text = type(X) is np.ndarray and X.dtype.kind in "OUS"
    if not is_text or X.shape[1:] != (schema.n_columns,):
        return X
    cells = X.astype(object)
    cells[:, dropped] = np.nan
    return cells


def warn_of_empty(schema: Schema, X: np.ndarray, handling: Handling) -> None:
    """Warn about columns without an observed cell."""
    empty = np.isnan(X).all(0)
    empty[schema.passed] = False
    if empty.any():
        names = schema.labels(np.flatnonzero(empty))
        warn_user(
            f"Entirely missing: {names}; left out of the model and {handling.empty}."
        )


def without_constants(
    schema: Schema, X: np.ndarray, handling: Handling, impossible: str | None = None
) -> Schema:
    """Move constant columns from `model_columns` to `constants`, and warn.

    `X` (n_samples, n_features): the training rows; `impossible`: what is impossible if
    no column is left, which is then an error.
    """
    nodes = X[:, schema.model_columns].astype(np.float64)
    constant = constant_columns(nodes)
    places = schema.model_columns[constant].tolist()
    values = list(map(lower_median, nodes.T[constant]))
    if schema.columns:
        pairs = zip(places, values, strict=True)
        values = [schema.columns[place].level(one) for place, one in pairs]
    schema = schema._replace(
        constants=dict(zip(places, values, strict=True)),
        model_columns=schema.model_columns[~constant],
    )
    if impossible and not schema.model_columns.size:
        raise ValueError(
            f"All columns of X are constant where they are observed: {impossible}"
        )
    warn_of_constants(schema, X, handling)
    return schema


def warn_of_constants(schema: Schema, X: np.ndarray, handling: Handling) -> None:
    """Warn about columns outside of the model that are constant in these rows."""
    places = np.array(list(schema.constants), dtype=int)
    places = places[constant_columns(X[:, places])]
    if not places.size:
        return
    none = "" if schema.model_columns.size else " No column is left in the model."
    warn_user(
        f"Constant where observed: {schema.labels(places)}. Constant columns are left "
        f"out of the model, and {handling.constant}.{none}"
        + "".join(
            f" {schema.label(j)} varies by less than 1e-13 of its size and counts as "
            "constant. Subtract its mean to learn from it."
            for j in places
            if np.nanmin(X[:, j]) < np.nanmax(X[:, j])
        )
    )
