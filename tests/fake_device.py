"""A device that computes as the CPU does, and refuses tensors of the CPU, as CUDA does.

Its tensors hold a tensor of the CPU and say that they are on the device `meta`.  Each
operation checks that all tensors of at least one dimension are on one device, and is
then computed on the CPU.  So whole fits run "on a device" on machines without one, give
the numbers of the CPU, and fail where a tensor has been left behind.  No random numbers
can be drawn on it, because those of a device differ from those of the CPU.
"""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

FAKE = torch.device("meta")
_COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class FakeTensor(torch.Tensor):
    """A tensor of the fake device; `n_made` counts them."""

    n_made = 0

    @staticmethod
    def __new__(cls, inner):
        """Wrap a tensor of the CPU."""
        found = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=FAKE,
            requires_grad=False,
        )
        found.inner = inner
        FakeTensor.n_made += 1
        return found

    def __repr__(self, **_):
        """Show the numbers."""
        return f"FakeTensor({self.inner})"

    def data_ptr(self):
        """Return where the numbers are."""
        return self.inner.data_ptr()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Let the setter of `data` replace the numbers, too, and `tolist` work."""
        if func == torch.Tensor.tolist:
            return args[0].inner.tolist()
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        if func == torch.Tensor.data.__set__:
            args[0].inner = args[1].inner
        return found

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Compute outside of the context, for example gradients."""
        return computed(func, args, kwargs or {})


def bare(value):
    """Unwrap a tensor."""
    return value.inner if isinstance(value, FakeTensor) else value


def leaves(values):
    """List what is in tuples, lists and dictionaries; most operations have few."""
    found = []
    for value in values:
        if isinstance(value, tuple | list):
            found += leaves(value)
        elif isinstance(value, dict):
            found += leaves(value.values())
        else:
            found.append(value)
    return found


def computed(func, args, kwargs):
    """Compute an operation on the CPU after a check of the devices."""
    given = leaves((args, kwargs))
    wrapped = {id(one.inner): one for one in given if isinstance(one, FakeTensor)}
    asked = kwargs.get("device")
    if asked is None and not wrapped:
        return func(*args, **kwargs)
    if asked is not None:
        asked = torch.device(asked)
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if func not in _COPIES:
        _check(func, given)
    there = asked == FAKE if asked is not None else bool(wrapped)
    if there and torch.Tag.nondeterministic_seeded in func.tags:
        raise RuntimeError(f"{func} draws random numbers on the device.")
    found = func(*tree_map(bare, args), **tree_map(bare, kwargs))
    fake = there
    if func is torch.ops.aten.copy_.default:
        fake = isinstance(args[0], FakeTensor)

    def dressed(value):
        if not (fake and isinstance(value, torch.Tensor)):
            return value
        same = wrapped.get(id(value))  # of an operation in place
        return FakeTensor(value) if same is None else same

    return (
        dressed(found) if isinstance(found, torch.Tensor) else tree_map(dressed, found)
    )


def _check(func, given):
    tensors = [one for one in given if isinstance(one, torch.Tensor) and one.dim()]
    kinds = {isinstance(one, FakeTensor) for one in tensors}
    if len(kinds) > 1:
        raise RuntimeError(f"{func} gets tensors of the CPU and of another device.")


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return computed(func, args, kwargs or {})


class _Constants(TorchFunctionMode):
    """Let functions make tensors on the device that do not dispatch."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.tensor and kwargs.get("device") == FAKE:
            return func(*args, **{**kwargs, "device": "cpu"}).to(FAKE)
        if func is torch.Tensor.new_tensor and isinstance(args[0], FakeTensor):
            return args[0].inner.new_tensor(*args[1:], **kwargs).to(FAKE)
        return func(*args, **kwargs)


@contextmanager
def fake_device():
    """Let tensors be made on the fake device."""
    with _Mode(), _Constants():
        yield FAKE
