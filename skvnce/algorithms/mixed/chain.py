"""Markov chains of parameters: which of their states are kept, and as what."""

from collections.abc import Callable, Iterator
from itertools import islice
from math import nan
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from skvnce._progress import OnRound

BURN_IN = 0.4  # share of the sweeps before the first draw of the parameters

Parameters = TypeVar("Parameters", bound=tuple)  # of tensors, or of such tuples


class Sweep(NamedTuple, Generic[Parameters]):
    """What a sweep has found."""

    parameters: Parameters
    loss: float
    traced: np.ndarray  # (2, latents)
    # makes a draw of the parameters; None means that they are one
    draw: Callable[[], Parameters] | None = None


class Fit(NamedTuple, Generic[Parameters]):
    """Draws of the parameters from their posterior."""

    draws: list[Parameters]
    # minus the mean log-density of the latent variables, or residuals, of a row, after
    # each sweep
    losses: list[float]
    estimates: list[Parameters]  # the parameters of the chain after the burn-in
    # (2, latents), after each sweep, the means of the latent variables, and the shares
    # of their variances that the others explain, or that are between groups
    trace: list[np.ndarray]

    def average(self) -> Parameters:
        """Average the parameters of the chain."""
        return average(self.estimates)


def average(found: list[Parameters]) -> Parameters:
    """Average tensors, or tuples of them."""
    if isinstance(found[0], Tensor):
        return torch.stack(found).mean(0)
    parts = (average(list(part)) for part in zip(*found, strict=True))
    return type(found[0])(*parts)


def run(sweeps: Iterator[Sweep], n_draws: int, n_sweeps: int, on_round: OnRound) -> Fit:
    """Run a chain, and keep draws at equal distances after the burn-in.

    `n_sweeps`: at least `n_draws`; `on_round`: called with the number of the sweep, the
    loss, and the change of the loss; stops the chain by returning True.
    """
    every = max(1, int(n_sweeps * (1 - BURN_IN)) // n_draws)
    found = Fit([], [], [], [])
    for number, one in enumerate(islice(sweeps, n_sweeps), 1):
        change = abs(one.loss - found.losses[-1]) if found.losses else nan
        found.losses.append(one.loss)
        found.trace.append(one.traced)
        left = n_sweeps - number
        if left < every * n_draws:
            found.estimates.append(one.parameters)
            if left % every == 0:
                found.draws.append(one.draw() if one.draw else one.parameters)
        if on_round(number, one.loss, change):
            break
    if not found.draws:  # a callback has stopped the chain before the first draw
        found = found._replace(draws=[one.parameters], estimates=[one.parameters])
    return found
