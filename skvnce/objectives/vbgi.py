"""Variational Gibbs objectives of models with latents: two blocks, or one.

For a completed row x~ = (x_obs, x~_mis) with latents z~, the blocks are the latents and
the missing cells; each is drawn given the other,

    A = E_q(z | x~) [log p(x~, z) - log q(z | x~)]                                 (1)
    B = E_q(x_mis | z~, x_obs) [log p(x_obs, x_mis, z~)] + H(q(x_mis | z~, x_obs)) (2)
    J = (A + B) / 2                                                                (3)

VBGI-VAE maximises J.  A is a bound of log p(x~), B of log p(x_obs, z~); x~ and z~ are
the state of a chain and have no gradient.  If they are draws of p(x_mis, z | x_obs) and
q(z | x) and q(x_mis | z, x_obs) are exact, the gradients of A and of B in the model are
on average that of log p(x_obs).  VBGI-VAE-M leaves the missing cells out of the
likelihood,

    J_M = E_q(z | x~) [log p(x_obs, z) - log q(z | x~)]                            (4)

which is a bound of log p(x_obs), for any x~.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, sections 3.4 and 5.3: eq. (13) and the two after (14).
"""

import torch
from torch import Tensor

from skvnce.models.base import LatentVariableModel
from skvnce.objectives.elbo import drawn_elbo, log_joint
from skvnce.variational.base import LatentCells, LatentPosterior, Uniforms, entropy


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
