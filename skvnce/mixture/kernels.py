"""Compiled loops over rows: densities, conditional moments and draws of components.

Rows are sorted by their pattern of missing cells.  With P_k the inverse of the
covariance S_k of component k, o and m the observed and missing columns of a row, and r
its observed cells minus their mean,

    P_k,mm = U' U,    w = U'^-1 P_k,mo r                                             (1)
    x_m | x_o, k ~ N(mean_k,m - U^-1 w, U^-1 U'^-1)                                  (2)
    log N(x_o) = (log|P_k| - r' P_k,oo r + w' w - |o| log 2 pi) / 2 - sum log diag U (3)

Where patterns repeat, U is computed once a group; where each row has its own, all of it
stays in the cache of the processor, which batches of small matrices do not.  Inner
loops run along rows of matrices, whose cells the processor handles together, and read
four rows before they write one.

All functions are in one file: numba compiles anew what has changed in the file of the
function that is called, and not what that imports.
"""

import math

import numpy as np

from skvnce._core.compiled import compiled

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # x, observed and starts of `Arranged`
Normals = tuple[np.ndarray, np.ndarray]  # means and precisions of the components

_LEAST_PIVOT = 1e-12  # of precisions, which are at least 1 over the largest variance
_NORMAL_TAIL = 4.5  # deviations beyond which a normal variable is negligible (3e-6)
_NEVER = -1e300  # log-weight of a component that a row skips; exp() of it is 0
_compiled = compiled(fastmath={"contract", "reassoc"})


@_compiled
def _factorise(a: np.ndarray, n: int) -> None:
    """Replace the upper triangle of a (n, n) by U, where a = U' U."""
    for j in range(n):
        e = 0
        while e + 4 <= j:  # four rows are read before one is written
            c0, c1, c2, c3 = a[e, j], a[e + 1, j], a[e + 2, j], a[e + 3, j]
            for k in range(j, n):
                near = c0 * a[e, k] + c1 * a[e + 1, k]
                a[j, k] -= near + c2 * a[e + 2, k] + c3 * a[e + 3, k]
            e += 4
        while e < j:
            c0 = a[e, j]
            for k in range(j, n):
                a[j, k] -= c0 * a[e, k]
            e += 1
        scale = 1 / math.sqrt(max(a[j, j], _LEAST_PIVOT))
        for k in range(j, n):
            a[j, k] *= scale


@_compiled
def _factorise_missing(
    precision: np.ndarray, missing: np.ndarray, n_missing: int, factor: np.ndarray
) -> float:
    """Compute U of eq. (1), and return the sum of the logs of its diagonal."""
    for a in range(n_missing):
        for b in range(a, n_missing):
            factor[a, b] = precision[missing[a], missing[b]]
    _factorise(factor, n_missing)
    total = 0.0
    for a in range(n_missing):
        total += math.log(factor[a, a])
    return total


@_compiled
def _pull(
    row: np.ndarray,
    mean: np.ndarray,
    precision: np.ndarray,
    present: np.ndarray,
    n_present: int,
    out: np.ndarray,
) -> float:
    """Compute P r for all columns, and return r' P_oo r."""
    d = len(out)
    out[:] = 0.0
    a = 0
    while a + 4 <= n_present:  # as in `_factorise`
        s0, s1, s2, s3 = present[a], present[a + 1], present[a + 2], present[a + 3]
        r0, r1 = row[s0] - mean[s0], row[s1] - mean[s1]
        r2, r3 = row[s2] - mean[s2], row[s3] - mean[s3]
        for b in range(d):
            near = r0 * precision[s0, b] + r1 * precision[s1, b]
            out[b] += near + r2 * precision[s2, b] + r3 * precision[s3, b]
        a += 4
    while a < n_present:
        s0 = present[a]
        r0 = row[s0] - mean[s0]
        for b in range(d):
            out[b] += r0 * precision[s0, b]
        a += 1
    square = 0.0
    for a in range(n_present):
        square += (row[present[a]] - mean[present[a]]) * out[present[a]]
    return square


@_compiled
def _whiten(
    pull: np.ndarray,
    missing: np.ndarray,
    n_missing: int,
    factor: np.ndarray,
    out: np.ndarray,
) -> float:
    """Solve for w of eq. (1), and return w' w."""
    for a in range(n_missing):
        out[a] = pull[missing[a]]
    square = 0.0
    for a in range(n_missing):
        scale = out[a] / factor[a, a]
        out[a] = scale
        square += scale * scale
        for b in range(a + 1, n_missing):
            out[b] -= scale * factor[a, b]
    return square


@_compiled
def _solve(factor: np.ndarray, n: int, out: np.ndarray) -> None:
    """Replace a vector by U^-1 times it."""
    for a in range(n - 1, -1, -1):
        total = out[a]
        for b in range(a + 1, n):
            total -= factor[a, b] * out[b]
        out[a] = total / factor[a, a]


