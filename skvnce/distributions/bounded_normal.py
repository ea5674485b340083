"""The normal distribution truncated to an interval, accurate in both tails.

Everything is computed in the upper tail: intervals whose centre is below the location
are mirrored.
"""

from math import log, pi, sqrt

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints
from torch.special import log_ndtr

from skvnce.distributions.implicit import with_gradient
from skvnce.distributions.portable import uniform_numbers

_TAIL = 35.0  # beyond it erfc underflows; the excess over the bound is exponential
# standard deviations beyond which the density of a normal is negligible
FARTHEST = 50.0
# erfc(12 / sqrt(2)) is 4e-33 and erfc(35 / sqrt(2)) 2e-268, both still normal numbers
UNDERFLOW = {torch.float32: -12.0, torch.float64: -35.0}  # of erfc, by type
# differences of nearly equal densities and probabilities have few digits
_NARROW = 1e-5  # width times the slope of the density, below which it is uniform


class BoundedNormal(Distribution):
    """Normal distribution conditioned on lying between two bounds."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample = True

    def __init__(
        self,
        # mean and standard deviation before the truncation; `scale` is positive
        loc: Tensor,
        scale: Tensor,
        # bounds, ``low < high``; may be infinite.  All four parameters broadcast
        low: Tensor,
        high: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        parts = torch.broadcast_tensors(loc, scale, low, high)
        self.loc, self.scale, self.low, self.high = parts
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """Return the interval."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        """The mean after the truncation."""
        sign, a, b = self._mirrored()
        return self._place(sign * interval_mean(a, b))

    def icdf(self, value: Tensor) -> Tensor:
        """Compute the quantile function at probabilities in [0, 1]."""
        with torch.no_grad():
            sign, a, b = self._mirrored()
            # the mirrored quantile, so that all digits of the tail are used
            below = torch.where(sign > 0, value, 1 - value)
            found = self._place(sign * interval_quantile(below, a, b))
        return with_gradient(found, self)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log-density, -inf outside the bounds; (*sample, *batch)."""
        a, b = self._standard(self.low), self._standard(self.high)
        inside = Normal(self.loc, self.scale, validate_args=False).log_prob(value)
        density = inside - log_interval(a, b)
        return density.where((value >= self.low) & (value <= self.high), -torch.inf)

    def cdf(self, value: Tensor) -> Tensor:
        """Compute P(x <= value); (*sample, *batch)."""
        a, b = self._standard(self.low), self._standard(self.high)
        at = self._standard(value.clamp(self.low, self.high))
        return (log_interval(a, at) - log_interval(a, b)).exp()

    def entropy(self) -> Tensor:
        """Compute the entropy; (*batch,).

        ``log(sqrt(2 pi e) scale Z) + (a phi(a) - b phi(b)) / (2 Z)`` with standardised
        bounds a and b and Z the probability between them.
        """
        a, b = self._standard(self.low), self._standard(self.high)
        log_z = log_interval(a, b)
        unit = Normal(torch.zeros_like(a), torch.ones_like(a), validate_args=False)
        edges = [
            t * (unit.log_prob(t) - log_z).exp()
            # an infinite bound times its density of 0 would be NaN
            for t in (a.clamp(-FARTHEST, FARTHEST), b.clamp(-FARTHEST, FARTHEST))
        ]
        return (
            log(2 * pi) / 2 + 0.5 + self.scale.log() + log_z + (edges[0] - edges[1]) / 2
        )

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draw (*sample, *batch)."""
        shape = self._extended_shape(sample_shape)
        return self.icdf(uniform_numbers(shape, self.loc))

    def _standard(self, value: Tensor) -> Tensor:
        finite = value.isfinite()  # others have no gradient of the scale: inf * 0
        standard = (value.where(finite, 0.0) - self.loc) / self.scale
        return standard.where(finite, value)

    def _mirrored(self) -> tuple[Tensor, Tensor, Tensor]:
        a, b = (self.low - self.loc) / self.scale, (self.high - self.loc) / self.scale
        flip = a + b < 0
        sign = torch.where(flip, -1.0, 1.0).to(a)
        return sign, torch.where(flip, -b, a), torch.where(flip, -a, b)

    def _place(self, standard: Tensor) -> Tensor:
        # rounding may leave the interval
        return (self.loc + self.scale * standard).clamp(self.low, self.high)


def log_interval(a: Tensor, b: Tensor) -> Tensor:
    """Compute log(Phi(b) - Phi(a)), in the tail in which no digits cancel.

    Where Phi(b) would underflow it is computed from logarithms, which are slow.
    """
    # constant beyond, where log-probabilities could be infinite
    a, b = a.clamp(-FARTHEST, FARTHEST), b.clamp(-FARTHEST, FARTHEST)
    upper = a > 0
    a, b = torch.where(upper, -b, a), torch.where(upper, -a, b)
    far = b < UNDERFLOW[a.dtype]
    if not far.any():
        return _log_difference(a, b)
    # any interval in place of far ones, whose gradients would be NaN
    near = _log_difference(a.where(~far, -1.0), b.where(~far, 1.0))
    return near.masked_scatter(far, _log_interval_of_tail(a[far], b[far]))


def _log_difference(a: Tensor, b: Tensor) -> Tensor:
    above, below = _upper(-b), _upper(-a)
    least = torch.finfo(a.dtype).eps
    # an interval that is narrower than the rounding has a positive probability
    return torch.maximum(above - below, least * above).log()


def _log_interval_of_tail(a: Tensor, b: Tensor) -> Tensor:
    above, below = log_ndtr(b), log_ndtr(a)
    least = torch.finfo(a.dtype).eps
    # not above -eps, because log1p(-1) is infinite
    return above + torch.log1p(-torch.exp((below - above).clamp(max=-least)))


def interval_mean(a: Tensor, b: Tensor) -> Tensor:
    """Compute E[v | a < v < b] of a standard normal v, for a + b >= 0.

    ``(phi(a) - phi(b)) / (Q(a) - Q(b))``, for a > 0 with both parts over phi(a).
    """
    density = [torch.exp(-t.square() / 2) / sqrt(2 * pi) for t in (a, b)]
    near = (density[0] - density[1]) / (_upper(a) - _upper(b))
    # phi(b) / phi(a), which does not underflow where both densities do
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
    # clamped, because both branches are computed and this one is for the tail only
    steep = a.clamp(min=_TAIL)
    reach = -torch.expm1(-steep * (b - steep).clamp(min=0))
    far = steep - torch.log1p(-below * reach) / steep
    return torch.where(a > _TAIL, far, near).clamp(a, b)


def _upper(t: Tensor) -> Tensor:
    return torch.special.erfc(t / sqrt(2)) / 2
