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

import torch
from torch import Tensor, nn

from skvnce._core.distributions.functions import at_quantiles, draw
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import LatentVariableModel
from skvnce._core.posteriors import (
    LatentCells,
    LatentPosterior,
    Uniforms,
    global_stream,
)
from skvnce._core.samplers import (
    FIRST,
    Info,
    LatentState,
    Sampler,
    columns,
    encode,
    unconditional,
)
from skvnce._core.training.adam import FlatAdam, descend
from skvnce.autoencoder.bounds import vbgi, vbgi_marginal
from skvnce.autoencoder.samplers import pseudo_gibbs

# ----------------------------------------
# Gibbs sampling of latents and missing cells in two blocks, both variational.
#
# `pseudo_gibbs` draws the cells from the model itself, as in VBGI-VAE-M.  This
# sampler draws them from q(x_mis | z, x_obs), which also depends on the observed
# cells.  It is exact if both conditionals are.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, sections 3.4 and 5.3.


def variational_block_gibbs(
    model: LatentVariableModel,  # used only to start the chains
    posterior: LatentPosterior,
    cells: LatentCells,
    *,
    # number of chains that start from unconditional draws.  `init` also accepts tables,
    # and latents (*chains, n, latents), which otherwise come from the prior
    n_chains: int = 1,
    # called once a step.  Numbers keyed by the row must have a seed of their own
    uniforms: Uniforms = global_stream,
) -> Sampler[LatentState, Info]:
    """Build a sampler that draws z ~ q(z | x), then x_mis ~ q(x_mis | z, x_obs)."""

    @torch.no_grad()
    def init(
        data: Incomplete, x: Tensor | None = None, z: Tensor | None = None
    ) -> LatentState:
        chains = (n_chains,) if x is None else x.shape[:-2]
        if x is None or z is None:
            u_z, u_x, _ = columns(uniforms, 0, model, data, chains)
            prior_z, prior_x = unconditional(model, data, u_z, u_x)
            x, z = prior_x if x is None else x, prior_z if z is None else z
        return LatentState(data.with_values(x), z)

    @torch.no_grad()
    def step(state: LatentState, data: Incomplete) -> tuple[LatentState, Info]:
        chains, number = state.x.shape[:-2], state.step + FIRST
        u_z, u_x, _ = columns(uniforms, number, model, data, chains)
        z = draw(encode(posterior, state.x), u_z)
        known = data.x.expand(state.x.shape)
        x = at_quantiles(cells(known, data.observed, z), u_x)
        return LatentState(data.with_values(x), z, state.step + 1), Info()

    return Sampler(init, step)


# ----------------------------------------
# Variational block-Gibbs inference: models with latents, rows with missing values.


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
    # returns the batches of an epoch; see `skvnce.vgi.training.epochs`
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
