"""Means of missing cells from chains, with much less noise than an average of draws.

Two kinds of conditional means have closed forms, and give differences whose mean over
draws of the model is exactly 0.  The first is that of each cell given all others,

    e_j = E[x_j | x_-j] - x_j,                                                     (1)

and the second is that of the step along each slow direction w_k, ``t_k = E[t | the
line]`` (`samplers.blocks`).  So ``x + C e + sum_k w_k t_k / r_k`` has the right mean
for all matrices C and numbers r_k; C = I without the sum is the mean of the
conditionals (Rao and Blackwell).  Without truncation e and t are linear in x, and the
matrices

    C = (M^-1 - W (W'MW)^-1 W') V^-1,   M = V^-1 + O,                              (2)

remove all noise.  Here V has the variances of the conditionals, O the off-diagonal
entries of K, and W the directions, for which the sum remains.  The amplification by
M^-1 is then bounded.  Near the truncation most of this effect is preserved by V and the
slopes r_k of t_k from a part of the burn-in.  Each row uses the estimate that varies
least between parts of its chain: x + e, or (2) with or without directions.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.truncated_gaussian import TruncatedGaussian
from skvnce.samplers.base import Info, Sampler, State, run_chain
from skvnce.samplers.blocks import (
    Lines,
    block_gibbs,
    directions_of,
    expected_steps,
    lines_of,
    missing_of,
    step_slopes,
)
from skvnce.variational.base import Uniforms

# 32 MiB in double precision
_AT_ONCE = 2**22  # maximum number of matrix entries in a batch
# steps are divided by slopes, so that smaller ones would amplify their noise
_LEAST_SLOPE = 0.2
# for directions that coincide within the missing cells, and for cells that do not vary
_LEAST, _TINY = 1e-9, 1e-30
_PARTS = 6  # parts of the chain, whose averages give the noise of each estimate
N_TABLES = 3 * _PARTS  # number of tables in memory


class Averages(NamedTuple):
    """Averages over the parts of a chain, for some rows."""

    # (parts, n, features), averages of x, and of e where a cell is missing, else 0
    mean: Tensor
    error: Tensor  # (parts, n, features)
    steps: Tensor  # (parts, n, width), averages of t
    # (n, features), averages, over the burn-in, of the variances of the conditionals
    variance: Tensor
    slopes: Tensor  # (n, width), of t, over the burn-in

    def take(self, rows: Tensor) -> "Averages":
        """Return the given rows."""
        return Averages(
            *(part[:, rows] for part in self[:3]), *(part[rows] for part in self[3:])
        )


@torch.no_grad()
def chain_means(
    model: TruncatedGaussian,
    data: Incomplete,
    start: Tensor,
    uniforms: Uniforms,
    *,
    burn_in: int,
    n_steps: int,
) -> Tensor:  # (n, features)
    """Estimate E[x_mis | x_obs] from one chain a row; undefined where observed."""
    missing = missing_of(data.observed[None])
    lines = lines_of(model.precision, missing.patterns)
    sampler = block_gibbs(model, missing, uniforms, lines=lines)
    state = sampler.init(data, start.expand(1, *data.x.shape))
    found = averages(
        model, data, sampler, state, lines, burn_in=burn_in, n_steps=n_steps
    )
    means = (found.mean + found.error).mean(0)
    off = model.precision - model.precision.diagonal().diag()
    several = (~data.observed).sum(1) > 1
    with_lines = torch.zeros_like(several)
    if lines is not None:
        with_lines[lines.rows] = True
        place = torch.zeros(len(several), dtype=torch.int64)
        place[lines.rows] = torch.arange(len(lines.rows))
    batch = max(1, _AT_ONCE // off.numel())
    # rows with and without directions apart, because tensors have one shape
    for chosen in (several & ~with_lines, several & with_lines):
        places = chosen.nonzero().squeeze(1)
        for rows in places.split(batch) if len(places) else ():
            directions = None
            if with_lines[rows[0]]:
                directions = directions_of(lines, place[rows])
            known = found.take(rows)
            means[rows] = least_noisy(off, data.observed[rows], known, directions)
    return means


def averages(
    model: TruncatedGaussian,
    data: Incomplete,
    sampler: Sampler,
    state: State,
    lines: Lines | None,
    *,
    burn_in: int,
    n_steps: int,
) -> Averages:
    """Run the chains and average over their parts."""
    # the first half of the burn-in forgets the start
    n_parts, n_looks = min(_PARTS, n_steps), burn_in // 2
    shape, width = data.x.shape, 0 if lines is None else lines.basis.shape[1]
    mean, given = torch.zeros(2, n_parts, *shape).to(data.x)
    steps = torch.zeros(n_parts, shape[0], width).to(data.x)
    variance = torch.zeros(shape).to(data.x)
    slopes = torch.zeros(shape[0], width).to(data.x)
    seen, counts = [0], torch.zeros(n_parts, 1, 1).to(data.x)

    def look(state: State, info: Info) -> None:
        variance.add_(model.conditionals(state.x[0]).variance / n_looks)
        if lines is not None:
            found = step_slopes(lines, model, state.x)
            slopes.index_add_(0, lines.rows, found.T / n_looks)

    def add(state: State, info: Info) -> None:
        part = seen[0] * n_parts // n_steps
        mean[part] += state.x[0]
        given[part] += model.conditionals(state.x[0]).mean
        if lines is not None:
            found = expected_steps(lines, model, state.x)
            steps[part].index_add_(0, lines.rows, found.T)
        seen[0], counts[part] = seen[0] + 1, counts[part] + 1

    state = run_chain(sampler, state, data, burn_in - n_looks)
    state = run_chain(sampler, state, data, n_looks, look)
    run_chain(sampler, state, data, n_steps, add)
    # values without truncation
    if not n_looks:
        variance.copy_(model.precision.diagonal().reciprocal().expand(shape))
        slopes.fill_(1.0)
    error = (given - mean).masked_fill(data.observed, 0.0)
    totals = (total / counts for total in (mean, error, steps))
    return Averages(*totals, variance, slopes)


def least_noisy(
    off: Tensor, observed: Tensor, known: Averages, directions: Tensor | None
) -> Tensor:  # (n, features)
    """Estimate the means of some rows by what varies least between parts of the chain.

    `off`: (features, features), O of eq. (2). `observed`: (n, features), bool.
    `directions`: (n, width, features), W.
    """
    plain = known.mean + known.error
    if len(plain) == 1:
        return plain[0]
    ways = [plain, *corrected(off, observed, known, directions)]
    # corrections are linear, and may leave the support
    ways = torch.stack([way.where(way.mean(0) > 0, plain) for way in ways])
    # observed cells have no weight in the comparison
    scale = known.mean.var(0).where(~observed, torch.inf).clamp(min=_TINY)
    # failed corrections are NaN, and never the best
    best = (ways.var(1) / scale).sum(-1).nan_to_num(torch.inf).argmin(0)
    return ways.mean(1)[best, torch.arange(len(best))]


def corrected(
    off: Tensor, observed: Tensor, known: Averages, directions: Tensor | None
) -> Iterator[Tensor]:
    """Yield the estimates of eq. (2), without and with directions.

    They are of shape (parts, n, features), and NaN in rows in which M is not positive
    definite.
    """
    missing = (~observed).to(off)
    # the rows and columns of observed cells are those of the identity
    inverse = known.variance.reciprocal().where(~observed, 1.0)
    matrix = missing[:, :, None] * off * missing[:, None] + inverse.diag_embed()
    factor, failed = torch.linalg.cholesky_ex(matrix)
    right = (known.error * inverse).movedim(0, -1)  # (n, features, parts)
    solved = torch.cholesky_solve(right, factor)
    solved = solved.masked_fill(failed[:, None, None] > 0, torch.nan)
    yield known.mean + solved.movedim(-1, 0)
    if directions is None:
        return
    eye = torch.eye(directions.shape[1]).to(off)
    inner = directions @ matrix @ directions.mT + _LEAST * eye
    part, failed = torch.linalg.cholesky_ex(inner)
    solved = solved - directions.mT @ torch.cholesky_solve(directions @ right, part)
    solved = solved.masked_fill(failed[:, None, None] > 0, torch.nan)
    rest = known.mean + solved.movedim(-1, 0)
    for slopes in (1.0, known.slopes.clamp(min=_LEAST_SLOPE)):
        yield rest + ((known.steps / slopes)[..., None] * directions).sum(2)
