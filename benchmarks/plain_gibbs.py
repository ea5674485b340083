"""Plain Gibbs sampling of missing cells, with which sweeps along lines are compared."""

import torch
from torch import Tensor

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import Info, Sampler, State
from skvnce._core.random import Uniforms, global_stream

Cells = list[tuple[int, tuple[Tensor, ...]]]


def missing_cells(observed: Tensor) -> Cells:
    """List (column, indices of rows that miss it), without complete columns."""
    rows = [(~column).nonzero(as_tuple=True) for column in observed.unbind(-1)]
    return [(j, index) for j, index in enumerate(rows) if index[0].numel()]


def gibbs(
    # its conditionals have an `icdf`, through which each cell is drawn
    model: torch.nn.Module,
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
