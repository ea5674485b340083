"""EM for mixtures of normals with latent classes, from incomplete rows.

It maximises, over the parameters of eq. (1) of `model`,

    sum_i w_i log p(x_i,obs) + sum_k log pi_k + sum_kj a sum_l p_jl log theta_kjl
      - sum_k (v (log|S_k| + tr W S_k^-1) + (mean_k - m)' S_k^-1 (mean_k - m)) / 2   (1)

whose penalty is that of a conjugate prior: each component has v more rows with the
covariance W, one more with the mean m of all rows, and a more with the shares p_j of
the categories (Fraley and Raftery 2007).  W is the pooled covariance within components,
anew in each round; with a fixed W no round decreases eq. (1).  In the first rounds v is
larger, so that components separate slowly.  The E-step is that of Ghahramani and Jordan
(1994) for incomplete rows.  A row skips components whose probability is small, and they
are not tried again.  Covariances may be restricted to those of `factors`.

References
----------
Ghahramani, Z. and Jordan, M. I. (1994), Supervised learning from incomplete data via an
EM approach. Fraley, C. and Raftery, A. E. (2007), Bayesian regularization for normal
mixture estimation and model-based clustering.
"""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import numpy as np

from skvnce.mixture.density import LEAST_SHARE, Arranged, Mixture, Prepared, prepare

# ----------------------------------------
# Covariances of common factors, for components of many columns.
#
# A component of a mixture of factor analysers (Ghahramani and Hinton 1996) has
#
#   S_k = L_k L_k' + diag(psi_k),  L_k of size d x q.                (1)
#
# Given C_k, the covariance that maximises the penalised expected log-likelihood of
# `em` without this restriction, its part of that objective is, times minus a half of
# the rows,
#
#   log|S_k| + tr S_k^-1 C_k.                            (2)
#
# With psi fixed, and U and t the q largest eigenvectors and eigenvalues of psi^-1/2
# C_k psi^-1/2, the maximum over L is psi^1/2 U (t - 1)^1/2 (Joreskog 1967).  At this
# L the M-step of EM for psi, with factors as missing data, is diag(C_k - L L').
# Neither step increases eq. (2), so that EM remains monotone with one of each a round
# (McLachlan, Peel and Bean 2003).
#
# References ---------- Ghahramani, Z. and Hinton, G. E. (1996), The EM algorithm for
# mixtures of factor analyzers. Joreskog, K. G. (1967), Some contributions to maximum
# likelihood factor analysis. McLachlan, G. J., Peel, D. and Bean, R. W. (2003),
# Modelling high-dimensional data by mixtures of factor analyzers.


_NUMBERS = 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48  # of factors that are compared
_CYCLES = 5  # of steps for eq. (2), from which EM continues


class Factors(NamedTuple):
    """Parameters of eq. (1)."""

    loadings: np.ndarray  # (n_components, d, q), L_k
    noise: np.ndarray  # (n_components, d), psi_k

    @property
    def covariances(self) -> np.ndarray:
        """Eq. (1); (n_components, d, d)."""
        common = self.loadings @ self.loadings.transpose(0, 2, 1)
        return common + self.noise[:, None] * np.eye(self.noise.shape[1])


def improve(
    covariances: np.ndarray, noise: np.ndarray, n_factors: int, least: float
) -> Factors:
    """Maximise over loadings, and then improve the noise; see eq. (2).

    `covariances` (n_components, d, d): C_k; `noise` (n_components, d); `least`:
    smallest variance of the noise.
    """
    root = np.sqrt(noise)[:, :, None]
    values, vectors = np.linalg.eigh(covariances / (root * root.transpose(0, 2, 1)))
    size = np.sqrt(np.maximum(values[:, None, -n_factors:] - 1, 0))
    loadings = root * vectors[:, :, -n_factors:] * size
    rest = covariances.diagonal(axis1=1, axis2=2) - (loadings**2).sum(2)
    return Factors(loadings, np.maximum(rest, least))


def first_noise(covariance: np.ndarray, n_factors: int, least: float) -> np.ndarray:
    """Compute the noise of a covariance matrix; (d,).

    It starts at half of the variance of each column given all others (Joreskog 1963).
    """
    noise = np.maximum(0.5 / np.linalg.inv(covariance).diagonal(), least)[None]
    for _ in range(_CYCLES):
        noise = improve(covariance[None], noise, n_factors, least).noise
    return noise[0]


