"""What estimators that are trained in rounds share: how many, and what went wrong."""

from contextlib import contextmanager

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from skvnce._progress import tell
from skvnce._warnings import warn_user
from skvnce.training.adam import NotFinite
from skvnce.training.rounds import COOLING


@contextmanager
def failures_named(remedy):
    """Turn failures of a training into errors that say what to do."""
    try:
        yield
    except NotFinite as error:
        raise ValueError(f"Training diverged. {remedy} ({error})") from error
    except torch.linalg.LinAlgError as error:
        raise ValueError(
            "A covariance matrix is not positive definite: columns repeat others. Drop "
            "them."
        ) from error


class TrainedInRounds:
    """Mixin of estimators with `max_iter` and `validation_fraction`."""

    def _in_rounds(self, while_better, on_all, on_round):
        """Train while held-out cells are predicted better, then a little on all.

        `loss_curve_` has the losses of all rounds, in this order.

        Parameters
        ----------
        while_better : callable
            Trains without the held-out cells, and maps what it shows each round, its
            loss and its gain to, to the number of rounds that they chose.
        on_all : callable
            Trains on all cells: numbers of rounds, of cooling rounds, and what it shows
            each round and its loss to, to the losses.
        on_round : callable
            Shown all of these rounds but those of cooling.
        """

        def judged(n_round, loss, gain):
            self.validation_scores_.append(gain)
            losses.append(loss)
            return on_round(n_round, loss, gain)

        def report(n_round, loss):
            tell("cooling round", n_round - n_rounds)
            return n_round <= n_rounds and on_round(n_round, loss, np.nan)

        losses, self.validation_scores_, self.n_rounds_ = [], [], self.max_iter
        n_rounds = self.max_iter
        if self.validation_fraction:
            self.n_rounds_, n_rounds = while_better(judged), 0
        losses += on_all(n_rounds, min(COOLING, self.n_rounds_), report)
        self.loss_curve_ = losses
        if self.validation_fraction and self.n_rounds_ == self.max_iter > 0:
            warn_user(
                f"Held-out cells were still predicted better after max_iter="
                f"{self.max_iter} rounds. Raise max_iter.",
                ConvergenceWarning,
            )
