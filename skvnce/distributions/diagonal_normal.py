"""Independent normal latents, with few operations for each log-density."""

from math import log, pi

import torch
from torch import Tensor
from torch.distributions import Independent, Normal

from skvnce.distributions.quantiles import inside


class DiagonalNormal(Independent):
    """``Independent(Normal(loc, scale), 1)``, which it equals.

    `loc`, `scale` (*batch, latents).
    """

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
