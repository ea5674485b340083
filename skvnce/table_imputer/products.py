"""Squares and interactions that the residuals of a normal distribution ask for.

A triple is two factors and a target.  The normal distribution knows the target's
regression on both factors, but not on their product; the correlation of the product
with held-out residuals of the target says whether it is missing there.
"""

from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

_LEVEL = 1.0  # expected number of products that are chosen by chance in a table
_PRIOR = 0.25  # prior odds of a product that is chosen
_FEWEST = 30  # rows that observe a triple
_CLIP = 3.0  # standard deviations, to which factors are clipped
_SELECTED = 2.5  # |t| of a target in the regression of "missing", see `selection`


class Candidate(NamedTuple):
    """A product of two columns of the matrix for a target."""

    first: int
    second: int
    target: int
    probability: float


def choose_products(X, columns, n_base, filled, residuals, weights, most):
    """Choose the best target of each product whose residuals ask for it.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        NaN marks missing cells.
    columns : ndarray of int
        Those that may be factors or targets: numbers, grades and two levels.
    n_base : int
        Columns of X that are no functions of others.
    filled : ndarray of shape (n, d)
    residuals : ndarray of shape (n, d)
        Held-out residuals of the regression of each column on all others, NaN where it
        is missing.
    weights : ndarray of shape (n,)
    most : int

    Returns
    -------
    list of Candidate
    """
    pairs = [
        (j, k)
        for j, k in combinations_with_replacement(columns.tolist(), 2)
        if j != k or _has_square(X[:, j])
    ]
    if not pairs or most < 1:
        return []
    t, n_both = _statistics(pairs, columns, filled, residuals, weights)
    base = np.arange(n_base)
    selected = {j: selection(X, j, base, filled, weights) for j in columns.tolist()}
    bound = ndtri(1 - min(_LEVEL / t.size, 0.4))
    used, pairs_used, chosen = set(), set(), []
    for place in np.argsort(-abs(t), axis=None):
        q, b = np.unravel_index(place, t.shape)
        if abs(t[q, b]) < bound or len(chosen) >= most:
            break
        (j, k), i = pairs[q], int(columns[b])
        if max(abs(selected[f].get(i, 0.0)) for f in (j, k)) > _SELECTED:
            continue
        triple = frozenset((j, k, i))
        if triple not in used and (j, k) not in pairs_used:
            # Bayesian information criterion
            log_odds = np.log(_PRIOR) + (t[q, b] ** 2 - np.log(n_both[q, b])) / 2
            chosen.append(Candidate(j, k, i, float(1 / (1 + np.exp(-log_odds)))))
            pairs_used.add((j, k))
        used.add(triple)
    return chosen


def _has_square(x):
    """Say whether the square of a column is not a linear function of it."""
    return len(np.unique(x[~np.isnan(x)])) > 2


def _statistics(pairs, columns, filled, residuals, weights):
    """Compute t, robust to unequal variances, of products (q) for targets (b)."""
    Z = filled.clip(-_CLIP, _CLIP)
    P = np.stack([Z[:, j] * Z[:, k] for j, k in pairs], 1)
    P -= weights @ P / weights.sum()
    R, seen = np.nan_to_num(residuals[:, columns]), ~np.isnan(residuals[:, columns])
    n_both = np.tile(weights @ seen, (len(pairs), 1))
    W = weights[:, None]
    with np.errstate(all="ignore"):
        t = np.nan_to_num(P.T @ (W * R) / np.sqrt((P**2).T @ (W * R**2)))
    for q, pair in enumerate(pairs):
        t[q, np.isin(columns, pair)] = 0.0
    t[n_both < _FEWEST] = 0.0
    return t, n_both


def selection(X, factor, columns, filled, weights):
    """Compute t of each column in a regression of "the factor is missing".

    If a target decides which cells of a factor are missing, rows that observe the
    factor bend the target's regression on it, and a product would seem to be there.

    Returns
    -------
    dict of int to float
    """
    gone, others = np.isnan(X[:, factor]), columns[columns != factor]
    if not gone.any() or not len(others):
        return {}
    A = np.column_stack([np.ones(len(X)), filled[:, others]])
    G = np.linalg.pinv(A.T @ (weights[:, None] * A))
    b = G @ A.T @ (weights * gone)
    rest = gone - A @ b
    variance = weights @ rest**2 / max(weights.sum() - A.shape[1], 1.0)
    t = b / np.sqrt(np.maximum(np.diag(G), 1e-12) * max(variance, 1e-300))
    return dict(zip(others.tolist(), t[1:].tolist(), strict=True))
