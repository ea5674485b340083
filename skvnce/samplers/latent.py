"""Shared parts of the samplers of latent variable models.

One step takes all its uniform numbers from one call, as columns of one template.
Several calls of one shape would return the same numbers if these are keyed by the row.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel
from skvnce.variational.base import LatentPosterior, Uniforms, at_quantiles, draw

FIRST = 2  # number of the first step's uniforms: 0 and 1 are used by `init`


class LatentState(NamedTuple):
    """State of the chains."""

    x: Tensor  # (*chains, n, features)
    z: Tensor  # (*chains, n, latents)
    step: int = 0


def columns(
    uniforms: Uniforms,
    number: int,
    model: LatentVariableModel,
    data: Incomplete,
    chains: tuple[int, ...],
    n_more: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the uniform numbers of one step.

    Returns (*chains, n, latents + 1): for `draw` of latents; (*chains, n, features):
    for the cells; (n_more, *chains, n): for other purposes.
    """
    widths = model.prior().event_shape[0] + 1, data.x.shape[-1], n_more
    # only shape and type of the template are used, so that it needs no memory
    template = data.x.new_empty(()).expand(*chains, len(data.x), sum(widths))
    latents, cells, more = uniforms(number, template).split(widths, -1)
    return latents, cells, more.movedim(-1, 0)


def encode(posterior: LatentPosterior, x: Tensor) -> Distribution:
    """Return q(z | x) of completed rows (*chains, n, features)."""
    return posterior(x, torch.ones_like(x, dtype=torch.bool))


def decode(
    model: LatentVariableModel, data: Incomplete, z: Tensor, uniform: Tensor
) -> Tensor:
    """Draw x_mis from p(x_mis | x_obs, z); (*chains, n, latents) -> completed tables.

    `z` (*chains, n, latents), `uniform` (*chains, n, features).
    """
    return data.with_values(at_quantiles(model.likelihood(z), uniform))


def unconditional(
    model: LatentVariableModel, data: Incomplete, latents: Tensor, cells: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw z from the prior and x_mis given z: the default start of chains.

    `latents` (*chains, n, latents + 1).  `cells` (*chains, n, features): uniform
    numbers.  Returns `z` (*chains, n, latents); `x` (*chains, n, features).
    """
    z = draw(model.prior(), latents)
    return z, decode(model, data, z, cells)
