"""Draws of the missing cells given the observed cells, by samplers of this package.

All samplers start at latents that are drawn from q(z | x_obs) and resampled by their
importance weights.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce._core.distributions.cells import Cells
from skvnce._core.distributions.functions import at_quantiles, draw
from skvnce._core.incomplete import Incomplete
from skvnce._core.posteriors import Uniforms
from skvnce._core.samplers import (
    Sampler,
    State,
    decode,
    encode,
    normalised,
    resample,
    run_chain,
    take,
)
from skvnce.autoencoder.samplers import (
    Proposals,
    ac_mwg,
    lair,
    mwg,
    pseudo_gibbs,
    run_pooled,
)
from skvnce.autoencoder.samplers import draws as pooled_draws
from skvnce.autoencoder.vae import Autoencoder, of_known, slices, weigh

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


class Rule(NamedTuple):
    """A way to draw missing cells.

    `stratified` (callable or None): the same, with stratified draws, which depend on
    each other.
    """

    # (auto, data, n_draws, n_steps, streams) to `Drawn`
    draws: Callable[[Autoencoder, Incomplete, int, int, Streams], Drawn]
    # numbers of tables that are encoded, and of latents that are proposed, in each row
    # and step.  Chains have one of both for each draw, which do not count here
    n_particles: int = 1
    n_proposals: int = 1
    # number of latents for each draw at the start or at the end
    n_start: int = _PROPOSED
    stratified: Callable[[Autoencoder, Incomplete, int, int, Streams], Drawn] | None = (
        None
    )


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
        sampler, state = started(auto, data, streams)
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
        enough = max(_LEAST, enough)
        sampler, state = started(auto, data, streams)
        proposed = []

        def keep(state: State, info: Proposals) -> None:
            proposed.append(info)

        run_chain(sampler, state, data, min(n_steps, enough), keep)
        return stratified_draws(auto, data, n_draws, proposed, streams)

    def started(
        auto: Autoencoder, data: Incomplete, streams: Streams
    ) -> tuple[Sampler, State]:
        fresh = REPLENISH[replenish](auto)
        sampler = lair(
            of_known(auto.model, data.x),
            auto.posterior,
            n_particles=n_particles,
            n_replenish=n_replenish,
            # encoded once, because the rows are the same in each iteration
            replenish=fresh and constant(fresh(data)),
            uniforms=streams(0),
        )
        return sampler, sampler.init(data, start(auto, data, n_particles, streams))

    n_proposals = max(n_particles + n_replenish, _PROPOSED * n_particles)
    return Rule(draws, n_particles, n_proposals, n_start=1, stratified=stratified)


def constant(value: Distribution) -> Callable[[Incomplete], Distribution]:
    """Return a function of tables that is constant."""
    return lambda data: value


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
    log_weight = torch.cat([one.log_weight for one in proposed])
    first = streams(1)(0, data.x[None, :, :1]).squeeze(-1)
    # one uniform number a row for all levels: systematic resampling
    levels = (torch.arange(n_draws).to(first)[:, None] + first) / n_draws
    cells = _cells_at(auto, proposed, resample(log_weight, levels))
    uniform = streams(2)(0, data.x.expand(n_draws, *data.x.shape))
    weight = normalised(log_weight).unsqueeze(-1)
    values = torch.cat([level_probabilities(auto, one.z) for one in proposed])
    tables = data.with_values(at_quantiles(cells, uniform))
    return Drawn(tables, (weight * values).sum(0))


def _cells_at(
    auto: Autoencoder, proposed: list[Proposals], index: Tensor
) -> Distribution:
    """Return p(x_j | z) at some of the proposals; (n_draws, n, features)."""
    if all(type(one.cells) is Cells for one in proposed):
        pairs = zip(*(one.cells.outputs for one in proposed), strict=True)
        outputs = (take(torch.cat(parts), index) for parts in pairs)
        return Cells(*outputs, proposed[0].cells.families)
    return auto.model.likelihood(take(torch.cat([one.z for one in proposed]), index))


# of an autoencoder, to the distribution of additional proposals of `lair`
REPLENISH: dict[str, Callable[[Autoencoder], Callable | None]] = {
    "encoder": lambda auto: lambda data: auto.posterior(*data),
    "prior": lambda auto: None,
}


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
            x = warmed_up(auto, data, n_draws, n_warm_up, streams)
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


def warmed_up(
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
    one = 4 * d + max(hidden) + k
    moved = rule.n_proposals * (one + rule.n_particles * k)
    drawn = rule.n_start * n_draws * (one + k)
    return slices(n, max(1, _AT_ONCE // max(moved, drawn)))
