"""The choice of linear or nonlinear marginals by held-out cells."""

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian import em
from skvnce.algorithms.gaussian.marginals import (
    PiecewiseLinear,
    fit_marginals,
    linear,
    scored,
    start,
)
from skvnce.algorithms.gaussian.rows import Rows
from skvnce.algorithms.gaussian.steps import Steps, fit_steps, left_out_moments
from skvnce.distributions.normal import Normal
from skvnce.distributions.quantiles import midpoint_levels, quantile_loss

_N_LEVELS = 12  # number of quantiles that represent a distribution
_CLEAR = 2.0  # number of standard errors of a significant loss
_WORSE = 1.1  # maximum ratio of squared errors with which marginals are accepted
_ROUGH = 0.03  # tolerance for marginals that are only compared


def choose_marginals(
    data: Incomplete,
    held_out: Tensor,
    weights: Tensor,
    strength: float,
    normal: Normal,
    *,
    max_iter: int,
    tol: float,
    values: dict[int, Tensor] | None = None,
) -> tuple[PiecewiseLinear, Normal, Normal] | None:
    """Fit marginals, and accept them if they predict held-out cells better.

    Each held-out cell is scored by the CRPS of its distribution given the other cells
    of its row, and the gain must exceed a standard error.  The squared errors of means
    must not increase by more than a tenth, which they may do in columns with heavy
    tails.  The choice is made for all columns together, because a nonlinear map of some
    columns destroys linear relations to the others.

    Columns with repeated values are drawn by steps, which give the right frequencies
    also with linear marginals.  So nonlinear marginals must not be significantly worse,
    by two standard errors, in the CRPS of draws of all observed cells given the other
    cells of their row; there are ten times as many of these.

    Parameters
    ----------
    data : Incomplete
    held_out : Tensor of bool, of shape (n, features)
        Observed cells that the fit does not use.
    weights : Tensor of shape (n,)
    strength : float
    normal : Normal
        Nearly fitted to the other cells with linear marginals.
    max_iter, tol
        Of EM with both.
    values : dict of int to Tensor, or None
        Increasing values of the columns with repeated values.

    Returns
    -------
    None, or marginals, the normal distribution that was fitted together with them, and
    the one at which EM continues.
    """
    kept = Incomplete(data.x.where(~held_out, 0.0), data.observed & ~held_out)
    lines = linear(data.x.shape[1])
    begin = start(kept, weights)
    rows = Rows(kept, weights)
    found = fit_marginals(rows, strength, begin, normal, tol=_ROUGH)
    losses, squares, drawn, stopping = [], [], [], {"max_iter": max_iter, "tol": tol}
    for marginals, fitted in ((lines, normal), found):
        scores, _ = scored(marginals, kept)
        fit = em.fit_normal(scores, weights, strength, fitted, **stopping)
        moments = em.conditional_moments(fit.normal, scores)
        crps = _crps(marginals, None, *moments, data.x).where(held_out, 0.0)
        losses.append(crps.sum(1))
        drawn.append(_left_out_crps(marginals, fit.normal, data, weights, values))
        error = (marginals.expectation(*moments) - data.x).where(held_out, 0.0)
        squares.append(weights @ error.square().sum(1))
        last = fit.normal
    gain = losses[0] - losses[1]  # of each row
    better = weights @ gain > (weights @ gain.square()).sqrt()
    lost = drawn[1] - drawn[0]
    worse = weights @ lost > _CLEAR * (weights @ lost.square()).sqrt()
    fair = squares[1] <= _WORSE * squares[0] and not worse
    return (*found, last) if better and fair else None


def _left_out_crps(
    marginals: PiecewiseLinear,
    normal: Normal,
    data: Incomplete,
    weights: Tensor,
    values: dict[int, Tensor] | None,
) -> Tensor:
    """Sum the CRPS of draws of observed cells; (n,), 0 without repeated values."""
    if not values:
        return torch.zeros_like(weights)
    scores, _ = scored(marginals, data)
    moments = left_out_moments(normal, scores, torch.arange(data.x.shape[1]))
    stepped = fit_steps(normal, scores, data.x, weights, values)
    crps = _crps(marginals, stepped, *moments, data.x).where(data.observed, 0.0)
    return crps.sum(1)


def _crps(
    marginals: PiecewiseLinear,
    stepped: Steps | None,
    mean: Tensor,
    deviation: Tensor,
    x: Tensor,
) -> Tensor:
    """Compute the CRPS of cells whose scores are N(mean, deviation**2)."""
    total = torch.zeros_like(x)
    for level in midpoint_levels(_N_LEVELS, x):
        score = mean + deviation * torch.special.ndtri(level)
        cells = marginals.inverse(score)
        error = x - (cells if stepped is None else stepped.put(score, cells))
        total += quantile_loss(error, level)
    return 2 * total / _N_LEVELS
