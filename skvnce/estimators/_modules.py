"""Torch modules of fitted estimators, stored as arrays and rebuilt on first use."""

import functools

import torch

from skvnce._forks import PROCESS
from skvnce._torch_defaults import torch_defaults


def state_of(module):
    """Convert the state of a module to arrays."""
    return {
        name: value.cpu().numpy().copy() for name, value in module.state_dict().items()
    }


def load_state(module, state):
    """Load a state of arrays into a module."""
    tensors = {name: torch.tensor(a) for name, a in state.items()}
    module.load_state_dict(tensors)
    return module


def filled_once(method):
    """Decorate a method that fills a cache at its first call; other threads wait."""

    @functools.wraps(method)
    def alone(self):
        with PROCESS, torch_defaults():
            return method(self)

    return alone
