"""Compiled algebra of the blocks of a row's missing cells; the equations of `kernels`.

Inner loops run along rows of matrices, whose cells the processor handles together, and
read four rows before they write one.
"""

import math
from collections.abc import Callable

import numba
import numpy as np

_LEAST_PIVOT = 1e-12  # of precisions, which are at least 1 over the largest variance


def compiled(function: Callable) -> Callable:
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


@compiled
def factorise(a: np.ndarray, n: int) -> None:
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


@compiled
def factorised(
    precision: np.ndarray, missing: np.ndarray, n_missing: int, factor: np.ndarray
) -> float:
    """Compute U of eq. (1), and return the sum of the logs of its diagonal."""
    for a in range(n_missing):
        for b in range(a, n_missing):
            factor[a, b] = precision[missing[a], missing[b]]
    factorise(factor, n_missing)
    total = 0.0
    for a in range(n_missing):
        total += math.log(factor[a, a])
    return total


@compiled
def pulled(
    row: np.ndarray,
    mean: np.ndarray,
    precision: np.ndarray,
    seen: np.ndarray,
    n_seen: int,
    out: np.ndarray,
) -> float:
    """Compute P r for all columns, and return r' P_oo r."""
    d = len(out)
    out[:] = 0.0
    a = 0
    while a + 4 <= n_seen:  # as in `factorise`
        s0, s1, s2, s3 = seen[a], seen[a + 1], seen[a + 2], seen[a + 3]
        r0, r1 = row[s0] - mean[s0], row[s1] - mean[s1]
        r2, r3 = row[s2] - mean[s2], row[s3] - mean[s3]
        for b in range(d):
            near = r0 * precision[s0, b] + r1 * precision[s1, b]
            out[b] += near + r2 * precision[s2, b] + r3 * precision[s3, b]
        a += 4
    while a < n_seen:
        s0 = seen[a]
        r0 = row[s0] - mean[s0]
        for b in range(d):
            out[b] += r0 * precision[s0, b]
        a += 1
    square = 0.0
    for a in range(n_seen):
        square += (row[seen[a]] - mean[seen[a]]) * out[seen[a]]
    return square


@compiled
def whitened(
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


@compiled
def solve(factor: np.ndarray, n: int, out: np.ndarray) -> None:
    """Replace a vector by U^-1 times it."""
    for a in range(n - 1, -1, -1):
        total = out[a]
        for b in range(a + 1, n):
            total -= factor[a, b] * out[b]
        out[a] = total / factor[a, a]


@compiled
def inverse(factor: np.ndarray, n: int, out: np.ndarray) -> None:
    """Compute the upper triangle of U^-1, and 0 below it."""
    for a in range(n - 1, -1, -1):
        for b in range(n):
            out[a, b] = 0.0
        e = a + 1
        while e + 4 <= n:  # as in `factorise`
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


@compiled
def split(
    observed: np.ndarray, seen: np.ndarray, missing: np.ndarray
) -> tuple[int, int]:
    """List the observed and the missing columns, and count them."""
    n_seen = n_missing = 0
    for j in range(len(observed)):
        if observed[j]:
            seen[n_seen] = j
            n_seen += 1
        else:
            missing[n_missing] = j
            n_missing += 1
    return n_seen, n_missing
