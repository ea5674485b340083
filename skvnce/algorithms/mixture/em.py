"""EM for mixtures of normals with latent classes, from incomplete rows.

It maximises, over the parameters of eq. (1) of `model`,

    sum_i w_i log p(x_i,obs) + sum_k log pi_k + sum_kj a sum_l p_jl log theta_kjl
      - sum_k (v (log|S_k| + tr W S_k^-1) + (mean_k - m)' S_k^-1 (mean_k - m)) / 2   (1)

whose penalty is that of a conjugate prior: each component has v more rows with the
covariance W, one more with the mean m of all rows, and a more with the shares p_j of
the categories (Fraley and Raftery 2007).  W is the covariance within components of all
together; in the first rounds it follows them, and v is larger, so that components
separate slowly.  The E-step is that of Ghahramani and Jordan (1994) for incomplete
rows.

References
----------
Ghahramani, Z. and Jordan, M. I. (1994), Supervised learning from incomplete data via an
EM approach. Fraley, C. and Raftery, A. E. (2007), Bayesian regularization for normal
mixture estimation and model-based clustering.
"""

from collections.abc import Callable
from math import log
from typing import NamedTuple

import numpy as np

from skvnce.algorithms.mixture.model import (
    Arranged,
    Mixture,
    normalised,
    scores_of,
)

_FIRST = 5.0  # strength of the covariance prior in the first round, over the last one
_ALL_COMPONENTS = 3, 4  # first rounds, and each n-th, in which no component is skipped
_SKIPPED = 1e-5  # responsibility below which a row skips a component in other rounds
_SMEARED = 0.9  # responsibility of the nearest centre at the start
_NARROWER = 0.7  # covariance within components at the start, over that of all rows


class Prior(NamedTuple):
    """The penalty of eq. (1).

    Attributes
    ----------
    strength : float
        v, in rows.
    within : ndarray of shape (d, d)
        W.
    centre : ndarray of shape (d,)
        m.
    classes : tuple of ndarray of shape (n_categories,)
        a p_j.
    """

    strength: float
    within: np.ndarray
    centre: np.ndarray
    classes: tuple[np.ndarray, ...] = ()


