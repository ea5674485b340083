"""Probabilities of edges, from a mixture fitted to the strengths of all pairs.

The signed strengths w_ij of all pairs are modelled as draws from

    p(w) = pi_0 N(m_0, s_0^2) + pi_+ N(m_+, s_+^2) + pi_- N(m_-, s_-^2)              (1)

with m_- < m_0 < m_+, slabs at least as wide as the null, and at least half of the pairs
in the null; otherwise a single cluster of values could count as edges.  It is empirical
Bayes (Efron 2010, chapter 5): the null, the slabs and their shares, and so the signs of
the edges, are estimated from the values.  The null has its own mean, because missing
values and penalties shift all values of a table slightly in one direction.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# Gain in log-likelihood over one normal above which there are edges.  Draws of one
# normal exceed it in 1 table of 100 with 3 to 5 columns, in fewer with more columns
# (simulated).  AIC, which requires 6, finds edges in 4 to 14 of them.
_GAIN = 12.0
_NULL = 0.5  # minimum share of the null
_MAD = 0.6745  # median absolute deviation of a standard normal
_SIDE = np.array([0.0, 1.0, -1.0])  # of the null on which a component lies
_TINY = 1e-300  # share of a component that is not used


class Mixture(NamedTuple):
    """Shares, means and standard deviations of null, positive and negative slab."""

    share: Tensor
    mean: Tensor
    deviation: Tensor


def log_joint(w: Tensor, mixture: Mixture) -> Tensor:
    """Compute log(share * density) of eq. (1); (n,) -> (3, n)."""
    z = (w - mixture.mean[:, None]) / mixture.deviation[:, None]
    log_scale = mixture.share.log() - mixture.deviation.log()
    return log_scale[:, None] - z.square() / 2


def fit_mixture(w: Tensor, max_iter: int = 500, tol: float = 1e-8) -> Mixture:
    """Fit eq. (1) by EM; (n,) -> Mixture.

    It starts with a null as wide as the bulk of the values.
    """
    middle = w.median()
    bulk = ((w - middle).abs().median() / _MAD).clamp(min=1e-12)
    mixture = Mixture(
        w.new_tensor([0.8, 0.1, 0.1]),
        middle + bulk * w.new_tensor([0.0, 3.0, -3.0]),
        bulk.expand(3).clone(),
    )
    found = _climbed(w.numpy(), *(part.numpy() for part in mixture), max_iter, tol)
    return Mixture(*(torch.from_numpy(part) for part in found))


def fit_slabs(
    w: Tensor, signed: bool, max_iter: int = 500, tol: float = 1e-8
) -> Mixture:
    """Fit eq. (1) with the null N(0, 1); without a negative slab if not `signed`."""
    share = np.array([0.8, 0.1, 0.1] if signed else [0.8, 0.2, 0.0])
    start = share, 3 * _SIDE, np.ones(3)
    found = _climbed(w.numpy(), *start, max_iter, tol, is_known=True)
    return Mixture(*(torch.from_numpy(part) for part in found))


def _climbed(
    w: np.ndarray,
    share: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    max_iter: int,
    tol: float,
    is_known: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make the rounds of EM; in numpy, whose calls on few numbers are faster.

    If the null is known it keeps its mean and deviation, and has any share.
    """
    null, least = (mean[0], deviation[0]), deviation[0] * 1e-3
    used, fewest = share > 0, 0.0 if is_known else _NULL
    before = -np.inf
    for _ in range(max_iter):
        z = (w - mean[:, None]) / deviation[:, None]
        joint = np.log(np.maximum(share, _TINY) / deviation)[:, None] - z * z / 2
        top = joint.max(0)
        weight = np.exp(joint - top)
        density = weight.sum(0)
        log_likelihood = (np.log(density) + top).mean()
        if log_likelihood - before < tol:
            break
        before = log_likelihood
        weight /= density
        total = np.maximum(weight.sum(1), 1e-9)
        mean = weight @ w / total
        if is_known:
            mean[0] = null[0]
        mean = mean[0] + _SIDE * np.maximum(_SIDE * (mean - mean[0]), 0)
        variance = (weight * (w - mean[:, None]) ** 2).sum(1) / total
        deviation = np.maximum(np.sqrt(variance), least)
        if is_known:
            deviation[0] = null[1]
        deviation = np.maximum(deviation, deviation[0])
        share = total * used / (total * used).sum()
        slabs = share[1:] * (1 - max(share[0], fewest)) / share[1:].sum()
        share = np.array([1 - slabs.sum(), *slabs])
    return share, mean, deviation


def edge_probabilities(strengths: Tensor) -> Tensor:
    """Compute the posterior probability that each pair is not from the null.

    Parameters
    ----------
    strengths : Tensor of shape (features, features)
        Signed and symmetric, of an estimate without an L1 penalty.

    Returns
    -------
    Tensor of shape (features, features)
        Zero on the diagonal.  Zero for all pairs if they have fewer than two different
        values, or if the mixture gains less than 12 nats over a single normal; noise
        gains more in 1 table of 100.
    """
    pairs = tuple(torch.triu_indices(*strengths.shape, 1))
    w, found = strengths[pairs], torch.zeros_like(strengths)
    if len(w.unique()) > 1:
        alone = -w.std(correction=0).log() - w.new_tensor(0.5)
        found[pairs] = found[pairs[::-1]] = _probabilities(w, fit_mixture(w), alone)
    return found


def probabilities_of_scores(scores: Tensor, unsigned: Tensor) -> Tensor:
    """Compute the same of scores that are N(0, 1) without an edge.

    Parameters
    ----------
    scores : Tensor of shape (features, features)
        Symmetric.
    unsigned : Tensor of bool, of shape (features, features)
        Symmetric; pairs with a mixture of their own, in which edges have positive
        scores.

    Returns
    -------
    Tensor of shape (features, features)
        Zero on the diagonal, and for all pairs of a mixture that gains less than 12
        nats over the null alone.
    """
    i, j = torch.triu_indices(*scores.shape, 1)
    found, group = torch.zeros_like(scores), unsigned[i, j]
    for some, signed in (group, False), (~group, True):
        pairs = i[some], j[some]
        w = scores[pairs]
        if len(w):
            alone, slabs = -w.square().mean() / 2, fit_slabs(w, signed)
            found[pairs] = found[pairs[::-1]] = _probabilities(w, slabs, alone, signed)
    return found


def _probabilities(
    w: Tensor, mixture: Mixture, alone: Tensor, signed: bool = True
) -> Tensor:
    """Compute those of pairs (n,), given the mean log-likelihood without edges.

    Without signs, values below 0 have the probability at 0: a wide slab reaches beyond
    the null on the side where no edge is.
    """
    joint = log_joint(w, mixture)
    if len(w) * (joint.logsumexp(0).mean() - alone) < _GAIN:
        return torch.zeros_like(w)
    joint = joint if signed else log_joint(w.clamp(min=0), mixture)
    return 1 - joint.softmax(0)[0]
