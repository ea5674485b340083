"""The normal distribution truncated to a box, whose bounds may differ between rows."""

from typing import NamedTuple

from torch import Tensor

from skvnce.distributions.bounded_normal import BoundedNormal


class BoxGaussian(NamedTuple):
    """Density proportional to exp(-x'Kx / 2 + b'x) for low <= x <= high.

    Attributes
    ----------
    precision : Tensor of shape (features, features)
        K, symmetric with a positive diagonal.
    linear : Tensor of shape (features,)
        b: K times the mean before the truncation.
    low, high : Tensor
        Of a shape that broadcasts to the completed tables (*chains, n, features).  May
        be infinite; ``low < high``.
    """

    precision: Tensor
    linear: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of_mean(
        cls, mean: Tensor, precision: Tensor, low: Tensor, high: Tensor
    ) -> "BoxGaussian":
        """Make the density from the mean before the truncation."""
        return cls(precision, precision @ mean, low, high)

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Return the bounds of all cells."""
        return self.low, self.high

    def quantile(
        self, uniform: Tensor, loc: Tensor, scale: Tensor, low: Tensor, high: Tensor
    ) -> Tensor:
        """Return quantiles of a normal distribution truncated to [low, high]."""
        return self.segment(loc, scale, low, high).icdf(uniform)

    def conditionals(self, x: Tensor) -> BoundedNormal:
        """Return p(x_j | x_-j) of all j, of batch shape (*chains, n, features)."""
        diagonal = self.precision.diagonal()
        loc = x + (self.linear - x @ self.precision) / diagonal
        return self.segment(loc, diagonal.rsqrt(), self.low, self.high)

    def segment(
        self, loc: Tensor, scale: Tensor, low: Tensor, high: Tensor
    ) -> BoundedNormal:
        """Return a normal distribution conditioned on a segment of a line."""
        return BoundedNormal(loc, scale, low, high, validate_args=False)
