"""Compiled loops over rows: densities, conditional moments and draws of components.

Rows are sorted by their pattern of missing cells.  Rows of a group share a pattern, and
thus, for each component k, the factor L_k of the covariance S_k of observed columns o,

    S_k,oo = L_k L_k',    B_k = L_k^-1 S_k,om,    V_k = S_k,mm - B_k' B_k            (1)
    x_m | x_o, k ~ N(mean_k,m + B_k' r, V_k),     r = L_k^-1 (x_o - mean_k,o)        (2)
    log N(x_o) = -(r' r + |o| log 2 pi) / 2 - sum log diag L_k                       (3)

Where patterns repeat, eq. (1) is computed once a group; where each row has its own, all
of it stays in the cache of the processor, which batches of small matrices do not.
"""

import math
from collections.abc import Callable

import numba
import numpy as np

_LEAST_PIVOT = 1e-12  # of a covariance of columns of unit variance
_NEVER = -1e300  # log-weight of a component that a row skips; exp() of it is 0


def _compiled(function: Callable) -> Callable:
    """Compile a function; keep the code on disk where a folder can be written."""
    options = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": {"contract", "reassoc"},
    }
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba finds no folder for its cache
        return numba.njit(**options)(function)


@_compiled
def _factorise(a: np.ndarray, n: int) -> None:
    """Replace the upper triangle of a (n, n) by U, where a = U' U.

    The inner loops run along rows, whose cells the processor handles together.
    """
    for j in range(n):
        pivot = math.sqrt(max(a[j, j], _LEAST_PIVOT))
        a[j, j] = pivot
        for k in range(j + 1, n):
            a[j, k] /= pivot
        for i in range(j + 1, n):
            scale = a[j, i]
            for k in range(i, n):
                a[i, k] -= scale * a[j, k]


@_compiled
def _observed_factor(
    covariance: np.ndarray, seen: np.ndarray, n_seen: int, factor: np.ndarray
) -> float:
    """Factorise the observed block, and return half the log of its determinant."""
    for a in range(n_seen):
        for b in range(a, n_seen):
            factor[a, b] = covariance[seen[a], seen[b]]
    _factorise(factor, n_seen)
    log_det = 0.0
    for a in range(n_seen):
        log_det += math.log(factor[a, a])
    return log_det


@_compiled
def _residual(
    row: np.ndarray,
    mean: np.ndarray,
    seen: np.ndarray,
    n_seen: int,
    factor: np.ndarray,
    out: np.ndarray,
) -> float:
    """Solve for r of eq. (2), and return r' r."""
    square = 0.0
    for a in range(n_seen):
        out[a] = row[seen[a]] - mean[seen[a]]
    for a in range(n_seen):
        scale = out[a] / factor[a, a]
        out[a] = scale
        square += scale * scale
        for b in range(a + 1, n_seen):
            out[b] -= scale * factor[a, b]
    return square


@_compiled
def _regression(
    covariance: np.ndarray,
    seen: np.ndarray,
    n_seen: int,
    missing: np.ndarray,
    n_missing: int,
    factor: np.ndarray,
    out: np.ndarray,
) -> None:
    """Solve for B of eq. (1)."""
    for a in range(n_seen):
        for b in range(n_missing):
            out[a, b] = covariance[seen[a], missing[b]]
    for a in range(n_seen):
        for b in range(n_missing):
            out[a, b] /= factor[a, a]
        for e in range(a + 1, n_seen):
            scale = factor[a, e]
            for b in range(n_missing):
                out[e, b] -= scale * out[a, b]


@_compiled
def _left_variance(
    covariance: np.ndarray,
    missing: np.ndarray,
    n_missing: int,
    n_seen: int,
    slopes: np.ndarray,
    out: np.ndarray,
) -> None:
    """Compute the upper triangle of V of eq. (1)."""
    for a in range(n_missing):
        for b in range(a, n_missing):
            out[a, b] = covariance[missing[a], missing[b]]
    for e in range(n_seen):
        for a in range(n_missing):
            scale = slopes[e, a]
            for b in range(a, n_missing):
                out[a, b] -= scale * slopes[e, b]


@_compiled
def _conditional_means(
    mean: np.ndarray,
    missing: np.ndarray,
    n_missing: int,
    n_seen: int,
    slopes: np.ndarray,
    residual: np.ndarray,
    out: np.ndarray,
) -> None:
    """Compute the means of eq. (2)."""
    for b in range(n_missing):
        out[b] = mean[missing[b]]
    for a in range(n_seen):
        scale = residual[a]
        for b in range(n_missing):
            out[b] += scale * slopes[a, b]


