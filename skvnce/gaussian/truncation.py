"""Conditional means and draws of a normal distribution with bounds on its cells.

Missing cells near a bound are drawn one after the other, each within its bounds given
the previous ones, and the draws are weighted by the probabilities of these intervals
(separation of variables: Genz 1992, Numerical computation of multivariate normal
probabilities; the GHK simulator).  The other missing cells of the row follow by
regression.  All rows with the same number of such cells are processed together.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from skvnce._core.distributions.normal import Batch, Normal, arrange, cholesky, prepare
from skvnce._core.distributions.truncated_normal import BoundedNormal, log_interval
from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import tell
from skvnce._core.random import (
    Uniforms,
    global_stream,
    inside,
    midpoint_levels,
    row_lattice,
    weighted_quantiles,
)
from skvnce.gaussian import em

_IDLE = 4.0  # distance in standard deviations from which a bound has no effect (3e-5)
# the more cells are drawn, the more their weights vary
_POINTS = {1: 128, 3: 256, 6: 512, 9: 2048}  # minimum near cells: points of a row
_MORE = 8  # factor of the number of points if few of them have most of the weight
_EFFECTIVE = 0.2  # minimum effective share of the points
_TRIES = 3  # number of rejected draws of a row before weighted draws are used
_DRAWN = 64  # number of weighted draws from which one is selected
# 8 MiB in double precision
_AT_ONCE = 2**20  # maximum size of a batch

Lattice = Callable[[Incomplete], Uniforms]
ToCells = Callable[[Tensor, Tensor, Tensor], Tensor]


def by_content(data: Incomplete) -> Uniforms:
    """Make the random numbers of rows as functions of the row content."""
    return row_lattice(data.to_array(), 0)


class Near(NamedTuple):
    """Missing cells of some rows, in the order in which they are drawn."""

    rows: Tensor  # int (n,), indices in the table
    # int (n, width), of the missing cells; the number of features and above if a row
    # has fewer
    columns: Tensor
    mean: Tensor  # (n, width), given the observed cells
    # (n, width, width), lower Cholesky factor of the covariance given the observed
    # cells
    root: Tensor
    # (n, n_near), bounds of the cells near a bound, which are the first ones
    low: Tensor
    high: Tensor

    def take(self, rows: Tensor | slice) -> "Near":
        """Return some of the rows."""
        return Near(*(part[rows] for part in self))

    def parts(self, size: int) -> Iterator["Near"]:
        """Yield the rows in parts, for arrays of `size` numbers a row."""
        rows = torch.arange(len(self.rows)).split(max(1, _AT_ONCE // size))
        return map(self.take, rows)

    def uniforms(self, table: Tensor, count: int) -> Tensor:
        """Select the numbers (points, n, features) of the first `count` cells."""
        places = self.columns[:, :count].clamp(max=table.shape[-1] - 1)
        return inside(table.gather(-1, places.expand(len(table), -1, -1)))

    def draw(self, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw standardised near cells within their bounds.

        `uniform` (points, n, n_near).  Returns `z` (points, n, n_near): near cells are
        ``mean + root z``; `last` (points, n): expectation of the last of them given the
        others; `log_weight` (points, n): the mean of their exponentials estimates the
        probability of the bounds.
        """
        z, log_weight = torch.zeros_like(uniform), uniform.new_zeros(uniform.shape[:-1])
        last = log_weight
        for i in range(uniform.shape[-1]):
            loc = self.mean[:, i] + (self.root[:, i, :i] * z[..., :i]).sum(-1)
            scale = self.root[:, i, i]
            bounds = (self.low[:, i] - loc) / scale, (self.high[:, i] - loc) / scale
            unit = BoundedNormal(
                torch.zeros_like(loc), torch.ones_like(loc), *bounds, False
            )
            z[..., i], last = unit.icdf(uniform[..., i]), unit.mean
            log_weight = log_weight + log_interval(*bounds)
        return z, last, log_weight

    def shifts(self, z: Tensor) -> Tensor:
        """Map standardised near cells (*batch, n, n_near) to shifts of all cells."""
        wide = self.root[..., : z.shape[-1]]
        columns = zip(wide.unbind(-1), z.unbind(-1), strict=True)
        parts = (part * weights[..., None] for part, weights in columns)
        return sum(parts, torch.zeros_like(wide[..., 0]))

    def rest(self) -> Tensor:
        """Compute standard deviations given the near cells; (n, width)."""
        return self.root[..., self.low.shape[1] :].square().sum(-1).sqrt()


def near_cells(
    normal: Normal,
    data: Incomplete,
    low: Tensor,  # (features,) or (n, features)
    high: Tensor,  # (features,) or (n, features)
) -> list[Near]:
    """Find the rows with missing cells near bounds.

    Returns rows with the same number of near cells, in batches.
    """
    factored, batches = prepare(normal), []
    low, high = low.expand_as(data.x), high.expand_as(data.x)
    for batch in arrange(*data, kinds=1):
        conditioned = batch.condition(factored)
        mean = batch.gather_cells(normal.mean + conditioned.completed())
        covariance = torch.cholesky_inverse(conditioned.factor)
        batches += _near_of(batch, mean, covariance, (low, high))
    return batches