class Sums(NamedTuple):
    """Expected sums of the rows of each component.

    Attributes
    ----------
    totals : ndarray of shape (n_components,)
    first : ndarray of shape (n_components, d)
    second : ndarray of shape (n_components, d, d)
    classes : tuple of ndarray of shape (n_components, n_categories)
        Of rows in which the category is observed.
    """

    totals: np.ndarray
    first: np.ndarray
    second: np.ndarray
    classes: tuple[np.ndarray, ...] = ()

    def scatter(self, means: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """Sum squares around means, that of the prior for means included; (k, d, d)."""
        cross = self.first[:, :, None] * means[:, None]
        square = means[:, :, None] * means[:, None]
        far = means - centre
        found = self.second - cross - cross.transpose(0, 2, 1)
        found += self.totals[:, None, None] * square
        return found + far[:, :, None] * far[:, None]


def sums_of(
    mixture: Mixture, data: Arranged, weights: np.ndarray, shares: np.ndarray
) -> Sums:
    """Compute the expected sums for responsibilities (n, n_components)."""
    from skvnce.algorithms.mixture import kernels

    model = mixture.means, mixture.covariances
    totals, first, second = kernels.expected_sums(*data.groups, weights, shares, *model)
    second += np.tril(second, -1).transpose(0, 2, 1)
    weighted, classes = shares * weights[:, None], []
    for code, known in zip(data.codes.T, mixture.classes, strict=True):
        seen = code >= 0
        indicator = np.zeros((seen.sum(), known.shape[1]))
        indicator[np.arange(len(indicator)), code[seen]] = 1.0
        classes.append(weighted[seen].T @ indicator)
    return Sums(totals, first, second, tuple(classes))


def maximised(sums: Sums, prior: Prior) -> Mixture:
    """Maximise eq. (1), given expected sums: the M-step."""
    means = (sums.first + prior.centre) / (sums.totals + 1)[:, None]
    scatter = sums.scatter(means, prior.centre) + prior.strength * prior.within
    covariances = scatter / (sums.totals + prior.strength)[:, None, None]
    weights = (sums.totals + 1) / (sums.totals + 1).sum()
    classes = tuple(
        (counts + more) / (counts.sum(1, keepdims=True) + more.sum())
        for counts, more in zip(sums.classes, prior.classes, strict=True)
    )
    return Mixture(weights, means, covariances, classes)


def penalised(mixture: Mixture, prior: Prior, log_likelihood: float) -> float:
    """Compute eq. (1)."""
    far = mixture.means - prior.centre
    matrix = prior.strength * prior.within + far[:, :, None] * far[:, None]
    _, log_det = np.linalg.slogdet(mixture.covariances)
    trace = np.linalg.solve(mixture.covariances, matrix).trace(axis1=1, axis2=2)
    found = log_likelihood + np.log(mixture.weights).sum()
    found -= (prior.strength * log_det + trace).sum() / 2
    for shares, more in zip(mixture.classes, prior.classes, strict=True):
        found += (np.log(shares) @ more).sum()
    return float(found)


def within_components(sums: Sums, means: np.ndarray, prior: Prior, rows: float):
    """Pool the covariances within components, with some rows of the prior."""
    scatter = sums.scatter(means, prior.centre).sum(0)
    return (scatter + rows * prior.within) / (sums.totals.sum() + rows)


class Fit(NamedTuple):
    """A fitted mixture.

    Attributes
    ----------
    mixture : Mixture
    prior : Prior
        Of the last rounds.
    objectives : list of float
        Eq. (1) without its penalty, a row: the log-likelihood of each round.
    """

    mixture: Mixture
    prior: Prior
    objectives: list[float]


def fit_mixture(
    data: Arranged,
    weights: np.ndarray,
    filled: np.ndarray,
    first_shares: np.ndarray,
    prior: Prior,
    n_rounds: int,
    on_round: Callable = lambda *_: None,
) -> Fit:
    """Fit a mixture, from responsibilities of the rows.

    Parameters
    ----------
    data : Arranged
    weights : ndarray of shape (n,)
        In the order of `data`.
    first_shares : ndarray of shape (n, n_components)
        Responsibilities from which the first round starts.
    prior : Prior
        `within` is the covariance of all rows.
    n_rounds : int
    on_round : callable
    """
    n_components, d = first_shares.shape[1], len(prior.centre)
    mixture = Mixture(
        first_shares.mean(0),
        np.tile(prior.centre, (n_components, 1)),
        np.tile(_NARROWER * prior.within, (n_components, 1, 1)),
        tuple(np.tile(one / one.sum(), (n_components, 1)) for one in prior.classes),
    )
    mixture = mixture._replace(means=_means_of(filled, weights, first_shares))
    shares, objectives, current = first_shares, [], prior
    skipped = None
    for number in range(n_rounds):
        if number:
            every = number < _ALL_COMPONENTS[0] or number % _ALL_COMPONENTS[1] == 0
            scores = scores_of(mixture, data, None if every else skipped)
            skipped = scores < scores.max(1, keepdims=True) + log(_SKIPPED)
            shares, found = normalised(scores)
            objectives.append(float(weights @ found))
        sums = sums_of(mixture, data, weights, shares)
        strength = prior.strength * (
            1 + (_FIRST - 1) * max(0.0, 1 - 2 * number / n_rounds)
        )
        means = (sums.first + prior.centre) / (sums.totals + 1)[:, None]
        within = within_components(sums, means, prior, _POOLED * d)
        current = prior._replace(strength=strength, within=within)
        mixture = maximised(sums, current)
        on_round(number, mixture)
    return Fit(mixture, current, objectives)


_POOLED = 0.05  # rows a column of the covariance of all rows in that within components


def _means_of(filled, weights, shares):
    """Start the components at the means of filled rows."""
    mass = (shares * weights[:, None]).T
    return mass @ filled / np.maximum(mass.sum(1), _TINY)[:, None]


_TINY = 1e-300


def first_shares(filled: np.ndarray, n_components: int, rng) -> np.ndarray:
    """Cluster filled rows (n, width) by k-means; (n, n_components)."""
    centres = filled[rng.choice(len(filled), n_components, replace=False)]
    for _ in range(4):
        distance = (centres**2).sum(1) - 2 * filled @ centres.T
        near = distance.argmin(1)
        for k in range(n_components):
            if (near == k).any():
                centres[k] = filled[near == k].mean(0)
    found = np.full((len(filled), n_components), (1 - _SMEARED) / n_components)
    found[np.arange(len(filled)), near] += _SMEARED
    return found
