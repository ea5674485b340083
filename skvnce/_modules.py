"""Torch modules of fitted estimators, stored as arrays and rebuilt on first use."""

import functools
from collections.abc import Callable

import torch
from torch import nn

from skvnce._threads import PROCESS
from skvnce._torch_defaults import torch_defaults


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


def filled_once(method: Callable) -> Callable:
    """Decorate a method that fills a cache at its first call; other threads wait."""

    @functools.wraps(method)
    def alone(self: object) -> object:
        with PROCESS, torch_defaults():
            return method(self)

    return alone
