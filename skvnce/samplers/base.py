"""The form of a sampler, and the one function that runs a chain."""

from collections.abc import Callable
from typing import NamedTuple

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
