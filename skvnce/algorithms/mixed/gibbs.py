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
from typing import NamedTuple

import torch
from torch import Tensor
from torch.special import ndtri

from skvnce._progress import OnRound, tell_round
from skvnce.algorithms.gaussian import em
from skvnce.algorithms.mixed.columns import Bounds, Latents
from skvnce.distributions.normal import Normal
from skvnce.distributions.quantiles import inside, normal_cdf
from skvnce.variational.base import global_stream

BURN_IN = 0.4  # share of the sweeps before the first draw of the parameters

OnConditional = Callable[[int, Tensor, Tensor | None], None]


def truncated(
    mean: Tensor, scale: Tensor, low: Tensor, high: Tensor, u: Tensor
) -> Tensor:
    """Map uniform numbers to draws of normal distributions between bounds.

    Computed in the lower tail.  Where the interval is too far from the mean for its
    probability to be representable, the draw is the nearest bound.
    """
    a, b = (low - mean) / scale, (high - mean) / scale
    sign = torch.where(a > 0, -1.0, 1.0).to(a)
    a, b = torch.minimum(sign * a, sign * b), torch.maximum(sign * a, sign * b)
    below = normal_cdf(a)
    z = sign * ndtri(below + u * (normal_cdf(b) - below))
    return torch.maximum(torch.minimum(mean + scale * z, high), low)


def beyond(
    mean: Tensor, scale: Tensor, bound: Tensor, sign: Tensor, u: Tensor
) -> Tensor:
    """Map uniform numbers to draws above (sign 1) or below (sign -1) a bound.

    A sign of 0 means that there is no bound.
    """
    chance = normal_cdf((mean - bound) * (sign / scale))  # 1/2 without a bound
    chance = chance.where(sign != 0, 1.0)
    z = mean - (sign + (sign == 0)) * scale * ndtri(u * chance)
    return torch.where(z.isinf(), bound, z)


class Factors(NamedTuple):
    """A normal distribution of the latent variables, ready for sweeps.

    Attributes
    ----------
    slopes : Tensor of shape (latents, latents)
        Row j has the coefficients of ``z_j - E[z_j | others]``: the precision over its
        diagonal.
    offsets : Tensor of shape (latents,)
        ``slopes @ mean``.
    scales : Tensor of shape (latents,)
        Standard deviations of each given the others.
    """

    slopes: Tensor
    offsets: Tensor
    scales: Tensor

    @classmethod
    def of(cls, normal: Normal) -> "Factors":
        """Invert the covariance."""
        precision = torch.cholesky_inverse(torch.linalg.cholesky(normal.covariance))
        diagonal = precision.diagonal()
        slopes = precision / diagonal[:, None]
        return cls(slopes, slopes @ normal.mean, diagonal.rsqrt())

    def given_others(self, z: Tensor, j: int) -> Tensor:
        """Compute E[z_j | others] of rows; z is (latents, n), the result (n,)."""
        return z[j] - self.slopes[j] @ z + self.offsets[j]


