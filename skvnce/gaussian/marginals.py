"""Marginals of a Gaussian copula: columns are increasing functions of normal scores.

Each function is piecewise linear through (knot, score) pairs.  So the density, the
inverse and the mean of a mapped normal score have closed forms.  Scores are fitted by

    score_k = Phi^-1( average over rows of P(x_j <= knot_k | observed cells) )    (1)

where the model gives the probability for a row that misses the cell.  So the marginals
are those of all rows, not only of the observed ones.  They are valid if values are
missing at random, within the range of the knots, which are quantiles of the observed
cells.
"""

from collections.abc import Callable
from functools import partial
from math import pi, sqrt
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce._core.distributions.normal import (
    ByMissing,
    FactoredNormal,
    Normal,
    arrange,
    prepare,
)
from skvnce._core.incomplete import Conditioned, Incomplete, Rows, Table
from skvnce._core.progress import tell
from skvnce._core.random import midpoint_levels, nearest, pick, place, quantile_loss
from skvnce.gaussian import em

# ----------------------------------------
# Draws of columns with repeated values: steps from scores to observed values.
#
# Such a column has no density, and a normal score between two of its values belongs
# to one of them.  The steps are chosen such that the distributions of the scores,
# predicted for each observed cell from the other observed cells of its row, reproduce
# the observed frequencies of the values in the same rows:
#
#     sum_i w_i P(score_i <= t_k | the others of row i) = sum_i w_i 1(x_i <= v_k).   (1)
#
# Rounding to the nearest value instead would draw rare values too seldom, and zeros
# of a skewed column too often.  Beyond the first and the last step a score is the
# cell that the marginal maps it to, where that is outside of the observed values.


_LEVELS = 12  # number of quantiles that represent each predicted score
_ROWS = 2000  # approximate maximum number of rows whose cells are predicted


class Steps(NamedTuple):
    """Increasing functions of scores whose values are observed values."""

    columns: Tensor  # int (n_stepped,), indices of the columns with repeated values
    # (n_stepped, n_values - 1), scores at which the value changes; inf beyond the last
    # value of a column
    edges: Tensor
    # (n_stepped, n_values), increasing; the last is repeated if a column has fewer
    values: Tensor
    # (n_stepped,), range of the cells; that of the values, if there are none beyond
    # them
    low: Tensor
    high: Tensor

    def of(self, column: int) -> Self:
        """Select the steps of a column, if it has some, as those of a table of it."""
        is_it = self.columns == column
        return Steps(self.columns[is_it] * 0, *(part[is_it] for part in self[1:]))

    def put(self, scores: Tensor, cells: Tensor) -> Tensor:
        """Replace the cells (*batch, features) of these columns by steps of scores."""
        if not len(self.columns):
            return cells
        places = place(self.edges, scores[..., self.columns])
        values = pick(self.values, places)
        mapped = cells[..., self.columns].clamp(self.low, self.high)
        values = torch.where(places == 0, torch.minimum(values, mapped), values)
        is_last = values == self.values[:, -1]
        values = torch.where(is_last, torch.maximum(values, mapped), values)
        return cells.index_copy(-1, self.columns, values)


