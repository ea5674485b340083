"""Location and scale of columns: from the units of the user to those of a model."""

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.distributions.normal import Normal


class Units(NamedTuple):
    """Location and scale of the columns of a model, as arrays (features,)."""

    location: np.ndarray
    scale: np.ndarray

    @classmethod
    def none(cls, width: int) -> Self:
        """Leave columns as they are."""
        return cls(np.zeros(width), np.ones(width))

    def scaled(self, nodes: np.ndarray) -> Incomplete:
        """Convert a table (n, features) with NaN, in the units of the user."""
        x = np.ascontiguousarray(nodes - self.location)
        # in place, as the next lines, to spare copies of a large table
        x /= self.scale
        x = torch.from_numpy(x)
        observed = ~x.isnan()
        return Incomplete(x.masked_fill_(~observed, 0.0), observed)

    def restored(self, x: Tensor) -> np.ndarray:
        """Convert rows (*batch, features) back."""
        return self.location + x.numpy() * self.scale

    def log_scales(self, nodes: np.ndarray) -> np.ndarray:
        """Sum the logarithms of the scales over the observed cells of each row; (n,).

        Log-densities of scaled rows exceed those in the units of the user by these
        sums.
        """
        return np.where(np.isnan(nodes), 0.0, np.log(self.scale)).sum(1)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Return copies of location and scale as tensors."""
        return torch.tensor(self.location), torch.tensor(self.scale)

    def moments(self, normal: Normal) -> tuple[np.ndarray, np.ndarray]:
        """Convert mean and covariance of a normal distribution of rows back."""
        square = np.outer(self.scale, self.scale)
        return self.restored(normal.mean), normal.covariance.numpy() * square
