"""Prediction of the cells of a table by a Gaussian copula, possibly with bounds.

A cell is an increasing function of a normal score (`marginals`), and missing cells may
be known to lie between bounds.  Without either it is the normal distribution itself.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._core.distributions.normal import FactoredNormal, Normal, prepare
from skvnce._core.incomplete import Incomplete, Rows, Table
from skvnce._core.progress import OnRound, step, tell, tell_round
from skvnce.gaussian import calibration, em, marginals, tails, truncation
from skvnce.gaussian.calibration import Calibration
from skvnce.gaussian.marginals import PiecewiseLinear, Steps
from skvnce.gaussian.tails import Ends, Tails
from skvnce.gaussian.truncation import Lattice, ToCells

# ----------------------------------------
# Continue the fit of marginals and normal distribution to a sample with all rows.
#
# The fit to the sample is near, so that a round updates both by one pass over the
# table: an E-step of EM and the shares of cells below the knots, at the same
# parameters.


_ROUNDS = 50  # maximum number of rounds


class _Sums(NamedTuple):
    """Sums over rows."""

    moments: em.Moments  # of scores
    # (features, n_knots), expected weights of missing cells below the knots
    below: Tensor


def _sums(lines: PiecewiseLinear, factored: FactoredNormal, rows: Rows) -> _Sums:
    inner = lines.scores[:, 1:-1]
    below = torch.zeros_like(inner)
    add = partial(marginals.add_expected, below, inner, factored)
    scores = rows.mapped(partial(marginals.scores_of, lines))
    moments, _ = em.expected_moments(factored, scores.groups, rows.weights, add)
    return _Sums(moments, below)


def _first_sums(
    lines: PiecewiseLinear, factored: FactoredNormal, rows: Rows
) -> tuple[_Sums, Tensor]:
    observed = marginals.observed_below(lines.knots[:, 1:-1], rows)
    return _sums(lines, factored, rows), observed


def continue_marginals(
    table: Table,
    strength: float,
    lines: PiecewiseLinear,
    normal: Normal,
    *,
    tol: float,
) -> tuple[PiecewiseLinear, Normal]:
    """Update marginals and normal distribution, each from the same pass over a table.

    Parameters and results are those of `marginals.fit_marginals`.
    """
    use, total, observed = marginals.nonlinear_columns(lines), table.total, None
    for n_round in range(1, _ROUNDS + 1):
        tell("round of marginals", n_round, _ROUNDS)
        factored = prepare(normal)
        # counts of observed cells do not change with the parameters, nor need a pass
        if observed is None:
            sums, observed = table.summed(partial(_first_sums, lines, factored))
        else:
            sums = table.summed(partial(_sums, lines, factored))
        share = torch.special.ndtri((observed + sums.below) / total)
        moved = marginals.choose(use, marginals.with_tails(lines.knots[:, 1:-1], share))
        change = float((moved.scores - lines.scores).abs().max())
        normal = em.maximise(normal, sums.moments, total, strength)
        lines = moved
        if change < tol:
            break
    return lines, normal


# ----------------------------------------
# Prediction of the cells of a table by a Gaussian copula, possibly with bounds.


Pair = tuple[Tensor, Tensor]
Moments = Pair | None

_FARTHEST = 4.0  # maximum absolute score of an observed cell: P = 1 / 16,000
# a difference of probabilities of this size has 8 digits
_LEAST_SHARE = 1e-8  # minimum probability of an interval within bounds
_SETTLED = 1e-2  # change of a normal score below which marginals have converged


class Copula(NamedTuple):
    """A fitted normal distribution of scores, and the map from scores to cells."""

    normal: Normal  # of the scores
    marginals: PiecewiseLinear | None = None  # None if cells are scores
    # smallest and largest value of the missing cells of each column
    bounds: tuple[Tensor, Tensor] | None = None
    # the map from scores to draws of columns with repeated values
    steps: Steps | None = None
    calibration: Calibration | None = None  # calibration by residuals
    tails: Tails | None = None  # those of columns of positive numbers

    def scores(self, data: Incomplete) -> tuple[Incomplete, Tensor]:
        """Map a table to scores; also return the sum of log-slopes of each row."""
        if self.marginals is None:
            return data, data.x.new_zeros(len(data.x))
        return marginals.scored(self.marginals, data)

    def predictor_scores(self, data: Incomplete) -> Incomplete:
        """Map a table to the scores from which others are predicted.

        Scores of nonlinear columns are clipped to the range of normal scores: beyond
        the outermost knots the data say only that they are extreme.
        """
        scores, _ = self.scores(data)
        if self.marginals is None:
            return scores
        clipped = scores.x.clamp(-_FARTHEST, _FARTHEST)
        x = clipped.where(marginals.nonlinear_columns(self.marginals), scores.x)
        return Incomplete(x, scores.observed)

    def score_bounds(self) -> tuple[Tensor, Tensor]:
        """Map the bounds to scores."""
        if self.marginals is None:
            return self.bounds
        return tuple(self.marginals.forward(bound)[0] for bound in self.bounds)

    def bounds_before(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Map the bounds to scores before calibration.

        `moments`: means and standard deviations of missing scores; None without
        calibration.
        """
        if not self.calibrates:
            return self.score_bounds()
        bounds = (bound.expand_as(moments[0]) for bound in self.score_bounds())
        return tuple(self.calibration.before(bound, *moments) for bound in bounds)

    def cells_after(self, moments: Moments) -> ToCells | None:
        """Make the map from scores before calibration to cells; None if identical."""
        if self.marginals is None and self.tails is None and not self.calibrates:
            return None

        def to_cells(rows: Tensor, columns: Tensor, scores: Tensor) -> Tensor:
            if self.calibrates:
                mean, deviation = (part[rows, columns] for part in moments)
                scores = self.calibration.moved_cells(columns, scores, mean, deviation)
            return self._cells_of(columns, scores)

        return to_cells

    def cells(self, scores: Tensor) -> Tensor:
        """Map scores to cells."""
        cells = scores if self.marginals is None else self.marginals.inverse(scores)
        return cells if self.tails is None else self.tails.put(cells)

    def cells_of(self, column: int, scores: Tensor) -> Tensor:
        """Map scores of one column to cells."""
        return self._cells_of(torch.tensor([column]), scores[..., None])[..., 0]

    def _cells_of(self, columns: Tensor, scores: Tensor) -> Tensor:
        """Map scores (*batch, cells) to cells of the columns (cells,)."""
        cells = scores
        if self.marginals is not None:
            cells = self.marginals.take(columns).inverse(scores)
        return cells if self.tails is None else self.tails.put_of(columns, cells)

    def predicted(self, column: int, mean: Tensor, deviation: Tensor) -> Tensor:
        """Map equally likely scores of cells (n,) of one column; (n_levels, n)."""
        z = tails.levels(mean)[:, None]
        return self.cells_of(column, mean + deviation * z)

    def means_by_tails(self, means: Tensor, hidden: Tensor, moments: Moments) -> Tensor:
        """Correct the means of hidden cells (n, features) that may be in a tail."""
        corrected, lines = means.clone(), self._replace(tails=None)
        for k, j in enumerate(self.tails.columns.tolist()):
            rows = hidden[:, j]
            cells = lines.predicted(j, *(part[rows, j] for part in moments))
            moved = self.tails.take([k]).put_of(torch.tensor([j]), cells[..., None])
            moved = moved[..., 0]
            is_in_tail = (moved != cells).any(0)
            corrected[rows, j] = torch.where(is_in_tail, moved.mean(0), means[rows, j])
        return corrected

    def possible_of(self, column: int, scores: Tensor) -> Tensor:
        """Map scores of one column to cells within bounds, by steps if it has steps."""
        cells, steps = self.cells_of(column, scores), self.steps.of(column)
        cells = steps.put(scores[..., None], cells[..., None])[..., 0]
        if self.bounds is None:
            return cells
        low, high = (bound[column] for bound in self.bounds)
        return cells.clamp(low, high)

    @property
    def calibrates(self) -> bool:
        """Return whether any column is calibrated."""
        return self.calibration is not None


