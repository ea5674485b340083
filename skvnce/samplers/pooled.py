"""Use of the proposals of all iterations of LAIR, in bounded memory.

Simkus and Gutmann (2023), algorithm 2, lines 10 to 12: all T (K + R) proposals, each
with the weight of its own iteration, represent p(z | x_obs).  They are not stored: a
pool holds their total weight, a weighted mean, and draws with replacement.  With W_t
the total weight of iteration t, each draw is replaced by one from iteration t with
probability W_t / (W_1 + ... + W_t).  So it is finally a proposal with probability
proportional to its weight, independently of the other draws.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel
from skvnce.samplers.base import Sampler, State, run_chain
from skvnce.samplers.lair import Proposals
from skvnce.samplers.latent import decode
from skvnce.samplers.resampling import counted, normalised, resample, take
from skvnce.variational.base import Uniforms, global_stream


class Pool(NamedTuple):
    """Summary of the proposals of several iterations."""

    # (n_draws, *chains, n, latents): draws with replacement, in proportion to the
    # weights
    z: Tensor
    mean: Tensor  # (*chains, n, columns): weighted mean of a function of z
    log_total: Tensor  # (*chains, n): logarithm of the total weight
    n_proposals: int
    n_iterations: int


def empty(z: Tensor, mean: Tensor) -> Pool:
    """Make an empty pool, with the shapes of its draws and its mean."""
    log_total = torch.full_like(z[0, ..., 0], -torch.inf)
    return Pool(torch.zeros_like(z), torch.zeros_like(mean), log_total, 0, 0)


def add(pool: Pool, info: Proposals, value: Tensor, uniform: Tensor) -> Pool:
    """Add the proposals of one iteration.

    `uniform` (n_draws, *chains, n, 2).  `value` (K + R, *chains, n, columns): at the
    proposals.
    """
    log_weight = info.log_weight
    log_new = counted(log_weight).logsumexp(0)
    log_total = torch.logaddexp(pool.log_total, log_new)
    share = (log_new - log_total).exp().nan_to_num(nan=1.0)  # 1 if there is no weight
    mean = (normalised(log_weight)[..., None] * value).sum(0)
    replaced = uniform[..., 0] < share
    z = take(info.z, resample(log_weight, uniform[..., 1]))
    return Pool(
        z.where(replaced[..., None], pool.z),
        pool.mean + share[..., None] * (mean - pool.mean),
        log_total,
        pool.n_proposals + len(log_weight),
        pool.n_iterations + 1,
    )


def run_pooled(
    sampler: Sampler[State, Proposals],  # from `lair`
    state: State,
    data: Incomplete,
    # maps z (..., latents) to numbers (..., columns) whose conditional mean is
    # estimated: ``lambda z: model.likelihood(z).mean`` for E[x | x_obs] (Rao-Blackwell)
    value: Callable[[Tensor], Tensor],
    *,
    n_steps: int,
    n_draws: int,
    # called once a step, as (n_draws, *chains, n, 2).  Numbers keyed by the row must
    # have another seed than the sampler's
    uniforms: Uniforms = global_stream,
) -> tuple[State, Pool]:
    """Run LAIR and pool its proposals; the initial particles are not included."""
    pool = None

    @torch.no_grad()
    def visit(state: State, info: Proposals) -> None:
        nonlocal pool
        values = value(info.z)
        # the shapes are known from the first proposals on
        pool = pool or empty(info.z[:1].expand(n_draws, *info.z.shape[1:]), values[0])
        template = pool.z.new_empty(()).expand(*pool.z.shape[:-1], 2)
        pool = add(pool, info, values, uniforms(pool.n_iterations, template))

    state = run_chain(sampler, state, data, n_steps, visit)
    return state, pool


@torch.no_grad()
def draws(
    model: LatentVariableModel,
    data: Incomplete,
    pool: Pool,
    uniforms: Uniforms = global_stream,
) -> Tensor:
    """Draw x_mis given the draws of z; completed tables (n_draws, *chains, n, d).

    Numbers keyed by the row must have a seed of their own.
    """
    template = data.x.new_empty(()).expand(*pool.z.shape[:-1], data.x.shape[-1])
    return decode(model, data, pool.z, uniforms(0, template))
