"""Probabilities of levels given predictions of the normal distribution."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from skvnce._core.windows import sorted_predictions, windows

_LEAST = 1e-3  # of a linear probability, whose logarithm is taken
_RIDGE = 1.0  # of log-odds, a prior of a standard deviation of 1
_ROWS_OF_LOGIT, _ITERATIONS = 1500, 30
_FAR = 700.0  # log-odds between two cuts, whose exponential is finite
_LEAST_GAP = 1e-9  # of log-odds between two cuts
_LEAST_NOISE = 0.1  # variance beside linear predictions, from which slopes begin
_NEAR = 20, 60  # at least and at most so many predictions decide the shares of grades
_POWERS, _PRIOR_OF_POWER = (0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5, 3.0), 20.0


class Logit(NamedTuple):
    """Logistic regression of levels on their linear predictions.

    Given numbers, log-odds are linear and probabilities are not; the predictions say
    all that numbers do (Hastie, Tibshirani and Buja 1994).  Given other levels
    probabilities are linear, so that their logarithms are features, too.
    """

    intercepts: np.ndarray  # (k,)
    slopes: np.ndarray  # (len(base) + len(bent), k), of predictions
    power: float  # of linear probabilities
    # of two levels: of the covariance of the coefficients of log-odds
    root: np.ndarray | None = None

    def of(self, L, linear):
        """Predict probabilities (..., k) by predictions and linear probabilities."""
        return softmax(self.scores(L, np.log(linear.clip(_LEAST))), -1)

    def scores(self, L, logs):
        """Compute log-probabilities up to a constant."""
        return self.intercepts + L @ self.slopes + self.power * logs

    def with_root(self, L, linear, weights):
        """Compute the root of the covariance of two levels' coefficients (Laplace).

        `L` (n, m); `linear` (n, 2); `weights` (n,).
        """
        logs = np.log(linear.clip(_LEAST))
        Z = np.column_stack([np.ones(len(L)), L, logs[:, 1] - logs[:, 0]])
        w = weights * self.of(L, linear).prod(-1)
        prior = np.diag([_RIDGE / 2] * (Z.shape[1] - 1) + [_RIDGE])
        precision = Z.T @ (w[:, None] * Z) + prior
        return self._replace(root=np.linalg.inv(np.linalg.cholesky(precision)).T)

    def draws(self, number, rng):
        """Draw the coefficients; a Logit of arrays (number, 1 or m, 2)."""
        noise = rng.normal(size=(number, len(self.root))) @ self.root.T
        moves = noise[..., None] / 2 * [-1, 1]
        slopes, power = self.slopes + moves[:, 1:-1], self.power + noise[:, -1]
        return Logit(self.intercepts + moves[:, :1], slopes, power[:, None, None])

    def of_turns(self, turns):
        """Select draws by place."""
        return Logit(*(values[turns] for values in self[:3]))


def fit_logit(L, linear, codes, weights):
    """Fit by maximum likelihood, shrunk to the linear probabilities (C, n, k).

    Of two levels it is shrunk to log-odds that are linear in the first prediction.
    """
    (C, n, m), k = L.shape, linear.shape[-1]
    step = max(1, C * n // _ROWS_OF_LOGIT)
    logs = np.log(linear.clip(_LEAST)).reshape(-1, k)[::step]
    X, w = L.reshape(-1, m)[::step], np.tile(weights * step / C, C)[::step]
    truth = np.eye(k)[np.tile(codes, C)[::step]]
    prior = np.append(np.zeros(k + m * k), 1.0)
    if k == 2:
        prior[k : k + 2] = _logistic_slope(L[..., 0]) / 2 * np.array([-1, 1])
        prior[:2] = np.log(weights @ np.eye(2)[codes] / weights.sum() + 1e-3)
        prior[-1] = 0.0

    def logit_of(theta):
        return Logit(theta[:k], theta[k:-1].reshape(m, k), theta[-1])

    def loss(theta):
        log_p = log_softmax(logit_of(theta).scores(X, logs), -1)
        error = (np.exp(log_p) - truth) * w[:, None]
        slopes = [error.sum(0), (X.T @ error).ravel(), [(error * logs).sum()]]
        far = theta - prior
        value = _RIDGE * far @ far / 2 - (w[:, None] * truth * log_p).sum()
        return value, np.concatenate(slopes) + _RIDGE * far

    options = {"maxiter": _ITERATIONS}
    best = minimize(loss, prior, jac=True, method="L-BFGS-B", options=options)
    return logit_of(best.x)


def _logistic_slope(L):
    """Return the slope of log-odds if standardised numbers are L and logistic noise."""
    return np.pi / np.sqrt(3 * max(1 - L.var(), _LEAST_NOISE))


class ProportionalOdds(NamedTuple):
    """Ordered levels, of which log-odds of higher ones are linear (McCullagh 1980)."""

    cuts: np.ndarray  # (k - 1,), increasing
    slopes: np.ndarray  # (m,)

    def log_probabilities(self, X):
        """Compute log-probabilities of levels (n, k) by predictors (n, m)."""
        return _log_between(*self._ends(X))

    def of(self, X):
        """Compute probabilities of levels (n, k)."""
        return np.exp(self.log_probabilities(X))

    def _ends(self, X):
        """Return the ends of each level on the scale of log-odds, two of (n, k)."""
        ends = np.pad(self.cuts - (X @ self.slopes)[:, None], ((0, 0), (1, 1)))
        ends[:, 0], ends[:, -1] = -np.inf, np.inf
        return ends[:, :-1], ends[:, 1:]

    def gradient(self, X, levels):
        """Differentiate the log-likelihood of `levels` (n, k) by cuts and slopes."""
        low, high = self._ends(X)
        between = 1 / np.expm1((high - low).clip(max=_FAR))
        by_end = levels[:, :-1] * (expit(-high) + between)[:, :-1]
        by_end -= levels[:, 1:] * (expit(low) + between)[:, 1:]
        return by_end.sum(0), -X.T @ by_end.sum(1)


def _log_between(low, high):
    """Compute the logarithm of the logistic probability between two numbers."""
    tails = np.logaddexp(0, -high) + np.logaddexp(0, low)
    return np.log(-np.expm1(low - high)) - tails


def fit_proportional_odds(X, levels, slopes):
    """Fit by maximum likelihood, shrunk to slopes (m,) and shares of levels.

    `X` (n, m); `levels` (n, k): weights of the cells.  Returns ProportionalOdds.
    """
    below = levels.sum(0).cumsum() + 0.5 * np.arange(1, levels.shape[1] + 1)
    odds = np.log(below[:-1] / (below[-1] - below[:-1]))
    gaps = np.log(np.diff(odds).clip(_LEAST_GAP))
    start = np.concatenate([odds[:1] + X.mean(0) @ slopes, gaps, slopes])
    k = len(odds)

    def odds_of(theta):
        cuts = theta[0] + np.append(0, np.exp(theta[1:k]).cumsum())
        return ProportionalOdds(cuts, theta[k:])

    def loss(theta):
        model, far = odds_of(theta), theta - start
        by_cuts, by_slopes = model.gradient(X, levels)
        tails = by_cuts[::-1].cumsum()[::-1]
        tails[1:] *= np.exp(theta[1:k])
        cost = _RIDGE * far @ far / 2 - (levels * model.log_probabilities(X)).sum()
        return cost, _RIDGE * far - np.append(tails, by_slopes)

    options = {"maxiter": _ITERATIONS}
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    return odds_of(best.x)


class GradeShares(NamedTuple):
    """Shares of grades among cells of similar predictions.

    Log-odds of higher grades move by the distance from the mean of these predictions,
    as beyond the ends none are similar.
    """

    predictions: np.ndarray  # (m,), in their order
    levels: np.ndarray  # (m, k), weights of their cells
    row: np.ndarray  # (m,), of which there is a prediction in each completion
    size: int  # of a window
    slope: float
    shares: np.ndarray  # (k,), of all cells

    def of(self, L, counted=0.0):
        """Predict probabilities (..., k), without the weights `counted` (..., k)."""
        _, first, last = windows(self.predictions, L, self.size)
        count, total = (
            np.concatenate([np.zeros_like(x[:1]), x.cumsum(0)])
            for x in (self.levels, self.predictions)
        )
        P = count[last] - count[first] + 0.5 * self.shares
        P = (P - counted).clip(1e-12)
        distance = L - (total[last] - total[first]) / (last - first)
        lower = P.cumsum(-1)
        odds = np.log((lower[..., -1:] / lower[..., :-1] - 1).clip(1e-12))
        higher = expit(odds + self.slope * distance[..., None])
        return -np.diff(higher, prepend=1.0, append=0.0)

    def bootstrapped(self, rng):
        """Give the rows the weights of a Bayesian bootstrap; see `Residuals`."""
        weights = rng.exponential(size=self.row.max() + 1)[self.row]
        return self._replace(levels=self.levels * weights[:, None])


def fit_grades(part, codes, L, weights):
    """Sort predictions (C, n) of grades with their levels, and fit the slope."""
    C, n = L.shape
    order, predictions = sorted_predictions(L.ravel())
    row = np.tile(np.arange(n), C)[order]
    levels = np.eye(part.n_levels)[codes[row]] * weights[row, None]
    least, most = _NEAR
    size = C * min(max(least, min(most, n // 4)), n)
    step = max(1, len(predictions) // _ROWS_OF_LOGIT)
    thinned = predictions[::step, None], levels[::step]
    odds = fit_proportional_odds(*thinned, np.array([_logistic_slope(predictions)]))
    return GradeShares(predictions, levels, row, size, odds.slopes[0], part.shares)


def levels_at(probabilities, u):
    """Find the places of levels at cumulative probabilities u, by inversion.

    `probabilities` (..., k); `u`, ndarray: between 0 and 1, of a shape that is
    broadcast with (...,).
    """
    sums = probabilities.cumsum(-1)
    u = u * sums[..., -1]
    return (sums < u[..., None]).sum(-1).clip(max=probabilities.shape[-1] - 1)


def sharpness(truth, best, weights):
    """Choose the power of probabilities (C, n, k) by the Brier score, shrunk to 1.

    Averages of calibrated probabilities are too close to each other (Ranjan and
    Gneiting 2010).
    """
    errors = [
        (weights[:, None] * (truth - sharpened(best, power)) ** 2).sum()
        for power in _POWERS
    ]
    n = weights.sum()
    return float(1 + (_POWERS[int(np.argmin(errors))] - 1) * n / (n + _PRIOR_OF_POWER))


def sharpened(p, power):
    """Raise probabilities (..., k) to a power, and let them add up to 1."""
    if power == 1:
        return p
    p = p**power
    return p / np.maximum(p.sum(-1, keepdims=True), 1e-300)
