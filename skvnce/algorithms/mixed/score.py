"""Log-probabilities of the observed cells of rows under a latent normal model.

The probability that latent variables are within the bounds of the observed cells has no
closed form.  It is estimated by drawing one variable after the other within its bounds
(the GHK simulator; Genz 1992, Numerical computation of multivariate normal
probabilities): the product of the probabilities of the intervals is unbiased.  For a
nominal column the bounded variables are the differences between the latent variable of
the observed level and the others.
"""

from math import log, pi

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.mixed.columns import Latents
from skvnce.algorithms.mixed.gibbs import truncated
from skvnce.distributions.bounded_normal import log_interval
from skvnce.distributions.normal import Normal
from skvnce.distributions.quantiles import inside
from skvnce.variational.base import Uniforms

# 16 MiB in double precision
_AT_ONCE = 2**21  # maximum size of a batch of matrices or draws


def log_prob(
    latents: Latents, normal: Normal, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> Tensor:
    """Estimate log p(x_obs) of each row; (n,).

    Probabilities of values that are intervals of a score, and densities of others.

    `uniforms`: random numbers of step 0, of shape (n_draws, n, latents).
    """
    d, n = latents.size, len(data.x)
    table = inside(uniforms(0, data.x.new_empty(n_draws, n, d)))
    size = max(1, _AT_ONCE // (d * max(d, n_draws)))
    found = [
        _of_rows(latents, normal, data.take(part), table[:, part])
        for part in torch.arange(n).split(size)
    ]
    return torch.cat(found) if found else data.x.new_zeros(0)


def _of_rows(
    latents: Latents, normal: Normal, data: Incomplete, uniform: Tensor
) -> Tensor:
    low, high, maps = _known_first(*_bounded(latents, data))
    mean = (maps @ normal.mean[:, None])[..., 0]
    root = torch.linalg.cholesky(maps @ normal.covariance @ maps.mT)
    z = torch.zeros_like(uniform)
    total = uniform.new_zeros(uniform.shape[:-1])
    for j in range(uniform.shape[-1]):
        shift = mean[:, j] + (root[:, j, :j] * z[..., :j]).sum(-1)
        scale = root[:, j, j]
        a, b = (low[:, j] - shift) / scale, (high[:, j] - shift) / scale
        known = low[:, j] == high[:, j]
        density = -(a.square() + log(2 * pi)) / 2 - scale.log()
        total = total + torch.where(known, density, log_interval(a, b))
        inner = truncated(0.0, 1.0, *(t.numpy() for t in (a, b, uniform[..., j])))
        z[..., j] = torch.where(known, a, torch.from_numpy(inner))
    slopes = sum(
        marginal.log_slopes(data.x[:, j]).where(data.observed[:, j], 0.0)
        for j, _, marginal in latents.ordered
    )
    return total.logsumexp(0) - log(len(uniform)) + slopes


def _known_first(low: Tensor, high: Tensor, maps: Tensor) -> tuple[Tensor, ...]:
    """Order the functions of each row: known ones, bounded ones, and the others."""
    free = low.isinf() & high.isinf()
    order = (1 + free.int() - (low == high).int()).argsort(dim=1, stable=True)
    maps = maps.gather(1, order[..., None].expand_as(maps))
    return low.gather(1, order), high.gather(1, order), maps


def _bounded(latents: Latents, data: Incomplete) -> tuple[Tensor, Tensor, Tensor]:
    """Find bounded linear functions of the latent variables of each row.

    Returns `low`, `high` (n, latents); `maps` (n, latents, latents).
    """
    bounds = latents.bounds(data)
    low, high = bounds.low.T.clone(), bounds.high.T.clone()
    maps = torch.eye(latents.size).to(low).repeat(len(low), 1, 1)
    for place, (_, block) in enumerate(latents.nominal):
        levels = bounds.levels[place]
        seen = (levels >= 0).nonzero().squeeze(1)
        own = torch.eye(block.stop - block.start).to(low)[levels[seen]]
        part = own[:, None, :] - torch.eye(own.shape[1]).to(low)
        # the observed level itself stays as it is, so that the map is invertible
        part = torch.where(own[:, :, None] > 0, own[:, None, :], part)
        maps[seen, block, block] = part
        low[seen, block] = torch.where(own > 0, -torch.inf, 0.0).to(low)
    return low, high, maps
