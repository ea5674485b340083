"""Gibbs sampling of a latent normal model of a mixed table.

A sweep draws each latent variable given the others, within the bounds that the observed
cell sets: a univariate truncated normal distribution (Albert and Chib 1993; Hoff 2007,
Extending the rank likelihood for semiparametric copula estimation, section 3).  Mean
and covariance are drawn from their posterior given the latent variables, as in data
augmentation of a normal distribution (`em.draw_parameters`), and then the scales that
the data do not determine are set to one (parameter expansion; Liu and Wu 1999).
"""

from collections.abc import Callable
from math import log, nan, pi
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._progress import OnRound, tell_round
from skvnce.algorithms.gaussian import em
from skvnce.algorithms.mixed.columns import Bounds, Latents
from skvnce.algorithms.mixed.normal import cdf, quantile
from skvnce.distributions.normal import Normal
from skvnce.distributions.quantiles import inside

BURN_IN = 0.4  # share of the sweeps before the first draw of the parameters
_LEAST = 1e-300  # probability of an interval below which a draw is its nearest bound

OnConditional = Callable[[int, np.ndarray, np.ndarray | None], None]


def truncated(
    mean: np.ndarray, scale: float, low: np.ndarray, high: np.ndarray, u: np.ndarray
) -> np.ndarray:
    """Map uniform numbers to draws of normal distributions between bounds; (n,).

    Computed in the lower tail.  Where the interval is too far from the mean for its
    probability to be representable, the draw is the nearest bound.
    """
    a, b = (low - mean) / scale, (high - mean) / scale
    sign = np.where(a > 0, -1.0, 1.0)
    below, above = cdf(np.where(a > 0, -b, a)), cdf(np.where(a > 0, -a, b))
    z = mean + scale * sign * quantile(below + u * (above - below))
    return np.clip(z, low, high)


def beyond(
    mean: np.ndarray, scale: float, bound: np.ndarray, sign: np.ndarray, u: np.ndarray
) -> np.ndarray:
    """Map uniform numbers to draws above (sign 1) or below (sign -1) bounds; (n,)."""
    chance = cdf((mean - bound) * (sign / scale))
    z = mean - sign * scale * quantile(u * np.maximum(chance, _LEAST))
    far = chance <= _LEAST
    return np.where(far, bound, z) if far.any() else z


class Factors(NamedTuple):
    """A normal distribution of the latent variables, ready for sweeps.

    Attributes
    ----------
    slopes : ndarray of shape (latents, latents)
        Row j has the coefficients of ``z_j - E[z_j | others]``: the precision over its
        diagonal.
    offsets : ndarray of shape (latents,)
        ``slopes @ mean``.
    scales : ndarray of shape (latents,)
        Standard deviations of each given the others.
    """

    slopes: np.ndarray
    offsets: np.ndarray
    scales: np.ndarray

    @classmethod
    def of(cls, normal: Normal) -> Self:
        """Invert the covariance."""
        precision = torch.cholesky_inverse(torch.linalg.cholesky(normal.covariance))
        diagonal = precision.diagonal()
        slopes = precision / diagonal[:, None]
        parts = slopes, slopes @ normal.mean, diagonal.rsqrt()
        return cls(*(part.numpy() for part in parts))

    def given_others(self, z: np.ndarray, j: int) -> np.ndarray:
        """Compute E[z_j | others] of rows; z is (latents, n), the result (n,)."""
        return z[j] - self.slopes[j] @ z + self.offsets[j]


class Nominal(NamedTuple):
    """The rows of a nominal column by what is observed.

    Attributes
    ----------
    first : int
        Its first latent variable.
    rows_of : list of ndarray of int
        The rows of each level.
    missing : ndarray of int
        The rows that miss the column.
    """

    first: int
    rows_of: list[np.ndarray]
    missing: np.ndarray

    @property
    def block(self) -> slice:
        """The latent variables."""
        return slice(self.first, self.first + len(self.rows_of))

    def own(self, z: np.ndarray) -> np.ndarray:
        """Return the latent variables of the observed levels; (n,), 0 if missing."""
        found = np.zeros(z.shape[1])
        for k, rows in enumerate(self.rows_of):
            found[rows] = z[self.first + k, rows]
        return found

    def largest_other(self, z: np.ndarray, k: int, rows: np.ndarray) -> np.ndarray:
        """Find the largest latent variable of the other levels in some rows."""
        part = z[self.block, rows] if len(rows) else np.zeros((len(self.rows_of), 0))
        part[k] = -np.inf
        return part.max(0)


