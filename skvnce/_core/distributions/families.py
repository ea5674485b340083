"""Mixtures of normals with independent coordinates, with differentiable draws.

    q(z) = sum_k pi_k prod_d N(z_d; loc_kd, scale_kd^2)                            (1)

The component of a draw is not differentiable, but the draw is: the distributional
transform T maps z to uniform numbers,

    T_d(z) = sum_k w_kd Phi((z_d - loc_kd) / scale_kd)                             (2)
    w_kd  proportional to  pi_k prod_{e < d} N(z_e; loc_ke, scale_ke^2)            (3)

and since T(z) is constant when the parameters change, ``dz = -(dT/dz)^-1 dT``.  The
Jacobian is lower triangular, with q(z_d | z_<d) on its diagonal.  It is solved by
forward substitution: the gradient of z_d passes through the w_kd to those of z_<d.

Figurnov, Mohamed and Mnih (2018), Implicit reparameterization gradients, section 4;
Graves (2016), Stochastic backpropagation through mixture density distributions.
"""

from math import log, pi
from typing import Self

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal, constraints

from skvnce._core.random import (
    at_quantiles,
    draw,
    inside,
    uniform_numbers,
    with_gradient,
)


class NormalMixture(Distribution):
    """A mixture of normals with independent coordinates, of event shape (latents,)."""

    arg_constraints = {
        "logits": constraints.real_vector,
        "loc": constraints.independent(constraints.real, 2),
        "scale": constraints.independent(constraints.positive, 2),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        # (*batch, components): of the weights; any constant may be added
        logits: Tensor,
        loc: Tensor,  # (*batch, components, latents)
        scale: Tensor,  # (*batch, components, latents)
        validate_args: bool | None = None,  # as in torch
    ) -> None:
        self.logits, self.loc, self.scale = logits, loc, scale
        super().__init__(logits.shape[:-1], loc.shape[-1:], validate_args)

    @property
    def log_weights(self) -> Tensor:
        """The log pi_k; (*batch, components)."""
        return torch.log_softmax(self.logits, -1)

    def components(self) -> Independent:
        """Return the components, of batch shape (*batch, components)."""
        return Independent(Normal(self.loc, self.scale, validate_args=False), 1)

    def expand(self, batch_shape: torch.Size, _instance: None = None) -> Self:
        """Return the mixture, repeated to a larger batch shape."""
        shape = *batch_shape, *self.loc.shape[-2:]
        return type(self)(
            self.logits.expand(shape[:-1]),
            self.loc.expand(shape),
            self.scale.expand(shape),
            validate_args=False,
        )

    @property
    def mean(self) -> Tensor:
        """The mean; (*batch, latents)."""
        return (self._weights() * self.loc).sum(-2)

    @property
    def variance(self) -> Tensor:
        """The variances; (*batch, latents)."""
        apart = self.loc - self.mean.unsqueeze(-2)
        return (self._weights() * (self.scale.square() + apart.square())).sum(-2)

    def _weights(self) -> Tensor:
        return self.log_weights.exp().unsqueeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log q(z), eq. (1), of all components; (*sample, *batch)."""
        inside = self.components().log_prob(value.unsqueeze(-2))
        return torch.logsumexp(self.log_weights + inside, -1)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draw (*sample, *batch, latents), with the gradient of `at_uniform`."""
        shape = *sample_shape, *self.batch_shape, *self.event_shape
        wide = *shape[:-1], shape[-1] + 1
        return self.at_uniform(uniform_numbers(wide, self.loc))

    def at_uniform(self, uniform: Tensor) -> Tensor:  # (*sample, *batch, latents)
        """Map uniform numbers to draws with the implicit gradient, first order only.

        The last of the latents + 1 numbers selects the component.
        """
        with torch.no_grad():
            z = self._chosen(uniform)
        if not torch.is_grad_enabled():
            return z
        return self._moved(z)

    def _chosen(self, uniform: Tensor) -> Tensor:
        """Draw from the component that the last number selects by cumulative weight."""
        # without the last end, which rounding may leave below a uniform number
        ends = self.log_weights.exp().cumsum(-1)[..., :-1]
        index = (uniform[..., -1:] >= ends).sum(-1)[..., None, None]
        shape = *uniform.shape[:-1], 1, *self.event_shape
        loc, scale = (
            value.expand(*shape[:-2], *value.shape[-2:])
            .gather(-2, index.expand(shape))
            .squeeze(-2)
            for value in (self.loc, self.scale)
        )
        chosen = Normal(loc, scale, validate_args=False)
        return at_quantiles(chosen, uniform[..., :-1])

    def _moved(self, drawn: Tensor) -> Tensor:
        """Add the implicit gradient to a draw, coordinate by coordinate."""
        least = torch.finfo(drawn.dtype).tiny ** 0.5  # below the density of any draw
        log_pi, parts = self.log_weights, []
        for z, loc, scale in zip(
            drawn.unbind(-1), self.loc.unbind(-1), self.scale.unbind(-1), strict=True
        ):
            q = Normal(loc, scale, validate_args=False)
            log_w = torch.log_softmax(log_pi, -1)  # eq. (3)
            uniform = (log_w.exp() * q.cdf(z.unsqueeze(-1))).sum(-1)  # eq. (2)
            log_density = torch.logsumexp(log_w + q.log_prob(z.unsqueeze(-1)), -1)
            step = -uniform / log_density.detach().exp().clamp(min=least)
            # the same value, with the gradient of the step
            z = z + (step - step.detach())
            log_pi = log_pi + q.log_prob(z.unsqueeze(-1))
            parts.append(z)
        return torch.stack(parts, -1)