def left_out_moments(
    normal: Normal, data: Incomplete, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """Predict each observed cell of some columns from the other cells of its row.

    With Q the inverse of the covariance S_oo of the observed cells and r their
    residuals, the cell j has variance ``1 / Q_jj`` and mean ``x_j - (Q r)_j / Q_jj``.

    Returns `mean`, `deviation` (n, n_columns): arbitrary where a cell is missing.
    """
    factored = prepare(normal)
    mean = data.x.new_zeros(len(data.x), len(columns))
    deviation = torch.ones_like(mean)
    for batch in arrange(*data, kinds=1):
        conditioned = batch.condition(factored)
        diagonal = _left_out_precision(conditioned, factored, columns)
        pull = (conditioned.completed() @ factored.precision)[:, columns] / diagonal
        mean[batch.rows] = data.x[batch.rows][:, columns] - pull
        deviation[batch.rows] = diagonal.rsqrt()
    return mean, deviation


def _left_out_precision(
    conditioned: ByMissing, normal: FactoredNormal, columns: Tensor
) -> Tensor:
    """Compute the diagonal of Q = P_oo - P_om P_mm^-1 P_mo; (n, n_columns)."""
    precision, batch = normal.precision, conditioned.batch
    wide = torch.nn.functional.pad(precision, (0, 0, 0, batch.block.shape[1]))
    right = wide[:, columns][batch.block]
    half = torch.linalg.solve_triangular(conditioned.factor, right, upper=False)
    diagonal = precision.diagonal()[columns]
    observed = batch.observed[:, columns] > 0
    # any positive number where a cell is missing, because its root is a divisor
    return (diagonal - half.square().sum(1)).where(observed, diagonal)


def fit_steps(
    normal: Normal,  # of the scores
    scores: Incomplete,
    cells: Tensor,  # (n, features), the cells of the scores
    weights: Tensor,  # (n,)
    values: dict[int, Tensor],  # increasing values of the columns with repeated values
    ranges: tuple[Tensor, Tensor] | None = None,
) -> Steps:
    """Find the steps of eq. (1).

    `ranges` (features,), or None: smallest and largest possible cells; None if only
    these values are possible.
    """
    columns = torch.tensor(sorted(values), dtype=torch.long)
    widest = max(map(len, values.values()), default=2)
    edges = cells.new_full((len(columns), widest - 1), torch.inf)
    table = cells.new_zeros(len(columns), widest)
    # a systematic sample, without random numbers
    sample = slice(None, None, max(1, len(cells) // _ROWS))
    scores, cells, weights = scores.take(sample), cells[sample], weights[sample]
    mean, deviation = left_out_moments(normal, scores, columns)
    for k, j in enumerate(columns.tolist()):
        levels, observed = values[j], scores.observed[:, j] & (weights > 0)
        counts = _weights_of_values(cells[observed, j], weights[observed], levels)
        moments = mean[observed, k], deviation[observed, k]
        edges[k, : len(levels) - 1] = _edges(*moments, weights[observed], counts)
        table[k] = torch.cat([levels, levels[-1:].expand(widest - len(levels))])
    ends = table[:, 0], table[:, -1]
    if ranges is not None:
        ends = [end[columns] for end in ranges]
    return Steps(columns, edges, table, *ends)


def _weights_of_values(cells: Tensor, weights: Tensor, levels: Tensor) -> Tensor:
    places = torch.searchsorted((levels[1:] + levels[:-1]) / 2, cells)
    return weights.new_zeros(len(levels)).index_add_(0, places, weights)


def _edges(mean: Tensor, deviation: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """Find quantiles of a mixture of normals at the cumulative shares of the values."""
    t = midpoint_levels(_LEVELS, mean)  # with more levels, of less weight, in the tails
    # the derivative of t^2 (3 - 2 t) is 6 t (1 - t), the weight of the level
    noise, part = torch.special.ndtri(t.square() * (3 - 2 * t)), t * (1 - t)
    pooled, order = (mean[:, None] + deviation[:, None] * noise).flatten().sort()
    below = (weights[:, None] * part).flatten()[order].cumsum(0)
    share = counts.cumsum(0)[:-1] / counts.sum()
    # a share that equals a level up to rounding counts as reaching it
    places = torch.searchsorted(below / below[-1], share - _ROUNDING)
    return pooled[places.clamp(max=len(pooled) - 1)]


# ----------------------------------------
# Marginals of a Gaussian copula: columns are increasing functions of normal scores.


# from -2 to 2 in steps of half a score
_N_KNOTS = 9
_FEWEST_VALUES = 5  # minimum number of values of a column with a nonlinear marginal
_WIDEST = 2.0  # score of the outermost quantiles: 2 % of the rows lie beyond each
# any distance beyond all normal scores gives the same slopes
_FAR = 100.0  # distance in scores of the last knots, which set the slopes of the tails
# equal scores would make the inverse infinitely steep
_LEAST_STEP = 1e-3  # minimum distance of the scores of knots without cells between them
_N_LEVELS = 12  # number of quantiles that represent a distribution
_ROUNDS = 50  # maximum number of alternations between marginals and normal
_CLEAR = 2.0  # number of standard errors of a significant difference
_WIDEST_SCORE = 4.0  # maximum absolute score in a CRPS on their scale
_WORSE = 1.1  # maximum ratio of squared errors with which marginals are accepted
_ROUNDING = 1e-9  # relative difference below which gaps are equal
_ROWS_AT_ONCE = 2**12  # rows of a table that fit into the cache
_APPROXIMATE = 0.03  # tolerance for marginals that are only compared


class PiecewiseLinear(NamedTuple):
    """Piecewise linear functions, one for each column."""

    # (features, n_knots), increasing in each row; the first and the last knots are far
    # out
    knots: Tensor
    scores: Tensor
    # (features,), range of the cells to which scores are mapped; may be infinite.
    # Finite ends lie outside all knots except the far ones
    low: Tensor
    high: Tensor

    def take(self, columns: Tensor | list[int]) -> Self:
        """Select the functions of columns; of some several times if they repeat."""
        return type(self)(*(part[columns] for part in self))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map cells (*batch, features) to scores; also return logs of slopes."""
        return _interpolate(x, self.knots, self.scores)

    def inverse(self, score: Tensor) -> Tensor:
        """Map scores (*batch, features) to cells within their range."""
        cells = _interpolate(score, self.scores, self.knots)[0]
        return cells.clamp(self.low, self.high)

    def expectation(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """Compute the mean of cells whose scores are N(mean, deviation**2).

        Beyond the range the marginal is constant, so the last slopes end there.
        """
        slopes = self.knots.diff() / self.scores.diff()
        total = self.knots[:, 0] + slopes[:, 0] * (mean - self.scores[:, 0])
        changes = zip(slopes.diff().T, self.scores[:, 1:-1].T, strict=True)
        for change, score in changes:
            total = total + change * _mean_above(mean - score, deviation)
        first, last = self._scores_of_range()
        total = total + slopes[:, 0] * _mean_above(first - mean, deviation)
        total = total - slopes[:, -1] * _mean_above(mean - last, deviation)
        return total.clamp(self.low, self.high)

    def expectation_of(self, where: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """Compute `expectation` where a mask (n, features) is true, else the mean."""
        means = mean.clone()
        for j, rows in enumerate(where.T):
            moments = mean[rows, j, None], deviation[rows, j, None]
            means[rows, j] = self.take([j]).expectation(*moments)[:, 0]
        return means

    def within(self, low: Tensor, high: Tensor) -> Self:
        """Clip the cells of nonlinear columns to a range, (features,) each."""
        nonlinear = nonlinear_columns(self)
        low = torch.minimum(low, self.knots[:, 1]).where(nonlinear, -torch.inf)
        high = torch.maximum(high, self.knots[:, -2]).where(nonlinear, torch.inf)
        return self._replace(low=low, high=high)

    def _scores_of_range(self) -> tuple[Tensor, Tensor]:
        """Map the ends of the range to scores; far scores if they are infinite."""
        low = torch.maximum(self.low, self.knots[:, 0])
        high = torch.minimum(self.high, self.knots[:, -1])
        return self.forward(low)[0], self.forward(high)[0]


def _mean_above(mean: Tensor, deviation: Tensor) -> Tensor:
    """Compute E[max(v, 0)] of v ~ N(mean, deviation**2)."""
    t = mean / deviation.clamp(min=torch.finfo(deviation.dtype).tiny)
    density = torch.exp(-t.square() / 2) / sqrt(2 * pi)
    return mean * torch.erfc(-t / sqrt(2)) / 2 + deviation * density


def _interpolate(x: Tensor, at: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
    # without the outermost knots, beyond which the last slopes continue
    piece = place(at[:, 1:-1], x)
    slope = pick(to.diff() / at.diff(), piece)
    return pick(to, piece) + slope * (x - pick(at, piece)), slope.log()


def with_tails(knots: Tensor, scores: Tensor) -> PiecewiseLinear:
    """Add a far knot on each side, with the average slope of the three inner pieces.

    The data contain no other information beyond the outermost quantiles, in particular
    if larger values are missing more often.
    """
    ramp = _LEAST_STEP * torch.arange(scores.shape[1]).to(scores)
    # increasing less a ramp means increasing by at least the steps of the ramp
    scores = (scores - ramp).cummax(1).values + ramp
    slope_before = (knots[:, 3] - knots[:, 0]) / (scores[:, 3] - scores[:, 0])
    slope_after = (knots[:, -1] - knots[:, -4]) / (scores[:, -1] - scores[:, -4])
    far = torch.full_like(slope_before, _FAR)
    framed = (
        _framed(knots, _FAR * slope_before, _FAR * slope_after),
        _framed(scores, far, far),
    )
    return PiecewiseLinear(*framed, far - torch.inf, far + torch.inf)


def _framed(values: Tensor, before: Tensor, after: Tensor) -> Tensor:
    first, last = values[:, 0] - before, values[:, -1] + after
    return torch.cat([first[:, None], values, last[:, None]], 1)


def linear(d: int) -> PiecewiseLinear:
    """Make the marginals of a normal distribution: every cell is its score."""
    grid = torch.linspace(-_WIDEST, _WIDEST, _N_KNOTS, dtype=torch.float64)
    return with_tails(grid.expand(d, -1), grid.expand(d, -1))


def choose(use: Tensor, pieces: PiecewiseLinear) -> PiecewiseLinear:
    """Use nonlinear marginals for the columns in `use`, (features,), else linear."""
    pairs = zip(pieces[:2], linear(len(use))[:2], strict=True)
    parts = [torch.where(use[:, None], a, b) for a, b in pairs]
    return PiecewiseLinear(*parts, pieces.low, pieces.high)


def nonlinear_columns(marginals: PiecewiseLinear) -> Tensor:
    """Return which columns are nonlinear; (features,)."""
    return (marginals.knots != linear(len(marginals.knots)).knots).any(1)


def start(data: Incomplete, weights: Tensor) -> PiecewiseLinear:
    """Put knots on quantiles of observed cells; linear if ties leave too few."""
    lines = linear(data.x.shape[1])
    knots, scores = (part[:, 1:-1].clone() for part in lines[:2])
    grid = torch.special.ndtr(scores[0])
    counts = (data.observed & (weights > 0)[:, None]).T
    for j, (column, observed) in enumerate(zip(data.x.T, counts, strict=True)):
        values, order = column[observed].sort()
        weight = weights[observed][order]
        rank = torch.searchsorted(weight.cumsum(0) / weight.sum(), grid)
        unique = values[rank.clamp(max=len(values) - 1)].unique()
        if len(unique) >= _FEWEST_VALUES:
            knots[j] = _filled_up(unique)
            share = _weight_below(values, weight, knots[j]) / weight.sum()
            scores[j] = torch.special.ndtri(share)
    return with_tails(knots, scores)


def _filled_up(knots: Tensor) -> Tensor:
    """Halve the widest gap until there are enough knots.

    Of gaps that differ by rounding errors only, as between integers, it is the first.
    """
    while len(knots) < _N_KNOTS:
        gaps = knots.diff()
        gap = int((gaps > gaps.max() * (1 - _ROUNDING)).nonzero()[0])
        middle = knots[gap : gap + 2].mean()
        knots = torch.cat([knots[: gap + 1], middle[None], knots[gap + 1 :]])
    return knots


def _weight_below(values: Tensor, weights: Tensor, knots: Tensor) -> Tensor:
    """Sum weights of the values below each knot, and half of those at the knot."""
    upon = (values[:, None] == knots).to(weights) / 2
    return weights @ ((values[:, None] < knots).to(weights) + upon)


def observed_below(knots: Tensor, rows: Rows) -> Tensor:
    """Sum weights of observed cells below each knot: a part of eq. (1).

    `knots` (features, n_knots).  Returns (features, n_knots).
    """
    signs = torch.zeros_like(knots)
    for part in range(0, len(rows.data.x), _ROWS_AT_ONCE):
        x, observed = rows.data.take(slice(part, part + _ROWS_AT_ONCE))
        # missing cells are above all knots, and add nothing
        x, weights = x.where(observed, torch.inf), rows.weights[part:][: len(x)]
        for k, knot in enumerate(knots.T.contiguous()):
            # the sign counts a cell at the knot as half below it
            signs[:, k] += weights @ (knot - x).sign_()
    return (rows.total + signs) / 2


def expected_below(scores: Tensor, normal: Normal, rows: Rows) -> Tensor:
    """Sum expected weights of missing cells below each knot: the rest of eq. (1).

    `scores` (features, n_knots): those of the knots; `rows`: of scores.  Returns
    (features, n_knots).
    """
    total = torch.zeros_like(scores)
    factored = prepare(normal)
    for group in rows.groups:
        weight = rows.weights.index_select(0, group.rows)
        add_expected(total, scores, factored, group.condition(factored), weight)
    return total


def add_expected(
    total: Tensor,  # (features, n_knots)
    scores: Tensor,  # (features, n_knots)
    normal: FactoredNormal,
    conditioned: Conditioned,
    weight: Tensor,  # (n,)
) -> None:
    """Add the expected weights of missing cells of a group, see `expected_below`."""
    rows, columns = (conditioned.group.observed == 0).nonzero(as_tuple=True)
    mean = normal.mean[columns] + conditioned.completed[rows, columns]
    variance = conditioned.variance(normal)[rows, columns]
    # cells that others determine have a deviation of zero
    deviation = variance.sqrt().clamp_(min=em.LEAST_DEVIATION)
    t = (mean[:, None] - scores[columns]).div_(sqrt(2) * deviation[:, None])
    lost = t.erfc_().mul_(weight[rows, None] / 2)
    total.index_add_(0, columns, lost)


def refine(
    marginals: PiecewiseLinear, normal: Normal, scores: Table, below: Tensor
) -> PiecewiseLinear:
    """Update the scores of all knots by eq. (1).

    `scores`: the table under `marginals`; `below`: of `observed_below`.
    """
    inner = marginals.scores[:, 1:-1]
    expected = scores.summed(partial(expected_below, inner, normal))
    share = (below + expected) / scores.total
    return with_tails(marginals.knots[:, 1:-1], torch.special.ndtri(share))


def scored(marginals: PiecewiseLinear, data: Incomplete) -> tuple[Incomplete, Tensor]:
    """Map a table to scores; also sum the log-slopes of observed cells of each row."""
    scores, log_slope = marginals.forward(data.x)
    inside = log_slope.where(data.observed, 0.0).sum(1)
    return Incomplete(scores.where(data.observed, 0.0), data.observed), inside


def scores_of(marginals: PiecewiseLinear, data: Incomplete) -> Incomplete:
    """Map a table to scores, as a sum of ramps that begin at the knots."""
    knots, scores = marginals[:2]
    slopes = scores.diff() / knots.diff()
    x = scores[:, 0] + slopes[:, 0] * (data.x - knots[:, 0])
    ramps = zip(knots.T[1:-1].contiguous(), slopes.diff().T.contiguous(), strict=True)
    for knot, change in ramps:
        x.addcmul_((data.x - knot).relu_(), change)
    return Incomplete(x.where(data.observed, 0.0), data.observed)


def fit_marginals(
    table: Table,  # columns scaled to unit standard deviation
    strength: float,  # k of the prior, see `gaussian.em`
    marginals: PiecewiseLinear,  # initial values; linear marginals stay linear
    normal: Normal,  # initial values
    *,
    tol: float,  # change of a score in a round below which the scores have converged
) -> tuple[PiecewiseLinear, Normal]:
    """Alternate between fits of the scores of marginals and the normal distribution.

    Returns `marginals`; `normal`: nearly converged on the scores.
    """
    use = nonlinear_columns(marginals)
    below = table.summed(partial(observed_below, marginals.knots[:, 1:-1]))
    for n_round in range(1, _ROUNDS + 1):
        tell("round of marginals", n_round, _ROUNDS)
        scores = table.mapped(partial(scores_of, marginals))
        normal = em.fit_table(scores, strength, normal, max_iter=2, tol=tol).normal
        before, marginals = marginals, refine(marginals, normal, scores, below)
        marginals = choose(use, marginals)
        if float((marginals.scores - before.scores).abs().max()) < tol:
            break
    return marginals, normal


def choose_marginals(
    data: Incomplete,
    held_out: Tensor,  # bool (n, features), observed cells that the fit does not use
    weights: Tensor,  # (n,)
    strength: float,
    normal: Normal,  # nearly fitted to the other cells with linear marginals
    values: dict[int, Tensor],
    ranges: tuple[Tensor, Tensor] | None,
    **stopping: float,  # max_iter and tol of EM with both
) -> tuple[PiecewiseLinear, Normal, Normal] | None:
    """Fit marginals, and accept them if they predict held-out cells better.

    Each held-out cell is scored by the CRPS of its distribution given the other cells
    of its row, and the gain must exceed a standard error.  So must that of draws of all
    observed cells, by two standard errors, on the scale of their normal scores: there
    are ten times as many, and marginals that are accepted by chance are wrong beyond
    their knots, where cells may be missing.  The squared errors of means must not
    increase by significantly more than a tenth, by two standard errors; with heavy
    tails they depend on a few cells.  The choice is made for all columns together,
    because a nonlinear map of some columns destroys linear relations to the others.
    Columns count by their missing cells: what suits complete ones may be wrong for
    those that are filled.

    `values`: increasing values of the columns with repeated values; `ranges`
    (features,), or None: smallest and largest possible cells, see `fit_steps`.
    """
    visible = Incomplete(data.x.where(~held_out, 0.0), data.observed & ~held_out)
    lines = linear(data.x.shape[1])
    begin = start(visible, weights)
    rows = Rows(visible, weights)
    nonlinear = fit_marginals(rows, strength, begin, normal, tol=_APPROXIMATE)
    losses, squares, drawn = [], [], []
    counts, every = _missing(data, weights), torch.arange(data.x.shape[1])
    for marginals, fitted in ((lines, normal), nonlinear):
        scores, _ = scored(marginals, visible)
        fit = em.fit_normal(scores, weights, strength, fitted, **stopping)
        moments = em.conditional_moments(fit.normal, scores)
        crps = _crps(marginals, None, *moments, data.x).where(held_out, 0.0)
        losses.append(crps @ counts)
        scores, _ = scored(marginals, data)
        others = left_out_moments(fit.normal, scores, every)
        stepped = fit_steps(fit.normal, scores, data.x, weights, values, ranges)
        crps = _crps(marginals, stepped, *others, data.x, partial(_score, begin))
        drawn.append(crps.where(data.observed, 0.0) @ counts)
        error = (marginals.expectation(*moments) - data.x).where(held_out, 0.0)
        squares.append(error.square() @ counts)
        last = fit.normal
    errors = partial(_errors_above_zero, weights)
    better = errors(losses[0] - losses[1]) > 1 and errors(drawn[0] - drawn[1]) > _CLEAR
    worse = errors(squares[1] - _WORSE * squares[0]) > _CLEAR
    return (*nonlinear, last) if better and not worse else None


def _errors_above_zero(weights: Tensor, values: Tensor) -> Tensor:
    """Divide the mean of values (n,) by its standard error."""
    return weights @ values / (weights @ values.square()).sqrt()


def _missing(data: Incomplete, weights: Tensor) -> Tensor:
    """Compute the shares of missing cells that columns have; (features,)."""
    missing = weights @ (~data.observed).to(weights)
    # a complete table is fitted for rows that may miss any cell
    return missing / missing.sum() if missing.any() else torch.ones_like(missing)


def _score(scale: PiecewiseLinear, x: Tensor) -> Tensor:
    """Map cells to scores, of which a few do not dominate a mean."""
    return scale.forward(x)[0].clamp(-_WIDEST_SCORE, _WIDEST_SCORE)


def _crps(
    marginals: PiecewiseLinear,
    stepped: Steps | None,
    mean: Tensor,
    deviation: Tensor,
    x: Tensor,
    scale: Callable[[Tensor], Tensor] = torch.positive,  # as they are
) -> Tensor:
    """Compute the CRPS of cells whose scores are N(mean, deviation**2)."""
    total, at = torch.zeros_like(x), scale(x)
    for level in midpoint_levels(_N_LEVELS, x):
        score = mean + deviation * torch.special.ndtri(level)
        cells = marginals.inverse(score)
        cells = cells if stepped is None else stepped.put(score, cells)
        total += quantile_loss(at - scale(cells), level)
    return 2 * total / _N_LEVELS


# ----------------------------------------
# Maps between cells of a table and scores of about unit standard deviation.
#
# Columns are standardised, and mapped nonlinearly if there are `marginals`.  Columns
# with repeated values are rounded: a score between two values belongs to the nearer
# one.


_FARTHEST = 1e6  # maximum absolute score, whose square fits into single precision
_SHARED = 0.5  # share of cells with equal values from which a column is rounded


class CellScores(NamedTuple):
    """The map from cells to scores.

    Attributes
    ----------
    location, scale : Tensor of shape (features,)
    marginals : PiecewiseLinear or None
        Of the scaled cells.
    rounded : Tensor of int, of shape (n_rounded,)
        Indices of the columns with repeated values.
    values : Tensor of shape (n_rounded, n_values)
        Increasing values of cells; the last is repeated if a column has fewer.
    tables : pair of Tensor of shape (n_rounded, n_values) and \
            (n_rounded, n_values + 1), or None
        Scores of these values, and the edges between and around them; both are
        increasing and padded like the values.  None if the other attributes give them.
    """

    location: Tensor
    scale: Tensor
    marginals: PiecewiseLinear | None
    rounded: Tensor
    values: Tensor
    tables: tuple[Tensor, Tensor] | None = None
    # from scaled cells to those that keep the signs of their columns, see `Tails`
    with_signs: Callable[[Tensor], Tensor] | None = None

    def scores(self, data: Incomplete) -> tuple[Incomplete, Tensor]:
        """Map a table to scores; also sum the log-slopes of observed cells of each row.

        Rounded columns have probabilities and no slopes; their cells count as the
        nearest known value.
        """
        cells = self._snapped(data.x.where(data.observed, self.location))
        scaled = ((cells - self.location) / self.scale).clamp(-_FARTHEST, _FARTHEST)
        scaled = Incomplete(scaled.where(data.observed, 0.0), data.observed)
        smooth = torch.ones_like(self.scale)
        smooth[self.rounded] = 0.0
        slopes = -self.scale.log().expand_as(data.x)
        if self.marginals is not None:
            x, log_slope = self.marginals.forward(scaled.x)
            slopes = slopes + log_slope
            scaled = Incomplete(x.where(data.observed, 0.0), data.observed)
        if self.tables is not None:
            x = scaled.x.index_copy(-1, self.rounded, self._looked_up(cells))
            scaled = Incomplete(x.where(data.observed, 0.0), data.observed)
        return scaled, slopes.where(data.observed, 0.0) @ smooth

    def cells(self, scores: Tensor) -> Tensor:
        """Map scores (*batch, features) to cells; rounded columns exactly."""
        scaled = scores if self.marginals is None else self.marginals.inverse(scores)
        scaled = scaled if self.with_signs is None else self.with_signs(scaled)
        cells = self.location + self.scale * scaled
        if self.tables is None:
            return self._snapped(cells)
        inner = self.tables[1][:, 1:-1]
        last = self.tables[1][:, -1:]
        inner = inner.where(inner < last, torch.inf)
        places = place(inner, scores[..., self.rounded])
        return cells.index_copy(-1, self.rounded, pick(self.values, places))

    def values_and_edges(self) -> tuple[Tensor, Tensor]:
        """Map values of rounded columns, and the midpoints between them, to scores.

        Returns `values` (n_rounded, n_values); `edges` (n_rounded, n_values + 1): the
        outermost edges are symmetric around the outermost values.
        """
        if self.tables is not None:
            return self.tables
        location, scale = self.location[self.rounded], self.scale[self.rounded]
        values = (self.values - location[:, None]) / scale[:, None]
        counts = (values.diff() > 0).sum(1, keepdim=True)
        midpoints = self._scores_of((values[:, 1:] + values[:, :-1]) / 2)
        values = self._scores_of(values)
        last = 2 * values[:, -1:] - midpoints.gather(1, counts - 1)
        places = torch.arange(values.shape[1]).to(counts)
        right = torch.cat([midpoints, last], 1).where(places < counts, last)
        return values, torch.cat([2 * values[:, :1] - midpoints[:, :1], right], 1)

    def _snapped(self, cells: Tensor) -> Tensor:
        if not len(self.rounded):
            return cells
        near = nearest(self.values, cells[..., self.rounded])
        return cells.index_copy(-1, self.rounded, near)

    def _looked_up(self, cells: Tensor) -> Tensor:
        """Look up the scores of the values of rounded columns; (*batch, n_rounded)."""
        halves = (self.values[:, 1:] + self.values[:, :-1]) / 2
        return pick(self.tables[0], place(halves, cells[..., self.rounded]))

    def _scores_of(self, values: Tensor) -> Tensor:
        if self.marginals is None or not len(values):
            return values
        return self.marginals.take(self.rounded).forward(values.T)[0].T


def repeated_values(data: Incomplete) -> tuple[Tensor, Tensor]:
    """Find the columns with repeated values, and their values.

    Returns `rounded`, int (n_rounded,); `values` (n_rounded, n_values).
    """
    places, tables = [], []
    for j, (column, observed) in enumerate(zip(data.x.T, data.observed.T, strict=True)):
        values, counts = column[observed].unique(return_counts=True)
        shared = counts[counts > 1].sum() >= _SHARED * counts.sum()
        if shared and len(values) > 1:
            places.append(j)
            tables.append(values)
    widest = max(map(len, tables), default=0)
    padded = [torch.cat([t, t[-1:].expand(widest - len(t))]) for t in tables]
    values = torch.stack(padded) if padded else data.x.new_zeros(0, 0)
    return torch.tensor(places, dtype=torch.long), values