def _near_of(
    batch: Batch, mean: Tensor, covariance: Tensor, ends: tuple[Tensor, Tensor]
) -> list[Near]:
    wider = (0, batch.block.shape[1])
    low, high = (
        pad(bound[batch.rows], wider, value=far).gather(1, batch.block)
        for bound, far in zip(ends, (-torch.inf, torch.inf), strict=True)
    )
    deviation = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    below, above = (low - mean) / deviation, (high - mean) / deviation
    near = (below > -_IDLE) | (above < _IDLE)
    chance = log_interval(below, above).where(near, torch.inf)
    # in this order the weights vary less
    order = chance.argsort(dim=1, stable=True)  # most restricted cells first
    counts = near.sum(1)
    batches = []
    for count in counts.unique().tolist():
        rows = (counts == count).nonzero().squeeze(1)
        if count:
            places = order[rows]
            parts = [p[rows].gather(1, places) for p in (batch.block, mean, low, high)]
            table = covariance[rows[:, None, None], places[:, :, None], places[:, None]]
            columns, means, lows, highs = parts
            bounds = lows[:, :count], highs[:, :count]
            batches.append(
                Near(batch.rows[rows], columns, means, cholesky(table), *bounds)
            )
    return batches


def mean_shift(
    normal: Normal,  # before the truncation
    data: Incomplete,
    low: Tensor,  # (features,) or (n, features)
    high: Tensor,  # (features,) or (n, features)
    lattice: Lattice,
    to_cells: ToCells | None = None,
) -> Tensor:
    """Estimate the shift of the expectations of missing cells by their bounds.

    Draws with and without bounds use the same random numbers: if bounds have no effect,
    both are equal, and the shift is 0.

    `lattice`: makes the random numbers of some rows, functions of their content, of
    shape (points, n, features); `to_cells`: maps rows (cells,), columns (cells,) and
    normal scores (points, cells) to cells; None if cells are scores.  In this case
    there is no sampling error in rows with one near cell.  Returns (n, features).
    """
    near = near_cells(normal, data, low, high)
    shift_of = partial(_shift_of, data=data, lattice=lattice, to_cells=to_cells)
    return _shifted(torch.zeros_like(data.x), near, shift_of)


def quantile_shift(
    normal: Normal,
    data: Incomplete,
    low: Tensor,
    high: Tensor,
    lattice: Lattice,
    levels: Tensor,
) -> Tensor:
    """Estimate the shift of the quantiles of missing scores by their bounds.

    See `mean_shift` for the parameters.

    Returns (n_levels, n, features).
    """
    near = near_cells(normal, data, low, high)
    shift_of = partial(_quantile_shift_of, data=data, lattice=lattice, levels=levels)
    return _shifted(data.x.new_zeros(len(levels), *data.x.shape), near, shift_of)


def _shifted(shift: Tensor, batches: list[Near], shift_of: Callable) -> Tensor:
    """Set the shifts (*several, n, features) of rows near bounds, and return all.

    `shift_of` maps some rows and a number of points to the shifts of their cells, and
    to which of the rows have weights that are even enough.
    """
    for near in batches:
        count = near.low.shape[1]
        n_points = next(n for at, n in reversed(_POINTS.items()) if count >= at)
        for points in (n_points, _MORE * n_points):
            again = []
            for part in near.parts(points * max(near.root.shape[1], shift.shape[-1])):
                tell(f"rows with {count} cells near to a bound")
                moved, even = shift_of(part, points)
                _put(shift, part, moved)
                again.append(part.rows[~even])
            near = near.take(torch.isin(near.rows, torch.cat(again)))
            if not len(near.rows):
                break
    return shift


def _put(shift: Tensor, near: Near, moved: Tensor) -> None:
    width = shift.shape[-1]
    wide = shift.new_zeros(*moved.shape[:-1], width + near.columns.shape[1])
    wide.scatter_(-1, near.columns.expand_as(moved), moved)
    shift[..., near.rows, :] = wide[..., :width]


class Points(NamedTuple):
    """Weighted points of the near cells of rows, with and without their bounds."""

    table: Tensor  # (points, n, features), uniform numbers
    z: Tensor  # (points, n, n_near), standardised near cells with, and without bounds
    free: Tensor  # (points, n, n_near)
    # (points, n), of the points with bounds; the sum over the points is about one
    weight: Tensor
    share: Tensor  # (points, 1) or (1,), of the points without bounds
    last: Tensor  # (points, n), see `Near.draw`
    even: Tensor  # bool (n,), the rows in which not few points have most of the weight

    def noise(self, near: Near) -> Tensor:
        """Make residuals of all cells given the near ones; (points, n, width)."""
        uniform = near.uniforms(self.table, near.root.shape[1])
        return near.rest() * torch.special.ndtri(uniform)