class Limits(NamedTuple):
    """Ranges, bounds and repeated values of the cells of the columns."""

    # (features,), smallest and largest possible cells; None for `choose_copula` alone
    ranges: Pair | None
    # (features,), or None, bounds to which the distribution is truncated; infinite
    # where there are none
    bounds: Pair | None
    values: dict[int, Tensor]  # values of the columns with repeated values
    ends: Ends | None = None  # by the signs of columns, to which tails are fitted


class Choice(NamedTuple):
    """The choice of held-out cells, and the start of a fit to all cells."""

    strength: float  # k of the prior, see `gaussian.em`
    marginals: PiecewiseLinear | None  # None if cells are scores
    start: Normal
    # the fit without the held-out cells, with this strength and kind of marginals
    without_held_out: Copula


def choose_copula(
    tables: Sequence[Table],
    part: tuple[Incomplete, Tensor, Tensor],
    strengths: list[float],  # in decreasing order
    limits: Limits,
    *,
    nonlinear: bool,  # whether marginals may be nonlinear
    **stopping: float,  # max_iter and tol of EM
) -> Choice:
    """Choose strength and marginals by held-out cells, and fit the marginals to all.

    `tables`: to which the marginals are fitted in turn, each from the fit to the one
    before.  Columns are scaled to unit standard deviation.  `part`: some of the rows,
    the mask of their held-out cells, and their weights.
    """
    x = part[0].x
    start = Normal(x.new_zeros(x.shape[1]), torch.eye(x.shape[1]).to(x))
    strength, start = em.choose_strength(*part, strengths, start, **stopping)
    chosen = None
    if nonlinear:
        with step("choosing the marginals"):
            cells = limits.values, limits.ranges
            chosen = marginals.choose_marginals(
                *part, strength, start, *cells, **stopping
            )
    if chosen is None:
        return Choice(strength, None, start, Copula(start))
    *begin, last = chosen
    pieces, start = begin
    # a single table has no second fit
    fits = marginals.fit_marginals, continue_marginals
    for fit, table in zip(fits, tables, strict=False):
        with step("fitting the marginals"):
            pieces, start = fit(table, strength, pieces, start, tol=_SETTLED)
    return Choice(strength, pieces, start, Copula(last, begin[0]))


