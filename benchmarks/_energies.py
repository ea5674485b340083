"""Energies of a few variables, with latents that can be enumerated."""

from abc import ABC, abstractmethod
from math import log, pi

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from skvnce.contrast.posteriors import ExactStates, SequentialPosterior


def exact_posterior(model):
    """Return the posterior of the latents of complete rows."""
    return SequentialPosterior([ExactStates(model)], 1)


class Ring(nn.Module):
    """Distance from the origin nearly constant."""

    def __init__(self, n_features):
        super().__init__()
        self.radius = nn.Parameter(torch.tensor(1.5))
        self.log_spread = nn.Parameter(torch.tensor(0.0))

    def log_density(self, x):
        """Compute the log-density up to a constant."""
        apart = x.norm(dim=1) - self.radius
        return -(apart * (-self.log_spread).exp()).square() / 2


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


# ----------------------------------------
# Restricted Boltzmann machines with few hidden units, for missing visible units.
#
# For x and z in {0, 1}, with weights W, visible biases b and hidden biases c
# (Smolensky 1986; Hinton 2002),
#
#   log phi(x, z) = x'W z + b'x + c'z                        (3)
#   log phi(x)  = b'x + sum_k log(1 + exp(c_k + w_k'x)),  w_k column k of W     (4)
#   p(z_k = 1 | x) = 1 / (1 + exp(-c_k - w_k'x))                   (5)
#
# If some visible units are missing, they are summed out in closed form at each of the
# 2**latents states of z.  With o the observed units of a row and v_j row j of W,
#
#     log phi(x_o) = log sum_z exp(c'z + sum_o x_j (b_j + v_j'z)
#                                  + sum_not_o log(1 + exp(b_j + v_j'z)))            (6)
#
# The same sum with nothing observed is log Z.
#
# Smolensky (1986), Information processing in dynamical systems: foundations of
# harmony theory.  Hinton (2002), Training products of experts by minimizing
# contrastive divergence.


_MOST_UNITS = 12  # maximum number of units that are enumerated: 4096 states


class RestrictedBoltzmann(nn.Module):
    """A restricted Boltzmann machine, up to its constant.

    `n_features`, `n_components`: number of visible and of hidden units.  `weight`
    (features, latents): W, drawn from N(0, 0.01^2) by torch's stream.  `visible_bias`
    (features,): b, initially zero.  `hidden_bias` (latents,): c, initially zero.
    """

    def __init__(self, n_features: int, n_components: int = 8) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.01 * torch.randn(n_features, n_components))
        self.visible_bias = nn.Parameter(torch.zeros(n_features))
        self.hidden_bias = nn.Parameter(torch.zeros(n_components))

    @property
    def states(self) -> Tensor:
        """All z, of shape (2**latents, latents), in the dtype of the parameters.

        Raises ValueError if there are more than 12 latents.
        """
        return _binary_states(self.hidden_bias, "n_components")

    def log_density(self, x: Tensor, z: Tensor) -> Tensor:  # (*batch,)
        """Compute log phi(x, z) by eq. (3).

        `x` (*batch, features), `z` (*batch, latents).
        """
        linear = x @ self.visible_bias + z @ self.hidden_bias
        return (x @ self.weight * z).sum(-1) + linear

    def log_marginal(self, x: Tensor, observed: Tensor) -> Tensor:  # (*batch, n)
        """Compute log phi of the observed cells, by eq. (4) if all are, else eq. (6).

        `observed` (bool (n, features)).  `x` (*batch, n, features): values under the
        mask may be anything, NaN included.  Raises ValueError if cells are missing and
        there are more than 12 latents.
        """
        if observed.all():
            return x @ self.visible_bias + softplus(self._hidden_field(x)).sum(-1)
        inside = x.where(observed, x.new_zeros(()))
        states = self.states
        field = self.visible_bias + states @ self.weight.T  # (n_states, features)
        missing = (~observed).to(field) @ softplus(field).T  # (n, n_states)
        exponent = inside @ field.T + (missing + states @ self.hidden_bias)
        return torch.logsumexp(exponent, -1)

    def log_normaliser(self) -> Tensor:
        """Compute log Z exactly, by enumeration of the side with fewer units.

        Raises ValueError if both sides have more than 12 units.
        """
        n_features, n_components = self.weight.shape
        if n_features < n_components:
            x = _binary_states(self.visible_bias, "n_features")
            return torch.logsumexp(self.log_marginal(x, torch.ones_like(x).bool()), 0)
        nothing = self.weight.new_zeros(1, n_features)
        return self.log_marginal(nothing, nothing.bool()).squeeze(0)

    def latent_probability(self, x: Tensor) -> Tensor:
        """Compute p(z_k = 1 | x) by eq. (5); (*batch, features) -> (*batch, latents).

        It factorises over k, as eq. (3) is linear in each unit.
        """
        return torch.sigmoid(self._hidden_field(x))

    def _hidden_field(self, x: Tensor) -> Tensor:
        return self.hidden_bias + x @ self.weight


def _binary_states(bias: Tensor, name: str) -> Tensor:
    """List all states of binary units; bias (units,) -> (2**units, units)."""
    units = len(bias)
    if units > _MOST_UNITS:
        raise ValueError(
            f"Expected {name} of at most {_MOST_UNITS} to enumerate all states, got "
            f"{name}={units}. Choose fewer units."
        )
    shift = torch.arange(units, device=bias.device)
    number = torch.arange(2**units, device=bias.device)
    return (number[:, None] >> shift & 1).to(bias)
