r"""Shapes of the tail beyond a detection limit, which is not observed.

A share p of the cells of a column is beyond a limit q.  A family of distributions with
``F(q) = p`` has one free parameter: the standard deviation of x or of log x (normal and
lognormal), or the shape of a gamma or Weibull distribution.  On a grid of it, the
likelihood is that of the observed cells near the limit,

.. math:: \ell = n \Bigl( \sum_{k \le m} p_k \log f(v_k)
                 + \sum_{k > m} p_k \log (1 - F(v_m)) \Bigr),                        (1)

where v_1, v_2, ... are the observed values by their distance from the limit, p_k their
shares, and v_m is the last one of the nearer part; cells farther away may have any
shape.  The quantiles beyond the limit are the average over all families and
parameters, with weights proportional to ``exp(l)``.  If no family is right, all may
agree on a wrong tail: the observed cells near the limit must follow their average, up
to the Kolmogorov distance of samples.
"""

from collections.abc import Callable
from math import inf, pi, sqrt
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.special import gammainc, gammaincc, gammaln, ndtri

from skvnce.distributions.quantiles import normal_cdf

# from 0.05 to 158, at which a gamma distribution is nearly normal
SHAPES = torch.logspace(-1.3, 2.2, 141, dtype=torch.float64)
_NEAR = 0.9  # share of the observed cells that are near the limit
# down to the smallest numbers, which quantiles of small shapes reach
_LOGARITHMS = (-690.0, 9.0)  # range of those of gamma quantiles
# down to 6e-13 of the logarithm
_HALVINGS = 50
_LIGHT = 1e-4  # weight, relative to the largest, below which a curve is left out
_NEGATIVE = 1e-4  # share of negative cells above which positive cells are not normal
# beyond 8 lies a share of 6e-16 of a normal distribution
_FARTHEST, _STEP = 8.0, 0.1  # scores at which tails are tabulated
_LEAST = 1e-300  # probability
# Kolmogorov distance up to which the average fits, times the root of the number of
# cells (exceeded by 4 of 900 tables of the families), and one that is small anyway
_FITS, _SMALL = 1.45, 0.015


class Family(NamedTuple):
    """Distributions with ``F(q) = p``, one for each parameter."""

    log_density: Callable[[Tensor], Tensor]  # map x (n, 1) to (n, n_parameters)
    cdf: Callable[[Tensor], Tensor]
    # maps normal scores z (n, 1) to ``F^-1(Phi(z))``, (n, n_parameters)
    quantile: Callable[[Tensor], Tensor]


def normal(q: Tensor, z: Tensor, scales: Tensor) -> Family:
    """Make normal distributions with some standard deviations and ``F(q) = Phi(z)``."""
    mean = q - scales * z

    def log_density(x: Tensor) -> Tensor:
        return -((x - mean) / scales).square() / 2 - (scales * sqrt(2 * pi)).log()

    return Family(
        log_density,
        lambda x: normal_cdf((x - mean) / scales),
        lambda at: mean + scales * at,
    )


def lognormal(q: Tensor, z: Tensor, scales: Tensor) -> Family:
    """Make the distributions whose logarithms are normal."""
    of_log = normal(q.log(), z, scales)
    return Family(
        lambda x: of_log.log_density(x.log()) - x.log(),
        lambda x: of_log.cdf(x.log()),
        lambda at: of_log.quantile(at).exp(),
    )


def weibull(q: Tensor, z: Tensor) -> Family:
    """Make the Weibull distributions of some shapes."""
    unit = q / _exponential(z) ** (1 / SHAPES)

    def log_density(x: Tensor) -> Tensor:
        ratio = x / unit
        return (SHAPES / unit).log() + (SHAPES - 1) * ratio.log() - ratio**SHAPES

    return Family(
        log_density,
        lambda x: -torch.expm1(-((x / unit) ** SHAPES)),
        lambda at: unit * _exponential(at) ** (1 / SHAPES),
    )


def _exponential(z: Tensor) -> Tensor:
    """Compute ``-log(1 - Phi(z))``, accurately in both tails."""
    # clamped, because both branches are computed
    lower = -torch.log1p(-normal_cdf(z.clamp(max=0)))
    return torch.where(z < 0, lower, -torch.special.log_ndtr(-z))


def gamma(q: Tensor, z: Tensor) -> Family:
    """Make the gamma distributions of some shapes."""
    unit = q / _gamma_quantile(z[None, None])[0]

    def log_density(x: Tensor) -> Tensor:
        constant = gammaln(SHAPES) + unit.log()
        return (SHAPES - 1) * (x / unit).log() - x / unit - constant

    return Family(
        log_density,
        lambda x: gammainc(SHAPES, x / unit),
        lambda at: unit * _gamma_quantile(at),
    )


def _gamma_quantile(z: Tensor) -> Tensor:
    """Invert the distribution function by halving; (n, 1) to (n, n_shapes)."""
    low = torch.full((len(z), len(SHAPES)), _LOGARITHMS[0], dtype=torch.float64)
    high, shapes = torch.full_like(low, _LOGARITHMS[1]), SHAPES.expand_as(low)
    share, is_lower = normal_cdf(-z.abs()), z < 0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        x = middle.exp()
        # each tail by the function that is accurate in it
        below = torch.where(
            is_lower, gammainc(shapes, x) < share, gammaincc(shapes, x) > share
        )
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return ((low + high) / 2).exp()


