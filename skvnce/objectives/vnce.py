"""Variational noise-contrastive estimation: a lower bound of the NCE objective.

With G(u, z) = log phi(u, z) - log q(z | u) - log p_y(u), where z stands for all that a
row hides (latent variables, missing cells or both),

    J_VNCE = E_x E_q log h(x, z) + nu E_y log(1 - h(y))                            (1)
    h(x, z) = 1 / (1 + nu exp(-G(x, z)))                                           (2)
    h(y) = 1 / (1 + nu / E_q exp(G(y, z)))                                         (3)

Draws of q stand outside the logarithm in the first term (Jensen's bound) and inside it
in the second, where they estimate phi(y) by importance sampling.  The second term does
not depend on q but for that estimate, so q learns from the first term only.  With few
draws the estimate of the second term is too high on average: the bound on J_NCE holds
for exact means.

    J_NCE - J_VNCE = E_x D(x)                                                      (4)
    D = E_q log(kappa + (1 - kappa) q / p)                                         (5)
      = KL(q || p) - KL(q || kappa p + (1 - kappa) q)                              (6)

with p the posterior of the model and kappa = phi(x) / (phi(x) + nu p_y(x)).

References
----------
Rhodes and Gutmann (2019), eqs. (13), (15)-(17); Rhodes (2018), eqs. (4.11) and
(4.20)-(4.22).
"""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce.models.base import LatentModel, UnnormalisedModel
from skvnce.objectives.base import Objective
from skvnce.objectives.nce import accuracy, log_is_data, log_is_noise
from skvnce.variational.base import Draws, Posterior


class Rows(NamedTuple):
    """Rows of data or of noise.

    Attributes
    ----------
    x : Tensor of shape (n, features)
        Values under the mask may be anything.
    observed : Tensor of bool, of shape (n, features)
    log_noise : Tensor of shape (n,)
        log p_y of the observed cells.
    """

    x: Tensor
    observed: Tensor
    log_noise: Tensor


def log_marginal(log_ratio: Tensor, log_weight: Tensor | None = None) -> Tensor:
    """Compute log E_q exp(G), which estimates log phi(u) - log p_y(u), of each row.

    Parameters
    ----------
    log_ratio : Tensor of shape (n_draws, n)
        G(u, z) at draws z of q(. | u).
    log_weight : Tensor of shape (n_draws, n), optional
        By default all draws of a row weigh the same.

    Returns
    -------
    Tensor of shape (n,)
    """
    log_weight = _weights(log_ratio, log_weight)
    inside = _counted(log_ratio, log_weight) + log_weight
    return torch.logsumexp(inside, 0)


def data_term(
    log_ratio: Tensor, noise_ratio: float, log_weight: Tensor | None = None
) -> Tensor:
    """Compute E_q log h(x, z), the first term of eq. (1), of each row.

    Parameters
    ----------
    log_ratio, log_weight : Tensor of shape (n_draws, n)
        As in `log_marginal`.
    noise_ratio : float
        nu.

    Returns
    -------
    Tensor of shape (n,)
    """
    log_weight = _weights(log_ratio, log_weight)
    inside = log_is_data(_counted(log_ratio, log_weight), noise_ratio)
    return (log_weight.exp() * inside).sum(0)


def divergence(
    log_q_over_p: Tensor,
    log_ratio: Tensor,
    noise_ratio: float,
    log_weight: Tensor | None = None,
) -> Tensor:
    """Compute the f-divergence of Lemma 1, eq. (5), of each row.

    Zero where q is the posterior of the model.  It grows with nu, to KL(q || p).

    Parameters
    ----------
    log_q_over_p : Tensor of shape (n_draws, n)
        log q(z | x) - log p(z | x) at draws z of q.
    log_ratio : Tensor of shape (n,)
        log phi(x) - log p_y(x).
    noise_ratio : float
        nu.
    log_weight : Tensor of shape (n_draws, n), optional
        As in `log_marginal`.

    Returns
    -------
    Tensor of shape (n,)
    """
    log_weight = _weights(log_q_over_p, log_weight)
    log_kappa = log_is_data(log_ratio, noise_ratio)
    log_rest = log_is_noise(log_ratio, noise_ratio)
    inside = log_rest + _counted(log_q_over_p, log_weight)
    return (log_weight.exp() * torch.logaddexp(log_kappa, inside)).sum(0)


