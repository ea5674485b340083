"""A fitted truncated Gaussian graph: it fills, draws and scores rows."""

from collections.abc import Callable
from functools import partial
from math import log
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import Info, State, run_chain
from skvnce._core.random import Uniforms, global_stream, row_keyed
from skvnce._imputer.fitted import Densities, Filled, repeated
from skvnce._tables.values import NO_LIMITS, Limits
from skvnce.graphs import samplers
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

_N_TABLES = 6  # number of tables in memory while means are computed
N_BLOCKS = 5  # number of blocks of columns that `log_predictive` hides in turn
# for the blocks of two partitions, see `blocks_of`
N_CHAINS = 2 * N_BLOCKS  # number of its chains for each row


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
    def mean(self) -> Tensor:  # (n, features)
        """Estimate E[x_mis | x_obs] by averages of E[x_j | x_-j] over two chains a row.

        Exact in rows that miss one cell.  The errors of antithetic chains cancel where
        truncation has no effect.
        """
        model, data = self.model, self.data
        observed = data.observed.expand(2, *data.x.shape)
        missing, total = samplers.missing_of(observed), torch.zeros_like(data.x)
        uniforms = samplers.antithetic(self.uniforms)
        sampler = samplers.block_gibbs(model, missing, uniforms)

        def add(state: State, info: Info) -> None:
            total.add_(model.conditionals(state.x).mean.mean(0))

        state = sampler.init(data, self.start.expand(observed.shape))
        state = run_chain(sampler, state, data, self.burn_in)
        run_chain(sampler, state, data, self.n_steps, add)
        return data.with_values(total / self.n_steps)

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


class GraphModel(NamedTuple):
    """A truncated Gaussian of columns, in the units of the table."""

    precision: np.ndarray  # (n_model_columns, n_model_columns)
    linear: np.ndarray  # (n_model_columns,)
    log_scale: float
    location: np.ndarray  # (n_model_columns,), where chains start
    # (2, n_model_columns), location and scale of the marginals: noise to contrast with
    noise: np.ndarray
    n_steps: int  # number of sweeps of a chain

    def module(self) -> TruncatedGaussian:
        """Make the module of the density, without gradients."""
        parameters = map(torch.tensor, (self.precision, self.linear))
        log_scale = torch.tensor(self.log_scale, dtype=torch.float64)
        return TruncatedGaussian(*parameters, log_scale).requires_grad_(False)

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return _N_TABLES if n_draws is None else n_draws

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill missing cells by their conditional means; see `CellModel`."""
        return self._chains(nodes).mean().numpy(), {}

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        n_steps = self.n_steps + self.n_steps // 2  # as many sweeps as `fill` makes
        data, start = Incomplete.from_array(nodes), torch.from_numpy(self.location)
        return draw(self.module(), data, start, n_draws, n_steps).numpy()

    def log_density(self, nodes: np.ndarray, *, with_errors: bool = False) -> Densities:
        """Score rows by their held-out cells, and estimate errors; each (n,)."""
        return repeated(partial(self._log_predictive, nodes), with_errors=with_errors)

    def _chains(self, nodes: np.ndarray) -> Chains:
        """Make chains that predict cells as functions of the row."""
        data, start = Incomplete.from_array(nodes), torch.from_numpy(self.location)
        lengths = self.n_steps // 2, self.n_steps
        return Chains(self.module(), data, start, *lengths, row_keyed(nodes, 0))

    def _log_predictive(self, nodes: np.ndarray, number: int) -> np.ndarray:
        """Estimate the scores; others with another number."""
        # 0 is the key of `fill`, and each of the chains has its own
        first = 1 + N_CHAINS * number
        score = self._chains(nodes).log_predictive
        return score(lambda block: row_keyed(nodes, first + block)).numpy()