def count_factors(covariance: np.ndarray, n_rows: float, least: float) -> int:
    """Choose the number of factors by the Bayesian information criterion.

    `covariance` (d, d); `n_rows`: number of complete rows with the same information;
    `least`: smallest variance of the noise.  Returns at most a third of the columns.
    """
    d, n = len(covariance), max(n_rows, 2.0)
    numbers = [q for q in _NUMBERS if 3 * q <= d] or [1]

    def criterion(n_factors: int) -> float:
        noise = first_noise(covariance, n_factors, least)[None]
        fitted = improve(covariance[None], noise, n_factors, least).covariances[0]
        misfit = np.linalg.slogdet(fitted)[1]
        misfit += np.linalg.solve(fitted, covariance).trace()
        free = d * n_factors - n_factors * (n_factors - 1) / 2
        return misfit + free * log(n) / n

    return min(numbers, key=criterion)


# ----------------------------------------
# EM for mixtures of normals with latent classes, from incomplete rows.


LEAST_VARIANCE = 1e-6  # of scores given all others, so that copies can be inverted
_FIRST = 5.0  # strength of the covariance prior in the first round, over the last one
_SKIPPED = 1e-3  # responsibility below which a row skips a component from then on
_NARROWER = 0.7  # covariance within components at the start, over that of all rows
_OF_ALL_ROWS = 0.05  # rows a column of the covariance of all rows in W
_DIGITS = 9  # of distances that differ by more than rounding
_ROUNDS_OF_CLUSTERS = 16  # with fewer the seed decides where components are


class Prior(NamedTuple):
    """The penalty of eq. (1)."""

    strength: float  # v, in rows
    within: np.ndarray  # (d, d), W
    centre: np.ndarray  # (d,), m
    classes: tuple[np.ndarray, ...] = ()  # (n_categories,), a p_j


class Sums(NamedTuple):
    """Expected sums of the rows of each component, and of the prior for its mean."""

    totals: np.ndarray  # (n_components,), weights of the rows
    # (n_components, d), of the rows, and of one more at the centre of the prior
    means: np.ndarray
    scatter: np.ndarray  # (n_components, d, d), sums of squares around these means
    # (n_components, n_categories), of rows in which the category is observed
    classes: tuple[np.ndarray, ...] = ()


def expect(
    prepared: Prepared,
    data: Arranged,
    weights: np.ndarray,  # (n,), of the rows, in the order of `data`
    centre: np.ndarray,  # (d,), where the prior has one more row
    skipped: np.ndarray | None = None,
    least: float = 0.0,
) -> tuple[Sums, float]:
    """Compute the expected sums and the log-likelihood: the E-step.

    `skipped`, bool (n, n_components): components that do not count in a row.  Those
    whose probability is small relative to the largest one are added, in place.
    `least`: responsibility below which a component does not count in this round.
    """
    limit = log(_SKIPPED)
    if skipped is None:
        shape = len(weights), len(prepared.log_dets)
        skipped, limit = np.zeros(shape, dtype=bool), -np.inf
    shares, log_density, totals, first, second = prepared.expected(
        data, weights, skipped, (limit, least)
    )
    second += np.triu(second, 1).transpose(0, 2, 1)
    means = (first + centre) / (totals + 1)[:, None]
    cross, far = first[:, :, None] * means[:, None], means - centre
    scatter = second - cross - cross.transpose(0, 2, 1)
    scatter += totals[:, None, None] * (means[:, :, None] * means[:, None])
    scatter += far[:, :, None] * far[:, None]
    weighted, classes = shares * weights[:, None], []
    for code, levels in zip(data.codes.T, prepared.mixture.classes, strict=True):
        observed = code >= 0
        indicators = np.eye(levels.shape[1])[code[observed]]
        classes.append(weighted[observed].T @ indicators)
    sums = Sums(totals, means, scatter, tuple(classes))
    return sums, float(weights @ log_density)


