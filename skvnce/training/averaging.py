"""Exponential averages of parameters over the steps of a training.

Averaging reduces the noise of stochastic gradients, so that scores of the averages on
held-out cells are better and vary little from round to round.  Early averages span
fewer steps: with the full span they would still be near the start.

References
----------
Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging.
"""

from collections.abc import Iterable
from copy import deepcopy

import torch
from torch import nn

from skvnce.training.rounds import STEPS

_SPAN = 4 * STEPS  # number of steps over which parameters are averaged, at most
_LAST = 0.25  # share of the steps so far that an average spans until then


class Averaged:
    """Copies of modules with averaged parameters.

    Parameters
    ----------
    modules : iterable of nn.Module

    Attributes
    ----------
    modules : list of nn.Module
        The copies.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._followed = list(modules)
        # with their buffers, so that the copies can be evaluated
        self.modules = [deepcopy(module) for module in self._followed]
        self._averages, self._values = (
            [leaf for module in modules for leaf in module.parameters()]
            for modules in (self.modules, self._followed)
        )
        self._n_steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """Move the averages by a share, at least 1 / 200, towards the parameters."""
        self._n_steps += 1
        if self._averages:
            share = 1 / min(_SPAN, 1 + _LAST * self._n_steps)
            torch._foreach_lerp_(self._averages, self._values, share)

    def replace(self) -> None:
        """Copy the averaged parameters to the modules."""
        for mean, module in zip(self.modules, self._followed, strict=True):
            module.load_state_dict(mean.state_dict())
