"""One normal distribution of standardised columns: EM, conditional means, posterior.

References
----------
Dempster, Laird and Rubin (1977), Maximum likelihood from incomplete data via the EM
algorithm; Schafer (1997), Analysis of incomplete multivariate data, sections 5.3 and
5.4; Smith and Hocking (1972), Wishart variate generator (Bartlett's decomposition).
"""

from typing import NamedTuple

import numpy as np

from skvnce._core.squarem import extrapolate
from skvnce.table_imputer.kernels import complete_rows

_CHANGE = 2e-3  # of standardised parameters in a round, at which EM ends
_LARGEST = 1e70  # absolute filled cell, whose fourth power does not overflow
_MOST_RATE = 0.95  # of EM, that the spacing of draws follows
# after which a fit is extrapolated: most tables need five to ten, and the rate of the
# others shows by then
_PLAIN_ROUNDS = 40
# times as long as the step before a jump is the step after one that is rejected: EM
# recovers from less, while a bound of 1 rejects half of the jumps
_FARTHER = 10.0
_N_ROUNDS = 60, 300  # at most; the second where these take less than half a second
_WORK_OF_EM = 5e8  # operations
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


def joined(first, others):
    """Append the columns of `others` that `first` lacks; arrays of int."""
    # of the few columns of a block; functions of numpy take 30 times as long
    first = np.asarray(first, int).tolist()
    rest = sorted(set(np.asarray(others, int).tolist()) - set(first))
    return np.array([*first, *rest], int)


class Fallback(NamedTuple):
    """The last point of EM before a jump."""

    point: tuple  # of mean and covariance
    size: float  # of the step to it


class Prior(NamedTuple):
    """Of a covariance: rows that are seen before those of the data."""

    strength: float  # number of rows
    correlation: np.ndarray  # (d, d), of their columns, which have variance 1

    @property
    def scatter(self):
        """Sum of the products of the rows (d, d)."""
        return self.strength * self.correlation


def fit_em(X, weights, prior, n_rounds=None, start=None):
    """Fit mean and covariance by EM, with a prior.

    Slow fits are extrapolated: where a row far outside lacks columns that others
    predict, EM moves towards these predictions by a thousandth a round.

    `X` (n, d): standardised; NaN marks missing cells; `weights` (n,); `prior`: Prior;
    `n_rounds`, int: at most; None: as many as are affordable; `start`, tuple of mean
    and covariance.  Returns Fit.
    """
    gone = np.isnan(X)
    order, n_rounds = patterns_together(gone), n_rounds or _affordable_rounds(gone)
    trail = [start or (_weighted_means(X, weights), np.eye(X.shape[1]))]
    last, rate, fallback = np.inf, 0.5, None
    for n_round in range(1, n_rounds + 1):
        point = _step(X, gone, order, weights, prior, trail[-1])
        steps = [new - old for old, new in zip(trail[-1], point, strict=True)]
        size = np.sqrt(sum((step**2).sum() for step in steps))
        if fallback is not None and size > _FARTHER * fallback.size:
            trail, last, fallback = [fallback.point], None, None
            continue
        if last is not None:  # a step from a jump has no step before it
            ratio = size / max(last, 1e-12)
            rate = ratio if n_round <= _PLAIN_ROUNDS else max(rate, ratio)
        trail, last, fallback = [*trail[-2:], point], size, None
        if max(abs(step).max() for step in steps) < _CHANGE:
            break
        if n_round >= _PLAIN_ROUNDS and len(trail) == 3:
            fallback = Fallback(point, size)
            trail, last = [extrapolate(*trail, _is_definite)], None
    # the last jump, if any, has not been checked
    mean, covariance = fallback.point if fallback else trail[-1]
    return Fit(mean, covariance, min(rate, _MOST_RATE), n_round)


def _step(X, gone, order, weights, prior, point):
    """Make a step of EM from a mean and a covariance."""
    n, d = weights.sum(), X.shape[1]
    C = np.zeros((d, d))
    F = completed(X, gone, Normal.of(*point), None, weights, C, order)
    _check_size(F)
    mean = weights @ F / n
    Z = F - mean
    scatter = Z.T @ (weights[:, None] * Z) + C + prior.scatter
    return mean, scatter / (n + prior.strength)


def operations(gone):
    """Count the operations of completing rows (n, d) whose cells `gone` are missing."""
    n_gone = gone.sum(1)
    return (n_gone**3 / 6 + n_gone * gone.shape[1]).sum()


