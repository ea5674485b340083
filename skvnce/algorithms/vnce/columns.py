"""Statistics of the columns of a table."""

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce.models.noise import BINARY, POSITIVE, REAL, Marginals


class ColumnSummary(NamedTuple):
    """Statistics of columns."""

    kind: Tensor  # (features,), int64, `REAL`, `POSITIVE` or `BINARY`
    mean: Tensor  # (features,)
    scale: Tensor  # (features,)
    # (features,), half of the smallest positive value, which replaces zero in
    # logarithms
    floor: Tensor

    @classmethod
    def of(cls, nodes: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> Self:
        """Compute the statistics of a table (n, features) with NaN."""
        binary = (np.isnan(nodes) | (nodes == 0) | (nodes == 1)).all(0)
        positive = np.nanmin(nodes, 0) >= 0
        kind = np.where(binary, BINARY, np.where(positive, POSITIVE, REAL))
        floor = np.nanmin(np.where(nodes > 0, nodes, np.inf), 0) / 2
        floor = np.where(np.isfinite(floor), floor, 1.0)
        return cls(*map(torch.from_numpy, (kind, mean, scale, floor)))

    @classmethod
    def standard(cls, width: int) -> Self:
        """Describe standardised columns, which have no bounds."""
        zero, one = torch.zeros(width).double(), torch.ones(width).double()
        return cls(torch.full((width,), REAL), zero, one, one)

    def marginals(self, counts: Tensor) -> Marginals:
        """Fit the product of marginals, by the numbers (features,) of their cells."""
        return Marginals.fit(self.kind, self.mean, self.scale.square(), counts)
