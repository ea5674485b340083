"""Compiled loops over rows: densities, conditional moments and draws of components.

Rows are sorted by their pattern of missing cells.  With P_k the inverse of the
covariance S_k of component k, o and m the observed and missing columns of a row, and r
its observed cells minus their mean,

    P_k,mm = U' U,    w = U'^-1 P_k,mo r                                             (1)
    x_m | x_o, k ~ N(mean_k,m - U^-1 w, U^-1 U'^-1)                                  (2)
    log N(x_o) = (log|P_k| - r' P_k,oo r + w' w - |o| log 2 pi) / 2 - sum log diag U (3)

Where patterns repeat, U is computed once a group; where each row has its own, all of it
stays in the cache of the processor, which batches of small matrices do not.
"""

import math

import numpy as np

from skvnce.algorithms.mixture.blocks import (
    compiled,
    factorised,
    inverse,
    pulled,
    solve,
    split,
    whitened,
)

_NORMAL_TAIL = 4.5  # deviations beyond which a normal variable is negligible (3e-6)
_NEVER = -1e300  # log-weight of a component that a row skips; exp() of it is 0


@compiled
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


@compiled
def scores_of_rows(
    x: np.ndarray,
    observed: np.ndarray,
    starts: np.ndarray,
    prior: np.ndarray,
    means: np.ndarray,
    precisions: np.ndarray,
    log_dets: np.ndarray,
    skipped: np.ndarray,
) -> np.ndarray:
    """Compute log weights of the components plus eq. (3); (n, n_components).

    `log_dets` (n_components,) are those of P_k.
    """
    n, d = x.shape
    n_components = len(means)
    scores = np.empty((n, n_components))
    seen, missing = np.empty(d, np.int64), np.empty(d, np.int64)
    factor, pull, white = np.empty((d, d)), np.empty(d), np.empty(d)
    for g in range(len(starts) - 1):
        n_seen, n_missing = split(observed[starts[g]], seen, missing)
        constant = 0.5 * n_seen * math.log(2 * math.pi)
        for k in range(n_components):
            is_new = True
            for i in range(starts[g], starts[g + 1]):
                if skipped[i, k]:
                    scores[i, k] = _NEVER
                    continue
                if is_new:
                    log_det = factorised(precisions[k], missing, n_missing, factor)
                    is_new = False
                square = pulled(x[i], means[k], precisions[k], seen, n_seen, pull)
                square -= whitened(pull, missing, n_missing, factor, white)
                log_density = 0.5 * (log_dets[k] - square) - log_det - constant
                scores[i, k] = prior[i, k] + log_density
    return scores


@compiled
def normalised(scores: np.ndarray, least: float) -> np.ndarray:
    """Turn scores into responsibilities in place; return the log-density of rows."""
    found = np.empty(len(scores))
    for i in range(len(scores)):
        found[i] = _normalise(scores[i], scores.shape[1], least)
    return found


