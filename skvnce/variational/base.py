"""What a posterior gives to the layers above: weighted draws of what rows hide.

A row hides its missing cells, its latent variables, or both.  Draws are made by steps:
`repeated` starts with the rows themselves, and each further step draws one more part
given the parts before it, so that log q is a sum,

    log q(x_mis, z | x_obs) = log q(x_mis | x_obs) + log q(z | x_obs, x_mis)       (1)
"""

from math import log
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution


class Draws(NamedTuple):
    """Draws of what rows hide.

    Attributes
    ----------
    values : tuple of Tensor of shape (n_draws, n, features) or (n_draws, n, latents)
        ``(x,)`` or ``(x, z)``: what the model's `log_density` takes.
    log_prob : Tensor of shape (n_draws, n)
        log q of the draws, eq. (1).
    log_weight : Tensor of shape (n_draws, n)
        Weights for means over q; they sum to 1 over the draws of a row.
    """

    values: tuple[Tensor, ...]
    log_prob: Tensor
    log_weight: Tensor


class Posterior(Protocol):
    """A rule that draws what rows hide; the same rows may give the same draws."""

    def __call__(self, x: Tensor, observed: Tensor) -> Draws:
        """Draw for rows x (n, features); values under the mask may be anything."""
        ...


def repeated(x: Tensor, n_draws: int = 1) -> Draws:
    """Repeat rows x (n, features) that hide nothing yet."""
    drawn = x.expand(n_draws, *x.shape)
    log_weight = drawn.new_full(drawn.shape[:-1], -log(n_draws))
    return Draws((drawn,), torch.zeros_like(log_weight), log_weight)


def with_missing(draws: Draws, observed: Tensor, q: Distribution) -> Draws:
    """Draw missing cells, independent given the observed ones.

    Parameters
    ----------
    draws : Draws
        Values under the mask are never read.
    observed : Tensor of bool, of shape (n, features)
    q : Distribution of batch shape (n, features)
        q(x_j | x_obs) of each cell; that of observed cells is ignored.
    """
    (x,) = draws.values
    cells = q.rsample(x.shape[:1])
    log_prob = q.log_prob(cells).where(~observed, 0.0).sum(-1)
    return draws._replace(
        values=(x.where(observed, cells),), log_prob=draws.log_prob + log_prob
    )


def with_latents(draws: Draws, q: Distribution) -> Draws:
    """Draw latent variables, independent given the completed rows.

    Parameters
    ----------
    draws : Draws
    q : Distribution of batch shape (n_draws, n, latents) or (n, latents)
        q(z_k | x) at the completed rows, or at the rows themselves where no cell is
        missing: an encoder then sees each row once.
    """
    n_draws, n, _ = draws.values[0].shape
    z = q.expand((n_draws, n, q.batch_shape[-1])).rsample()
    log_prob = draws.log_prob + q.log_prob(z).sum(-1)
    return draws._replace(values=(*draws.values, z), log_prob=log_prob)


def with_states(draws: Draws, states: Tensor, log_q: Tensor) -> Draws:
    """Enumerate latent variables: each state is a draw, weighted by its probability.

    Means over the draws are then exact means over q, and smooth in its parameters.

    Parameters
    ----------
    draws : Draws
    states : Tensor of shape (n_states, latents)
    log_q : Tensor of shape (n_states, n_draws, n)
        log q(z | x) of every state, normalised over the states.
    """
    (x,) = draws.values
    shape = len(states), *x.shape[:-1]
    z = states[:, None, None].expand(*shape, -1)
    return Draws(
        (x.expand(*shape, -1).flatten(0, 1), z.flatten(0, 1)),
        (draws.log_prob + log_q).flatten(0, 1),
        (draws.log_weight + log_q).flatten(0, 1),
    )
