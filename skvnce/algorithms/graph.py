"""Learn a truncated Gaussian graph from an incomplete table by stochastic EM.

One E-step, Gibbs chains on the model's own conditionals, and interchangeable M-steps:
the next method is one more file that builds an `MStep`.  Columns are scaled to unit
spread and ``theta = (K, b)`` is written around a centre, ``-z'Kz/2 + b'z`` with
``z = (x - centre) / scale``; `to_model` maps it back.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.distributions.truncated_normal import TruncatedNormal, fit_moments
from skvnce.models.truncated_gaussian import TruncatedGaussian, safe_on_orthant
from skvnce.samplers.base import State
from skvnce.samplers.gibbs import gibbs


class Theta(NamedTuple):
    """Natural parameters around a centre, for scaled columns.

    Attributes
    ----------
    precision : Tensor of shape (features, features)
    linear : Tensor of shape (features,)
    log_scale : Tensor of shape ()
        Only where the method estimates it, else zero.
    """

    precision: Tensor
    linear: Tensor
    log_scale: Tensor


class Solution(NamedTuple):
    """What an M-step returns: parameters, loss, certified or measured inexactness."""

    theta: Theta
    loss: float
    gap: float


class MStep(NamedTuple):
    """A method: how it sums up completed tables, and how it minimises its loss.

    Attributes
    ----------
    summarise : callable
        Completed table (n, features) -> summary.
    merge : callable
        (old summary, new summary, weight of the new) -> summary.
    solve : callable
        (summary, start) -> Solution, converged.
    """

    summarise: Callable[[Tensor], Any]
    merge: Callable[[Any, Any, float], Any]
    solve: Callable[[Any, Theta], Solution]


class Units(NamedTuple):
    """Centre (in units of the scale) and scale of each column."""

    centre: Tensor
    scale: Tensor


class Fit(NamedTuple):
    """The outcome of `learn_graph`; the model is for columns in the scaled units."""

    theta: Theta
    model: TruncatedGaussian
    losses: list[float]
    gap: float
    change: float


def off_diagonal(d: int) -> Tensor:
    """Return ones off the diagonal, zeros on it."""
    return 1 - torch.eye(d, dtype=torch.float64)


def units_of(data: Incomplete, fit_linear: bool) -> Units:
    """Centre and scale columns by their observed cells.

    With the linear term: mean and standard deviation.  Without it the model's centre
    is zero, and the scale is the root mean square.
    """
    count = data.observed.sum(0)
    mean = data.x.sum(0) / count
    centre = mean if fit_linear else torch.zeros_like(mean)
    squares = (data.x - centre).square().where(data.observed, data.x.new_zeros(()))
    scale = (squares.sum(0) / count).sqrt()
    return Units(centre / scale, scale)


def uncentre(theta: Theta, centre: Tensor) -> Theta:
    """Write theta for columns that are scaled but not centred."""
    shift = theta.precision @ centre
    constant = theta.linear @ centre + centre @ shift / 2
    return Theta(theta.precision, theta.linear + shift, theta.log_scale + constant)


def to_model(theta: Theta, centre: Tensor) -> TruncatedGaussian:
    """Make the model of columns that are scaled but not centred."""
    return TruncatedGaussian(*uncentre(theta, centre))


def marginals(data: Incomplete) -> TruncatedNormal:
    """Fit a truncated normal to the observed cells of each column by moments."""
    count = data.observed.sum(0)
    mean = data.x.sum(0) / count
    squares = (data.x - mean).square().where(data.observed, data.x.new_zeros(()))
    return fit_moments(mean, squares.sum(0) / count)


def independent(data: Incomplete, centre: Tensor, fit_linear: bool) -> Theta:
    """Start from independent columns: truncated normals, or half-normals if b = 0."""
    if fit_linear:
        dist = marginals(data)
        diagonal = dist.scale.square().reciprocal()
        linear = (dist.loc - centre) * diagonal
    else:
        diagonal, linear = torch.ones_like(centre), torch.zeros_like(centre)
    return Theta(diagonal.diag(), linear, linear.new_zeros(()))


def learn_graph(
    data: Incomplete,
    m_step: MStep,
    start: Theta,
    centre: Tensor,
    *,
    max_iter: int,
    warm_up: int,
    tol: float,
    n_sweeps: int = 1,
    on_round: Callable[[int, Solution, float], None] = lambda n, solution, change: None,
) -> Fit:
    """Alternate Gibbs sweeps over the missing cells and M-steps.

    After `warm_up` rounds the summaries are averaged with weights 1, 1/2, 1/3, ...,
    so that the noise of the draws dies out (stochastic approximation EM); the loop
    stops when K moves by less than `tol`.

    Parameters
    ----------
    data : Incomplete
        Scaled columns.
    m_step : MStep
    start : Theta
    centre : Tensor of shape (features,)
    max_iter, warm_up, n_sweeps : int
        Rounds at most, rounds before averaging, Gibbs sweeps a round.
    tol : float
        Largest change of an entry of the scaled K at which to stop.
    on_round : callable
        Shown the round, the solution and the change.
    """
    theta, summary, losses = start, None, []
    state = State(data.x)
    complete = bool(data.observed.all())
    # warm-up of the chains themselves: independent draws, whatever they start from
    for n_round in range(1, max_iter + 1):
        model = to_model(_safe(theta), centre)
        sampler = gibbs(model, data.observed)
        for _ in range(n_sweeps):
            state = sampler.step(state)
        new, age = m_step.summarise(state.x), n_round - warm_up
        summary = new if age <= 1 else m_step.merge(summary, new, 1 / age)
        solution = m_step.solve(summary, theta)
        change = float((solution.theta.precision - theta.precision).abs().max())
        theta = solution.theta
        losses.append(solution.loss)
        on_round(n_round, solution, change)
        if complete or (age > 1 and change < tol):
            break
    theta = _safe(theta)
    change = 0.0 if complete else change
    return Fit(theta, to_model(theta, centre), losses, solution.gap, change)


def _safe(theta: Theta) -> Theta:
    return theta._replace(precision=safe_on_orthant(theta.precision))
