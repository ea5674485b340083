"""Conversion of containers to tables: masked cells become NaN, others are checked."""

import numbers
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, time, timedelta
from os import PathLike

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike

_EXACT = 2.0**53  # float64 represents all integers up to here
_LONGEST = 80  # maximum length of the text of a cell in an error
_TIME_REMEDY = "Drop dates and durations, or turn them into numbers."
# names, so that neither pandas nor other libraries are imported
_TIME_NAMES = ("Period", "NaTType", "datetime64", "timedelta64")


def readable(X: ArrayLike, name: str = "X", *, sparse: bool = False) -> ArrayLike:
    """Return a table that numpy can convert to float, NaN where it is masked or NA.

    Errors name X by `name`, and say how to convert containers of other cells.
    `sparse`: whether data frames of sparse columns are accepted.
    """
    _reject_containers(X, name)
    _reject_sparse_frames(X, name, accepted=sparse)
    _reject_times(X, name)
    if isinstance(X, list | tuple) and any(
        isinstance(row, np.ma.MaskedArray) for row in X
    ):
        X = np.ma.stack(X)
    return unmasked(X) if isinstance(X, np.ma.MaskedArray) else _without_na(X)


def to_floats(X: ArrayLike, name: str = "X") -> np.ndarray:
    """Convert a table of numbers to a float64 array, NaN where it is missing."""
    cells = readable(X, name)
    if hasattr(cells, "iloc"):  # pandas: only to_numpy makes every pd.NA NaN
        return cells.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(cells, dtype=np.float64)


def check_exact(X: ArrayLike, table: np.ndarray, name: str = "X") -> None:
    """Raise an error if X has integers that the table of floats has rounded."""
    # what floats have rounded was lost before
    if getattr(getattr(X, "dtype", None), "kind", "") == "f":
        return
    # only these cells can be rounded, and few are compared
    large = np.isfinite(table) & (abs(table) >= _EXACT)
    for column in np.flatnonzero(large.any(0)):
        rows = np.flatnonzero(large[:, column])
        cells = _values(_column(X, column))[rows]
        for row, value in zip(rows, cells, strict=True):
            if _whole(value, table[row, column]) != int(table[row, column]):
                raise ValueError(
                    f"{name} has an integer that float64 rounds: {value} in column "
                    f"{column_label(X, column)}, row {row}. Subtract a constant from "
                    "the column, or drop it if it identifies rows."
                )


def _whole(value: object, default: float) -> int:
    """Convert a cell to an integer, or the default if it is not whole."""
    try:
        number = int(value)  # of text that numpy reads as a number, too
    except (TypeError, ValueError):
        return int(default)
    return number if isinstance(value, str | bytes) or number == value else int(default)


TEXT_REMEDY = (
    "Drop or encode text columns, for example with a ColumnTransformer, or use "
    "TableImputer, which models them, or, for a graph, CopulaGraphLearner with "
    "categorical_features; turn numbers with marks of missing values into numbers by "
    'pandas.to_numeric(column, errors="coerce").'
)

_OBJECT_REMEDY = (
    "Each cell must be one number, or NaN if it is missing. If the objects are names "
    'of rows, drop the column, or let categorical_features={column: "passthrough"} of '
    "TableImputer leave it out."
)


@contextmanager
def cell_errors_named(X: ArrayLike, text_remedy: str = TEXT_REMEDY) -> Iterator[None]:
    """Add the position of the cell and a remedy to errors about a cell of X."""
    try:
        with np.errstate(over="ignore"):  # too large values are rejected as infinite
            yield
    except (ValueError, TypeError, OverflowError) as error:
        # a context inside of this one may have named the cell
        is_named = "First such cell" in str(error)
        where = None if is_named else _locate(X, error, text_remedy)
        if where is None:
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{str(error).rstrip('.')}. {where}") from error


def column_names(X: ArrayLike) -> Sequence:
    """Return the names of the columns of a data frame."""
    # attributes of pandas may be columns, also one named "column_names"
    is_of_pyarrow = not hasattr(X, "iloc") and hasattr(X, "column_names")
    return X.column_names if is_of_pyarrow else X.columns


def column_label(X: ArrayLike, column: int) -> str:
    """Return the name of a column of a data frame, or its index."""
    if not hasattr(X, "columns"):
        return str(column)
    name = column_names(X)[column]
    return repr(name.item() if isinstance(name, np.generic) else name)


