"""One normal distribution of standardised columns: EM, conditional means, posterior.

References
----------
Dempster, Laird and Rubin (1977), Maximum likelihood from incomplete data via the EM
algorithm; Schafer (1997), Analysis of incomplete multivariate data, sections 5.3 and
5.4; Smith and Hocking (1972), Wishart variate generator (Bartlett's decomposition).
"""

from typing import NamedTuple

import numpy as np

from skvnce.table_imputer.kernels import complete_rows

_CHANGE = 2e-3  # of standardised parameters in a round, at which EM ends
_LARGEST = 1e100  # absolute filled cell, whose square does not overflow
_MOST_RATE = 0.95  # of EM, that the spacing of draws follows
_NONE = np.zeros((0, 0))


class Normal(NamedTuple):
    """Parameters of a normal distribution."""

    mean: np.ndarray  # (d,)
    precision: np.ndarray  # (d, d)

    @classmethod
    def of(cls, mean, covariance):
        """Invert a covariance (d, d)."""
        return cls(mean, np.linalg.inv(covariance))


class Fit(NamedTuple):
    """What EM returns."""

    mean: np.ndarray  # (d,)
    covariance: np.ndarray  # (d, d)
    rate: float  # of convergence: the largest share of missing information
    n_rounds: int


def patterns_together(gone):
    """Order rows (n, d) so that equal patterns of missing cells are together; (n,)."""
    bits = np.packbits(gone, axis=1)
    return np.lexsort(bits.T)


def completed(X, gone, normal, noise=None, weights=None, covariance=_NONE, order=None):
    """Fill cells by their conditional means, or draws; see `complete_rows`.

    `X` (n, d): NaN in the cells `gone`, or any value; `gone`, bool (n, d); `noise` (n,
    width): standard normal numbers; None fills by means; `weights` (n,); `covariance`
    (d, d): to which conditional covariances are added; `order`, int (n,): see
    `patterns_together`.  Returns (n, d).
    """
    X, n = X.copy(), len(X)
    noise = np.zeros((n, 0)) if noise is None else noise
    weights = np.ones(n) if weights is None else weights
    order = patterns_together(gone) if order is None else order
    complete_rows(X, gone, order, *normal, noise, weights, covariance)
    return X


def fit_em(X, weights, strength, n_rounds=60, start=None):
    """Fit mean and covariance by EM, with a prior.

    `X` (n, d): standardised; NaN marks missing cells; `weights` (n,); `strength`,
    float: number of rows that the prior counts as: independent columns of variance 1;
    `n_rounds`, int: at most; `start`, tuple of mean and covariance.  Returns Fit.
    """
    n, d = weights.sum(), X.shape[1]
    gone = np.isnan(X)
    order = patterns_together(gone)
    mean, S = start or (_weighted_means(X, weights), np.eye(d))
    last, rate, rounds = np.inf, 0.5, 0
    while rounds < n_rounds:
        rounds += 1
        C = np.zeros((d, d))
        F = completed(X, gone, Normal.of(mean, S), None, weights, C, order)
        _check_size(F)
        new = weights @ F / n
        Z = F - new
        T = (Z.T @ (weights[:, None] * Z) + C + strength * np.eye(d)) / (n + strength)
        steps = T - S, new - mean
        mean, S = new, T
        size = np.sqrt(sum((one**2).sum() for one in steps))
        rate, last = size / max(last, 1e-12), size
        if max(abs(one).max() for one in steps) < _CHANGE:
            break
    return Fit(mean, S, min(rate, _MOST_RATE), rounds)


def _check_size(F):
    """Raise an error for filled cells of a covariance that is nearly singular."""
    if not abs(F).max(initial=0.0) < _LARGEST:  # NaN is an error, too
        raise np.linalg.LinAlgError("filled cells overflow")


def _weighted_means(X, weights):
    seen = ~np.isnan(X)
    total = weights @ seen
    return weights @ np.where(seen, X, 0.0) / np.maximum(total, 1e-12)


def posterior_draw(F, weights, strength, rng):
    """Draw mean and covariance given a completed table (n, d), by Bartlett's factors.

    The prior is that of `fit_em`, and flat for the mean.
    """
    _check_size(F)
    n, d = weights.sum(), F.shape[1]
    mean = weights @ F / n
    Z = F - mean
    L = np.linalg.cholesky(Z.T @ (weights[:, None] * Z) + strength * np.eye(d))
    A = np.tril(rng.normal(size=(d, d)), -1)
    freedom = np.maximum(n - 1 + strength - np.arange(d), 1.0)
    A[np.diag_indices(d)] = np.sqrt(rng.chisquare(freedom))
    W = np.linalg.solve(A, L.T)
    S = W.T @ W
    root = np.linalg.cholesky(S + 1e-12 * np.eye(d))
    return mean + root @ rng.normal(size=d) / np.sqrt(n), S


class Conditional(NamedTuple):
    """Regressions of some columns on others, under M normal distributions."""

    intercept: np.ndarray  # (M, 1, n_base)
    slopes: np.ndarray  # (M, d, n_base), 0 where a column is not used
    covariance: np.ndarray  # (M, n_base, n_base), of the columns given the others

    def means(self, X):
        """Compute conditional means (M, n, n_base) in tables (M, n, d)."""
        return X @ self.slopes + self.intercept

    def average(self):
        """Average over the M distributions, as one."""
        return Conditional(*(one.mean(0, keepdims=True) for one in self))

    def draw(self, X, rng, number=1):
        """Draw the columns given the others; (number, M, n, n_base)."""
        size = self.covariance.shape[-1]
        root = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(size))
        means, root = self.means(X), root.transpose(0, 2, 1)
        return means + rng.normal(size=(number, *means.shape)) @ root


class Normals(NamedTuple):
    """K normal distributions of the same columns."""

    mean: np.ndarray  # (K, d)
    precision: np.ndarray  # (K, d, d)

    @classmethod
    def of(cls, draws, active):
        """Stack means and covariances; columns that are not active are independent."""
        mean, S = (np.stack(one) for one in zip(*draws, strict=True))
        both = active[:, :, None] & active[:, None]
        return cls(mean, np.linalg.inv(np.where(both, S, np.eye(S.shape[1]))))

    def each(self):
        """List the distributions."""
        return [Normal(*one) for one in zip(self.mean, self.precision, strict=True)]

    def of_turns(self, turns):
        """Select distributions (M,) by place."""
        return Normals(self.mean[turns], self.precision[turns])

    def conditional(self, own, n_base):
        """Regress columns on those that are not their functions.

        `own`, ndarray of int: the columns, `n_base` of them, and further ones that are
        their functions: all are taken as missing; `n_base`, int.  Returns Conditional.
        """
        K = self.precision[:, own]
        covariance = np.linalg.inv(K[:, :, own])
        R = K.copy()
        R[:, :, own] = 0.0
        slopes = -(covariance @ R)[:, :n_base]
        intercept = (
            self.mean[:, own[:n_base]] - (slopes @ self.mean[:, :, None])[..., 0]
        )
        slopes = slopes.transpose(0, 2, 1)
        return Conditional(intercept[:, None], slopes, covariance[:, :n_base, :n_base])
