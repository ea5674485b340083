r"""Marginals of columns with censored cells, of which only limits are known.

At and above the smallest observed value the distribution function is estimated without
an assumption on its shape, by self-consistency (Turnbull 1976, The empirical
distribution function with arbitrarily grouped, censored and truncated data, eq. 3.4):

.. math:: n p_k = \sum_{i\,observed} 1(x_i = v_k)
                + \sum_{i\,censored} p_k 1(v_k \in I_i) / \sum_{l \in I_i} p_l.      (1)

It gives the share of the cells below all observed values, but not where they are.
Families of distributions that agree with this share at the largest limit of these cells
are weighed by the likelihood of the observed values (`tail_families`): normal ones,
and, if values cannot be negative, lognormal, gamma and Weibull ones, too, which begin
at the smallest valid value.  Likewise above all observed values.  Positive numbers
are not normal if more than one cell in 10,000 would become negative.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce.algorithms.mixed.columns import Limits, Marginal
from skvnce.algorithms.mixed.tail_families import Tail, tail_of

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
) -> tuple[Marginal, float]:
    """Estimate the marginal of a column, and how doubtful its tails are.

    `lowest`: smallest valid value, from which shapes begin.  If it is negative, tails
    are normal.  Returns `marginal`; `doubt`: that of the more doubtful tail, see
    `tail_families.Tail`; 0 without one.
    """
    found = estimate_shares(cells, weights, limits, limit_weights)
    inner = Marginal.of_shares(*found[:3], float(found.below))
    n, tails = float(weights.sum() + limit_weights.sum()), []
    sides = (found.below <= _LEAST, found.above <= _LEAST)
    inner = inner.opened(found.number, [k for k, free in enumerate(sides) if free])
    if found.below > _LEAST:
        end = limits[1][limits[1] < found.values[0]].max()
        tails.append(_tail(found, end, found.below, n, -1.0, lowest))
    if found.above > _LEAST:
        end = limits[0][limits[0] > found.values[-1]].min()
        tails.append(_tail(found, end, 1 - found.above, n, 1.0, lowest))
    parts = [inner, *(Marginal(one.values, one.scores, one.scores) for one in tails)]
    # the values of a marginal increase
    parts.sort(key=lambda part: float(part.values[0]))
    joined = Marginal(*(torch.cat(part) for part in zip(*parts, strict=True)))
    return joined, max((one.doubt for one in tails), default=0.0)


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
    found: Shares, end: Tensor, share: Tensor, n: float, sign: float, lowest: float
) -> Tail:
    """Estimate the tail beyond a limit, from its distribution function."""
    origin = lowest if 0 < lowest < min(float(end), float(found.values[0])) else 0.0
    observed, end = (found.values - origin, found.shares), end - origin
    is_positive = bool(observed[0][0] > 0 and end > 0 and lowest >= 0)
    known = {"is_positive": is_positive, "number": float(found.number.sum())}
    tail = tail_of(end, share, observed, n, sign, **known)
    return tail._replace(values=tail.values + origin).without(found.values)
