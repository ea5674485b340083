"""Conditional means and draws of a normal distribution with bounds on its cells."""

from collections.abc import Callable

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import tell
from skvnce.algorithms import gaussian
from skvnce.distributions.bounded_normal import BoundedNormal
from skvnce.distributions.normal import Normal, prepare
from skvnce.models.bounded_gaussian import BoundedGaussian
from skvnce.samplers.base import chain_average, run_chain
from skvnce.samplers.gibbs import gibbs, missing_cells
from skvnce.variational.base import Uniforms

_IDLE = 4.0  # standard deviations at which a bound does nothing: 3e-5 of the mass
_TRIES = 20  # draws of a row before chains take over


def mean_shift(
    normal: Normal,
    data: Incomplete,
    low: Tensor,
    high: Tensor,
    uniforms: Uniforms,
    expectation: Callable[[BoundedNormal], Tensor],
    *,
    burn_in: int = 20,
    n_steps: int = 100,
) -> tuple[Tensor, Tensor]:
    """Estimate how far bounds move the expectations of missing cells.

    Gibbs chains with bounds and without run on the same random numbers: where bounds do
    nothing the two agree, and so the shift is 0.

    Parameters
    ----------
    normal : Normal
        Before the truncation.
    data : Incomplete
    low, high : Tensor of shape (features,)
    uniforms : callable
        Random numbers of the chains, for the rows of `data`.
    expectation : callable
        Of a cell given all others of its row, averaged over the chain: the mean, for
        one.  It has no error of sampling in rows that miss one cell.

    Returns
    -------
    touched : Tensor of bool, of shape (n,)
        Rows that the bounds are near to.
    shift : Tensor of shape (touched rows, features)
    """
    mean, spread = gaussian.conditional_moments(normal, data)
    near = (mean - _IDLE * spread < low) | (mean + _IDLE * spread > high)
    touched = (near & ~data.observed).any(1)
    part, keyed = data.take(touched), _of_rows(uniforms, touched)
    precision = prepare(normal).precision
    missing = missing_cells(part.observed[None])

    def average(low: Tensor, high: Tensor) -> Tensor:
        model = BoundedGaussian(normal.mean, precision, low, high)
        sampler = gibbs(model, missing, keyed)
        return chain_average(
            sampler,
            sampler.init(part, mean[touched].clamp(low, high)[None]),
            part,
            lambda x: expectation(model.conditionals(x)),
            burn_in=burn_in,
            n_steps=n_steps,
        )

    return touched, average(low, high) - average(low - torch.inf, high + torch.inf)


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
    one.  Rows that have none in some tries are left to Gibbs chains.
    """
    x = gaussian.draw(normal, data, n_draws)
    hidden = ~data.observed.expand_as(x)
    outside = _outside(x, hidden, low, high)
    for n_try in range(1, _TRIES + 1):
        tell("try", n_try, _TRIES)
        if not outside.any():
            return x
        again = data.take(outside.nonzero()[:, 1])
        x[outside] = gaussian.draw(normal, again)[0]
        outside = _outside(x, hidden, low, high)
    model = BoundedGaussian(normal.mean, prepare(normal).precision, low, high)
    rest = Incomplete(x[outside], ~hidden[outside])
    sampler = gibbs(model, missing_cells(rest.observed))
    state = sampler.init(rest, rest.x.clamp(low, high))
    x[outside] = run_chain(sampler, state, rest, n_steps).x
    return x


def _outside(x: Tensor, hidden: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return (((x < low) | (x > high)) & hidden).any(-1)


def _of_rows(uniforms: Uniforms, rows: Tensor) -> Uniforms:
    """Take the numbers of some rows of a table."""

    def some(step: int, x: Tensor) -> Tensor:
        whole = x.new_empty(*x.shape[:-2], len(rows), x.shape[-1])
        return uniforms(step, whole)[..., rows, :]

    return some
