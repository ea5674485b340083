r"""Marginals of columns with censored cells, of which only limits are known.

At and above the smallest observed value the distribution function is estimated without
an assumption on its shape, by self-consistency (Turnbull 1976, The empirical
distribution function with arbitrarily grouped, censored and truncated data, eq. 3.4):

.. math:: n p_k = \sum_{i\,observed} 1(x_i = v_k)
                + \sum_{i\,censored} p_k 1(v_k \in I_i) / \sum_{l \in I_i} p_l.      (1)

It gives the share of the cells below all observed values, but not where they are.
Families of distributions that agree with this share at the largest limit of these cells
are weighed by the likelihood of the observed values (`Tail`): normal ones,
and, if values cannot be negative, lognormal, gamma and Weibull ones, too, which begin
at the smallest valid value.  Likewise above all observed values.  Positive numbers
are not normal if more than one cell in 10,000 would become negative.
"""

from math import inf
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.special import ndtri

from skvnce._core.random import normal_cdf
from skvnce.gaussian.latent.columns import Limits, Marginal, at_least

# ----------------------------------------
# Shapes of the tail beyond a detection limit, which is not observed.
#
# A share p of the cells of a column is beyond a limit q.  A family of distributions
# with ``F(q) = p`` has one free parameter: the standard deviation of x or of log x
# (normal and lognormal), or the shape of a gamma or Weibull distribution.  On a grid
# of it, the likelihood is that of the observed cells near the limit,
#
# .. math:: \ell = n \Bigl( \sum_{k \le m} p_k \log f(v_k)
#          + \sum_{k > m} p_k \log (1 - F(v_m)) \Bigr),            (1)
#
# where v_1, v_2, ... are the observed values by their distance from the limit, p_k
# their shares, and v_m is the last one of the nearer part; cells farther away may
# have any shape.  The quantiles beyond the limit are the average over all families
# and parameters, with weights proportional to ``exp(l)``.  If no family is right, all
# may agree on a wrong tail: the observed cells near the limit must follow their
# average, up to the Kolmogorov distance of samples.


# from 0.05 to 158, at which a gamma distribution is nearly normal
SHAPES = torch.logspace(-1.3, 2.2, 141, dtype=torch.float64)
_NEAR = 0.9  # share of the observed cells that are near the limit
_LIGHT = 1e-4  # weight, relative to the largest, below which a curve is left out
_NEGATIVE = 1e-4  # share of negative cells above which positive cells are not normal
# beyond 8 lies a share of 6e-16 of a normal distribution
_FARTHEST, _STEP = 8.0, 0.1  # scores at which tails are tabulated
_LEAST_PROBABILITY = 1e-300  # probability
# Kolmogorov distance up to which the average fits, times the root of the number of
# cells (exceeded by 4 of 900 tables of the families), and one that is small anyway
_FITS, _SMALL = 1.45, 0.015


class Family(NamedTuple):
    """Distributions with ``F(q) = p``, one for each parameter."""

    distribution: Any  # of scipy, with n_parameters parameters

    def log_density(self, x: Tensor) -> Tensor:
        """Compute the log-densities at x (n, 1); (n, n_parameters)."""
        return torch.from_numpy(self.distribution.logpdf(x.numpy()))

    def cdf(self, x: Tensor) -> Tensor:
        """Compute the distribution functions at x (n, 1); (n, n_parameters)."""
        return torch.from_numpy(self.distribution.cdf(x.numpy()))

    def quantile(self, z: Tensor) -> Tensor:
        """Map normal scores z (n, 1) to ``F^-1(Phi(z))``; (n, n_parameters)."""
        share = normal_cdf(-z.abs()).numpy()  # of the nearer tail, which has all digits
        below, above = self.distribution.ppf(share), self.distribution.isf(share)
        return torch.from_numpy(np.where(z < 0, below, above))


def normal(q: Tensor, z: Tensor, scales: Tensor) -> Family:
    """Make normal distributions with some standard deviations and ``F(q) = Phi(z)``."""
    return Family(stats.norm(*(part.numpy() for part in (q - scales * z, scales))))


