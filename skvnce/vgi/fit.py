"""Rounds of variational Gibbs inference, which a mixture of normals may begin.

If there is a mixture, its draws complete the rows (f0), an autoencoder first learns
them and the rows themselves (a warm-up as in algorithm 4), and its conditional means
are the offset of the variational conditionals.  They are then better than what many
rounds from a normal distribution reach, so that few are left to do.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, algorithms 1 and 4.
"""

from collections.abc import Callable, Iterable
from functools import partial
from math import log
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from skvnce._core.distributions.cells import Families
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import step
from skvnce._core.random import global_stream
from skvnce._core.training import rounds
from skvnce._core.training.rounds import MAX_NORM, cooling_after, rows_of
from skvnce.autoencoder import vae
from skvnce.autoencoder.losses import ALGORITHMS, Rounds, posterior_only
from skvnce.autoencoder.vae import Training
from skvnce.gaussian import em as normal_em
from skvnce.mixture import density, em
from skvnce.mixture.density import Arranged, Mixture
from skvnce.mixture.fit import STRENGTH, count_components
from skvnce.vgi import mcem, training
from skvnce.vgi.conditionals import LatentNormal
from skvnce.vgi.densities import ARCHITECTURE, AutoencoderDensity
from skvnce.vgi.training import (
    Chains,
    Hypercube,
    Pair,
    TrainingSettings,
    observed_hypercube,
    train,
)

# ----------------------------------------
# The start of a training: completed rows, and the range of their chains.
#
# A normal distribution fitted by EM completes the rows, or observed cells of their
# columns do (f0 of algorithm 1).  Cells of columns with repeated values are known up to
# an interval.  They are drawn from it in each round (dequantisation).
#
# Simkus, Rhodes and Gutmann (2023), section 7.2 of the thesis; Theis, van den Oord and
# Bethge (2016) for dequantisation.


def range_of_levels(families: Families, cube: Hypercube) -> Hypercube:
    """Extend the range of chains to all levels, and to intervals of rounded values."""
    low, high = (end.clone() for end in cube)
    for family in families.levels:
        low[family.columns] = 0.0
        high[family.columns] = (family.n_levels - 1).to(high)
    low[families.rounded] = families.edges[:, 0].to(low)
    high[families.rounded] = families.edges[:, -1].to(high)
    return Hypercube(low, high)


class Start(NamedTuple):
    """The inputs of a training."""

    data: Incomplete  # scores of cells
    normal: Normal  # fitted to them
    families: Families  # only the rounded columns are used
    weights: Tensor  # (n,): rows are drawn in proportion to these

    def on(self, device: torch.device) -> Self:
        """Return scores and families on a device; the others stay where they are."""
        return self._replace(
            data=self.data.on(device), families=self.families.on(device)
        )

    def without(self, held_out: Tensor) -> Self:
        """Leave out some cells."""
        observed = self.data.observed & ~held_out
        return self._replace(
            data=Incomplete(self.data.x.where(observed, 0.0), observed)
        )

    def dequantised(self) -> Incomplete:
        """Draw cells of rounded columns from their intervals; in single precision.

        If there are levels, the model has probabilities of intervals, and cells of
        rounded columns keep their scores.
        """
        if self.families.levels:
            return Incomplete(self.data.x.float(), self.data.observed)
        numbers = global_stream(0, self.data.x)
        x = self.families.dequantised(self.data.x, numbers).float()
        return Incomplete(x.where(self.data.observed, 0.0), self.data.observed)


def by_normal(start: Start, n_chains: int) -> Tensor:
    """Complete rows by draws of the normal given the observed cells."""
    if start.families.levels:
        model = LatentNormal.of(start.normal, start.families)
        return model.completed(start.data, n_chains)
    return normal_em.draw(start.normal, start.data, n_chains)


def make_chains(
    start: Start,
    n_chains: int,  # K
    # maps (start, n_chains) to the initial tables
    complete: Callable[[Start, int], Tensor] = by_normal,
) -> Chains:
    """Complete rows, within the range of draws."""
    data = start.dequantised()
    x = complete(start, n_chains).float()
    return Chains(data, x, _range_of(data, start, x))


