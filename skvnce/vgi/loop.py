"""Any density of rows: fitted by variational Gibbs inference, and sampled.

A normal distribution fitted by EM initially completes the rows and anchors the
variational conditionals, so that only a model that starts elsewhere needs a warm-up.
Cells of columns with repeated values are known up to an interval.  They are drawn from
it in each round (dequantisation).

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, algorithm 1, section 7.2 of the thesis; Theis, van den
Oord and Bethge (2016) for dequantisation.
"""

from collections.abc import Callable, Iterable
from math import ceil, log
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from skvnce._core.distributions.cells import Families
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.posteriors import Uniforms
from skvnce._core.progress import tell
from skvnce._core.samplers import run_chain
from skvnce._core.training.rounds import (
    MAX_NORM,
    Averaged,
    Best,
    cooling_after,
    rows_of,
)
from skvnce.gaussian import em
from skvnce.vgi.autoencoder import AutoencoderDensity
from skvnce.vgi.chains import Hypercube, metropolised_gibbs
from skvnce.vgi.initial import Start
from skvnce.vgi.training import Chains, Pair, TrainingSettings, train

TOGETHER = 4  # number of cells that chains accept or reject together
_NORMALISING = (
    8  # number of draws by which the density of a held-out cell is normalised
)
_AT_ONCE = 2**23  # maximum size of a chunk of rows
_WIDE = 30  # approximate memory, in numbers, of a cell in a flow's networks
_HIDDEN = 256  # the same of a row in the networks of the conditionals


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


def train_while_better(
    pair: Pair,
    start: Start,
    chains: Chains,  # chains in which the held-out cells are missing
    held_out: Tensor,  # bool (n, features): observed cells that training does not use
    settings: TrainingSettings,
    *,
    # maximum number of rounds, and number of rounds without an improvement
    max_rounds: int,
    patience: int,
    # called with the round, its loss and the gain per held-out cell, in nats; stops by
    # returning True
    on_round: Callable[[int, float, float], bool],
) -> int:  # 0 if training does not improve the score, or if no cell is held out
    """Train while held-out cells are predicted better, and restore the best round.

    Averages of the parameters over the last steps are evaluated and kept.
    """
    if not held_out.any():
        return 0
    scores = _scores_of(start, chains, held_out)
    first, averaged = scores(pair), Averaged(pair, settings.averaged)
    mean = Pair(*averaged.modules)
    best = Best(mean, patience)

    def record(n_round: int, loss: float) -> bool:
        gains = scores(mean) - first
        gain = float(gains.clamp(-5.0, 5.0).mean())  # limits the effect of outliers
        stop = best.record(n_round, gain)
        return on_round(n_round, loss, gain) or stop

    train(
        pair,
        chains,
        settings,
        n_epochs=max_rounds,
        batches=batches_of(start, chains, settings.batch_size),
        on_epoch=record,
        on_step=averaged.update,
        aside=_encoder_loss(pair.model, chains, settings),
        max_norm=MAX_NORM,
    )
    chosen = best.restore()
    averaged.replace()
    return chosen


def _scores_of(
    start: Start, chains: Chains, held_out: Tensor
) -> Callable[[Pair], Tensor]:
    """Make the function that scores held-out cells, by the encoder if there is one."""
    rows = held_out.any(1).nonzero().squeeze(1)
    data, cells = start.dequantised(), held_out.nonzero(as_tuple=True)

    def scores(pair: Pair) -> Tensor:
        if isinstance(pair.model, AutoencoderDensity):
            return pair.model.held_out_log_prob(data.take(rows), held_out[rows])
        return held_out_log_prob(pair, chains, cells, data.x[cells])

    return scores


def _encoder_loss(
    model: nn.Module, chains: Chains, settings: TrainingSettings
) -> Callable[[Tensor], Tensor] | None:
    """Make the loss of the encoder for rows with missing values, if there is one."""
    if not (isinstance(model, AutoencoderDensity) and settings.trains_encoder):
        return None
    return lambda rows: model.encoder_loss(chains.data.take(rows))


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
    found = []
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
        found.append((log_p[0] - log_integral).logsumexp(0) - log(len(x)))
    return torch.cat(found)


