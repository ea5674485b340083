"""What a fitted model says about the missing cells of new rows.

Each runs Gibbs chains.  Means and scores take the random numbers of the caller, so that
numbers keyed by the row make them deterministic functions of each row.
"""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.truncated_gaussian import TruncatedGaussian
from skvnce.samplers.base import Info, Sampler, State, chain_average, run_chain
from skvnce.samplers.gibbs import gibbs, missing_cells
from skvnce.variational.base import Uniforms

N_BLOCKS = 5  # of columns, hidden in turn by `log_predictive`


@torch.no_grad()
def conditional_mean(
    model: TruncatedGaussian,
    data: Incomplete,
    start: Tensor,
    uniforms: Uniforms,
    *,
    burn_in: int,
    n_steps: int,
) -> Tensor:
    """Estimate E[x_mis | x_obs]; exact in rows that miss one cell.

    The mean of each cell's conditional is averaged over the chain (Rao-Blackwell).

    Returns
    -------
    Tensor of shape (n, features)
        Observed cells as they were.
    """
    sampler = gibbs(model, missing_cells(data.observed[None]), uniforms)
    mean = chain_average(
        sampler,
        sampler.init(data, start.expand(1, *data.x.shape)),
        data,
        lambda x: model.conditionals(x).mean,
        burn_in=burn_in,
        n_steps=n_steps,
    )
    return data.with_values(mean)


def draw(
    model: TruncatedGaussian,
    data: Incomplete,
    start: Tensor,
    *,
    n_draws: int,
    n_steps: int,
) -> Tensor:
    """Draw from p(x_mis | x_obs), one chain a draw; (n_draws, n, features)."""
    x = start.expand(n_draws, *data.x.shape)
    sampler = gibbs(model, missing_cells(data.observed.expand_as(x)))
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
) -> Tensor:
    """Sum over observed cells of log p(cell | observed cells outside its block).

    Column j is in block j modulo `N_BLOCKS`.  The cells of one block are hidden at a
    time, chains fill them and what was missing, and each hidden cell is scored by the
    average over the chain of its conditional density: a proper score of the held-out
    rows that needs no normalising constant.  With at most `N_BLOCKS` columns and
    nothing missing no chain is needed, and it is the pseudo-log-likelihood.

    Parameters
    ----------
    uniforms : callable
        Maps the number of the block to its random numbers.

    Returns
    -------
    Tensor of shape (n,)
    """
    n_blocks = min(N_BLOCKS, data.x.shape[1])
    block_of = torch.arange(data.x.shape[1]) % n_blocks
    left = block_of != torch.arange(n_blocks)[:, None, None]  # (blocks, 1, features)
    rest = Incomplete(data.x, data.observed & left)
    sources = [uniforms(block) for block in range(n_blocks)]

    def each(step: int, x: Tensor) -> Tensor:
        return torch.cat(
            [u(step, one[None]) for u, one in zip(sources, x, strict=True)]
        )

    sampler = gibbs(model, missing_cells(rest.observed), each)
    state = sampler.init(rest, start.expand_as(rest.observed))
    state = run_chain(sampler, state, rest, burn_in)
    score = _average_density(model, sampler, state, rest, n_steps)
    return score.where(data.observed & ~left, 0.0).sum((0, 2))


def _average_density(
    model: TruncatedGaussian,
    sampler: Sampler,
    state: State,
    rest: Incomplete,
    n_steps: int,
) -> Tensor:
    """Average the conditional density of each cell over chains, in logarithms.

    The cells' true values are in `rest.x`, under the mask.
    """
    total = torch.full(rest.observed.shape, -torch.inf, dtype=rest.x.dtype)

    def score(state: State, info: Info) -> None:
        density = model.conditionals(state.x).log_prob(rest.x)
        torch.logaddexp(total, density, out=total)

    run_chain(sampler, state, rest, n_steps, score)
    return total - log(n_steps)
