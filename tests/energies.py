"""Small models that tests pass to estimators; importable, so that pickles load."""

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus


class Bell(nn.Module):
    """``exp(-(x - m)' (D + w w') (x - m) / 2)``: a Gaussian that does not say so."""

    def __init__(self, n_features):
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(n_features))
        self.log_diagonal = nn.Parameter(torch.zeros(n_features))
        self.link = nn.Parameter(torch.full((n_features,), 0.1))

    def log_density(self, x):
        residual = x - self.centre
        square = (residual.square() * self.log_diagonal.exp()).sum(1)
        return -(square + (residual @ self.link).square()) / 2


class Factor(nn.Module):
    """Factor analysis with one latent, without its normaliser."""

    n_components = 1

    def __init__(self, n_features):
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(n_features))
        # small: at 0.5 some fits end where the sign of one loading is wrong
        self.loadings = nn.Parameter(torch.full((n_features,), 0.1))
        self.log_noise = nn.Parameter(torch.zeros(n_features))

    def log_density(self, x, z):
        residual = x - self.centre - z * self.loadings
        square = (residual.square() * (-self.log_noise).exp()).sum(1)
        return -(square + z.square().sum(1)) / 2


class Blob(nn.Module):
    """Two normals with independent columns: a density that is normalised."""

    def __init__(self, n_features):
        super().__init__()
        self.centres = nn.Parameter(
            torch.linspace(-1, 1, 2)[:, None].repeat(1, n_features)
        )
        self.log_scales = nn.Parameter(torch.zeros(2, n_features))
        self.logits = nn.Parameter(torch.zeros(2))

    def log_prob(self, x):
        parts = torch.distributions.Normal(self.centres, self.log_scales.exp())
        inside = parts.log_prob(x[:, None]).sum(-1)
        return torch.logsumexp(self.logits.log_softmax(0) + inside, -1)


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
