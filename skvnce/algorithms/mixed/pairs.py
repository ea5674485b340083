"""Correlations of latent variables, from the rows that observe both of two columns.

Let ``m_j = E[z_j | x_j]`` for a standard normal z_j, an increasing function of z_j with
the coefficients ``a_jk = E[m_j h_k(z_j)]`` of normalised Hermite polynomials.  If two
latent variables have the correlation r (Mehler 1866),

    Cov(m_i, m_j) = sum_{k >= 1} a_ik a_jk r**k                                    (1)

which increases with r.  The solution for the covariance of the rows that observe both
columns is the tetrachoric correlation of two binary columns, the correlation of the
normal scores of two numbers, and for other columns has nearly the standard error of the
polychoric or polyserial correlation.  It needs no iterations over the rows.
"""

from math import pi, sqrt
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce.algorithms.mixed.columns import Latents, Marginal
from skvnce.algorithms.mixed.gibbs import Rows
from skvnce.distributions.bounded_normal import interval_mean
from skvnce.distributions.quantiles import normal_cdf

_DEGREE = 40  # of the polynomials: 0.9 ** 40 is 0.015
_STEPS = 12  # of Newton's method or bisection; one suffices for numbers
_FAR = 38.0  # beyond which the normal density is zero
# variances are divisors
_LEAST = 1e-12  # variance below which a column counts as constant


class Means(NamedTuple):
    """E[z | cell] of standard normal z, and which cells are observed; (latents, n).

    Both are zero for the latent variables of nominal columns.
    """

    values: Tensor
    seen: Tensor

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Compute those of some rows."""
        low, high = torch.from_numpy(rows.low), torch.from_numpy(rows.high)
        seen = ~(low.isneginf() & high.isposinf())
        inside = seen & (low < high)
        values = low.where(seen, 0.0)
        values[inside] = mean_between(low[inside], high[inside])
        return cls(values, seen.to(values))


class Sums(NamedTuple):
    """Sums over the rows that observe both of two columns; (latents, latents)."""

    number: Tensor  # number of rows
    first: Tensor  # of the mean of the first column of a pair, and of its square
    squares: Tensor
    products: Tensor

    @classmethod
    def of(cls, means: Means) -> Self:
        """Compute those of some rows."""
        m, seen = means
        return cls(seen @ seen.T, m @ seen.T, m.square() @ seen.T, m @ m.T)

    def correlations(self) -> Tensor:
        """Compute the correlations of the means; zero without variance or rows."""
        n = self.number.clamp(min=1)
        covariance = self.products / n - (self.first / n) * (self.first.T / n)
        variance = self.squares / n - (self.first / n).square()
        scale = variance * variance.T
        found = covariance / scale.clamp(min=_LEAST).sqrt()
        return found.where(scale > _LEAST, 0.0).clamp(-1, 1)


def explained(rows: list[Rows]) -> Tensor:
    """Average the squares of E[z | cell], zero where it is missing; (latents,)."""
    totals = [Means.of(part).values.square().sum(1) for part in rows]
    return sum(totals) / sum(part.low.shape[1] for part in rows)


def correlations(latents: Latents, rows: list[Rows]) -> Tensor:
    """Estimate the correlations of latent variables, each pair on its own.

    Those of nominal columns of more than two levels are zero.

    Returns (latents, latents): it need not be positive definite.
    """
    each = [Sums.of(Means.of(part)) for part in rows]
    sums = Sums(*(sum(parts) for parts in zip(*each, strict=True)))
    places = [latent for _, latent, _ in latents.ordered]
    inner = torch.meshgrid(
        *[torch.tensor(places, dtype=torch.int64)] * 2, indexing="ij"
    )
    found = torch.eye(latents.size, dtype=torch.float64)
    if places:
        shapes = [coefficients(marginal) for _, _, marginal in latents.ordered]
        own = solved(sums.correlations()[inner], torch.stack(shapes))
        found[inner] = own.fill_diagonal_(1.0)
    return found


def mean_between(low: Tensor, high: Tensor) -> Tensor:
    """Compute E[z | low < z < high] of a standard normal z."""
    flipped = low + high < 0
    ends = torch.where(flipped, -high, low), torch.where(flipped, -low, high)
    found = interval_mean(*ends)
    return torch.where(flipped, -found, found)


def coefficients(marginal: Marginal) -> Tensor:
    """Compute a_k / sqrt(Var(m)) of eq. (1), for k = 1, 2, ...; (degree,).

    m is z but for the intervals of values, so that a_k is that of z, 1 if k = 1 and
    else 0, plus ``E[(m - z) h_k(z)]`` over the intervals.
    """
    wide = marginal.low < marginal.high
    low, high = marginal.low[wide], marginal.high[wide]
    mean, over = mean_between(low, high), _integrals(low, high)
    order = torch.arange(len(over)).to(over)[:, None].sqrt()
    times_z = order[2:] * over[2:] + order[1:-1] * over[:-2]  # of z h_k, k = 1, 2, ...
    found = (mean * over[1:-1] - times_z).sum(1)
    found[0] += 1
    variance = found[0]  # Var(m) = Cov(m, z)
    return found / variance.clamp(min=_LEAST).sqrt()


def _integrals(low: Tensor, high: Tensor) -> Tensor:
    """Compute the integrals of h_k phi over intervals; (degree + 2, n_intervals)."""
    # infinite ends times a density of 0 would be NaN
    ends = torch.stack([low, high]).clamp(-_FAR, _FAR)
    density = torch.exp(-ends.square() / 2) / sqrt(2 * pi)
    each = [density, ends * density]  # h_k phi at the ends
    for k in range(2, _DEGREE + 1):
        each.append((ends * each[-1] - sqrt(k - 1) * each[-2]) / sqrt(k))
    mass = normal_cdf(high) - normal_cdf(low)
    inner = [(one[0] - one[1]) / sqrt(k) for k, one in enumerate(each, 1)]
    return torch.stack([mass, *inner])


def solved(target: Tensor, shapes: Tensor) -> Tensor:
    """Solve eq. (1) for all pairs, by Newton's method or, if it leaves, bisection.

    `target` (columns, columns): correlations of the means; `shapes` (columns, degree).
    Returns (columns, columns).
    """
    low, high = -torch.ones_like(target), torch.ones_like(target)
    r = (target / torch.outer(shapes[:, 0], shapes[:, 0])).clamp(-1, 1)
    for _ in range(_STEPS):
        value, slope = series(r, shapes)
        # the series increases with r, so that the solution stays between both
        low, high = low.where(value > target, r), high.where(value < target, r)
        moved = r - (value - target) / slope
        within = (moved >= low) & (moved <= high)
        r = moved.where(within, (low + high) / 2)
    return r


def series(r: Tensor, shapes: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the right-hand side of eq. (1) and its derivative, by Horner's rule."""
    value, slope = torch.zeros_like(r), torch.zeros_like(r)
    for one in shapes.T.flip(0):
        value = value + torch.outer(one, one)
        slope = slope * r + value
        value = value * r
    return value, slope
