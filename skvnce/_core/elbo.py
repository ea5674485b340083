"""Lower bounds of log p(x_obs) of a model with latents, from log-weights of draws.

    log w(z) = sum_{j observed} log p(x_j | z) + log p(z) - log q(z | x_obs)       (1)

    ELBO    = E_q log w(z)                                                         (2)
    SELBO   = sum_k pi_k E_{q_k} log w(z)                                          (3)
    IWELBO  = E log (1/I) sum_j w(z_j)                                             (4)
    SIWELBO = E log sum_k pi_k (1/I) sum_j w(z_j^k)                                (5)

In the stratified bounds each component q_k of q = sum_k pi_k q_k has its own draws; q
in eq. (1) is always the whole mixture.

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families, eqs. (4)-(8), here (2), (3), (1), (4), (5);
Burda, Grosse and Salakhutdinov (2016); Mattei and Frellsen (2019).
"""

from copy import copy
from math import log

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce._core.models import LatentVariableModel, Objective, observed_log_prob
from skvnce._core.posteriors import Uniforms, draw_latents


def elbo(log_weight: Tensor) -> Tensor:
    """Average over draws of q, eq. (2); (n_draws, *rows) -> (*rows,)."""
    return log_weight.mean(0)


def iwelbo(log_weight: Tensor) -> Tensor:
    """Compute the importance-weighted bound, eq. (4); (n_draws, *rows) -> (*rows,)."""
    return torch.logsumexp(log_weight, 0) - log(len(log_weight))


def standard_error(log_weight: Tensor) -> Tensor:
    """Estimate the error of eq. (4) from the variance of weights; infinite for one.

    The error of the logarithm of a mean of weights is the relative error of the mean.
    """
    n_draws = len(log_weight)
    if n_draws == 1:
        return torch.full_like(log_weight[0], torch.inf)
    # over their mean, so that no weight overflows
    relative = (log_weight - iwelbo(log_weight)).exp()
    return relative.std(0) / n_draws**0.5


def stratified_elbo(log_pi: Tensor, log_weight: Tensor) -> Tensor:  # (*rows,)
    """Average over draws of each component, eq. (3).

    `log_weight` (components, n_draws, *rows).  `log_pi` (components, *rows):
    normalised.
    """
    return (log_pi.exp() * log_weight.mean(1)).sum(0)


def stratified_iwelbo(log_pi: Tensor, log_weight: Tensor) -> Tensor:
    """Compute the stratified importance-weighted bound, eq. (5).

    Parameters and returned values are those of `stratified_elbo`.
    """
    weighted = log_pi.unsqueeze(1) + log_weight
    return torch.logsumexp(weighted, (0, 1)) - log(log_weight.shape[1])


def log_joint(
    model: LatentVariableModel, x: Tensor, observed: Tensor, z: Tensor
) -> Tensor:
    """Compute log p(x_obs, z); z (*sample, *rows, latents) -> (*sample, *rows)."""
    seen = observed_log_prob(model.likelihood(z), x, observed)
    return seen + model.prior().log_prob(z)


def drawn(q: Distribution, uniforms: Uniforms, n_draws: int, like: Tensor) -> Tensor:
    """Draw latents by `draw_latents`, and check that the draws have a gradient.

    Raises TypeError if they have none: the posterior would not be trained.
    """
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
    landing").  The omitted part has mean zero in eqs. (2) and (3), and large noise near
    the optimum; in eqs. (4) and (5) its mean is not zero.  The function finds
    parameters in attributes of the distribution and of its parts.

    Roeder, Wu and Duvenaud (2017), Sticking the landing, section 3.
    """
    twin = copy(q)
    for name, value in vars(q).items():
        if isinstance(value, Tensor):
            vars(twin)[name] = value.detach()
        elif isinstance(value, Distribution):
            vars(twin)[name] = frozen(value)
    return twin


def negative_mean(bound: Tensor) -> Objective:
    """Convert bounds (*rows,) to a loss."""
    return Objective(-bound.mean(), {"bound": bound.mean().detach()})