@_compiled
def _complete(
    mean: np.ndarray,
    pull: np.ndarray,
    missing: np.ndarray,
    n_missing: int,
    factor: np.ndarray,
    out: np.ndarray,
) -> None:
    """Compute the means of eq. (2)."""
    _whiten(pull, missing, n_missing, factor, out)
    _solve(factor, n_missing, out)
    for b in range(n_missing):
        out[b] = mean[missing[b]] - out[b]


@_compiled
def _inverse(factor: np.ndarray, n: int, out: np.ndarray) -> None:
    """Compute the upper triangle of U^-1, and 0 below it."""
    for a in range(n - 1, -1, -1):
        for b in range(n):
            out[a, b] = 0.0
        e = a + 1
        while e + 4 <= n:  # as in `_factorise`
            c0, c1 = factor[a, e], factor[a, e + 1]
            c2, c3 = factor[a, e + 2], factor[a, e + 3]
            for b in range(e, n):  # below the diagonal are zeros
                near = c0 * out[e, b] + c1 * out[e + 1, b]
                out[a, b] -= near + c2 * out[e + 2, b] + c3 * out[e + 3, b]
            e += 4
        while e < n:
            c0 = factor[a, e]
            for b in range(e, n):
                out[a, b] -= c0 * out[e, b]
            e += 1
        out[a, a] = 1.0
        for b in range(a, n):
            out[a, b] /= factor[a, a]


@_compiled
def _split(
    observed: np.ndarray, present: np.ndarray, missing: np.ndarray
) -> tuple[int, int]:
    """List the observed and the missing columns, and count them."""
    n_present = n_missing = 0
    for j in range(len(observed)):
        if observed[j]:
            present[n_present] = j
            n_present += 1
        else:
            missing[n_missing] = j
            n_missing += 1
    return n_present, n_missing


@_compiled
def _normalise(scores: np.ndarray, least: float) -> float:
    """Turn log-weights into shares, 0 for those below `least`; return the log-sum.

    The largest share remains in any case.
    """
    top, total, retained = scores.max(), 0.0, 0.0
    for k in range(len(scores)):
        scores[k] = math.exp(scores[k] - top)
        total += scores[k]
    least = min(least, 1 / total)
    for k in range(len(scores)):
        scores[k] /= total
        if scores[k] < least:
            scores[k] = 0.0
        retained += scores[k]
    for k in range(len(scores)):
        scores[k] /= retained
    return math.log(total) + top


@_compiled
def _add_covariance(
    factor: np.ndarray,
    missing: np.ndarray,
    n_missing: int,
    mass: float,
    inverse: np.ndarray,
    second: np.ndarray,
) -> None:
    """Add the covariance of eq. (2), times the mass of its rows, to `second`."""
    _inverse(factor, n_missing, inverse)
    for a in range(n_missing):
        for b in range(a, n_missing):  # `missing` increases
            total = 0.0
            for e in range(b, n_missing):
                total += inverse[a, e] * inverse[b, e]
            second[missing[a], missing[b]] += mass * total