def _points_of(near: Near, data: Incomplete, lattice: Lattice, n_points: int) -> Points:
    part, count = data.take(near.rows), near.low.shape[1]
    table = lattice(part)(0, data.x.new_empty(n_points, *part.x.shape))
    uniform, share = near.uniforms(table, count), data.x.new_full((1,), 1 / n_points)
    if count == 1:  # quadrature, with more levels at both ends
        t = midpoint_levels(n_points, data.x)[:, None]
        share = t * (1 - t) / (t * (1 - t)).sum()
        uniform = (t.square() * (3 - 2 * t))[..., None].expand_as(uniform)
    z, last, log_weight = near.draw(uniform)
    weight = log_weight.softmax(0)
    even = 1 / weight.square().sum(0) > _EFFECTIVE * n_points
    weight, free = weight * share * n_points, torch.special.ndtri(uniform)
    return Points(table, z, free, weight, share, last, even)


def _quantile_shift_of(
    near: Near, n_points: int, *, data: Incomplete, lattice: Lattice, levels: Tensor
) -> tuple[Tensor, Tensor]:
    """Estimate the shifts of quantiles (n_levels, n, width), and which succeeded."""
    points = _points_of(near, data, lattice, n_points)
    noise = points.noise(near)
    pairs = (points.z, points.weight), (points.free, points.share)
    # both have the same error if bounds have no effect
    after, before = (
        weighted_quantiles(noise + near.shifts(cells), weights[..., None], levels)
        for cells, weights in pairs
    )
    return after - before, points.even


def _shift_of(
    near: Near,
    n_points: int,
    *,
    data: Incomplete,
    lattice: Lattice,
    to_cells: ToCells | None,
) -> tuple[Tensor, Tensor]:
    """Estimate the shift of the cells (n, width); also return which rows succeeded."""
    points = _points_of(near, data, lattice, n_points)
    _, z, free, weight, share, last, even = points
    if to_cells is None:
        # the last cell by its mean, which is 0 without bounds
        z[..., -1], free[..., -1] = last, 0.0
        moved = (weight[..., None] * z - share[..., None] * free).sum(0)
        return near.shifts(moved), even
    rows, places = (near.columns < data.x.shape[1]).nonzero(as_tuple=True)
    columns, mean = near.columns[rows, places], near.mean[rows, places]
    noise = points.noise(near)
    with_bounds, without = (
        to_cells(
            near.rows[rows],
            columns,
            mean + (noise + near.shifts(cells))[:, rows, places],
        )
        for cells in (z, free)
    )
    moved = torch.zeros_like(near.mean)
    moved[rows, places] = (weight[:, rows] * with_bounds - share * without).sum(0)
    return moved, even


def draw(
    normal: Normal, data: Incomplete, low: Tensor, high: Tensor, n_draws: int
) -> Tensor:
    """Draw the missing cells within their bounds; (n_draws, n, features).

    Bounds are of shape (features,) or (n, features).  Draws of the unbounded normal
    that are within the bounds are draws of the truncated one.  Rows without such a draw
    in a few tries get one of several weighted draws.
    """
    x = em.draw(normal, data, n_draws)
    low, high = low.expand_as(data.x), high.expand_as(data.x)
    hidden = ~data.observed.expand_as(x)
    outside = _outside(x, hidden, low, high)
    for _ in range(_TRIES):
        if not outside.any():
            return x
        again = data.take(outside.nonzero()[:, 1])
        # all missing cells of a row again: single ones have another distribution
        x[outside] = em.draw(normal, again)[0]
        outside = _outside(x, hidden, low, high)
    draws, rows = outside.nonzero(as_tuple=True)
    rest = data.take(rows)
    bounds = low[rows], high[rows]
    x[draws, rows] = _drawn_weighted(normal, rest, x[draws, rows], *bounds)
    return x


def _drawn_weighted(
    normal: Normal, data: Incomplete, x: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    for near in near_cells(normal, data, low, high):
        count = near.low.shape[1]
        for part in near.parts(_DRAWN * count):
            tell(f"rows with {count} cells near to a bound")
            like = x.new_empty(_DRAWN, len(part.rows), count)
            z, _, log_weight = part.draw(inside(global_stream(0, like)))
            pick = torch.multinomial(log_weight.softmax(0).T, 1).squeeze(1)
            noise = torch.randn_like(part.mean)
            noise[:, :count] = z[pick, torch.arange(len(pick))]
            cells = part.mean + part.shifts(noise)
            moved = torch.zeros_like(x)
            _put(moved, part, cells)
            x[part.rows] = moved[part.rows]
    return data.with_values(x.clamp(low, high))


def _outside(x: Tensor, hidden: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return (((x < low) | (x > high)) & hidden).any(-1)
