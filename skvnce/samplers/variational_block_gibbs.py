"""Gibbs sampling of latents and missing cells in two blocks, both variational.

`pseudo_gibbs` draws the cells from the model itself, as in VBGI-VAE-M.  This sampler
draws them from q(x_mis | z, x_obs), which also depends on the observed cells.  It is
exact if both conditionals are.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, sections 3.4 and 5.3.
"""

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel
from skvnce.samplers.base import Info, Sampler
from skvnce.samplers.latent import FIRST, LatentState, columns, encode, unconditional
from skvnce.variational.base import (
    LatentCells,
    LatentPosterior,
    Uniforms,
    at_quantiles,
    draw,
    global_stream,
)


def variational_block_gibbs(
    model: LatentVariableModel,  # used only to start the chains
    posterior: LatentPosterior,
    cells: LatentCells,
    *,
    # number of chains that start from unconditional draws.  `init` also accepts tables,
    # and latents (*chains, n, latents), which otherwise come from the prior
    n_chains: int = 1,
    # called once a step.  Numbers keyed by the row must have a seed of their own
    uniforms: Uniforms = global_stream,
) -> Sampler[LatentState, Info]:
    """Build a sampler that draws z ~ q(z | x), then x_mis ~ q(x_mis | z, x_obs)."""

    @torch.no_grad()
    def init(
        data: Incomplete, x: Tensor | None = None, z: Tensor | None = None
    ) -> LatentState:
        chains = (n_chains,) if x is None else x.shape[:-2]
        if x is None or z is None:
            u_z, u_x, _ = columns(uniforms, 0, model, data, chains)
            prior_z, prior_x = unconditional(model, data, u_z, u_x)
            x, z = prior_x if x is None else x, prior_z if z is None else z
        return LatentState(data.with_values(x), z)

    @torch.no_grad()
    def step(state: LatentState, data: Incomplete) -> tuple[LatentState, Info]:
        chains, number = state.x.shape[:-2], state.step + FIRST
        u_z, u_x, _ = columns(uniforms, number, model, data, chains)
        z = draw(encode(posterior, state.x), u_z)
        known = data.x.expand(state.x.shape)
        x = at_quantiles(cells(known, data.observed, z), u_x)
        return LatentState(data.with_values(x), z, state.step + 1), Info()

    return Sampler(init, step)
