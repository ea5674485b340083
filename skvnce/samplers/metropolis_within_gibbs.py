"""Metropolis-within-Gibbs sampling of missing cells: proposals from an encoder.

Mattei and Frellsen (2018), section 3.2; Simkus and Gutmann (2023), Conditional sampling
of variational autoencoders via iterated approximate ancestral sampling, eq. (2).  Exact
in the limit, but chains rarely leave a mode if x nearly determines z (section 3).
"""

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel
from skvnce.samplers.base import Info, Sampler
from skvnce.samplers.latent import FIRST, LatentState, columns, encode, unconditional
from skvnce.samplers.metropolis import move
from skvnce.variational.base import LatentPosterior, Uniforms, draw, global_stream


def mwg(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    *,
    # number of chains that start from unconditional draws.  `init` also accepts tables,
    # preferably those of a warm-up by `pseudo_gibbs` or `lair`
    n_chains: int = 1,
    # called once a step.  Numbers keyed by the row must have a seed of their own
    uniforms: Uniforms = global_stream,
) -> Sampler[LatentState, Info]:
    """Build a sampler that proposes z ~ q(z | x), accepted by p(z | x), eq. (2)."""

    @torch.no_grad()
    def init(data: Incomplete, x: Tensor | None = None) -> LatentState:
        chains = (n_chains,) if x is None else x.shape[:-2]
        u_z, u_x, _ = columns(uniforms, 0, model, data, chains, 1)
        if x is None:
            z, x = unconditional(model, data, u_z, u_x)
            return LatentState(x, z)
        x = data.with_values(x)
        return LatentState(x, draw(encode(posterior, x), u_z))

    @torch.no_grad()
    def step(state: LatentState, data: Incomplete) -> tuple[LatentState, Info]:
        x, chains, number = state.x, state.x.shape[:-2], state.step + FIRST
        u_z, u_x, (u_accept,) = columns(uniforms, number, model, data, chains, 1)
        q = encode(posterior, x)
        pair = torch.stack([state.z, draw(q, u_z)])
        completed = Incomplete(x, torch.ones_like(x, dtype=torch.bool))
        moved = move(model, data, completed, pair, q.log_prob(pair), u_accept, u_x)
        return LatentState(moved.x, moved.z, state.step + 1), Info(moved.probability)

    return Sampler(init, step)
