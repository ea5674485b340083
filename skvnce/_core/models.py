"""Interfaces of models, and the masked sum of log-densities that all models share."""

from typing import NamedTuple, Protocol

from torch import Tensor
from torch.distributions import Distribution


class Density(Protocol):
    """A normalised density of complete rows, which need not factorise."""

    def log_prob(self, x: Tensor) -> Tensor:  # (*batch, features) -> (*batch,)
        """Compute log p(x)."""
        ...


class Flow(Density, Protocol):
    """A density of x = T(u), with T invertible and u standard normal."""

    def to_base(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map x (*batch, features) to u; with log|det du/dx|, (*batch,)."""
        ...

    def from_base(self, u: Tensor) -> Tensor:
        """Map u (*batch, features) to x."""
        ...


class LatentModel(Protocol):
    """A density of a row and its latent variables, up to a constant."""

    # (*batch, features), (*batch, latents) -> (*batch,)
    def log_density(self, x: Tensor, z: Tensor) -> Tensor:
        """Compute log phi(x, z)."""
        ...


class LatentVariableModel(Protocol):
    """A normalised density of latents, and of columns that are independent given them.

    Missing columns are left out of the likelihood by a masked sum,
    `observed_log_prob`.
    """

    def prior(self) -> Distribution:
        """Return p(z), of event shape (latents,)."""
        ...

    def likelihood(self, z: Tensor) -> Distribution:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        ...


class EnumerableModel(LatentModel, Protocol):
    """A model whose latent variables have few states."""

    states: Tensor  # (n_states, latents)


class UnivariateConditionals(Protocol):
    """A model whose univariate conditionals are known."""

    def conditional(self, x: Tensor, feature: int) -> Distribution:
        """Return p(x_j | all other columns of x), with batch shape (*batch,)."""
        ...

    def conditionals(self, x: Tensor) -> Distribution:
        """Return p(x_j | x_-j) of all j, with batch shape (*batch, features)."""
        ...


def observed_log_prob(dist: Distribution, x: Tensor, observed: Tensor) -> Tensor:
    """Sum the log-density of independent features over the observed ones.

    Missing features contribute nothing, unless they are known to lie within bounds.

    `observed` (bool (*batch, features)).  `dist` (batch shape (features,) or (*batch,
    features)): may have ``log_inside``, log-probabilities of the bounds of missing
    features, or the method ``sum_observed(x, observed)``, which computes the sum
    itself.  `x` (*batch, features): values under the mask may be anything, NaN
    included.  Returns (*batch,).
    """
    if hasattr(dist, "sum_observed"):
        return dist.sum_observed(x, observed)
    # under the mask there may be NaN, and 1 is in the support of most distributions
    inside = dist.log_prob(x.where(observed, x.new_ones(())))
    outside = getattr(dist, "log_inside", x.new_zeros(()))
    return inside.where(observed, outside).sum(-1)


def log_joint(model: EnumerableModel, x: Tensor) -> Tensor:
    """Compute log phi(x, z) at all states z; (*batch, features) -> (n_states, *batch).

    Its `torch.logsumexp` over the states is log phi(x), and its `torch.log_softmax` the
    exact posterior.
    """
    states = model.states
    z = states.view(len(states), *[1] * (x.dim() - 1), -1)
    return model.log_density(
        x.expand(len(states), *x.shape), z.expand(len(states), *x.shape[:-1], -1)
    )


# ----------------------------------------
# The result type of objectives.


class Objective(NamedTuple):
    """A scalar to minimise, and detached numbers for the history."""

    loss: Tensor
    metrics: dict[str, Tensor]
