"""Tables whose missing cells a fitted model fills or draws: the same for all models."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from skvnce._progress import step
from skvnce._warnings import warn_user
from skvnce.fitted.base import CellModel, in_turn, n_chains
from skvnce.tables.cell_limits import CellLimits, clip_to_limits, select_limits
from skvnce.tables.schema import Schema

# 32 MiB of float64
_CHUNK = 2**22  # maximum number of cells, over all chains, in a chunk of rows
_MANY = 0.05  # share of draws that are cut, from which on there is a warning
_FEW = 5  # draws that are cut, up to which there is none


class Predicted(NamedTuple):
    """Predictions of the missing cells of a table."""

    # (n_samples, n_features_in_), the table, with codes of categories, and its missing
    # cells filled
    filled: np.ndarray
    # (n_samples, n_categories), those of the categories of each column that has some; 1
    # and 0 in observed cells
    probabilities: dict


def fill(
    schema: Schema, model: CellModel, X: np.ndarray, limits: CellLimits | None = None
) -> Predicted:
    """Fill the missing cells of a table by predictions.

    `X` (n_samples, n_features_in_); `limits`: of the missing cells of X.
    """
    filled, found = with_constants(schema, X), certain(schema, X)
    for (rows, columns), nodes in incomplete_chunks(schema, X, n_chains(model)):
        ends = select_limits(limits, rows[:, 0], columns[0])
        missing = np.isnan(nodes)  # before, as a model may fill in place
        cells, probabilities = model.fill(nodes, ends)
        _check_complete(schema, columns[0], cells)
        filled[rows, columns] = _converted(schema, model, nodes, cells, X.dtype)
        for node, own in probabilities.items():
            some = missing[:, node]
            found[columns[0, node]][rows[some, 0]] = own[some]
    return Predicted(clip_to_limits(limits, filled), found)


def draw(
    schema: Schema,
    models: Sequence[CellModel],  # each is used equally often, in random order
    X: np.ndarray,  # (n_samples, n_features_in_)
    n_draws: int,
    limits: CellLimits | None = None,  # of the missing cells of X
) -> np.ndarray:
    """Draw the missing cells of a table, with torch's global stream.

    Returns (n_draws, n_samples, n_features_out).
    """
    filled = np.repeat(with_constants(schema, X)[None], n_draws, 0)
    turns = in_turn(len(models), n_draws)
    chains = n_chains(models[0], n_draws)
    for (rows, columns), nodes in incomplete_chunks(schema, X, chains):
        ends = select_limits(limits, rows[:, 0], columns[0])
        for turn in np.unique(turns):
            places = np.flatnonzero(turns == turn)
            cells = models[turn].draw(nodes, len(places), ends)
            _check_complete(schema, columns[0], cells)
            where = np.ix_(places, rows[:, 0], columns[0])
            filled[where] = _converted(schema, models[turn], nodes, cells, X.dtype)
    return returned(schema, clip_to_limits(limits, filled), X)


def score(
    schema: Schema,
    model: CellModel | None,
    X: np.ndarray,
    *,
    with_errors: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute log-densities of rows, and standard errors; each (n_samples,).

    Without a model, as all columns are constant, both are 0.
    """
    scores, errors = np.zeros((2, len(X)))
    if model is not None:
        for (rows, _), nodes in chunks(schema, X, n_chains(model)):
            found = model.log_density(nodes, with_errors=with_errors)
            scores[rows[:, 0]], errors[rows[:, 0]] = found
    return scores, errors


def _converted(
    schema: Schema, model: CellModel, nodes: np.ndarray, cells: np.ndarray, dtype: type
) -> np.ndarray:
    """Convert cells (..., n, n_node_columns) of rows to valid ones of a data type."""
    cells = schema.values.converted(cells, schema.node_columns, dtype)
    if schema.group is None:
        return cells
    # what other rows of a group say, even if it is beyond all rows of the fit
    known = model.determined(nodes)
    return np.where(np.isnan(known), cells, known)


def warn_of_zeros(schema: Schema, X: np.ndarray, drawn: np.ndarray) -> None:
    """Warn of positive columns of which many draws are negative, and so set to 0.

    `X` (n_samples, n_features): NaN marks missing cells; `drawn` (n_draws, n_samples,
    n_returned).
    """
    places = {int(j): place for place, j in enumerate(schema.returned)}
    valid, least = schema.values, np.abs(schema.ends).min(0)
    # on a grid zeros are the next value, and not only what is beyond
    free = ~valid.codes & ~valid.integers & (valid.grid == 0) & (least > 0)
    for j in schema.model_columns[free[schema.model_columns]]:
        side = int(valid.high[j] == 0)
        gone = np.isnan(X[:, j])
        if valid.given[side, j] or valid.ranges[side, j] != 0 or not gone.any():
            continue
        zeros = drawn[:, gone, places[int(j)]] == 0
        share = zeros.mean()
        if share > _MANY and zeros.sum() > _FEW:
            sign, other = ("negative", "positive")[:: 1 - 2 * side]
            name = ("min_value", "max_value")[side]
            warn_user(
                f"{share:.0%} of the draws of {schema.label(j)} would be {sign} and "
                f"are set to 0, as all observed cells are {other}. Take logarithms of "
                f"the column, or pass {name} if it can be {sign}."
            )


