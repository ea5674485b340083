"""Gibbs sampling of missing cells from a model's exact univariate conditionals.

All missingness patterns are updated in one sweep: column j is drawn simultaneously in
all rows (and chains) that miss it.
"""

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.base import UnivariateConditionals
from skvnce.samplers.base import Info, Sampler, State
from skvnce.variational.base import Uniforms, global_stream

Cells = list[tuple[int, tuple[Tensor, ...]]]


def missing_cells(observed: Tensor) -> Cells:
    """List (column, indices of rows that miss it), without complete columns.

    `observed` (bool (*chains, n, features)).
    """
    rows = [(~column).nonzero(as_tuple=True) for column in observed.unbind(-1)]
    return [(j, index) for j, index in enumerate(rows) if index[0].numel()]


def antithetic(step: int, x: Tensor) -> Tensor:
    """Draw u for the first of two chains, and 1 - u for the second.

    Each chain is a Gibbs sampler; the average of both estimates linear functions of the
    draws with much less noise.
    """
    u = torch.rand_like(x[0])
    # u may be 0, and quantiles need numbers below 1
    return torch.stack([u, (1 - u).clamp(max=1 - torch.finfo(x.dtype).eps)])


def gibbs(
    # its conditionals have an `icdf`, through which each cell is drawn
    model: UnivariateConditionals,
    # from `missing_cells`, of all chains: listed once, not in each of many sweeps
    missing: Cells,
    # maps (step, x) to numbers in [0, 1) of the shape of x
    uniforms: Uniforms = global_stream,
) -> Sampler[State, Info]:
    """Build a systematic-scan Gibbs sampler over the missing cells."""

    def init(data: Incomplete, x: Tensor) -> State:
        return State(data.with_values(x))

    @torch.no_grad()
    def step(state: State, data: Incomplete) -> tuple[State, Info]:
        # a copy, because the caller may keep the old state
        x, u = state.x.clone(), uniforms(state.step, state.x)
        for j, rows in missing:
            x[(*rows, j)] = model.conditional(x[rows], j).icdf(u[(*rows, j)])
        return State(x, state.step + 1), Info()

    return Sampler(init, step)
