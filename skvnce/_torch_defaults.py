"""torch's own defaults, whatever the caller has chosen by `torch.set_default_...`.

Tensors and networks that are made without a data type or device would else follow the
caller's choice, and results with them.  The device belongs to a Python thread.  The
data type belongs to the whole process: the first of several threads sets it, the last
one restores it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock

import torch

_CPU = torch.device("cpu")


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
