"""Compiled loops over rows: densities, conditional moments and draws of components.

Rows are sorted by pattern of missing cells.  The rows of a group share a pattern, and
thus for each component k the factor L_k of its covariance S_k of the observed columns o,

    S_k,oo = L_k L_k',    B_k = L_k^-1 S_k,om,    V_k = S_k,mm - B_k' B_k            (1)
    x_m | x_o, k ~ N(mean_k,m + B_k' r, V_k),     r = L_k^-1 (x_o - mean_k,o)        (2)
    log N(x_o) = -(r' r + |o| log 2 pi) / 2 - sum log diag L_k                       (3)

Where patterns repeat, eq. (1) is computed once a group; where each row has its own, all
of it stays in the cache of the processor, which batches of small matrices do not.
"""

import math

import numba
import numpy as np

_BLOCK = 64  # rows whose residuals of all components fit into the cache
_LEAST_PIVOT = 1e-12  # of a covariance of columns of unit variance
_NEVER = -1e300  # log-weight of a component that a row skips; exp() of it is 0


def _compiled(function):
    """Compile a function; keep the code on disk where a folder can be written."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc"}}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba finds no folder for its cache
        return numba.njit(**options)(function)


@_compiled
def _factorise(a, n):
    """Replace the lower triangle of a (n, n) by its Cholesky factor."""
    for j in range(n):
        for k in range(j):
            a[j, j] -= a[j, k] * a[j, k]
        a[j, j] = math.sqrt(max(a[j, j], _LEAST_PIVOT))
        for i in range(j + 1, n):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            a[i, j] = total / a[j, j]


@_compiled
def _observed_factor(covariance, seen, n_seen, factor):
    """Factorise the observed block, and return the log of its half determinant."""
    for a in range(n_seen):
        for b in range(a + 1):
            factor[a, b] = covariance[seen[a], seen[b]]
    _factorise(factor, n_seen)
    log_det = 0.0
    for a in range(n_seen):
        log_det += math.log(factor[a, a])
    return log_det


@_compiled
def _residual(row, mean, seen, n_seen, factor, out):
    """Solve for r of eq. (2), and return r' r."""
    square = 0.0
    for a in range(n_seen):
        total = row[seen[a]] - mean[seen[a]]
        for b in range(a):
            total -= factor[a, b] * out[b]
        out[a] = total / factor[a, a]
        square += out[a] * out[a]
    return square


@_compiled
def _regression(covariance, seen, n_seen, missing, n_missing, factor, out):
    """Solve for the transpose of B of eq. (1)."""
    for b in range(n_missing):
        for a in range(n_seen):
            total = covariance[seen[a], missing[b]]
            for e in range(a):
                total -= factor[a, e] * out[b, e]
            out[b, a] = total / factor[a, a]


@_compiled
def _left_variance(covariance, missing, n_missing, n_seen, slopes, out):
    """Compute the lower triangle of V of eq. (1)."""
    for a in range(n_missing):
        for b in range(a + 1):
            total = covariance[missing[a], missing[b]]
            for e in range(n_seen):
                total -= slopes[a, e] * slopes[b, e]
            out[a, b] = total


@_compiled
def _split(observed, seen, missing):
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
def _normalise(scores, n_components, least):
    """Turn log-weights into probabilities without those below `least`; their log-sum."""
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
def scores_of_rows(x, observed, starts, prior, means, covariances, skipped):
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
def normalised(scores, least):
    """Turn scores into responsibilities in place; return the log-density of rows."""
    found = np.empty(len(scores))
    for i in range(len(scores)):
        found[i] = _normalise(scores[i], scores.shape[1], least)
    return found


@_compiled
def expected_sums(x, observed, starts, weights, responsibilities, means, covariances):
    """Sum completed rows of each component: the E-step.

    Returns
    -------
    totals : ndarray of shape (n_components,)
    first : ndarray of shape (n_components, d)
    second : ndarray of shape (n_components, d, d)
        The lower triangles.
    """
    d = x.shape[1]
    n_components = len(means)
    totals, first = np.zeros(n_components), np.zeros((n_components, d))
    second = np.zeros((n_components, d, d))
    seen, missing = np.empty(d, np.int64), np.empty(d, np.int64)
    factor, slopes, left = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    residual, row = np.empty(d), np.empty(d)
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
                            covariances[k], seen, n_seen, missing, n_missing, factor, slopes
                        )
                        is_new = False
                    _residual(x[i], means[k], seen, n_seen, factor, residual)
                    for b in range(n_missing):
                        total = means[k, missing[b]]
                        for a in range(n_seen):
                            total += slopes[b, a] * residual[a]
                        row[missing[b]] = total
                mass += weight
                for a in range(d):
                    scaled = weight * row[a]
                    first[k, a] += scaled
                    for b in range(a + 1):
                        second[k, a, b] += scaled * row[b]
            totals[k] += mass
            if n_missing and mass:
                _left_variance(covariances[k], missing, n_missing, n_seen, slopes, left)
                for a in range(n_missing):
                    for b in range(a + 1):  # `missing` increases
                        second[k, missing[a], missing[b]] += mass * left[a, b]
    return totals, first, second


@_compiled
def _cell_mean(mean, deviation, scores, cells):
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
    x, observed, starts, responsibilities, means, covariances, scores, cells, counts
):
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
    deviation = np.empty(d)
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
                            total -= slopes[b, a] * slopes[b, a]
                        deviation[b] = math.sqrt(max(total, _LEAST_PIVOT))
                    is_new = False
                _residual(x[i], means[k], seen, n_seen, factor, residual)
                for b in range(n_missing):
                    j = missing[b]
                    mean = means[k, j]
                    for a in range(n_seen):
                        mean += slopes[b, a] * residual[a]
                    points = counts[j]
                    filled[i, j] += share * _cell_mean(
                        mean, deviation[b], scores[j, :points], cells[j, :points]
                    )
    return filled


@_compiled
def drawn_rows(x, observed, starts, chosen, noise, means, covariances):
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
    residual, standard = np.empty(d), np.empty(d)
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
                            covariances[k], seen, n_seen, missing, n_missing, factor, slopes
                        )
                        _left_variance(
                            covariances[k], missing, n_missing, n_seen, slopes, left
                        )
                        _factorise(left, n_missing)
                        is_new = False
                    if not is_solved:
                        _residual(x[i], means[k], seen, n_seen, factor, residual)
                        is_solved = True
                    for a in range(n_seen):
                        noise[t, i, seen[a]] = x[i, seen[a]]
                    for b in range(n_missing):
                        standard[b] = noise[t, i, missing[b]]
                    for b in range(n_missing):
                        total = means[k, missing[b]]
                        for a in range(n_seen):
                            total += slopes[b, a] * residual[a]
                        for a in range(b + 1):
                            total += left[b, a] * standard[a]
                        noise[t, i, missing[b]] = total
