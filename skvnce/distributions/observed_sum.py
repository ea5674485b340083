"""Sums of log-densities of observed cells, normal or rounded, with their gradients.

A rounded cell is an interval of half-width h around c, both in units of the scale and
c relative to loc.  With p = |c| - h, q = |c| + h, phi the standard normal density and Q
its upper tail, it contributes

    log P = log(Q(p) - Q(q))                                                       (1)
    d log P / d loc = sign(c) (phi(p) - phi(q)) / (P scale)                        (2)
    d log P / d log scale = (p phi(p) - q phi(q)) / P                              (3)

and a normal cell log phi(c) - log scale.  An interval of infinite width contributes
nothing, so that missing cells need no mask.  One function of autograd is much faster
than a graph of thirty, because the tables of a batch are small.
"""

from collections.abc import Sequence
from math import log, pi, sqrt
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce.distributions.bounded_normal import FARTHEST, UNDERFLOW, log_interval

_CONSTANT = log(2 * pi) / 2
# not infinite, because differences and products with 0 would be NaN
_EVERYTHING = 1e6  # half-width of an interval of probability 1
# exp(-t^2 / 2) is there 6e-171 (float64) or 1e-20 (float32), far from underflow
_NEGLIGIBLE = 0.8  # share of the range of `UNDERFLOW` beyond which a tail is 0


class Centred(NamedTuple):
    """Cells of rows, some of which are observed."""

    # (*rows, features): of the interval, or the value of a normal cell; 0 where missing
    middle: Tensor
    # (*rows, features): half of the width of the interval, "infinite" for normal and
    # missing cells; None if no column is rounded
    half: Tensor | None
    # (*rows, features): 1 for observed normal cells, else 0; None if no column is
    # normal
    normal: Tensor | None

    def take(self, rows: Tensor | slice) -> Self:
        """Return the given rows."""
        if isinstance(rows, slice):
            return type(self)(*(part if part is None else part[rows] for part in self))
        return type(self)(
            *(part if part is None else part.index_select(0, rows) for part in self)
        )


class Intervals(NamedTuple):
    """What is known of the cells of rows."""

    # (*rows, features): ends of the intervals of rounded cells; both are the value of a
    # normal cell
    low: Tensor
    high: Tensor  # (*rows, features)
    rounded: Tensor  # bool (features,): which columns are rounded
    n_rounded: int

    def take(self, rows: Tensor | slice) -> Self:
        """Return the given rows."""
        return self._replace(low=self.low[rows], high=self.high[rows])

    def centred(self, observed: Tensor) -> Centred:
        """Leave out missing cells; `observed` broadcasts to (*rows, features)."""
        middle, half, normal = (self.low + self.high) / 2, None, None
        if self.n_rounded:
            seen = observed & self.rounded
            half = ((self.high - self.low) / 2).where(seen, _EVERYTHING)
        if self.n_rounded < self.low.shape[-1]:
            normal = (observed & ~self.rounded).to(middle)
        return Centred(middle.where(observed, 0.0), half, normal)


def observed_sum(
    loc: Tensor, scale: Tensor, cells: Intervals, observed: Tensor
) -> Tensor:  # (*batch,): its gradients in loc and scale cannot be differentiated again
    """Sum log-densities of observed cells.

    `loc`, `scale` (*batch, features), `observed` (bool that broadcasts to (*batch,
    features)).  `cells`: broadcast to the batch.
    """
    known = cells.centred(observed)
    if torch.is_grad_enabled() and (loc.requires_grad or scale.requires_grad):
        return _ObservedSum.apply(loc, scale, known)
    return log_probs(loc, scale.log(), known).sum(-1)


class _ObservedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        loc: Tensor,
        scale: Tensor,
        cells: Centred,
    ) -> Tensor:
        found, by_loc, by_log_scale = sum_and_slopes(loc, scale.log(), cells)
        ctx.save_for_backward(by_loc, by_log_scale / scale)
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        slopes = (slope * gradient.unsqueeze(-1) for slope in ctx.saved_tensors)
        return *slopes, None