def is_of_dask(X: ArrayLike) -> bool:
    """Return whether X is a collection of dask."""
    return type(X).__module__.split(".")[0] in {"dask", "dask_expr"}


def is_in_parts(X: ArrayLike) -> bool:
    """Return whether X is a table in parts: `Chunks`, or of dask."""
    return is_of_dask(X) or type(X).__name__ == "Chunks"


def reject_parts(
    X: ArrayLike,
    name: str = "X",
    reader: str = "This function",
    otherwise: str = "pass a sample of its rows",
) -> None:
    """Raise an error for tables in parts, which numpy would load into memory.

    `otherwise`: what to do if it does not fit there; ``{part}`` is its first part.
    """
    if not is_in_parts(X):
        return
    kind, first = "Chunks", f"{name}[0]"
    load = f"numpy.concatenate(list({name})), or pandas.concat of data frames"
    if is_of_dask(X):
        kind, load = f"a {type(X).__name__} of dask", f"{name}.compute()"
        first = "partitions[0]" if hasattr(X, "partitions") else "blocks[0]"
        first = f"{name}.{first}.compute()"
    otherwise = otherwise.format(part=first)
    raise TypeError(
        f"{reader} needs all rows of {name} in memory, and {name} is a table in parts "
        f"({kind}). If it fits there, pass {load}; if not, {otherwise}."
    )


def reject_no_table(X: ArrayLike, name: str = "X") -> None:
    """Raise an error for None, for iterators, and for the name of a file."""
    if X is None:
        raise TypeError(f"{name} is None. Pass a table of rows and columns.")
    if isinstance(X, str | bytes | PathLike):
        shown = _shortened(X)
        remedy = f"pandas.read_csv({shown})"
        if str(X).lower().endswith((".parquet", ".pq")):
            parts = f"skvnce.options.Chunks.from_parquet({shown})"
            remedy = f"pandas.read_parquet({shown}), or {parts}"
        raise TypeError(
            f"{name} is {shown}, no table. If it is a file, read it, for example by "
            f"{remedy}."
        )
    if isinstance(X, Iterator):  # such as pandas.read_csv(..., chunksize=1000)
        raise TypeError(
            f"{name} is a {type(X).__name__}, which gives its parts once; a fit reads "
            f"them several times. If they fit in memory, pass pandas.concat({name}). "
            "Otherwise write each part to a file, and pass skvnce.options.Chunks of "
            "functions that read them."
        )


def _reject_containers(X: ArrayLike, name: str) -> None:
    """Raise an error for containers that are not tables of cells."""
    reject_no_table(X, name)
    kind = type(X).__name__
    first = X[0] if isinstance(X, list | tuple) and len(X) else X
    if kind == "LazyFrame":
        raise TypeError(
            f"{name} is a LazyFrame, which holds no cells. collect() it first."
        )
    reject_parts(X, name)
    if hasattr(X, "columns") and not len(X.columns):
        raise ValueError(f"{name} has no columns.")
    if type(first).__module__.split(".")[0] == "torch":
        _reject_tensors(first, name)
    if isinstance(first, dict) and not hasattr(first, "toarray"):  # dok_array
        raise TypeError(
            f"{name} is made of dicts. Turn it into a table, for example by "
            f"pandas.DataFrame({name})."
        )
    dtype = getattr(X, "dtype", None)
    if getattr(dtype, "kind", "") == "V":
        fields = ", ".join(map(repr, dtype.names or ()))
        raise TypeError(
            f"{name} is an array of records, with fields {fields or 'of raw bytes'}. "
            f"Turn it into a table, for example by pandas.DataFrame({name})."
        )


def _reject_tensors(X: ArrayLike, name: str) -> None:
    """Raise an error for tensors that numpy cannot read."""
    calls = ".detach()" * X.requires_grad + ".cpu()" * (X.device.type != "cpu")
    calls += ".to_dense()" * (str(X.layout) != "torch.strided")
    calls += ".float()" * (str(X.dtype) == "torch.bfloat16")
    if calls:
        raise TypeError(
            f"{name} is a tensor that numpy cannot read: pass {name}{calls}."
        )


