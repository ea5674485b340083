"""Samplers of missing cells given observed cells: LAIR, AC-MWG, MWG, pseudo-Gibbs.

Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via iterated
approximate ancestral sampling.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil, inf, log, log1p
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce._core.distributions.cells import Cells
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import (
    FIRST,
    Info,
    LatentPosterior,
    LatentState,
    LatentVariableModel,
    Sampler,
    State,
    columns,
    counted,
    decode,
    encode,
    move,
    normalised,
    observed_log_prob,
    resample,
    run_chain,
    take,
    unconditional,
)
from skvnce._core.random import Uniforms, at_quantiles, draw, global_stream
from skvnce.autoencoder.vae import Autoencoder, of_known, slices, weigh

# ----------------------------------------
# Latent-adaptive importance resampling of missing cells (LAIR).
#
# Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via
# iterated approximate ancestral sampling, section 4.2, algorithm 2.  The tables of one
# iteration follow the target up to a bias of order 1 / (K + R); `run_pooled` uses the
# proposals of all iterations, with a bias of order 1 / (T (K + R)).


class Proposals(NamedTuple):
    """Diagnostics of an iteration."""

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
        if isinstance(cells, Cells):  # they have been decoded
            x = data.with_values(at_quantiles(cells.take(index), u_x[:k]))
        else:
            x = decode(model, data, take(z, index), u_x[:k])
        info = Proposals(z, log_weight, cells)
        return State(x, state.step + 1), info

    return Sampler(init, step)


# ----------------------------------------
# Use of the proposals of all iterations of LAIR, in bounded memory.
#
# Simkus and Gutmann (2023), algorithm 2, lines 10 to 12: all T (K + R) proposals,
# each with the weight of its own iteration, represent p(z | x_obs).  They are not
# stored: a pool holds their total weight, a weighted mean, and draws with
# replacement.  With W_t the total weight of iteration t, each draw is replaced by one
# from iteration t with probability W_t / (W_1 + ... + W_t).  So it is finally a
# proposal with probability proportional to its weight, independently of the other
# draws.


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
def pooled_draws(
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


# ----------------------------------------
# The history of AC-MWG: past imputations in bounded memory.
#
# Algorithm 1 of Simkus and Gutmann (2023) keeps all T imputations of a row and
# proposes from those made before the current z was accepted, because these do not
# depend on it. Here a reservoir of `size` slots contains all imputations as long as
# they fit, and then a simple random sample of them (algorithm R of Vitter 1985).  It
# is copied whenever a proposal is accepted.  A random slot of the copy is a uniform
# draw from all available imputations.  The sampler stays exact: the target of the
# chain is stationary because a proposal, given the past, is independent of the
# current z (Holden, Hauge and Holden 2009), and so are the copy and the random
# numbers that filled it.


class History(NamedTuple):
    """Imputations of each row."""

    # (size, *chains, n, features): a sample of all imputations so far, and of those
    # that can be proposed
    stored: Tensor
    available: Tensor  # (size, *chains, n, features)
    # int (*chains, n): number of imputations made before the last proposal was accepted
    n_available: Tensor
    n_stored: int  # number of imputations made


def begin(x: Tensor, size: int) -> History:
    """Start from one imputation (*chains, n, features), independent of the latents."""
    stored = x.new_zeros(size, *x.shape)
    stored[0] = x
    # one tensor for both, because nothing is changed in place
    return History(stored, stored, torch.ones_like(x[..., 0], dtype=torch.long), 1)


def pick(history: History, uniform: Tensor) -> Tensor:
    """Draw an available imputation of each row; (*chains, n) -> (..., features)."""
    filled = history.n_available.clamp(max=len(history.available))
    # a uniform number may be 1 after it is rounded to single precision
    slot = (uniform * filled).long().minimum(filled - 1)
    index = slot[None, ..., None].expand(1, *history.available.shape[1:])
    return history.available.gather(0, index)[0]


def record(history: History, accepted: Tensor, x: Tensor, uniform: Tensor) -> History:
    """Add an imputation; rows with an accepted proposal first update the available.

    `accepted` (bool (*chains, n)), `x` (*chains, n, features).  `uniform` (*chains, n):
    chooses the slot to replace.
    """
    stored, n = history.stored, history.n_stored
    # without the new imputation, which depends on the accepted latents
    available = stored.where(accepted[..., None], history.available)
    n_available = torch.where(accepted, n, history.n_available)
    if n < len(stored):
        slot = torch.full_like(n_available, n)
    else:
        slot = (uniform * (n + 1)).long()  # beyond the slots x is not stored
    slots = torch.arange(len(stored), device=x.device)
    replaced = slots.view(-1, *[1] * slot.dim()) == slot
    stored = x.where(replaced[..., None], stored)
    return History(stored, available, n_available, n + 1)


# ----------------------------------------
# Adaptive collapsed-Metropolis-within-Gibbs sampling of missing cells (AC-MWG).
#
# Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via
# iterated approximate ancestral sampling, section 4.1, algorithm 1.  Proposals come
# from a mixture of the encoder at a past imputation and the prior, eq. (3), and are
# accepted by p(z | x_obs), eq. (4), so that acceptance does not depend on the current
# imputation.


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
    # `skvnce.autoencoder.samplers`
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


# ----------------------------------------
# Metropolis-within-Gibbs sampling of missing cells: proposals from an encoder.
#
# Mattei and Frellsen (2018), section 3.2; Simkus and Gutmann (2023), Conditional
# sampling of variational autoencoders via iterated approximate ancestral sampling,
# eq. (2).  Exact in the limit, but chains rarely leave a mode if x nearly determines
# z (section 3).


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


# ----------------------------------------
# Pseudo-Gibbs sampling of missing cells with an encoder in place of p(z | x).
#
# Rezende, Mohamed and Wierstra (2014), appendix F; Simkus and Gutmann (2023),
# Conditional sampling of variational autoencoders via iterated approximate ancestral
# sampling, section 2.2.  It is exact only if the encoder is the exact posterior.


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


# ----------------------------------------
# Draws of the missing cells given the observed cells, by samplers of this package.
#
# All samplers start at latents that are drawn from q(z | x_obs) and resampled by their
# importance weights.


_PROPOSED = 4  # number of proposals for each draw at which a chain starts
_PER_DRAW = 1.5  # number of proposals for each stratified draw
_LEAST = 8  # number of iterations for them, unless `n_steps` is smaller
_WARM = 4  # number of particles of each chain in a warm-up
_AT_ONCE = 2**22  # maximum size of a chunk of rows
# of a number: uniform numbers that are independent of those of other numbers
Streams = Callable[[int], Uniforms]


class Drawn(NamedTuple):
    """Draws of the missing cells of rows."""

    tables: Tensor  # (n_draws, n, features)
    # (n, n_probabilities): of the levels of categories, see
    # `Cells.level_probabilities`: averages over latents, not frequencies of the tables
    probabilities: Tensor


# (auto, data, n_draws, n_steps, streams) to draws
Draw = Callable[[Autoencoder, Incomplete, int, int, Streams], Drawn]


class Rule(NamedTuple):
    """A way to draw missing cells."""

    draws: Draw
    # numbers of tables that are encoded, and of latents that are proposed, in each row
    # and step.  Chains have one of both for each draw, which do not count here
    n_particles: int = 1
    n_proposals: int = 1
    # number of latents for each draw at the start or at the end
    n_start: int = _PROPOSED
    # the same, with stratified draws, which depend on each other
    stratified: Draw | None = None


def by_lair(
    n_particles: int = 4, n_replenish: int = 20, replenish: str = "encoder"
) -> Rule:
    """Draw from the proposals of all iterations of LAIR.

    `n_particles`, `n_replenish`: K and R.  `replenish` ({"encoder", "prior"}): whether
    the R proposals come from q(z | x_obs), or from p(z) as in the paper.
    """

    def draws(
        auto: Autoencoder,
        data: Incomplete,
        n_draws: int,
        n_steps: int,
        streams: Streams,
    ) -> Drawn:
        sampler, state = start_sampler(auto, data, streams)
        _, pool = run_pooled(
            sampler,
            state,
            data,
            partial(level_probabilities, auto),
            n_steps=n_steps,
            n_draws=n_draws,
            uniforms=streams(1),
        )
        return Drawn(pooled_draws(auto.model, data, pool, streams(2)), pool.mean)

    def stratified(
        auto: Autoencoder,
        data: Incomplete,
        n_draws: int,
        n_steps: int,
        streams: Streams,
    ) -> Drawn:
        enough = ceil(_PER_DRAW * n_draws / (n_particles + n_replenish))
        n_steps = min(n_steps, max(_LEAST, enough))
        sampler, state = start_sampler(auto, data, streams)
        proposed = []
        run_chain(sampler, state, data, n_steps, lambda _, info: proposed.append(info))
        return stratified_draws(auto, data, n_draws, proposed, streams)

    def start_sampler(
        auto: Autoencoder, data: Incomplete, streams: Streams
    ) -> tuple[Sampler, State]:
        # encoded once, because the rows are the same in each iteration
        fresh = auto.posterior(*data) if replenish == "encoder" else None
        sampler = lair(
            of_known(auto.model, data.x),
            auto.posterior,
            n_particles=n_particles,
            n_replenish=n_replenish,
            replenish=fresh and (lambda _: fresh),
            uniforms=streams(0),
        )
        return sampler, sampler.init(data, start(auto, data, n_particles, streams))

    n_proposals = max(n_particles + n_replenish, _PROPOSED * n_particles)
    return Rule(draws, n_particles, n_proposals, n_start=1, stratified=stratified)


@torch.no_grad()
def stratified_draws(
    auto: Autoencoder,
    data: Incomplete,
    n_draws: int,
    proposed: list[Proposals],
    streams: Streams,
) -> Drawn:
    """Represent the proposals of all iterations by draws of equal weight.

    Latents are resampled systematically (Kitagawa 1996), and cells are drawn by
    uniform numbers that are preferably stratified over the draws, too.
    """
    log_weight = torch.cat([proposal.log_weight for proposal in proposed])
    first = streams(1)(0, data.x[None, :, :1]).squeeze(-1)
    # one uniform number a row for all levels: systematic resampling
    levels = (torch.arange(n_draws).to(first)[:, None] + first) / n_draws
    cells = _cells_at(auto, proposed, resample(log_weight, levels))
    uniform = streams(2)(0, data.x.expand(n_draws, *data.x.shape))
    weight = normalised(log_weight).unsqueeze(-1)
    values = torch.cat([level_probabilities(auto, proposal.z) for proposal in proposed])
    tables = data.with_values(at_quantiles(cells, uniform))
    return Drawn(tables, (weight * values).sum(0))


def _cells_at(
    auto: Autoencoder, proposed: list[Proposals], index: Tensor
) -> Distribution:
    """Return p(x_j | z) at some of the proposals; (n_draws, n, features)."""
    if all(type(proposal.cells) is Cells for proposal in proposed):
        pairs = zip(*(proposal.cells.outputs for proposal in proposed), strict=True)
        outputs = (take(torch.cat(parts), index) for parts in pairs)
        return Cells(*outputs, proposed[0].cells.families)
    z = torch.cat([proposal.z for proposal in proposed])
    return auto.model.likelihood(take(z, index))


def by_chains(make: Callable[..., Sampler], n_warm_up: int = 0) -> Rule:
    """Draw by the last states of independent chains.

    `make`: (model, posterior, uniforms=) to a sampler.  `n_warm_up`: number of
    iterations of LAIR before the chains start, as in the experiments of the paper: each
    chain starts at one of four particles of its own.
    """

    def draws(
        auto: Autoencoder,
        data: Incomplete,
        n_draws: int,
        n_steps: int,
        streams: Streams,
    ) -> Drawn:
        sampler = make(*auto, uniforms=streams(0))
        if n_warm_up:
            x = warm_up(auto, data, n_draws, n_warm_up, streams)
        else:
            x = start(auto, data, n_draws, streams)
        state = run_chain(sampler, sampler.init(data, x), data, n_steps)
        return Drawn(state.x, of_chains(auto, state, streams))

    return Rule(draws)


@torch.no_grad()
def of_chains(auto: Autoencoder, state: State, streams: Streams) -> Tensor:
    """Average probabilities of levels over chains; (n, n_probabilities).

    States without latents are completed by those of the encoder, as in pseudo-Gibbs.
    """
    if not has_levels(auto):
        return state.x[0, :, :0]
    z = getattr(state, "z", None)
    if z is None:
        template = state.x.new_empty(()).expand(
            *state.x.shape[:-1], auto.model.prior().event_shape[0] + 1
        )
        z = draw(encode(auto.posterior, state.x), streams(6)(0, template))
    return level_probabilities(auto, z).mean(0)


def level_probabilities(auto: Autoencoder, z: Tensor) -> Tensor:
    """Compute probabilities of levels; (*batch, latents) -> (*batch, n)."""
    return (
        auto.model.likelihood(z).level_probabilities if has_levels(auto) else z[..., :0]
    )


def has_levels(auto: Autoencoder) -> bool:
    """Return whether there are columns of categories."""
    families = getattr(auto.model, "families", None)
    return families is not None and bool(families.levels)


SAMPLERS: dict[str, Callable[..., Rule]] = {
    "lair": by_lair,
    "ac-mwg": lambda eps=0.05, n_warm_up=0: by_chains(
        partial(ac_mwg, eps=eps), n_warm_up
    ),
    "mwg": partial(by_chains, mwg),
    "pseudo-gibbs": partial(by_chains, pseudo_gibbs),
}


def warm_up(
    auto: Autoencoder, data: Incomplete, n_chains: int, n_steps: int, streams: Streams
) -> Tensor:
    """Complete rows by LAIR with four particles a chain; (n_chains, n, features)."""
    # particles of a chain are the first dimension, chains the second
    sampler = lair(*auto, n_particles=_WARM, n_replenish=1, uniforms=streams(5))
    x = start(auto, data, _WARM * n_chains, streams).unflatten(0, (_WARM, n_chains))
    return run_chain(sampler, sampler.init(data, x), data, n_steps).x[0]


@torch.no_grad()
def start(
    auto: Autoencoder, data: Incomplete, n_chains: int, streams: Streams
) -> Tensor:
    """Complete rows by importance resampling from q(z | x_obs); (n_chains, n, d)."""
    if not n_chains:  # of LAIR without particles
        return data.x.expand(0, *data.x.shape)
    number = _PROPOSED * n_chains
    z, log_weight = weigh(auto, data, streams(3), number)
    template = z.new_empty(()).expand(n_chains, len(data.x), data.x.shape[1] + 1)
    uniform = streams(4)(0, template)
    chosen = take(z, resample(log_weight, uniform[..., -1]))
    return decode(auto.model, data, chosen, uniform[..., :-1])


@torch.no_grad()
def approximate_mean(
    auto: Autoencoder,
    data: Incomplete,
    # maps drawn scores (*batch, features) to cells
    to_cells: Callable[[Tensor], Tensor],
    streams: Streams,  # preferably numbers that are stratified over the draws
    n_draws: int,
) -> tuple[Tensor, Tensor]:
    """Estimate the means of cells given the observed cells, by importance sampling.

    Each draw of the latents from q(z | x_obs) draws each cell once.

    Returns `mean` (n, features); `probabilities` (n, n_probabilities), of levels, see
    `Drawn`.
    """
    z, log_weight = weigh(auto, data, streams(0), n_draws)
    cells = auto.model.likelihood(z)
    like = data.x.expand(n_draws, *data.x.shape)
    drawn = to_cells(at_quantiles(cells, streams(1)(0, like)))
    weight = normalised(log_weight).unsqueeze(-1)
    levels = level_probabilities(auto, z)
    return (weight * drawn).sum(0), (weight * levels).sum(0)


def chunks(auto: Autoencoder, n: int, n_draws: int, rule: Rule) -> Iterator[slice]:
    """Split n rows into chunks whose draws are bounded in memory."""
    d, k, hidden = auto.model.sizes
    of_draw = 4 * d + max(hidden) + k
    moved = rule.n_proposals * (of_draw + rule.n_particles * k)
    drawn = rule.n_start * n_draws * (of_draw + k)
    return slices(n, max(1, _AT_ONCE // max(moved, drawn)))
