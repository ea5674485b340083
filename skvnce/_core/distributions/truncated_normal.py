"""The normal distribution truncated to [0, inf), accurate from mu/sigma = -2000 to 50.

Everything is written in the ratio ``t = loc / scale`` and the standardised variable
``v = x / scale``, whose density is ``exp(-v**2 / 2 + t v - log_normaliser(t))`` on
``v >= 0``: an exponential family, so the mean is the derivative of the log-normaliser
and the variance that of the mean.  If most of the mass is truncated (t far below 0) the
textbook formulas subtract nearly equal numbers; here the tail uses a continued
fraction, and draws solve for the excess over the bound instead of the quantile.

Rhodes (2018), eqs. (5.21)-(5.23), with ``erfcx(x) = exp(x**2) erfc(x)`` (the printed
definition with erf is a misprint).
"""

from math import log, pi, sqrt

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints
from torch.special import log_ndtr

from skvnce._core.random import uniform_numbers, with_gradient

# the mean excess is about 1 / a, a difference of numbers of size a
_TAIL = 12.0  # excess of the bound over the location: above it, continued fraction
_DEPTH = 16  # of the continued fraction: relative error below 1e-13 beyond _TAIL
# the excess is about 1 / a, a difference of quantiles of size a
_DRAW_TAIL = 8.0  # beyond this, draws solve for the excess over the bound
_MAX_SQUARED_CV = 0.98  # of the moment fit: an exponential has 1


def mean_excess(a: Tensor) -> Tensor:
    """Compute E[v - a | v > a] of a standard normal v, for any real a."""
    # clamped, because both branches are computed
    near = sqrt(2 / pi) / torch.special.erfcx(a.clamp(max=_TAIL) / sqrt(2)) - a
    tail = a > _TAIL
    if not tail.any():
        return near
    far = fraction = a[tail]
    for n in range(_DEPTH, 1, -1):  # 1 / (a + 2 / (a + 3 / (a + ...)))
        fraction = far + n / fraction
    return near.masked_scatter(tail, 1 / fraction)


def unit_mean(t: Tensor) -> Tensor:
    """Compute the mean of x / scale; differentiable, see `unit_variance`."""
    return _UnitMean.apply(t)


def unit_variance(t: Tensor) -> Tensor:
    """Compute the variance of x / scale."""
    excess = mean_excess(-t)
    return (1 - (excess - t) * excess).clamp(min=0)


def log_normaliser(t: Tensor) -> Tensor:
    """Compute the log of the integral of exp(-v**2 / 2 + t v) over v >= 0."""
    return _LogNormaliser.apply(t)


class _LogNormaliser(torch.autograd.Function):
    """The log-normaliser; its derivative is the mean."""

    @staticmethod
    def forward(ctx: object, t: Tensor) -> Tensor:
        ctx.save_for_backward(t)
        below = torch.special.erfcx(-t.clamp(max=0) / sqrt(2)).log() - log(2)
        above = t.clamp(min=0).square() / 2 + torch.special.log_ndtr(t.clamp(min=0))
        return torch.where(t > 0, above, below) + log(2 * pi) / 2

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        (t,) = ctx.saved_tensors
        return grad * unit_mean(t)


class _UnitMean(torch.autograd.Function):
    """The mean; its derivative is the variance."""

    @staticmethod
    def forward(ctx: object, t: Tensor) -> Tensor:
        ctx.save_for_backward(t)
        return mean_excess(-t)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        (t,) = ctx.saved_tensors
        return grad * unit_variance(t)


def unit_quantile(upper: Tensor, t: Tensor) -> Tensor:
    """Find v with P(x / scale > v) = `upper`, for `upper` in (0, 1]; not below 0."""
    total = torch.special.erfc(-t / sqrt(2)) / 2  # torch's ndtr is inaccurate at -8
    v = t - torch.special.ndtri(upper * total)
    tail = t < -_DRAW_TAIL
    if tail.any():
        v = v.masked_scatter(tail, _tail_quantile(upper[tail], -t[tail]))
    return v.clamp(min=torch.finfo(v.dtype).tiny)