class Rows(NamedTuple):
    """Rows whose latent variables are drawn.

    Attributes
    ----------
    latents : Latents
    low, high : ndarray of shape (latents, n)
        See `Bounds`.
    free : list of ndarray of int
        For each column that is not nominal, the rows whose score is not known.
    nominal : list of Nominal
    """

    latents: Latents
    low: np.ndarray
    high: np.ndarray
    free: list[np.ndarray]
    nominal: list[Nominal]

    @classmethod
    def of(cls, latents: Latents, bounds: Bounds) -> Self:
        """Find the scores that are not known, and the rows of each level."""
        low, high, levels = (part.numpy() for part in bounds)
        free = [np.flatnonzero(low[k] < high[k]) for _, k, _ in latents.ordered]
        nominal = [
            Nominal(
                block.start,
                [np.flatnonzero(own == k) for k in range(block.stop - block.start)],
                np.flatnonzero(own < 0),
            )
            for (_, block), own in zip(latents.nominal, levels, strict=True)
        ]
        return cls(latents, low, high, free, nominal)

    def start(self, mean: Tensor) -> np.ndarray:
        """Choose latent variables within their bounds; (latents, n)."""
        below, above = cdf(self.low), cdf(self.high)
        z = np.where(self.low < self.high, quantile((below + above) / 2), self.low)
        for column in self.nominal:
            part = mean[column.block].numpy()
            z[column.block] = part[:, None]
            for k, rows in enumerate(column.rows_of):
                z[column.first + k, rows] = part.max() + 0.5
        return z

    def sweep(
        self,
        z: np.ndarray,
        factors: Factors,
        uniform: np.ndarray,
        on_conditional: OnConditional | None = None,
    ) -> None:
        """Draw each latent variable given the others, in place.

        Parameters
        ----------
        z : ndarray of shape (latents, n)
        factors : Factors
        uniform : ndarray of shape (latents, n)
        on_conditional : callable
            Called with a latent variable, its conditional means (n,) and, for those of
            nominal columns, the largest of the others in the rows that miss the column.
        """
        for (_, j, _), rows in zip(self.latents.ordered, self.free, strict=True):
            if len(rows):
                mean = factors.given_others(z, j)
                if on_conditional:
                    on_conditional(j, mean, None)
                bounds = self.low[j, rows], self.high[j, rows]
                part = mean[rows], factors.scales[j], *bounds, uniform[j, rows]
                z[j, rows] = truncated(*part)
        for column in self.nominal:
            _sweep_nominal(column, z, factors, uniform, on_conditional)


def _sweep_nominal(
    column: Nominal,
    z: np.ndarray,
    factors: Factors,
    uniform: np.ndarray,
    on_conditional: OnConditional | None,
) -> None:
    """Draw the latent variables of the levels: that of the observed one is largest."""
    own, missing = column.own(z), column.missing
    for k, rows in enumerate(column.rows_of):
        j = column.first + k
        mean, scale = factors.given_others(z, j), factors.scales[j]
        if on_conditional:
            on_conditional(j, mean, column.largest_other(z, k, missing))
        bound, sign = own.copy(), np.full(len(own), -1.0)
        bound[rows], sign[rows] = column.largest_other(z, k, rows), 1.0
        bound[missing] = np.inf
        z[j] = beyond(mean, scale, bound, sign, uniform[j])
        own[rows] = z[j, rows]