def of_one(
    mean: np.ndarray, covariance: np.ndarray, classes: Sequence[np.ndarray] = ()
) -> Mixture:
    """Make the mixture of one component, of which EM needs no prior within others."""
    covariance = covariance + LEAST_VARIANCE * np.eye(len(mean))
    shares = tuple(levels[None] for levels in classes)
    return Mixture(np.ones(1), mean[None], covariance[None], shares)


def maximise(sums: Sums, prior: Prior) -> Mixture:
    """Maximise eq. (1), given expected sums: the M-step."""
    scatter = sums.scatter + prior.strength * prior.within
    covariances = scatter / (sums.totals + prior.strength)[:, None, None]
    weights = (sums.totals + 1) / (sums.totals + 1).sum()
    classes = tuple(
        (counts + more) / (counts.sum(1, keepdims=True) + more.sum())
        for counts, more in zip(sums.classes, prior.classes, strict=True)
    )
    return Mixture(weights, sums.means, covariances, classes)


def pool(sums: Sums, prior: Prior, rows: float) -> np.ndarray:
    """Pool the covariances within components, with rows of the prior."""
    total = sums.totals.sum() + rows
    return (sums.scatter.sum(0) + rows * prior.within) / total


class Fit(NamedTuple):
    """A fitted mixture."""

    mixture: Mixture
    prior: Prior  # of the last round
    # of the parameters at which each round but the first began
    log_likelihoods: list[float]


def fit_mixture(
    data: Arranged,  # the rows
    weights: np.ndarray,  # (n,), in the order of the rows
    means: np.ndarray,  # (n_components, d)
    shares: np.ndarray,  # (n, n_components), in the order of the rows
    prior: Prior,  # `within` is the covariance of all rows
    n_rounds: int,
    n_factors: int = 0,
) -> Fit:
    """Fit a mixture, from means and responsibilities.

    `n_factors`: those of each component, see `factors`; 0 leaves covariances
    unrestricted.
    """
    n_components, d = means.shape
    noise = LEAST_VARIANCE * np.eye(d)
    every = np.tile(_NARROWER * prior.within, (n_components, 1, 1))
    classes = tuple(
        np.tile(counts / counts.sum(), (n_components, 1)) for counts in prior.classes
    )
    even = np.full(n_components, 1 / n_components)
    mixture = Mixture(even, means, every, classes)
    # in the first round each row is of its cluster alone
    skipped, log_likelihoods, current = shares == 0, [], prior
    specific = np.zeros((n_components, d))
    if n_factors:
        specific += first_noise(prior.within + noise, n_factors, LEAST_VARIANCE)
    for number in range(n_rounds):
        sums, log_likelihood = expect(
            prepare(mixture), data, weights, prior.centre, skipped, LEAST_SHARE
        )
        log_likelihoods.append(log_likelihood)
        if not number:
            skipped = np.zeros(shares.shape, dtype=bool)
        remainder = max(0.0, 1 - 2 * number / n_rounds)  # 0 in the second half
        current = prior._replace(
            strength=prior.strength * (1 + (_FIRST - 1) * remainder),
            within=pool(sums, prior, _OF_ALL_ROWS * d),
        )
        mixture = maximise(sums, current)
        covariances = mixture.covariances + noise
        if n_factors:
            restricted = improve(
                mixture.covariances, specific, n_factors, LEAST_VARIANCE
            )
            specific, covariances = restricted.noise, restricted.covariances
        mixture = mixture._replace(covariances=covariances)
    return Fit(mixture, current, log_likelihoods[1:])


def cluster(
    rows: np.ndarray, weights: np.ndarray, n_components: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Cluster rows (n, width) by k-means.

    Returns `shares` (n, n_components): 1 for the nearest centre; `centres`
    (n_components, width): means of the rows of each, or a row if it has lost all of
    them.
    """
    share = weights / weights.sum()
    centres = rows[rng.choice(len(rows), n_components, replace=False, p=share)]
    for _ in range(_ROUNDS_OF_CLUSTERS):
        distances = (centres**2).sum(1) - 2 * rows @ centres.T
        # or the order of columns would decide between equal ones, as of categories
        near = distances.round(_DIGITS).argmin(1)
        shares = np.eye(n_components)[near]
        mass = shares * weights[:, None]
        totals = mass.sum(0)
        has_rows = totals > 0
        centres[has_rows] = mass.T[has_rows] @ rows / totals[has_rows, None]
    return shares, centres
