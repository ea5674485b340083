"""Fit a Gaussian copula: choose it on held-out cells, fit it to all, calibrate it."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import OnRound, step, tell_round
from skvnce.algorithms.gaussian import calibration, copula, em, steps
from skvnce.algorithms.gaussian.copula import Copula
from skvnce.algorithms.gaussian.marginals import scores_of
from skvnce.algorithms.gaussian.rows import Rows, Table

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
    """A copula, the scores that draws of its parameters use, and its fit.

    Attributes
    ----------
    copula : Copula
    strength : float
        k of the prior, see `em`.
    scores : Incomplete
        Of the rows in memory.
    em : em.Fit
        To all rows.
    without_held_out : Copula
        A copula of this kind that is fitted without the held-out cells.
    """

    copula: Copula
    strength: float
    scores: Incomplete
    em: em.Fit
    without_held_out: Copula


def fit_copula(
    rows: Rows,
    tables: Sequence[Table],
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
    rows : Rows
        Rows in memory, with columns scaled to unit standard deviation.
    tables : sequence of one or two Tables
        One that has these rows, all of the table; or the rows themselves, and then the
        whole table, to which EM continues.
    split : Split
        Of the rows in memory.
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
    stopping = {"max_iter": max_iter, "tol": tol}
    part = rows.data.take(some), hidden[some], rows.weights[some]
    known = {"nonlinear": nonlinear, "values": limits.values, "ranges": limits.ranges}
    chosen = copula.choose(tables, part, strengths, **known, **stopping)
    model = _limited(Copula(chosen.start, chosen.marginals), limits)
    fit = _fit_scores(tables, chosen, on_round, stopping)
    scores, _ = model.scores(rows.data)
    part = scores.take(some), rows.data.x[some], rows.weights[some]
    stepped = steps.fit_steps(fit.normal, *part, limits.values, limits.ranges)
    model = model._replace(normal=fit.normal, steps=stepped)
    with step("calibrating the draws"):
        learnt = calibration.fit_calibration(
            fit.normal, *part, folds[some], stepped, model.possible_of
        )
    model, without_held_out = (
        model._replace(calibration=learnt),
        _limited(chosen.without_held_out, limits),
    )
    return FittedCopula(model, chosen.strength, scores, fit, without_held_out)


def _fit_scores(
    tables: Sequence[Table], chosen: copula.Choice, on_round: OnRound, stopping: dict
) -> em.Fit:
    """Fit the normal distribution to the scores of each table in turn."""
    marginals, normal = chosen.marginals, chosen.start
    for n_left, table in zip(range(len(tables))[::-1], tables, strict=True):
        if marginals is not None:
            table = table.mapped(partial(scores_of, marginals))
        report = tell_round if n_left else on_round
        fit = em.fit_table(table, chosen.strength, normal, on_round=report, **stopping)
        normal = fit.normal
    return fit


def _limited(model: Copula, limits: Limits) -> Copula:
    """Restrict the cells of a copula."""
    lines = model.marginals and model.marginals.within(*limits.ranges)
    return model._replace(marginals=lines, bounds=limits.bounds)
