"""Tables with missing values: values and a boolean mask."""

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor


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
