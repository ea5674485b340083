"""Control of the number of threads of linear algebra.

Batches of small matrices use one thread.  Threads that share such a batch mostly wait
for each other, for seconds if other processes use the cores.

There are three pools of threads.  That of numpy's BLAS belongs to the whole process.
That of OpenMP, which torch uses, belongs to a Python thread.  MKL is linked into torch,
and threadpoolctl does not see it; it follows OpenMP until something calls
`torch.set_num_threads`.

A forked child inherits GNU OpenMP's record of its threads without the threads, and
would wait for them forever.  So they are stopped before a fork; they start again when
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

_SMALL = 500  # features up to which several threads may be much slower than one
_SOFT = 1  # omp_pause_soft: keeps settings


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread, and restore the limits on exit."""
    with PROCESS, ExitStack() as limits:
        torch.get_num_threads()  # the first call in a thread sets what is limited below
        limits.enter_context(_one_thread_of_mkl())
        pools = _controller(len(sys.modules))
        restore = partial(_restore, [(one, one.num_threads) for one in _blas(pools)])
        limits.enter_context(PROCESS.undone_in_child(restore))
        limits.enter_context(pools.limit(limits=1))
        yield


@contextmanager
def threads_for(n_features: int) -> Iterator[None]:
    """Use one thread for small matrices, where several mostly wait, else all."""
    if n_features <= _SMALL:
        with one_thread():
            yield
    else:
        with PROCESS:
            yield


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Find libraries with threads, again after each import: it takes 10 ms."""
    return ThreadpoolController()


def _blas(pools: ThreadpoolController) -> list[LibController]:
    return pools.select(user_api="blas").lib_controllers


def _restore(numbers: list[tuple[LibController, int]]) -> None:
    """Set the limits of the process, in a child that another thread forked."""
    for library, number in numbers:
        library.set_num_threads(number)
        getattr(library, "clear_controlling_thread", int)()  # for all of its threads


def _dismiss_threads() -> None:
    """Stop the threads of GNU OpenMP that belong to this Python thread."""
    pools = _controller(len(sys.modules)).select(prefix="libgomp")
    for library in pools.lib_controllers:
        pause = getattr(ctypes.CDLL(library.filepath), "omp_pause_resource_all", None)
        if pause is not None:  # since GCC 9
            pause(_SOFT)


# not on Windows
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_dismiss_threads)


@contextmanager
def _one_thread_of_mkl() -> Iterator[None]:
    """Limit MKL inside torch, in this Python thread, if it can be found."""
    limit = _mkl_limit()
    before = limit(1)
    try:
        yield
    finally:
        limit(before)


@cache
def _mkl_limit() -> Callable[[int], int]:
    """Find the function that sets a limit and returns the previous one."""
    if not torch.backends.mkl.is_available():
        return lambda number: number
    # libtorch_cpu.so, libtorch_cpu.dylib or torch_cpu.dll
    for path in Path(torch.__file__).parent.glob("lib/*torch_cpu.*"):
        try:
            return ctypes.CDLL(os.fspath(path)).MKL_Set_Num_Threads_Local
        except (OSError, AttributeError):  # cannot be loaded, or does not export it
            continue
    return _limit_of_process


def _limit_of_process(number: int) -> int:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    return before
