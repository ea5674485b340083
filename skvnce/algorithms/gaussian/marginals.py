"""Margins of a Gaussian copula: columns are increasing functions of normal scores.

Each is piecewise linear through (knot, score) pairs, so that density, inverse and the
mean of a normal score mapped back are closed forms.  Scores are fitted by

    score_k = Phi^-1( average over rows of P(x_j <= knot_k | observed cells) )    (1)

where a row that misses the cell contributes the model's probability: margins are those
of all rows, not of the observed ones, and right where values are missing at random,
as far as the knots reach: they are quantiles of the observed cells.
"""

from math import pi, sqrt
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import tell
from skvnce.algorithms.gaussian import em
from skvnce.algorithms.gaussian.steps import Steps, fit_steps, left_out_moments
from skvnce.distributions.columns import pick, place
from skvnce.distributions.normal import Normal
from skvnce.distributions.quantiles import midpoint_levels

_N_KNOTS = 9
_FEWEST_VALUES = 5  # of a column whose margin may bend
_WIDEST = 2.0  # score of the outermost of them: 2 % of the rows lie beyond each
_FAR = 100.0  # distance in scores of the last knots, which set the slopes of the tails
_LEAST_STEP = 1e-3  # of the scores between knots that no cell lies between
_N_LEVELS = 12  # of quantiles that stand for a distribution
_ROUNDS = 50  # of margins and normal in turn
_CLEAR = 2.0  # standard errors of a loss that is no chance
_WORSE = 1.1  # times the squared errors, of margins that are taken all the same
_ROUGH = 0.03  # tolerance of margins that are to be compared


