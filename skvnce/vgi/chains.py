"""Gibbs sampling with variational conditionals, and with a correction towards a model.

Each step draws one missing cell of every row from q(x_j | x).  Columns are visited in
random order, and each missing one once before the next pass.

Simkus, Rhodes and Gutmann (2023), algorithm 5, and algorithm 6 for the hypercube; their
appendix H suggests Metropolis-Hastings instead.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce._core.distributions.functions import at_quantiles
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import Density
from skvnce._core.posteriors import GibbsConditionals, Uniforms, global_stream
from skvnce._core.samplers import Sampler, accept


class Scan(NamedTuple):
    """State of the chains, and the order in which they visit columns."""

    x: Tensor  # (*chains, n, features)
    # int (*chains, n, features): columns of each row, first the missing ones, in random
    # order
    order: Tensor
    n_missing: Tensor  # int (n,)
    step: int = 0
    log_prob: Tensor | None = None  # (*chains, n): log p(x), if the sampler has a model


class Visit(NamedTuple):
    """Diagnostics of a step."""

    # int (*chains, n): the (last) column drawn; undefined for complete rows
    columns: Tensor
    # bool (*chains, n): whether a draw was outside the hypercube and was rejected
    outside: Tensor
    # (*chains, n): acceptance probability of the draws, if there is a model
    acceptance: Tensor | None = None


class Hypercube(NamedTuple):
    """Smallest and largest values of columns in chains."""

    low: Tensor  # (features,)
    high: Tensor  # (features,)

    def on(self, device: torch.device) -> Self:
        """Return it on a device."""
        return type(self)(self.low.to(device), self.high.to(device))

    def outside(self, value: Tensor, columns: Tensor) -> Tensor:
        """Return which values (*batch,) of columns (*batch,) are not inside."""
        # negated, so that NaN is outside
        return ~((value >= self.low[columns]) & (value <= self.high[columns]))


def unbounded(n_features: int) -> Hypercube:
    """Make a hypercube that holds all finite values."""
    end = torch.full((n_features,), torch.finfo(torch.float32).max)
    return Hypercube(-end, end)


def observed_hypercube(data: Incomplete) -> Hypercube:
    """Find the smallest and largest observed values."""
    low, high = (data.x.where(data.observed, end) for end in (torch.inf, -torch.inf))
    return Hypercube(low.amin(0), high.amax(0))


def scan_order(observed: Tensor, keys: Tensor) -> Tensor:
    """Sort columns at random, the missing ones of each row first.

    `observed` (bool (n, features)).  `keys` (*chains, n, features): uniform numbers.
    """
    # 2 is above all uniform numbers
    return keys.where(~observed, 2.0).argsort(-1)


def visited(state: Scan, place: Tensor | int) -> Tensor:
    """Return which column of each row is drawn at a position; (*chains, n)."""
    # a modulus of 0, of complete rows, is an error
    place = place % state.n_missing.clamp(min=1)
    place = place.expand(state.order.shape[:-1]).unsqueeze(-1)
    return state.order.gather(-1, place).squeeze(-1)


def _start(data: Incomplete, x: Tensor, uniforms: Uniforms) -> Scan:
    x = data.with_values(x)
    order = scan_order(data.observed, uniforms(0, x))
    return Scan(x, order, (~data.observed).sum(-1))


def _numbers(uniforms: Uniforms, state: Scan, count: int) -> tuple[Tensor, ...]:
    """Select uniform numbers of each row that did not determine the order."""
    number = state.step + state.x.shape[-1]
    template = state.x.new_empty(()).expand(*state.x.shape[:-1], count)
    return uniforms(number, template).unbind(-1)


def variational_gibbs(
    conditionals: GibbsConditionals,
    # a cell whose draw is outside keeps its value (algorithm 6); see `unbounded`
    hypercube: Hypercube,
    *,
    uniforms: Uniforms = global_stream,
) -> Sampler[Scan, Visit]:
    """Build the sampler of algorithm 5, which accepts all draws inside a hypercube."""

    def init(data: Incomplete, x: Tensor) -> Scan:
        return _start(data, x, uniforms)

    @torch.no_grad()
    def step(state: Scan, data: Incomplete) -> tuple[Scan, Visit]:
        columns = visited(state, state.step)
        (uniform,) = _numbers(uniforms, state, 1)
        drawn = at_quantiles(conditionals.at(state.x, columns), uniform)
        outside = hypercube.outside(drawn, columns) & (state.n_missing > 0)
        taken = ~outside & (state.n_missing > 0)
        x = _replaced(state.x, columns, drawn, taken)
        return state._replace(x=x, step=state.step + 1), Visit(columns, outside)

    return Sampler(init, step)


def metropolised_gibbs(
    # if its log p is the logarithm of an unbiased estimate of p, drawn at each call,
    # the sampler is pseudo-marginal and remains exact (Andrieu and Roberts 2009)
    model: Density,
    conditionals: GibbsConditionals,
    hypercube: Hypercube,
    *,
    # n, the number of cells in a step.  The model is evaluated once a step
    n_together: int = 1,
    uniforms: Uniforms = global_stream,
) -> Sampler[Scan, Visit]:
    """Build a sampler of p(x_mis | x_obs) of a model, for any conditionals.

    A step draws some cells one after the other, x = v_0, v_1, ..., v_n = x', of columns
    c_1, ..., c_n or, with probability 1/2, of these in reverse.  A Metropolis-Hastings
    step accepts or rejects all of them together, with the density of the reverse path,

        p(x') prod_k q_c_k(v_(k-1) | v_k) / (p(x) prod_k q_c_k(v_k | v_(k-1)))     (1)

    which is 1 if q is the model's own conditional.  The target is zero outside the
    hypercube.
    """

    @torch.no_grad()
    def init(data: Incomplete, x: Tensor) -> Scan:
        state = _start(data, x, uniforms)
        return state._replace(log_prob=model.log_prob(state.x))

    @torch.no_grad()
    def step(state: Scan, data: Incomplete) -> tuple[Scan, Visit]:
        incomplete = state.n_missing > 0
        coin, for_accept, *for_cells = _numbers(uniforms, state, n_together + 2)
        x, there, back, outside = state.x, 0.0, 0.0, torch.zeros_like(coin).bool()
        for k, uniform in enumerate(for_cells):
            place = torch.where(coin < 0.5, k, n_together - 1 - k)
            columns = visited(state, state.step * n_together + place)
            q = conditionals.at(x, columns)
            drawn, old = at_quantiles(q, uniform), _cell(x, columns)
            x = _replaced(x, columns, drawn, incomplete)
            there = there + q.log_prob(drawn)
            back = back + conditionals.back(q, x, columns).log_prob(old)
            outside = outside | (hypercube.outside(drawn, columns) & incomplete)
        log_prob = model.log_prob(x).masked_fill(outside, -torch.inf)
        log_weight = torch.stack([state.log_prob - back, log_prob - there])
        taken, acceptance = accept(log_weight, for_accept)
        taken = taken & incomplete
        return (
            state._replace(
                x=x.where(taken.unsqueeze(-1), state.x),
                # kept and not estimated again, which would not be exact
                log_prob=log_prob.where(taken, state.log_prob),
                step=state.step + 1,
            ),
            Visit(columns, outside, acceptance),
        )

    return Sampler(init, step)


def _cell(x: Tensor, columns: Tensor) -> Tensor:
    """Get one column of each row; (*batch,)."""
    return x.gather(-1, columns.unsqueeze(-1)).squeeze(-1)


def _replaced(x: Tensor, columns: Tensor, value: Tensor, taken: Tensor) -> Tensor:
    """Write a value into one column of the rows in which it was accepted."""
    value = value.to(x).where(taken, _cell(x, columns))
    return x.scatter(-1, columns.unsqueeze(-1), value.unsqueeze(-1))
