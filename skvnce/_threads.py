"""Threads of linear algebra: how many.

Batches of small matrices take one thread.  Threads that share such a batch mostly wait
for each other, for seconds where other processes hold the cores.

Three pools act: that of numpy's BLAS, of the whole process; that of OpenMP, which torch
uses, of each Python thread; and MKL, linked into torch, where threadpoolctl does not
see it: it follows OpenMP only until something calls `torch.set_num_threads`.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from pathlib import Path
from threading import RLock

import torch
from threadpoolctl import ThreadpoolController

_SMALL = 64  # features up to which one BLAS thread is faster than several

# limits and torch's stream belong to the process: one thread at a time, and one lock
# for both, so that no two threads wait for each other
PROCESS = RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread, and restore what was on exit."""
    with PROCESS, ExitStack() as limits:
        torch.get_num_threads()  # first in a thread it sets what is limited below
        limits.enter_context(_one_thread_of_mkl())
        limits.enter_context(_controller(len(sys.modules)).limit(limits=1))
        yield


@contextmanager
def threads_for(n_features: int) -> Iterator[None]:
    """Take one thread for small matrices, where several only wait; else leave all."""
    if n_features <= _SMALL:
        with one_thread():
            yield
    else:
        with PROCESS:
            yield


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Look for libraries of threads, again after an import: it takes 10 ms."""
    return ThreadpoolController()


@contextmanager
def _one_thread_of_mkl() -> Iterator[None]:
    """Limit the MKL inside of torch, in this Python thread where it can be found."""
    limit = _mkl_limit()
    before = limit(1)
    try:
        yield
    finally:
        limit(before)


@cache
def _mkl_limit() -> Callable[[int], int]:
    """Find the function that sets a limit and returns the one before."""
    if not torch.backends.mkl.is_available():
        return lambda number: number
    for path in Path(torch.__file__).parent.glob("lib/*torch_cpu.*"):
        try:
            return ctypes.CDLL(os.fspath(path)).MKL_Set_Num_Threads_Local
        except (OSError, AttributeError):  # a library for linking; not exported
            continue
    return _limit_of_process


def _limit_of_process(number: int) -> int:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    return before
