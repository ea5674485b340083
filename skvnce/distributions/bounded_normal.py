"""The normal distribution truncated to an interval, right in both tails.

Everything is computed in the upper tail: an interval whose centre lies below the
location is mirrored.
"""

from math import pi, sqrt

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

_TAIL = 35.0  # beyond it erfc underflows; the excess over the bound is exponential
_NARROW = 1e-5  # width, times the slope of the density, below which it is uniform


class BoundedNormal(Distribution):
    """Normal distribution conditioned on lying between two bounds.

    Parameters
    ----------
    loc, scale : Tensor
        Mean and standard deviation before the truncation; `scale` is positive.
    low, high : Tensor
        Bounds, ``low < high``; infinite ones do not bind.  All four broadcast.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(
        self,
        loc: Tensor,
        scale: Tensor,
        low: Tensor,
        high: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        parts = torch.broadcast_tensors(loc, scale, low, high)
        self.loc, self.scale, self.low, self.high = parts
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """Give the interval."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        """The mean after the truncation."""
        sign, a, b = self._mirrored()
        return self._place(sign * interval_mean(a, b))

    def icdf(self, value: Tensor) -> Tensor:
        """Compute the quantile function at probabilities in [0, 1]."""
        sign, a, b = self._mirrored()
        below = torch.where(sign > 0, value, 1 - value)
        return self._place(sign * interval_quantile(below, a, b))

    def _mirrored(self) -> tuple[Tensor, Tensor, Tensor]:
        a, b = (self.low - self.loc) / self.scale, (self.high - self.loc) / self.scale
        flip = a + b < 0
        sign = torch.where(flip, -1.0, 1.0).to(a)
        return sign, torch.where(flip, -b, a), torch.where(flip, -a, b)

    def _place(self, standard: Tensor) -> Tensor:
        return (self.loc + self.scale * standard).clamp(self.low, self.high)


def interval_mean(a: Tensor, b: Tensor) -> Tensor:
    """Compute E[v | a < v < b] of a standard normal v, for a + b >= 0.

    ``(phi(a) - phi(b)) / (Q(a) - Q(b))``, for a > 0 with both parts over phi(a).
    """
    density = [torch.exp(-t.square() / 2) / sqrt(2 * pi) for t in (a, b)]
    near = (density[0] - density[1]) / (_upper(a) - _upper(b))
    drop = torch.exp(-(b - a) * (b + a) / 2)
    right = a.clamp(min=0)
    scaled = torch.special.erfcx(right / sqrt(2))
    scaled = scaled - drop * torch.special.erfcx(b.clamp(min=0) / sqrt(2))
    far = (1 - drop) / (sqrt(pi / 2) * scaled)
    uniform = (b - a) * a.abs().clamp(min=1) < _NARROW
    return torch.where(uniform, (a + b) / 2, torch.where(a > 0, far, near))


def interval_quantile(below: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Find v with P(a < v' < v) / P(a < v' < b) = `below`, for a + b >= 0."""
    tail, top = _upper(a), _upper(b)
    near = -torch.special.ndtri(tail - below * (tail - top))
    steep = a.clamp(min=_TAIL)
    reach = -torch.expm1(-steep * (b - steep).clamp(min=0))
    far = steep - torch.log1p(-below * reach) / steep
    return torch.where(a > _TAIL, far, near).clamp(a, b)


def _upper(t: Tensor) -> Tensor:
    return torch.special.erfc(t / sqrt(2)) / 2
