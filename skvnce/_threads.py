"""The lock of the process, and control of the number of threads of linear algebra.

Batches of small matrices use one thread.  Threads that share such a batch mostly wait
for each other, for seconds if other processes use the cores.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock

import torch
from threadpoolctl import ThreadpoolController

# of what belongs to the whole process: limits of threads, torch's random stream
PROCESS = RLock()
_SMALL = 500  # features up to which several threads may be much slower than one


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread, and restore the limits on exit."""
    with PROCESS:
        torch.get_num_threads()  # the first call in a thread sets what is limited below
        with _controller(len(sys.modules)).limit(limits=1):
            yield


@contextmanager
def threads_for(n_features: int) -> Iterator[None]:
    """Use one thread for small matrices, where several mostly wait, else all."""
    with one_thread() if n_features <= _SMALL else PROCESS:
        yield


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Find libraries with threads, again after each import: it takes 10 ms."""
    return ThreadpoolController()