def _range_of(data: Incomplete, start: Start, x: Tensor) -> Hypercube:
    """Return the range of observed cells and of completed tables x (K, n, d).

    Beyond the observed cells it reaches as far as the normal distribution of the start.
    """
    low, high = observed_hypercube(data)
    low, high = torch.minimum(low, x.amin((0, 1))), torch.maximum(high, x.amax((0, 1)))
    cube = Hypercube(low, high)
    return range_of_levels(start.families, cube) if start.families.levels else cube


# ----------------------------------------
# Rounds on rows of scores, with and without held-out cells.


# number of draws by which the density of a held-out cell is normalised
_NORMALISING = 8


def batches_of(
    start: Start, chains: Chains, batch_size: int
) -> Callable[[], Iterable[Tensor]]:
    """Make the batches of a round, for which cells of rounded columns are drawn.

    The chains determine which cells count as observed.  Rows are drawn with
    replacement, in proportion to their weights.
    """
    observed = chains.data.observed

    def batches() -> Iterable[Tensor]:
        data = start.dequantised()
        chains.restate(Incomplete(data.x.where(observed, 0.0), observed))
        return rows_of(start.weights, batch_size, observed.device)

    return batches


def _scores_of(
    start: Start, chains: Chains, held_out: Tensor
) -> Callable[[Pair], Tensor]:
    """Make the function that scores held-out cells, by the encoder if there is one."""
    rows = held_out.any(1).nonzero().squeeze(1)
    data, places = start.dequantised(), held_out.nonzero(as_tuple=True)

    def scores(pair: Pair) -> Tensor:
        if isinstance(pair.model, AutoencoderDensity):
            cells = data.take(rows), held_out[rows]
            return vae.held_out_log_prob(pair.model.autoencoder(), *cells)
        return held_out_log_prob(pair, chains, places, data.x[places])

    return scores


def _encoder_loss(
    model: nn.Module, chains: Chains, settings: TrainingSettings
) -> Callable[[Tensor], Tensor] | None:
    """Make the loss of the encoder for rows with missing values, if there is one.

    It is zero, with the gradient of their bound in the encoder.
    """
    if not (isinstance(model, AutoencoderDensity) and settings.trains_encoder):
        return None
    auto = model.autoencoder()
    return lambda rows: (
        -posterior_only(*auto, *chains.data.take(rows), global_stream).mean()
    )


def train_on_all(
    pair: Pair,
    start: Start,
    chains: Chains,
    settings: TrainingSettings,
    *,
    n_rounds: int,
    n_cooling: int,
    on_round: Callable[[int, float], bool] = lambda n_round, loss: False,
) -> list[float]:
    """Train on all observed cells, the last rounds with decreasing learning rates."""
    return train(
        pair,
        chains,
        settings,
        n_epochs=n_rounds + n_cooling,
        batches=batches_of(start, chains, settings.batch_size),
        schedule=cooling_after(n_rounds),
        on_epoch=on_round,
        aside=_encoder_loss(pair.model, chains, settings),
        max_norm=MAX_NORM,
    )


@torch.no_grad()
def held_out_log_prob(
    pair: Pair, chains: Chains, cells: tuple[Tensor, Tensor], truth: Tensor
) -> Tensor:
    """Score cells by the model's conditional, averaged over chains that miss them.

    ``p(x_j | x~_-j)`` is p of the row over its integral in x_j, which is estimated from
    draws of q_j and the true value.

    `truth` (n_cells,).  `cells`: rows and columns, (n_cells,).
    """
    scores = []
    for rows, columns, true in zip(
        *(p.split(256) for p in (*cells, truth)), strict=True
    ):
        x = chains.take(rows)
        q = pair.conditionals.at(x, columns.expand(x.shape[:-1]))
        # with the true value, whose estimated density is then bounded
        tried = torch.cat([true.expand(1, *x.shape[:-1]), q.sample((_NORMALISING,))])
        place = columns.expand(tried.shape).unsqueeze(-1)
        moved = x.expand(len(tried), *x.shape).scatter(-1, place, tried.unsqueeze(-1))
        log_p = pair.model.log_prob(moved)
        log_integral = (log_p - q.log_prob(tried)).logsumexp(0) - log(len(tried))
        scores.append((log_p[0] - log_integral).logsumexp(0) - log(len(x)))
    return torch.cat(scores)


