"""Maps between cells of a table and scores of about unit standard deviation.

Columns are standardised, and mapped nonlinearly if there are `marginals`.  Columns with
repeated values are rounded: a score between two values belongs to the nearer one.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian.marginals import PiecewiseLinear
from skvnce.distributions.columns import nearest, pick, place

_FARTHEST = 1e6  # maximum absolute score, whose square fits into single precision
_SHARED = 0.5  # share of cells with equal values from which a column is rounded


class CellScores(NamedTuple):
    """The map from cells to scores.

    Attributes
    ----------
    location, scale : Tensor of shape (features,)
    marginals : PiecewiseLinear or None
        Of the scaled cells.
    rounded : Tensor of int, of shape (n_rounded,)
        Indices of the columns with repeated values.
    values : Tensor of shape (n_rounded, n_values)
        Increasing values of cells; the last is repeated if a column has fewer.
    tables : pair of Tensor of shape (n_rounded, n_values) and \
            (n_rounded, n_values + 1), or None
        Scores of these values, and the edges between and around them; both are
        increasing and padded like the values.  None if the other attributes give them.
    """

    location: Tensor
    scale: Tensor
    marginals: PiecewiseLinear | None
    rounded: Tensor
    values: Tensor
    tables: tuple[Tensor, Tensor] | None = None

    def scores(self, data: Incomplete) -> tuple[Incomplete, Tensor]:
        """Map a table to scores; also sum the log-slopes of observed cells of each row.

        Rounded columns have probabilities and no slopes; their cells count as the
        nearest known value.
        """
        cells = self._snapped(data.x.where(data.observed, self.location))
        scaled = ((cells - self.location) / self.scale).clamp(-_FARTHEST, _FARTHEST)
        scaled = Incomplete(scaled.where(data.observed, 0.0), data.observed)
        smooth = torch.ones_like(self.scale)
        smooth[self.rounded] = 0.0
        slopes = -self.scale.log().expand_as(data.x)
        if self.marginals is not None:
            found, log_slope = self.marginals.forward(scaled.x)
            slopes = slopes + log_slope
            scaled = Incomplete(found.where(data.observed, 0.0), data.observed)
        if self.tables is not None:
            found = scaled.x.index_copy(-1, self.rounded, self._looked_up(cells))
            scaled = Incomplete(found.where(data.observed, 0.0), data.observed)
        return scaled, slopes.where(data.observed, 0.0) @ smooth

    def cells(self, scores: Tensor) -> Tensor:
        """Map scores (*batch, features) to cells; rounded columns exactly."""
        scaled = scores if self.marginals is None else self.marginals.inverse(scores)
        cells = self.location + self.scale * scaled
        if self.tables is None:
            return self._snapped(cells)
        inner = self.tables[1][:, 1:-1]
        last = self.tables[1][:, -1:]
        inner = inner.where(inner < last, torch.inf)
        places = place(inner, scores[..., self.rounded])
        return cells.index_copy(-1, self.rounded, pick(self.values, places))

    def values_and_edges(self) -> tuple[Tensor, Tensor]:
        """Map values of rounded columns, and the midpoints between them, to scores.

        Returns `values` (n_rounded, n_values); `edges` (n_rounded, n_values + 1): the
        outermost edges are symmetric around the outermost values.
        """
        if self.tables is not None:
            return self.tables
        location, scale = self.location[self.rounded], self.scale[self.rounded]
        values = (self.values - location[:, None]) / scale[:, None]
        counts = (values.diff() > 0).sum(1, keepdim=True)
        midpoints = self._scores_of((values[:, 1:] + values[:, :-1]) / 2)
        values = self._scores_of(values)
        last = 2 * values[:, -1:] - midpoints.gather(1, counts - 1)
        places = torch.arange(values.shape[1]).to(counts)
        right = torch.cat([midpoints, last], 1).where(places < counts, last)
        return values, torch.cat([2 * values[:, :1] - midpoints[:, :1], right], 1)

    def _snapped(self, cells: Tensor) -> Tensor:
        if not len(self.rounded):
            return cells
        near = nearest(self.values, cells[..., self.rounded])
        return cells.index_copy(-1, self.rounded, near)

    def _looked_up(self, cells: Tensor) -> Tensor:
        """Look up the scores of the values of rounded columns; (*batch, n_rounded)."""
        halves = (self.values[:, 1:] + self.values[:, :-1]) / 2
        return pick(self.tables[0], place(halves, cells[..., self.rounded]))

    def _scores_of(self, values: Tensor) -> Tensor:
        if self.marginals is None or not len(values):
            return values
        marginals = PiecewiseLinear(*(part[self.rounded] for part in self.marginals))
        return marginals.forward(values.T)[0].T


def repeated_values(data: Incomplete) -> tuple[Tensor, Tensor]:
    """Find the columns with repeated values, and their values.

    Returns `rounded`, int (n_rounded,); `values` (n_rounded, n_values).
    """
    places, tables = [], []
    for j, (column, seen) in enumerate(zip(data.x.T, data.observed.T, strict=True)):
        values, counts = column[seen].unique(return_counts=True)
        shared = counts[counts > 1].sum() >= _SHARED * counts.sum()
        if shared and len(values) > 1:
            places.append(j)
            tables.append(values)
    widest = max(map(len, tables), default=0)
    padded = [torch.cat([t, t[-1:].expand(widest - len(t))]) for t in tables]
    values = torch.stack(padded) if padded else data.x.new_zeros(0, 0)
    return torch.tensor(places, dtype=torch.long), values
