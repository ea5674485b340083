"""A fitted truncated Gaussian graph: it fills, draws and scores rows."""

from collections.abc import Callable, Iterator
from functools import partial
from math import log
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.truncated_normal import TruncatedNormal
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import Info, Sampler, State, run_chain
from skvnce._core.random import (
    Uniforms,
    global_stream,
    midpoint_levels,
    row_keyed,
    weighted_quantiles,
)
from skvnce._imputer.fitted import repeated
from skvnce._tables.values import NO_LIMITS, Limits
from skvnce.graphs import samplers
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

# ----------------------------------------
# Means of missing cells from chains, with much less noise than an average of draws.
#
# Two kinds of conditional means have closed forms, and give differences whose mean
# over draws of the model is exactly 0.  The first is that of each cell given all
# others,
#
#     e_j = E[x_j | x_-j] - x_j,                                                     (1)
#
# and the second is that of the step along each slow direction w_k, ``t_k = E[t | the
# line]`` (`graphs.samplers`).  So ``x + C e + sum_k w_k t_k / r_k`` has the right
# mean for all matrices C and numbers r_k; C = I without the sum is the mean of the
# conditionals (Rao and Blackwell).  Without truncation e and t are linear in x, and
# the matrices
#
#     C = (M^-1 - W (W'MW)^-1 W') V^-1,   M = V^-1 + O,                              (2)
#
# remove all noise.  Here V has the variances of the conditionals, O the off-diagonal
# entries of K, and W the directions, for which the sum remains.  The amplification by
# M^-1 is then bounded.  Near the truncation most of this effect is preserved by V and
# the slopes r_k of t_k from a part of the burn-in.  Each row uses the estimate that
# varies least between parts of its chain: x + e, or (2) with or without directions.

# 32 MiB in double precision
_AT_ONCE = 2**22  # maximum number of matrix entries in a batch
# steps are divided by slopes, so that smaller ones would amplify their noise
_LEAST_SLOPE = 0.2
# for directions that coincide within the missing cells, and for cells that do not vary
_LEAST, _TINY = 1e-9, 1e-30
_PARTS = 6  # parts of the chain, whose averages give the noise of each estimate
N_TABLES = 3 * _PARTS  # number of tables in memory
N_BLOCKS = 5  # number of blocks of columns that `log_predictive` hides in turn
# for the blocks of two partitions, see `blocks_of`
N_CHAINS = 2 * N_BLOCKS  # number of its chains for each row
# an odd number, so that one of them is the median
_N_POINTS = 9  # number of quantiles that represent a conditional distribution


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


def least_noisy(
    off: Tensor, observed: Tensor, known: Averages, directions: Tensor | None
) -> Tensor:  # (n, features)
    """Estimate the means of some rows by what varies least between parts of the chain.

    `off`: O of eq. (2). `directions`: (n, width, features), W.
    """
    plain = known.mean + known.error
    if len(plain) == 1:
        return plain[0]
    ways = [plain, *corrections(off, observed, known, directions)]
    # corrections are linear, and may leave the support
    ways = torch.stack([way.where(way.mean(0) > 0, plain) for way in ways])
    # observed cells have no weight in the comparison
    scale = known.mean.var(0).where(~observed, torch.inf).clamp(min=_TINY)
    # failed corrections are NaN, and never the best
    best = (ways.var(1) / scale).sum(-1).nan_to_num(torch.inf).argmin(0)
    return ways.mean(1)[best, torch.arange(len(best))]


