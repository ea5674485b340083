"""Gibbs sampling of missing cells from a model's exact univariate conditionals.

All missingness patterns move in one sweep: column j is redrawn at once in all rows
(and chains) that miss it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from skvnce.models.base import UnivariateConditionals
from skvnce.samplers.base import Sampler, State


def gibbs(
    model: UnivariateConditionals,
    observed: Tensor,
    uniforms: Callable[[int, Tensor], Tensor] = lambda step, x: torch.rand_like(x),
) -> Sampler:
    """Build a systematic-scan Gibbs sampler over the missing cells.

    Parameters
    ----------
    model : UnivariateConditionals
        Its conditionals have an `icdf`, through which each cell is drawn.
    observed : Tensor of bool, of shape (*chains, n, features)
    uniforms : callable
        Maps (step, x) to numbers in [0, 1) of the shape of x; torch's stream by
        default.
    """
    missing = [
        (j, rows)
        for j in range(observed.shape[-1])
        if (rows := (~observed[..., j]).nonzero(as_tuple=True))[0].numel()
    ]

    @torch.no_grad()
    def step(state: State) -> State:
        x, u = state.x.clone(), uniforms(state.step, state.x)
        for j, rows in missing:
            x[(*rows, j)] = model.conditional(x[rows], j).icdf(u[(*rows, j)])
        return State(x, state.step + 1)

    return Sampler(step)
