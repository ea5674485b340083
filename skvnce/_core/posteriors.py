"""Interfaces of posteriors: weighted draws of the unobserved variables of rows.

The unobserved variables of a row are its missing cells, its latents, or both.  Draws
are made in steps: `repeated` starts with the rows themselves, and each further step
draws one more part given the previous ones, so that log q is a sum,

    log q(x_mis, z | x_obs) = log q(x_mis | x_obs) + log q(z | x_obs, x_mis)       (1)

All draws are functions of uniform numbers that are arguments: the same numbers give the
same draws, which are smooth in the parameters of q if q is continuous.
"""

from math import log
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution

from skvnce._core.distributions.cells import Candidates, NumberOrLevel, drawn_once
from skvnce._core.distributions.cells import entropy as entropy  # re-exported
from skvnce._core.distributions.functions import at_quantiles, draw
from skvnce._core.random import Uniforms
from skvnce._core.distributions.functions import inside as inside  # re-exported

class Draws(NamedTuple):
    """Draws of the unobserved variables of rows."""

    # (n_draws, *rows, features) or (..., latents): ``(x,)`` or ``(x, z)``: the
    # arguments of the model's `log_density`
    values: tuple[Tensor, ...]
    log_prob: Tensor  # (n_draws, *rows): log q of the draws, eq. (1)
    # (n_draws, *rows): weights for means over q; they sum to 1 over the draws of a row
    log_weight: Tensor
    # (n_draws, *rows): log q of the discrete parts, through which no draw is
    # differentiable, for the score-function gradient.  None if there are none.  If
    # states are enumerated, of the previous draws: the last factor of ``n_draws``
    log_score: Tensor | None = None


class Posterior(Protocol):
    """A posterior that draws the unobserved variables of rows."""

    def __call__(self, x: Tensor, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw for rows x (*batch, n, features) of one mask (n, features)."""
        ...


class LatentPosterior(Protocol):
    """An encoder, which returns the distribution of the latents of a row."""

    def __call__(self, x: Tensor, observed: Tensor) -> Distribution:
        """Return q(z | x), of event shape (latents,) and batch shape (*batch,).

        Values under the mask are arbitrary; it is all true for completed rows.
        """
        ...


class LatentCells(Protocol):
    """A conditional distribution q(x_mis | z, x_obs) with independent cells."""

    def __call__(self, x: Tensor, observed: Tensor, z: Tensor) -> Distribution:
        """Return q(x_j | z, x_obs) of all columns j; batch shape (*batch, features)."""
        ...


class GibbsConditionals(Protocol):
    """Univariate distributions q(x_j | x), from completed rows x."""

    def all(self, x: Tensor) -> Distribution:
        """Return q_j of all columns; (*batch, features) -> batch (*batch, features)."""
        ...

    def at(self, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j of one column a row, int (*several, *batch)."""
        ...

    def back(self, q: Distribution, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j at rows x in which only its own cell has changed since q."""
        ...

    def blind(self, x: Tensor, columns: Tensor) -> Distribution:
        """Return the result of `at` with zero in place of x_j (appendix E)."""
        ...


def candidates(q: Distribution, most_levels: int) -> Candidates:
    """Represent means over q: levels are enumerated, and numbers are drawn once."""
    if isinstance(q, NumberOrLevel):
        return q.candidates(most_levels)
    return drawn_once(q)


def draw_latents(
    q: Distribution, uniforms: Uniforms, n_draws: int, like: Tensor
) -> Tensor:  # (n_draws, *batch, latents)
    """Draw latents by the numbers of step 0, of the type of a tensor."""
    shape = n_draws, *q.batch_shape, q.event_shape[0] + 1
    return draw(q, uniforms(0, like.new_empty(()).expand(shape)))


def repeated(x: Tensor, n_draws: int = 1) -> Draws:
    """Repeat rows x (*rows, features), without unobserved variables yet."""
    drawn = x.expand(n_draws, *x.shape)
    log_weight = drawn.new_full(drawn.shape[:-1], -log(n_draws))
    return Draws((drawn,), torch.zeros_like(log_weight), log_weight)


def with_missing(
    draws: Draws, observed: Tensor, q: Distribution, uniform: Tensor
) -> Draws:
    """Draw missing cells, independent given the observed cells.

    `uniform` (n_draws, *rows, features). `q`: q(x_j | x_obs) of each cell.
    """
    (x,) = draws.values
    cells = at_quantiles(q, uniform)
    log_prob = q.log_prob(cells).where(~observed, 0.0).sum(-1)
    return _joined(draws, (x.where(observed, cells),), q, log_prob)


def with_latents(draws: Draws, q: Distribution, uniform: Tensor) -> Draws:
    """Draw latent variables, independent given the completed rows.

    `uniform` (n_draws, *rows, latents). `q`: q(z_k | x) at the completed rows,
    (n_draws, *rows), or at the rows themselves if no cell is missing.
    """
    z = at_quantiles(q, uniform.reshape(-1, *q.batch_shape))
    log_prob = q.log_prob(z).sum(-1).view(uniform.shape[:-1])
    return _joined(draws, (*draws.values, z.view(uniform.shape)), q, log_prob)


def _joined(
    draws: Draws, values: tuple[Tensor, ...], q: Distribution, log_prob: Tensor
) -> Draws:
    """Add one part, with its log q, to draws."""
    score = draws.log_score
    if isinstance(q, Bernoulli):
        score = log_prob if score is None else score + log_prob
    return Draws(values, draws.log_prob + log_prob, draws.log_weight, score)


def with_states(draws: Draws, states: Tensor, log_q: Tensor) -> Draws:
    """Enumerate latent variables: each state is a draw, weighted by its probability.

    Means over the draws are then exact means over q, and smooth in its parameters.
    `log_q` (n_states, n_draws, *rows): of every state, normalised over the states.
    """
    (x,) = draws.values
    shape = len(states), *x.shape[:-1]
    z = states.view(len(states), *[1] * (x.dim() - 1), -1).expand(*shape, -1)
    return Draws(
        (x.expand(*shape, -1).flatten(0, 1), z.flatten(0, 1)),
        (draws.log_prob + log_q).flatten(0, 1),
        (draws.log_weight + log_q).flatten(0, 1),
        draws.log_score,
    )
