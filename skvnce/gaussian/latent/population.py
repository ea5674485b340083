r"""Marginals of all rows, where those of the observed cells are not the same.

Marginals of `columns` map the observed cells of a column to normal scores u.  If values
are missing at random, but not completely at random, other rows miss the column than
those that observe it.  The scores of all rows are ``s = T(u)``, with an increasing,
piecewise linear T (`gaussian.marginals`).  Let p be the share of the rows that observe
the column, and let its score in row i be N(m_i, d_i^2) given the other cells of the
row.  At knots of u,

.. math:: \Phi(u) = average_{i\,observed} \Phi((r - m_i) / d_i),                     (1)
.. math:: \Phi(T(u)) = p \Phi(u)
                       + (1 - p)\, average_{i\,missing} \Phi((r - m_i) / d_i).       (2)

Eq. (1) finds the score r below which the model predicts the share of the observed cells
that are below the knot.  It predicts the rows that observe the column as well as the
others, because whether a cell is missing depends on other cells only.  Eq. (2) is the
average over all rows of ``P(x_j <= knot | observed cells)``.  If cells are missing
completely at random, both averages estimate the same, and the marginals hardly change,
whether the model is right or wrong.

The model is a normal distribution of the scores, fitted by EM in turn with T.  A cell
that is known to be in an interval counts as the mean score of the interval.  The means
of such a column vary by a share v of what the scores do, and so do their covariances
with other columns:

.. math:: m_i = c + (m'_i - c) / v, \quad d_i^2 = V / v - (V - d'^2_i) / v^2         (3)

are the moments of the score, where m', d', c and V are the moments given the others,
the mean and the variance of the means of intervals.  A nominal column is represented by
indicators of its levels, and has no marginal.
"""

from collections.abc import Collection
from functools import partial
from math import pi, sqrt
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete, Rows
from skvnce._core.random import inside, normal_cdf
from skvnce.gaussian import em, marginals
from skvnce.gaussian.calibration import interpolate
from skvnce.gaussian.latent.columns import Latents, Limits, Marginal
from skvnce.gaussian.marginals import PiecewiseLinear

_ROWS = 3000  # maximum number of rows that the model is fitted to
_ROUNDS, _SETTLED = 4, 0.02  # of updates of T, and the change of a score that ends them
_STEPS = (8, 3)  # of EM before the first update of T, and before the others
_TOL = 1e-2  # change of a parameter of EM
# more of them would move the scores of rows that miss a column towards the others
_SHARE = 0.05  # rows of independent scores, for each column, and columns per row
_FEWEST = 20  # minimum number of observed cells
_LEVEL = 0.05  # of the tests of a table whether marginals change
_WIDEST, _N_KNOTS = 3.5, 15  # score of the outermost knots of T, and their number
_N_BINS = 32  # of predicted means
# beyond 5 deviations lies a share of 3e-7
_REACH, _N_SCORES = 5.0, 61  # in deviations; of scores at which eq. (1) is tabulated
_SMALLEST = 1e-12  # share of an interval
_LEAST = 1e-3  # minimum width of bins, variance, and share of the variance in eq. (3)


class Population(NamedTuple):
    """Marginals and means of the latent variables of all rows, before draws."""

    latents: Latents  # with the marginals of all rows
    # (latents,), an estimate of the means of the latent variables; 0 of nominal
    # columns, and where no marginal changes
    mean: Tensor

    @classmethod
    def of(
        cls,
        latents: Latents,  # with the marginals of observed cells
        data: Incomplete,  # the rows, or a sample of them
        weights: Tensor,  # (n,)
        limits: Limits = (),  # (n, features), see `Latents.bounds`
        fixed: Collection[int] = (),  # columns whose marginals do not change
    ) -> Self:
        """Estimate the marginals of all rows by eq. (2)."""
        if len(data.x) > _ROWS:
            rows = torch.randperm(len(data.x))[:_ROWS].sort().values
            limits = tuple(end[rows] for end in limits)
            data, weights = data.take(rows), weights[rows]
        table = ScoreTable.of(latents, data, limits)
        columns = _columns(latents, data, fixed)
        columns = columns[table.depends(columns, weights)]  # else nothing changes
        if not len(columns):
            return cls(latents, torch.zeros(latents.size, dtype=torch.float64))
        pieces, normal = _fit_pieces(table, weights, columns)
        latents = latents._replace(marginals=_move_marginals(latents, columns, pieces))
        return cls(latents, _means(normal, latents))


def _move_marginals(
    latents: Latents, columns: Tensor, pieces: PiecewiseLinear
) -> list[Marginal | None]:
    """Map the scores of some of the ordered columns by T."""
    moved = list(latents.marginals)
    for place in columns.tolist():
        j = latents.ordered[place][0]
        moved[j] = moved[j].moved(partial(_map_scores, pieces.take([place])))
    return moved


