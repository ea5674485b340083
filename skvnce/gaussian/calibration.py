"""Calibration of conditional distributions by the residuals of similar predictions.

A copula predicts the score of a cell by N(m, s**2).  The residuals ``z = (score - m) /
s`` of observed cells, each predicted from the other cells of its row, should be
standard normal.  If relations are nonlinear, they are not for some m.  With Q(u | m)
the quantiles of residuals of predictions near m, a drawn score becomes

    m + s Q(Phi((score - m) / s) | m),                                             (1)

which preserves its rank, and so the dependence within rows and the uncertainty of the
parameters.  It is the recalibration by probability integral transforms of Kuleshov,
Fenner and Ermon (2018, Accurate uncertainties for deep learning using calibrated
regression), applied locally.  Q is shrunk towards the normal quantiles.

In columns with repeated values the residual of a cell is uniformly distributed between
the probabilities of its steps (`steps`).  The residuals of a column are divided by
their root mean square: in the rows that the normal distribution was fitted to they are
too small, and draws of the parameters already account for that.

A column is calibrated only if that clearly improves predictions of left-out rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import midpoint_levels, quantile_loss
from skvnce.gaussian.marginals import Steps, left_out_moments

_SHARES = (0.3, 0.1)  # candidates of the share of residuals that count as near
_PRIOR = 10.0  # number of normal residuals that are added to the near ones
_N_CENTRES = 17
_N_LEVELS = 17  # number of quantiles Q
_N_TIED = 4  # number of residuals that represent one of a cell between two steps
_N_FOLDS = 5
_CLEAR = 2.0  # number of standard errors of a clear improvement
_FEWEST = 50  # minimum number of observed cells of a calibrated column
# one of 10**15 normal residuals is farther
_FARTHEST = 8.0  # maximum absolute residual
_N_SCORED = 24  # number of quantiles in a score
# cumulated weights have rounding errors
_ROUNDING = 1e-9  # difference below which shares are equal
# predictions of rows with equal cells differ by rounding errors
_SAME = 1e-9  # difference below which predicted scores are equal

ToCells = Callable[[int, Tensor], Tensor]


class Calibration(NamedTuple):
    """The shifts that eq. (1) adds to the residuals of some columns."""

    columns: Tensor  # int (n_calibrated,)
    centres: Tensor  # (n_calibrated, n_centres), predicted means, increasing
    # (n_calibrated, n_centres, n_levels), ``Q(u | m) - Phi^-1(u)`` at the centres and
    # at the midpoints u of n_levels levels; linear between them and constant beyond
    shifts: Tensor

    def moved(self, scores: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """Calibrate scores (n_draws, n, features) drawn from N(mean, deviation**2).

        Cells whose standard deviation is 0 are unchanged.
        """
        moved = scores.clone()
        for k, j in enumerate(self.columns.tolist()):
            rows = deviation[:, j] > 0
            part = scores[:, rows, j], mean[rows, j], deviation[rows, j]
            moved[:, rows, j] = self._moved(k, *part)
        return moved

    def moved_cells(
        self, columns: Tensor, scores: Tensor, mean: Tensor, deviation: Tensor
    ) -> Tensor:
        """Calibrate scores (*batch, cells) of cells of the columns (cells,)."""
        moved = scores.clone()
        for k, j in enumerate(self.columns.tolist()):
            places = ((columns == j) & (deviation > 0)).nonzero().squeeze(1)
            if len(places):
                part = scores[..., places], mean[places], deviation[places]
                moved[..., places] = self._moved(k, *part)
        return moved

    def _moved(self, k: int, scores: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """Calibrate scores (*batch, n) of the k-th calibrated column."""
        z = (scores - mean) / deviation
        shift = _shifts_at(self.centres[k], self.shifts[k], mean.expand_as(z), z)
        return scores + deviation * shift

    def before(self, scores: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """Invert `moved`; all tensors (n, features)."""
        inverse = scores.clone()
        for k, j in enumerate(self.columns.tolist()):
            rows = (deviation[:, j] > 0) & scores[:, j].isfinite()
            m, s = mean[rows, j, None], deviation[rows, j, None]
            levels = _normal_levels(mean).expand(len(m), -1).contiguous()
            at = m.expand_as(levels).contiguous()
            after = levels + _shifts_at(self.centres[k], self.shifts[k], at, levels)
            z = _inverse(levels, after, (scores[rows, j, None] - m) / s)
            inverse[rows, j] = (m + s * z)[:, 0]
        return inverse

    def mean_shift(self, mean: Tensor, deviation: Tensor, to_cells: ToCells) -> Tensor:
        """Compute the change of the means of cells by calibration; (n, features)."""
        change = torch.zeros_like(mean)
        levels = _normal_levels(mean)
        for k, j in enumerate(self.columns.tolist()):
            m, s = mean[:, j, None], deviation[:, j, None]
            z = levels.expand(len(m), -1)
            shift = _shifts_at(
                self.centres[k], self.shifts[k], m.expand_as(z).contiguous(), z
            )
            before = to_cells(j, m + s * z)
            change[:, j] = (to_cells(j, m + s * (z + shift)) - before).mean(1)
        return change


class Residuals(NamedTuple):
    """Residuals of the observed cells of a column, with predictions and weights."""

    cells: Tensor  # (n,)
    mean: Tensor  # (n,)
    deviation: Tensor  # (n,)
    weights: Tensor  # (n,)
    residuals: Tensor  # (n, n_tied)
    folds: Tensor  # int (n,)

    def of(self, rows: Tensor) -> "Residuals":
        """Select some rows."""
        return Residuals(*(part[rows] for part in self))


def fit_calibration(
    normal: Normal,  # of the scores
    scores: Incomplete,
    cells: Tensor,  # (n, features), the cells of the scores
    weights: Tensor,  # (n,)
    folds: Tensor,  # int (n,), 0 to 4
    stepped: Steps,  # for the columns with repeated values
    to_cells: ToCells,  # maps a column and its scores to cells, including steps
) -> Calibration | None:
    """Calibrate the columns for which this is a clear improvement.

    The improvement must exceed two standard errors of the CRPS of the observed cells,
    where each fold is scored by a calibration that does not use it.
    """
    every = torch.arange(cells.shape[1])
    mean, deviation = left_out_moments(normal, scores, every)
    calibrated = []
    for j in every.tolist():
        observed = scores.observed[:, j] & (weights > 0)
        if int(observed.sum()) < _FEWEST:
            continue
        parts = [part[observed, j] for part in (cells, mean, deviation, scores.x)]
        residuals = _residuals(*parts, _edges_around(stepped, j, parts[0]))
        column = Residuals(*parts[:3], weights[observed], residuals, folds[observed])
        share = _choose(column, lambda score, j=j: to_cells(j, score))
        if share is not None:
            calibrated.append((torch.tensor(j), *_quantile_shifts(column, share)))
    if not calibrated:
        return None
    return Calibration(*map(torch.stack, zip(*calibrated, strict=True)))


def _edges_around(stepped: Steps, j: int, cells: Tensor) -> Tensor | None:
    """Find the scores (2, n) between which cells of a column lie, if it has steps."""
    place = (stepped.columns == j).nonzero()
    if not len(place):
        return None
    k = int(place[0])
    values, far = stepped.values[k], cells.new_tensor([torch.inf])
    edges = torch.cat([-far, stepped.edges[k], far])
    at = torch.searchsorted((values[1:] + values[:-1]) / 2, cells)
    return torch.stack([edges[at], edges[at + 1]])


def _residuals(
    cells: Tensor, mean: Tensor, deviation: Tensor, scores: Tensor, edges: Tensor | None
) -> Tensor:
    if edges is None:
        return ((scores - mean) / deviation).clamp(-_FARTHEST, _FARTHEST)[:, None]
    low, high = torch.special.ndtr((edges - mean) / deviation)[..., None]
    share = low + (high - low) * midpoint_levels(_N_TIED, cells)
    tiny = torch.finfo(cells.dtype).eps
    # the quantiles of 0 and 1 are infinite
    residuals = torch.special.ndtri(share.clamp(tiny, 1 - tiny))
    return residuals.clamp(-_FARTHEST, _FARTHEST)


def _choose(column: Residuals, to_cells: Callable[[Tensor], Tensor]) -> float | None:
    """Choose the share of near residuals, or None for no calibration."""
    best, chosen = column.weights.new_zeros(()), None
    before = _crps(column, torch.zeros(()), to_cells)
    for share in _SHARES:
        after = torch.zeros_like(before)
        for fold in range(_N_FOLDS):
            inside = column.folds == fold
            if not inside.any() or inside.all():
                return None
            part, fitted = column.of(inside), column.of(~inside)
            levels = _normal_levels(part.mean, _N_SCORED).expand(len(part.mean), -1)
            m = part.mean[:, None].expand_as(levels).contiguous()
            shift = _shifts_at(*_quantile_shifts(fitted, share), m, levels)
            after[inside] = _crps(part, shift, to_cells)
        gain = before - after
        total = column.weights @ gain
        clear = _CLEAR * (column.weights @ gain.square()).sqrt()
        if total > clear and total > best:
            best, chosen = total, share
    return chosen


def _crps(column: Residuals, shift: Tensor, to_cells: Callable) -> Tensor:
    """Compute the CRPS of each cell, whose residual is shifted."""
    level = midpoint_levels(_N_SCORED, column.mean)
    z = torch.special.ndtri(level) + shift
    cells = to_cells(column.mean[:, None] + column.deviation[:, None] * z)
    error = column.cells[:, None] - cells
    return 2 * quantile_loss(error, level).mean(1)


def _quantile_shifts(column: Residuals, share: float) -> tuple[Tensor, Tensor]:
    """Compute the centres of a column and the shifts there.

    The residuals around a centre are weighted by the tricube kernel of the difference
    of ranks of the predictions.  Equal predictions, as from a column with few values,
    have equal ranks; a centre without a prediction nearby is not shifted.
    """
    mean = (column.mean / _SAME).round() * _SAME
    at = torch.linspace(share / 2, 1 - share / 2, _N_CENTRES).to(mean)
    knots = torch.linspace(0, 1, 2 * _N_CENTRES - 1).to(mean)
    grid = _quantiles(mean, column.weights[None], knots)[0]
    centres = interpolate(knots, grid, at)
    rank, at = (interpolate(grid, knots, part) for part in (mean, centres))
    distance = (rank - at[:, None]).abs() / (share / 2)
    kernel = (1 - distance.clamp(max=1) ** 3) ** 3 * column.weights
    square = (kernel**2 / column.weights).sum(1)
    # the number of residuals of equal weight whose mean has the same variance
    size = (kernel.sum(1) ** 2 / square).where(square > 0, 0.0)
    square = column.weights @ column.residuals.square().mean(1)
    z = column.residuals / (square / column.weights.sum()).sqrt()
    normal = _normal_levels(z)
    tied = z.shape[1]
    wide = kernel[:, :, None].expand(-1, -1, tied).flatten(1)
    quantiles = _quantiles(z.flatten(), wide, torch.special.ndtr(normal))
    weight = (size / (size + _PRIOR))[:, None]
    return centres, weight * (quantiles - normal)


def _quantiles(values: Tensor, weights: Tensor, levels: Tensor) -> Tensor:
    """Find quantiles of values (n,) under each row of weights (k, n); (k, levels)."""
    values, order = values.sort()
    below = weights[:, order].cumsum(1)
    total = below[:, -1:].clamp(min=torch.finfo(below.dtype).tiny)
    share = (below / total).contiguous()
    # a share that equals a level up to rounding counts as reaching it
    targets = (levels - _ROUNDING).expand(len(weights), -1).contiguous()
    return values[torch.searchsorted(share, targets).clamp(max=len(values) - 1)]


def _normal_levels(like: Tensor, n: int = _N_LEVELS) -> Tensor:
    return torch.special.ndtri(midpoint_levels(n, like))


def interpolate(at: Tensor, values: Tensor, x: Tensor) -> Tensor:
    """Interpolate values at increasing places; constant beyond them."""
    piece, part = _piece(at, x)
    return values[piece] + part * (values[piece + 1] - values[piece])


def _inverse(x: Tensor, y: Tensor, value: Tensor) -> Tensor:
    """Find where piecewise linear functions equal a value; slopes beyond are 1.

    `x`, `y` (n, n_knots): increasing; `value` (n, 1).
    """
    right = torch.searchsorted(y.contiguous(), value).clamp(1, y.shape[1] - 1)
    x0, x1, y0, y1 = (t.gather(1, i) for t in (x, y) for i in (right - 1, right))
    inner = x0 + (value - y0) / (y1 - y0) * (x1 - x0)
    below, above = value - y[:, :1] + x[:, :1], value - y[:, -1:] + x[:, -1:]
    inverted = torch.where(value < y[:, :1], below, inner)
    return torch.where(value > y[:, -1:], above, inverted)


def _piece(at: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Find the piece that contains x, and the position in it; clamped at the ends."""
    piece = (torch.searchsorted(at, x.contiguous()) - 1).clamp(0, len(at) - 2)
    # centres of equal predictions coincide
    width = (at[piece + 1] - at[piece]).clamp(min=torch.finfo(at.dtype).tiny)
    return piece, ((x - at[piece]) / width).clamp(0, 1)


def _shifts_at(centres: Tensor, shifts: Tensor, mean: Tensor, z: Tensor) -> Tensor:
    """Interpolate shifts between centres and levels."""
    levels = _normal_levels(z)
    i, s = _piece(centres, mean)
    j, t = _piece(levels, z)
    flat, at = shifts.flatten(), i * shifts.shape[1] + j
    low = flat[at] * (1 - t) + flat[at + 1] * t
    at = at + shifts.shape[1]
    high = flat[at] * (1 - t) + flat[at + 1] * t
    return low * (1 - s) + high * s
