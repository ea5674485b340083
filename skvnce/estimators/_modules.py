"""Torch modules of fitted estimators: stored as arrays, and rebuilt on use."""

import functools

import torch

from skvnce._forks import PROCESS


def state_of(module):
    """Turn the state of a module into arrays."""
    return {name: value.numpy().copy() for name, value in module.state_dict().items()}


def load_state(module, state):
    """Put arrays back into a module."""
    tensors = {name: torch.tensor(a) for name, a in state.items()}
    module.load_state_dict(tensors)
    return module


def filled_once(method):
    """Decorate a method that fills a cache at its first call: other threads wait."""

    @functools.wraps(method)
    def alone(self):
        with PROCESS:
            return method(self)

    return alone


class CachedModules:
    """Mixin: the list `_cache` of modules is empty until they are rebuilt."""

    def __getstate__(self):
        """Leave the modules out of pickles; they are rebuilt on use."""
        return {**super().__getstate__(), "_cache": []}
