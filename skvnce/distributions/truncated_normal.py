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
from torch.distributions import Distribution, constraints

from skvnce.distributions.portable import uniform_numbers

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
