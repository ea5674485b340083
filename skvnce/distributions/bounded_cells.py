"""Cells of a row that are known to lie within bounds.

A missing cell lies between the bounds of its column with probability

    P(low_j < x_j < high_j | z),                                                   (1)

which contains information about the latents, as an observed cell does.  Given the
latents, the cell follows its distribution truncated to the bounds.
"""

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce.distributions.bounded_normal import BoundedNormal, log_interval
from skvnce.distributions.cells import Cells, student_cdf, student_quantile


class BoundedCells(Distribution):
    """Independent cells, normal or Student's t, with bounds in some columns.

    Observed cells have the same density as without bounds, and missing cells the
    logarithm of (1), `log_inside`; see `skvnce.models.base.observed_log_prob`.

    `cells`: of batch shape (*batch, features).  `places` (int (n_bounded,)): indices of
    columns with bounds, none of them binary or rounded.  `low`, `high` (n_bounded,):
    ``low < high``; one of them may be infinite.
    """

    arg_constraints: dict = {}

    def __init__(self, cells: Cells, places: Tensor, low: Tensor, high: Tensor) -> None:
        self.cells, self.places, self.low, self.high = cells, places, low, high
        self._heavy = torch.isin(places, cells.families.student)
        super().__init__(cells.batch_shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log-densities as if there were no bounds."""
        return self.cells.log_prob(value)

    @property
    def log_inside(self) -> Tensor:
        """The logarithm of (1), 0 in columns without bounds; (*batch, features)."""
        a, b = self._standard()
        found = log_interval(a, b)
        if self._heavy.any():
            low, high = self._levels(a, b)
            # far in a tail the difference may be 0, which has no logarithm
            share = (high - low).clamp(min=torch.finfo(low.dtype).tiny)
            found = torch.where(self._heavy, share.log(), found)
        nothing = torch.zeros_like(self.cells.loc)
        return nothing.index_copy(-1, self.places, found)

    @property
    def level_probabilities(self) -> Tensor:
        """Those of the cells; columns of categories have no bounds."""
        return self.cells.level_probabilities

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles of the truncated distribution; (*sample, *batch, features).

        `value` (*sample, *batch, features).
        """
        found, at = self.cells.icdf(value), self.places
        loc, scale = self.cells.loc[..., at], self.cells.scale[..., at]
        part = value[..., at]
        normal = BoundedNormal(loc, scale, self.low, self.high, validate_args=False)
        inside = normal.icdf(part)
        if self._heavy.any():
            low, high = self._levels(*self._standard())
            t = loc + scale * student_quantile(low + (high - low) * part)
            # rounding may leave the interval
            inside = torch.where(self._heavy, t.clamp(self.low, self.high), inside)
        return found.index_copy(-1, at, inside)

    def _standard(self) -> tuple[Tensor, Tensor]:
        loc, scale = (p[..., self.places] for p in (self.cells.loc, self.cells.scale))
        return (self.low - loc) / scale, (self.high - loc) / scale

    @staticmethod
    def _levels(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return student_cdf(a), student_cdf(b)
