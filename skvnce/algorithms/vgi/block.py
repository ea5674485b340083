"""Variational block-Gibbs inference: models with latents, rows with missing values.

Each row has several completions, chains that continue from one visit of the row to the
next.  A visit updates them by a sweep of draws of latents and missing cells, and a
gradient step then increases the objective at their new state.  During a warm-up the
chains do not move.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, sections 3.4 and 5.3, algorithm 1.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from torch import Tensor, nn

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel
from skvnce.objectives.vbgi import vbgi, vbgi_marginal
from skvnce.samplers.base import Sampler
from skvnce.samplers.pseudo_gibbs import pseudo_gibbs
from skvnce.samplers.variational_block_gibbs import variational_block_gibbs
from skvnce.training.adam import descend
from skvnce.training.flat_adam import FlatAdam
from skvnce.variational.base import global_stream


class Scheme(NamedTuple):
    """The parts to train, the sampler of the chains, and the objective."""

    parts: nn.ModuleDict
    sampler: Sampler  # its states begin with the persistent tensors
    # maps (observed, *persistent tensors) to bounds (n_chains, n)
    bound: Callable[..., Tensor]
    n_persistent: int  # 1 if tables persist, 2 if their latents do, too


def block_scheme(
    model: nn.Module,
    posterior: nn.Module,
    cells: nn.Module,
    completed: Callable[[nn.Module, Tensor], LatentVariableModel] = lambda model, _: (
        model
    ),
) -> Scheme:
    """Make VBGI-VAE of a model, q(z | x) and q(x_mis | z, x_obs).

    `completed`: maps the model and a mask of observed cells to the model of completed
    rows, if their missing cells have another density than the observed cells.
    """

    def bound(observed: Tensor, x: Tensor, z: Tensor) -> Tensor:
        of_rows = completed(model, observed)
        return vbgi(of_rows, posterior, cells, x, z, observed, global_stream)

    parts = nn.ModuleDict({"model": model, "posterior": posterior, "cells": cells})
    return Scheme(parts, variational_block_gibbs(model, posterior, cells), bound, 2)


def marginal_scheme(model: nn.Module, posterior: nn.Module) -> Scheme:
    """Make VBGI-VAE-M of a model and q(z | x); the model draws missing cells."""
    return Scheme(
        nn.ModuleDict({"model": model, "posterior": posterior}),
        pseudo_gibbs(model, posterior),
        lambda observed, x: vbgi_marginal(model, posterior, x, observed, global_stream),
        1,
    )


class BlockChains:
    """Completed tables of all rows, and their latents, which a visit updates.

    `start`: the initial persistent tensors.  Of completed tables (n_chains, n,
    features), only the missing cells are used; latents (n_chains, n, latents) are drawn
    from the prior if they are not given.  `now` (list of Tensor): the current
    persistent tensors.
    """

    def __init__(self, scheme: Scheme, data: Incomplete, *start: Tensor) -> None:
        self.data, self.sampler = data, scheme.sampler
        state = scheme.sampler.init(data, *start)
        self.now = list(state[: scheme.n_persistent])

    def take(self, rows: Tensor) -> list[Tensor]:
        """Return the persistent tensors of some rows."""
        return [value[:, rows] for value in self.now]

    def move(self, rows: Tensor, n_sweeps: int) -> list[Tensor]:
        """Make sweeps of some rows; store and return the new states."""
        part = self.data.take(rows)
        state = self.sampler.init(part, *self.take(rows))
        for _ in range(n_sweeps):
            state, _ = self.sampler.step(state, part)
        # states have further fields, which do not persist
        for value, moved in zip(self.now, state, strict=False):
            value[:, rows] = moved
        return self.take(rows)


def visit_loss(
    scheme: Scheme, chains: BlockChains, n_sweeps: int
) -> Callable[[Tensor], Tensor]:
    """Make the loss of a visit: update the chains of rows, then minus their bound."""

    def loss(rows: Tensor) -> Tensor:
        state = chains.move(rows, n_sweeps) if n_sweeps else chains.take(rows)
        return -scheme.bound(chains.data.observed[rows], *state).mean()

    return loss


def train(
    scheme: Scheme,
    chains: BlockChains,
    # returns the batches of an epoch; see `skvnce.algorithms.vgi.training.epochs`
    batches: Callable[[], Iterable[Tensor]],
    *,
    n_epochs: int,  # number of all epochs, and of those in which the chains do not move
    n_warm_up: int = 20,
    n_sweeps: int = 1,  # number of sweeps of the chains of a row at each visit
    learning_rate: float = 1e-3,
    # called with the epoch and its mean loss; stops by returning True
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
) -> list[float]:  # mean losses of the epochs
    """Train all parts by Adam, in place; the chains move after the warm-up."""
    named, epoch = list(scheme.parts.named_parameters()), 0
    losses = [visit_loss(scheme, chains, n) for n in (0, n_sweeps)]

    def loss(rows: Tensor) -> Tensor:
        return losses[epoch >= n_warm_up](rows)

    def count(number: int, value: float) -> bool:
        nonlocal epoch
        epoch = number
        return on_epoch(number, value)

    return descend(
        loss,
        named,
        batches,
        optimiser=FlatAdam([leaf for _, leaf in named], lr=learning_rate),
        max_iter=n_epochs,
        on_epoch=count,
    )
