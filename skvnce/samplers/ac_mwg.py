"""Adaptive collapsed-Metropolis-within-Gibbs sampling of missing cells (AC-MWG).

Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via iterated
approximate ancestral sampling, section 4.1, algorithm 1.  Proposals come from a mixture
of the encoder at a past imputation and the prior, eq. (3), and are accepted by
p(z | x_obs), eq. (4), so that acceptance does not depend on the current imputation.
"""

from math import inf, log, log1p
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel
from skvnce.samplers.base import Info, Sampler
from skvnce.samplers.history import History, begin, pick, record
from skvnce.samplers.latent import FIRST, columns, encode, unconditional
from skvnce.samplers.metropolis import move
from skvnce.variational.base import LatentPosterior, Uniforms, draw, global_stream

_N_MORE = 4  # uniforms: history, mixture component, acceptance, slot of the history


class AdaptiveState(NamedTuple):
    """State of the chains."""

    x: Tensor  # (*chains, n, features)
    z: Tensor  # (*chains, n, latents)
    history: History
    step: int = 0


def log_mixture(q: Distribution, prior: Distribution, z: Tensor, eps: float) -> Tensor:
    """Compute log((1 - eps) q(z) + eps p(z)), eq. (3)."""
    # `math.log` raises an error at 0
    log_encoder = log1p(-eps) if eps < 1 else -inf
    log_prior = log(eps) if eps > 0 else -inf
    return torch.logaddexp(q.log_prob(z) + log_encoder, prior.log_prob(z) + log_prior)


def ac_mwg(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    *,
    # in [0, 1]: share of proposals from the prior.  The authors use 0.01 to 0.3; with 0
    # the chains never find modes that the encoder does not propose
    eps: float = 0.05,
    # number of chains that start from unconditional draws.  `init` also accepts tables,
    # for example of a warm-up by `lair`; they enter the history, and z is drawn from
    # the prior, because the two must be independent
    n_chains: int = 1,
    # number of past imputations of each row in memory; memory and copying in each step
    # are proportional to 2 * history_size * n * features.  With more slots than steps
    # it is exactly algorithm 1; with fewer it is also exact, see
    # `skvnce.samplers.history`
    history_size: int = 100,
    # called once a step.  Numbers keyed by the row must have a seed of their own
    uniforms: Uniforms = global_stream,
) -> Sampler[AdaptiveState, Info]:
    """Build a sampler that proposes z from eq. (3) and accepts it by eq. (4)."""

    def of_chains(number: int, data: Incomplete, chains: tuple) -> tuple[Tensor, ...]:
        return columns(uniforms, number, model, data, chains, _N_MORE)

    @torch.no_grad()
    def init(data: Incomplete, x: Tensor | None = None) -> AdaptiveState:
        chains = (n_chains,) if x is None else x.shape[:-2]
        z = draw(model.prior(), of_chains(0, data, chains)[0])
        if x is None:
            # other numbers than those of z: it must be independent of the imputation
            u_z, u_x, _ = of_chains(1, data, chains)
            _, x = unconditional(model, data, u_z, u_x)
        x = data.with_values(x)
        return AdaptiveState(x, z, begin(x, history_size))

    @torch.no_grad()
    def step(state: AdaptiveState, data: Incomplete) -> tuple[AdaptiveState, Info]:
        u_z, u_x, (u_past, u_part, u_accept, u_slot) = of_chains(
            state.step + FIRST, data, state.x.shape[:-2]
        )
        q, prior = encode(posterior, pick(state.history, u_past)), model.prior()
        # both draws from the same numbers, because only one of them is used
        proposal = draw(prior, u_z).where((u_part < eps)[..., None], draw(q, u_z))
        pair = torch.stack([state.z, proposal])
        log_q = log_mixture(q, prior, pair, eps)
        moved = move(model, data, data, pair, log_q, u_accept, u_x)
        # the imputation is added after rejections, too, as in algorithm 1
        history = record(state.history, moved.accepted, moved.x, u_slot)
        state = AdaptiveState(moved.x, moved.z, history, state.step + 1)
        return state, Info(moved.probability)

    return Sampler(init, step)
