"""Training objectives of variational autoencoders, by name, for missing values.

All take (model, posterior, x, observed, uniforms, n_draws) and return a lower bound of
log p(x_obs) of each row, with gradients for the model and the posterior.  `BOUNDS`
lists those of rows with missing values, `COMPLETED_BOUNDS` those of completed rows.

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families, table 1; Mattei and Frellsen (2019), MIWAE.
"""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce._core.distributions.cells import entropy
from skvnce._core.elbo import (
    drawn,
    drawn_elbo,
    frozen,
    iwelbo,
    log_joint,
    stratified_elbo,
    stratified_iwelbo,
)
from skvnce._core.models import LatentVariableModel, observed_log_prob
from skvnce._core.posteriors import LatentCells, LatentPosterior, Uniforms

Bound = Callable[
    [LatentVariableModel, LatentPosterior, Tensor, Tensor, Uniforms, int], Tensor
]


def miss_vae(
    model: LatentVariableModel,
    posterior: LatentPosterior,  # one normal gives MVAE, a mixture MissVAE
    x: Tensor,  # (*rows, features): values under the mask are arbitrary
    observed: Tensor,  # bool (*rows, features)
    uniforms: Uniforms,  # called once
    n_draws: int = 1,  # number of draws of each row
) -> Tensor:  # (*rows,)
    """Estimate the ELBO by draws of q, eq. (4) of the paper."""
    return drawn_elbo(model, posterior(x, observed), x, observed, uniforms, n_draws)


def miss_iwae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate the importance-weighted bound by draws of q, eq. (7) of the paper.

    The gradient of the posterior is doubly reparametrised (Tucker et al. 2019): it
    passes through each draw, times its squared normalised weight.  (A posterior with
    `source` passes all of it through a tensor before the draw.)  That of the model is
    the standard one.  Parameters and returned values are those of `miss_vae`; one
    normal gives MIWAE, a mixture MissIWAE.

    Tucker, Lawson, Gu and Maddison (2019), Doubly reparameterized gradient estimators
    for Monte Carlo objectives.
    """
    q = posterior(x, observed)
    z = drawn(q, uniforms, n_draws, x)
    log_weight = log_joint(model, x, observed, z) - frozen(q).log_prob(z)
    # draws without a gradient take no hook
    if z.requires_grad:
        weight = log_weight.detach().softmax(0).unsqueeze(-1)
        source = q.source(z) if hasattr(q, "source") else z
        source.register_hook(lambda gradient: weight * gradient)  # has a factor already
    return iwelbo(log_weight)


def miss_svae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate the ELBO by draws of each component, eq. (5) of the paper.

    Parameters and returned values are those of `miss_vae`, with ``n_draws`` of each
    component of the posterior, a mixture.
    """
    q = posterior(x, observed)
    z = _strata(q, uniforms, x, n_draws)
    log_weight = log_joint(model, x, observed, z) - frozen(q).log_prob(z)
    return stratified_elbo(q.log_weights.movedim(-1, 0), log_weight)


