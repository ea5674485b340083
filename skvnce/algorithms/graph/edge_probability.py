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


def _climbed(
    w: np.ndarray,
    share: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    max_iter: int,
    tol: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make the rounds of EM; in numpy, whose calls on few numbers are faster."""
    side, least = np.array([0.0, 1.0, -1.0]), deviation[0] * 1e-3
    before = -np.inf
    for _ in range(max_iter):
        z = (w - mean[:, None]) / deviation[:, None]
        joint = np.log(share / deviation)[:, None] - z * z / 2
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
        mean = mean[0] + side * np.maximum(side * (mean - mean[0]), 0)
        variance = (weight * (w - mean[:, None]) ** 2).sum(1) / total
        deviation = np.maximum(np.sqrt(variance), least)
        deviation = np.maximum(deviation, deviation[0])
        share = total / total.sum()
        slabs = share[1:] * (1 - max(share[0], _NULL)) / share[1:].sum()
        share = np.array([1 - slabs.sum(), *slabs])
    return share, mean, deviation


def edge_probabilities(strengths: Tensor, apart: Tensor | None = None) -> Tensor:
    """Compute the posterior probability that each pair is not from the null.

    Parameters
    ----------
    strengths : Tensor of shape (features, features)
        Signed and symmetric, of an estimate without an L1 penalty.
    apart : Tensor of bool, of shape (features, features), default=None
        Symmetric; pairs with a mixture of their own.

    Returns
    -------
    Tensor of shape (features, features)
        Zero on the diagonal.  Zero for all pairs of a mixture with fewer than two
        different values, or if it gains less than 12 nats over a single normal; noise
        gains more in 1 table of 100.
    """
    d = len(strengths)
    i, j = torch.triu_indices(d, d, 1)
    found = torch.zeros_like(strengths)
    group = i < 0 if apart is None else apart[i, j]
    for part in (i[group], j[group]), (i[~group], j[~group]):
        found[part] = found[part[::-1]] = _probabilities(strengths[part])
    return found


def _probabilities(w: Tensor) -> Tensor:
    """Compute those of pairs (n,) with one mixture."""
    if len(w.unique()) < 2:
        return torch.zeros_like(w)
    joint = log_joint(w, fit_mixture(w))
    alone = -w.std(correction=0).log() - 0.5  # mean log-likelihood of one normal
    if len(w) * (joint.logsumexp(0).mean() - alone) < _GAIN:
        return torch.zeros_like(w)
    return 1 - joint.softmax(0)[0]
