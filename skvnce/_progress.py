"""What long work tells of itself: the step that it is at, and how far it is.

Algorithms tell, and estimators listen (`estimators/_callbacks.py`).  A listener belongs
to the call of a method and to the thread that makes it; without one nothing happens.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import nan
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Step(NamedTuple):
    """A part of the work.

    Attributes
    ----------
    name : str
    number, total : int or None
        The how-manieth of how many.
    has_parts : bool
        Whether callbacks see the steps and rounds inside of it, too.
    is_brief : bool
        Whether it mostly takes so little time that nobody need hear of it.
    """

    name: str
    number: int | None = None
    total: int | None = None
    has_parts: bool = False
    is_brief: bool = False

    def __str__(self) -> str:
        """Write "drawing parameters 3 of 20"."""
        if self.number is None or self.total == 1:
            return self.name
        count = f"{self.name} {self.number}"
        return count if self.total is None else f"{count} of {self.total}"


class Listener(Protocol):
    """Who hears of steps."""

    def begin(self, step: Step) -> object:
        """Hear that a step begins; gives what `end` is called with."""

    def end(self, begun: object) -> None:
        """Hear that it ends."""

    def tell(self, step: Step) -> None:
        """Hear where the step inside of the others is."""


_LISTENER: ContextVar[Listener | None] = ContextVar("skvnce_listener", default=None)


def listener() -> Listener | None:
    """Return who listens."""
    return _LISTENER.get()


@contextmanager
def heard_by(one: Listener) -> Iterator[None]:
    """Let a listener hear of all steps inside."""
    token = _LISTENER.set(one)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def step(name: str, *numbers: int, **kinds: bool) -> Iterator[None]:
    """Tell that what is inside is a step; arguments are those of `Step`."""
    hears = _LISTENER.get()
    if hears is None:
        yield
        return
    begun = hears.begin(Step(name, *numbers, **kinds))
    try:
        yield
    finally:
        hears.end(begun)


def steps(
    name: str, items: Iterable[T], total: int | None = None, **kinds: bool
) -> Iterator[T]:
    """Go through items, each of them a step."""
    for number, item in enumerate(items, 1):
        with step(name, number, total, **kinds):
            yield item


def tell(name: str, number: int | None = None, total: int | None = None) -> None:
    """Tell where a loop is, so that nothing is silent for long."""
    hears = _LISTENER.get()
    if hears is not None:
        hears.tell(Step(name, number, total))


def tell_round(n_round: int, loss: float = nan, change: float = nan) -> bool:
    """Tell of a round of a loop that nobody stops: what `on_round` is by default."""
    tell("round", n_round)
    return False


OnRound = Callable[[int, float, float], bool]
