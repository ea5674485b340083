"""Gibbs sampling with variational conditionals, and with a correction towards a model.

Each step draws one missing cell of every row anew, from q(x_j | x).  Columns are
visited in random order, each missing one once before any comes again.

References
----------
Simkus, Rhodes and Gutmann (2023), algorithm 5, and algorithm 6 for the hypercube;
Metropolis-Hastings is what their appendix H suggests in its place.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.base import Density
from skvnce.samplers.base import Sampler
from skvnce.samplers.metropolis import accept
from skvnce.variational.base import (
    GibbsConditionals,
    Uniforms,
    ambient,
    at_quantiles,
)


class Scan(NamedTuple):
    """Where chains stand, and in which order they visit columns.

    Attributes
    ----------
    x : Tensor of shape (*chains, n, features)
    order : Tensor of int, of shape (*chains, n, features)
        Columns of each row; those it misses come first, in random order.
    n_missing : Tensor of int, of shape (n,)
    step : int
    log_prob : Tensor of shape (*chains, n) or None
        log p(x), where the sampler has a model.
    """

    x: Tensor
    order: Tensor
    n_missing: Tensor
    step: int = 0
    log_prob: Tensor | None = None


class Visit(NamedTuple):
    """What a step did.

    Attributes
    ----------
    columns : Tensor of int, of shape (*chains, n)
        Which was drawn; of complete rows none is.
    outside : Tensor of bool, of shape (*chains, n)
        Whether the draw left the hypercube, and was not taken.
    acceptance : Tensor of shape (*chains, n) or None
        Probability with which the draw was taken, where a model decides.
    """

    columns: Tensor
    outside: Tensor
    acceptance: Tensor | None = None


class Hypercube(NamedTuple):
    """Least and largest values of columns, which chains may not leave.

    Attributes
    ----------
    low, high : Tensor of shape (features,)
    """

    low: Tensor
    high: Tensor

    def outside(self, value: Tensor, columns: Tensor) -> Tensor:
        """Tell which values (*batch,) of columns (*batch,) are not inside."""
        return ~((value >= self.low[columns]) & (value <= self.high[columns]))


def unbounded(n_features: int) -> Hypercube:
    """Make a hypercube that holds all finite values."""
    end = torch.full((n_features,), torch.finfo(torch.float32).max)
    return Hypercube(-end, end)


def observed_hypercube(data: Incomplete) -> Hypercube:
    """Find least and largest observed values."""
    low, high = (data.x.where(data.observed, end) for end in (torch.inf, -torch.inf))
    return Hypercube(low.amin(0), high.amax(0))


def scan_order(observed: Tensor, keys: Tensor) -> Tensor:
    """Sort columns at random, the missing ones of each row first.

    Parameters
    ----------
    observed : Tensor of bool, of shape (n, features)
    keys : Tensor of shape (*chains, n, features)
        Uniform numbers.
    """
    return keys.where(~observed, 2.0).argsort(-1)


def visited(state: Scan) -> Tensor:
    """Tell which column of each row the next step draws; (*chains, n)."""
    place = state.step % state.n_missing.clamp(min=1)
    place = place.expand(state.order.shape[:-1]).unsqueeze(-1)
    return state.order.gather(-1, place).squeeze(-1)


def _start(data: Incomplete, x: Tensor, uniforms: Uniforms) -> Scan:
    x = data.with_values(x)
    order = scan_order(data.observed, uniforms(0, x))
    return Scan(x, order, (~data.observed).sum(-1))


def _numbers(uniforms: Uniforms, state: Scan) -> tuple[Tensor, Tensor]:
    """Take two uniform numbers a row, none of which ordered the columns."""
    number = state.step + state.x.shape[-1]
    template = state.x.new_empty(()).expand(*state.x.shape[:-1], 2)
    return uniforms(number, template).unbind(-1)


def variational_gibbs(
    conditionals: GibbsConditionals,
    hypercube: Hypercube,
    *,
    uniforms: Uniforms = ambient,
) -> Sampler[Scan, Visit]:
    """Build the sampler of algorithm 5, which takes all draws inside a hypercube.

    Parameters
    ----------
    conditionals : GibbsConditionals
    hypercube : Hypercube
        A cell whose draw falls outside keeps its value (algorithm 6); see `unbounded`.
    uniforms : callable

    Returns
    -------
    Sampler
    """

    def init(data: Incomplete, x: Tensor) -> Scan:
        return _start(data, x, uniforms)

    @torch.no_grad()
    def step(state: Scan, data: Incomplete) -> tuple[Scan, Visit]:
        columns = visited(state)
        uniform, _ = _numbers(uniforms, state)
        drawn = at_quantiles(conditionals.at(state.x, columns), uniform)
        outside = hypercube.outside(drawn, columns) & (state.n_missing > 0)
        taken = ~outside & (state.n_missing > 0)
        x = _replaced(state.x, columns, drawn, taken)
        return state._replace(x=x, step=state.step + 1), Visit(columns, outside)

    return Sampler(init, step)


def metropolised_gibbs(
    model: Density,
    conditionals: GibbsConditionals,
    hypercube: Hypercube,
    *,
    uniforms: Uniforms = ambient,
) -> Sampler[Scan, Visit]:
    """Build a sampler of p(x_mis | x_obs) of a model, whatever the conditionals.

    Each draw of q is accepted by Metropolis and Hastings, with ratio
    ``p(x') q_j(x_j | x') / (p(x) q_j(x'_j | x))``: where q is the model's own
    conditional, always.  Outside the hypercube the target is zero.

    Parameters
    ----------
    model : Density
        Where its log p is an unbiased estimate of p, drawn anew at each call, the
        sampler is pseudo-marginal and remains right (Andrieu and Roberts 2009).
    conditionals : GibbsConditionals
    hypercube : Hypercube
    uniforms : callable

    Returns
    -------
    Sampler
    """

    @torch.no_grad()
    def init(data: Incomplete, x: Tensor) -> Scan:
        state = _start(data, x, uniforms)
        return state._replace(log_prob=model.log_prob(state.x))

    @torch.no_grad()
    def step(state: Scan, data: Incomplete) -> tuple[Scan, Visit]:
        columns = visited(state)
        for_cell, for_accept = _numbers(uniforms, state)
        forward = conditionals.at(state.x, columns)
        drawn = at_quantiles(forward, for_cell)
        moved = _replaced(state.x, columns, drawn, state.n_missing > 0)
        backward = conditionals.at(moved, columns)
        old = state.x.gather(-1, columns.unsqueeze(-1)).squeeze(-1)
        outside = hypercube.outside(drawn, columns) & (state.n_missing > 0)
        log_prob = torch.where(outside, -torch.inf, model.log_prob(moved))
        log_weight = torch.stack(
            [
                state.log_prob - backward.log_prob(old),
                log_prob - forward.log_prob(drawn),
            ]
        )
        taken, acceptance = accept(log_weight, for_accept)
        taken = taken & (state.n_missing > 0)
        return (
            state._replace(
                x=moved.where(taken.unsqueeze(-1), state.x),
                log_prob=log_prob.where(taken, state.log_prob),
                step=state.step + 1,
            ),
            Visit(columns, outside, acceptance),
        )

    return Sampler(init, step)


def _replaced(x: Tensor, columns: Tensor, value: Tensor, taken: Tensor) -> Tensor:
    """Put a value into one column of the rows in which it is taken."""
    place = columns.unsqueeze(-1)
    old = x.gather(-1, place).squeeze(-1)
    return x.scatter(-1, place, value.to(x).where(taken, old).unsqueeze(-1))
