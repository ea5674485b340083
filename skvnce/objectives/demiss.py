"""DeMissVAE: one objective for the model, another for the posterior of completed rows.

With imputations x_mis^k of a row, k = 1..K, and z^k a draw of q(z | x_obs, x_mis^k),

    L_theta = mean_k log p(x_obs, z^k)                                             (1)
    L_phi = mean_k [log p(x_obs, x_mis^k, z^k) - log q(z^k | x_obs, x_mis^k)]      (2)

The model does not learn from imputations, and the posterior is only used for complete
rows, for which it often has a single mode.

Two controls train both by one objective.  CVI-VAE maximises eq. (1) with the entropy of
the posterior averaged over the imputations, a bound of log p(x_obs),

    mean_k [log p(x_obs, z^k) - log (1/K) sum_l q(z^k | x_obs, x_mis^l)]           (3)

and MVB-VAE maximises eq. (2), the ELBO of completed rows.

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families, eqs. (10) and (12), here (1), (3) and (2);
algorithm 1, appendix C and figure 6 for the controls; Roeder, Wu and Duvenaud (2017)
for the gradient of log q.
"""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce.models.base import LatentVariableModel, observed_log_prob
from skvnce.objectives.elbo import drawn, frozen, log_joint
from skvnce.objectives.vbgi import of_latents
from skvnce.variational.base import LatentPosterior, Uniforms


def demiss_vae(
    model: LatentVariableModel,
    posterior: LatentPosterior,  # q(z | x) of complete rows
    x: Tensor,  # (n_imputations, *rows, features): completed rows
    observed: Tensor,  # bool (*rows, features)
    uniforms: Uniforms,  # called once
    n_draws: int = 1,  # number of draws of each completed row
) -> Tensor:  # (*rows,)
    """Estimate a bound whose gradient is that of eq. (1) in the model, (2) in q.

    The value is eq. (1) with the entropy of q averaged over the imputations: a lower
    bound of log p(x_obs) on average.  The decoder is evaluated once.
    """
    everything = torch.ones_like(x, dtype=torch.bool)
    q = posterior(x, everything)
    z = drawn(q, uniforms, n_draws, x)
    # the slope needs a graph even if the caller has turned gradients off
    with torch.enable_grad():
        fixed = z.detach().requires_grad_()  # the model has no gradient through q
        cells, log_prior = model.likelihood(fixed), model.prior().log_prob(fixed)
        completed = observed_log_prob(cells, x, everything) + log_prior
        # the graph of the cells is used again in `joint`
        (slope,) = torch.autograd.grad(completed.sum(), fixed, retain_graph=True)
    joint = observed_log_prob(cells, x, observed) + log_prior
    with torch.no_grad():
        log_mixture = averaged_log_prob(q, z)
    return _steered(joint - log_mixture, q, z, slope).mean((0, 1))


def cvi_vae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate eq. (3), with its gradient in the model and in q.

    Parameters and returned values are those of `demiss_vae`, with which the values
    agree.
    """
    q = posterior(x, torch.ones_like(x, dtype=torch.bool))
    z = drawn(q, uniforms, n_draws, x)
    joint = log_joint(model, x, observed, z)
    return (joint - averaged_log_prob(frozen(q), z)).mean((0, 1))


def mvb_vae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate eq. (2), with its gradient in the model and in q.

    Parameters and returned values are those of `demiss_vae`, but `observed` is not
    used: the model learns from imputations as from observed cells.
    """
    return of_latents(model, posterior, x, observed, uniforms, n_draws).mean(0)


COMPLETED_BOUNDS: dict[str, Callable[..., Tensor]] = {
    "demiss-vae": demiss_vae,
    "cvi-vae": cvi_vae,
    "mvb-vae": mvb_vae,
}


def posterior_only(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Compute zeros with the gradient of the ELBO in the posterior, not in the model.

    This trains an encoder of rows with missing values for a model that is trained by
    another objective.  Parameters and returned values are those of
    `skvnce.objectives.bounds.miss_vae`.
    """
    q = posterior(x, observed)
    z = drawn(q, uniforms, n_draws, x)
    # the slope needs a graph even if the caller has turned gradients off
    with torch.enable_grad():
        fixed = z.detach().requires_grad_()
        total = log_joint(model, x, observed, fixed).sum()
        (slope,) = torch.autograd.grad(total, fixed)
    return _steered(0.0, q, z, slope).mean(0)


def _steered(
    value: Tensor | float, q: Distribution, z: Tensor, slope: Tensor
) -> Tensor:
    """Add zeros with the gradient of eq. (2) in q: that of the model at fixed leaves.

    Draws z of q are of shape (n_draws, *batch, latents), values (n_draws, *batch).
    """
    toward = (z * slope).sum(-1) - frozen(q).log_prob(z)
    return value + toward - toward.detach()


def averaged_log_prob(q: Distribution, z: Tensor) -> Tensor:
    """Compute log q(z | x_obs) of q averaged over imputations, eq. (9) of the paper.

    `q` (batch shape (n_imputations, *rows)), `z` (n_draws, n_imputations, *rows,
    latents).  Returns (n_draws, n_imputations, *rows).
    """
    every = q.log_prob(z.unsqueeze(2))  # (n_draws, n_imputations, of q, *rows)
    return torch.logsumexp(every, 2) - log(every.shape[2])
