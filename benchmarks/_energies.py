"""Energies of a few variables, with latents that can be enumerated."""

from math import log

import torch
from torch import Tensor, nn

from skvnce.contrast.posteriors import ExactStates, SequentialPosterior


def exact_posterior(model):
    """Return the posterior of the latents of complete rows."""
    return SequentialPosterior([ExactStates(model)], 1)


# ----------------------------------------
# A mixture of two Gaussian functions around zero with different widths, one of them
# known: the simplest model with a latent variable, all of whose quantities can be
# enumerated or integrated.
#
# Rhodes (2018), eqs. (4.51)-(4.54), with the sign of eq. (4.54) corrected: the
# exponent contains the *difference* of the inverse variances.


class UnnormalisedScaleMixture(nn.Module):
    """Two Gaussian functions of equal height, unnormalised (eq. 4.51).

    z = 0 is the component of unknown width, z = 1 that of known width.  Their sum
    integrates to one if c = log(2 pi) / 2 + log(theta + sigma_1).
    """

    def __init__(
        self,
        width: Tensor,  # (): standard deviation theta of the component z = 0
        known_width: float = 1.0,  # sigma_1, that of the component z = 1
        log_scale: Tensor | None = None,  # (): the scale parameter c
    ) -> None:
        super().__init__()
        self.log_width = nn.Parameter(width.log())
        self.known_width = known_width
        self.register_buffer("states", width.new_tensor([[0.0], [1.0]]))
        c = width.new_zeros(()) if log_scale is None else log_scale
        self.log_scale = nn.Parameter(c)

    def log_factor(self, log_width: Tensor) -> Tensor:
        """Return the logarithm of the factor before a component's exponential: -c."""
        return -self.log_scale

    def log_density(self, x: Tensor, z: Tensor) -> Tensor:
        """Compute log phi(x, z); (*batch, 1), (*batch, 1) -> (*batch,)."""
        log_known = self.log_width.new_tensor(log(self.known_width))
        log_width = torch.where(z == 0, self.log_width, log_known).squeeze(-1)
        exponent = -(x.squeeze(-1) * (-log_width).exp()).square() / 2
        return exponent + self.log_factor(log_width)