def _tail_quantile(upper: Tensor, a: Tensor) -> Tensor:
    """Find the excess e with log P(v > a + e) - log P(v > a) = log `upper`."""
    log_upper = upper.log()
    # the root of e (a + e / 2) = -log(upper), in the form in which nothing cancels
    excess = -2 * log_upper / (a + (a.square() - 2 * log_upper).sqrt())
    start = torch.special.erfcx(a / sqrt(2)).log()
    for _ in range(3):  # Newton on a concave, nearly linear function
        scaled_tail = torch.special.erfcx((a + excess) / sqrt(2))
        error = scaled_tail.log() - start - excess * (a + excess / 2) - log_upper
        excess = excess + error * scaled_tail / sqrt(2 / pi)
    return excess


class TruncatedNormal(Distribution):
    """Normal distribution conditioned on being non-negative.

    `loc`, `scale`: mean and standard deviation before the truncation, of broadcastable
    shapes; `scale` is positive.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(
        self, loc: Tensor, scale: Tensor, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def ratio(self) -> Tensor:
        """The ratio loc / scale."""
        return self.loc / self.scale

    @property
    def mean(self) -> Tensor:
        """The mean after the truncation."""
        return self.scale * unit_mean(self.ratio)

    @property
    def variance(self) -> Tensor:
        """The variance after the truncation."""
        return self.scale.square() * unit_variance(self.ratio)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log-density; -inf below zero."""
        v, t = value / self.scale, self.ratio
        inside = t * v - v.square() / 2 - log_normaliser(t) - self.scale.log()
        return inside.masked_fill(value < 0, -torch.inf)

    def icdf(self, value: Tensor) -> Tensor:
        """Compute the quantile function at probabilities in [0, 1)."""
        upper, t = torch.broadcast_tensors(1 - value, self.ratio)
        return self.scale * unit_quantile(upper, t)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draw, with exact gradients in `loc` and `scale` (implicit differentiation).

        With ``a = -loc / scale``, ``y = (x - loc) / scale`` and the hazard ``r``:
        dx/dloc = 1 - r(a) / r(y) and dx/dscale = y - a r(a) / r(y).
        """
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            # in (0, 1], as the quantile of 0 would be infinite
            upper = 1 - uniform_numbers(shape, self.loc)
            x = self.scale * unit_quantile(upper, self.ratio.expand(shape))
            a, y = -self.ratio, x / self.scale - self.ratio
            hazard_ratio = (mean_excess(a) + a) / (mean_excess(y) + y)
            by_loc, by_scale = 1 - hazard_ratio, y - a * hazard_ratio
        return (
            x
            # zeros, with the exact derivatives
            + by_loc * (self.loc - self.loc.detach())
            + by_scale * (self.scale - self.scale.detach())
        )


def fit_moments(mean: Tensor, variance: Tensor) -> TruncatedNormal:
    """Find the truncated normals with the given means and variances.

    `mean`, `variance` (features,): positive.  No truncated normal has a standard
    deviation as large as its mean (the exponential is the limit); a squared coefficient
    of variation above 0.98 is therefore lowered to 0.98, which keeps the mean and
    lowers the variance.  Returns with batch shape (features,).
    """
    target = (variance / mean.square()).clamp(max=_MAX_SQUARED_CV)
    # without truncation a is -1 / sqrt(target), and with it larger
    low, high = -1 / target.sqrt() - 1, torch.full_like(mean, _TAIL)
    for _ in range(80):  # bisection of the increasing function a -> variance / mean**2
        middle = (low + high) / 2
        above = unit_variance(-middle) > target * mean_excess(middle).square()
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    a = (low + high) / 2
    scale = mean / mean_excess(a)
    return TruncatedNormal(-a * scale, scale, validate_args=False)


# ----------------------------------------
# The normal distribution truncated to an interval, accurate in both tails.
#
# Everything is computed in the upper tail: intervals whose centre is below the
# location are mirrored.

# beyond it erfc underflows; the excess over the bound is exponential
_EXPONENTIAL_TAIL = 35.0
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
            quantiles = self._place(sign * interval_quantile(below, a, b))
        return with_gradient(quantiles, self)

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
    steep = a.clamp(min=_EXPONENTIAL_TAIL)
    reach = -torch.expm1(-steep * (b - steep).clamp(min=0))
    far = steep - torch.log1p(-below * reach) / steep
    return torch.where(a > _EXPONENTIAL_TAIL, far, near).clamp(a, b)


def _upper(t: Tensor) -> Tensor:
    return torch.special.erfc(t / sqrt(2)) / 2
