"""Pseudo-Gibbs sampling of missing cells with an encoder in place of p(z | x).

Rezende, Mohamed and Wierstra (2014), appendix F; Simkus and Gutmann (2023), Conditional
sampling of variational autoencoders via iterated approximate ancestral sampling,
section 2.2.  It is exact only if the encoder is the exact posterior.
"""

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel
from skvnce.samplers.base import Info, Sampler, State
from skvnce.samplers.latent import FIRST, columns, decode, encode, unconditional
from skvnce.variational.base import LatentPosterior, Uniforms, draw, global_stream


def pseudo_gibbs(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    *,
    # number of chains that start from unconditional draws.  `init` also accepts tables
    n_chains: int = 1,
    # (features,), or of two numbers: smallest and largest values of the columns, to
    # which draws are clamped, because otherwise chains may diverge.  The authors use
    # twice the smallest and the largest values of standardised data.  If a draw is not
    # finite, the cell keeps its value
    bounds: tuple[Tensor, Tensor] | tuple[float, float] = (-torch.inf, torch.inf),
    # called once a step.  Numbers keyed by the row must have a seed of their own
    uniforms: Uniforms = global_stream,
) -> Sampler[State, Info]:
    """Build a sampler that draws z ~ q(z | x), then x_mis ~ p(x_mis | x_obs, z)."""

    @torch.no_grad()
    def init(data: Incomplete, x: Tensor | None = None) -> State:
        if x is None:
            u_z, u_x, _ = columns(uniforms, 0, model, data, (n_chains,))
            _, x = unconditional(model, data, u_z, u_x)
        return State(data.with_values(x))

    @torch.no_grad()
    def step(state: State, data: Incomplete) -> tuple[State, Info]:
        chains, number = state.x.shape[:-2], state.step + FIRST
        u_z, u_x, _ = columns(uniforms, number, model, data, chains)
        x = decode(model, data, draw(encode(posterior, state.x), u_z), u_x)
        x = x.clamp(*bounds).where(x.isfinite(), state.x)
        return State(data.with_values(x), state.step + 1), Info()

    return Sampler(init, step)
