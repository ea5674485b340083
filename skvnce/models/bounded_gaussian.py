"""The normal distribution conditioned on a box."""

from typing import NamedTuple

from torch import Tensor

from skvnce.distributions.bounded_normal import BoundedNormal


class BoundedGaussian(NamedTuple):
    """Parameters: normal before the truncation, and the bounds of each column.

    Attributes
    ----------
    mean : Tensor of shape (features,)
    precision : Tensor of shape (features, features)
    low, high : Tensor of shape (features,)
        May be infinite.
    """

    mean: Tensor
    precision: Tensor
    low: Tensor
    high: Tensor

    def conditional(self, x: Tensor, feature: int) -> BoundedNormal:
        """Return p(x_j | x_-j)."""
        row = self.precision[feature]
        loc = x[..., feature] - (x - self.mean) @ row / row[feature]
        bounds = self.low[feature], self.high[feature]
        return BoundedNormal(loc, row[feature].rsqrt(), *bounds, validate_args=False)

    def conditionals(self, x: Tensor) -> BoundedNormal:
        """Return p(x_j | x_-j) of all j, of batch shape (*batch, features)."""
        diagonal = self.precision.diagonal()
        loc = x - (x - self.mean) @ self.precision / diagonal
        scale = diagonal.rsqrt()
        return BoundedNormal(loc, scale, self.low, self.high, validate_args=False)
