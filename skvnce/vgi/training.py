"""Variational Gibbs inference: fit any density to rows with missing values.

This is algorithm 1.  Each row has several completions, chains that continue from one
visit of the row to the next.  A visit updates the missing cells by draws from
univariate conditionals q, and then one gradient step increases the objective in model
and q.  Before that, q can be warmed up as regressions of observed cells (algorithm 2),
and the model on the initial completions of rows (algorithm 4).

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, algorithms 1 to 6.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from skvnce._core.incomplete import Incomplete
from skvnce._core.posteriors import global_stream
from skvnce._core.samplers import run_chain
from skvnce._core.training.adam import FlatAdam, Schedule, descend, named_leaves
from skvnce.vgi.chains import (
    Hypercube,
    Scan,
    Visit,
    scan_order,
    unbounded,
    variational_gibbs,
)
from skvnce.vgi.objective import redrawn, regression


class Pair(NamedTuple):
    """A model and its variational conditionals."""

    model: nn.Module  # with ``log_prob(x)``
    conditionals: nn.Module  # as `skvnce._core.posteriors.GibbsConditionals`

    def on(self, device: torch.device) -> Self:
        """Move to a device, in place."""
        return type(self)(self.model.to(device), self.conditionals.to(device))

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """List the parameters of both."""
        return named_leaves(self._asdict())


class TrainingSettings(NamedTuple):
    """Settings of the training."""

    n_updates: int = 5  # G, the number of cells that a visit draws in each chain
    n_selected: int = 1  # M, the number of cells in the objective
    batch_size: int = 128
    learning_rate: float = 1e-3  # of Adam for the model, and of AMSGrad for q
    q_learning_rate: float = 1e-3
    weight_decay: float = 0.0  # of the model, unless it has `parameter_groups`
    # whether the encoder of an autoencoder also learns rows with missing values, which
    # has no effect on J
    trains_encoder: bool = True
    # share of the steps so far that averages span, see `Averaged`
    averaged: float | None = None


class Chains:
    """Completed tables of all rows, which a visit of some rows updates.

    `x` (n_chains, n, features): completed tables, of which only the missing cells are
    used.  `hypercube`: range of draws; unbounded by default.  `x` (n_chains, n,
    features): the current tables.  `n_drawn`, `n_outside` (features,): number of cells
    drawn, and of those that were outside and kept their value.
    """

    def __init__(
        self, data: Incomplete, x: Tensor, hypercube: Hypercube | None = None
    ) -> None:
        d = data.x.shape[1]
        self.data, self.x = data, data.with_values(x)
        self.hypercube = hypercube or unbounded(d).on(data.x.device)
        self.n_drawn, self.n_outside = torch.zeros(2, d, device=data.x.device)

    def on(self, device: torch.device) -> Self:
        """Return the chains on a device."""
        cube = self.hypercube.on(device)
        found = type(self)(self.data.on(device), self.x.to(device), cube)
        found.n_drawn.copy_(self.n_drawn)
        found.n_outside.copy_(self.n_outside)
        return found

    def restate(self, data: Incomplete) -> None:
        """Continue with other observed cells: other values, or more cells."""
        self.data, self.x = data, data.with_values(self.x)

    def take(self, rows: Tensor) -> Tensor:
        """Return the tables of some rows; (n_chains, n_rows, features)."""
        return self.x[:, rows]

    def move(self, conditionals: nn.Module, rows: Tensor, n_updates: int) -> Tensor:
        """Make Gibbs updates of some rows; store and return the new states."""
        part = self.data.take(rows)
        sampler = variational_gibbs(conditionals, self.hypercube)

        def count(state: Scan, visit: Visit) -> None:
            drawn = (state.n_missing > 0).expand(visit.columns.shape)
            for total, which in (
                (self.n_drawn, drawn),
                (self.n_outside, visit.outside),
            ):
                total += torch.bincount(visit.columns[which], minlength=len(total))

        start = sampler.init(part, self.take(rows))
        x = run_chain(sampler, start, part, n_updates, count).x
        self.x[:, rows] = x
        return x


def from_marginals(data: Incomplete, n_chains: int) -> Tensor:
    """Complete rows by observed cells of the same columns, drawn independently (f0).

    Returns (n_chains, n, features).
    """
    some = [
        column[seen][torch.randint(int(seen.sum()), (n_chains, len(data.x)))]
        for column, seen in zip(data.x.T, data.observed.T, strict=True)
    ]
    return data.with_values(torch.stack(some, -1))


def epochs(
    n: int, batch_size: int, device: torch.device | None = None
) -> Callable[[], Iterable[Tensor]]:
    """Make batches of rows that visit each once an epoch, in random order.

    The order is the same whatever the device of the indices.
    """
    return lambda: torch.randperm(n).to(device).split(batch_size)


def warm_up_conditionals(
    conditionals: nn.Module,
    chains: Chains,
    *,
    n_epochs: int,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
) -> list[float]:
    """Fit q as regressions of observed cells on completed rows, algorithm 2.

    One observed cell of each row is scored in a visit, weighted such that all columns
    have the same weight, eq. (12).  Returns mean losses, sums over columns.
    """
    observed = chains.data.observed
    n_seen = observed.sum(1, keepdim=True)
    shares = n_seen / observed.sum(0).clamp(min=1) * len(observed)  # (n, features)

    def loss(rows: Tensor) -> Tensor:
        x, seen = chains.take(rows), observed[rows]
        columns = scan_order(~seen, global_stream(0, x))[..., 0]
        weights = shares[rows].expand(x.shape).gather(-1, columns.unsqueeze(-1))
        # rows without an observed cell have no cell to score
        weights = weights.squeeze(-1) * seen.any(1)
        return -regression(conditionals, x, columns, weights.to(x)).mean()

    named = list(conditionals.named_parameters())
    return descend(
        loss,
        named,
        epochs(len(observed), batch_size, observed.device),
        optimiser=FlatAdam([leaf for _, leaf in named], lr=learning_rate, amsgrad=True),
        max_iter=n_epochs,
        on_epoch=on_epoch,
    )


def warm_up_model(
    model: nn.Module,
    chains: Chains,
    *,
    n_epochs: int,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
) -> list[float]:
    """Fit the model to completed rows, algorithm 4 without q."""
    named = list(model.named_parameters())
    return descend(
        lambda rows: -model.log_prob(chains.take(rows)).mean(),
        named,
        epochs(len(chains.data.x), batch_size, chains.x.device),
        optimiser=FlatAdam([leaf for _, leaf in named], lr=learning_rate),
        max_iter=n_epochs,
        on_epoch=on_epoch,
    )


def visit_loss(
    pair: Pair, chains: Chains, settings: TrainingSettings
) -> Callable[[Tensor], Tensor]:
    """Make the loss of a visit: update the chains of rows, then minus J of eq. (11).

    Complete rows contribute log p(x), once.
    """

    def loss(rows: Tensor) -> Tensor:
        complete = chains.data.observed[rows].all(1)
        whole, incomplete = chains.data.x[rows[complete]], rows[~complete]
        if not len(incomplete):
            return -pair.model.log_prob(whole).mean()
        x = chains.move(pair.conditionals, incomplete, settings.n_updates)
        columns = select(chains.data.observed[incomplete], x, settings.n_selected)
        found = redrawn(pair.conditionals, x, columns)
        tables = torch.cat([found.tables, whole])  # one call is much cheaper
        log_prob = pair.model.log_prob(tables)
        drawn, seen = log_prob.split([len(found.tables), len(whole)])
        bound = found.bound(drawn).mean((0, 1))
        return -torch.cat([bound, seen]).mean()

    return loss


def select(observed: Tensor, x: Tensor, n_selected: int) -> Tensor:
    """Choose missing cells of each row, without repetition if there are enough.

    Returns int (n_selected, *chains, n).
    """
    order = scan_order(observed, global_stream(0, x))
    n_missing = (~observed).sum(1)
    number = torch.arange(n_selected, device=x.device)
    # cells are repeated only in rows that miss fewer than are selected
    place = number[:, None] % n_missing  # (n_selected, n)
    place = place.view(n_selected, *[1] * (x.dim() - 2), -1, 1)
    order = order.expand(n_selected, *order.shape)
    return order.gather(-1, place.expand(*order.shape[:-1], 1)).squeeze(-1)


def train(
    pair: Pair,
    chains: Chains,
    settings: TrainingSettings,
    *,
    n_epochs: int,
    # returns the batches of an epoch; by default all rows once
    batches: Callable[[], Iterable[Tensor]] | None = None,
    # maps the number of completed epochs to a factor of the learning rates
    schedule: Callable[[int], float] = lambda epoch: 1.0,
    # called with the epoch and its mean loss; stops by returning True
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
    # called after each step of the optimiser
    on_step: Callable[[], None] = lambda: None,
    # a loss of rows, without effect on J, that is added
    aside: Callable[[Tensor], Tensor] | None = None,
    max_norm: float = torch.inf,  # gradients are clipped to this norm
) -> list[float]:  # mean losses, minus J, of the epochs
    """Run the main stage of algorithm 1, in place."""
    optimiser = FlatAdam(
        [
            *_model_groups(pair.model, settings),
            {
                "params": list(pair.conditionals.parameters()),
                "lr": settings.q_learning_rate,
                "weight_decay": 0.0,
                "amsgrad": True,
            },
        ]
    )
    visit = visit_loss(pair, chains, settings)
    return descend(
        visit if aside is None else lambda rows: visit(rows) + aside(rows),
        pair.named_parameters(),
        batches or epochs(len(chains.x[0]), settings.batch_size, chains.x.device),
        optimiser=optimiser,
        schedule=Schedule(optimiser, schedule),
        max_iter=n_epochs,
        on_epoch=on_epoch,
        on_step=on_step,
        max_norm=max_norm,
    )


def _model_groups(model: nn.Module, settings: TrainingSettings) -> list[dict]:
    """Group the parameters of a model, as it says itself if it does."""
    rate, weight_decay = settings.learning_rate, settings.weight_decay
    if hasattr(model, "parameter_groups"):
        return model.parameter_groups(rate)
    leaves = list(model.parameters())
    return [{"params": leaves, "lr": rate, "weight_decay": weight_decay}]