@compiled
def expected_sums(
    x: np.ndarray,
    observed: np.ndarray,
    starts: np.ndarray,
    weights: np.ndarray,
    responsibilities: np.ndarray,
    means: np.ndarray,
    precisions: np.ndarray,
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
    factor, inverted = np.empty((d, d)), np.empty((d, d))
    pull, step, row = np.empty(d), np.empty(d), np.empty(d)
    for g in range(len(starts) - 1):
        n_seen, n_missing = split(observed[starts[g]], seen, missing)
        for k in range(n_components):
            mass, is_new = 0.0, True
            for i in range(starts[g], starts[g + 1]):
                weight = responsibilities[i, k] * weights[i]
                if weight == 0.0:
                    continue
                row[:] = x[i]
                if n_missing:
                    if is_new:
                        factorised(precisions[k], missing, n_missing, factor)
                        is_new = False
                    pulled(x[i], means[k], precisions[k], seen, n_seen, pull)
                    whitened(pull, missing, n_missing, factor, step)
                    solve(factor, n_missing, step)
                    for b in range(n_missing):
                        row[missing[b]] = means[k, missing[b]] - step[b]
                mass += weight
                for a in range(d):
                    scaled = weight * row[a]
                    first[k, a] += scaled
                    for b in range(a, d):
                        second[k, a, b] += scaled * row[b]
            totals[k] += mass
            if n_missing and mass:
                inverse(factor, n_missing, inverted)
                for a in range(n_missing):
                    for b in range(a, n_missing):  # `missing` increases
                        total = 0.0
                        for e in range(b, n_missing):
                            total += inverted[a, e] * inverted[b, e]
                        second[k, missing[a], missing[b]] += mass * total
    return totals, first, second


@compiled
def _cell_mean(
    mean: float, deviation: float, scores: np.ndarray, cells: np.ndarray
) -> float:
    """Compute the mean of a piecewise linear function of N(mean, deviation**2).

    The function runs through (scores, cells); beyond the last points it continues.
    """
    reach = _NORMAL_TAIL * deviation
    first = np.searchsorted(scores[1:-1], mean - reach)
    step = scores[first + 1] - scores[first]
    slope = (cells[first + 1] - cells[first]) / step
    total = cells[first] + slope * (mean - scores[first])
    for j in range(first + 1, len(scores) - 1):
        if scores[j] > mean + reach:
            break
        new = (cells[j + 1] - cells[j]) / (scores[j + 1] - scores[j])
        far = (mean - scores[j]) / deviation
        density = math.exp(-0.5 * far * far) / math.sqrt(2 * math.pi)
        share = 0.5 * math.erfc(-far / math.sqrt(2.0))
        total += (new - slope) * deviation * (far * share + density)
        slope = new
    return total


@compiled
def filled_rows(
    x: np.ndarray,
    observed: np.ndarray,
    starts: np.ndarray,
    responsibilities: np.ndarray,
    means: np.ndarray,
    precisions: np.ndarray,
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
    factor, inverted = np.empty((d, d)), np.empty((d, d))
    pull, step, deviation = np.empty(d), np.empty(d), np.empty(d)
    for g in range(len(starts) - 1):
        n_seen, n_missing = split(observed[starts[g]], seen, missing)
        if not n_missing:
            continue
        for k in range(len(means)):
            is_new = True
            for i in range(starts[g], starts[g + 1]):
                share = responsibilities[i, k]
                if share == 0.0:
                    continue
                if is_new:
                    factorised(precisions[k], missing, n_missing, factor)
                    inverse(factor, n_missing, inverted)
                    for b in range(n_missing):
                        total = 0.0
                        for e in range(b, n_missing):
                            total += inverted[b, e] * inverted[b, e]
                        deviation[b] = math.sqrt(total)
                    is_new = False
                pulled(x[i], means[k], precisions[k], seen, n_seen, pull)
                whitened(pull, missing, n_missing, factor, step)
                solve(factor, n_missing, step)
                for b in range(n_missing):
                    j = missing[b]
                    mean = means[k, j] - step[b]
                    points = counts[j]
                    filled[i, j] += share * _cell_mean(
                        mean, deviation[b], scores[j, :points], cells[j, :points]
                    )
    return filled


@compiled
def drawn_rows(
    x: np.ndarray,
    observed: np.ndarray,
    starts: np.ndarray,
    chosen: np.ndarray,
    noise: np.ndarray,
    means: np.ndarray,
    precisions: np.ndarray,
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
    factor, pull = np.empty((d, d)), np.empty(d)
    step, standard = np.empty(d), np.empty(d)
    for g in range(len(starts) - 1):
        n_seen, n_missing = split(observed[starts[g]], seen, missing)
        for k in range(len(means)):
            is_new = True
            for i in range(starts[g], starts[g + 1]):
                is_solved = False
                for t in range(n_draws):
                    if chosen[t, i] != k:
                        continue
                    if is_new:
                        factorised(precisions[k], missing, n_missing, factor)
                        is_new = False
                    if not is_solved:
                        pulled(x[i], means[k], precisions[k], seen, n_seen, pull)
                        whitened(pull, missing, n_missing, factor, step)
                        solve(factor, n_missing, step)
                        is_solved = True
                    for a in range(n_seen):
                        noise[t, i, seen[a]] = x[i, seen[a]]
                    for b in range(n_missing):
                        standard[b] = noise[t, i, missing[b]]
                    solve(factor, n_missing, standard)
                    for b in range(n_missing):
                        j = missing[b]
                        noise[t, i, j] = means[k, j] - step[b] + standard[b]