class Margins(NamedTuple):
    """Piecewise linear functions, one a column.

    Attributes
    ----------
    knots, scores : Tensor of shape (features, n_knots)
        Increasing in each row; the first and the last are far out.
    low, high : Tensor of shape (features,)
        Range of the cells that scores are mapped to; may be infinite.  A finite one
        lies outside of all knots but the far ones.
    """

    knots: Tensor
    scores: Tensor
    low: Tensor
    high: Tensor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map cells (*batch, features) to scores, and give the logs of the slopes."""
        return _interpolate(x, self.knots, self.scores)

    def inverse(self, score: Tensor) -> Tensor:
        """Map scores (*batch, features) to cells within their range."""
        cells = _interpolate(score, self.scores, self.knots)[0]
        return cells.clamp(self.low, self.high)

    def expectation(self, mean: Tensor, spread: Tensor) -> Tensor:
        """Compute the mean of cells whose scores are N(mean, spread**2).

        Beyond the range the margin is flat: the bends there take the last slopes back.
        """
        slopes = self.knots.diff() / self.scores.diff()
        total = self.knots[:, 0] + slopes[:, 0] * (mean - self.scores[:, 0])
        bends = zip(slopes.diff().T, self.scores[:, 1:-1].T, strict=True)
        for bend, score in bends:
            total = total + bend * _mean_above(mean - score, spread)
        first, last = self._scores_of_range()
        total = total + slopes[:, 0] * _mean_above(first - mean, spread)
        total = total - slopes[:, -1] * _mean_above(mean - last, spread)
        return total.clamp(self.low, self.high)

    def inverse_of(self, columns: Tensor, score: Tensor) -> Tensor:
        """Map scores (*batch, cells) to cells of the columns (cells,)."""
        return Margins(*(part[columns] for part in self)).inverse(score)

    def within(self, low: Tensor, high: Tensor) -> Self:
        """Keep the cells of the columns that are bent in a range, (features,) each."""
        bends = bent(self)
        low = torch.minimum(low, self.knots[:, 1]).where(bends, -torch.inf)
        high = torch.maximum(high, self.knots[:, -2]).where(bends, torch.inf)
        return self._replace(low=low, high=high)

    def _scores_of_range(self) -> tuple[Tensor, Tensor]:
        """Map the ends of the range to scores; far ones where it is infinite."""
        low = torch.maximum(self.low, self.knots[:, 0])
        high = torch.minimum(self.high, self.knots[:, -1])
        return self.forward(low)[0], self.forward(high)[0]


def _mean_above(mean: Tensor, spread: Tensor) -> Tensor:
    """Compute E[max(v, 0)] of v ~ N(mean, spread**2)."""
    t = mean / spread.clamp(min=torch.finfo(spread.dtype).tiny)
    density = torch.exp(-t.square() / 2) / sqrt(2 * pi)
    return mean * torch.erfc(-t / sqrt(2)) / 2 + spread * density


def _interpolate(x: Tensor, at: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
    piece = place(at[:, 1:-1], x)
    slope = pick(to.diff() / at.diff(), piece)
    return pick(to, piece) + slope * (x - pick(at, piece)), slope.log()


def with_tails(knots: Tensor, scores: Tensor) -> Margins:
    """Add a far knot on each side, with the average slope of the three pieces inside.

    Beyond the outermost quantiles nothing else is known, least of all where larger
    values are missing more often.
    """
    ramp = _LEAST_STEP * torch.arange(scores.shape[1]).to(scores)
    scores = (scores - ramp).cummax(1).values + ramp
    left = (knots[:, 3] - knots[:, 0]) / (scores[:, 3] - scores[:, 0])
    right = (knots[:, -1] - knots[:, -4]) / (scores[:, -1] - scores[:, -4])
    far = torch.full_like(left, _FAR)
    framed = _framed(knots, _FAR * left, _FAR * right), _framed(scores, far, far)
    return Margins(*framed, far - torch.inf, far + torch.inf)


def _framed(values: Tensor, left: Tensor, right: Tensor) -> Tensor:
    first, last = values[:, 0] - left, values[:, -1] + right
    return torch.cat([first[:, None], values, last[:, None]], 1)


def straight(d: int) -> Margins:
    """Make the margins of a normal distribution: every cell is its score."""
    grid = torch.linspace(-_WIDEST, _WIDEST, _N_KNOTS, dtype=torch.float64)
    return with_tails(grid.expand(d, -1), grid.expand(d, -1))


def choose(use: Tensor, bent: Margins) -> Margins:
    """Take the bent margins of the columns in `use`, (features,), else straight."""
    pairs = zip(bent[:2], straight(len(use))[:2], strict=True)
    parts = [torch.where(use[:, None], a, b) for a, b in pairs]
    return Margins(*parts, bent.low, bent.high)


def bent(margins: Margins) -> Tensor:
    """Tell which columns are not straight; (features,)."""
    return (margins.knots != straight(len(margins.knots)).knots).any(1)


def start(data: Incomplete, weights: Tensor) -> Margins:
    """Put knots on quantiles of the observed cells; straight where ties leave few."""
    lines = straight(data.x.shape[1])
    knots, scores = (part[:, 1:-1].clone() for part in lines[:2])
    grid = torch.special.ndtr(scores[0])
    counts = (data.observed & (weights > 0)[:, None]).T
    for j, (column, seen) in enumerate(zip(data.x.T, counts, strict=True)):
        values, order = column[seen].sort()
        weight = weights[seen][order]
        rank = torch.searchsorted(weight.cumsum(0) / weight.sum(), grid)
        unique = values[rank.clamp(max=len(values) - 1)].unique()
        if len(unique) >= _FEWEST_VALUES:
            knots[j] = _filled_up(unique)
            share = _weight_below(values, weight, knots[j]) / weight.sum()
            scores[j] = torch.special.ndtri(share)
    return with_tails(knots, scores)


def _filled_up(knots: Tensor) -> Tensor:
    """Halve the widest gap until there are enough knots."""
    while len(knots) < _N_KNOTS:
        gap = int(knots.diff().argmax())
        middle = knots[gap : gap + 2].mean()
        knots = torch.cat([knots[: gap + 1], middle[None], knots[gap + 1 :]])
    return knots


def _weight_below(values: Tensor, weights: Tensor, knots: Tensor) -> Tensor:
    """Sum weights of the values below each knot, and half of those upon it."""
    upon = (values[:, None] == knots).to(weights) / 2
    return weights @ ((values[:, None] < knots).to(weights) + upon)


def observed_below(margins: Margins, data: Incomplete, weights: Tensor) -> Tensor:
    """Sum weights of observed cells below each knot: a part of eq. (1).

    Returns
    -------
    Tensor of shape (features, n_knots - 2)
        Without the far knots.
    """
    columns = zip(data.x.T, data.observed.T, margins.knots[:, 1:-1], strict=True)
    return torch.stack(
        [_weight_below(x[o], weights[o], knots) for x, o, knots in columns]
    )


def refine(
    margins: Margins,
    normal: Normal,
    scores: Incomplete,
    weights: Tensor,
    below: Tensor,
) -> Margins:
    """Update the scores of all knots by eq. (1).

    Parameters
    ----------
    scores : Incomplete
        The table under `margins`.
    below : Tensor
        Of `observed_below`.
    """
    mean, spread = em.conditional_moments(normal, scores)
    rows, columns = (~scores.observed).nonzero(as_tuple=True)
    mean, spread = (
        mean[rows, columns],
        spread[rows, columns].clamp(min=em.LEAST_SPREAD),
    )
    found = []
    for score in margins.scores[:, 1:-1].T:
        t = (mean - score[columns]) / spread
        lost = weights[rows] * torch.erfc(t / sqrt(2)) / 2
        found.append(torch.zeros_like(score).index_add_(0, columns, lost))
    share = (below + torch.stack(found, 1)) / weights.sum()
    return with_tails(margins.knots[:, 1:-1], torch.special.ndtri(share))


def scored(margins: Margins, data: Incomplete) -> tuple[Incomplete, Tensor]:
    """Map a table to scores; and sum up the log-slopes of each row's observed cells."""
    scores, log_slope = margins.forward(data.x)
    inside = log_slope.where(data.observed, 0.0).sum(1)
    return Incomplete(scores.where(data.observed, 0.0), data.observed), inside


