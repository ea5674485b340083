"""Tables of zeros and ones, kept sparse: border checks, and what fits need of them.

A checked table is a CSR array that stores the cells that are on, as 1, and the missing
ones, as NaN.
"""

import warnings

import numpy as np
import torch
from scipy import sparse
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from skvnce._containers import cell_errors_named, readable
from skvnce.algorithms.noisy_or import Rows
from skvnce.estimators._validation import column_name

_NMF_ROUNDS = 50  # enough for a start
_STRONG = 50  # the fiftieth part of the rows shows a component at its full strength
_RAREST = 1e-3  # of the weights of columns
_SPREAD = 0.2  # of the noise that tells components apart, in rates of the columns


def binary_table(estimator, X, *, reset):
    """Validate a table of zeros, ones and NaN, or of what `binarize` makes such of.

    Returns
    -------
    csr_array of shape (n, features), float64 or float32

    Raises
    ------
    ValueError
        For infinite values and text, and if `binarize` is None for other numbers than
        0 and 1, naming row and column; for a wrong width.
    """
    cells = readable(X, sparse=True)
    with cell_errors_named(X):
        table = validate_data(
            estimator,
            cells,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False if sparse.issparse(X) else "allow-nan",
            ensure_min_samples=2 if reset else 1,
        )
    if sparse.issparse(table):
        infinite = np.isinf(table.data)
        _refuse(estimator, sparse.csr_array(table), infinite, "Input X contains inf")
    if estimator.binarize is not None:
        table = _binarized(table, estimator.binarize)
    table = sparse.csr_array(table, copy=True)
    table.sum_duplicates()
    table.eliminate_zeros()
    _check_binary(estimator, table)
    return table


def _binarized(table, threshold):
    """Turn cells into 1 above a threshold and into 0 below; NaN stays."""
    if not sparse.issparse(table):
        return np.where(np.isnan(table), table, table > threshold).astype(table.dtype)
    if threshold < 0:
        raise ValueError(
            f"binarize={threshold!r} is negative, but X is sparse: cells that are not "
            "stored would count as ones. Use a threshold of at least 0, or pass "
            "X.toarray()."
        )
    table = table.copy()
    table.sum_duplicates()
    on = np.where(np.isnan(table.data), np.nan, table.data > threshold)
    return _with_data(table, on.astype(table.dtype))


def _check_binary(estimator, table):
    wrong = ~np.isnan(table.data) & (table.data != 1)
    name = type(estimator).__name__
    takes = f"With binarize=None, {name} takes zeros, ones and NaN"
    remedy = "Set binarize=0.0 to count values above 0 as ones."
    _refuse(estimator, table, wrong, takes, remedy)


def _refuse(estimator, table, wrong, reason, remedy="Replace it by NaN if missing."):
    """Raise an error about the first stored cell that is wrong, if there is one."""
    if wrong.any():
        place = np.flatnonzero(wrong)[0]
        row = np.searchsorted(table.indptr, place, side="right") - 1
        column = column_name(estimator, table.indices[place])
        value = float(table.data[place])
        raise ValueError(f"{reason}, got {value!r} in {column}, row {row}. {remedy}")


def observed_counts(table):
    """Count the observed cells of each column; (features,)."""
    missing = table.indices[np.isnan(table.data)]
    return table.shape[0] - np.bincount(missing, minlength=table.shape[1])


def observed_rows(table):
    """Leave out the rows that are entirely missing."""
    missing = _with_data(table, np.isnan(table.data).astype(int))
    return table[missing.sum(1) < table.shape[1]]


def without_columns(table, columns):
    """Leave out the stored cells of some columns."""
    if not len(columns):
        return table
    kept = np.ones(table.shape[1], dtype=table.dtype)
    kept[columns] = 0
    # products with NaN are NaN: leave out by a mask of what is stored
    stored = _with_data(table, kept[table.indices])
    data = table.data[stored.data > 0]
    stored.eliminate_zeros()
    return _with_data(stored, data)


def parts_by_length(table, cost_of_cell, cost_of_row, budget):
    """Yield places of rows of similar length, as many as the budget allows.

    Parameters
    ----------
    table : csr_array of shape (n, features)
    cost_of_cell, cost_of_row : int
        Numbers that a listed cell takes, where all rows have as many as the longest,
        and that a row takes besides.
    budget : int
        Of numbers; one row may take more.
    """
    length = np.maximum(np.diff(table.indptr), 1)
    order = np.argsort(length, kind="stable")
    cost = np.maximum(length[order] * cost_of_cell, cost_of_row)
    first = 0
    while first < len(order):
        rows = cost[first : first + budget]
        total = rows * np.arange(1, len(rows) + 1)
        count = max(1, int(np.searchsorted(total, budget, side="right")))
        yield order[first : first + count]
        first += count


def fingerprints(table):
    """Make a number of each row's cells, the same in any company; (n, 1)."""
    rng = np.random.default_rng(0)
    on, missing = rng.random((2, table.shape[1]))
    weight = np.where(np.isnan(table.data), missing[table.indices], on[table.indices])
    return _with_data(table, weight).sum(1)[:, None]


def torch_rows(table):
    """Hand the stored cells to torch."""
    return Rows(
        torch.from_numpy(table.indptr.astype(np.int64)),
        torch.from_numpy(table.indices.astype(np.int64)),
        torch.from_numpy(~np.isnan(table.data)),
    )


def factorised(table, n_components, rng):
    """Guess components by non-negative matrix factorisation.

    Columns weigh less the more often they are on: those that nearly always are would
    take a component of their own.

    Parameters
    ----------
    table : csr_array of shape (n, features)
    n_components : int
    rng : RandomState instance

    Returns
    -------
    ndarray of shape (n_components, features)
        Probabilities.
    """
    on, rarity = _on(table), np.maximum(1 - _rates(table), _RAREST)
    found = np.zeros((n_components, table.shape[1]))
    if on.nnz:
        weighted = on @ sparse.diags_array(rarity)
        strength, components = _factors(weighted, n_components, rng)
        strength = np.sort(strength, 0)
        strong = strength[-max(2, len(strength) // _STRONG) :].mean(0)
        found = components * strong[:, None] / rarity
    return found + _SPREAD * scattered(table, n_components, rng)


def _factors(weighted, n_components, rng):
    """Factorise a table into strengths (n, n_components) and components.

    The start from singular vectors, scikit-learn's default, divides 0 by 0 where the
    table has a lower rank than `n_components`: then the start is random.
    """
    for init in (None, "random"):
        factors = NMF(n_components, init=init, max_iter=_NMF_ROUNDS, random_state=rng)
        # the reconstruction error of an exact one may be the root of -1e-17
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)
            strength = factors.fit_transform(weighted)
        if np.isfinite(strength).all() and np.isfinite(factors.components_).all():
            break
    return strength, factors.components_


def scattered(table, n_components, rng):
    """Draw components at random, around the rates of the columns, as `factorised`."""
    return _rates(table) * rng.random((n_components, table.shape[1]))


def _on(table):
    """Count missing cells as off."""
    return _with_data(table, np.nan_to_num(table.data))


def _rates(table):
    """Compute the share of ones among the observed cells of each column."""
    return _on(table).sum(0) / np.maximum(observed_counts(table), 1)


STARTS = {"nmf": factorised, "random": scattered}


def _with_data(table, data):
    return sparse.csr_array((data, table.indices, table.indptr), shape=table.shape)