def set_scales(
    latents: Latents, z: np.ndarray, normal: Normal
) -> tuple[np.ndarray, Normal]:
    """Give latent variables without a scale of their own unit variance.

    The level of a nominal column does not change if all its latent variables are
    shifted or scaled together, nor that of a column of two levels if scores are scaled
    around the threshold.
    """
    shift, scale = torch.zeros_like(normal.mean), torch.ones_like(normal.mean)
    variances = normal.covariance.diagonal()
    for _, block in latents.nominal:
        shift[block] = normal.mean[block].mean()
        scale[block] = variances[block].mean().sqrt()
    for _, j, marginal in latents.ordered:
        if len(marginal.values) == 2:
            scale[j] = variances[j].sqrt()
            shift[j] = marginal.low[1] * (1 - scale[j])
    mean = (normal.mean - shift) / scale
    covariance = normal.covariance / torch.outer(scale, scale)
    z = (z - shift[:, None].numpy()) / scale[:, None].numpy()
    return z, Normal(mean, covariance)


def start_of(rows: Rows, weights: np.ndarray) -> Normal:
    """Return independent latent variables whose levels have about the shares seen."""
    mean = np.zeros(rows.latents.size)
    for column in rows.nominal:
        count = np.array([weights[some].sum() for some in column.rows_of]) + 0.5
        score = quantile(count / count.sum())
        mean[column.block] = score - score.mean()
    return Normal(torch.from_numpy(mean), torch.eye(len(mean), dtype=torch.float64))


class Fit(NamedTuple):
    """Draws of the parameters from their posterior.

    Attributes
    ----------
    draws : list of Normal
    losses : list of float
        Minus the mean log-density of the latent variables of a row, after each sweep.
    """

    draws: list[Normal]
    losses: list[float]

    def average(self) -> Normal:
        """Average the draws."""
        means, covariances = zip(*self.draws, strict=True)
        return Normal(torch.stack(means).mean(0), torch.stack(covariances).mean(0))


def posterior_draws(
    rows: Rows,
    weights: Tensor,
    strength: float,
    *,
    n_draws: int,
    max_iter: int,
    on_round: OnRound = tell_round,
) -> Fit:
    """Draw mean and covariance of the latent variables from their posterior.

    Parameters
    ----------
    rows : Rows
    weights : Tensor of shape (n,)
    strength : float
        Weight of the prior of independent latent variables, in rows.
    n_draws : int
        Number of draws, at equal distances, after the burn-in.
    max_iter : int
        Number of sweeps; at least `n_draws`.
    on_round : callable
        Called with the number of the sweep, the loss, and the change of the loss; stops
        the chain by returning True.
    """
    normal = start_of(rows, weights.numpy())
    z, total = rows.start(normal.mean), weights.sum()
    every = max(1, int(max_iter * (1 - BURN_IN)) // n_draws)
    found = Fit([], [])
    for number in range(1, max_iter + 1):
        uniform = inside(torch.rand(z.shape, dtype=torch.float64)).numpy()
        rows.sweep(z, Factors.of(normal), uniform)
        moments = em.Moments.zeros(len(z))
        moments.add(torch.from_numpy(z).T - normal.mean, weights)
        normal = em.draw_parameters(normal.mean, moments, total, strength)
        z, normal = set_scales(rows.latents, z, normal)
        found.losses.append(_loss(z, normal, weights))
        change = abs(found.losses[-1] - found.losses[-2]) if number > 1 else nan
        if max_iter - number < every * n_draws and (max_iter - number) % every == 0:
            found.draws.append(normal)
        if on_round(number, found.losses[-1], change):
            break
    return found if found.draws else found._replace(draws=[normal])


def _loss(z: np.ndarray, normal: Normal, weights: Tensor) -> float:
    """Compute minus the mean log-density of the latent variables of a row."""
    root = torch.linalg.cholesky(normal.covariance)
    x = torch.from_numpy(z) - normal.mean[:, None]
    x = torch.linalg.solve_triangular(root, x, upper=False)
    squares = weights @ x.square().sum(0) / weights.sum()
    return float(squares / 2 + root.diagonal().log().sum() + len(z) * log(2 * pi) / 2)
