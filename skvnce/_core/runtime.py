"""The lock of the process, and control of the number of threads of linear algebra.

Batches of small matrices use one thread.  Threads that share such a batch mostly wait
for each other, for seconds if other processes use the cores.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from threading import Lock, RLock

import torch
from threadpoolctl import ThreadpoolController
from torch import nn

from skvnce._types import Method

# of what belongs to the whole process: limits of threads, torch's random stream
PROCESS = RLock()
_SMALL = 500  # features up to which several threads may be much slower than one


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread, and restore the limits on exit.

    Other Python threads that use torch for the first time meanwhile stay at one thread.
    """
    with PROCESS:
        n_threads = torch.get_num_threads()
        with _controller(len(sys.modules)).limit(limits=1):
            # MKL is linked into torch, where threadpoolctl does not see it
            torch.set_num_threads(1)
            try:
                yield
            finally:
                torch.set_num_threads(n_threads)


@contextmanager
def threads_for(n_features: int) -> Iterator[None]:
    """Use one thread for small matrices, where several mostly wait, else all."""
    with one_thread() if n_features <= _SMALL else PROCESS:
        yield


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Find libraries with threads, again after each import: it takes 10 ms."""
    return ThreadpoolController()


# ----------------------------------------
# The device on which torch computes: the only place that interprets its name.

DEVICES = ("auto", "cpu", "cuda")
_CUDA = torch.device("cuda")
_CPU = torch.device("cpu")


def resolve_device(name: str, slot: str) -> torch.device:
    """Convert the name of a device.

    `name` {"auto", "cpu", "cuda"}: ``"auto"`` is CUDA where there is a device, else the
    CPU; `slot`: the parameter, for the message. Raises `ValueError`: if torch finds no
    CUDA device.
    """
    if name == "auto":
        return _CUDA if torch.cuda.is_available() else _CPU
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"{slot}='cuda', but torch finds no CUDA device. Pass 'cpu' or 'auto', or "
            "install a build of torch for the GPU of this machine."
        )
    return _CUDA if name == "cuda" else _CPU


def device_in_use(name: str) -> torch.device:
    """Convert the name of the device of a fitted model, which any machine can use.

    ``"cuda"`` is the CPU if torch finds no CUDA device, unlike in `resolve_device`:
    models that were trained on a GPU are often used elsewhere.
    """
    has_cuda = torch.cuda.is_available()
    return _CUDA if has_cuda and name in ("auto", "cuda") else _CPU


# ----------------------------------------
# torch's own defaults, whatever the caller has chosen by `torch.set_default_...`.
#
# Tensors and networks that are made without a data type or device would else follow
# the caller's choice, and results with them.  The device belongs to a Python thread.
# The data type belongs to the whole process: the first of several threads sets it,
# the last one restores it.


class _Float32:
    """A context in which float32 is the default data type; reentrant."""

    def __init__(self) -> None:
        self._lock, self._depth, self._before = Lock(), 0, torch.float32

    def __enter__(self) -> None:
        with self._lock:
            if not self._depth:
                self._before = torch.get_default_dtype()
                self._set(torch.float32)
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._set(self._before)

    def _set(self, dtype: torch.dtype) -> None:
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)


_FLOAT32 = _Float32()


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Make tensors of float32 on the CPU by default; also a decorator of functions."""
    with ExitStack() as stack:
        # the context of a device intercepts all calls of torch, which takes time
        if torch.empty(0).device != _CPU:
            stack.enter_context(_CPU)
        stack.enter_context(_FLOAT32)
        yield


# ----------------------------------------
# Torch modules of fitted estimators, stored as arrays and rebuilt on first use.


def state_of(module: nn.Module) -> dict:
    """Convert the state of a module to arrays."""
    # numpy() shares the memory of a parameter, which training changes in place
    return {
        name: value.cpu().numpy().copy() for name, value in module.state_dict().items()
    }


def load_state(module: nn.Module, state: dict) -> nn.Module:
    """Load a state of arrays into a module."""
    tensors = {name: torch.tensor(a) for name, a in state.items()}
    module.load_state_dict(tensors)
    return module


def filled_once(method: Method) -> Method:
    """Decorate a method that fills a cache at its first call; other threads wait."""

    @functools.wraps(method)
    def alone(self: object) -> object:
        with PROCESS, torch_defaults():
            return method(self)

    return alone