@_compiled
def expectation(
    rows: Rows,
    weights: np.ndarray,  # (n,), rows of weight 0 are not completed
    prior: np.ndarray,
    normals: Normals,
    log_dets: np.ndarray,  # (n_components,), of P_k
    skipped: np.ndarray,
    limits: tuple[float, float],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sum completed rows of each component: the E-step, in one pass over the rows.

    `prior` (n, n_components): logarithms of the weights of the components, to which eq.
    (3) is added; `skipped`, bool (n, n_components): components that do not count in a
    row.  Those whose sum is less than the largest one plus the first of `limits` are
    added, in place.  `limits`: the second is the responsibility below which a component
    does not count.  Returns `responsibilities` (n, n_components); `log_density` (n,);
    `totals` (n_components,); `first` (n_components, d); `second` (n_components, d, d):
    the upper triangles.
    """
    x, observed, starts = rows
    means, precisions = normals
    n, d = x.shape
    n_components = len(means)
    shares, log_density = np.empty((n, n_components)), np.empty(n)
    totals, first = np.zeros(n_components), np.zeros((n_components, d))
    second = np.zeros((n_components, d, d))
    present, missing = np.empty(d, np.int64), np.empty(d, np.int64)
    # of each component: the pattern of its factor, and w of the row at hand
    current = np.full(n_components, -1)
    factors, whites = np.empty((n_components, d, d)), np.empty((n_components, d))
    log_diagonals, masses = np.empty(n_components), np.empty(n_components)
    inverted, pull, row = np.empty((d, d)), np.empty(d), np.empty(d)
    for g in range(len(starts) - 1):
        n_present, n_missing = _split(observed[starts[g]], present, missing)
        constant = 0.5 * n_present * math.log(2 * math.pi)
        masses[:] = 0.0
        for i in range(starts[g], starts[g + 1]):
            top = _NEVER
            for k in range(n_components):
                shares[i, k] = _NEVER
                if skipped[i, k]:
                    continue
                factor = factors[k]
                if current[k] != g:
                    log_diagonals[k] = _factorise_missing(
                        precisions[k], missing, n_missing, factor
                    )
                    current[k] = g
                square = _pull(x[i], means[k], precisions[k], present, n_present, pull)
                square -= _whiten(pull, missing, n_missing, factor, whites[k])
                log_normal = 0.5 * (log_dets[k] - square) - log_diagonals[k] - constant
                shares[i, k] = prior[i, k] + log_normal
                top = max(top, shares[i, k])
            for k in range(n_components):
                if shares[i, k] < top + limits[0]:
                    skipped[i, k] = True
            log_density[i] = _normalise(shares[i], limits[1])
            for k in range(n_components):
                weight = shares[i, k] * weights[i]
                if weight == 0.0:
                    continue
                row[:] = x[i]
                _solve(factors[k], n_missing, whites[k])
                for b in range(n_missing):
                    row[missing[b]] = means[k, missing[b]] - whites[k, b]
                masses[k] += weight
                for a in range(d):
                    scaled = weight * row[a]
                    first[k, a] += scaled
                    for b in range(a, d):
                        second[k, a, b] += scaled * row[b]
        for k in range(n_components):
            totals[k] += masses[k]
            if n_missing and masses[k]:
                _add_covariance(
                    factors[k], missing, n_missing, masses[k], inverted, second[k]
                )
    return shares, log_density, totals, first, second


@_compiled
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


@_compiled
def fill_rows(
    rows: Rows,
    responsibilities: np.ndarray,
    normals: Normals,
    points: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> np.ndarray:
    """Fill missing cells by means of functions of the columns, which are mixed.

    `points`: scores and cells (d, n_points) of the functions, see `_cell_mean`, and the
    numbers of points (d,).
    """
    x, observed, starts = rows
    means, precisions = normals
    scores, cells, counts = points
    n, d = x.shape
    filled = np.zeros((n, d))
    present, missing = np.empty(d, np.int64), np.empty(d, np.int64)
    factor, inverted = np.empty((d, d)), np.empty((d, d))
    pull, expected, deviation = np.empty(d), np.empty(d), np.empty(d)
    for g in range(len(starts) - 1):
        n_present, n_missing = _split(observed[starts[g]], present, missing)
        if not n_missing:
            continue
        for k in range(len(means)):
            is_new = True
            for i in range(starts[g], starts[g + 1]):
                share = responsibilities[i, k]
                if share == 0.0:
                    continue
                if is_new:
                    _factorise_missing(precisions[k], missing, n_missing, factor)
                    _inverse(factor, n_missing, inverted)
                    for b in range(n_missing):
                        total = 0.0
                        for e in range(b, n_missing):
                            total += inverted[b, e] * inverted[b, e]
                        deviation[b] = math.sqrt(total)
                    is_new = False
                _pull(x[i], means[k], precisions[k], present, n_present, pull)
                _complete(means[k], pull, missing, n_missing, factor, expected)
                for b in range(n_missing):
                    j = missing[b]
                    count = counts[j]
                    filled[i, j] += share * _cell_mean(
                        expected[b], deviation[b], scores[j, :count], cells[j, :count]
                    )
    return filled


@_compiled
def draw_rows(
    rows: Rows, chosen: np.ndarray, noise: np.ndarray, normals: Normals
) -> None:
    """Draw missing cells given the component of each draw.

    `chosen`, int (n_draws, n); `noise` (n_draws, n, d): standard normal numbers, which
    are replaced by the rows.
    """
    x, observed, starts = rows
    means, precisions = normals
    n_draws, _, d = noise.shape
    present, missing = np.empty(d, np.int64), np.empty(d, np.int64)
    factor, pull = np.empty((d, d)), np.empty(d)
    expected, standard = np.empty(d), np.empty(d)
    for g in range(len(starts) - 1):
        n_present, n_missing = _split(observed[starts[g]], present, missing)
        for k in range(len(means)):
            is_new = True
            for i in range(starts[g], starts[g + 1]):
                is_solved = False
                for t in range(n_draws):
                    if chosen[t, i] != k:
                        continue
                    if is_new:
                        _factorise_missing(precisions[k], missing, n_missing, factor)
                        is_new = False
                    if not is_solved:
                        _pull(x[i], means[k], precisions[k], present, n_present, pull)
                        _complete(means[k], pull, missing, n_missing, factor, expected)
                        is_solved = True
                    for a in range(n_present):
                        noise[t, i, present[a]] = x[i, present[a]]
                    for b in range(n_missing):
                        standard[b] = noise[t, i, missing[b]]
                    _solve(factor, n_missing, standard)
                    for b in range(n_missing):
                        noise[t, i, missing[b]] = expected[b] + standard[b]
