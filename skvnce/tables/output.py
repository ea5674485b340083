"""Filled tables in the container and the data types of the input."""

import datetime as dt
import numbers

import narwhals as nw
import numpy as np

from skvnce.tables.cells import is_frame
from skvnce.tables.completed import as_objects, decoded, in_frames
from skvnce.tables.frames import nullable_type
from skvnce.tables.missing_values import with_marker, without_marker

_LEVELS = (str, numbers.Real, dt.date, dt.timedelta)  # types that polars holds


def as_given(schema, adapter, table, missing, X, indicators=None, names=None):
    """Return filled rows in the container that a user has asked for.

    `adapter` container adapter of scikit-learn, or None: by `set_output` of the
    estimator; `table` (n_samples, n_features_out): codes and numbers, NaN in cells that
    stay missing; `missing` bool (n_samples, n_features_in_): the cells that were
    missing; `X` (n_samples, n_features_in_): the input, whose observed cells, data
    types and index are kept; `indicators` (n_samples, n_indicators): columns that are
    appended; `names` (n_indicators,): theirs. Returns ndarray or data frame: without
    `set_output` an array: of floats if all values are numbers, and else of objects. A
    data frame has the data types of X if it is a data frame.
    """
    [found] = tables_as_given(schema, adapter, table[None], missing, X)
    if indicators is None:
        return found
    if adapter is None:
        return _appended(found, indicators)
    new = adapter.create_container(indicators, found, names)
    return adapter.hstack([found, new])


def tables_as_given(schema, adapter, tables, missing, X):
    """Return several filled tables (n_tables, n_samples, n_features_out) of X.

    Parameters and the tables of the list that is returned are those of `as_given`.
    """
    kept, columns, given = schema.returned, schema.columns, X
    X = without_marker(X, schema.marker)
    library = None if adapter is None else adapter.container_lib
    frame = _frame(X, library, columns)
    if frame is not None:
        ends = schema.ends[:, kept]
        found = in_frames(frame, columns, kept, tables, missing[:, kept], ends)
        if _library(frame) != library:  # without missing cells, data types are kept
            found = [nw.from_native(one).to_pandas() for one in found]
        elif (library, _library(X)) == ("pandas", "pyarrow"):
            found = list(map(_without_nulls, found))
    else:
        found = list(_values_of(schema, tables, missing, X))
    if adapter is not None:
        names = schema.all_names[kept]
        found = [_created(adapter, table, X, names) for table in found]
    return [with_marker(table, schema.marker, given) for table in found]


def values_of(schema, tables, missing, X):
    """Return several filled tables as an array; parameters as of `tables_as_given`."""
    found = _values_of(schema, tables, missing, without_marker(X, schema.marker))
    return with_marker(found, schema.marker)


def _values_of(schema, tables, missing, X):
    columns = schema.columns
    if not columns:
        return tables
    kept = schema.returned
    found = as_objects(X, columns, kept, tables, missing[:, kept])
    is_single = found.dtype != object and getattr(X, "dtype", None) == np.float32
    return found.astype(np.float32) if is_single else found


def emptied(schema, tables, missing, where):
    """Empty the missing cells of tables that are not to be filled.

    `tables` (..., n_samples, n_features_out): completed; `missing` bool (n_samples,
    n_features_in_); `where` bool (n_samples, n_features_in_): None fills all missing
    cells. It may have the dimensions of `tables`. Returns `tables` (..., n_samples,
    n_features_out); `filled` ndarray of bool, of the shape of `where`: the cells that
    `tables` fill.
    """
    if where is None:
        return tables, missing
    empty = (missing & ~where)[..., schema.returned]
    return np.where(empty, np.nan, tables), missing & where


def samples_of(schema, tables, missing, where, X):
    """Return completed tables (n_tables, n_samples, n_features_out) as an array.

    Other parameters are those of `emptied` and of `tables_as_given`.
    """
    tables, filled = emptied(schema, tables, missing, where)
    if filled.ndim == 2:
        return values_of(schema, tables, filled, X)
    pairs = zip(tables[:, None], filled, strict=True)  # one has its own cells each
    return np.array([values_of(schema, one, own, X)[0] for one, own in pairs])


