"""Validation and preparation of sparse binary tables with missing values.

A validated table is a CSR array that stores ones as 1 and missing cells as NaN.
"""

import warnings

import numpy as np
import torch
from scipy import sparse
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from skvnce._core.random import mixed
from skvnce._tables.frames import cell_errors_named, readable
from skvnce._tables.memory import needs_memory
from skvnce.noisy_or.em import Rows

_NMF_ROUNDS = 50  # enough iterations for an initial guess
_STRONG = 50  # the strength of a component is reached in a fiftieth of the rows
# components are divided by these weights, which are 0 of a column of ones
_RAREST = 1e-3  # lower bound of the column weights
_NOISE = 0.2  # scale of the noise added to components, relative to column rates


def binary_table(estimator, X, *, reset):  # (n, features), float64 or float32
    """Validate a table of zeros, ones and NaN, after applying `binarize`.

    Raises ValueError for infinite values and text; for values other than 0 and 1 if
    `binarize` is None (the message names row and column); for a wrong number of
    columns.
    """
    needs_memory(type(estimator), X, reset=reset)
    cells = readable(X, sparse=True)
    with cell_errors_named(X):
        table = validate_data(
            estimator,
            cells,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            # the error below names the cell, which scikit-learn does not
            ensure_all_finite=False if sparse.issparse(X) else "allow-nan",
            ensure_min_samples=2 if reset else 1,
        )
    # before `binarize`, which would turn an infinite cell into a one
    if sparse.issparse(table):
        infinite = np.isinf(table.data)
        _reject(
            estimator._schema, sparse.csr_array(table), infinite, "Input X contains inf"
        )
    if estimator.binarize is not None:
        table = _binarized(table, estimator.binarize)
    # the table of the user must not be changed by the next two lines
    table = sparse.csr_array(table, copy=True)
    table.sum_duplicates()
    # last, because duplicates may cancel
    table.eliminate_zeros()
    _check_binary(estimator._schema, table, type(estimator).__name__)
    return table


def _binarized(table, threshold):
    """Set cells above a threshold to 1 and the others to 0; NaN is kept."""
    if not sparse.issparse(table):
        return np.where(np.isnan(table), table, table > threshold).astype(table.dtype)
    if threshold < 0:
        raise ValueError(
            f"binarize={threshold!r} is negative, but X is sparse: cells that are not "
            "stored would count as ones. Use a threshold of at least 0, or pass "
            "X.toarray()."
        )
    table = table.copy()
    # a threshold is for the sum of what is stored for a cell
    table.sum_duplicates()
    on = np.where(np.isnan(table.data), np.nan, table.data > threshold)
    return _with_data(table, on.astype(table.dtype))


def _check_binary(schema, table, name):
    wrong = ~np.isnan(table.data) & (table.data != 1)
    takes = f"With binarize=None, {name} accepts zeros, ones and NaN"
    remedy = "Set binarize=0.0 to count values above 0 as ones."
    _reject(schema, table, wrong, takes, remedy)


def _reject(schema, table, wrong, reason, remedy="Replace it by NaN if missing."):
    """Raise an error that names the first wrong stored cell, if there is one."""
    if wrong.any():
        place = np.flatnonzero(wrong)[0]
        row = np.searchsorted(table.indptr, place, side="right") - 1
        column = schema.label(table.indices[place])
        value = float(table.data[place])
        raise ValueError(f"{reason}, got {value!r} in {column}, row {row}. {remedy}")


def observed_counts(table):
    """Count the observed cells of each column; (features,)."""
    missing = table.indices[np.isnan(table.data)]
    return table.shape[0] - np.bincount(missing, minlength=table.shape[1])


def observed_rows(table):
    """Drop the rows that are entirely missing."""
    missing = _with_data(table, np.isnan(table.data).astype(int))
    return table[missing.sum(1) < table.shape[1]]


def without_columns(table, columns):
    """Drop the stored cells of some columns."""
    if not len(columns):
        return table
    kept = np.ones(table.shape[1], dtype=table.dtype)
    kept[columns] = 0
    # a product with NaN is NaN, so select by a mask of the stored cells
    stored = _with_data(table, kept[table.indices])
    data = table.data[stored.data > 0]
    stored.eliminate_zeros()
    return _with_data(stored, data)