def sum_and_slopes(
    loc: Tensor, log_scale: Tensor, cells: Centred
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum log-densities of observed cells, and differentiate each.

    `loc`, `log_scale` (*batch, features).  `cells`: broadcast to the batch.  Returns
    `log_prob` (*batch,); `by_loc`, `by_log_scale` (*batch, features), derivatives, eqs.
    (2) and (3).
    """
    c, h, inverse = _standardised(loc, log_scale, cells)
    parts = []
    if h is not None:
        parts.append(_rounded(c, h))
    if cells.normal is not None:
        square = c.square()
        log_prob = _log_normal(square, log_scale, cells.normal)
        square.sub_(1).mul_(cells.normal)
        parts.append((log_prob, c.mul_(cells.normal), square))
    log_prob, by_loc, by_log_scale = map(_added, zip(*parts, strict=True))
    return log_prob.sum(-1), by_loc.mul_(inverse), by_log_scale


def log_probs(loc: Tensor, log_scale: Tensor, cells: Centred) -> Tensor:
    """Compute the log-density of each observed cell, and 0 for the others.

    Parameters are those of `sum_and_slopes`.

    Returns (*batch, features).
    """
    c, h, _ = _standardised(loc, log_scale, cells)
    parts = []
    if h is not None:
        ends, far = _ends(c, h)
        found = _twice_between(ends).log_().sub_(log(2))
        if far is not None:
            found[far] = _rounded_far(c[far], h[far])[0]
        parts.append(found)
    if cells.normal is not None:
        parts.append(_log_normal(c.square(), log_scale, cells.normal))
    return _added(parts)


def _added(parts: Sequence[Tensor]) -> Tensor:
    """Add tensors, in place."""
    found, *others = parts
    for other in others:
        found.add_(other)
    return found


def _standardised(
    loc: Tensor, log_scale: Tensor, cells: Centred
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Compute c and h, and the inverse of the scale."""
    inverse = torch.exp(-log_scale)
    c = (cells.middle - loc).mul_(inverse)
    return c, None if cells.half is None else cells.half * inverse, inverse


def _log_normal(square: Tensor, log_scale: Tensor, where: Tensor) -> Tensor:
    """Compute the log-densities of normal cells, given squares of c."""
    half = torch.add(log_scale, square, alpha=0.5)
    return half.add_(_CONSTANT).mul_(where).neg_()


def _ends(c: Tensor, h: Tensor) -> tuple[Tensor, Tensor | None]:
    """Compute p and q, bounded, and where the bounds are too close, if anywhere."""
    last, apart = -UNDERFLOW[c.dtype], c.abs()
    ends, far = torch.stack([apart - h, apart.add_(h)]), None
    if ends.numel() and ends[0].max() > last:
        far = ends[0] > last
    return ends.clamp_(_NEGLIGIBLE * -last, last + 1), far  # underflow is slow


def _twice_between(ends: Tensor) -> Tensor:
    """Compute 2 P."""
    above, below = torch.erfc(ends * sqrt(0.5)).unbind()
    least = torch.finfo(ends.dtype).eps
    # an interval that is narrower than the rounding has a positive probability
    return torch.maximum(below.neg_().add_(above), above.mul_(least))


def _rounded(c: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute eq. (1), scale times eq. (2), and eq. (3)."""
    ends, far = _ends(c, h)
    twice = _twice_between(ends)
    at = ends.square().mul_(-0.5).exp_().mul_(sqrt(2 / pi)).div_(twice)  # phi / P
    by_loc = c.sign().mul_(at[0] - at[1])
    by_log_scale = torch.sub(*ends.mul_(at).unbind())
    found = twice.log_().sub_(log(2)), by_loc, by_log_scale
    if far is not None:
        for whole, part in zip(found, _rounded_far(c[far], h[far]), strict=True):
            whole[far] = part
    return found


def _rounded_far(c: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the same where probabilities underflow; constant beyond FARTHEST."""
    p, q = c.abs() - h, c.abs() + h
    log_prob = log_interval(-q, -p)
    at_p, at_q = (
        (t.square() / -2 - _CONSTANT - log_prob).exp().where(t <= FARTHEST, 0.0)
        for t in (p, q)
    )
    return log_prob, c.sign() * (at_p - at_q), p * at_p - q * at_q