class Rows(NamedTuple):
    """Rows whose latent variables are drawn.

    Attributes
    ----------
    latents : Latents
    bounds : Bounds
    free : list of Tensor
        For each column that is not nominal, the rows whose score is not known.
    signs : list of Tensor
        For each nominal column, 1 for the latent variable of the observed level, -1 for
        the others, 0 in rows that miss the column; (n_levels, n).
    """

    latents: Latents
    bounds: Bounds
    free: list[Tensor]
    signs: list[Tensor]

    @classmethod
    def of(cls, latents: Latents, bounds: Bounds) -> "Rows":
        """Find the scores that are not known, and the order of nominal latents."""
        unknown, signs = bounds.low < bounds.high, []
        free = [unknown[k].nonzero().squeeze(1) for _, k, _ in latents.ordered]
        for place, (_, block) in enumerate(latents.nominal):
            levels = bounds.levels[place]
            own = levels == torch.arange(block.stop - block.start)[:, None]
            sign = torch.where(own, 1.0, -1.0).where(levels >= 0, 0.0)
            signs.append(sign.to(bounds.low))
        return cls(latents, bounds, free, signs)

    def start(self, mean: Tensor) -> Tensor:
        """Choose latent variables within their bounds; (latents, n)."""
        low, high = self.bounds.low, self.bounds.high
        z = ndtri((normal_cdf(low) + normal_cdf(high)) / 2).where(low < high, low)
        for (_, block), sign in zip(self.latents.nominal, self.signs, strict=True):
            z[block] = torch.where(
                sign > 0, mean[block].max() + 0.5, mean[block][:, None]
            )
        return z

    def sweep(
        self,
        z: Tensor,
        factors: Factors,
        uniform: Tensor,
        on_conditional: OnConditional | None = None,
    ) -> None:
        """Draw each latent variable given the others, in place.

        Parameters
        ----------
        z : Tensor of shape (latents, n)
        factors : Factors
        uniform : Tensor of shape (latents, n)
        on_conditional : callable
            Called with a latent variable, its conditional means (n,) and, for those of
            nominal columns, the largest of the others (n,).
        """
        low, high, _ = self.bounds
        for (_, j, _), rows in zip(self.latents.ordered, self.free, strict=True):
            if len(rows):
                mean = factors.given_others(z, j)
                if on_conditional:
                    on_conditional(j, mean, None)
                parts = (part[rows] for part in (low[j], high[j], uniform[j]))
                z[j, rows] = truncated(mean[rows], factors.scales[j], *parts)
        for (_, block), sign in zip(self.latents.nominal, self.signs, strict=True):
            own = z[block].where(sign > 0, -torch.inf).max(0).values
            for k, j in enumerate(range(block.start, block.stop)):
                mean, part = factors.given_others(z, j), z[block]
                before = part[k].clone()
                part[k] = -torch.inf
                most = part.max(0).values
                part[k] = before
                if on_conditional:
                    on_conditional(j, mean, most)
                bound = torch.where(sign[k] > 0, most, own)
                z[j] = beyond(mean, factors.scales[j], bound, sign[k], uniform[j])
                own = torch.where(sign[k] > 0, z[j], own)


def set_scales(latents: Latents, z: Tensor, normal: Normal) -> tuple[Tensor, Normal]:
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
    return (z - shift[:, None]) / scale[:, None], Normal(mean, covariance)


def start_of(latents: Latents, data_levels: Tensor, weights: Tensor) -> Normal:
    """Return independent latent variables whose levels have about the shares seen."""
    mean = torch.zeros(latents.size, dtype=torch.float64)
    for place, (_, block) in enumerate(latents.nominal):
        levels = data_levels[place]
        seen = levels >= 0
        count = torch.zeros(block.stop - block.start, dtype=torch.float64)
        count.index_add_(0, levels[seen], weights[seen])
        share = (count + 0.5) / (count.sum() + 0.5 * len(count))
        score = ndtri(share)
        mean[block] = score - score.mean()
    return Normal(mean, torch.eye(latents.size, dtype=torch.float64))


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
    normal = start_of(rows.latents, rows.bounds.levels, weights)
    z, total = rows.start(normal.mean), weights.sum()
    every = max(1, int(max_iter * (1 - BURN_IN)) // n_draws)
    found = Fit([], [])
    for number in range(1, max_iter + 1):
        uniform = inside(global_stream(number, z))
        rows.sweep(z, Factors.of(normal), uniform)
        moments = em.Moments.zeros(len(z))
        moments.add(z.T - normal.mean, weights)
        normal = em.draw_parameters(normal.mean, moments, total, strength)
        z, normal = set_scales(rows.latents, z, normal)
        found.losses.append(_loss(z, normal, weights))
        change = abs(found.losses[-1] - found.losses[-2]) if number > 1 else nan
        if max_iter - number < every * n_draws and (max_iter - number) % every == 0:
            found.draws.append(normal)
        if on_round(number, found.losses[-1], change):
            break
    return found if found.draws else found._replace(draws=[normal])


def _loss(z: Tensor, normal: Normal, weights: Tensor) -> float:
    """Compute minus the mean log-density of the latent variables of a row."""
    root = torch.linalg.cholesky(normal.covariance)
    x = torch.linalg.solve_triangular(root, z - normal.mean[:, None], upper=False)
    squares = weights @ x.square().sum(0) / weights.sum()
    return float(squares / 2 + root.diagonal().log().sum() + len(z) * log(2 * pi) / 2)
