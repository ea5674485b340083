"""Tails of columns of positive numbers, which end at zero.

The distribution of scores goes on beyond any cell.  With v the distance of a cell from
zero, cells with v < t become

    t exp(-b (t - v)),                                                             (1)

which is positive and increases.  In columns with cells near zero, of which a normal
distribution predicts more than there are if they are skewed, t is a low quantile below
which there are as many cells as the model predicts from the other cells of their rows,
and b gives the means of logarithms of both:

    b = sum_i w_i log(t / v_i) 1(v_i < t) / sum_i w_i E[(t - v_i)_+ | others].     (2)

In columns far from zero t is half of the least cell, and b = 1 / t: the slope does not
change there, and cells beyond the observed range are those of the model.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import midpoint_levels

Pair = tuple[Tensor, Tensor]

_NEAR = 0.5  # standard deviations of a column, up to which a cell is near zero
_LEAST_SHARE, _MOST_SHARE = 0.05, 0.5  # of the cells, below t
_N_LEVELS = 96  # quantiles of a predicted cell; 24 miss much of what is below t
_ROUNDING = 1e-14  # distance from zero that rounding leaves, relative to the mean


class Ends(NamedTuple):
    """Where the cells of columns end by their signs."""

    # (features,), 1 for columns of positive numbers, -1 of negative ones, 0 of others
    signs: Tensor
    zero: Tensor  # (features,), the cell that is 0 in the units of the table
    least: Tensor  # (features,), smallest distance of a cell from zero


class Tails(NamedTuple):
    """Eq. (1) for some columns, in units of the scaled cells."""

    columns: Tensor  # int (n_tailed,)
    signs: Tensor  # (n_tailed,), 1 or -1
    zero: Tensor
    least: Tensor
    t: Tensor
    b: Tensor

    def put(self, cells: Tensor) -> Tensor:
        """Replace cells (*batch, features) beyond t."""
        return self.put_of(torch.arange(cells.shape[-1]), cells)

    def put_of(self, columns: Tensor, cells: Tensor) -> Tensor:
        """Replace cells (*batch, cells) of the columns (cells,)."""
        moved = cells.clone()
        for k, j in enumerate(self.columns.tolist()):
            places = (columns == j).nonzero().squeeze(1)
            moved[..., places] = self.take([k] * len(places))._moved(cells[..., places])
        return moved

    def take(self, places: list[int]) -> Self:
        """Select tails; of columns with other places if they repeat."""
        return type(self)(*(part[places] for part in self))

    def within(self, signs: Tensor) -> Self:
        """Select the tails of columns that still have these signs (features,)."""
        return self.take((signs[self.columns] == self.signs).nonzero().squeeze(1))

    def _moved(self, cells: Tensor) -> Tensor:
        v = self.signs * (cells - self.zero)
        beyond = self.t * torch.exp(-self.b * (self.t - v).clamp(min=0.0))
        beyond = self.zero + self.signs * torch.maximum(beyond, self.least)
        return torch.where(v < self.t, beyond, cells)


def fit_tails(
    ends: Ends,
    data: Incomplete,  # scaled cells
    weights: Tensor,  # (n,)
    predict: Callable[[int, Tensor], Tensor],  # see `Copula.predicted`
    moments: Callable[[Tensor], Pair],  # of columns: those of scores given the others
) -> Tails:
    """Find the tails of the columns that end at zero."""
    columns = ends.signs.nonzero().squeeze(1)
    signs, zero, least = (part[columns] for part in ends)
    # of cells near zero, which the difference rounds to it
    least = torch.maximum(least, _ROUNDING * zero.abs().clamp(min=1.0))
    pairs = torch.zeros(len(columns), 2).to(weights)
    mean, deviation = moments(columns)
    for k, j in enumerate(columns.tolist()):
        observed = data.observed[:, j] & (weights > 0)
        cells = predict(j, mean[observed, k], deviation[observed, k])
        seen, predicted = (
            signs[k] * (part - zero[k]) for part in (data.x[observed, j], cells)
        )
        pair = tail_of(weights[observed], seen.clamp(min=least[k]), predicted)
        pairs[k] = torch.tensor(pair)
    return Tails(columns, signs, zero, least, *pairs.T)


def levels(like: Tensor, n: int = 1) -> Tensor:
    """Return the normal scores of equally likely cells of n rows; (n_levels * n,)."""
    return torch.special.ndtri(midpoint_levels(_N_LEVELS * n, like))


def tail_of(weights: Tensor, v: Tensor, predicted: Tensor) -> tuple[float, float]:
    """Find t and b of distances from zero, in standard deviations of the column.

    `v` (n,): of observed cells; `predicted` (n_levels, n): of equally likely ones.
    """
    half = float(v.min()) / 2
    values, order = v.sort()
    observed = weights[order].cumsum(0) / weights.sum()
    shares = (weights / weights.sum() / len(predicted)).expand_as(predicted).flatten()
    pooled, order = predicted.flatten().sort()
    below = torch.cat([shares.new_zeros(1), shares[order].cumsum(0)])
    expected = below[torch.searchsorted(pooled, values)]
    ends = torch.tensor([_LEAST_SHARE, _MOST_SHARE]).to(observed)
    least, most = torch.searchsorted(observed, ends).tolist()
    enough = (observed >= expected)[least:most].nonzero()
    t = values[min(least + int(enough[0]) if len(enough) else most, len(values) - 1)]
    logs = weights @ (t / v).log().clamp(min=0.0)
    depth = weights @ (t - predicted).clamp(min=0.0).mean(0)
    if values[0] > _NEAR or not (logs > 0 and depth > 0):
        return half, 1 / half
    return float(t), float(logs / depth)