def _check_complete(schema: Schema, columns: np.ndarray, cells: np.ndarray) -> None:
    """Reject cells (..., n_model_columns) that a model leaves missing."""
    lacking = np.isnan(cells).any(tuple(range(cells.ndim - 1)))
    if lacking.any():
        names = schema.labels(columns[lacking], 5)
        raise ValueError(
            f"The fitted model returns NaN for {names}. If it is your own, let its "
            "fill and draw return a number for each cell."
        )


def with_constants(schema: Schema, X: np.ndarray) -> np.ndarray:
    """Fill missing cells of constant columns, and those of others by a valid value."""
    values = np.clip(np.zeros(X.shape[1]), *schema.values.ranges)
    values[list(schema.constants)] = schema.constant_cells
    return np.where(np.isnan(X), values.astype(X.dtype), X)


def certain(schema: Schema, X: np.ndarray) -> dict:
    """Return the probabilities of `Predicted` where cells are observed or constant.

    Columns that were entirely missing at `fit` have none.
    """
    if not schema.columns:
        return {}
    never, cells = np.isnan(schema.ends).all(0), with_constants(schema, X)
    return {
        place: np.eye(len(column.levels))[np.nan_to_num(cells[:, place]).astype(int)]
        for place, column in enumerate(schema.columns)
        if column.levels and not never[place]
    }


def returned(schema: Schema, filled: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Restore observed cells (..., n_samples, n_features), and select what is returned.

    Empty columns are kept or dropped; `filled` has values for them.
    """
    filled = np.where(np.isnan(X), filled, X)
    kept = schema.returned
    if len(kept) > len(schema.model_columns):  # all of which are kept
        empty = np.setdiff1d(kept, schema.model_columns)
        filled[..., empty] = np.nan_to_num(filled[..., empty])
    return filled[..., kept]


def chunks(schema: Schema, X: np.ndarray, n_chains: int = 1) -> Iterator:
    """Yield the indices and float64 values of the model's cells, in chunks of rows."""
    yield from _chunks(schema, X, np.arange(len(X)), n_chains, "scoring rows")


def incomplete_chunks(schema: Schema, X: np.ndarray, n_chains: int = 1) -> Iterator:
    """Yield chunks of the rows that have a missing cell of the model."""
    rows = np.flatnonzero(np.isnan(X[:, schema.model_columns]).any(1))
    yield from _chunks(schema, X, rows, n_chains, "filling rows")


def _chunks(
    schema: Schema, X: np.ndarray, rows: np.ndarray, n_chains: int, work: str
) -> Iterator:
    columns = schema.node_columns
    if not len(schema.model_columns):
        return
    parts = split(schema, X, max(1, _CHUNK // (len(columns) * n_chains)), rows)
    end, total = 0, sum(map(len, parts))
    for some in parts:
        end += len(some)
        with step(work, end, total, is_brief=True):
            cells = np.ix_(some, columns)
            yield cells, X[cells].astype(np.float64)


def split(
    schema: Schema, X: np.ndarray, size: int, rows: np.ndarray
) -> list[np.ndarray]:
    """Split rows into parts of a size; with the other rows of groups, which are whole.

    `X` (n_samples, n_features_in_); `rows`, int.
    """
    has_groups = schema.group is not None
    rows = rows_of_groups(schema, X, rows) if has_groups else rows
    ends = np.arange(size, len(rows) + size, size).clip(max=len(rows))
    if has_groups:
        numbers = X[rows, schema.group]
        ends = np.unique(np.searchsorted(numbers, numbers[ends - 1], side="right"))
    return [rows[first:end] for first, end in pairwise([0, *ends])]


def rows_of_groups(schema: Schema, X: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Find all rows of the groups of some rows, sorted by group."""
    numbers = X[:, schema.group]
    found = np.flatnonzero(np.isin(numbers, numbers[rows]))
    return found[numbers[found].argsort(kind="stable")]


def with_groups(
    schema: Schema,
    X: np.ndarray,
    rows: np.ndarray | slice,
    limits: CellLimits | None,
) -> tuple[np.ndarray, CellLimits | None, np.ndarray | slice]:
    """Select rows, the others of their groups, and their limits.

    The last result are the places of the rows.
    """
    places = slice(None)
    if schema.group is not None and not isinstance(rows, slice):
        found = np.sort(rows_of_groups(schema, X, rows))
        rows, places = found, np.searchsorted(found, rows)
    return X[rows], select_limits(limits, rows), places


def nodes_of(schema: Schema, X: np.ndarray) -> np.ndarray:
    """Return the model's cells of rows, float64."""
    return X[:, schema.node_columns].astype(np.float64)
