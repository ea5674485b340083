"""Statistics of tables: moments, smallest and largest cells, distinct rows."""

import numpy as np
from numpy.typing import DTypeLike


def column_moments(
    nodes: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute weighted means and standard deviations of the observed cells."""
    seen = ~np.isnan(nodes) * weights[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # the check of the scale follows
        mean = _means(nodes, seen)
        return mean, np.sqrt(_means((nodes - mean) ** 2, seen))


def column_means(nodes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute weighted means of the observed cells."""
    return _means(nodes, ~np.isnan(nodes) * weights[:, None])


def _means(values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return np.nansum(values * seen, 0) / seen.sum(0)


def fair_scores(errors: np.ndarray) -> np.ndarray:
    """Compute the fair score of Ferro (2014) from draws minus the truth.

    With m draws x_k of a cell of truth y it is

        sum_k |x_k - y| / m - sum_kl |x_k - x_l| / (2 m (m - 1)),

    whose expectation does not depend on m.

    `errors` (m, ...). Returns (...).
    """
    m, errors = len(errors), np.sort(errors, axis=0)
    # the double sum is 2 sum_k (2k - m - 1) x_(k) over the sorted draws
    weights = (2 * np.arange(1, m + 1) - m - 1) / (m * (m - 1))
    return np.abs(errors).mean(0) - np.tensordot(weights, errors, 1)


def constant_columns(nodes: np.ndarray) -> np.ndarray:
    """Return which columns have observed cells that are equal, up to rounding."""
    # unlike nanmin and nanmax, these do not warn of columns without a cell
    low, high = np.fmin.reduce(nodes, 0), np.fmax.reduce(nodes, 0)
    with np.errstate(over="ignore"):  # an infinite range is none of a constant
        return high - low <= 1e-13 * np.maximum(abs(low), abs(high))


def distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct rows of a table; NaN equals NaN, and -0.0 equals 0.0.

    `rows` (n, features): with at least one column. Returns `first` int (n_different,):
    indices of rows that are all distinct; `group` int (n,): index into `first` of the
    row that equals each row.
    """
    # bytes are compared, and NaN and zero have several bit patterns
    clean = np.ascontiguousarray(np.where(np.isnan(rows), np.nan, rows + 0.0))
    width = clean.itemsize * clean.shape[1]
    keys = clean.view(np.dtype((np.void, width))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group


def into_dtype(cells: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """Convert floats to a dtype, and clip values beyond its range."""
    most = np.finfo(dtype).max
    return np.clip(np.asarray(cells), -most, most).astype(dtype)


def half_sample_mode(draws: np.ndarray) -> np.ndarray:
    """Estimate the mode of draws for each cell (Bickel and Fruehwirth 2006).

    `draws` (n_draws, ...). Returns (...).
    """
    sorted_draws = np.sort(draws, 0)
    while len(sorted_draws) > 2:
        half = (len(sorted_draws) + 1) // 2
        widths = sorted_draws[half - 1 :] - sorted_draws[: len(sorted_draws) - half + 1]
        first = widths.argmin(0)
        places = first[None] + np.arange(half).reshape(-1, *[1] * first.ndim)
        sorted_draws = np.take_along_axis(sorted_draws, places, 0)
    return sorted_draws.mean(0)


def ends_of(table: np.ndarray) -> np.ndarray:
    """Find the smallest and the largest cell of each column, NaN if it has none."""
    return np.stack(
        [np.fmin.reduce(table, 0), np.fmax.reduce(table, 0)], dtype=np.float64
    )


def observed_cells(column: np.ndarray) -> np.ndarray:
    """Drop the missing cells of a column."""
    return column[~np.isnan(column)]


def lower_median(column: np.ndarray) -> float:
    """Find the median of the observed cells, or the lower one of two."""
    seen = np.sort(column[~np.isnan(column)])
    # the mean of two would be a value that no cell has
    return seen[(len(seen) - 1) // 2]
