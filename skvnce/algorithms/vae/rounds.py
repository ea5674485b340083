"""Rounds of training of an autoencoder, with and without held-out cells."""

from collections.abc import Callable

from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vae import autoencoder
from skvnce.algorithms.vae.autoencoder import Autoencoder, Training


class Rounds:
    """The training of an autoencoder on the observed cells of a table.

    Parameters
    ----------
    auto : Autoencoder
    data : Incomplete
        All observed cells, in the precision of the autoencoder.
    weights : Tensor of shape (n,)
        Weights of the rows.
    training : Training
    """

    def __init__(
        self, auto: Autoencoder, data: Incomplete, weights: Tensor, training: Training
    ) -> None:
        self.auto, self.data, self.weights = auto, data, weights
        self.training = training

    def while_better(
        self,
        hidden: Tensor,
        *,
        max_rounds: int,
        patience: int,
        on_round: Callable[[int, float, float], bool],
    ) -> int:
        """Train without held-out cells; see `autoencoder.train_while_better`."""
        kept = Incomplete(self.data.x, self.data.observed & ~hidden)
        return autoencoder.train_while_better(
            self.auto,
            loss(self.auto, kept, self.training),
            self.data,
            hidden,
            self.weights,
            self.training,
            max_rounds=max_rounds,
            patience=patience,
            on_round=on_round,
        )

    def on_all(
        self, n_rounds: int, n_cooling: int, on_round: Callable[[int, float], bool]
    ) -> list[float]:
        """Train on all cells; see `autoencoder.train`."""
        return autoencoder.train(
            self.auto,
            loss(self.auto, self.data, self.training),
            self.weights,
            self.training,
            n_rounds=n_rounds,
            n_cooling=n_cooling,
            on_round=on_round,
        )


def loss(
    auto: Autoencoder, data: Incomplete, training: Training
) -> Callable[[Tensor], Tensor]:
    """Make the loss of a bound of rows with missing values, or of completed rows."""
    if not training.completes:
        return autoencoder.bound_loss(auto, data, training)
    sampler = autoencoder.completing(auto, training.n_draws)
    return autoencoder.completed_loss(auto, data, training, sampler)