@_compiled
def _split(
    observed: np.ndarray, seen: np.ndarray, missing: np.ndarray
) -> tuple[int, int]:
    n_seen = n_missing = 0
    for j in range(len(observed)):
        if observed[j]:
            seen[n_seen] = j
            n_seen += 1
        else:
            missing[n_missing] = j
            n_missing += 1
    return n_seen, n_missing


@_compiled
def _normalise(scores: np.ndarray, n_components: int, least: float) -> float:
    """Turn log-weights into shares, 0 for those below `least`; return the log-sum."""
    top = scores[0]
    for k in range(1, n_components):
        top = max(top, scores[k])
    total = kept = 0.0
    for k in range(n_components):
        scores[k] = math.exp(scores[k] - top)
        total += scores[k]
    for k in range(n_components):
        scores[k] /= total
        if scores[k] < least:
            scores[k] = 0.0
        kept += scores[k]
    for k in range(n_components):
        scores[k] /= kept
    return math.log(total) + top


@_compiled
def scores_of_rows(
    x: np.ndarray,
    observed: np.ndarray,
    starts: np.ndarray,
    prior: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
    skipped: np.ndarray,
) -> np.ndarray:
    """Compute log weights of the components plus log-densities; (n, n_components)."""
    n, d = x.shape
    n_components = len(means)
    scores = np.empty((n, n_components))
    seen, missing = np.empty(d, np.int64), np.empty(d, np.int64)
    factor, residual = np.empty((d, d)), np.empty(d)
    for g in range(len(starts) - 1):
        n_seen, _ = _split(observed[starts[g]], seen, missing)
        constant = 0.5 * n_seen * math.log(2 * math.pi)
        for k in range(n_components):
            is_new = True
            for i in range(starts[g], starts[g + 1]):
                if skipped[i, k]:
                    scores[i, k] = _NEVER
                    continue
                if is_new:
                    log_det = _observed_factor(covariances[k], seen, n_seen, factor)
                    is_new = False
                square = _residual(x[i], means[k], seen, n_seen, factor, residual)
                scores[i, k] = prior[i, k] - 0.5 * square - log_det - constant
    return scores


@_compiled
def normalised(scores: np.ndarray, least: float) -> np.ndarray:
    """Turn scores into responsibilities in place; return the log-density of rows."""
    found = np.empty(len(scores))
    for i in range(len(scores)):
        found[i] = _normalise(scores[i], scores.shape[1], least)
    return found


