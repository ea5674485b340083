"""Prediction of the missing cells of new rows by a fitted model.

Each function runs Gibbs chains.  Means and scores use the random numbers of the caller;
numbers that are keyed by the row make them deterministic functions of each row.
"""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.graph.chain_means import chain_means
from skvnce.distributions.quantiles import midpoint_levels, weighted_quantiles
from skvnce.distributions.truncated_normal import TruncatedNormal
from skvnce.models.truncated_gaussian import TruncatedGaussian
from skvnce.samplers.base import Info, Sampler, State, run_chain
from skvnce.samplers.blocks import block_gibbs, lines_of, missing_of
from skvnce.variational.base import Uniforms

N_BLOCKS = 5  # number of blocks of columns that `log_predictive` hides in turn
# for the blocks of two partitions, see `blocks_of`
N_CHAINS = 2 * N_BLOCKS  # number of its chains for each row
# an odd number, so that one of them is the median
_N_POINTS = 9  # number of quantiles that represent a conditional distribution


@torch.no_grad()
def conditional_mean(
    model: TruncatedGaussian,
    data: Incomplete,
    start: Tensor,  # (features,), where the chains start
    uniforms: Uniforms,
    *,
    burn_in: int,
    n_steps: int,
) -> Tensor:  # (n, features)
    """Estimate E[x_mis | x_obs] from one chain a row; see `chain_means`.

    Exact in rows that miss one cell, and for all missing cells if truncation has no
    effect.  Result: observed cells are unchanged.
    """
    found = chain_means(model, data, start, uniforms, burn_in=burn_in, n_steps=n_steps)
    return data.with_values(found)


@torch.no_grad()
def approximate_mean(
    model: TruncatedGaussian,
    data: Incomplete,
    start: Tensor,
    uniforms: Uniforms,
    *,
    burn_in: int,
    n_steps: int,
) -> Tensor:  # (n, features)
    """Estimate E[x_mis | x_obs] by the average of E[x_j | x_-j] over one chain a row.

    Cheaper than `conditional_mean`, and noisier in rows with many correlated missing
    cells.  Result: observed cells are unchanged.
    """
    sampler = block_gibbs(model, missing_of(data.observed[None]))
    state = sampler.init(data, start.expand(1, *data.x.shape))
    cells = (~data.observed).nonzero(as_tuple=True)
    scale = model.precision.diagonal().rsqrt()[cells[1]]
    total = torch.zeros_like(scale)

    def add(state: State, info: Info) -> None:
        x = state.x[0]
        force = (model.linear - x @ model.precision)[cells]
        loc = x[cells] + force * scale.square()
        total.add_(TruncatedNormal(loc, scale, validate_args=False).mean)

    state = run_chain(sampler, state, data, burn_in)
    run_chain(sampler, state, data, n_steps, add)
    return data.x.index_put(cells, total / n_steps)


@torch.no_grad()
def quantiles(
    model: TruncatedGaussian,
    data: Incomplete,
    start: Tensor,
    uniforms: Uniforms,
    levels: Tensor,
    *,
    burn_in: int,
    n_steps: int,
) -> Tensor:  # (n_levels, n, features)
    """Estimate quantiles of p(x_j | x_obs) from one chain a row.

    The conditional distributions of a cell along the chain, in equal shares, represent
    its distribution.  All are shifted to the mean of `conditional_mean`, which has much
    less noise.  Quantiles are exact in rows that miss one cell.  Result: observed cells
    are unchanged.
    """
    lengths = {"burn_in": burn_in, "n_steps": n_steps}
    mean = conditional_mean(model, data, start, uniforms, **lengths)
    missing = missing_of(data.observed[None])
    lines = lines_of(model.precision, missing.patterns)
    sampler = block_gibbs(model, missing, uniforms, lines=lines)
    state = sampler.init(data, start.expand(1, *data.x.shape))
    tables: list[Tensor] = []
    state = run_chain(sampler, state, data, burn_in)
    run_chain(sampler, state, data, n_steps, lambda state, _: tables.append(state.x[0]))
    found, equal = data.x.new_zeros(len(levels), *data.x.shape), data.x.new_ones(())
    for j, rows in enumerate(~data.observed.T):
        given = model.conditional(torch.stack([one[rows] for one in tables]), j)
        inner = midpoint_levels(_N_POINTS, data.x)[:, None, None]
        points = given.icdf(inner.expand(-1, *given.loc.shape)).flatten(0, 1)
        shift = mean[rows, j] - given.mean.mean(0)
        found[:, rows, j] = weighted_quantiles(points, equal, levels) + shift
    # a shift may leave the support
    return data.with_values(found.clamp(min=0))