def _weights(values: Tensor, log_weight: Tensor | None) -> Tensor:
    """Return the weights, by default the same for all draws."""
    if log_weight is None:
        return torch.full_like(values, -log(len(values)))
    return log_weight


def _counted(values: Tensor, log_weight: Tensor) -> Tensor:
    """Replace the values of draws of weight zero, which may be infinite or NaN."""
    return values.where(log_weight > -torch.inf, 0.0)


def vnce(
    data: Tensor,
    noise: Tensor,
    noise_ratio: float,
    *,
    data_weight: Tensor | None = None,
    noise_weight: Tensor | None = None,
) -> Objective:
    """Compute minus the VNCE objective, eq. (1), from log-ratios.

    Parameters
    ----------
    data : Tensor of shape (n_draws, n)
        G(x, z) at draws z from q(. | x).  Where nothing is hidden (or q is exact) the
        draws are equal and the objective is that of NCE.
    noise : Tensor of shape (n_draws, n_noise)
        The same at the noise.  The posterior q learns from the first term only: pass
        draws and log q without gradient here, or use `variational_objective`.
    noise_ratio : float
        nu, as in `nce`.
    data_weight, noise_weight : Tensor of the shape of `data` and `noise`, optional
        Logarithms of weights that sum to 1 over the draws; by default all are equal.
    """
    first = data_term(data, noise_ratio, data_weight).mean()
    marginal = log_marginal(noise, noise_weight)
    second = noise_ratio * log_is_noise(marginal, noise_ratio).mean()
    with torch.no_grad():
        right = accuracy(log_marginal(data, data_weight), marginal, noise_ratio)
    return Objective(-first - second, {"data_term": -first.detach(), "accuracy": right})


def log_ratio(
    model: UnnormalisedModel | LatentModel, draws: Draws, log_noise: Tensor
) -> Tensor:
    """Compute G(u, z) of each draw; (n_draws, n).

    Parameters
    ----------
    model : UnnormalisedModel or LatentModel
    draws : Draws
        Its values are the arguments of the model's `log_density`.
    log_noise : Tensor of shape (n,)
        log p_y of the observed cells.
    """
    return model.log_density(*draws.values) - draws.log_prob - log_noise


def drawn_objective(
    model: UnnormalisedModel | LatentModel,
    draws: tuple[Draws, Draws],
    data: Rows,
    noise: Rows,
    noise_ratio: float,
) -> Objective:
    """Compute minus the VNCE objective of a model at given draws of data and noise.

    Parameters
    ----------
    model : UnnormalisedModel or LatentModel
    draws : tuple of two Draws
        Of the rows of data and of those of noise.
    data, noise : Rows
    noise_ratio : float
        nu.
    """
    first, second = draws
    return vnce(
        log_ratio(model, first, data.log_noise),
        log_ratio(model, second, noise.log_noise),
        noise_ratio,
        data_weight=first.log_weight,
        noise_weight=second.log_weight,
    )


def variational_objective(
    model: UnnormalisedModel | LatentModel,
    posterior: Posterior,
    data: Rows,
    noise: Rows,
    noise_ratio: float,
) -> Objective:
    """Compute minus the VNCE objective of a model and a posterior.

    The posterior has no gradient from the second term.

    Parameters
    ----------
    model : UnnormalisedModel or LatentModel
    posterior : Posterior
    data, noise : Rows
        Rows of the noise have the missing cells of a data row each.
    noise_ratio : float
        nu.
    """
    drawn = posterior(data.x, data.observed)
    with torch.no_grad():
        elsewhere = posterior(noise.x, noise.observed)
    return drawn_objective(model, (drawn, elsewhere), data, noise, noise_ratio)
