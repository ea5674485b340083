"""Training in rounds: choice of their number, and translation of failures."""

from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from skvnce._progress import tell
from skvnce._warnings import warn_user
from skvnce.exceptions import DivergenceError
from skvnce.training.adam import Diverged
from skvnce.training.rounds import COOLING


@contextmanager
def failures_named(remedy):
    """Convert failures of a training into errors that name a remedy."""
    try:
        yield
    except Diverged as error:
        message = f"Training diverged. {remedy} ({error})"
        raise DivergenceError(message) from error
    except torch.linalg.LinAlgError as error:
        raise ValueError(
            "A covariance matrix is not positive definite: columns repeat others. Drop "
            "them."
        ) from error


class Training(NamedTuple):
    """What a training reports."""

    losses: list  # of all rounds
    gains: list  # of the rounds without the held-out cells: scores of these cells
    best_iter: int  # the number of rounds that they choose


def train_in_rounds(most, share, while_better, on_all, on_round, *, warns=True):
    """Train while held-out cells are predicted better, then briefly on all cells.

    `most`: maximum number of rounds.  `share`: share of the observed cells that are
    held out; with 0, `most` rounds on all cells come first.  `while_better`: trains
    without the held-out cells.  It takes a function to call after each round with its
    number, loss and gain, and returns the number of rounds that the gains choose.
    `on_all`: trains on all cells.  It takes the numbers of rounds and of cooling rounds
    and a function to call after each round with its number and loss, and returns the
    losses.  `on_round`: called after each round except cooling rounds.  `warns`:
    whether to warn if held-out cells choose the maximum number of rounds.  Returns
    Training.
    """

    def record(n_round, loss, gain):
        gains.append(gain)
        losses.append(loss)
        return on_round(n_round, loss, gain)

    def report(n_round, loss):
        tell("cooling round", n_round - n_rounds)
        # no callback stops the rounds in which the learning rate falls
        return n_round <= n_rounds and on_round(n_round, loss, np.nan)

    n_rounds = best = most
    losses, gains = [], []
    if share:
        # no further rounds on all cells but those in which the learning rate falls
        best, n_rounds = while_better(record), 0
    losses += on_all(n_rounds, min(COOLING, best), report)
    if warns and share and best == most > 0:
        warn_user(
            f"Held-out cells were still predicted better after max_iter={most} rounds. "
            "Raise max_iter.",
            ConvergenceWarning,
        )
    return Training(losses, gains, best)
