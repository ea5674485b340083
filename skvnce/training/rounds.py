"""Training in rounds of equal length, the last ones with decreasing learning rates."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

STEPS = 50  # number of steps in a round
COOLING = 6  # maximum number of rounds with decreasing learning rates
# the value of Simkus and Gutmann (2024) for UCI tables
MAX_NORM = 5.0  # maximum norm of a gradient
# 0.6 ** 6 = 0.05: learning rates end at a twentieth
_FALL = 0.6  # factor of the learning rates in each of these rounds


def rows_of(
    weights: Tensor, batch_size: int, device: torch.device | None = None
) -> Iterable[Tensor]:
    """Draw the batches of a round, rows in proportion to their weights (n,).

    The draws are the same whatever the device of the indices.
    """
    size = min(len(weights), batch_size)
    rows = torch.multinomial(weights, STEPS * size, replacement=True)
    return rows.view(STEPS, size).to(device).unbind()


def cooling_after(n_rounds: int) -> Callable[[int], float]:
    """Make a schedule that is 1 for some rounds, and then decreases."""
    return lambda n_round: _FALL ** max(0, n_round - n_rounds)
