"""Reports of progress: the current step of a computation, and its position in loops.

Algorithms report events, and estimators listen (`_imputer/callbacks.py`).  A
listener belongs to the call of a method and to its thread; without a listener nothing
happens.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import nan
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Step(NamedTuple):
    """A step of the computation."""

    name: str
    number: int | None = None  # its number, and the number of such steps
    total: int | None = None
    has_parts: bool = False  # whether callbacks also see the steps and rounds inside it
    is_brief: bool = False  # whether it usually takes too little time to be reported

    def __str__(self) -> str:
        """Format the step as "drawing parameters 3 of 20"."""
        if self.number is None or self.total == 1:
            return self.name
        count = f"{self.name} {self.number}"
        return count if self.total is None else f"{count} of {self.total}"


class Listener(Protocol):
    """The interface of listeners."""

    def begin(self, step: Step) -> object:
        """Receive the start of a step; return the argument of `end`."""

    def end(self, begun: object) -> None:
        """Receive the end of a step."""

    def tell(self, step: Step) -> None:
        """Receive the position of the innermost loop."""


_LISTENER: ContextVar[Listener | None] = ContextVar("skvnce_listener", default=None)


def listener() -> Listener | None:
    """Return the current listener."""
    return _LISTENER.get()


@contextmanager
def heard_by(receiver: Listener | None) -> Iterator[None]:
    """Send all events inside the context to a listener; None ignores them."""
    token = _LISTENER.set(receiver)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def step(name: str, *numbers: int, **kinds: bool) -> Iterator[None]:
    """Report the context as a step; arguments are those of `Step`."""
    receiver = listener()
    if receiver is None:
        yield
        return
    begun = receiver.begin(Step(name, *numbers, **kinds))
    try:
        yield
    finally:
        # also if the step raises an error, so that lines about outer steps stay right
        receiver.end(begun)


def steps(
    name: str, items: Iterable[T], total: int | None = None, **kinds: bool
) -> Iterator[T]:
    """Iterate over items, and report each as a step."""
    for number, item in enumerate(items, 1):
        with step(name, number, total, **kinds):
            yield item


def tell(name: str, number: int | None = None, total: int | None = None) -> None:
    """Report the position of a loop, so that long loops show progress."""
    receiver = listener()
    if receiver is not None:
        receiver.tell(Step(name, number, total))


def tell_round(n_round: int, loss: float = nan, change: float = nan) -> bool:
    """Report a round of a loop that nobody stops; the default of `on_round`."""
    tell("round", n_round)
    return False


OnRound = Callable[[int, float, float], bool]


def rounds_of_tuning() -> int:
    """Count the rounds so far that were not reported through `on_round`."""
    return listener().n_unreported