class Fitted(NamedTuple):
    """A fitted density, with the start and the range of its chains."""

    pair: Pair
    normal: Normal
    families: Families
    hypercube: Hypercube

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.hypercube.low.device

    def on(self, device: torch.device) -> Self:
        """Move to a device, the modules in place; the normal stays on the CPU."""
        rest = self.families.on(device), self.hypercube.on(device)
        return type(self)(self.pair.on(device), self.normal, *rest)


def normal_start(
    fitted: Fitted, data: Incomplete, uniforms: Uniforms, n_chains: int
) -> Tensor:  # (n_chains, n, features)
    """Complete rows by draws of the normal given the observed cells.

    An unconditional draw x' is shifted by E[x_mis | x_obs] - E[x_mis | x'_obs] (Hoffman
    and Ribak 1991), so that the draw is a function of numbers keyed by the row.  It is
    computed on the CPU.
    """
    there = data.x.device
    wide = Incomplete(data.x.expand(n_chains, *data.x.shape), data.observed)
    drawn = normal_draw(fitted.normal, wide, uniforms)
    cube = fitted.hypercube.on(drawn.device)
    return data.with_values(drawn.clamp(*cube).to(there))


def normal_draw(normal: Normal, data: Incomplete, uniforms: Uniforms) -> Tensor:
    """Draw missing cells of rows (n_draws, n, features) as `normal_start` does."""
    data = data.on(normal.mean.device)
    # the quantiles of 0 and 1 are infinite
    noise = torch.special.ndtri(uniforms(0, data.x).clamp(2.0**-50, 1 - 2.0**-50))
    free = normal.mean + noise @ torch.linalg.cholesky(normal.covariance).T
    shifted = (data.x - free).where(data.observed, 0.0) + normal.mean
    rows = Incomplete(
        shifted.flatten(0, 1), data.observed.expand(free.shape).flatten(0, 1)
    )
    moved = em.conditional_mean(normal, rows).view(free.shape)
    return data.with_values(free + (moved - normal.mean))


@torch.no_grad()
def draw(
    fitted: Fitted,
    data: Incomplete,
    streams: Callable[[int], Uniforms],  # maps a purpose to uniform numbers
    *,
    n_chains: int,
    # before the first tables that are kept; each sweep visits a missing cell once
    n_sweeps: int,
    n_kept: int = 1,  # number of tables of each chain, one sweep apart
) -> Tensor:  # (n_kept * n_chains, n, features)
    """Draw missing cells by Metropolis-Hastings chains with q as proposal.

    All rows miss the same number of cells: each makes as many steps as it needs.
    """
    n_missing = count_missing(data)
    x = normal_start(fitted, data, streams(0), n_chains)
    part = dequantised_rows(fitted, data, streams(1), n_chains)
    together = min(TOGETHER, n_missing)
    sampler = metropolised_gibbs(
        *fitted.pair, fitted.hypercube, n_together=together, uniforms=streams(2)
    )
    sweep, kept = ceil(n_missing / together), []
    state = sampler.init(part, x)
    state = run_chain(sampler, state, part, n_sweeps * sweep)
    for place in range(n_kept):
        state = run_chain(sampler, state, part, sweep if place else 0)
        kept.append(state.x)
    return torch.cat(kept)


def count_missing(data: Incomplete) -> int:
    """Count the missing cells of a row, the same number in all rows."""
    return int((~data.observed[0]).sum())


def dequantised_rows(
    fitted: Fitted, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> Incomplete:  # x of shape (n_draws, n, features)
    """Draw cells of rounded columns from their intervals."""
    like = data.x.expand(n_draws, *data.x.shape)
    x = fitted.families.dequantised(like, uniforms(0, like))
    return Incomplete(x.where(data.observed, 0.0), data.observed)


def chunks(fitted: Fitted, observed: Tensor, n_draws: int) -> Iterable[Tensor]:
    """Group rows with the same number of missing cells, in chunks that fit into memory.

    Yields
    ------
    Tensor of int
        Indices of the rows.
    """
    n_missing, d = (~observed).sum(1), observed.shape[1]
    width = 8 * d + 4 * sum(
        len(w[0, 0]) for w in fitted.pair.conditionals.networks.biases
    )
    size = max(1, _AT_ONCE // (n_draws * width))
    # rows of a chunk make the same number of steps
    for count in n_missing.unique():
        for rows in (n_missing == count).nonzero().squeeze(1).split(size):
            tell(f"rows with {int(count)} missing cells")
            yield rows
