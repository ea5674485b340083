"""Proposals of missing cells near draws of a density, for importance sampling.

Where conditionals of a normal distribution or of VGI extrapolate, none of their draws
may be where the density is.  Random walks of several starts and of steps of all sizes
climb there; a mixture of normals around their ends is then one of the proposals.  The
ends do not depend on the draws that are weighted, which leaves their mean unbiased.

Cappe, Guillin, Marin and Robert (2004), Population Monte Carlo; Veach and Guibas (1995)
for the mixture of proposals.
"""

from collections.abc import Callable
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.distributions.normal import Normal
from skvnce.distributions.quantiles import inside
from skvnce.samplers.metropolis import accept
from skvnce.variational.base import Uniforms

_STEPS = (0.01, 10.0)  # smallest and largest of a random walk, in standard deviations
_WIDTHS = (1 / 16, 1 / 4, 1.0)  # of normals around ends, in their standard deviation
_NARROWEST = 1e-3  # standard deviation of ends that are equal


class Local(NamedTuple):
    """A mixture of normals around centres, of several widths."""

    centres: Tensor  # (n_centres, n, features)
    scale: Tensor  # (n, features): standard deviation of the centres of a row
    observed: Tensor  # bool (n, features): cells that are not drawn

    def sample(self, n_draws: int, uniforms: Uniforms) -> Tensor:
        """Draw cells around random centres; (n_draws, n, features)."""
        like = self.scale.expand(n_draws, *self.scale.shape)
        chosen = uniforms(0, like[..., :1].expand(*like.shape[:-1], 2))
        sizes = chosen.new_tensor([len(self.centres), len(_WIDTHS)])
        centre, width = (chosen * sizes).long().unbind(-1)
        centre = self.centres.gather(0, centre[..., None].expand(like.shape))
        width = self.scale.new_tensor(_WIDTHS)[width][..., None]
        noise = torch.special.ndtri(inside(uniforms(1, like)))
        return centre + width * self.scale * noise

    def log_prob(self, x: Tensor) -> Tensor:
        """Compute log q of the missing cells of rows (n_draws, n, features)."""
        apart = (x[:, None] - self.centres) / self.scale
        square = apart.square().where(~self.observed, 0.0).sum(-1)
        missing = (~self.observed).sum(-1)
        parts = [
            (-square / (2 * width**2)).logsumexp(1) - missing * log(width)
            for width in _WIDTHS
        ]
        units = self.scale.log().where(~self.observed, 0.0).sum(-1)
        n_parts = len(_WIDTHS) * len(self.centres)
        constant = log(n_parts) + missing * log(2 * pi) / 2 + units
        return torch.stack(parts).logsumexp(0) - constant


def local_proposal(
    log_prob: Callable[[Tensor], Tensor],
    start: Incomplete,  # x of shape (n_chains, n, features)
    uniforms: Uniforms,
    n_steps: int,  # each moves all missing cells of a row together
) -> Local:
    """Walk at random from several starts, by Metropolis updates, and keep the ends."""
    x, observed = start
    density, (least, most) = log_prob(x), _STEPS
    for number in range(n_steps):
        both = uniforms(number, x.new_empty(2, *x.shape))
        # sizes are uniform in logarithms, because the right one is not known
        size = least * (most / least) ** both[1, ..., :1]
        step = size * torch.special.ndtri(inside(both[0]))
        proposed = x.where(observed, x + step)
        elsewhere = log_prob(proposed)
        uniform = uniforms(n_steps + number, x[..., :1]).squeeze(-1)
        accepted, _ = accept(torch.stack([density, elsewhere]), uniform)
        x = proposed.where(accepted[..., None], x)
        density = elsewhere.where(accepted, density)
    scale = x.std(0).clamp(min=_NARROWEST)
    return Local(x, scale, observed)


def marginal_draws(normal: Normal, like: Tensor, uniforms: Uniforms) -> Tensor:
    """Draw cells (n_chains, n, features) of the columns of a normal, independently."""
    noise = torch.special.ndtri(inside(uniforms(0, like)))
    scale = normal.covariance.diagonal().sqrt()
    return normal.mean.to(like) + noise * scale.to(like)
