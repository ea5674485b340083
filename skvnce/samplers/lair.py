"""Latent-adaptive importance resampling of missing cells (LAIR).

Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via iterated
approximate ancestral sampling, section 4.2, algorithm 2.  The tables of one iteration
follow the target up to a bias of order 1 / (K + R); `skvnce.samplers.pooled` uses the
proposals of all iterations, with a bias of order 1 / (T (K + R)).
"""

from collections.abc import Callable
from math import inf, log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel, observed_log_prob
from skvnce.samplers.base import Sampler, State
from skvnce.samplers.latent import FIRST, columns, decode, encode, unconditional
from skvnce.samplers.resampling import effective_size, resample, take
from skvnce.variational.base import (
    LatentPosterior,
    Uniforms,
    at_quantiles,
    draw,
    global_stream,
)


class Proposals(NamedTuple):
    """Diagnostics of an iteration."""

    effective_size: Tensor  # (*chains, n): effective size of the K + R proposals
    z: Tensor  # (K + R, *chains, n, latents): proposals
    # (K + R, *chains, n): eq. (6): their mean (not that of logarithms) is an unbiased
    # estimate of p(x_obs)
    log_weight: Tensor
    # batch shape (K + R, *chains, n, features): p(x_j | z) at the proposals
    cells: Distribution


def lair(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    *,
    # K, the first dimension of the tables.  They start from unconditional draws; `init`
    # also accepts K tables.  Every proposal is scored by all components of eq. (5):
    # memory is proportional to (K + R) K n latents.  With 0 it is importance sampling
    # without adaptation, whose draws are those of the pool
    n_particles: int = 20,
    n_replenish: int = 1,  # R, the number of additional proposals in each iteration
    # maps the table to their distribution, of batch shape (n,); by default the prior,
    # as in eq. (5).  An encoder that was trained on rows with missing values gives
    # better proposals if there are many latents
    replenish: Callable[[Incomplete], Distribution] | None = None,
    # called once a step.  Numbers keyed by the row must have a seed of their own
    uniforms: Uniforms = global_stream,
) -> Sampler[State, Proposals]:
    """Build a sampler that moves K particles of each row by importance resampling."""
    # `math.log` raises an error at 0
    log_r = log(n_replenish) if n_replenish else -inf

    @torch.no_grad()
    def init(data: Incomplete, x: Tensor | None = None) -> State:
        if x is None:
            chains = (n_particles + n_replenish,)
            u_z, u_x, _ = columns(uniforms, 0, model, data, chains, 1)
            _, x = unconditional(model, data, u_z[:n_particles], u_x[:n_particles])
        return State(data.with_values(x))

    def propose(
        x: Tensor, data: Incomplete, uniform: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw one z of each component of q^t, eq. (5); with log p(z) and log q^t."""
        k, q, prior = len(x), encode(posterior, x), model.prior()
        fresh = prior if replenish is None else replenish(data)
        z = torch.cat([draw(q, uniform[:k]), draw(fresh, uniform[k:])])
        parts = [(fresh.log_prob(z) + log_r)[:, None]]
        if k:  # torch computes no densities of none
            parts.append(q.log_prob(z[:, None]))
        log_q = torch.cat(parts, 1).logsumexp(1) - log(len(z))
        return z, prior.log_prob(z), log_q

    @torch.no_grad()
    def step(state: State, data: Incomplete) -> tuple[State, Proposals]:
        k, *chains = state.x.shape[:-2]
        chains = (k + n_replenish, *chains)
        number = state.step + FIRST
        u_z, u_x, (u_index,) = columns(uniforms, number, model, data, chains, 1)
        z, log_prior, log_q = propose(state.x, data, u_z)
        cells = model.likelihood(z)
        log_likelihood = observed_log_prob(cells, *data)
        log_weight = log_likelihood + log_prior - log_q  # eq. (6)
        index = resample(log_weight, u_index[:k])
        if hasattr(cells, "taken"):  # they have been decoded
            x = data.with_values(at_quantiles(cells.taken(index), u_x[:k]))
        else:
            x = decode(model, data, take(z, index), u_x[:k])
        info = Proposals(effective_size(log_weight), z, log_weight, cells)
        return State(x, state.step + 1), info

    return Sampler(init, step)
