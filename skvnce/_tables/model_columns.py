"""Which columns of a table a model uses, and the weights of its rows."""

from collections.abc import Sequence
from typing import NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import _check_sample_weight

from skvnce._core.warnings import warn_user
from skvnce._tables.cells import is_frame, is_missing, item
from skvnce._tables.frames import nullable_type, readable, with_cells
from skvnce._tables.output import replace_cells
from skvnce._tables.schema import Schema
from skvnce._tables.values import NO_LIMITS, Limits, constant_columns, lower_median

# ----------------------------------------
# Weights of rows: frequencies, of which a row of weight k is k equal rows.

_MOST_OFF = 1.5  # ratio of the mean to 1: scales of draws are then off by 22 %
_MOST_COPIES = 100  # mean of counts, of tables of equal rows, that is not remarkable
_RANGE = 1e-15, 1e12  # of a weight that is not 0: float64 has 16 digits
_FEWEST = 0.01  # rows that all weights count as; draws know nothing then
_BY_MEAN = "sample_weight / numpy.mean(sample_weight)"

_SHAPE = 8.0  # Gamma shape of row weights: an eighth of the variance of the bootstrap
_LEAST = 1e-9  # least random weight, as a share of the weight: draws may underflow


def checked_weights(sample_weight: object, X: np.ndarray) -> np.ndarray:
    """Check the weights of the rows of a table; None means 1 for each row."""
    if sample_weight is not None:
        sample_weight = readable(sample_weight, "sample_weight")
    of_rows = {"dtype": np.float64, "ensure_non_negative": True}
    weights = _check_sample_weight(sample_weight, X, **of_rows)
    least, most = _RANGE
    beyond = (weights > most) | ((weights > 0) & (weights < least))
    if beyond.any():
        row = int(beyond.argmax())
        raise ValueError(
            f"sample_weight has {weights[row]:.4g} in row {row}. A weight must be 0, "
            f"or between {least:g} and {most:g}. Set negligible weights to 0, and "
            f"divide sampling weights by their mean: {_BY_MEAN}."
        )
    return weights


def check_scale(weights: np.ndarray, n_rows: int) -> None:
    """Check the sum of weights, and warn if they seem to need normalisation.

    Counts are whole numbers. Other weights have a mean near 1 if they are
    normalised; rows of weight 0 may have been counted then: `n_rows` is with these.
    """
    counted = weights[weights > 0]
    if not len(counted):
        return
    if counted.sum() < _FEWEST:
        raise ValueError(
            f"sample_weight adds up to {counted.sum():.4g}. A row of weight k counts "
            f"as k equal rows, and all together must count as {_FEWEST} rows. Divide "
            f"sampling weights by their mean: {_BY_MEAN}."
        )
    means = counted.mean(), counted.sum() / n_rows
    if (counted == np.round(counted)).all():
        unlikely = means[0] > _MOST_COPIES
    else:
        unlikely = all(not 1 / _MOST_OFF <= mean <= _MOST_OFF for mean in means)
    if unlikely:
        total = f"{weights.sum():,.{0 if weights.sum() >= 10 else 2}f}"
        warn_user(
            f"sample_weight has a mean of {means[0]:.4g}. A row of weight k counts as "
            f"k equal rows, so that the fit is that of a table of {total} rows, not of "
            f"{len(counted):,}, and draws of the parameters vary as for that. Divide "
            f"sampling weights by their mean: {_BY_MEAN}."
        )


