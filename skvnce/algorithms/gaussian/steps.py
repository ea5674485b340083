"""Draws of columns with repeated values: steps from scores to observed values.

Such a column has no density, and a normal score between two of its values belongs to
one of them.  The steps are chosen such that the distributions of the scores, predicted
for each observed cell from the other observed cells of its row, reproduce the observed
frequencies of the values in the same rows:

    sum_i w_i P(score_i <= t_k | the others of row i) = sum_i w_i 1(x_i <= v_k).   (1)

Rounding to the nearest value instead would draw rare values too seldom, and zeros of a
skewed column too often.  Beyond the first and the last step a score is the cell that
the marginal maps it to, where that is outside of the observed values.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.distributions.columns import pick, place
from skvnce.distributions.normal import (
    ByMissing,
    FactoredNormal,
    Normal,
    arrange,
    prepare,
)
from skvnce.distributions.quantiles import midpoint_levels

_LEVELS = 12  # number of quantiles that represent each predicted score
# cumulated weights have rounding errors
_ROUNDING = 1e-9  # difference below which shares are equal
_ROWS = 2000  # approximate maximum number of rows whose cells are predicted


class Steps(NamedTuple):
    """Increasing functions of scores whose values are observed values."""

    columns: Tensor  # int (n_stepped,), indices of the columns with repeated values
    # (n_stepped, n_values - 1), scores at which the value changes; inf beyond the last
    # value of a column
    edges: Tensor
    # (n_stepped, n_values), increasing; the last is repeated if a column has fewer
    values: Tensor
    # (n_stepped,), range of the cells; that of the values, if there are none beyond
    # them
    low: Tensor
    high: Tensor

    def put(self, scores: Tensor, cells: Tensor) -> Tensor:
        """Replace the cells (*batch, features) of these columns by steps of scores."""
        if not len(self.columns):
            return cells
        places = place(self.edges, scores[..., self.columns])
        found = pick(self.values, places)
        own = cells[..., self.columns].clamp(self.low, self.high)
        found = torch.where(places == 0, torch.minimum(found, own), found)
        is_last = found == self.values[:, -1]
        found = torch.where(is_last, torch.maximum(found, own), found)
        return cells.index_copy(-1, self.columns, found)


def left_out_moments(
    normal: Normal, data: Incomplete, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """Predict each observed cell of some columns from the other cells of its row.

    With Q the inverse of the covariance S_oo of the observed cells and r their
    residuals, the cell j has variance ``1 / Q_jj`` and mean ``x_j - (Q r)_j / Q_jj``.

    Returns `mean`, `deviation` (n, n_columns): arbitrary where a cell is missing.
    """
    factored = prepare(normal)
    mean = data.x.new_zeros(len(data.x), len(columns))
    deviation = torch.ones_like(mean)
    for batch in arrange(*data, kinds=1):
        given = batch.condition(factored)
        diagonal = _left_out_precision(given, factored, columns)
        pull = (given.completed() @ factored.precision)[:, columns] / diagonal
        mean[batch.rows] = data.x[batch.rows][:, columns] - pull
        deviation[batch.rows] = diagonal.rsqrt()
    return mean, deviation


def _left_out_precision(
    given: ByMissing, normal: FactoredNormal, columns: Tensor
) -> Tensor:
    """Compute the diagonal of Q = P_oo - P_om P_mm^-1 P_mo; (n, n_columns)."""
    precision, batch = normal.precision, given.batch
    wide = torch.nn.functional.pad(precision, (0, 0, 0, batch.block.shape[1]))
    right = wide[:, columns][batch.block]
    half = torch.linalg.solve_triangular(given.factor, right, upper=False)
    diagonal = precision.diagonal()[columns]
    seen = batch.seen[:, columns] > 0
    # any positive number where a cell is missing, because its root is a divisor
    return (diagonal - half.square().sum(1)).where(seen, diagonal)


def fit_steps(
    normal: Normal,  # of the scores
    scores: Incomplete,
    cells: Tensor,  # (n, features), the cells of the scores
    weights: Tensor,  # (n,)
    values: dict[int, Tensor],  # increasing values of the columns with repeated values
    ranges: tuple[Tensor, Tensor] | None = None,
) -> Steps:
    """Find the steps of eq. (1).

    `ranges` (features,), or None: smallest and largest possible cells; None if only
    these values are possible.
    """
    columns = torch.tensor(sorted(values), dtype=torch.long)
    widest = max(map(len, values.values()), default=2)
    edges = cells.new_full((len(columns), widest - 1), torch.inf)
    table = cells.new_zeros(len(columns), widest)
    # a systematic sample, without random numbers
    some = slice(None, None, max(1, len(cells) // _ROWS))
    scores, cells, weights = scores.take(some), cells[some], weights[some]
    mean, deviation = left_out_moments(normal, scores, columns)
    for k, j in enumerate(columns.tolist()):
        known, seen = values[j], scores.observed[:, j] & (weights > 0)
        counts = _weights_of_values(cells[seen, j], weights[seen], known)
        found = _edges(mean[seen, k], deviation[seen, k], weights[seen], counts)
        edges[k, : len(known) - 1] = found
        table[k] = torch.cat([known, known[-1:].expand(widest - len(known))])
    ends = table[:, 0], table[:, -1]
    if ranges is not None:
        ends = [end[columns] for end in ranges]
    return Steps(columns, edges, table, *ends)


def _weights_of_values(cells: Tensor, weights: Tensor, known: Tensor) -> Tensor:
    places = torch.searchsorted((known[1:] + known[:-1]) / 2, cells)
    return weights.new_zeros(len(known)).index_add_(0, places, weights)


def _edges(mean: Tensor, deviation: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """Find quantiles of a mixture of normals at the cumulative shares of the values."""
    t = midpoint_levels(_LEVELS, mean)  # with more levels, of less weight, in the tails
    # the derivative of t^2 (3 - 2 t) is 6 t (1 - t), the weight of the level
    noise, part = torch.special.ndtri(t.square() * (3 - 2 * t)), t * (1 - t)
    pooled, order = (mean[:, None] + deviation[:, None] * noise).flatten().sort()
    below = (weights[:, None] * part).flatten()[order].cumsum(0)
    share = counts.cumsum(0)[:-1] / counts.sum()
    # a share that equals a level up to rounding counts as reaching it
    places = torch.searchsorted(below / below[-1], share - _ROUNDING)
    return pooled[places.clamp(max=len(pooled) - 1)]
