"""Threads of linear algebra: how many.

Batches of small matrices take one thread.  Threads that share such a batch mostly wait
for each other, for seconds where other processes hold the cores.

Three pools act: that of numpy's BLAS, of the whole process; that of OpenMP, which torch
uses, of each Python thread; and MKL, linked into torch, where threadpoolctl does not
see it: it follows OpenMP only until something calls `torch.set_num_threads`.

A forked child inherits GNU OpenMP's record of its threads without the threads, and
would wait for them without end: they are dismissed before a fork, and start again when
they are needed.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache, partial
from pathlib import Path

import torch
from threadpoolctl import LibController, ThreadpoolController

from skvnce._forks import PROCESS

_SMALL = 500  # features up to which several threads may be many times as slow as one
_SOFT = 1  # omp_pause_soft: settings stay


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread, and restore what was on exit."""
    with PROCESS, ExitStack() as limits:
        torch.get_num_threads()  # first in a thread it sets what is limited below
        limits.enter_context(_one_thread_of_mkl())
        pools = _controller(len(sys.modules))
        restore = partial(_restore, [(one, one.num_threads) for one in _blas(pools)])
        limits.enter_context(PROCESS.undone_in_child(restore))
        limits.enter_context(pools.limit(limits=1))
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


def _blas(pools: ThreadpoolController) -> list[LibController]:
    return pools.select(user_api="blas").lib_controllers


def _restore(numbers: list[tuple[LibController, int]]) -> None:
    """Set what belongs to the process, in a child that another thread forked."""
    for library, number in numbers:
        library.set_num_threads(number)
        getattr(library, "clear_controlling_thread", int)()  # for all of its threads


def _dismiss_threads() -> None:
    """Let the threads of GNU OpenMP that serve this Python thread end."""
    pools = _controller(len(sys.modules)).select(prefix="libgomp")
    for library in pools.lib_controllers:
        pause = getattr(ctypes.CDLL(library.filepath), "omp_pause_resource_all", None)
        if pause is not None:  # since GCC 9
            pause(_SOFT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_dismiss_threads)


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
