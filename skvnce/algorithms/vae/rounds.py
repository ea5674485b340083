"""Rounds of training of an autoencoder, with and without held-out cells."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vae import autoencoder
from skvnce.algorithms.vae.autoencoder import Architecture, Autoencoder, Training
from skvnce.algorithms.vae.losses import Algorithm, Loss
from skvnce.models.networks import ResidualPerceptron


class Rounds:
    """The training of an autoencoder on the observed cells of a table.

    `parts` (mapping of str to nn.Module): what the algorithm trains besides model and
    encoder.
    """

    def __init__(
        self,
        auto: Autoencoder,  # at the linear model
        data: Incomplete,  # all observed cells, in the precision of the autoencoder
        weights: Tensor,  # (n,): weights of the rows
        algorithm: Algorithm,
        training: Training,
        architecture: Architecture,  # of further networks
    ) -> None:
        self.auto, self.data, self.weights = auto, data, weights
        self.algorithm, self.training = algorithm, training
        hidden, dropout, _ = architecture
        network = partial(ResidualPerceptron, hidden=hidden, dropout=dropout)
        self.parts = algorithm.parts(auto, network)

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
            self._loss(kept),
            self.data,
            hidden,
            self.weights,
            self.training,
            max_rounds=max_rounds,
            patience=patience,
            on_round=on_round,
            parts=self.parts,
        )

    def on_all(
        self, n_rounds: int, n_cooling: int, on_round: Callable[[int, float], bool]
    ) -> list[float]:
        """Train on all cells; see `autoencoder.train`."""
        return autoencoder.train(
            self.auto,
            self._loss(self.data),
            self.weights,
            self.training,
            n_rounds=n_rounds,
            n_cooling=n_cooling,
            on_round=on_round,
            parts=self.parts,
        )

    def _loss(self, data: Incomplete) -> Loss:
        """Make the loss on some of the observed cells, with completions of its own."""
        return self.algorithm.loss(self.auto, self.parts, data, self.training)