def lognormal(q: Tensor, z: Tensor, scales: Tensor) -> Family:
    """Make the distributions whose logarithms are normal."""
    units = (q.log() - scales * z).exp()
    return Family(stats.lognorm(scales.numpy(), scale=units.numpy()))


def of_shapes(kind: stats.rv_continuous, q: Tensor, z: Tensor) -> Family:
    """Make distributions of some shapes, in the units in which ``F(q) = Phi(z)``."""
    shapes = SHAPES.numpy()
    units = q / Family(kind(shapes)).quantile(z[None, None])[0]
    return Family(kind(shapes, scale=units.numpy()))


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
        is_new = ~torch.isin(self.values, others)
        is_new[1:] &= self.values.diff() > 0
        return self._replace(values=self.values[is_new], scores=self.scores[is_new])


# families that are far from the cells have no weight
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
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
    if sign > 0:  # by their distance from the limit
        observed = tuple(part.flip(0) for part in observed)
    losses = torch.cat(
        [n * _log_likelihood(family, *observed, sign) + log for family, log in families]
    )
    # families whose density is not finite have no weight
    weights = torch.softmax(losses.nan_to_num(-torch.inf), 0)
    scores = z + sign * torch.arange(0, _FARTHEST, _STEP, dtype=torch.float64)
    curves = torch.cat([family.quantile(scores[:, None]) for family, _ in families], 1)
    # infinite values times a weight of 0 would be NaN
    is_heavy = weights > _LIGHT * weights.max()
    distance = _distance(
        [family for family, _ in families], weights, share, *observed, sign
    )
    curves, weights = curves[:, is_heavy], weights[is_heavy] / weights[is_heavy].sum()
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
    kinds = stats.weibull_min, stats.gamma
    others = [logs, *(of_shapes(kind, limit, z) for kind in kinds)]
    prior = even.where(~negative, -torch.inf)
    return [(plain, prior), *((family, even) for family in others)]


def _scale(x: Tensor, shares: Tensor) -> Tensor:
    share = shares / shares.sum()
    return (share @ (x - share @ x).square()).sqrt()


def _log_likelihood(
    family: Family, values: Tensor, shares: Tensor, sign: float
) -> Tensor:
    """Compute eq. (1) over n for each parameter."""
    near = _are_near(shares)
    total = shares[near] @ family.log_density(values[near, None])
    if near.all():
        return total
    below = family.cdf(values[near][-1].reshape(1, 1))[0]
    farther = below if sign > 0 else 1 - below
    return total + shares[~near].sum() * farther.clamp(min=_LEAST_PROBABILITY).log()


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
    near = _are_near(shares)
    cdf = torch.cat([family.cdf(values[near, None]) for family in families], 1)
    predicted = sign * (share - cdf @ weights)
    after = shares.cumsum(0)[near]
    gaps = torch.maximum(predicted - after, after - shares[near] - predicted)
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


# ----------------------------------------
# Marginals of columns with censored cells, of which only limits are known.


_ROUNDS = 2000  # maximum number of rounds of eq. (1)
_SETTLED = 1e-7  # change of a share at which they end
_LEAST = 1e-9  # minimum share of a value that is kept
# beyond the scores of all probabilities in double precision, which end at 38
_LINEAR = 40.0  # score of the outermost points of a linear marginal


class Shares(NamedTuple):
    """Values and their shares, and those of the cells beyond them."""

    # (n_values,), increasing values, the number of cells observed at each, and eq. (1)
    values: Tensor
    number: Tensor
    shares: Tensor
    below: Tensor  # shares of the cells below and above all values
    above: Tensor


def linear(location: float, scale: float) -> Marginal:
    """Make the marginal of a column that is normal: ``location + scale * score``."""
    scores = torch.tensor([-_LINEAR, 0.0, _LINEAR], dtype=torch.float64)
    return Marginal(location + scale * scores, scores, scores)


