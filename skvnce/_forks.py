"""A lock for state of the whole process that forks of other threads respect.

Limits of threads and torch's random stream are set inside the lock and restored on
exit.  If another thread calls `os.fork` meanwhile, the child has only that thread.  It
could never release the lock, nor a lock inside torch that is held at that moment.  So a
fork waits until the holder is between two steps (`ForkLock.let_forks_pass`) or has left
the lock; the child gets a free lock and the previous settings.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock, get_ident
from time import monotonic, sleep

_PATIENCE = 60.0  # seconds; avoids a deadlock with a holder that waits for the fork


class ForkLock:
    """A reentrant lock that is free in a forked child."""

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork_in_parent,
                after_in_child=self._after_fork_in_child,
            )

    def __enter__(self) -> None:
        self._lock.acquire()
        self._holder, self._depth = get_ident(), self._depth + 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            # before the release, after which another thread may be the holder
            self._holder = None
        self._lock.release()

    @contextmanager
    def undone_in_child(self, restore: Callable[[], None]) -> Iterator[None]:
        """Hold the lock; restore a setting in children that other threads fork."""
        with self:
            self._settings.append(restore)
            try:
                yield
            finally:
                self._settings.pop()

    def let_forks_pass(self) -> None:
        """Wait while other threads fork; the holder calls this between two steps."""
        # without the gate, because chains call this at each step
        if self._holder != get_ident() or not self._waiting:
            return
        self._paused = True
        while True:
            # under the gate, so that no fork begins between the check and the end of
            # the pause
            with self._gate:
                if not self._waiting:
                    self._paused = False
                    return
            sleep(0.001)

    def _reset(self) -> None:
        self._lock, self._holder, self._depth = RLock(), None, 0
        self._settings: list[Callable[[], None]] = []
        self._gate, self._paused = Lock(), False
        self._waiting: dict[int, bool] = {}  # forking threads: do they hold the lock

    def _before_fork(self) -> None:
        me, end = get_ident(), monotonic() + _PATIENCE
        with self._gate:
            self._waiting[me] = False
        # in short waits, because the holder may pause without a release
        while not self._lock.acquire(timeout=0.01):
            if self._paused or monotonic() > end:
                return
        self._waiting[me] = True

    def _after_fork_in_parent(self) -> None:
        with self._gate:
            mine = self._waiting.pop(get_ident())
        if mine:
            self._lock.release()

    def _after_fork_in_child(self) -> None:
        if self._waiting.pop(get_ident()):
            # another thread, which the child lacks, may have held the gate
            self._gate, self._waiting = Lock(), {}
            self._lock.release()
            return
        settings = self._settings
        self._reset()
        # the last setting first, as the contexts would exit
        for restore in reversed(settings):
            restore()


PROCESS = ForkLock()
