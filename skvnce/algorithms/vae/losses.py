"""Algorithms that train a variational autoencoder, by name: losses of batches of rows.

The bounds of `skvnce.objectives.bounds` take rows with missing values.  The other
algorithms complete the rows by chains or particles, which continue from one visit of a
row to the next and are updated before each gradient step:

    DeMissVAE, CVI-VAE, MVB-VAE     by an iteration of LAIR
    VBGI-VAE                        z ~ q(z | x~), x_mis ~ q(x_mis | z, x_obs)
    VBGI-VAE-M                      z ~ q(z | x~), x_mis ~ p(x_mis | z)

They start at draws of the encoder given the rows with missing values, on which the
encoder is also trained: its ELBO has no gradient in the model.

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families, table 1 and algorithm 1 (DeMissVAE); Simkus,
Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model estimation
from incomplete data, section 5.3 (VBGI).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vae.autoencoder import NO_PARTS, Training
from skvnce.algorithms.vae.batches import Autoencoder, Batches
from skvnce.algorithms.vae.completed import Completed
from skvnce.algorithms.vae.gradient import WeightedBound, is_written_out
from skvnce.algorithms.vgi import block
from skvnce.distributions.cells import ScoredCells
from skvnce.objectives.bounds import BOUNDS, Bound, miss_iwae
from skvnce.objectives.demiss import COMPLETED_BOUNDS, posterior_only
from skvnce.samplers.base import InfoT, Sampler, StateT
from skvnce.samplers.lair import lair
from skvnce.variational.base import at_quantiles, draw_latents, global_stream
from skvnce.variational.latent_cells import AnchoredLatentCells

Loss = Callable[[Tensor], Tensor]  # the mean loss of rows
Parts = Mapping[str, nn.Module]


class Algorithm(NamedTuple):
    """How an autoencoder is trained.

    `parts`: makes what is trained besides model and encoder, given the autoencoder at
    its start and a function that makes networks (n_inputs, n_outputs=).
    """

    # (auto, parts, data, training) to the loss of rows
    loss: Callable[[Autoencoder, Parts, Incomplete, Training], Loss]
    parts: Callable[[Autoencoder, Callable[..., nn.Module]], Parts] = lambda *_: (
        NO_PARTS
    )
    mixture: bool = False  # whether the posterior may be a mixture


def bound_loss(
    bound: Bound, auto: Autoencoder, parts: Parts, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of a bound that takes rows with missing values."""
    batches = Batches(auto, data)

    def loss(rows: Tensor) -> Tensor:
        parts, part = batches.of(rows)
        return -bound(*parts, *part, global_stream, training.n_draws).mean()

    if bound is miss_iwae and is_written_out(batches):
        return WeightedBound(loss, batches, training.n_draws)
    return loss


def particle_loss(
    bound: Bound, auto: Autoencoder, parts: Parts, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of a bound that takes rows completed by LAIR."""
    scheme = block.Scheme(
        nn.ModuleDict(),
        completing(auto, training.n_draws),
        lambda observed, x: bound(*auto, x, observed, global_stream),
        1,
    )
    return completed_loss(scheme, auto, data, training)


def completing(auto: Autoencoder, n_particles: int) -> Sampler:
    """Build the sampler of DeMissVAE and its controls: LAIR.

    As many proposals as from completed rows come from encodings of the rows with
    missing values.  With many latents, the former alone would hardly move.
    """
    return lair(
        *auto,
        n_particles=n_particles,
        n_replenish=n_particles,
        replenish=lambda part: auto.posterior(*part),
    )


def pseudo_gibbs_loss(
    auto: Autoencoder, parts: Parts, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of VBGI-VAE-M."""
    return completed_loss(block.marginal_scheme(*auto), auto, data, training)


def block_gibbs_loss(
    auto: Autoencoder, parts: Parts, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of VBGI-VAE, with q(x_mis | z, x_obs) in `parts`."""
    scheme = block.block_scheme(*auto, parts["cells"], completed=Completed)
    view = partial(ScoredCells, observed=data.observed)
    return completed_loss(scheme, auto, data, training, view)


def missing_cells(auto: Autoencoder, network: Callable[..., nn.Module]) -> Parts:
    """Make q(x_mis | z, x_obs), which starts at p(x_mis | z) of the linear model."""
    model = auto.model
    (d, k), origin = model.loadings.shape, model.origin
    with torch.no_grad():
        scale = model.likelihood(origin).scale
    linear = model.mean, model.loadings, scale
    cells = AnchoredLatentCells(*linear, network(2 * d + k, n_outputs=2 * d).to(scale))
    return {"cells": cells}


def completed_loss(
    # its sampler makes one step of the rows of a batch, without dropout
    scheme: block.Scheme,
    auto: Autoencoder,
    data: Incomplete,
    training: Training,  # with as many completions of each row as draws
    # maps the distribution of the cells given latents to that of the initial
    # completions
    view: Callable[[Distribution], Distribution] = lambda cells: cells,
) -> Loss:
    """Make the loss of a scheme on completed rows, and of the encoder on incomplete."""
    start = initial(auto, data, training.n_draws, view)[: scheme.n_persistent]
    modules = [*auto, *scheme.parts.values()]
    steady = scheme._replace(sampler=without_dropout(scheme.sampler, modules))
    visit = block.visit_loss(steady, block.BlockChains(steady, data, *start), 1)

    def loss(rows: Tensor) -> Tensor:
        encoder = posterior_only(*auto, *data.take(rows), global_stream)
        return visit(rows) - encoder.mean()

    return loss


@torch.no_grad()
def initial(
    auto: Autoencoder,
    data: Incomplete,
    n_chains: int,
    view: Callable[[Distribution], Distribution],
) -> tuple[Tensor, Tensor]:
    """Complete rows by draws of the encoder; (n_chains, n, features or latents)."""
    z = draw_latents(auto.posterior(*data), global_stream, n_chains, data.x)
    cells = view(auto.model.likelihood(z))
    x = at_quantiles(cells, torch.rand(z.shape[:-1] + data.x.shape[-1:]).to(z))
    return data.with_values(x), z


def without_dropout(
    sampler: Sampler[StateT, InfoT], modules: list[nn.Module]
) -> Sampler[StateT, InfoT]:
    """Turn off dropout in the steps of a sampler."""

    def step(state: StateT, data: Incomplete) -> tuple[StateT, InfoT]:
        before = [module.training for module in modules]
        for module in modules:
            module.eval()
        found = sampler.step(state, data)
        for module, training in zip(modules, before, strict=True):
            module.train(training)
        return found

    return Sampler(sampler.init, step)


def encoder_loss(
    name: str, auto: Autoencoder, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of the encoder alone on rows with missing values.

    It is the bound of an algorithm, or MIWAE's for those that complete rows.
    """
    # only the encoder is trained, for the model as it is used
    auto.model.requires_grad_(False).eval()
    bound = BOUNDS.get(name, BOUNDS["miwae"])
    return bound_loss(bound, auto, NO_PARTS, data, training)


def _of_bounds(
    loss: Callable[..., Loss], bounds: Mapping[str, Bound]
) -> dict[str, Algorithm]:
    return {
        name: Algorithm(partial(loss, bound), mixture=name.startswith("miss-"))
        for name, bound in bounds.items()
    }


ALGORITHMS: dict[str, Algorithm] = {
    **_of_bounds(bound_loss, BOUNDS),
    **_of_bounds(particle_loss, COMPLETED_BOUNDS),
    "vbgi-vae": Algorithm(block_gibbs_loss, missing_cells),
    "vbgi-vae-m": Algorithm(pseudo_gibbs_loss),
}
