"""Training in rounds: choice of their number, and translation of failures."""

from contextlib import contextmanager

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


class TrainedInRounds:
    """Mixin of estimators with the parameters `max_iter` and `validation_fraction`."""

    def _in_rounds(self, while_better, on_all, on_round):
        """Train while held-out cells are predicted better, then briefly on all cells.

        Sets `loss_curve_` to the losses of all rounds, in this order.

        Parameters
        ----------
        while_better : callable
            Trains without the held-out cells.  It takes a function to call after each
            round with its number, loss and gain, and returns the number of rounds that
            the gains choose.
        on_all : callable
            Trains on all cells.  It takes the numbers of rounds and of cooling rounds
            and a function to call after each round with its number and loss, and
            returns the losses.
        on_round : callable
            Called after each round except cooling rounds.
        """

        def judged(n_round, loss, gain):
            self.validation_scores_.append(gain)
            losses.append(loss)
            return on_round(n_round, loss, gain)

        def report(n_round, loss):
            tell("cooling round", n_round - n_rounds)
            return n_round <= n_rounds and on_round(n_round, loss, np.nan)

        losses, self.validation_scores_, self.best_iter_ = [], [], self.max_iter
        n_rounds = self.max_iter
        if self.validation_fraction:
            self.best_iter_, n_rounds = while_better(judged), 0
        losses += on_all(n_rounds, min(COOLING, self.best_iter_), report)
        self.loss_curve_ = losses
        if self.validation_fraction and self.best_iter_ == self.max_iter > 0:
            warn_user(
                f"Held-out cells were still predicted better after max_iter="
                f"{self.max_iter} rounds. Raise max_iter.",
                ConvergenceWarning,
            )