def log_prob(copula: Copula, data: Incomplete) -> Tensor:
    """Compute log p(x_obs) of each row; (n,).  Bounds concern missing cells only."""
    scores, log_slopes = copula.scores(data)
    return em.log_prob(copula.normal, scores) + log_slopes


def conditional_mean(copula: Copula, data: Incomplete, lattice: Lattice) -> Tensor:
    """Fill missing cells by E[x_mis | x_obs, bounds]; (n, features).

    Exact if no bound is near.  Otherwise a weighted average over points of `lattice`,
    numbers that are functions of the row, gives the shift (see `truncation`).
    """
    scores = copula.predictor_scores(data)
    moments, lines = None, copula.marginals
    if lines is None and copula.tails is None and not copula.calibrates:
        filled = em.conditional_mean(copula.normal, scores)
    else:
        moments = em.conditional_moments(copula.normal, scores)
        filled = moments[0]
        if lines is not None:
            filled = lines.expectation_of(~data.observed, *moments)
        if copula.tails is not None:
            filled = copula.means_by_tails(filled, ~data.observed, moments)
    if copula.calibrates:
        filled = filled + copula.calibration.mean_shift(*moments, copula.cells_of)
    if copula.bounds is not None:
        bounds, to_cells = copula.bounds_before(moments), copula.cells_after(moments)
        filled = filled + truncation.mean_shift(
            copula.normal, scores, *bounds, lattice, to_cells
        )
        # the estimated shift has a sampling error
        filled = filled.clamp(*copula.bounds)
    return data.with_values(filled)


def cell_means(copula: Copula, data: Incomplete) -> Tensor:
    """Predict each missing cell by itself, in closed form; (n, features).

    The mean is truncated to the bounds of the cell.  Unlike that of `conditional_mean`,
    it uses neither the bounds of other missing cells of the row nor the calibration,
    which is fitted to all cells.
    """
    scores = copula.predictor_scores(data)
    lines, bounds = copula.marginals, copula.bounds
    moments = em.conditional_moments(copula.normal, scores)
    if bounds is None:
        return moments[0] if lines is None else lines.expectation(*moments)
    lines = marginals.linear(data.x.shape[1]) if lines is None else lines
    censored = lines._replace(low=bounds[0], high=bounds[1]).expectation(*moments)
    inside, beyond = torch.ones_like(censored), torch.zeros_like(censored)
    for sign, bound, score in zip((1, -1), bounds, copula.score_bounds(), strict=True):
        deviation = moments[1].clamp(min=em.LEAST_DEVIATION)
        share = torch.special.ndtr(sign * (score - moments[0]) / deviation)
        inside = inside - share
        beyond = beyond + share * bound.where(bound.isfinite(), 0.0)
    mean = (censored - beyond) / inside.clamp(min=_LEAST_SHARE)
    return mean.where(inside > _LEAST_SHARE, censored).clamp(*bounds)


def draw(copula: Copula, data: Incomplete, n_draws: int) -> Tensor:
    """Draw the missing cells given the observed cells; (n_draws, n, features)."""
    scores = copula.predictor_scores(data)
    moments = None
    if copula.calibrates:
        moments = em.conditional_moments(copula.normal, scores)
    if copula.bounds is None:
        draws = em.draw(copula.normal, scores, n_draws)
    else:
        bounds = copula.bounds_before(moments)
        draws = truncation.draw(copula.normal, scores, *bounds, n_draws)
    return data.with_values(_valid_cells(copula, draws, moments))