@_compiled
def expected_sums(
    x: np.ndarray,
    observed: np.ndarray,
    starts: np.ndarray,
    weights: np.ndarray,
    responsibilities: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum completed rows of each component: the E-step.

    Returns
    -------
    totals : ndarray of shape (n_components,)
    first : ndarray of shape (n_components, d)
    second : ndarray of shape (n_components, d, d)
        The upper triangles.
    """
    d = x.shape[1]
    n_components = len(means)
    totals, first = np.zeros(n_components), np.zeros((n_components, d))
    second = np.zeros((n_components, d, d))
    seen, missing = np.empty(d, np.int64), np.empty(d, np.int64)
    factor, slopes, left = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    residual, row, expected = np.empty(d), np.empty(d), np.empty(d)
    for g in range(len(starts) - 1):
        n_seen, n_missing = _split(observed[starts[g]], seen, missing)
        for k in range(n_components):
            mass, is_new = 0.0, True
            for i in range(starts[g], starts[g + 1]):
                weight = responsibilities[i, k] * weights[i]
                if weight == 0.0:
                    continue
                row[:] = x[i]
                if n_missing:
                    if is_new:
                        _observed_factor(covariances[k], seen, n_seen, factor)
                        _regression(
                            covariances[k],
                            seen,
                            n_seen,
                            missing,
                            n_missing,
                            factor,
                            slopes,
                        )
                        is_new = False
                    _residual(x[i], means[k], seen, n_seen, factor, residual)
                    _conditional_means(
                        means[k], missing, n_missing, n_seen, slopes, residual, expected
                    )
                    for b in range(n_missing):
                        row[missing[b]] = expected[b]
                mass += weight
                for a in range(d):
                    scaled = weight * row[a]
                    first[k, a] += scaled
                    for b in range(a, d):
                        second[k, a, b] += scaled * row[b]
            totals[k] += mass
            if n_missing and mass:
                _left_variance(covariances[k], missing, n_missing, n_seen, slopes, left)
                for a in range(n_missing):
                    for b in range(a, n_missing):  # `missing` increases
                        second[k, missing[a], missing[b]] += mass * left[a, b]
    return totals, first, second


@_compiled
def _cell_mean(
    mean: float, deviation: float, scores: np.ndarray, cells: np.ndarray
) -> float:
    """Compute the mean of a piecewise linear function of N(mean, deviation**2).

    The function runs through (scores, cells); beyond the last points it continues.
    """
    slope = (cells[1] - cells[0]) / (scores[1] - scores[0])
    total = cells[0] + slope * (mean - scores[0])
    for j in range(1, len(scores) - 1):
        new = (cells[j + 1] - cells[j]) / (scores[j + 1] - scores[j])
        far = (mean - scores[j]) / deviation
        if far > 8.0:
            above = mean - scores[j]
        elif far < -8.0:
            above = 0.0
        else:
            density = math.exp(-0.5 * far * far) / math.sqrt(2 * math.pi)
            share = 0.5 * math.erfc(-far / math.sqrt(2.0))
            above = deviation * (far * share + density)
        total += (new - slope) * above
        slope = new
    return total


@_compiled
def filled_rows(
    x: np.ndarray,
    observed: np.ndarray,
    starts: np.ndarray,
    responsibilities: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
    scores: np.ndarray,
    cells: np.ndarray,
    counts: np.ndarray,
) -> np.ndarray:
    """Fill missing cells by means of functions of the columns, which are mixed.

    Parameters
    ----------
    scores, cells : ndarray of shape (d, n_points)
        Of the functions, see `_cell_mean`; `counts` (d,) are the numbers of points.
    """
    n, d = x.shape
    filled = np.zeros((n, d))
    seen, missing = np.empty(d, np.int64), np.empty(d, np.int64)
    factor, slopes, residual = np.empty((d, d)), np.empty((d, d)), np.empty(d)
    deviation, expected = np.empty(d), np.empty(d)
    for g in range(len(starts) - 1):
        n_seen, n_missing = _split(observed[starts[g]], seen, missing)
        if not n_missing:
            continue
        for k in range(len(means)):
            is_new = True
            for i in range(starts[g], starts[g + 1]):
                share = responsibilities[i, k]
                if share == 0.0:
                    continue
                if is_new:
                    _observed_factor(covariances[k], seen, n_seen, factor)
                    _regression(
                        covariances[k], seen, n_seen, missing, n_missing, factor, slopes
                    )
                    for b in range(n_missing):
                        total = covariances[k, missing[b], missing[b]]
                        for a in range(n_seen):
                            total -= slopes[a, b] * slopes[a, b]
                        deviation[b] = math.sqrt(max(total, _LEAST_PIVOT))
                    is_new = False
                _residual(x[i], means[k], seen, n_seen, factor, residual)
                _conditional_means(
                    means[k], missing, n_missing, n_seen, slopes, residual, expected
                )
                for b in range(n_missing):
                    j = missing[b]
                    points = counts[j]
                    filled[i, j] += share * _cell_mean(
                        expected[b], deviation[b], scores[j, :points], cells[j, :points]
                    )
    return filled


@_compiled
def drawn_rows(
    x: np.ndarray,
    observed: np.ndarray,
    starts: np.ndarray,
    chosen: np.ndarray,
    noise: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
) -> None:
    """Draw missing cells given the component of each draw.

    Parameters
    ----------
    chosen : ndarray of int, of shape (n_draws, n)
    noise : ndarray of shape (n_draws, n, d)
        Standard normal numbers, which are replaced by the rows.
    """
    n_draws, _, d = noise.shape
    seen, missing = np.empty(d, np.int64), np.empty(d, np.int64)
    factor, slopes, left = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    residual, standard, expected = np.empty(d), np.empty(d), np.empty(d)
    for g in range(len(starts) - 1):
        n_seen, n_missing = _split(observed[starts[g]], seen, missing)
        for k in range(len(means)):
            is_new = True
            for i in range(starts[g], starts[g + 1]):
                is_solved = False
                for t in range(n_draws):
                    if chosen[t, i] != k:
                        continue
                    if is_new:
                        _observed_factor(covariances[k], seen, n_seen, factor)
                        _regression(
                            covariances[k],
                            seen,
                            n_seen,
                            missing,
                            n_missing,
                            factor,
                            slopes,
                        )
                        _left_variance(
                            covariances[k], missing, n_missing, n_seen, slopes, left
                        )
                        _factorise(left, n_missing)
                        is_new = False
                    if not is_solved:
                        _residual(x[i], means[k], seen, n_seen, factor, residual)
                        _conditional_means(
                            means[k],
                            missing,
                            n_missing,
                            n_seen,
                            slopes,
                            residual,
                            expected,
                        )
                        is_solved = True
                    for a in range(n_seen):
                        noise[t, i, seen[a]] = x[i, seen[a]]
                    for b in range(n_missing):
                        standard[b] = noise[t, i, missing[b]]
                    for b in range(n_missing):
                        total = expected[b]
                        for a in range(b + 1):
                            total += left[a, b] * standard[a]
                        noise[t, i, missing[b]] = total
