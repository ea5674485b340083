"""The interface of samplers, the function that runs a chain, and averages over chains.

A sampler is two pure functions, ``init(data, x) -> state`` and ``step(state, data) ->
(state, info)``.  States hold completed tables x of shape (*chains, n, features), so
that one sampler can continue where another stopped: ``mwg.init(data, state.x)``.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import tell


class State(NamedTuple):
    """State of chains: completed tables (*chains, n, features), number of steps."""

    x: Tensor
    step: int = 0


class Info(NamedTuple):
    """Diagnostics of a step.

    Attributes
    ----------
    acceptance : Tensor of shape (*chains, n) or None
        Probability with which the row's proposal was accepted; None if a sampler
        accepts all proposals.
    """

    acceptance: Tensor | None = None


StateT = TypeVar("StateT", bound=tuple)
InfoT = TypeVar("InfoT", bound=tuple)


class Sampler(NamedTuple, Generic[StateT, InfoT]):
    """An update of the missing cells; the observed cells never change.

    Attributes
    ----------
    init : callable
        Maps a table and completed tables x (*chains, n, features), of which only the
        missing cells are used, to a state.  For most samplers x is optional.
    step : callable
        Maps a state and the table to the next state and the diagnostics of the step.
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
    """Make `n_steps` moves; call `visit` with the state and the info after each."""
    for n_step in range(1, n_steps + 1):
        tell("sweep", n_step, n_steps)
        state, info = sampler.step(state, data)
        visit(state, info)
    return state
