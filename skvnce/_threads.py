"""One thread for batches of small matrices.

Threads that share such a batch mostly wait for each other, for seconds where other
processes hold the cores.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock

from threadpoolctl import ThreadpoolController

# limits and torch's stream belong to the process: one thread at a time, and one lock
# for both, so that no two threads wait for each other
PROCESS = RLock()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks for libraries: once, when all are loaded


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread, and restore what was on exit."""
    with PROCESS, _controller().limit(limits=1):
        yield
