"""Exponential averages of parameters over the steps of a training.

Averaging reduces the noise of stochastic gradients, so that scores of the averages on
held-out cells are better and vary little from round to round.

Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging.
"""

from collections.abc import Iterable
from copy import deepcopy

import torch
from torch import nn

from skvnce.training.rounds import STEPS

_SPAN = 4 * STEPS  # number of steps over which parameters are averaged


class Averaged:
    """Copies of modules with averaged parameters.

    `share`: share of the steps so far that an average spans at most.  With the full
    span averages of few large steps would still be near the start.  `modules`: the
    copies.
    """

    def __init__(
        self, modules: Iterable[nn.Module], share: float | None = None
    ) -> None:
        self._followed = list(modules)
        self._share, self._n_steps = share, 0
        # with their buffers, so that the copies can be evaluated
        self.modules = [deepcopy(module) for module in self._followed]
        self._averages, self._values = (
            [leaf for module in modules for leaf in module.parameters()]
            for modules in (self.modules, self._followed)
        )

    @torch.no_grad()
    def update(self) -> None:
        """Move the averages by 1 / 200, or more at first, towards the parameters."""
        self._n_steps += 1
        early = _SPAN if self._share is None else 1 + self._share * self._n_steps
        if self._averages:
            torch._foreach_lerp_(self._averages, self._values, 1 / min(_SPAN, early))

    def replace(self) -> None:
        """Copy the averaged parameters to the modules."""
        for mean, module in zip(self.modules, self._followed, strict=True):
            module.load_state_dict(mean.state_dict())
