"""The result type of objectives."""

from typing import NamedTuple

from torch import Tensor


class Objective(NamedTuple):
    """A scalar to minimise, and detached numbers for the history."""

    loss: Tensor
    metrics: dict[str, Tensor]