def censored(
    cells: Tensor,  # (n,), observed cells
    weights: Tensor,  # (n,)
    limits: Limits,  # (n_censored,), least and largest values of the censored cells
    limit_weights: Tensor,  # (n_censored,)
    lowest: float = 0.0,
    sign: float = 0.0,
    least: float = 0.0,
) -> tuple[Marginal, float]:
    """Estimate the marginal of a column, and how doubtful its tails are.

    `lowest`: smallest valid value, from which shapes begin.  If it is negative, tails
    are normal.  `sign`, `least`: see `Marginal.opened`.  Returns `marginal`; `doubt`:
    that of the more doubtful tail, see `Tail`; 0 without one.
    """
    shares = estimate_shares(cells, weights, limits, limit_weights)
    inner = Marginal.of_shares(*shares[:3], float(shares.below))
    n, tails = float(weights.sum() + limit_weights.sum()), []
    sides = (shares.below <= _LEAST, shares.above <= _LEAST)
    free = tuple(k for k, is_free in enumerate(sides) if is_free)
    inner = inner.opened(shares.number, free, sign, least)
    if shares.below > _LEAST:
        end = limits[1][limits[1] < shares.values[0]].max()
        tails.append(_tail(shares, end, shares.below, n, -1.0, lowest))
    if shares.above > _LEAST:
        end = limits[0][limits[0] > shares.values[-1]].min()
        tails.append(_tail(shares, end, 1 - shares.above, n, 1.0, lowest))
    parts = [
        inner,
        *(Marginal(tail.values, tail.scores, tail.scores) for tail in tails),
    ]
    # the values of a marginal increase
    parts.sort(key=lambda part: float(part.values[0]))
    joined = Marginal(*(torch.cat(part) for part in zip(*parts, strict=True)))
    if sign > 0:
        joined = joined._replace(values=at_least(least, joined.values))
    return joined, max((tail.doubt for tail in tails), default=0.0)


def estimate_shares(
    cells: Tensor, weights: Tensor, limits: Limits, limit_weights: Tensor
) -> Shares:
    """Solve eq. (1); parameters are those of `censored`."""
    low, high = limits
    values = _support(cells, low, high)
    group = torch.searchsorted(values, cells)
    mass = weights.new_zeros(len(values) + 2).index_add_(0, group + 1, weights)
    number = torch.bincount(group, minlength=len(values))
    first = torch.searchsorted(values, low) + 1
    first = first.where(low >= values[0], 0)
    last = torch.searchsorted(values, high, right=True)
    last = last.where(high <= values[-1], len(values) + 1)
    total = weights.sum() + limit_weights.sum()
    share = torch.full_like(mass, 1 / len(mass))
    # no mass beyond the values unless cells are known to lie there
    share[0] *= (last == 0).any()
    share[-1] *= (first == len(values) + 1).any()
    for _ in range(_ROUNDS):
        below = torch.nn.functional.pad(share.cumsum(0), (1, 0))
        each = limit_weights / (below[last + 1] - below[first])
        # changes at both ends of an interval, whatever number of values is inside
        change = torch.zeros_like(below).index_add_(0, first, each)
        change.index_add_(0, last + 1, -each)
        before, share = share, (mass + share * change.cumsum(0)[:-1]) / total
        if float((share - before).abs().max()) < _SETTLED:
            break
    has_mass = (share[1:-1] > _LEAST) | (number > 0)
    inner = share[1:-1][has_mass]
    return Shares(values[has_mass], number[has_mass], inner, share[0], share[-1])


def _support(cells: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """List observed values, and middles of intervals that lie between two of them."""
    values = cells.unique()
    after = torch.searchsorted(values, low)
    empty = after == torch.searchsorted(values, high, right=True)
    empty &= (low > values[0]) & (high < values[-1])
    return torch.cat([values, (low[empty] + high[empty]) / 2]).unique()


def _tail(
    shares: Shares, end: Tensor, share: Tensor, n: float, sign: float, lowest: float
) -> Tail:
    """Estimate the tail beyond a limit, from its distribution function."""
    origin = lowest if 0 < lowest < min(float(end), float(shares.values[0])) else 0.0
    observed, end = (shares.values - origin, shares.shares), end - origin
    is_positive = bool(observed[0][0] > 0 and end > 0 and lowest >= 0)
    tail = tail_of(
        end,
        share,
        observed,
        n,
        sign,
        is_positive=is_positive,
        number=float(shares.number.sum()),
    )
    return tail._replace(values=tail.values + origin).without(shares.values)