def quantiles(
    copula: Copula, data: Incomplete, levels: Tensor, lattice: Lattice
) -> Tensor:
    """Find quantiles of each missing cell; (n_levels, n, features).

    They are exact if no bound is near, because cells are increasing functions of
    scores.  Otherwise they move as those of weighted points of `lattice` do, see
    `conditional_mean`.
    """
    scores = copula.predictor_scores(data)
    moments = em.conditional_moments(copula.normal, scores)
    points = moments[0] + torch.special.ndtri(levels)[:, None, None] * moments[1]
    if copula.bounds is not None:
        bounds = copula.bounds_before(moments)
        points = points + truncation.quantile_shift(
            copula.normal, scores, *bounds, lattice, levels
        )
    moments = moments if copula.calibrates else None
    return data.with_values(_valid_cells(copula, points, moments))


def _valid_cells(copula: Copula, scores: Tensor, moments: Moments) -> Tensor:
    """Map scores (*batch, n, features) to valid cells, calibrated if there are moments.

    The map increases in each score.
    """
    if moments is not None:
        scores = copula.calibration.moved(scores, *moments)
    cells = copula.cells(scores)
    if copula.bounds is not None:
        cells = cells.clamp(*copula.bounds)
    if copula.steps is not None:
        # after the bounds, so that other cells of these columns are observed values
        cells = copula.steps.put(scores, cells)
    return cells


# ----------------------------------------
# Fit a Gaussian copula: choose it on held-out cells, fit it to all, calibrate it.


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
    with_cells: Tensor,  # bool (n,), those on which the copula is chosen and calibrated
    hidden: Tensor,  # bool (n, features), held-out cells
    folds: Tensor,  # int (n,), of which calibration leaves out one at a time
    limits: Limits,
    strengths: list[float],  # candidates, in decreasing order
    *,
    nonlinear: bool,  # whether marginals may be nonlinear
    on_round: OnRound = tell_round,  # called after each round of the final fit
    **stopping: float,  # max_iter and tol of EM
) -> FittedCopula:
    """Fit a copula to a table.

    `tables`: one that has these rows, all of the table; or the rows themselves, and
    then the whole table, to which EM continues.
    """
    part = rows.data.take(with_cells), hidden[with_cells], rows.weights[with_cells]
    chosen = choose_copula(
        tables, part, strengths, limits, nonlinear=nonlinear, **stopping
    )
    model = _limited(Copula(chosen.start, chosen.marginals), limits)
    fit = _fit_scores(tables, chosen, on_round, stopping)
    scores, _ = model.scores(rows.data)
    part = scores.take(with_cells), rows.data.x[with_cells], rows.weights[with_cells]
    stepped = marginals.fit_steps(fit.normal, *part, limits.values, limits.ranges)
    model = model._replace(normal=fit.normal, steps=stepped)
    if limits.ends is not None:
        model = _with_tails(model, *part, limits.ends)
    with step("calibrating the draws"):
        learnt = calibration.fit_calibration(
            fit.normal, *part, folds[with_cells], stepped, model.possible_of
        )
    model = model._replace(calibration=learnt)
    without_held_out = _limited(chosen.without_held_out, limits)
    return FittedCopula(model, chosen.strength, scores, fit, without_held_out)


def _fit_scores(
    tables: Sequence[Table], chosen: Choice, on_round: OnRound, stopping: dict
) -> em.Fit:
    """Fit the normal distribution to the scores of each table in turn."""
    lines, normal = chosen.marginals, chosen.start
    for n_left, table in zip(range(len(tables))[::-1], tables, strict=True):
        if lines is not None:
            table = table.mapped(partial(marginals.scores_of, lines))
        report = tell_round if n_left else on_round
        fit = em.fit_table(
            table.condensed(), chosen.strength, normal, on_round=report, **stopping
        )
        normal = fit.normal
    return fit


def _with_tails(
    model: Copula, scores: Incomplete, cells: Tensor, weights: Tensor, ends: Ends
) -> Copula:
    """Fit tails to columns of positive numbers, whose cells have no other end."""
    if model.marginals is not None:
        low = model.marginals.low.where(ends.signs <= 0, -torch.inf)
        high = model.marginals.high.where(ends.signs >= 0, torch.inf)
        lines = model.marginals._replace(low=low, high=high)
        model = model._replace(marginals=lines)
    data = Incomplete(cells, scores.observed)
    moments = partial(marginals.left_out_moments, model.normal, scores)
    fitted = tails.fit_tails(ends, data, weights, model.predicted, moments)
    return model._replace(tails=fitted)


def _limited(model: Copula, limits: Limits) -> Copula:
    """Restrict the cells of a copula."""
    lines = model.marginals and model.marginals.within(*limits.ranges)
    return model._replace(marginals=lines, bounds=limits.bounds)
