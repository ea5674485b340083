"""The form of a sampler, the one function that runs a chain, and averages over it."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class State(NamedTuple):
    """Where a chain stands: completed tables (*chains, n, features), steps made."""

    x: Tensor
    step: int = 0


class Sampler(NamedTuple):
    """One move of the missing cells; the observed ones never change."""

    step: Callable[[State], State]


def run_chain(
    sampler: Sampler,
    state: State,
    n_steps: int,
    visit: Callable[[Tensor], None] = lambda x: None,
) -> State:
    """Make `n_steps` moves and show the completed tables after each to `visit`."""
    for _ in range(n_steps):
        state = sampler.step(state)
        visit(state.x)
    return state


def chain_average(
    sampler: Sampler,
    state: State,
    value: Callable[[Tensor], Tensor],
    *,
    burn_in: int,
    n_steps: int,
) -> Tensor:
    """Average a function of the completed table over one chain, after `burn_in` moves.

    Parameters
    ----------
    sampler : Sampler
    state : State
        Of one chain: tables (1, n, features).
    value : callable
        Maps the table (n, features) to numbers of its shape: a cell's conditional mean
        given all others of its row, for one (Rao-Blackwell).

    Returns
    -------
    Tensor of shape (n, features)
    """
    total = torch.zeros_like(state.x[0])

    def add(x: Tensor) -> None:
        total.add_(value(x[0]))

    run_chain(sampler, run_chain(sampler, state, burn_in), n_steps, add)
    return total / n_steps