# ----------------------------------------
# Affine transformed distributions: z = loc + root v.
#
# With v ~ N(0, I) it is a normal distribution of covariance root root'.  With another
# v it corrects such a normal in the coordinates in which that is standard.

_NARROW = 12  # number of latents up to which sums of products are faster


class AffineTransformed(Distribution):
    """The distribution of loc + root v, of event shape (latents,).

    `base`: of v: `Independent` of a `Normal`, or with ``at_uniform``. `root`
    (*batch, latents, latents): upper triangular.
    """

    arg_constraints: dict = {}
    support = constraints.real_vector

    def __init__(self, base: Distribution, loc: Tensor, root: Tensor) -> None:
        self.base, self.loc, self.root = base, loc, root
        self._last: tuple[Tensor, Tensor] | None = None  # a draw z and its v
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    @property
    def has_rsample(self) -> bool:
        """Whether draws carry gradients."""
        return self.base.has_rsample

    @property
    def log_weights(self) -> Tensor:
        """The log-weights of the components; (*batch, components)."""
        return self.base.log_weights

    def components(self) -> "AffineTransformed":
        """Return the components, of batch shape (*batch, components)."""
        parts = self.base.components()
        return AffineTransformed(parts, self.loc.unsqueeze(-2), self.root.unsqueeze(-3))

    def expand(
        self, batch_shape: torch.Size, _instance: None = None
    ) -> "AffineTransformed":
        """Return the distribution, repeated to a larger batch shape."""
        width = self.event_shape[0]
        return AffineTransformed(
            self.base.expand(batch_shape),
            self.loc.expand(*batch_shape, width),
            self.root.expand(*batch_shape, width, width),
        )

    @property
    def mean(self) -> Tensor:
        """Means; (*batch, latents)."""
        return self.loc + self._turned(self.base.mean)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log q(z); (*sample, *batch, latents) -> (*sample, *batch)."""
        log_det = self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return self.base.log_prob(self.source(value)) - log_det

    def source(self, value: Tensor) -> Tensor:
        """Return the v of z, (*sample, *batch, latents).

        That of the last draw is known. If loc and root have no gradient, all
        gradients of a draw pass through it.
        """
        if self._last is not None and value is self._last[0]:
            return self._last[1]
        apart, shared = value - self.loc, _shared(self.root)
        if shared is not None:
            columns = apart.reshape(-1, apart.shape[-1]).T
            v = torch.linalg.solve_triangular(shared, columns, upper=True)
            return v.T.reshape(apart.shape)
        n_sample = apart.dim() - self.loc.dim()  # its dimensions share one root
        sample = apart.shape[:n_sample]
        columns = apart.reshape(-1, *apart.shape[n_sample:]).movedim(0, -1)
        v = torch.linalg.solve_triangular(self.root, columns, upper=True)
        return v.movedim(-1, 0).reshape(*sample, *v.shape[:-1])

    def at_uniform(self, uniform: Tensor) -> Tensor:
        """Map uniform numbers (*sample, *batch, latents + 1) to draws."""
        v = draw(self.base, uniform)
        z = self.loc + self._turned(v)
        if not (self.loc.requires_grad or self.root.requires_grad):
            self._last = z, v
        return z

    def _turned(self, v: Tensor) -> Tensor:
        """Multiply by the root of each row, shared by the sample dimensions."""
        shared, batch = _shared(self.root), self.root.shape[:-1]
        if shared is not None:
            return v @ shared.T
        if batch[-1] <= _NARROW or not v.numel():
            return (self.root * v.unsqueeze(-2)).sum(-1)
        columns = v.reshape(-1, *batch).movedim(0, -2)
        return (columns @ self.root.mT).movedim(-2, 0).reshape(v.shape)


def _shared(root: Tensor) -> Tensor | None:
    """Return the matrix (k, k) that all rows share, if they were expanded from one."""
    batch = root.stride()[:-2]
    if not root.numel() or not batch or any(batch):
        return None
    return root[(0,) * len(batch)]


# ----------------------------------------
# The continuous Bernoulli distribution on [0, 1], by its logit.
#
#     p(u) = exp(eta u - A(eta)),   A(eta) = log int_0^1 exp(eta u) du               (1)
#
# An autoencoder with Bernoulli likelihoods of numbers between 0 and 1, such as grey
# levels, omits A and is therefore no density.
#
# Loaiza-Ganem and Cunningham (2019), The continuous Bernoulli: fixing a pervasive
# error in variational autoencoders.

# there the next terms of the series, and the cancellation without them, are about 1e-12
_SMALL = 1e-2  # below it series are more accurate
# sinh(eta / 2)^2 overflows if eta is above 709
_STEEPEST = 400.0  # bound of logits that `logit_of` finds


def log_prob(u: Tensor, eta: Tensor) -> Tensor:
    """Compute the log-density (1); numbers outside [0, 1] count as its nearest end."""
    return eta * u.clamp(0.0, 1.0) - log_partition(eta)


def log_partition(eta: Tensor) -> Tensor:
    """Compute A(eta) = eta / 2 + log(sinh(eta / 2) / (eta / 2))."""
    small = eta.abs() < _SMALL
    # 1 where the series is used, so that gradients of the other branch are finite
    size = eta.where(~small, torch.ones_like(eta)).abs()
    even = size / 2 + torch.log(-torch.expm1(-size)) - size.log()
    return eta / 2 + torch.where(small, eta.square() / 24, even)


def quantile(level: Tensor, eta: Tensor) -> Tensor:
    """Compute quantiles."""
    # the formula is 0 / 0 at 0; its exponential of a negative number does not overflow
    steep = -eta.abs().clamp(min=1e-6)
    mirrored = eta > 0
    below = torch.where(mirrored, 1 - level, level)
    u = torch.log1p(below * torch.expm1(steep)) / steep
    return torch.where(mirrored, 1 - u, u).clamp(0.0, 1.0)


def moments(eta: Tensor) -> tuple[Tensor, Tensor]:
    """Compute mean and variance, the first two derivatives of A."""
    small = eta.abs() < _SMALL
    # 1 where the series is used, so that gradients of the other branch are finite
    safe = eta.where(~small, torch.ones_like(eta))
    mean = -1 / torch.expm1(-safe) - 1 / safe
    variance = 1 / safe.square() - 1 / (4 * torch.sinh(safe / 2).square())
    mean = torch.where(small, 0.5 + eta / 12 - eta**3 / 720, mean)
    return mean, torch.where(small, 1 / 12 - eta.square() / 240, variance)


def logit_of(mean: Tensor) -> Tensor:
    """Return the logit of a mean between 0 and 1, by bisection."""
    low = torch.full_like(mean, -_STEEPEST)
    high = -low
    # halvings of 800 down to 7e-16
    for _ in range(60):
        middle = (low + high) / 2
        above = moments(middle)[0] > mean
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return (low + high) / 2


# ----------------------------------------
# Independent normal latents, with few operations for each log-density.


class DiagonalNormal(Independent):
    """``Independent(Normal(loc, scale), 1)``, which it equals."""

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        normal = Normal(loc, scale, validate_args=False)
        super().__init__(normal, 1, validate_args=False)

    def expand(
        self, batch_shape: torch.Size, _instance: None = None
    ) -> "DiagonalNormal":
        """Return the distribution, repeated to a larger batch shape."""
        shape = (*batch_shape, *self.event_shape)
        return DiagonalNormal(
            self.base_dist.loc.expand(shape), self.base_dist.scale.expand(shape)
        )

    def at_uniform(self, uniform: Tensor) -> Tensor:
        """Map uniform numbers (*sample, *batch, latents + 1) to draws."""
        standard = torch.special.ndtri(inside(uniform[..., :-1]))
        return self.base_dist.loc + self.base_dist.scale * standard

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log-densities; (*sample, *batch, latents) -> (*sample, *batch)."""
        loc, scale = self.base_dist.loc, self.base_dist.scale
        square = ((value - loc) / scale).square().sum(-1)
        constant = loc.shape[-1] * log(2 * pi) / 2
        return square / -2 - (scale.log().sum(-1) + constant)


