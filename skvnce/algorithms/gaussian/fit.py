"""Fit a Gaussian copula: choose it on held-out cells, fit it to all, calibrate it."""

from typing import NamedTuple

from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import OnRound, step, tell_round
from skvnce.algorithms.gaussian import calibration, copula, em, steps
from skvnce.algorithms.gaussian.copula import Copula

Pair = tuple[Tensor, Tensor]


class Split(NamedTuple):
    """The rows and cells on which a copula is chosen and calibrated.

    Attributes
    ----------
    some : Tensor of bool, of shape (n,)
        The rows.
    hidden : Tensor of bool, of shape (n, features)
        The held-out cells.
    folds : Tensor of int, of shape (n,)
        The folds of the rows, from which calibration leaves out one at a time.
    """

    some: Tensor
    hidden: Tensor
    folds: Tensor


class Limits(NamedTuple):
    """What is known about the cells of the columns.

    Attributes
    ----------
    ranges : tuple of two Tensors of shape (features,)
        Smallest and largest possible cells.
    bounds : tuple of two Tensors of shape (features,), or None
        Bounds to which the distribution is truncated; infinite where there are none.
    values : dict of int to Tensor
        Values of the columns with repeated values.
    """

    ranges: Pair
    bounds: Pair | None
    values: dict[int, Tensor]


class FittedCopula(NamedTuple):
    """A copula, the scores that its normal distribution was fitted to, and its fit.

    Attributes
    ----------
    copula : Copula
    strength : float
        k of the prior, see `em`.
    scores : Incomplete
    em : em.Fit
    judged : Copula
        A copula of this kind that is fitted without the held-out cells.
    """

    copula: Copula
    strength: float
    scores: Incomplete
    em: em.Fit
    judged: Copula


def fit_copula(
    data: Incomplete,
    weights: Tensor,
    split: Split,
    limits: Limits,
    strengths: list[float],
    *,
    nonlinear: bool,
    max_iter: int,
    tol: float,
    on_round: OnRound = tell_round,
) -> FittedCopula:
    """Fit a copula to a table.

    Parameters
    ----------
    data : Incomplete
        Columns scaled to unit standard deviation.
    weights : Tensor of shape (n,)
    split : Split
    limits : Limits
    strengths : list of float
        Candidates, in decreasing order.
    nonlinear : bool
        Whether marginals may be nonlinear.
    max_iter, tol
        Of EM.
    on_round : callable
        Called after each round of the final fit.
    """
    some, hidden, folds = split
    effort = {"max_iter": max_iter, "tol": tol}
    part = data.take(some), hidden[some], weights[some]
    chosen = copula.choose(
        data,
        weights,
        part,
        strengths,
        nonlinear=nonlinear,
        values=limits.values,
        **effort,
    )
    model = _limited(Copula(chosen.start, chosen.marginals), limits)
    scores, _ = model.scores(data)
    strength, start = chosen.strength, chosen.start
    fit = em.fit_normal(scores, weights, strength, start, on_round=on_round, **effort)
    part = scores.take(some), data.x[some], weights[some]
    stepped = steps.fit_steps(fit.normal, *part, limits.values)
    model = model._replace(normal=fit.normal, steps=stepped)
    with step("calibrating the draws"):
        learnt = calibration.fit_calibration(
            fit.normal, *part, folds[some], stepped, model.possible_of
        )
    model, judged = model._replace(calibration=learnt), _limited(chosen.judged, limits)
    return FittedCopula(model, strength, scores, fit, judged)


def _limited(model: Copula, limits: Limits) -> Copula:
    """Restrict the cells of a copula."""
    lines = model.marginals and model.marginals.within(*limits.ranges)
    return model._replace(marginals=lines, bounds=limits.bounds)