def _map_scores(pieces: PiecewiseLinear, scores: Tensor) -> Tensor:
    """Map scores (n,) by the T of one column; infinite ones stay infinite."""
    finite = scores.where(scores.isfinite(), 0.0)
    mapped = pieces.forward(finite[:, None])[0][:, 0]
    return mapped.where(scores.isfinite(), scores)


def _means(normal: Normal, latents: Latents) -> Tensor:
    """Return the means of latent variables, 0 of nominal columns; (latents,)."""
    ordered = [latent for _, latent, _ in latents.ordered]
    mean = torch.zeros(latents.size, dtype=torch.float64)
    mean[ordered] = normal.mean[: len(ordered)]
    return mean


def _columns(latents: Latents, data: Incomplete, fixed: Collection[int]) -> Tensor:
    """Find the places, among the ordered columns, of those with missing cells."""
    free = [j not in fixed for j, _, _ in latents.ordered]
    observed = data.observed[:, [j for j, _, _ in latents.ordered]]
    used = (observed.sum(0) >= _FEWEST) & ~observed.all(0) & torch.tensor(free).bool()
    return used.nonzero()[:, 0]


class ScoreTable(NamedTuple):
    """A table of scores."""

    scores: Incomplete  # those of ordered columns, then indicators of levels
    spread: Tensor  # (n_columns,), v of eq. (3)

    @classmethod
    def of(cls, latents: Latents, data: Incomplete, limits: Limits) -> Self:
        """Map cells to scores, or the means of intervals of scores."""
        bounds = latents.bounds(data, limits)
        ordered = [latent for _, latent, _ in latents.ordered]
        low, high = bounds.low[ordered].T, bounds.high[ordered].T
        has_bounds = low.isfinite() | high.isfinite()
        means = torch.where(low == high, low, _means_between(low, high))
        means = means.where(has_bounds, 0.0)
        parts = [(means, has_bounds)]
        for levels, (_, block) in zip(bounds.levels, latents.nominal, strict=True):
            # without the last level, which the others determine
            parts.append(_indicators(levels, block.stop - block.start))
        x, observed = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        spread = torch.ones_like(x[0])
        spread[: len(ordered)] = _scales(means, has_bounds).square().clamp(_LEAST, 1.0)
        return cls(Incomplete(x, observed), spread)

    def depends(self, columns: Tensor, weights: Tensor) -> Tensor:
        """Test whether it depends on other cells which cells of columns are missing.

        Scores and their squares are compared between rows that observe a column and
        rows that miss it, by a t-test for each of the others.

        Returns bool (n_columns,).
        """
        x, observed = self.scores
        observing = observed[:, columns].double()
        # Bonferroni's correction, for scores and squares of all columns
        level = _LEVEL / (2 * x.shape[1] * max(len(columns), 1))
        least = -torch.special.ndtri(torch.tensor(level / 2).to(x))
        of_means, of_squares = (
            _differences(power, observed, observing, weights) > least
            for power in (x, x.square())
        )
        return (of_means | of_squares).any(1)


def _differences(
    x: Tensor, observed: Tensor, observing: Tensor, weights: Tensor
) -> Tensor:
    """Compare means between the rows of each column of `observing` and the other rows.

    Returns (columns of observing, columns of x): differences over standard errors; 0
    where there are too few rows.
    """
    mass = weights[:, None] * observed
    total, scale = mass.sum(0), _scales(x, observed)
    inner, sums = observing.T @ mass, observing.T @ (mass * x)
    outer = total - inner
    fewest = torch.minimum(inner, outer)
    # weights are divisors, also where there are too few rows
    inner, outer = inner.clamp(min=1.0), outer.clamp(min=1.0)
    gap = sums / inner - ((mass * x).sum(0) - sums) / outer
    error = scale * (1 / inner + 1 / outer).sqrt()
    return (gap.abs() / error.clamp(min=_LEAST)).where(fewest >= _FEWEST, 0.0)


def _means_between(low: Tensor, high: Tensor) -> Tensor:
    """Compute the means of a standard normal variable in intervals."""
    density = (torch.exp(-end.square() / 2) / sqrt(2 * pi) for end in (low, high))
    # the share of an interval is a divisor
    share = (normal_cdf(high) - normal_cdf(low)).clamp(min=_SMALLEST)
    return (next(density) - next(density)) / share


def _scales(x: Tensor, observed: Tensor) -> Tensor:
    """Compute standard deviations of observed cells around their mean."""
    count = observed.sum(0).clamp(min=1)
    mean = x.sum(0) / count
    return ((x - mean).where(observed, 0.0).square().sum(0) / count).sqrt()