# ----------------------------------------
# Univariate mixtures of normals with quantiles that are differentiable.
#
# The quantile at u solves F(x) = u, by bisection; its gradient is the implicit one,
# see `skvnce._core.random`.

_HALVINGS = {torch.float32: 26, torch.float64: 52}  # to full precision
# the probability beyond is 2e-33, below all uniform numbers
_REACH = 12.0  # standard deviations beyond the outermost components


class UnivariateMixture(Distribution):
    """A mixture of normals of one variable; parameters (*batch, components)."""

    arg_constraints = {
        "logits": constraints.real_vector,
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, logits: Tensor, loc: Tensor, scale: Tensor) -> None:
        self.logits, self.loc, self.scale = logits, loc, scale
        super().__init__(loc.shape[:-1], validate_args=False)

    def _parts(self) -> Normal:
        return Normal(self.loc, self.scale, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log q(x); (*sample, *batch)."""
        inside = self._parts().log_prob(value.unsqueeze(-1))
        return torch.logsumexp(self.logits.log_softmax(-1) + inside, -1)

    def cdf(self, value: Tensor) -> Tensor:
        """Compute P(x <= value); (*sample, *batch)."""
        below = self._parts().cdf(value.unsqueeze(-1))
        return (self.logits.softmax(-1) * below).sum(-1)

    @property
    def mean(self) -> Tensor:
        """The mean; (*batch,)."""
        return (self.logits.softmax(-1) * self.loc).sum(-1)

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles at probabilities in (0, 1); (*sample, *batch)."""
        with torch.no_grad():
            shape = torch.broadcast_shapes(value.shape, self.batch_shape)
            low = (self.loc - _REACH * self.scale).amin(-1).expand(shape)
            high = (self.loc + _REACH * self.scale).amax(-1).expand(shape)
            for _ in range(_HALVINGS[value.dtype]):
                middle = (low + high) / 2
                below = self.cdf(middle) < value
                low, high = middle.where(below, low), high.where(below, middle)
            quantiles = (low + high) / 2
        return with_gradient(quantiles, self)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draw (*sample, *batch)."""
        least = torch.finfo(self.loc.dtype).eps
        shape = self._extended_shape(sample_shape)
        # the quantiles of 0 and 1 are infinite
        return self.icdf(uniform_numbers(shape, self.loc).clamp(least, 1 - least))