def fit_margins(
    data: Incomplete,
    weights: Tensor,
    strength: float,
    margins: Margins,
    normal: Normal,
    *,
    tol: float,
) -> tuple[Margins, Normal]:
    """Fit the scores of margins and the normal distribution in turn.

    Parameters
    ----------
    data : Incomplete
        Columns scaled to unit spread.
    weights : Tensor of shape (n,)
    strength : float
        k of the prior, see `gaussian`.
    margins : Margins
        Where to start; straight ones stay straight.
    normal : Normal
        Where to start.
    tol : float
        Change of a score in a round at which they are taken as settled.

    Returns
    -------
    margins : Margins
    normal : Normal
        Nearly converged on the scores.
    """
    bends, below = bent(margins), observed_below(margins, data, weights)
    for n_round in range(1, _ROUNDS + 1):
        tell("round of margins", n_round, _ROUNDS)
        scores, _ = scored(margins, data)
        normal = em.fit_normal(
            scores, weights, strength, normal, max_iter=2, tol=tol
        ).normal
        before, margins = margins, refine(margins, normal, scores, weights, below)
        margins = choose(bends, margins)
        if float((margins.scores - before.scores).abs().max()) < tol:
            break
    return margins, normal


def choose_margins(
    data: Incomplete,
    held_out: Tensor,
    weights: Tensor,
    strength: float,
    normal: Normal,
    *,
    max_iter: int,
    tol: float,
    values: dict[int, Tensor] | None = None,
) -> tuple[Margins, Normal, Normal] | None:
    """Fit margins, and take them if they predict held-out cells better than straight.

    Each held-out cell is judged by the CRPS of its distribution given the cells of its
    row that are not, and better is by a standard error.  The squared errors of means
    must not be larger by a tenth: those of columns with heavy tails may be.  It is all
    columns or none: bending some columns breaks what is linear between them and others.

    Columns whose values repeat are drawn by steps, which give straight margins the
    right frequencies, too.  So bent margins must not be worse, by two standard errors,
    in the CRPS of draws of all observed cells, each given the others of its row: they
    are ten times as many.

    Parameters
    ----------
    data : Incomplete
    held_out : Tensor of bool, of shape (n, features)
        Observed cells that the fit may not see.
    weights : Tensor of shape (n,)
    strength : float
    normal : Normal
        Nearly fitted to the other cells with straight margins.
    max_iter, tol
        Of EM with both.
    values : dict of int to Tensor, or None
        Increasing values of the columns whose values repeat.

    Returns
    -------
    None, or margins, the normal distribution that was fitted with them in turn, and the
    one that EM goes on to.
    """
    kept = Incomplete(data.x.where(~held_out, 0.0), data.observed & ~held_out)
    lines = straight(data.x.shape[1])
    begin = start(kept, weights)
    found = fit_margins(kept, weights, strength, begin, normal, tol=_ROUGH)
    losses, squares, drawn, effort = [], [], [], {"max_iter": max_iter, "tol": tol}
    for margins, fitted in ((lines, normal), found):
        scores, _ = scored(margins, kept)
        fit = em.fit_normal(scores, weights, strength, fitted, **effort)
        moments = em.conditional_moments(fit.normal, scores)
        crps = _crps(margins, None, *moments, data.x).where(held_out, 0.0)
        losses.append(crps.sum(1))
        drawn.append(_left_out_crps(margins, fit.normal, data, weights, values))
        error = (margins.expectation(*moments) - data.x).where(held_out, 0.0)
        squares.append(weights @ error.square().sum(1))
        last = fit.normal
    gain = losses[0] - losses[1]  # of each row
    better = weights @ gain > (weights @ gain.square()).sqrt()
    lost = drawn[1] - drawn[0]
    worse = weights @ lost > _CLEAR * (weights @ lost.square()).sqrt()
    fair = squares[1] <= _WORSE * squares[0] and not worse
    return (*found, last) if better and fair else None


def _left_out_crps(
    margins: Margins,
    normal: Normal,
    data: Incomplete,
    weights: Tensor,
    values: dict[int, Tensor] | None,
) -> Tensor:
    """Sum the CRPS of draws of the observed cells; (n,), 0 where no values repeat."""
    if not values:
        return torch.zeros_like(weights)
    scores, _ = scored(margins, data)
    moments = left_out_moments(normal, scores, torch.arange(data.x.shape[1]))
    stepped = fit_steps(normal, scores, data.x, weights, values)
    crps = _crps(margins, stepped, *moments, data.x).where(data.observed, 0.0)
    return crps.sum(1)


def _crps(
    margins: Margins, stepped: Steps | None, mean: Tensor, spread: Tensor, x: Tensor
) -> Tensor:
    """Compute the CRPS of cells whose scores are N(mean, spread**2).

    It is twice the average over levels of the loss of quantiles (Gneiting and Raftery
    2007, section 4.2).
    """
    total = torch.zeros_like(x)
    for level in midpoint_levels(_N_LEVELS, x):
        score = mean + spread * torch.special.ndtri(level)
        cells = margins.inverse(score)
        error = x - (cells if stepped is None else stepped.put(score, cells))
        total += torch.maximum(level * error, (level - 1) * error)
    return 2 * total / _N_LEVELS
