"""Interfaces of models, and lower bounds of log p(x_obs) of models with latents."""

from copy import copy
from math import log
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce._core.posteriors import Uniforms, draw_latents

# ----------------------------------------
# Interfaces of models, and the masked sum of log-densities that all models share.


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
    """A normalised density of latents, and of columns independent given them."""

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

    Missing features, whose values may be NaN, contribute nothing, unless `dist` has
    ``log_inside``, log-probabilities of their bounds. Its method ``sum_observed(x,
    observed)``, if there is one, computes the sum itself.
    """
    if hasattr(dist, "sum_observed"):
        return dist.sum_observed(x, observed)
    # under the mask there may be NaN, and 1 is in the support of most distributions
    inside = dist.log_prob(x.where(observed, x.new_ones(())))
    outside = getattr(dist, "log_inside", x.new_zeros(()))
    return inside.where(observed, outside).sum(-1)


def log_joint_of_states(model: EnumerableModel, x: Tensor) -> Tensor:
    """Compute log phi(x, z) at all states z; (*batch, features) -> (n_states, *batch).

    Its `logsumexp` is log phi(x), and its `log_softmax` the exact posterior.
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


# ----------------------------------------
# Lower bounds of log p(x_obs) of a model with latents, from log-weights of draws.
#
#     log w(z) = sum_{j observed} log p(x_j | z) + log p(z) - log q(z | x_obs)       (1)
#
#     ELBO    = E_q log w(z)                                                         (2)
#     SELBO   = sum_k pi_k E_{q_k} log w(z)                                          (3)
#     IWELBO  = E log (1/I) sum_j w(z_j)                                             (4)
#     SIWELBO = E log sum_k pi_k (1/I) sum_j w(z_j^k)                                (5)
#
# In the stratified bounds each component q_k of q = sum_k pi_k q_k has its own draws; q
# in eq. (1) is always the whole mixture.
#
# Simkus and Gutmann (2024), Improving variational autoencoder estimation from
# incomplete data with mixture variational families, eqs. (4)-(8), here (2), (3), (1),
# (4), (5); Burda, Grosse and Salakhutdinov (2016); Mattei and Frellsen (2019).


def elbo(log_weight: Tensor) -> Tensor:
    """Average over draws of q, eq. (2); (n_draws, *rows) -> (*rows,)."""
    return log_weight.mean(0)


def iwelbo(log_weight: Tensor) -> Tensor:
    """Compute the importance-weighted bound, eq. (4); (n_draws, *rows) -> (*rows,)."""
    return torch.logsumexp(log_weight, 0) - log(len(log_weight))


def standard_error(log_weight: Tensor) -> Tensor:
    """Estimate the error of eq. (4) from the variance of weights; infinite for one.

    It is the relative error of the mean of the weights.
    """
    n_draws = len(log_weight)
    if n_draws == 1:
        return torch.full_like(log_weight[0], torch.inf)
    # over their mean, so that no weight overflows
    relative = (log_weight - iwelbo(log_weight)).exp()
    return relative.std(0) / n_draws**0.5


def stratified_elbo(log_pi: Tensor, log_weight: Tensor) -> Tensor:  # (*rows,)
    """Average over draws of each component, eq. (3); (components, n_draws, *rows)."""
    return (log_pi.exp() * log_weight.mean(1)).sum(0)


def stratified_iwelbo(log_pi: Tensor, log_weight: Tensor) -> Tensor:
    """Compute the stratified importance-weighted bound, eq. (5)."""
    weighted = log_pi.unsqueeze(1) + log_weight
    return torch.logsumexp(weighted, (0, 1)) - log(log_weight.shape[1])


def log_joint(
    model: LatentVariableModel, x: Tensor, observed: Tensor, z: Tensor
) -> Tensor:
    """Compute log p(x_obs, z); z (*sample, *rows, latents) -> (*sample, *rows)."""
    seen = observed_log_prob(model.likelihood(z), x, observed)
    return seen + model.prior().log_prob(z)


def drawn(q: Distribution, uniforms: Uniforms, n_draws: int, like: Tensor) -> Tensor:
    """Draw latents by `draw_latents`; raise TypeError if the draws have no gradient."""
    if not q.has_rsample:
        raise TypeError(
            f"The posterior returns {q}, whose draws have no gradient. "
            "Use normal latents (IndependentNormalEncoder, MixtureEncoder)."
        )
    return draw_latents(q, uniforms, n_draws, like)


def drawn_elbo(
    model: LatentVariableModel,
    q: Distribution,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int,
) -> Tensor:
    """Estimate eq. (2) by draws of q, with the gradient of `frozen`; (*rows,)."""
    z = drawn(q, uniforms, n_draws, x)
    return elbo(log_joint(model, x, observed, z) - frozen(q).log_prob(z))


def frozen(q: Distribution) -> Distribution:
    """Return a distribution whose parameters have no gradient.

    With log q of it in eq. (1), only the draws have a gradient ("sticking the
    landing"). The omitted part has mean zero in eqs. (2) and (3), and large noise
    near the optimum; in eqs. (4) and (5) its mean is not zero.

    Roeder, Wu and Duvenaud (2017), Sticking the landing, section 3.
    """
    twin = copy(q)
    for name, value in vars(q).items():
        if isinstance(value, Tensor):
            vars(twin)[name] = value.detach()
        elif isinstance(value, Distribution):
            vars(twin)[name] = frozen(value)
    return twin