def corrections(
    off: Tensor, observed: Tensor, known: Averages, directions: Tensor | None
) -> Iterator[Tensor]:
    """Yield the estimates of eq. (2), without and with directions.

    They are NaN in rows in which M is not positive definite.
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


def blocks_of(d: int) -> tuple[Tensor, int]:
    """Divide d columns into blocks: (blocks, d) of bool, and the number of partitions.

    With the digits of j to the base `N_BLOCKS`, column j is in the block of its
    last digit in one partition, and of the sum of its digits in the other. So
    columns that are hidden together in one are separate in the other, up to
    `N_BLOCKS` squared columns.
    """
    columns, blocks = torch.arange(d), torch.arange(min(N_BLOCKS, d))[:, None]
    last = columns % N_BLOCKS == blocks
    if d <= N_BLOCKS:
        return last, 1
    digits, rest = torch.zeros_like(columns), columns
    while rest.any():
        digits, rest = digits + rest % N_BLOCKS, rest // N_BLOCKS
    return torch.cat([last, digits % N_BLOCKS == blocks]), 2


# ----------------------------------------
# Prediction of the missing cells of new rows by a fitted model.


class Chains(NamedTuple):
    """Gibbs chains of a model that predict the missing cells of rows."""

    model: TruncatedGaussian
    data: Incomplete
    start: Tensor  # (features,), where the chains start
    burn_in: int
    n_steps: int
    # those that are keyed by the row make results functions of each row
    uniforms: Uniforms = global_stream

    @torch.no_grad()
    def conditional_mean(self) -> Tensor:  # (n, features)
        """Estimate E[x_mis | x_obs] from one chain a row.

        Exact in rows that miss one cell, and if truncation has no effect.
        """
        model, data = self.model, self.data
        sampler, lines = self._sampler()
        averages = self._averages(sampler, lines)
        means = (averages.mean + averages.error).mean(0)
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
                    directions = samplers.directions_of(lines, place[rows])
                some = averages.take(rows)
                means[rows] = least_noisy(off, data.observed[rows], some, directions)
        return data.with_values(means)

    @torch.no_grad()
    def approximate_mean(self) -> Tensor:  # (n, features)
        """Estimate E[x_mis | x_obs] by the average of E[x_j | x_-j] over a chain a row.

        Cheaper than `conditional_mean`, and noisier with many correlated missing cells.
        """
        model, data = self.model, self.data
        sampler = samplers.block_gibbs(model, samplers.missing_of(data.observed[None]))
        cells = (~data.observed).nonzero(as_tuple=True)
        scale = model.precision.diagonal().rsqrt()[cells[1]]
        total = torch.zeros_like(scale)

        def add(state: State, info: Info) -> None:
            x = state.x[0]
            force = (model.linear - x @ model.precision)[cells]
            loc = x[cells] + force * scale.square()
            total.add_(TruncatedNormal(loc, scale, validate_args=False).mean)

        state = run_chain(sampler, self._first(sampler), data, self.burn_in)
        run_chain(sampler, state, data, self.n_steps, add)
        return data.x.index_put(cells, total / self.n_steps)

    @torch.no_grad()
    def quantiles(self, levels: Tensor) -> Tensor:  # (n_levels, n, features)
        """Estimate quantiles of p(x_j | x_obs) from one chain a row.

        The conditional distributions of a cell along the chain, in equal shares,
        represent its distribution. All are shifted to the mean of `conditional_mean`,
        which has much less noise. Quantiles are exact in rows that miss one cell.
        """
        data, mean = self.data, self.conditional_mean()
        sampler, _ = self._sampler()
        tables: list[Tensor] = []
        state = run_chain(sampler, self._first(sampler), data, self.burn_in)
        run_chain(
            sampler, state, data, self.n_steps, lambda s, _: tables.append(s.x[0])
        )
        cells, equal = data.x.new_zeros(len(levels), *data.x.shape), data.x.new_ones(())
        for j, rows in enumerate(~data.observed.T):
            given = self.model.conditional(torch.stack([x[rows] for x in tables]), j)
            inner = midpoint_levels(_N_POINTS, data.x)[:, None, None]
            points = given.icdf(inner.expand(-1, *given.loc.shape)).flatten(0, 1)
            shift = mean[rows, j] - given.mean.mean(0)
            cells[:, rows, j] = weighted_quantiles(points, equal, levels) + shift
        # a shift may leave the support
        return data.with_values(cells.clamp(min=0))

    @torch.no_grad()
    def log_predictive(self, uniforms: Callable[[int], Uniforms]) -> Tensor:  # (n,)
        """Sum over observed cells of log p(cell | observed cells outside its block).

        One block of columns is hidden at a time. Chains fill it and the missing cells,
        and each hidden cell is scored by its conditional density, averaged over the
        chain: a proper score without a normalising constant. The result is the mean
        over the partitions of `blocks_of`. With at most `N_BLOCKS` columns and no
        missing values it is the pseudo-log-likelihood. `uniforms`: maps the number of
        the block to its numbers.
        """
        data, (blocks, n_ways) = self.data, blocks_of(self.data.x.shape[1])
        # x keeps the hidden values, at which the densities are averaged
        rest = Incomplete(data.x, data.observed & ~blocks[:, None])
        sources = [uniforms(block) for block in range(len(blocks))]
        total = torch.full(rest.observed.shape, -torch.inf, dtype=rest.x.dtype)

        def each(step: int, x: Tensor) -> Tensor:
            pairs = zip(sources, x, strict=True)
            return torch.cat([u(step, table[None]) for u, table in pairs])

        def score(state: State, info: Info) -> None:
            density = self.model.conditionals(state.x).log_prob(rest.x)
            torch.logaddexp(total, density, out=total)

        missing = samplers.missing_of(rest.observed)
        sampler = samplers.block_gibbs(self.model, missing, each)
        state = sampler.init(rest, self.start.expand_as(rest.observed))
        state = run_chain(sampler, state, rest, self.burn_in)
        run_chain(sampler, state, rest, self.n_steps, score)
        hidden = data.observed & blocks[:, None]
        scores = (total - log(self.n_steps)).where(hidden, 0.0)
        return scores.sum((0, 2)) / n_ways

    def _sampler(self) -> tuple[Sampler, samplers.Lines | None]:
        missing = samplers.missing_of(self.data.observed[None])
        lines = samplers.lines_of(self.model.precision, missing.patterns)
        make = samplers.block_gibbs
        return make(self.model, missing, self.uniforms, lines=lines), lines

    def _first(self, sampler: Sampler) -> State:
        return sampler.init(self.data, self.start.expand(1, *self.data.x.shape))

    def _averages(self, sampler: Sampler, lines: samplers.Lines | None) -> Averages:
        """Run the chains and average over their parts."""
        model, data, n_steps = self.model, self.data, self.n_steps
        # the first half of the burn-in forgets the start
        n_parts, n_looks = min(_PARTS, n_steps), self.burn_in // 2
        shape, width = data.x.shape, 0 if lines is None else lines.basis.shape[1]
        mean, given = torch.zeros(2, n_parts, *shape).to(data.x)
        steps = torch.zeros(n_parts, shape[0], width).to(data.x)
        variance = torch.zeros(shape).to(data.x)
        slopes = torch.zeros(shape[0], width).to(data.x)
        seen, counts = [0], torch.zeros(n_parts, 1, 1).to(data.x)

        def look(state: State, info: Info) -> None:
            variance.add_(model.conditionals(state.x[0]).variance / n_looks)
            if lines is not None:
                found = samplers.step_slopes(lines, model, state.x)
                slopes.index_add_(0, lines.rows, found.T / n_looks)

        def add(state: State, info: Info) -> None:
            part = seen[0] * n_parts // n_steps
            mean[part] += state.x[0]
            given[part] += model.conditionals(state.x[0]).mean
            if lines is not None:
                found = samplers.expected_steps(lines, model, state.x)
                steps[part].index_add_(0, lines.rows, found.T)
            seen[0], counts[part] = seen[0] + 1, counts[part] + 1

        first = self._first(sampler)
        state = run_chain(sampler, first, data, self.burn_in - n_looks)
        state = run_chain(sampler, state, data, n_looks, look)
        run_chain(sampler, state, data, n_steps, add)
        # values without truncation
        if not n_looks:
            variance.copy_(model.precision.diagonal().reciprocal().expand(shape))
            slopes.fill_(1.0)
        error = (given - mean).masked_fill(data.observed, 0.0)
        totals = (total / counts for total in (mean, error, steps))
        return Averages(*totals, variance, slopes)


def draw(
    model: TruncatedGaussian,
    data: Incomplete,
    start: Tensor,
    n_draws: int,
    n_steps: int,
) -> Tensor:
    """Draw from p(x_mis | x_obs), one chain for each draw; (n_draws, n, features)."""
    x = start.expand(n_draws, *data.x.shape)
    missing = samplers.missing_of(data.observed.expand_as(x))
    sampler = samplers.block_gibbs(model, missing)
    return run_chain(sampler, sampler.init(data, x), data, n_steps).x


class GraphParameters(NamedTuple):
    """The parameters of a truncated Gaussian of columns, in the units of the table."""

    precision: np.ndarray  # (n_model_columns, n_model_columns)
    linear: np.ndarray  # (n_model_columns,)
    log_scale: float
    location: np.ndarray  # (n_model_columns,), where chains start
    # (2, n_model_columns), location and scale of the marginals: noise to contrast with
    noise: np.ndarray

    def module(self) -> TruncatedGaussian:
        """Make the module of the density, without gradients."""
        parameters = map(torch.tensor, (self.precision, self.linear))
        log_scale = torch.tensor(self.log_scale, dtype=torch.float64)
        return TruncatedGaussian(*parameters, log_scale).requires_grad_(False)

    def cell_model(self, n_steps: int) -> "GraphModel":
        """Make the model of cells, whose chains have `n_steps` sweeps."""
        return GraphModel(self.module(), torch.from_numpy(self.location), n_steps)


class GraphModel(NamedTuple):
    """A truncated Gaussian of columns, in the units of the table."""

    model: TruncatedGaussian
    start: Tensor  # (n_model_columns,), where chains start
    n_steps: int  # number of sweeps of a chain

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return N_TABLES if n_draws is None else n_draws

    @property
    def n_points(self) -> int:
        """The number of tables in memory when quantiles are computed."""
        return self.n_steps

    def fill(
        self, nodes: np.ndarray, limits: Limits = NO_LIMITS
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by their conditional means; see `CellModel`."""
        return self._chains(nodes).conditional_mean().numpy(), {}

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> tuple[np.ndarray, dict]:
        """Find quantiles of missing cells; see `_imputer.fill`."""
        return self._chains(nodes).quantiles(torch.tensor(levels)).numpy(), {}

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        n_steps = self.n_steps + self.n_steps // 2  # as many sweeps as `fill` makes
        data = Incomplete.from_array(nodes)
        return draw(self.model, data, self.start, n_draws, n_steps).numpy()

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Score rows by their held-out cells, and estimate errors; each (n,)."""
        return repeated(partial(self._log_predictive, nodes), with_errors=with_errors)

    def _chains(self, nodes: np.ndarray) -> Chains:
        """Make chains that predict cells as functions of the row."""
        data, lengths = Incomplete.from_array(nodes), (self.n_steps // 2, self.n_steps)
        return Chains(self.model, data, self.start, *lengths, row_keyed(nodes, 0))

    def _log_predictive(self, nodes: np.ndarray, number: int) -> np.ndarray:
        """Estimate the scores; others with another number."""
        # 0 is the key of `fill`, and each of the chains has its own
        first = 1 + N_CHAINS * number
        score = self._chains(nodes).log_predictive
        return score(lambda block: row_keyed(nodes, first + block)).numpy()
