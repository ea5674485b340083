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
    """The rows and cells on which a copula is chosen and calibrated."""

    some: Tensor  # bool (n,), the rows
    hidden: Tensor  # bool (n, features), the held-out cells
    # int (n,), the folds of the rows, from which calibration leaves out one at a time
    folds: Tensor


class Limits(NamedTuple):
    """What is known about the cells of the columns."""

    ranges: Pair  # (features,), smallest and largest possible cells
    # (features,), or None, bounds to which the distribution is truncated; infinite
    # where there are none
    bounds: Pair | None
    values: dict[int, Tensor]  # values of the columns with repeated values


class FittedCopula(NamedTuple):
    """A copula, the scores that draws of its parameters use, and its fit."""

    copula: Copula
    strength: float  # k of the prior, see `em`
    scores: Incomplete  # of the rows in memory
    em: em.Fit  # to all rows
    # a copula of this kind that is fitted without the held-out cells
    without_held_out: Copula


def fit_copula(
    rows: Rows,  # rows in memory, with columns scaled to unit standard deviation
    tables: Sequence[Table],
    split: Split,  # of the rows in memory
    limits: Limits,
    strengths: list[float],  # candidates, in decreasing order
    *,
    nonlinear: bool,  # whether marginals may be nonlinear
    max_iter: int,  # of EM
    tol: float,
    on_round: OnRound = tell_round,  # called after each round of the final fit
) -> FittedCopula:
    """Fit a copula to a table.

    `tables`: one that has these rows, all of the table; or the rows themselves, and
    then the whole table, to which EM continues.
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
        given = table.condensed(), chosen.strength, normal
        fit = em.fit_table(*given, on_round=report, **stopping)
        normal = fit.normal
    return fit


def _limited(model: Copula, limits: Limits) -> Copula:
    """Restrict the cells of a copula."""
    lines = model.marginals and model.marginals.within(*limits.ranges)
    return model._replace(marginals=lines, bounds=limits.bounds)
