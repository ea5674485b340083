r"""Marginals of columns with censored cells, of which only limits are known.

At and above the smallest observed value the distribution function is estimated without
an assumption on its shape, by self-consistency (Turnbull 1976, The empirical
distribution function with arbitrarily grouped, censored and truncated data, eq. 3.4):

.. math:: n p_k = \sum_{i\,observed} 1(x_i = v_k)
                + \sum_{i\,censored} p_k 1(v_k \in I_i) / \sum_{l \in I_i} p_l.      (1)

It gives the share of the cells below all observed values, but not where they are.  Let
q be the largest limit of these cells, and ``z_q`` its normal score.  Below it, with g
the identity or the logarithm,

.. math:: g(x) = g(q) + b (z - z_q),                                                 (2)

where b is the slope of the regression of g(v) on the scores of the observed values, and
g is the function whose correlation with the scores is higher (regression on order
statistics; Helsel 2012, Statistics for censored environmental data, chapter 6).  A
normal and a lognormal column have such tails.  The line of positive numbers is that of
logarithms, too, if the other one would become negative for more than one cell in
10,000.  Likewise above all observed values.  Logarithms are not taken if values may be
negative.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.special import ndtri

from skvnce.algorithms.mixed.columns import Limits, Marginal

_ROUNDS = 2000  # maximum number of rounds of eq. (1)
_SETTLED = 1e-7  # change of a share at which they end
_LEAST = 1e-9  # minimum share of a value that is kept
_NEGATIVE = 1e-4  # share of negative cells from which logarithms are taken
_FARTHEST, _STEP = 8.0, 0.1  # scores at which eq. (2) is tabulated
_LINEAR = 40.0  # score of the outermost points of a linear marginal


class Shares(NamedTuple):
    """Values and their shares, and those of the cells beyond them.

    Attributes
    ----------
    values, number, shares : Tensor of shape (n_values,)
        Increasing values, the number of cells observed at each, and eq. (1).
    below, above : Tensor, a number
        Shares of the cells below and above all values.
    """

    values: Tensor
    number: Tensor
    shares: Tensor
    below: Tensor
    above: Tensor


def linear(location: float, scale: float) -> Marginal:
    """Make the marginal of a column that is normal: ``location + scale * score``."""
    scores = torch.tensor([-_LINEAR, 0.0, _LINEAR], dtype=torch.float64)
    return Marginal(location + scale * scores, scores, scores)


def censored(
    cells: Tensor,
    weights: Tensor,
    limits: Limits,
    limit_weights: Tensor,
    lowest: float = 0.0,
) -> Marginal:
    """Estimate the marginal of a column.

    Parameters
    ----------
    cells, weights : Tensor of shape (n,)
        Observed cells.
    limits : pair of Tensor of shape (n_censored,)
        Least and largest values of the censored cells.
    limit_weights : Tensor of shape (n_censored,)
    lowest : float, default=0.0
        Smallest possible value.  If it is negative, no logarithms are taken.
    """
    found = estimate_shares(cells, weights, limits, limit_weights)
    inner = Marginal.of_shares(*found[:3], float(found.below))
    parts = [inner]
    if found.below > _LEAST:
        end = limits[1][limits[1] < found.values[0]].max()
        parts.insert(0, _tail(found, end, found.below, -1.0, lowest))
    if found.above > _LEAST:
        end = limits[0][limits[0] > found.values[-1]].min()
        parts.append(_tail(found, end, 1 - found.above, 1.0, lowest))
    return Marginal(*(torch.cat(part) for part in zip(*parts, strict=True)))


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
    share[0] *= (last == 0).any()
    share[-1] *= (first == len(values) + 1).any()
    for _ in range(_ROUNDS):
        below = torch.nn.functional.pad(share.cumsum(0), (1, 0))
        each = limit_weights / (below[last + 1] - below[first])
        change = torch.zeros_like(below).index_add_(0, first, each)
        change.index_add_(0, last + 1, -each)
        before, share = share, (mass + share * change.cumsum(0)[:-1]) / total
        if float((share - before).abs().max()) < _SETTLED:
            break
    kept = (share[1:-1] > _LEAST) | (number > 0)
    inner = share[1:-1][kept]
    return Shares(values[kept], number[kept], inner, share[0], share[-1])


def _support(cells: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """List observed values, and middles of intervals that lie between two of them."""
    values = cells.unique()
    after = torch.searchsorted(values, low)
    empty = after == torch.searchsorted(values, high, right=True)
    empty &= (low > values[0]) & (high < values[-1])
    return torch.cat([values, (low[empty] + high[empty]) / 2]).unique()


def _tail(
    found: Shares, end: Tensor, share: Tensor, sign: float, lowest: float
) -> Marginal:
    """Tabulate eq. (2) from a limit, with its distribution function, outwards."""
    steps = torch.arange(0, _FARTHEST, _STEP, dtype=torch.float64)
    if (found.values == end).any():
        steps = steps[1:]
    middle = found.below + found.shares.cumsum(0) - found.shares / 2
    scores, start = ndtri(middle), end
    fits = [_regression(scores, found.values, found.shares)]
    if found.values[0] > 0 and end > 0 and lowest >= 0:
        fits.append(_regression(scores, found.values.log(), found.shares))
    zero = ndtri(share) - end / fits[0][0] if sign < 0 else -torch.inf
    is_negative = zero > ndtri(torch.tensor(_NEGATIVE).to(end))
    is_log = len(fits) > 1 and bool(is_negative or fits[1][1] > fits[0][1])
    start = end.log() if is_log else end
    moved = start + sign * fits[int(is_log)][0] * steps
    values = moved.exp() if is_log else moved
    at = ndtri(share) + sign * steps
    order = at.argsort()
    return Marginal(values[order], at[order], at[order])


def _regression(x: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the slope of y on x, and their correlation."""
    share = weights / weights.sum()
    x, y = x - share @ x, y - share @ y
    product, square = share @ (x * y), share @ x.square()
    least = torch.finfo(x.dtype).tiny
    slope = product / square.clamp(min=least)
    return slope, product / (square * (share @ y.square())).sqrt().clamp(min=least)