def random_weights(
    rng: np.random.Generator, n: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """Draw the weights of n rows for one of several members.

    That of a row that counts k times is distributed as a sum of k weights.  Shape 1 is
    the Bayesian bootstrap (Rubin 1981).
    """
    if weights is None:
        return rng.gamma(_SHAPE, size=n)
    return np.maximum(rng.gamma(_SHAPE * weights), _LEAST * weights)


def weighted_rows(
    X: np.ndarray, sample_weight: object
) -> tuple[np.ndarray, np.ndarray | None]:
    """Check weights; return the rows of positive weight, and their weights or None."""
    if sample_weight is None:
        return X, None
    weights, _ = rows_with_data(X, sample_weight)
    check_scale(weights, len(X))
    positive = weights > 0
    return X[positive], weights[positive]


def rows_with_data(
    X: np.ndarray, sample_weight: object, informative: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Check weights, and select rows of positive weight with a known cell; bool."""
    weights = checked_weights(sample_weight, X)
    informative = ~np.isnan(X) if informative is None else informative
    rows = (weights > 0) & informative.any(1)
    if not rows.any():
        raise ValueError("No row of X has an observed cell and a positive weight.")
    return weights, rows


# ----------------------------------------
# Cells of data frames that move to other rows, and keep their data types.


def nullable(series: nw.Series) -> nw.Series:
    """Convert a column to a data type that holds missing cells."""
    if not series.implementation.is_pandas():
        return series
    native = series.to_native()
    name = nullable_type(native.dtype)
    native = native if name is None else native.astype(name)
    return nw.from_native(native, series_only=True)


def take_rows(series: nw.Series, rows: np.ndarray) -> nw.Series:
    """Take cells of a column by their rows (n,); -1 gives a missing cell."""
    is_absent = rows < 0
    series = nullable(series) if is_absent.any() else series
    if series.implementation.is_pandas():
        native = series.to_native()
        cells = native.array.take(rows, allow_fill=bool(is_absent.any()))
        new = type(native)(cells, name=native.name, dtype=native.dtype)
        return nw.from_native(new, series_only=True)
    cells_of_rows = series[np.maximum(rows, 0).tolist()]
    nothing = [None] * int(is_absent.sum())
    return with_cells(cells_of_rows, np.flatnonzero(is_absent), nothing)


def filled_cells(
    series: nw.Series,  # (n_samples,)
    columns: Sequence[list],
    rows: np.ndarray,
    which: np.ndarray,
) -> nw.Series:
    """Fill the missing cells of a column by the cells at rows and columns of others."""
    dtype, places, values = series.dtype, [], []
    missing = [is_missing(cell) for cell in series.to_list()]
    for place in np.flatnonzero(missing).tolist():
        value = item(columns[which[place]][rows[place]])
        if not is_missing(value):
            places.append(place)
            values.append(_fitting(value, dtype))
    try:
        return replace_cells(series, places, values) if places else series
    except Exception as error:  # polars has errors of its own
        raise TypeError(
            f"filled has cells that column {series.name!r} of type {dtype} cannot hold "
            f"({error}); convert them to that type"
        ) from error


def _fitting(value: object, dtype: nw.dtypes.DType) -> object:
    """Convert a number for a column of integers, booleans or short floats."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if dtype.is_integer():
        return round(value)
    if dtype == nw.Boolean:
        return value >= 0.5
    # pandas would otherwise change the data type
    return float(np.float32(value)) if dtype == nw.Float32 else value


def as_before(series: nw.Series, before: nw.Series) -> nw.Series:
    """Convert a column to its former data type if that holds its cells."""
    if not series.implementation.is_pandas():
        return series
    native, dtype = series.to_native(), before.to_native().dtype
    if native.dtype == dtype or not isinstance(dtype, np.dtype) or native.isna().any():
        return series
    return nw.from_native(native.astype(dtype), series_only=True)


def floats(name: str, values: np.ndarray, frame: nw.DataFrame) -> nw.Series:
    """Make a column of floats, missing where they are NaN."""
    cells = [None if np.isnan(value) else value for value in values.tolist()]
    return nw.new_series(name, cells, nw.Float64, backend=frame.implementation)


def assigned(frame: nw.DataFrame, columns: Sequence[nw.Series]) -> nw.DataFrame:
    """Return a frame with columns added or replaced."""
    if frame.implementation.is_pandas():
        index = frame.to_native().index
        natives = [series.to_native().set_axis(index) for series in columns]
        columns = [nw.from_native(series, series_only=True) for series in natives]
    return frame.with_columns(*columns)


def reset_index(frame: nw.DataFrame) -> nw.DataFrame:
    """Return a frame of pandas with an index of numbers; others as they are."""
    if not frame.implementation.is_pandas():
        return frame
    return nw.from_native(frame.to_native().reset_index(drop=True), eager_only=True)


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
    limits: Limits = NO_LIMITS  # of `nodes`
    # (n,), the numbers of the groups of the rows of `nodes`
    groups: np.ndarray | None = None


def observed_columns(schema: Schema, X: np.ndarray) -> np.ndarray:
    """Return the indices of columns that are neither empty nor passed through."""
    observed = ~np.isnan(X).all(0)
    observed[schema.passed] = False
    return np.flatnonzero(observed)


def without_dropped(schema: Schema, X: ArrayLike) -> ArrayLike:
    """Empty columns of new rows that `fit` dropped without knowing what they hold."""
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
    """Move constant columns from the model to `constants`, and warn.

    `impossible`: what is impossible if no column is left, which is then an error.
    """
    nodes = X[:, schema.model_columns].astype(np.float64)
    constant = constant_columns(nodes)
    places = schema.model_columns[constant].tolist()
    values = list(map(lower_median, nodes.T[constant]))
    if schema.columns:
        pairs = zip(places, values, strict=True)
        values = [schema.columns[place].level(code) for place, code in pairs]
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