def _indicators(levels: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Make standardised indicators of all levels but the last; (n, size - 1) each."""
    observed = (levels >= 0)[:, None].expand(-1, size - 1)
    x = (levels[:, None] == torch.arange(size - 1)).double()
    mean = x.sum(0) / observed.sum(0).clamp(min=1)
    scale = (mean * (1 - mean)).sqrt().clamp(min=_LEAST)
    return ((x - mean) / scale).where(observed, 0.0), observed


def _fit_pieces(
    table: ScoreTable, weights: Tensor, columns: Tensor
) -> tuple[PiecewiseLinear, Normal]:
    """Fit T of some columns to all rows, in turn with the distribution of scores."""
    x = table.scores.x
    size, rows = x.shape[1], Rows(table.scores, weights)
    normal = Normal(x.new_zeros(size), torch.eye(size).to(x))
    grid = torch.linspace(-_WIDEST, _WIDEST, _N_KNOTS).to(x).expand(size, -1)
    pieces = marginals.with_tails(grid, grid)
    strength = size * (_SHARE + size / len(x))
    for number in range(_ROUNDS):
        scores = rows.mapped(partial(marginals.scores_of, pieces))
        stopping = {"max_iter": _STEPS[number > 0], "tol": _TOL}
        normal = em.fit_table(scores, strength, normal, **stopping).normal
        before = pieces
        pieces = _update_pieces(pieces, normal, scores, table.spread, columns)
        if float((pieces.scores - before.scores)[:, 1:-1].abs().max()) < _SETTLED:
            break
    return pieces, normal


def _update_pieces(
    pieces: PiecewiseLinear, normal: Normal, rows: Rows, spread: Tensor, columns: Tensor
) -> PiecewiseLinear:
    """Update T by eq. (2) in some columns."""
    missing = [part[:, columns] for part in em.conditional_moments(normal, rows.data)]
    present = marginals.left_out_moments(normal, rows.data, columns)
    knots, scores = (part[:, 1:-1] for part in pieces[:2])
    scores = scores.clone()
    for k, j in enumerate(columns.tolist()):
        column = normal.mean[j], normal.covariance[j, j], spread[j]
        observed, mixtures = rows.data.observed[:, j], []
        for moments, part in ((present, observed), (missing, ~observed)):
            predicted = (moment[part, k] for moment in moments)
            latent = _latent_moments(*predicted, *column)
            mixtures.append(Mixture.of(*latent, rows.weights[part]))
        p = rows.weights[observed].sum() / rows.weights.sum()
        scores[j] = torch.special.ndtri(inside(_shares(*mixtures, p, knots[j])))
    return marginals.with_tails(knots, scores)


def _latent_moments(
    mean: Tensor, deviation: Tensor, centre: Tensor, variance: Tensor, spread: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute eq. (3)."""
    explained = (variance - deviation.square()) / spread.square()
    # a difference of estimates, which may be negative
    remainder = (variance / spread - explained).clamp(min=_LEAST * variance)
    return centre + (mean - centre) / spread, remainder


class Mixture(NamedTuple):
    """A mixture of normal distributions."""

    centres: Tensor  # (n_bins,)
    deviations: Tensor  # (n_bins,)
    shares: Tensor  # (n_bins,)

    @classmethod
    def of(cls, means: Tensor, variances: Tensor, weights: Tensor) -> Self:
        """Put normal distributions (n,) into bins of similar means.

        Each goes to the two nearest ones, and the variances of a bin are averaged.
        """
        low = means.min()
        width = (means.max() - low).clamp(min=_LEAST)
        at = (means - low) / width * (_N_BINS - 1)
        # the largest mean has no bin to its right
        first = at.long().clamp(max=_N_BINS - 2)
        part = weights * (at - first)
        sums = means.new_zeros(2, _N_BINS)
        for place, weight in ((first, weights - part), (first + 1, part)):
            sums.index_add_(1, place, torch.stack([weight, weight * variances]))
        has_mass = sums[0] > 0
        shares, squares = sums[:, has_mass]
        centres = low + width * torch.linspace(0, 1, _N_BINS).to(means)[has_mass]
        return cls(centres, (squares / shares).sqrt(), shares / shares.sum())

    def cdf(self, scores: Tensor) -> Tensor:
        """Compute the shares below scores (n,)."""
        return (
            normal_cdf((scores[:, None] - self.centres) / self.deviations) @ self.shares
        )

    def ends(self) -> tuple[Tensor, Tensor]:
        """Return scores between which nearly all of the mixture lies."""
        reach = _REACH * self.deviations
        return (self.centres - reach).min(), (self.centres + reach).max()


def _shares(present: Mixture, missing: Mixture, p: Tensor, knots: Tensor) -> Tensor:
    """Compute the right side of eq. (2) at knots (n_knots,)."""
    low, high = present.ends()
    at = low + (high - low) * torch.linspace(0, 1, _N_SCORES).to(low)
    observed_scores = torch.special.ndtri(inside(present.cdf(at)))
    predicted = interpolate(observed_scores, at, knots)
    return p * normal_cdf(knots) + (1 - p) * missing.cdf(predicted)