def miss_siwae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate the importance-weighted bound by components, eq. (8) of the paper.

    Its gradient is the standard one: that of a frozen q is biased.  Parameters and
    returned values are those of `miss_svae`.
    """
    q = posterior(x, observed)
    z = _strata(q, uniforms, x, n_draws)
    log_weight = log_joint(model, x, observed, z) - q.log_prob(z)
    return stratified_iwelbo(q.log_weights.movedim(-1, 0), log_weight)


BOUNDS: dict[str, Bound] = {
    "mvae": miss_vae,
    "miss-vae": miss_vae,
    "miss-svae": miss_svae,
    "miwae": miss_iwae,
    "miss-iwae": miss_iwae,
    "miss-siwae": miss_siwae,
}


def _strata(q: Distribution, uniforms: Uniforms, x: Tensor, n_draws: int) -> Tensor:
    """Draw from each component; (components, n_draws, *rows, latents)."""
    if not hasattr(q, "components"):
        raise TypeError(
            "Stratified bounds require a mixture, and the posterior returns "
            f"{type(q).__name__}. Use a MixtureEncoder, or the bound of MVAE or MIWAE."
        )
    return drawn(q.components(), uniforms, n_draws, x).movedim(-2, 0)


# ----------------------------------------
# Variational Gibbs objectives of models with latents: two blocks, or one.
#
# For a completed row x~ = (x_obs, x~_mis) with latents z~, the blocks are the latents
# and the missing cells; each is drawn given the other,
#
#     A = E_q(z | x~) [log p(x~, z) - log q(z | x~)]                                 (1)
#     B = E_q(x_mis | z~, x_obs) [log p(x_obs, x_mis, z~)] + H(q(x_mis | z~, x_obs)) (2)
#     J = (A + B) / 2                                                                (3)
#
# VBGI-VAE maximises J.  A is a bound of log p(x~), B of log p(x_obs, z~); x~ and z~
# are the state of a chain and have no gradient.  If they are draws of p(x_mis, z |
# x_obs) and q(z | x) and q(x_mis | z, x_obs) are exact, the gradients of A and of B
# in the model are on average that of log p(x_obs).  VBGI-VAE-M leaves the missing
# cells out of the likelihood,
#
#     J_M = E_q(z | x~) [log p(x_obs, z) - log q(z | x~)]                            (4)
#
# which is a bound of log p(x_obs), for any x~.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, sections 3.4 and 5.3: eq. (13) and the two after
# (14).


def vbgi(
    model: LatentVariableModel,
    posterior: LatentPosterior,  # q(z | x) of complete rows
    cells: LatentCells,  # with reparametrised draws
    x: Tensor,  # (*batch, features): completed rows
    z: Tensor,  # (*batch, latents)
    observed: Tensor,  # bool that broadcasts to (*batch, features)
    uniforms: Uniforms,  # called once
) -> Tensor:  # (*batch,)
    """Estimate J by one draw of each block, eq. (3)."""
    latents = of_latents(model, posterior, x, observed, uniforms)
    return (latents + of_cells(model, cells, x, z, observed)) / 2


def of_cells(
    model: LatentVariableModel,
    cells: LatentCells,
    x: Tensor,
    z: Tensor,
    observed: Tensor,
) -> Tensor:
    """Estimate B by one draw of the missing cells, eq. (2).

    Parameters and returned values are those of `vbgi`; only the observed cells of x are
    used.
    """
    q = cells(x, observed, z)
    some = q.rsample()
    moved = x.where(observed, some)
    total = entropy(q, some).where(~observed, x.new_zeros(())).sum(-1)
    return log_joint(model, moved, torch.ones_like(moved).bool(), z) + total


def of_latents(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate A by draws of the latents, eq. (1).

    Parameters and returned values are those of `vbgi_marginal`, but `observed` is not
    used.
    """
    everything = torch.ones_like(x, dtype=torch.bool)
    return vbgi_marginal(model, posterior, x, everything, uniforms, n_draws)


def vbgi_marginal(
    model: LatentVariableModel,
    posterior: LatentPosterior,  # q(z | x) of complete rows
    # (*batch, features): completed rows: the posterior uses all cells, the likelihood
    # the observed ones
    x: Tensor,
    observed: Tensor,  # bool that broadcasts to (*batch, features)
    uniforms: Uniforms,  # called once
    n_draws: int = 1,  # number of draws of each row
) -> Tensor:  # (*batch,)
    """Estimate J_M by draws of the latents, eq. (4)."""
    q = posterior(x, torch.ones_like(x, dtype=torch.bool))
    return drawn_elbo(model, q, x, observed, uniforms, n_draws)


# ----------------------------------------
# DeMissVAE: one objective for the model, another for the posterior of completed rows.
#
# With imputations x_mis^k of a row, k = 1..K, and z^k a draw of q(z | x_obs,
# x_mis^k),
#
#     L_theta = mean_k log p(x_obs, z^k)                                             (1)
#     L_phi = mean_k [log p(x_obs, x_mis^k, z^k) - log q(z^k | x_obs, x_mis^k)]      (2)
#
# The model does not learn from imputations, and the posterior is only used for
# complete rows, for which it often has a single mode.
#
# Two controls train both by one objective.  CVI-VAE maximises eq. (1) with the
# entropy of the posterior averaged over the imputations, a bound of log p(x_obs),
#
#     mean_k [log p(x_obs, z^k) - log (1/K) sum_l q(z^k | x_obs, x_mis^l)]           (3)
#
# and MVB-VAE maximises eq. (2), the ELBO of completed rows.
#
# Simkus and Gutmann (2024), Improving variational autoencoder estimation from
# incomplete data with mixture variational families, eqs. (10) and (12), here (1), (3)
# and (2); algorithm 1, appendix C and figure 6 for the controls; Roeder, Wu and
# Duvenaud (2017) for the gradient of log q.


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
    `skvnce.autoencoder.bounds.miss_vae`.
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