def _reject_sparse_frames(X: ArrayLike, name: str, accepted: bool) -> None:
    """Raise an error for sparse columns, or only for those with a fill value not 0."""
    if not (hasattr(X, "iloc") and hasattr(X, "sparse")):
        return
    for column, dtype in enumerate(X.dtypes):
        if not accepted or dtype.fill_value != 0:
            raise TypeError(
                f"{name} is a data frame of sparse columns: column "
                f"{column_label(X, column)} is {dtype}. Pass {name}.sparse.to_dense()."
            )


def _reject_times(X: ArrayLike, name: str) -> None:
    """Raise an error for dates or durations, which numpy counts in units of time."""
    place = next(_times(X), None)
    if place is not None:
        raise TypeError(
            f"{name} has dates or durations where numbers are expected. "
            f"{_first(X, *place)} {_TIME_REMEDY}"
        )


def _times(X: ArrayLike) -> Iterator[tuple[object, int, int]]:
    """Yield cells of dates or durations, including NaT, with their column and row."""
    if _is_frame(X):
        for column in range(X.shape[1]):
            cells = _column(X, column)
            if len(cells) and _is_time_type(cells):
                yield _values(cells)[0], column, 0
        return
    cells = _listed(X) if isinstance(X, list | tuple) else X
    if isinstance(cells, np.ndarray) and cells.ndim == 2 and cells.dtype.kind in "mMO":
        for row, values in enumerate(cells):
            for column, value in enumerate(values):
                if is_time(value):
                    yield value, column, row


def _listed(X: list | tuple) -> ArrayLike:
    """Convert a list, whose rows may differ in length, to an array."""
    for dtype in (None, object):
        with suppress(ValueError, TypeError):
            array = np.asarray(X, dtype)
            if dtype is object or array.dtype.kind in "mM":
                return array
    return None  # the checks of scikit-learn explain the reason


def _is_frame(X: ArrayLike) -> bool:
    return hasattr(X, "columns") and hasattr(X, "shape")


def _column(X: ArrayLike, column: int) -> ArrayLike:
    """Select a column of a table, with its own type."""
    if hasattr(X, "iloc"):
        return X.iloc[:, column]
    if hasattr(X, "column_names"):  # pyarrow
        return X.column(int(column))
    if _is_frame(X):
        return X[:, int(column)]
    listed = isinstance(X, list | tuple)
    return np.asarray(X, dtype=object if listed else None)[:, column]


def _values(cells: ArrayLike) -> np.ndarray:
    """List the cells of a column as objects."""
    for name in ("to_pylist", "to_list"):  # of pyarrow; polars makes integers floats
        if hasattr(cells, name):
            cells = getattr(cells, name)()
    return np.asarray(cells, dtype=object)


def _is_time_type(cells: ArrayLike) -> bool:
    """Return whether the type of a column is one of dates or durations."""
    dtype = getattr(cells, "dtype", None)
    if dtype is None:  # pyarrow
        return str(cells.type).startswith(("date", "time", "duration"))
    if hasattr(dtype, "is_temporal"):  # polars
        return dtype.is_temporal()
    period = type(dtype).__name__ == "PeriodDtype"
    return period or getattr(dtype, "kind", "") in ("m", "M")


def is_time(value: object) -> bool:
    """Return whether a cell is a date, a time or a duration, or NaT."""
    named = type(value).__name__ in _TIME_NAMES
    return named or isinstance(value, date | time | timedelta)


def unmasked(X: ArrayLike) -> np.ndarray:
    """Convert to an array, a copy with NaN in the masked cells of a masked array."""
    if not np.ma.is_masked(X):
        return np.asarray(X)
    kind = X.dtype.kind
    dtype = np.float64 if kind in "biu" else X.dtype if kind in "fc" else object
    cells = np.array(np.ma.getdata(X), dtype=dtype)
    cells[np.ma.getmaskarray(X)] = np.nan
    return cells


def _without_na(X: ArrayLike) -> ArrayLike:
    """Replace NA among the objects of an array or a pandas frame by NaN."""
    if isinstance(X, np.ndarray) and X.dtype.kind == "O":
        is_na = np.array([_is_na(value) for value in X.flat]).reshape(X.shape)
        return np.where(is_na, np.nan, X) if is_na.any() else X
    if not hasattr(X, "isetitem"):
        return X
    copy = X
    for place in np.flatnonzero([dtype is np.dtype(object) for dtype in X.dtypes]):
        column = X.iloc[:, place]
        is_na = np.array([_is_na(value) for value in column])
        if is_na.any():
            # isetitem replaces a column, and leaves that of X as it is
            copy = X.copy(deep=False) if copy is X else copy
            copy.isetitem(place, column.mask(is_na, np.nan))
    return copy