class Tail(NamedTuple):
    """The average of some distributions beyond a limit."""

    values: Tensor  # (n_points,), increasing values and their normal scores
    scores: Tensor  # (n_points,)
    # standard deviation of the means of the cells beyond the limit under the
    # distributions, in standard deviations of these cells; infinite if the observed
    # cells near the limit do not follow the average of the distributions
    doubt: float

    def without(self, others: Tensor) -> Self:
        """Drop points whose values are repeated, or are among others."""
        kept = ~torch.isin(self.values, others)
        kept[1:] &= self.values.diff() > 0
        return self._replace(values=self.values[kept], scores=self.scores[kept])


def tail_of(
    limit: Tensor,  # q and p, numbers
    share: Tensor,
    observed: tuple[Tensor, Tensor],
    n: float,  # number of cells
    sign: float,  # -1 for cells below the limit, 1 for cells above it
    *,
    is_positive: bool,  # whether no cell can be negative
    number: float,  # number of observed cells
) -> Tail:
    """Estimate the distribution of cells beyond a limit.

    `observed` (n_values,): increasing observed values, and their shares of all cells.
    """
    z = ndtri(share)
    families = _families(limit, z, observed, is_positive)
    losses = torch.cat(
        [n * _log_likelihood(one, *observed, sign) + log for one, log in families]
    )
    # families whose density is not finite have no weight
    weights = torch.softmax(losses.nan_to_num(-torch.inf), 0)
    scores = z + sign * torch.arange(0, _FARTHEST, _STEP, dtype=torch.float64)
    curves = torch.cat([one.quantile(scores[:, None]) for one, _ in families], 1)
    # infinite values times a weight of 0 would be NaN
    kept = weights > _LIGHT * weights.max()
    distance = _distance([one for one, _ in families], weights, share, *observed, sign)
    curves, weights = curves[:, kept], weights[kept] / weights[kept].sum()
    values, order = curves @ weights, scores.argsort()
    doubt = _doubt(curves, weights, scores, sign)
    if distance > max(_FITS / number**0.5, _SMALL):
        doubt = inf
    return Tail(values[order], scores[order], doubt)


def _families(
    limit: Tensor, z: Tensor, observed: tuple[Tensor, Tensor], is_positive: bool
) -> list[tuple[Family, Tensor]]:
    """List families, and the logarithms of the prior weights of their parameters."""
    values, shares = observed
    plain = normal(limit, z, _scale(values, shares) * SHAPES)
    even = torch.zeros_like(SHAPES)
    if not is_positive:
        return [(plain, even)]
    negative = plain.cdf(torch.zeros(1, 1).to(values))[0] > _NEGATIVE
    logs = lognormal(limit, z, _scale(values.log(), shares) * SHAPES)
    others = [logs, weibull(limit, z), gamma(limit, z)]
    prior = even.where(~negative, -torch.inf)
    return [(plain, prior), *((one, even) for one in others)]


def _scale(x: Tensor, shares: Tensor) -> Tensor:
    share = shares / shares.sum()
    return (share @ (x - share @ x).square()).sqrt()


def _log_likelihood(
    family: Family, values: Tensor, shares: Tensor, sign: float
) -> Tensor:
    """Compute eq. (1) over n for each parameter."""
    if sign > 0:
        values, shares = values.flip(0), shares.flip(0)
    near = _are_near(shares)
    total = shares[near] @ family.log_density(values[near, None])
    if near.all():
        return total
    below = family.cdf(values[near][-1].reshape(1, 1))[0]
    farther = below if sign > 0 else 1 - below
    return total + shares[~near].sum() * farther.clamp(min=_LEAST).log()


def _are_near(shares: Tensor) -> Tensor:
    """Return which values are near the limit, by shares in order of their distance."""
    near = shares.cumsum(0) <= _NEAR * shares.sum()
    # a single value says nothing about the shape
    near[:2] = True
    return near


def _distance(
    families: list[Family],
    weights: Tensor,
    share: Tensor,
    values: Tensor,
    shares: Tensor,
    sign: float,
) -> float:
    """Compute the Kolmogorov distance of near values from the averaged distribution.

    Both are conditional on being observed.  A distribution function within the step of
    a repeated value has no distance there, since such values are often rounded.
    """
    if sign > 0:
        values, shares = values.flip(0), shares.flip(0)
    near = _are_near(shares)
    cdf = torch.cat([one.cdf(values[near, None]) for one in families], 1)
    found = sign * (share - cdf @ weights)
    after = shares.cumsum(0)[near]
    gaps = torch.maximum(found - after, after - shares[near] - found)
    return float(gaps.max().clamp(min=0) / shares.sum())


def _doubt(curves: Tensor, weights: Tensor, scores: Tensor, sign: float) -> float:
    """Compute `Tail.doubt` from quantiles (n_points, n_distributions)."""
    share = normal_cdf(sign * -scores)  # beyond each point
    mass = (share[:-1] - share[1:])[:, None] / share[0]
    middles = (curves[:-1] + curves[1:]) / 2
    means = (mass * middles).sum(0)
    spread = ((mass * (middles - means).square()).sum(0) @ weights).sqrt()
    doubt = (weights @ (means - weights @ means).square()).sqrt()
    return float(doubt / spread)
