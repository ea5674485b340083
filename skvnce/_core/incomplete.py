"""Tables with missing values: values and a boolean mask."""

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal


class Incomplete(NamedTuple):
    """A table with missing values."""

    # (n, features), the values, zero where missing. A zero does not mean that a value
    # is missing
    x: Tensor
    observed: Tensor  # bool (n, features), True where the value was observed

    @classmethod
    def from_array(cls, array: np.ndarray, dtype: torch.dtype = torch.float64) -> Self:
        """Copy an array in which NaN marks missing values."""
        # torch reads no arrays with negative strides
        x = torch.tensor(np.ascontiguousarray(array), dtype=dtype)
        observed = ~x.isnan()
        # zeros, because products with NaN are NaN, also those with a weight of 0
        return cls(x.where(observed, x.new_zeros(())), observed)

    def to_array(self, dtype: np.dtype | type = np.float64) -> np.ndarray:
        """Return an array with NaN where the value is missing."""
        x = self.x.where(self.observed, self.x.new_tensor(torch.nan))
        return x.cpu().numpy().astype(dtype)

    def with_values(self, x: Tensor) -> Tensor:
        """Return `x` with the observed cells restored exactly."""
        return torch.where(self.observed, self.x, x)

    def on(self, device: torch.device) -> Self:
        """Return the table on a device."""
        return type(self)(self.x.to(device), self.observed.to(device))

    def take(self, rows: Tensor | slice) -> Self:
        """Return the given rows."""
        return type(self)(self.x[rows], self.observed[rows])


# ----------------------------------------
# Location and scale of columns: from the units of the user to those of a model.


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