def _locate(X: ArrayLike, error: Exception, text_remedy: str) -> str | None:
    """Describe which cell an input error concerns, if it concerns one."""
    unfit, remedy = _culprit(str(error), error, text_remedy)
    if unfit is None:
        return None
    try:
        cells = np.asarray(X, dtype=object)
    except (ValueError, TypeError, RuntimeError):  # no table: keep the error
        return None
    for column in range(cells.shape[1] if cells.ndim == 2 else 0):
        for row, value in enumerate(cells[:, column]):
            if unfit(value):
                if is_time(value):
                    remedy = _TIME_REMEDY
                return f"{_first(X, value, column, row)} {remedy}"
    return None


def _culprit(
    message: str, error: Exception, text_remedy: str
) -> tuple[Callable[[object], bool] | None, str]:
    """Choose the kind of cell to look for, and a remedy."""
    if "infinity" in message:
        return _is_infinite, "Replace it by NaN if it is missing."
    if "could not convert" in message:
        return is_unreadable_text, text_remedy
    if "NAType" in message:
        return _is_na, "Mark missing cells by NaN."
    if isinstance(error, OverflowError):
        return _is_too_large, "Rescale the column."
    if isinstance(error, TypeError) or "with a sequence" in message:
        return _is_no_number, _OBJECT_REMEDY
    return None, ""


def _first(X: ArrayLike, value: object, column: int, row: int) -> str:
    """Describe a cell and its position."""
    label = column_label(X, column)
    return f"First such cell: {_shortened(value)} in column {label}, row {row}."


def _shortened(value: object) -> str:
    """Format a value for messages."""
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "..."


def _is_infinite(value: object) -> bool:
    try:
        # np.isinf does not take long integers of Python
        return isinstance(value, numbers.Real) and bool(np.isinf(float(value)))
    except OverflowError:
        return True


def _is_na(value: object) -> bool:
    return type(value).__name__ == "NAType"


def is_unreadable_text(value: object) -> bool:
    """Return whether a cell is text that no number can be read from."""
    return isinstance(value, str | bytes) and _fails(value, ValueError)


def _is_too_large(value: object) -> bool:
    return _fails(value, OverflowError)


def _is_no_number(value: object) -> bool:
    # numpy converts None to NaN
    return value is not None and _fails(value, (TypeError, RuntimeError))


def _fails(value: object, errors: type | tuple) -> bool:
    """Return whether the conversion of a cell to a number raises one of some errors."""
    try:
        float(value)
    except errors:
        return True
    except (TypeError, ValueError, OverflowError):
        pass
    return False


# ----------------------------------------
# What columns of pandas, polars and pyarrow have in common: types, and new cells.


def nullable_type(dtype: object) -> str | None:
    """Name pandas' type for integers or booleans with missing cells, or None."""
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iub":
        return None
    if dtype.kind == "b":
        return "boolean"
    return {"i": "Int", "u": "UInt"}[dtype.kind] + str(8 * dtype.itemsize)


def with_cells(series: nw.Series, rows: np.ndarray, values: Sequence) -> nw.Series:
    """Replace cells of a column of polars or pyarrow; its type and others stay."""
    backend, cells = series.implementation, [None] * len(series)
    is_kept = np.ones(len(series), dtype=bool)
    is_kept[rows] = False
    for row, value in zip(rows, values, strict=True):
        cells[row] = value
    new = nw.new_series(series.name, cells, series.dtype, backend=backend)
    mask = nw.new_series("", is_kept.tolist(), nw.Boolean, backend=backend)
    return series.zip_with(mask, new)


def with_levels(
    levels: Sequence, values: Sequence, first: Sequence | None = None
) -> list | None:
    """List the levels of a column with new values, `first` first; None if as before."""
    if set(values) <= {None, *levels}:
        return None
    if first is None:
        return list(dict.fromkeys([*levels, *values]))
    return [*first, *(level for level in levels if level not in set(first))]
