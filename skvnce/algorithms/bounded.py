"""Conditional means and draws of a normal distribution with bounds on its cells.

Rows that the bounds do not touch take the closed forms; Gibbs chains move the others.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms import gaussian
from skvnce.algorithms.conditional import Uniforms
from skvnce.distributions.bounded_normal import BoundedNormal
from skvnce.models.bounded_gaussian import BoundedGaussian
from skvnce.models.gaussian import Normal, prepare
from skvnce.samplers.base import State, run_chain
from skvnce.samplers.gibbs import gibbs, missing_cells

_IDLE = 5.0  # standard deviations at which a bound does nothing: 3e-7 of the mass


def conditional_mean(
    normal: Normal,
    data: Incomplete,
    low: Tensor,
    high: Tensor,
    uniforms: Uniforms,
    expectation: Callable[[BoundedNormal], Tensor],
    *,
    burn_in: int = 20,
    n_steps: int = 200,
) -> tuple[Tensor, Tensor]:
    """Estimate expectations of the missing cells in the rows that bounds touch.

    Parameters
    ----------
    normal : Normal
        Before the truncation.
    data : Incomplete
    low, high : Tensor of shape (features,)
    uniforms : callable
        Random numbers of the chains, for the rows of `data` that are touched.
    expectation : callable
        Of a cell given all others of its row, averaged over the chain: the mean, for
        one.  It is exact in rows that miss one cell.

    Returns
    -------
    touched : Tensor of bool, of shape (n,)
    expectations : Tensor of shape (touched rows, features)
    """
    mean, spread = gaussian.conditional_moments(normal, data)
    near = (mean - _IDLE * spread < low) | (mean + _IDLE * spread > high)
    touched = (near & ~data.observed).any(1)
    part, keyed = data.take(touched), _of_rows(uniforms, touched)
    model = BoundedGaussian(normal.mean, prepare(normal).precision, low, high)
    sampler = gibbs(model, missing_cells(part.observed[None]), keyed)
    state = State(part.with_values(mean[touched].clamp(low, high))[None])
    total = torch.zeros_like(part.x)

    def add(x: Tensor) -> None:
        total.add_(expectation(model.conditionals(x[0])))

    run_chain(sampler, run_chain(sampler, state, burn_in), n_steps, add)
    return touched, total / n_steps


def draw(
    normal: Normal,
    data: Incomplete,
    low: Tensor,
    high: Tensor,
    n_draws: int,
    *,
    n_steps: int = 50,
) -> Tensor:
    """Draw the missing cells within their bounds; (n_draws, n, features).

    Draws of the unbounded normal that lie within the bounds are draws of the bounded
    one; chains redraw the others from where the bounds cut them.
    """
    x = gaussian.draw(normal, data, n_draws)
    hidden = ~data.observed.expand_as(x)
    outside = (((x < low) | (x > high)) & hidden).any(-1)
    model = BoundedGaussian(normal.mean, prepare(normal).precision, low, high)
    start = torch.where(hidden[outside], x[outside].clamp(low, high), x[outside])
    sampler = gibbs(model, missing_cells(~hidden[outside]))
    x[outside] = run_chain(sampler, State(start), n_steps).x
    return x


def _of_rows(uniforms: Uniforms, rows: Tensor) -> Uniforms:
    """Take the numbers of some rows of a table."""

    def some(step: int, x: Tensor) -> Tensor:
        whole = x.new_empty(*x.shape[:-2], len(rows), x.shape[-1])
        return uniforms(step, whole)[..., rows, :]

    return some
