"""The form of a sampler, the one function that runs a chain, and averages over it.

A sampler is two pure functions, ``init(data, x) -> state`` and ``step(state, data) ->
(state, info)``.  States hold completed tables x of shape (*chains, n, features), so
that one sampler goes on where another stopped: ``mwg.init(data, state.x)``.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import tell


class State(NamedTuple):
    """Where a chain stands: completed tables (*chains, n, features), steps made."""

    x: Tensor
    step: int = 0


class Info(NamedTuple):
    """What one step tells of itself.

    Attributes
    ----------
    acceptance : Tensor of shape (*chains, n) or None
        Probability with which the row's proposal was accepted; None where a sampler
        accepts all.
    """

    acceptance: Tensor | None = None


StateT = TypeVar("StateT", bound=tuple)
InfoT = TypeVar("InfoT", bound=tuple)


class Sampler(NamedTuple, Generic[StateT, InfoT]):
    """One move of the missing cells; the observed ones never change.

    Attributes
    ----------
    init : callable
        Maps a table and completed tables x (*chains, n, features), of which only the
        missing cells are read, to a state.  Most samplers can do without x.
    step : callable
        Maps a state and the table to the next state and what is told of the step.
    """

    init: Callable[..., StateT]
    step: Callable[[StateT, Incomplete], tuple[StateT, InfoT]]


def ignore(state: StateT, info: InfoT) -> None:
    """Do nothing with a step."""


def run_chain(
    sampler: Sampler[StateT, InfoT],
    state: StateT,
    data: Incomplete,
    n_steps: int,
    visit: Callable[[StateT, InfoT], None] = ignore,
) -> StateT:
    """Make `n_steps` moves and show the state and the info after each to `visit`."""
    for n_step in range(1, n_steps + 1):
        tell("sweep", n_step, n_steps)
        state, info = sampler.step(state, data)
        visit(state, info)
    return state


def chain_average(
    sampler: Sampler[StateT, InfoT],
    state: StateT,
    data: Incomplete,
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
    data : Incomplete
    value : callable
        Maps the table (n, features) to numbers of its shape: a cell's conditional mean
        given all others of its row, for one (Rao-Blackwell).
    burn_in, n_steps : int

    Returns
    -------
    Tensor of shape (n, features)
    """
    total = torch.zeros_like(state.x[0])

    def add(state: StateT, info: InfoT) -> None:
        total.add_(value(state.x[0]))

    state = run_chain(sampler, state, data, burn_in)
    run_chain(sampler, state, data, n_steps, add)
    return total / n_steps
