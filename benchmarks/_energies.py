"""Energies of a few variables, with latents that can be enumerated."""

from abc import ABC, abstractmethod
from math import log, pi

import torch
from torch import Tensor, nn

from skvnce.contrast.posteriors import ExactStates, SequentialPosterior


def exact_posterior(model):
    """Return the posterior of the latents of complete rows."""
    return SequentialPosterior([ExactStates(model)], 1)


# ----------------------------------------
# Mixtures of two normals around zero with different widths, one of them known.
#
# They are the simplest models with a latent variable: all quantities can be
# enumerated or integrated.
#
# Rhodes (2018), eqs. (4.48)-(4.54), with the sign of eq. (4.54) corrected: the
# exponent contains the *difference* of the inverse variances.


class _ScaleMixture(nn.Module, ABC):
    """A mixture; z = 0 is the component of unknown width, z = 1 that of known width."""

    def __init__(self, width: Tensor, known_width: float = 1.0) -> None:
        super().__init__()
        self.log_width = nn.Parameter(width.log())
        self.known_width = known_width
        self.register_buffer("states", width.new_tensor([[0.0], [1.0]]))

    @abstractmethod
    def log_factor(self, log_width: Tensor) -> Tensor:
        """Compute the logarithm of the factor before a component's exponential."""

    def log_density(self, x: Tensor, z: Tensor) -> Tensor:
        """Compute log phi(x, z); (*batch, 1), (*batch, 1) -> (*batch,)."""
        log_known = self.log_width.new_tensor(log(self.known_width))
        log_width = torch.where(z == 0, self.log_width, log_known).squeeze(-1)
        exponent = -(x.squeeze(-1) * (-log_width).exp()).square() / 2
        return exponent + self.log_factor(log_width)


class NormalScaleMixture(_ScaleMixture):
    """Two normals in equal parts, normalised (eq. 4.48).

    `width` (): standard deviation theta of the component z = 0.  `known_width`:
    sigma_1, that of the component z = 1.
    """

    def log_factor(self, log_width: Tensor) -> Tensor:
        """Compute the logarithm of the constant of a normal, halved."""
        return -log_width - log(2 * pi) / 2 - log(2)


class UnnormalisedScaleMixture(_ScaleMixture):
    """Two Gaussian functions of equal height, unnormalised (eq. 4.51).

    Their sum integrates to one if c = log(2 pi) / 2 + log(theta + sigma_1).
    """

    def __init__(
        self,
        width: Tensor,  # as in `NormalScaleMixture`
        known_width: float = 1.0,
        log_scale: Tensor | None = None,  # (): the scale parameter c
    ) -> None:
        super().__init__(width, known_width)
        c = width.new_zeros(()) if log_scale is None else log_scale
        self.log_scale = nn.Parameter(c)

    def log_factor(self, log_width: Tensor) -> Tensor:
        """Return -c, the same of both components."""
        return -self.log_scale