# ----------------------------------------
# Stages of the training of densities, and the check of a model that goes on.


_WARM_UP_STEPS = 500  # steps of a model that does not start at the normal distribution
_LONGER = 10  # round from which chains of Monte Carlo EM have their full length
_TUNING = 20  # rounds of algorithm 6
# of J: sweeps before the first tables, tables, cells of each, and rows at a time
_BURN_IN, _TABLES_OF_J, _CELLS_OF_J, _ROWS_OF_J = 10, 8, 4, 256
_PREDICTED = 250  # maximum number of rows in which held-out cells are predicted


def warm_up_model(model, chains, n_rows, settings):
    """Fit a user's density to rows completed by the normal distribution."""
    n_batches = -(-n_rows // settings.batch_size)
    training.warm_up_model(
        model,
        chains,
        # the number of steps counts, whatever the number of rows
        n_epochs=-(-_WARM_UP_STEPS // n_batches),
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
    )


def train_by_em(pair, start, n_chains, settings, method, n_rounds, device, on_round):
    """Train by Monte Carlo EM; the conditionals stay those of the normal.

    Returns `chains` (Chains); `losses` (list of float).
    """
    chains = make_chains(start, n_chains).on(device)
    n_steps = int(method.n_steps)
    first = {1: -(-n_steps // 3), _LONGER: n_steps}
    losses = mcem.train(
        pair.model,
        chains.data,
        chains.x,
        settings,
        n_epochs=n_rounds,
        n_steps=mcem.at_intervals(first, int(method.every)),
        hypercube=chains.hypercube,
        batches=lambda: rows_of(start.weights, settings.batch_size, device),
        on_epoch=lambda n, loss: on_round(n, loss, np.nan),
    )
    return chains, losses


def tune_conditionals(
    pair: Pair,
    start: Start,
    hypercube: Hypercube,  # of the training
    settings: TrainingSettings,
    n_chains: int,
    on_round: Callable[[int, float], bool],
) -> list[float]:  # mean losses of the rounds
    """Train the conditionals on other rows with the model held fixed, algorithm 6."""
    pair.model.eval().requires_grad_(False)
    pair.conditionals.train().requires_grad_()
    return train_on_all(
        pair,
        start,
        _chains_within(hypercube, start, n_chains),
        settings._replace(trains_encoder=False),
        n_rounds=_TUNING,
        n_cooling=rounds.COOLING,
        on_round=on_round,
    )


@torch.no_grad()
def held_out_objective(
    pair: Pair, start: Start, hypercube: Hypercube, n_chains: int
) -> Tensor:  # (n,)
    """Estimate J of eq. (9) of rows that have an observed cell, by chains of q.

    Complete rows have log p(x).
    """
    chains = _chains_within(hypercube, start, n_chains)
    data = Incomplete(chains.data.x.double(), chains.data.observed)
    chains = Chains(data, chains.x.double(), hypercube)
    values, missing = pair.model.log_prob(data.x), (~data.observed).sum(1)
    incomplete = missing.nonzero().squeeze(1)
    for rows in incomplete.split(_ROWS_OF_J) if len(incomplete) else ():
        sweep, total = int(missing[rows].max()), 0.0
        chains.move(pair.conditionals, rows, _BURN_IN * sweep)
        for _ in range(_TABLES_OF_J):
            x = chains.move(pair.conditionals, rows, sweep)
            columns = training.select(data.observed[rows], x, _CELLS_OF_J)
            total = total + training.vgi(*pair, x, columns).mean(0)
        values[rows] = total / _TABLES_OF_J
    return values


def _chains_within(hypercube: Hypercube, start: Start, n_chains: int) -> Chains:
    """Start chains of rows, in the range of those of another table."""
    x = by_normal(start, n_chains).float()
    low, high = hypercube.on(x.device)
    return Chains(start.dequantised(), x.clamp(low.to(x), high.to(x)), hypercube)


def few_rows(hidden):
    """Select the held-out cells (n, n_nodes) of a few evenly spaced rows."""
    rows = hidden.any(1).nonzero().squeeze(1)
    few = rows[:: -(-len(rows) // _PREDICTED)]
    return torch.zeros_like(hidden).index_copy(0, few, hidden[few])


# ----------------------------------------
# Rows that are completed by a mixture of normals, at which autoencoders start.
#
# One mixture is fitted to the scores of the columns by a few rounds of EM, which
# takes the time of some tens of steps of an autoencoder.  Its draws are complete rows
# with the groups and bends of the table: an autoencoder that learns them together
# with the rows themselves needs fewer steps than one that starts at the normal
# distribution alone.


_ROUNDS = 12  # of EM, those of `MixtureImputer`
_TABLES = 3  # number of completions of each row
_WIDE = 100  # columns from which an autoencoder starts at a normal distribution
_SHARE = 0.7  # of completed rows in a batch


def fit_mixture(start: Start, hidden: Tensor) -> Mixture | None:
    """Fit a mixture to scores of numbers, without held-out cells.

    `hidden` (bool (n, features)).  Returns None if there are categories, if the table
    has too few rows, or too many columns, for several components, or if EM fails.
    """
    n, d = start.data.x.shape
    size = count_components("auto", n, d)
    if start.families.levels or size == 1 or d >= _WIDE:
        return None
    data, normal = start.without(hidden).data, start.normal
    filled = normal_em.conditional_mean(normal, data).numpy()
    arranged, weights = _arrange(data), start.weights.numpy()
    prior = em.Prior(STRENGTH * d, normal.covariance.numpy(), normal.mean.numpy())
    shares, centres = em.cluster(filled, weights, size, _generator())
    weights, shares = weights[arranged.order], shares[arranged.order]
    mixture = em.fit_mixture(arranged, weights, centres, shares, prior, _ROUNDS).mixture
    return mixture if np.isfinite(mixture.covariances).all() else None


def by_mixture(mixture: Mixture, start: Start, n_tables: int) -> Tensor:
    """Complete rows by draws of a mixture given the observed cells, in their range."""
    data, rng = start.data, _generator()
    n, d = data.x.shape
    shape = n_tables, n
    numbers = rng.random(shape), rng.standard_normal((*shape, d)), np.empty((0, *shape))
    drawn = torch.from_numpy(density.draw(mixture, _arrange(data), *numbers)[0])
    low, high = (data.x.where(data.observed, end) for end in (torch.inf, -torch.inf))
    return data.with_values(drawn.clamp(low.amin(0), high.amax(0)))


def add_completed(
    start: Start, hidden: Tensor, mixture: Mixture
) -> tuple[Incomplete, Tensor, Tensor]:
    """Add completed rows to rows; cells of rounded columns are values of these.

    Returns `data`; `hidden` (bool (n_rows, features)), the held-out cells; completed
    rows have none; `weights` (n_rows,).
    """
    visible, at = start.without(hidden), start.families.rounded
    tables = by_mixture(mixture, visible, _TABLES)
    if len(at):
        tables = tables.index_copy(-1, at, start.families.nearest(tables[..., at]))
        tables = visible.data.with_values(tables)
    more = tables.flatten(0, 1).to(start.data.x)
    every = torch.ones_like(more, dtype=torch.bool)
    data = Incomplete(
        torch.cat([start.data.x, more]), torch.cat([start.data.observed, every])
    )
    of_table = (start.weights * _SHARE / _TABLES).repeat(_TABLES)
    weights = torch.cat([start.weights * (1 - _SHARE), of_table])
    return data, torch.cat([hidden, ~every]), weights


def _arrange(data: Incomplete) -> Arranged:
    return Arranged.of(data.x.where(data.observed, torch.nan).double().numpy())


def _generator() -> np.random.Generator:
    """Make a generator of numpy from torch's stream."""
    return np.random.default_rng(int(torch.randint(2**31 - 1, ())))


# ----------------------------------------
# Rounds of variational Gibbs inference, which a mixture of normals may begin.


# a line of `verbose`
_BY_MIXTURE = "learning rows that a mixture completes (MixtureImputer is often ahead)"
WARM_UP = 6  # maximum number of rounds of the warm-up
AVERAGED = 0.25  # share of the steps that averages span, as there are few
# of the warm-up: three draws, batches of 256 rows, and weight decay of the networks
_TRAINING = Training(3, 256, 1.5e-2, 0.05, AVERAGED)
_COOLING = 2  # rounds with decreasing learning rates after the warm-up


class VGIRounds:
    """The training of a model and conditionals on the observed cells of a table.

    `chains` (Chains): the current ones.  `n_warm_up`: number of rounds of the warm-up.
    """

    def __init__(
        self,
        pair: Pair,  # on the device of the training
        start: Start,
        hidden: Tensor,  # bool (n, features): held-out cells
        n_chains: int,  # K
        complete: Callable[[Start, int], Tensor],  # as of `make_chains`
        settings: TrainingSettings,
        # fitted without the held-out cells, if the model is an autoencoder
        mixture: Mixture | None,
        # number of rounds of the warm-up, if held-out cells do not choose it
        n_warm_up: int,
        device: torch.device,
    ) -> None:
        self._pair, self._settings, self._mixture = pair, settings, mixture
        self._device, self._inputs = device, (start, hidden)
        self._start, self._hidden = start.on(device), hidden.to(device)
        self.chains = make_chains(start.without(hidden), n_chains, complete).on(device)
        self.n_warm_up = 0 if mixture is None else n_warm_up
        self._has_chosen = False

    def while_better(
        self,
        *,
        max_rounds: int,
        patience: int,
        on_round: Callable[[int, float, float], bool],
    ) -> int:
        """Train while held-out cells are predicted better; see `rounds`.

        Returns the best number of rounds; 0 if none improves the scores, or if no cell
        is held out.  `patience`: number of successive rounds without an improvement
        after which it stops.  `on_round` is called with the round, its loss and the
        gain per held-out cell, in nats; stops by returning True.
        """
        self._has_chosen = True
        if self._mixture is not None:
            with step(_BY_MIXTURE):
                warm_up, hidden = self._warm_up()
                self.n_warm_up = warm_up.while_better(
                    hidden,
                    max_rounds=WARM_UP,
                    patience=patience,
                    on_round=lambda *_: False,
                )
        if not self._hidden.any():
            return 0
        pair, settings = self._pair, self._settings
        scores = _scores_of(self._start, self.chains, self._hidden)
        return rounds.train_while_better(
            pair,
            patience,
            lambda modules: partial(scores, Pair(*modules)),
            torch.mean,
            lambda on_round, on_step: train(
                pair,
                self.chains,
                settings,
                n_epochs=max_rounds,
                batches=batches_of(self._start, self.chains, settings.batch_size),
                on_epoch=on_round,
                on_step=on_step,
                aside=_encoder_loss(pair.model, self.chains, settings),
                max_norm=MAX_NORM,
            ),
            on_round,
            settings.averaged,
        )

    def on_all(
        self, n_rounds: int, n_cooling: int, on_round: Callable[[int, float], bool]
    ) -> list[float]:
        """Train on all cells; returns the losses of the rounds.

        Rounds of the warm-up precede them if `while_better` has not been called.
        """
        if self._mixture is not None and not self._has_chosen:
            with step(_BY_MIXTURE):
                warm_up, _ = self._warm_up()
                warm_up.on_all(self.n_warm_up, 0, lambda n, loss: False)
        if self.n_warm_up:
            n_cooling = _COOLING
        # with completions of these rows, and new draws within intervals
        data = self._start.dequantised()
        ends = torch.stack([*self.chains.hypercube]).unsqueeze(1)
        cube = _range_of(data, self._start, ends)
        self.chains = Chains(data, self.chains.x, cube)
        return train_on_all(
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
        data, hidden, weights = add_completed(*self._inputs, self._mixture)
        single = Incomplete(data.x.float(), data.observed).on(self._device)
        # with the intervals of rounded cells, which steps of VGI draw
        auto = self._pair.model.autoencoder(self._start.families)
        warm_up = Rounds(
            auto, single, weights, ALGORITHMS["miwae"], _TRAINING, ARCHITECTURE
        )
        return warm_up, hidden.to(self._device)
