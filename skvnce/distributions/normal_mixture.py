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

from typing import Self

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal, constraints

from skvnce.distributions.portable import uniform_numbers
from skvnce.distributions.quantiles import at_quantiles


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
        """Compute log q(z), eq. (1); (*sample, *batch, latents) -> (*sample, *batch).

        All components contribute, whichever the value was drawn from.
        """
        inside = self.components().log_prob(value.unsqueeze(-2))
        return torch.logsumexp(self.log_weights + inside, -1)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draw (*sample, *batch, latents), with the gradient of `at_uniform`."""
        shape = *sample_shape, *self.batch_shape, *self.event_shape
        wide = *shape[:-1], shape[-1] + 1
        return self.at_uniform(uniform_numbers(wide, self.loc))

    def at_uniform(self, uniform: Tensor) -> Tensor:  # (*sample, *batch, latents)
        """Map uniform numbers to draws with the implicit gradient, first order only.

        Second derivatives are not available.

        `uniform` (*sample, *batch, latents + 1): quantiles in the component that the
        last number selects.
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
