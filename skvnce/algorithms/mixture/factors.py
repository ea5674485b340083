"""Covariances of common factors, for components of many columns.

A component of a mixture of factor analysers (Ghahramani and Hinton 1996) has

    S_k = L_k L_k' + diag(psi_k),    L_k of size d x q.                              (1)

Given C_k, the covariance that maximises the penalised expected log-likelihood of `em`
without this restriction, its part of that objective is, times minus a half of the rows,

    log|S_k| + tr S_k^-1 C_k.                                                        (2)

With psi fixed, and U and t the q largest eigenvectors and eigenvalues of
psi^-1/2 C_k psi^-1/2, the maximum over L is psi^1/2 U (t - 1)^1/2 (Joreskog 1967).  At
this L the M-step of EM for psi, with factors as missing data, is diag(C_k - L L').
Neither step increases eq. (2), so that EM remains monotone with one of each a round
(McLachlan, Peel and Bean 2003).

References
----------
Ghahramani, Z. and Hinton, G. E. (1996), The EM algorithm for mixtures of factor
analyzers. Joreskog, K. G. (1967), Some contributions to maximum likelihood factor
analysis. McLachlan, G. J., Peel, D. and Bean, R. W. (2003), Modelling high-dimensional
data by mixtures of factor analyzers.
"""

from math import log
from typing import NamedTuple

import numpy as np

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


def improved(
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
        noise = improved(covariance[None], noise, n_factors, least).noise
    return noise[0]


def count_factors(covariance: np.ndarray, n_rows: float, least: float) -> int:
    """Choose the number of factors by the Bayesian information criterion.

    `covariance` (d, d); `n_rows`: number of complete rows that would tell as much;
    `least`: smallest variance of the noise.  Returns at most a third of the columns.
    """
    d, n = len(covariance), max(n_rows, 2.0)
    numbers = [q for q in _NUMBERS if 3 * q <= d] or [1]

    def criterion(n_factors: int) -> float:
        noise = first_noise(covariance, n_factors, least)[None]
        found = improved(covariance[None], noise, n_factors, least).covariances[0]
        misfit = np.linalg.slogdet(found)[1]
        misfit += np.linalg.solve(found, covariance).trace()
        free = d * n_factors - n_factors * (n_factors - 1) / 2
        return misfit + free * log(n) / n

    return min(numbers, key=criterion)
