"""Monte Carlo expectation maximisation: fit a flow to rows that it imputes itself.

The model is fitted to completed rows.  At intervals the missing cells are drawn from
the current model, by chains that start at rows of the model.  Before the first draw
they have their initial values.

Wei and Tanner (1990); Cannella, Soltani and Tarokh (2021); Simkus, Rhodes and Gutmann
(2023), section 6.4.
"""

from collections.abc import Callable, Iterable
from itertools import count

import torch
from torch import Tensor, nn

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vgi.training import TrainingSettings, epochs
from skvnce.samplers.base import Sampler, run_chain
from skvnce.samplers.projected_latent import projected_latent
from skvnce.samplers.variational_gibbs import Hypercube
from skvnce.training.adam import descend
from skvnce.training.flat_adam import FlatAdam, Schedule

_ROWS = 2048  # number of rows, over all chains, that are updated at a time


def at_intervals(lengths: dict[int, int], every: int) -> Callable[[int], int]:
    """Make a schedule of increasing lengths of chains.

    `lengths`: first epoch: length of the chains from it on; ``{40: 500, 350: 2000}``.
    `every`: number of epochs between draws, from the first of these epochs on.  Returns
    maps the number of an epoch, from 1 on, to the steps of chains before it.
    """
    first = min(lengths)

    def n_steps(epoch: int) -> int:
        if epoch < first or (epoch - first) % every:
            return 0
        return lengths[max(start for start in lengths if start <= epoch)]

    return n_steps


def reimpute(
    sampler: Sampler,  # with as many chains as there are tables
    data: Incomplete,
    x: Tensor,  # (n_chains, n, features)
    n_steps: int,
    hypercube: Hypercube | None = None,  # range to which the draws are clamped
) -> None:
    """Draw the missing cells by chains that start independently, in place."""
    incomplete = (~data.observed).any(1).nonzero().squeeze(1)
    for rows in incomplete.split(max(1, _ROWS // len(x))):
        part = data.take(rows)
        drawn = run_chain(sampler, sampler.init(part), part, n_steps).x
        if hypercube is not None:
            drawn = drawn.clamp(hypercube.low, hypercube.high)
        x[:, rows] = part.with_values(drawn)


def completed_loss(
    model: nn.Module, data: Incomplete, x: Tensor
) -> Callable[[Tensor], Tensor]:
    """Make the loss of rows: -log p(x), mean over tables; complete rows count once."""
    complete = data.observed.all(1)

    def loss(rows: Tensor) -> Tensor:
        whole, incomplete = rows[complete[rows]], rows[~complete[rows]]
        tables = torch.cat([x[:, incomplete].flatten(0, 1), data.x[whole]])
        drawn, seen = model.log_prob(tables).split(
            [len(x) * len(incomplete), len(whole)]
        )
        return -(drawn.sum() / len(x) + seen.sum()) / len(rows)

    return loss


def train(
    model: nn.Module,  # as `skvnce.models.base.Flow`, unless a sampler is given
    data: Incomplete,
    # (n_chains, n, features): completed tables, whose missing cells are updated in
    # place
    x: Tensor,
    settings: TrainingSettings,  # only the settings of the model are used
    *,
    n_epochs: int,
    # maps the number of an epoch, from 1 on, to the length of chains that draw the
    # missing cells before it, or to 0; see `at_intervals`
    n_steps: Callable[[int], int],
    # with as many chains as there are tables; by default `projected_latent`
    sampler: Sampler | None = None,
    # range to which draws are clamped after their chains
    hypercube: Hypercube | None = None,
    # returns the batches of an epoch; by default all rows once
    batches: Callable[[], Iterable[Tensor]] | None = None,
    # maps the number of completed epochs to a factor of the learning rate
    schedule: Callable[[int], float] = lambda epoch: 1.0,
    # called with the epoch and its mean loss; stops by returning True
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
    max_norm: float = torch.inf,  # gradients are clipped to this norm
) -> list[float]:  # mean losses of the epochs
    """Fit a flow to rows with missing values, in place."""
    sampler = sampler or projected_latent(model, n_chains=len(x))
    batches = batches or epochs(len(data.x), settings.batch_size, data.x.device)
    # `descend` asks for batches once an epoch
    numbers = count(1)

    def renewed() -> Iterable[Tensor]:
        if steps := n_steps(next(numbers)):
            reimpute(sampler, data, x, steps, hypercube)
        return batches()

    named = list(model.named_parameters())
    optimiser = FlatAdam(
        [leaf for _, leaf in named],
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
    )
    return descend(
        completed_loss(model, data, x),
        named,
        renewed,
        optimiser=optimiser,
        schedule=Schedule(optimiser, schedule),
        max_iter=n_epochs,
        on_epoch=on_epoch,
        max_norm=max_norm,
    )