def samples_as_given(schema, adapter, tables, missing, where, X):
    """Return completed tables (n_tables, n_samples, n_features_out) as a list.

    Other parameters are those of `emptied` and of `tables_as_given`.
    """
    tables, filled = emptied(schema, tables, missing, where)
    if filled.ndim == 2:
        return tables_as_given(schema, adapter, tables, filled, X)
    pairs = zip(tables[:, None], filled, strict=True)
    return [tables_as_given(schema, adapter, one, own, X)[0] for one, own in pairs]


def new_rows(schema, rows):
    """Return rows (n, n_features) of codes and numbers that are those of no table.

    Missing cells get the marker.
    """
    found = decoded(schema.columns, rows) if schema.columns else rows
    return with_marker(found, schema.marker)


def probabilities_as_given(schema, found, X):
    """Name probabilities of levels, in data frames if X is one.

    `found` dict of arrays (n_samples, n_levels) by the index of the column; `X`
    (n_samples, n_features). Returns dict of str to data frame or ndarray.
    """
    columns, names = schema.columns, schema.keys
    frame = nw.from_native(X, eager_only=True) if is_frame(X) else None
    result = {}
    for place, table in found.items():
        if frame is not None:
            levels = [str(level) for level in columns[place].levels]
            cells = dict(zip(levels, table.T, strict=True))
            table = nw.from_dict(cells, backend=frame.implementation).to_native()
            if frame.implementation.is_pandas():
                table = table.set_axis(X.index).set_axis(columns[place].levels, axis=1)
        result[names[place] if names else place] = table
    return result


def _appended(table, indicators):
    return np.hstack([table, indicators.astype(table.dtype)])


def _frame(X, library, columns):
    """Return a data frame to fill, or None if X has no data types to keep.

    It is one of the library, or of polars, whose integers and booleans hold nulls.
    """
    if library is None or not is_frame(X):
        return None
    if _library(X) == library or (columns and _library(X) == "polars"):
        return X
    if not columns:
        return None
    frame = nw.from_native(X, eager_only=True)
    if library == "pandas":
        return _of_arrow(X) if _library(X) == "pyarrow" else frame.to_pandas()
    for name, column in zip(frame.columns, columns, strict=True):
        unfit = [one for one in column.levels or () if not isinstance(one, _LEVELS)]
        if unfit:
            raise TypeError(
                f"Column {name!r} has the level {unfit[0]!r}, which polars does not "
                'hold. Convert the levels to text, or set_output(transform="pandas").'
            )
    return frame.to_polars()


def _of_arrow(X):
    """Convert a table of pyarrow to pandas: integers and booleans hold nulls there."""
    import pandas as pd
    import pyarrow as pa

    names = [
        "bool",
        *(f"{kind}{2**k}" for kind in ("int", "uint") for k in range(3, 7)),
    ]
    kinds = {
        pa.type_for_alias(name): pd.api.types.pandas_dtype(
            nullable_type(np.dtype(name))
        )
        for name in names
    }
    return X.to_pandas(types_mapper=kinds.get)


def _without_nulls(table):
    """Give completed columns of pandas the data types of numpy."""
    kinds = {
        name: column.dtype.numpy_dtype
        for name, column in table.items()
        if hasattr(column.dtype, "numpy_dtype") and not column.isna().any()
    }
    return table.astype(kinds)


def _library(frame):
    return str(nw.from_native(frame, eager_only=True).implementation)


def _created(adapter, table, X, names):
    """Create a data frame with names from a table."""
    if isinstance(table, np.ndarray) and table.dtype == object:
        cells = {name: table[:, place].tolist() for place, name in enumerate(names)}
        return nw.from_dict(cells, backend=adapter.container_lib).to_native()
    return adapter.create_container(table, X, names)