def draw(
    model: TruncatedGaussian,
    data: Incomplete,
    start: Tensor,
    *,
    n_draws: int,
    n_steps: int,
) -> Tensor:
    """Draw from p(x_mis | x_obs), one chain for each draw; (n_draws, n, features)."""
    x = start.expand(n_draws, *data.x.shape)
    sampler = block_gibbs(model, missing_of(data.observed.expand_as(x)))
    return run_chain(sampler, sampler.init(data, x), data, n_steps).x


@torch.no_grad()
def log_predictive(
    model: TruncatedGaussian,
    data: Incomplete,
    start: Tensor,
    uniforms: Callable[[int], Uniforms],
    *,
    burn_in: int,
    n_steps: int,
) -> Tensor:  # (n,)
    """Sum over observed cells of log p(cell | observed cells outside its block).

    One block of columns is hidden at a time.  Chains fill it and the missing cells, and
    each hidden cell is scored by its conditional density, averaged over the chain.
    This is a proper score of held-out rows that needs no normalising constant.  The
    result is the mean over the partitions of `blocks_of`. With at most `N_BLOCKS`
    columns and no missing values no chain is needed, and it is the
    pseudo-log-likelihood.  `uniforms`: maps the number of the block to its random
    numbers.
    """
    blocks, n_ways = blocks_of(data.x.shape[1])
    # x keeps the hidden values, at which `_average_density` needs the densities
    rest = Incomplete(data.x, data.observed & ~blocks[:, None])
    sources = [uniforms(block) for block in range(len(blocks))]

    def each(step: int, x: Tensor) -> Tensor:
        return torch.cat(
            [u(step, one[None]) for u, one in zip(sources, x, strict=True)]
        )

    sampler = block_gibbs(model, missing_of(rest.observed), each)
    state = sampler.init(rest, start.expand_as(rest.observed))
    state = run_chain(sampler, state, rest, burn_in)
    score = _average_density(model, sampler, state, rest, n_steps)
    hidden = data.observed & blocks[:, None]
    return score.where(hidden, 0.0).sum((0, 2)) / n_ways


def blocks_of(d: int) -> tuple[Tensor, int]:
    """Divide d columns into blocks: (blocks, d) of bool, and the number of partitions.

    With the digits of j to the base `N_BLOCKS`, column j is in the block of its last
    digit in one partition, and in the block of the sum of its digits in the other.
    Columns that are hidden together in one partition are hidden separately in the
    other; this holds for all pairs of up to `N_BLOCKS` squared columns.  For few
    columns one partition suffices.
    """
    columns, blocks = torch.arange(d), torch.arange(min(N_BLOCKS, d))[:, None]
    last = columns % N_BLOCKS == blocks
    if d <= N_BLOCKS:
        return last, 1
    digits, rest = torch.zeros_like(columns), columns
    while rest.any():
        digits, rest = digits + rest % N_BLOCKS, rest // N_BLOCKS
    return torch.cat([last, digits % N_BLOCKS == blocks]), 2


def _average_density(
    model: TruncatedGaussian,
    sampler: Sampler,
    state: State,
    rest: Incomplete,
    n_steps: int,
) -> Tensor:
    """Average conditional densities of the true cells, under the mask, over chains."""
    total = torch.full(rest.observed.shape, -torch.inf, dtype=rest.x.dtype)

    def score(state: State, info: Info) -> None:
        density = model.conditionals(state.x).log_prob(rest.x)
        torch.logaddexp(total, density, out=total)

    run_chain(sampler, state, rest, n_steps, score)
    return total - log(n_steps)
