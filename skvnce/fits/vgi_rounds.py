"""Rounds of variational Gibbs inference, which a mixture of normals may begin.

If there is a mixture, its draws complete the rows (f0), an autoencoder first learns
them and the rows themselves (a warm-up as in algorithm 4), and its conditional means
are the offset of the variational conditionals.  They are then better than what many
rounds from a normal distribution reach, so that few are left to do.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, algorithms 1 and 4.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import step
from skvnce.algorithms.mixture.model import Mixture
from skvnce.algorithms.vae.autoencoder import Training
from skvnce.algorithms.vae.losses import ALGORITHMS
from skvnce.algorithms.vae.rounds import Rounds
from skvnce.algorithms.vgi import density, initial
from skvnce.algorithms.vgi.autoencoder import ARCHITECTURE
from skvnce.algorithms.vgi.initial import ChainSettings, Start
from skvnce.algorithms.vgi.training import Pair, TrainingSettings
from skvnce.fits import mixture_start

_WARM_UP = 6  # maximum number of rounds of the warm-up
AVERAGED = 0.25  # share of the steps that averages span, as there are few
# of the warm-up: three draws, batches of 256 rows, and weight decay of the networks
_TRAINING = Training(3, 256, 1.5e-2, 0.05, AVERAGED)
_COOLING = 2  # rounds with decreasing learning rates after the warm-up


class Limits(NamedTuple):
    """When a training stops."""

    n_rounds: int  # maximum number of rounds, without those of the warm-up
    # number of successive rounds without a better prediction of held-out cells
    patience: int
    # number of rounds of the warm-up, if held-out cells do not choose it
    n_warm_up: int | None


def by_mixture(mixture: Mixture, start: Start, n_chains: int) -> Tensor:
    """Complete rows by draws of a mixture given the observed cells."""
    return mixture_start.completed(mixture, start.data, n_chains).float()


class VGIRounds:
    """The training of a model and conditionals on the observed cells of a table.

    `chains` (Chains): the current ones.  `n_warm_up`: number of rounds of the warm-up.
    """

    def __init__(
        self,
        pair: Pair,  # on the device of the training
        start: Start,
        hidden: Tensor,  # bool (n, features): held-out cells
        ways: ChainSettings,
        settings: TrainingSettings,
        limits: Limits,
        # fitted without the held-out cells, if the model is an autoencoder
        mixture: Mixture | None,
        device: torch.device,
    ) -> None:
        self._pair, self._settings, self._limits = pair, settings, limits
        self._mixture, self._device, self._given = mixture, device, (start, hidden)
        if mixture is not None:
            ways = ways._replace(complete=partial(by_mixture, mixture))
        self._ways = ways
        self._start, self._hidden = start.on(device), hidden.to(device)
        self.chains = initial.make_chains(start.without(hidden), ways).on(device)
        self.n_warm_up, self._has_chosen = 0, False

    def while_better(self, on_round: Callable[[int, float, float], bool]) -> int:
        """Train without the held-out cells; returns the number that they choose."""
        most, patience, _ = self._limits
        self._has_chosen = True
        if self._mixture is not None:
            with step("learning rows that a mixture completes"):
                rounds, hidden = self._warm_up()
                limits = {"max_rounds": _WARM_UP, "patience": patience}
                self.n_warm_up = rounds.while_better(
                    hidden, **limits, on_round=lambda *_: False
                )
        return density.train_while_better(
            self._pair,
            self._start,
            self.chains,
            self._hidden,
            self._settings,
            max_rounds=most,
            patience=patience,
            on_round=on_round,
        )

    def on_all(
        self, n_rounds: int, n_cooling: int, on_round: Callable[[int, float], bool]
    ) -> list[float]:
        """Train on all cells; returns the losses of the rounds.

        Rounds of the warm-up precede them if `while_better` has not been called.
        """
        asked = self._limits.n_warm_up
        if self._mixture is not None and not self._has_chosen:
            self.n_warm_up = _WARM_UP if asked is None else asked
            with step("learning rows that a mixture completes"):
                rounds, _ = self._warm_up()
                rounds.on_all(self.n_warm_up, 0, lambda n, loss: False)
        if self.n_warm_up:
            n_cooling = _COOLING
        self.chains = initial.renewed(self.chains, self._start, self._ways)
        return density.train_on_all(
            self._pair,
            self._start,
            self.chains,
            self._settings,
            n_rounds=n_rounds,
            n_cooling=n_cooling,
            on_round=on_round,
        )

    def _warm_up(self) -> tuple[Rounds, Tensor]:
        """Make the training on rows and their completions, and its held-out cells."""
        found = mixture_start.with_completed(*self._given, self._mixture)
        data, hidden, weights = found
        single = Incomplete(data.x.float(), data.observed).on(self._device)
        # with the intervals of rounded cells, which steps of VGI draw
        auto = self._pair.model.autoencoder(self._start.families)
        given = single, weights, ALGORITHMS["miwae"], _TRAINING, ARCHITECTURE
        return Rounds(auto, *given), hidden.to(self._device)