def parts_by_length(table, cost_of_cell, cost_of_row, budget):
    """Yield indices of rows of similar length, as many as the budget allows.

    `table` (n, features).  `cost_of_cell`, `cost_of_row`: memory, in numbers, per
    listed cell (all rows are padded to the longest) and per row.  `budget`: maximum
    number of numbers in memory; a single row may need more.
    """
    length = np.maximum(np.diff(table.indptr), 1)
    order = np.argsort(length, kind="stable")
    cost = np.maximum(length[order] * cost_of_cell, cost_of_row)
    first = 0
    while first < len(order):
        rows = cost[first : first + budget]
        # rows of a part are padded to the longest, which is the last one
        total = rows * np.arange(1, len(rows) + 1)
        count = max(1, int(np.searchsorted(total, budget, side="right")))
        yield order[first : first + count]
        first += count


def fingerprints(table):
    """Compute a key of each row's cells that does not depend on other rows; (n, 1)."""
    # a constant seed, because keys must be the same in all calls
    rng = np.random.default_rng(0)
    on, missing = rng.random((2, table.shape[1]))
    # two numbers for each column, because a missing cell is neither 0 nor 1
    weight = np.where(np.isnan(table.data), missing[table.indices], on[table.indices])
    return _with_data(table, weight).sum(1)[:, None]


def key_of_rows(table):
    """Compute a key of a table that does not depend on the order of its rows; int."""
    # mixed, so that other rows hardly have the same sum
    bits = mixed(np.ascontiguousarray(fingerprints(table)[:, 0]).view(np.uint64))
    with np.errstate(over="ignore"):
        return int(bits.sum(dtype=np.uint64))


def torch_rows(table):
    """Convert the stored cells to torch tensors."""
    return Rows(
        # scipy has int32 in small tables, and torch indexes by int64
        torch.from_numpy(table.indptr.astype(np.int64)),
        torch.from_numpy(table.indices.astype(np.int64)),
        torch.from_numpy(~np.isnan(table.data)),
    )


def factorised(table, n_components, rng):  # (n_components, features): probabilities
    """Estimate initial components by non-negative matrix factorisation.

    Columns are weighted down the more ones they have.  Otherwise columns that are
    nearly always 1 would form a component of their own.

    `table` (n, features), `rng` (RandomState instance).
    """
    on, rarity = _on(table), np.maximum(1 - _rates(table), _RAREST)
    found = np.zeros((n_components, table.shape[1]))
    if on.nnz:
        weighted = on @ sparse.diags_array(rarity)
        strength, components = _factors(weighted, n_components, rng)
        strength = np.sort(strength, 0)
        strong = strength[-max(2, len(strength) // _STRONG) :].mean(0)
        found = components * strong[:, None] / rarity
    return found + _NOISE * scattered(table, n_components, rng)


def _factors(weighted, n_components, rng):
    """Factorise a table into strengths (n, n_components) and components.

    The default initialisation of scikit-learn, by singular vectors, divides 0 by 0 if
    the rank of the table is below `n_components`.  In this case it is random.
    """
    for init in (None, "random"):
        factors = NMF(n_components, init=init, max_iter=_NMF_ROUNDS, random_state=rng)
        # the reconstruction error of an exact fit may be the root of -1e-17
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)
            strength = factors.fit_transform(weighted)
        if np.isfinite(strength).all() and np.isfinite(factors.components_).all():
            break
    return strength, factors.components_


def scattered(table, n_components, rng):
    """Draw random components around the rates of the columns, as in `factorised`."""
    return _rates(table) * rng.random((n_components, table.shape[1]))


def _on(table):
    """Replace missing cells by zeros."""
    return _with_data(table, np.nan_to_num(table.data))


def _rates(table):
    """Compute the share of ones among the observed cells of each column."""
    return _on(table).sum(0) / np.maximum(observed_counts(table), 1)


STARTS = {"nmf": factorised, "random": scattered}


def _with_data(table, data):
    return sparse.csr_array((data, table.indices, table.indptr), shape=table.shape)
