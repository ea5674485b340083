"""Draws of the missing cells given the observed cells, by samplers of this package.

All samplers start at latents that are drawn from q(z | x_obs) and resampled by their
importance weights.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vae.autoencoder import Autoencoder, slices, weigh
from skvnce.samplers.ac_mwg import ac_mwg
from skvnce.samplers.base import Sampler, run_chain
from skvnce.samplers.lair import lair
from skvnce.samplers.latent import decode
from skvnce.samplers.metropolis_within_gibbs import mwg
from skvnce.samplers.pooled import draws as pooled_draws
from skvnce.samplers.pooled import run_pooled
from skvnce.samplers.pseudo_gibbs import pseudo_gibbs
from skvnce.samplers.resampling import normalised, resample, take
from skvnce.variational.base import Uniforms, at_quantiles

_PROPOSED = 4  # number of proposals for each draw at which a chain starts
_AT_ONCE = 2**22  # maximum size of a chunk of rows

# of a number: uniform numbers that are independent of those of other numbers
Streams = Callable[[int], Uniforms]


class SamplingSettings(NamedTuple):
    """Settings of the sampling.

    Attributes
    ----------
    n_steps : int
        Number of iterations of LAIR, or of moves of each chain.
    n_particles, n_replenish : int
        Of LAIR; the latter from q(z | x_obs).
    """

    n_steps: int
    n_particles: int
    n_replenish: int


def by_lair(
    auto: Autoencoder,
    data: Incomplete,
    n_draws: int,
    settings: SamplingSettings,
    streams: Streams,
) -> Tensor:
    """Draw from the proposals of all iterations of LAIR; (n_draws, n, features)."""
    sampler = lair(
        *auto,
        n_particles=settings.n_particles,
        n_replenish=settings.n_replenish,
        replenish=lambda data: auto.posterior(*data),
        uniforms=streams(0),
    )
    x = start(auto, data, settings.n_particles, streams)
    _, pool = run_pooled(
        sampler,
        sampler.init(data, x),
        data,
        lambda z: z[..., :0],  # no mean is needed
        n_steps=settings.n_steps,
        n_draws=n_draws,
        uniforms=streams(1),
    )
    return pooled_draws(auto.model, data, pool, streams(2))


def by_chains(make: Callable[..., Sampler]) -> Callable[..., Tensor]:
    """Make a rule that draws by the last states of independent chains.

    Parameters
    ----------
    make : callable
        (model, posterior, uniforms=) to a sampler.
    """

    def draws(
        auto: Autoencoder,
        data: Incomplete,
        n_draws: int,
        settings: SamplingSettings,
        streams: Streams,
    ) -> Tensor:
        sampler = make(*auto, uniforms=streams(0))
        state = sampler.init(data, start(auto, data, n_draws, streams))
        return run_chain(sampler, state, data, settings.n_steps).x

    return draws


SAMPLERS = {
    "lair": by_lair,
    "ac-mwg": by_chains(ac_mwg),
    "mwg": by_chains(mwg),
    "pseudo-gibbs": by_chains(pseudo_gibbs),
}


@torch.no_grad()
def start(
    auto: Autoencoder, data: Incomplete, n_chains: int, streams: Streams
) -> Tensor:
    """Complete rows by importance resampling from q(z | x_obs); (n_chains, n, d)."""
    number = _PROPOSED * n_chains
    z, log_weight = weigh(auto, data, streams(3), number)
    template = z.new_empty(()).expand(n_chains, len(data.x), data.x.shape[1] + 1)
    uniform = streams(4)(0, template)
    chosen = take(z, resample(log_weight, uniform[..., -1]))
    return decode(auto.model, data, chosen, uniform[..., :-1])


@torch.no_grad()
def rough_mean(
    auto: Autoencoder,
    data: Incomplete,
    to_cells: Callable[[Tensor], Tensor],
    streams: Streams,
    n_draws: int,
) -> Tensor:
    """Estimate the means of cells given the observed cells, by importance sampling.

    Each draw of the latents from q(z | x_obs) draws each cell once.

    Parameters
    ----------
    auto : Autoencoder
    data : Incomplete
    to_cells : callable
        Maps drawn scores (*batch, features) to cells.
    streams : Streams
        Preferably numbers that are distributed evenly over the draws.
    n_draws : int

    Returns
    -------
    Tensor of shape (n, features)
    """
    z, log_weight = weigh(auto, data, streams(0), n_draws)
    cells = auto.model.likelihood(z)
    like = data.x.expand(n_draws, *data.x.shape)
    drawn = to_cells(at_quantiles(cells, streams(1)(0, like)))
    return (normalised(log_weight).unsqueeze(-1) * drawn).sum(0)


def chunks(
    auto: Autoencoder, n: int, n_draws: int, settings: SamplingSettings
) -> Iterator[slice]:
    """Split n rows into chunks whose draws are bounded in memory."""
    d, k = auto.model.loadings.shape
    hidden = max(block[-1].out_features for block in auto.model.network.blocks)
    n_proposals = settings.n_particles + settings.n_replenish
    wide = max(n_proposals, _PROPOSED * n_draws)
    numbers = wide * (4 * d + hidden + (settings.n_particles + 1) * k)
    return slices(n, max(1, _AT_ONCE // numbers))
