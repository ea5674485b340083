"""Probabilities of edges, from scores that are standard normal without an edge.

The score of a pair is N(0, 1) without an edge and N(t, 1) with one.  The share of edges
pi is zero with probability `_NO_EDGE`, and otherwise has a beta distribution.  An edge
is positive with probability rho, and the size |t| has a gamma distribution:

    p(w) = (1 - pi) N(w; 0, 1) + pi [rho f(w) + (1 - rho) f(-w)],                    (1)
    f(w) = integral of N(w; t, 1) Gamma(t; shape k, mean m) over t > 0.              (2)

The null is the one of theory and has no free mean, width or share: a maximum of the
likelihood may put a free slab on the null, and call all pairs of a small table edges.
For the same reason pi, rho, k and m are integrated over and not estimated (Scott and
Berger 2010, Bayes and empirical-Bayes multiplicity adjustment in the variable-selection
problem): 28 pairs of 8 columns with two edges say little about them.  Scores without a
sign have rho = 1, and their own k and m; all pairs of a table share pi.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_FAR = 25.0  # larger scores are edges in any case, with the same probability as this
_STEP = 0.05
_SCORES = np.arange(-_FAR, _FAR + _STEP / 2, _STEP)  # at which densities are computed
_SIZES = np.arange(0.1, 40.0, 0.2)  # t of eq. (2), of the midpoint rule
_SHAPES = 2.0, 4.0, 8.0  # few edges of size near 0, which look like the null
_MEANS = np.geomspace(2**0.5, 16, 8)
_POSITIVE = 0.0, 0.2, 0.5, 0.8, 1.0  # rho
_SHARES = 1 / (1 + np.exp(-np.linspace(-5.5, 4.0, 16)))  # pi, if there are edges
_SPARSE = 1.0, 3.0  # of the beta distribution: a quarter of all pairs on average
_NO_EDGE = 0.5  # noise gives a pair above one half in 1 to 3 tables of 100
_RARE = 1e-7  # weight of values of the parameters that are left out


class Group(NamedTuple):
    """Scores with signs, or without, on the grid of scores."""

    counts: np.ndarray  # (n_scores,), numbers of pairs
    # (n_scores, n_parameters), densities with an edge, for equally probable values of
    # rho, k and m
    edge: np.ndarray


def probabilities_of_scores(scores: Tensor, unsigned: Tensor) -> Tensor:
    """Compute the posterior probability that each pair has an edge.

    `scores`: (features, features), symmetric; N(0, 1) without an edge. `unsigned`:
    (features, features), bool, symmetric; pairs whose scores are positive with an edge.
    Result: (features, features), zero on the diagonal.
    """
    found, (i, j) = torch.zeros_like(scores), torch.triu_indices(*scores.shape, 1)
    w, some = scores[i, j].clamp(-_FAR, _FAR).numpy(), unsigned[i, j].numpy()
    members = [where for where in (~some, some) if where.any()]
    groups = [_group(w[where], not some[where][0]) for where in members]
    each = np.zeros(len(w))
    for where, curve in zip(members, _curves(groups), strict=True):
        each[where] = np.interp(w[where], _SCORES, curve)
    found[i, j] = found[j, i] = torch.from_numpy(each).to(scores)
    return found


def _group(w: np.ndarray, signed: bool) -> Group:
    """Count scores on the grid."""
    # scores on a grid need one evaluation of the densities for all pairs
    places = np.rint((w + _FAR) / _STEP).astype(int)
    densities = _signed_densities() if signed else _densities()
    return Group(np.bincount(places, minlength=len(_SCORES)), densities)


@cache
def _densities() -> np.ndarray:
    """Compute f of eq. (2) for all k and m; (n_scores, n_parameters)."""
    rates = [(k, k / mean) for k in _SHAPES for mean in _MEANS]
    weights = np.stack([_SIZES ** (k - 1) * np.exp(-_SIZES * r) for k, r in rates])
    weights /= weights.sum(1, keepdims=True)
    return _normal(_SCORES[:, None] - _SIZES) @ weights.T


def _normal(w: np.ndarray) -> np.ndarray:
    """Compute the standard normal density, but for a factor that cancels."""
    return np.exp(-w * w / 2)


@cache
def _signed_densities() -> np.ndarray:
    """Compute the bracket of eq. (1) for all rho, k and m."""
    positive = _densities()
    negative = positive[::-1]
    return np.concatenate([r * positive + (1 - r) * negative for r in _POSITIVE], 1)


def _mixed(share: float, edge: np.ndarray, where: slice | np.ndarray) -> np.ndarray:
    """Compute eq. (1) at some scores; (n_scores, n_parameters)."""
    return (1 - share) * _normal(_SCORES[where])[:, None] + share * edge[where]


def _log_likelihoods(group: Group) -> np.ndarray:
    """Compute those of all shares and other parameters; (1 + n_shares, n_parameters).

    The other parameters are equally probable, and their prior is included.
    """
    there = np.flatnonzero(group.counts)
    counts, prior = group.counts[there], -np.log(group.edge.shape[1])
    shares = 0.0, *_SHARES
    return prior + np.stack(
        [counts @ np.log(_mixed(share, group.edge, there)) for share in shares]
    )


def _log_prior() -> np.ndarray:
    """Compute log-probabilities of shares: 0, then some of equally spaced log-odds."""
    a, b = _SPARSE
    some = _SHARES**a * (1 - _SHARES) ** b
    return np.log([_NO_EDGE, *(1 - _NO_EDGE) * some / some.sum()])


def _curves(groups: list[Group]) -> list[np.ndarray]:
    """Compute the probabilities of edges at all scores, for each group."""
    fits = [_log_likelihoods(group) for group in groups]
    totals = [np.logaddexp.reduce(fit, axis=1) for fit in fits]
    share = _log_prior() + sum(totals)
    share -= np.logaddexp.reduce(share)
    return [
        _curve(group, np.exp(fit + (share - total)[:, None]))
        for group, fit, total in zip(groups, fits, totals, strict=True)
    ]


def _curve(group: Group, weights: np.ndarray) -> np.ndarray:
    """Average the probabilities over the parameters; (n_scores,)."""
    found = np.zeros(len(_SCORES))
    for share, weight in zip(_SHARES, weights[1:], strict=True):
        some = weight > _RARE
        edge = group.edge[:, some]
        found += share * edge / _mixed(share, edge, slice(None)) @ weight[some]
    return found