def _affordable_rounds(gone):
    n, d = gone.shape
    work = operations(gone) + n * d**2 + d**3
    return int(np.clip(_WORK_OF_EM / max(work, 1.0), *_N_ROUNDS))


def _is_definite(mean, covariance):
    """Say whether a covariance is positive definite."""
    try:
        np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return False
    return True


def _check_size(F):
    """Raise an error for filled cells of a covariance that is nearly singular."""
    if not abs(F).max(initial=0.0) < _LARGEST:  # NaN is an error, too
        raise np.linalg.LinAlgError("filled cells overflow")


def _weighted_means(X, weights):
    total = weights @ ~np.isnan(X)
    return weights @ np.nan_to_num(X) / np.maximum(total, 1e-12)


def posterior_draw(F, weights, prior, rng):
    """Draw mean and covariance given a completed table (n, d), by Bartlett's factors.

    The prior is that of `fit_em`, and flat for the mean.
    """
    _check_size(F)
    n, d = weights.sum(), F.shape[1]
    mean = weights @ F / n
    Z = F - mean
    L = np.linalg.cholesky(Z.T @ (weights[:, None] * Z) + prior.scatter)
    A = np.tril(rng.normal(size=(d, d)), -1)
    freedom = np.maximum(n - 1 + prior.strength - np.arange(d), 1.0)
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
        return Conditional(*(values.mean(0, keepdims=True) for values in self))

    def around(self, fitted, mean, columns):
        """Move the mean of the M distributions to a fitted one.

        `fitted`, Conditional of one distribution, whose slopes on some `columns` all
        get; `mean` (d,): of its columns, where a change of slopes does not count.
        """
        moves = self.slopes - self.slopes.mean(0)
        moves[:, columns] = 0.0
        intercept = fitted.intercept - mean @ moves[:, None]
        return self._replace(intercept=intercept, slopes=fitted.slopes + moves)

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
    log_odds: tuple | None = None  # LogOdds, if those of a column bend

    @classmethod
    def of(cls, draws, active, log_odds=None):
        """Stack means and covariances; columns that are not active are independent."""
        mean, S = (np.stack(values) for values in zip(*draws, strict=True))
        both = active[:, :, None] & active[:, None]
        precision = np.linalg.inv(np.where(both, S, np.eye(S.shape[1])))
        return cls(mean, precision, log_odds)

    @classmethod
    def of_fit(cls, fit):
        """Take the distribution of a Fit."""
        return cls.of([fit[:2]], np.ones((1, len(fit.mean)), dtype=bool))

    def each(self):
        """List the distributions."""
        return [Normal(m, P) for m, P in zip(self.mean, self.precision, strict=True)]

    @property
    def logits(self):
        """Draws of the log-odds that bend, dict of int to Logit."""
        return self.log_odds.logits if self.log_odds else {}

    def of_turns(self, turns):
        """Select distributions (M,) by place."""
        log_odds = self.log_odds and self.log_odds.of_turns(turns)
        return Normals(self.mean[turns], self.precision[turns], log_odds)

    def conditional(self, block, n_base):
        """Regress columns on those that are not their functions.

        `block`, ndarray of int: the columns, `n_base` of them, and then their
        functions: all are taken as missing; `n_base`, int.  Returns Conditional.
        """
        K = self.precision[:, block]
        covariance = np.linalg.inv(K[:, :, block])
        slopes = -(covariance @ K)[:, :n_base]
        slopes[:, :, block] = 0.0
        intercept = (
            self.mean[:, block[:n_base]] - (slopes @ self.mean[:, :, None])[..., 0]
        )
        slopes = slopes.transpose(0, 2, 1)
        return Conditional(intercept[:, None], slopes, covariance[:, :n_base, :n_base])


class LogOdds(NamedTuple):
    """Those of columns of two values that ask for products, which bend."""

    logits: dict  # of int to Logit: K draws of the coefficients, by column of the table
    # K draws of the parameters by which cells were linear, which predict them: those
    # of later rounds are of cells that log-odds have drawn, and would move away
    normals: Normals
    fitted: Normals  # one distribution, around which predictions are

    def of_turns(self, turns):
        """Select draws by place."""
        logits = {q: logit.of_turns(turns) for q, logit in self.logits.items()}
        return LogOdds(logits, self.normals.of_turns(turns), self.fitted)

    def conditional(self, block, n_base, bent):
        """Regress a column; all draws have the fitted slopes on the columns `bent`."""
        fitted = self.fitted.conditional(block, n_base)
        law = self.normals.conditional(block, n_base)
        return law.around(fitted, self.fitted.mean[0], bent)
