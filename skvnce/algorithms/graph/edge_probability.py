"""Probabilities of edges, from a mixture fitted to the strengths of all pairs.

The signed strengths w_ij of all pairs are modelled as draws from

    p(w) = pi_0 N(m_0, s_0^2) + pi_+ N(m_+, s_+^2) + pi_- N(m_-, s_-^2)              (1)

with m_- < m_0 < m_+, slabs at least as wide as the null, and at least half of the pairs
in the null; otherwise a single cluster of values could count as edges.  It is empirical
Bayes (Efron 2010, chapter 5): the null, the slabs and their shares, and so the signs of
the edges, are estimated from the values.  The null has its own mean, because missing
values and penalties shift all values of a table slightly in one direction.
"""

from collections.abc import Callable
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
_TOL = 1e-4  # gain of a round in the log-likelihood of all values, in nats
# squares of exp(300) are finite
_FAR = 300.0  # largest logarithm of an extrapolated deviation


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


def fit_mixture(w: Tensor, max_iter: int = 500, tol: float = _TOL) -> Mixture:
    """Fit eq. (1) by EM; (n,) -> Mixture.

    It starts with a null as wide as the bulk of the values.
    """
    middle = w.median()
    # most values may be equal
    bulk = ((w - middle).abs().median() / _MAD).clamp(min=1e-12)
    start = _Point(
        np.array([0.8, 0.1, 0.1]),
        (middle + 3 * bulk * torch.from_numpy(_SIDE)).numpy(),
        bulk.expand(3).numpy(),
    )
    # a component that shrinks to a single value would have an infinite likelihood
    return _climbed(w, start, _free(float(bulk) * 1e-3), max_iter, tol)


class _Point(NamedTuple):
    """A mixture in numpy, whose calls on few numbers are faster."""

    share: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray


_Constrain = Callable[[_Point], _Point]


def _free(least: float) -> _Constrain:
    """Make the constraints of eq. (1), with deviations of at least `least`."""

    def constrained(point: _Point) -> _Point:
        share, mean, deviation = point
        slabs = share[1:] * (1 - max(share[0], _NULL)) / share[1:].sum()
        deviation = np.maximum(deviation, least)
        return _ordered(np.array([1 - slabs.sum(), *slabs]), mean, deviation)

    return constrained


def _ordered(share: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> _Point:
    """Put each slab on its side of the null, and make it at least as wide."""
    mean = mean[0] + _SIDE * np.maximum(_SIDE * (mean - mean[0]), 0)
    return _Point(share, mean, np.maximum(deviation, deviation[0]))


def _climbed(
    w: Tensor, start: _Point, constrained: _Constrain, max_iter: int, tol: float
) -> Mixture:
    """Make rounds of EM, of which each third starts at an extrapolated point."""
    values, first, longest = w.numpy(), start, 4.0
    for _ in range(0, max_iter, 3):
        before, second = _round(values, first, constrained)
        reached, third = _round(values, second, constrained)
        if len(values) * (reached - before) < tol:
            break
        ahead = constrained(_extrapolated(first, second, third, longest))
        found, following = _round(values, ahead, constrained)
        better = found > reached
        first, longest = (following, 2 * longest) if better else (third, longest / 2)
    return Mixture(*(torch.from_numpy(part) for part in second))


def _round(
    w: np.ndarray, point: _Point, constrained: _Constrain
) -> tuple[float, _Point]:
    """Compute the mean log-likelihood of a point, and the next one of EM."""
    share, mean, deviation = point
    z = (w - mean[:, None]) / deviation[:, None]
    joint = np.log(np.maximum(share, _TINY) / deviation)[:, None] - z * z / 2
    top = joint.max(0)
    weight = np.exp(joint - top)
    density = weight.sum(0)
    log_likelihood = float((np.log(density) + top).mean())
    weight /= density
    total = np.maximum(weight.sum(1), 1e-9)
    mean = weight @ w / total
    variance = (weight * (w - mean[:, None]) ** 2).sum(1) / total
    # components that are not used stay so
    share = total * (share > 0) / (total * (share > 0)).sum()
    return log_likelihood, constrained(_Point(share, mean, np.sqrt(variance)))


def _extrapolated(
    first: _Point, second: _Point, third: _Point, longest: float
) -> _Point:
    """Extrapolate from three points of EM by SQUAREM's third scheme.

    Varadhan and Roland (2008), Simple and globally convergent methods for accelerating
    the convergence of any EM algorithm; in logarithms of shares and deviations.
    """
    points = np.array(
        [
            (np.log(np.maximum(share, _TINY)), mean, np.log(deviation))
            for share, mean, deviation in (first, second, third)
        ]
    )
    step, bend = points[1] - points[0], points[2] - 2 * points[1] + points[0]
    length = ((step**2).sum() / max((bend**2).sum(), _TINY)) ** 0.5
    length = max(min(length, longest), 1.0)
    share, mean, deviation = points[0] + 2 * length * step + length**2 * bend
    share = np.exp(share - share.max()) * (third.share > 0)
    return _Point(share / share.sum(), mean, np.exp(deviation.clip(-_FAR, _FAR)))


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
        # mean log-likelihood of one normal, without the constant that `log_joint` omits
        alone = -w.std(correction=0).log() - w.new_tensor(0.5)
        found[pairs] = found[pairs[::-1]] = _probabilities(w, fit_mixture(w), alone)
    return found


def _probabilities(w: Tensor, mixture: Mixture, alone: Tensor) -> Tensor:
    """Compute those of pairs (n,), given the mean log-likelihood without edges."""
    joint = log_joint(w, mixture)
    if len(w) * (joint.logsumexp(0).mean() - alone) < _GAIN:
        return torch.zeros_like(w)
    return 1 - joint.softmax(0)[0]
