"""Columns of a mixed table as functions of latent normal variables.

A number or an ordinal level is an increasing step function of one latent variable: the
inverse of the distribution function of the observed cells at ``Phi(z)``.  So a value
that occurs often is an interval of z (zero inflation, counts, grades, two levels), and
a value that occurs once is a point.  Beyond the observed numbers the function goes on
as a line, so that cells follow the model there, except for codes, and where many cells
have the last value.  A nominal column of K levels has K latent variables, of which the
largest names the level (multinomial probit; Albert and Chib 1993, section 4); with two
levels it is ordinal, which is equivalent.  The latent variables are jointly normal with
free mean and covariance; see `gibbs`.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.special import ndtri

from skvnce._core.incomplete import Incomplete
from skvnce._core.numbers import are_codes, masses_at_ends
from skvnce._core.random import normal_cdf
from skvnce.gaussian import tails

Limits = tuple[Tensor, ...]  # the least and the largest values, or () without

NUMERIC, ORDINAL, NOMINAL = "numeric", "ordinal", "nominal"
_FEWEST, _LEAST_SHARE = 3, 0.005  # number and share of equal cells that are an interval
# an interval without width would count as an observed cell
_NARROWEST = 1e-9  # width in scores of the interval of a cell between limits
_REPEATED = 0.5  # share of cells with equal values from which values are intervals
_TAIL = 0.0, 2.0  # scores, between which the slope is that of the tail
_STEP, _N_BEYOND = 0.5, 16  # distance in scores, and number, of points of a tail
_DEEPEST = 30.0  # of the logarithms of positive values below the observed ones
_SKEWED = 0.95  # correlation of values and scores, below which values are skewed


class Marginal(NamedTuple):
    """A number or an ordinal level as an increasing function of a normal score."""

    values: Tensor  # (n_values,), increasing
    # (n_values,), the scores of a value: an interval, or a point where both are equal.
    # Scores between those of two values belong to cells between the values; there are
    # none where ``high[k] == low[k + 1]``
    low: Tensor
    high: Tensor

    @classmethod
    def of_levels(cls, codes: Tensor, weights: Tensor, n_levels: int) -> Self:
        """Estimate that of levels 0, 1, ... from observed codes (n,) with weights (n,).

        A level without a cell counts as half of one.
        """
        mass = torch.zeros(n_levels, dtype=weights.dtype)
        mass.index_add_(0, codes.long(), weights)
        values = torch.arange(n_levels).to(mass)
        return cls.of_intervals(values, mass.where(mass > 0, 0.5))

    @classmethod
    def of(cls, cells: Tensor, weights: Tensor) -> Self:
        """Estimate that of numbers from observed cells (n,) with weights (n,)."""
        values, group = cells.unique(return_inverse=True)
        mass = torch.zeros_like(values).index_add_(0, group, weights)
        number = torch.bincount(group, minlength=len(values))
        if mass[number > 1].sum() < _REPEATED * mass.sum():
            return cls.of_shares(values, number, mass / mass.sum())
        return cls.of_intervals(values, mass)

    @classmethod
    def of_shares(
        cls, values: Tensor, number: Tensor, shares: Tensor, below: float = 0.0
    ) -> Self:
        """Make that of values, their numbers of cells, and their shares, (n_values,).

        The share `below` is that of cells below all values.
        """
        high = below + shares.cumsum(0)
        low = high - shares
        middle = (low + high) / 2
        is_point = (number < _FEWEST) | (shares < _LEAST_SHARE)
        # the middle of the share, because the last share ends at an infinite score
        # rounding may make a sum of shares exceed 1, whose score would be NaN
        ends = (torch.where(is_point, middle, end).clamp(0, 1) for end in (low, high))
        low, high = map(ndtri, ends)
        return cls(values, low, high)

    @classmethod
    def of_intervals(cls, values: Tensor, mass: Tensor) -> Self:
        """Make that of values of which each is an interval, and their mass."""
        # without the last edge, which is infinite
        edges = ndtri(mass.cumsum(0)[:-1] / mass.sum())
        far = edges.new_full((1,), torch.inf)
        return cls(values, torch.cat([-far, edges]), torch.cat([edges, far]))

    def opened(
        self,
        number: Tensor,
        sides: tuple[int, ...] = (0, 1),
        sign: float = 0.0,
        least: float = 0.0,
    ) -> Self:
        """Add a tail at each of some ends, unless many of the cells are there.

        `number` (n_values,) are those of cells; side 0 is that of the smallest.  `sign`
        is that of all cells, which tails keep, or 0, and `least` their smallest size.
        """
        if sign < 0:
            mirrored = self._mirrored().opened(number.flip(0), sides[::-1], 1.0, least)
            return mirrored._mirrored()
        masses = masses_at_ends(self.values.numpy(), number.numpy())
        is_log = self._is_skewed(number)
        marginal = self._replace(values=self.values.log()) if is_log else self
        if 1 in sides and not masses[1]:
            marginal, number = marginal._with_right_tail(number)
        if 0 in sides and not masses[0]:
            tailed = marginal._with_left_tail(number)
            if sign > 0 and not is_log:
                tailed = marginal._positive(tailed, number)
            marginal = tailed
        values = marginal.values.exp() if is_log else marginal.values
        return marginal._replace(values=at_least(least, values) if sign else values)

    def _is_skewed(self, number: Tensor) -> bool:
        """Say whether logarithms of the values are nearer to a line of the scores."""
        if not self.values[0] > 0:
            return False
        middle = (self.low + self.high) / 2
        finite = middle.isfinite()
        if finite.sum() < 2:  # no line, of three values or fewer
            return False
        rows = torch.stack([middle, self.values, self.values.log()])[:, finite]
        moments = torch.cov(rows, fweights=number[finite].long())
        scales = moments.diagonal().sqrt()
        linear, log = moments[0, 1:] / (scales[0] * scales[1:])
        return bool(linear < _SKEWED and log > linear)

    def _with_left_tail(self, number: Tensor) -> Self:
        """Go on below the smallest value with the slope beside it."""
        tailed, _ = self._mirrored()._with_right_tail(number.flip(0))
        return tailed._mirrored()

    def _positive(self, tailed: Self, number: Tensor) -> Self:
        """Make the left tail of positive values positive, too.

        If zero is near, it is that of logarithms.  Otherwise values below t, half of
        the least one of the cells, become ``t exp(v / t - 1)``, as in `gaussian.tails`.
        """
        n_beyond = len(tailed.values) - len(self.values)
        if n_beyond and tailed.values[n_beyond - round(1 / _STEP)] <= 0:
            logs = self._replace(values=self.values.log())._with_left_tail(number)
            return logs._replace(values=logs.values.exp())
        t = self.values[0] / 2
        beyond = t * torch.exp((tailed.values / t - 1).clamp(-_DEEPEST, 0.0))
        return tailed._replace(values=tailed.values.where(tailed.values >= t, beyond))

    def signed(self, cells: Tensor, sign: float, least: float) -> Self:
        """Keep the sign of cells (n,), by the tail of eq. (1) of `gaussian.tails`."""
        if sign < 0:
            return self._mirrored().signed(-cells, 1.0, least)._mirrored()
        unit = cells.std()
        scores = tails.levels(cells, len(cells)).view(-1, len(cells))
        weights, predicted = torch.ones_like(cells), self.cells(scores) / unit
        tail = tails.tail_of(weights, cells / unit, predicted)
        return self.with_tail((unit, *tail), 1.0, least)

    def with_tail(self, tail: tuple, sign: float, least: float) -> Self:
        """Go on by eq. (1) of `gaussian.tails`; `tail` has a unit, t and b."""
        if sign < 0:
            return self._mirrored().with_tail(tail, 1.0, least)._mirrored()
        unit, t, b = tail
        depth = torch.arange(0.0, _DEEPEST, _STEP / 2).flip(0).to(self.values)
        line = unit * (t - depth / b)
        line, depth = (part[line > self.values[0]] for part in (line, depth))
        low = self.scores(line)[0]
        above = self.values > unit * t
        parts = (unit * t * torch.exp(-depth), low, low)
        pairs = zip(parts, (part[above] for part in self), strict=True)
        joined = type(self)(*map(torch.cat, pairs))
        return joined._replace(values=at_least(least, joined.values))

    def _mirrored(self) -> Self:
        """Change the sign of cells and scores."""
        parts = self.values, self.high, self.low
        return type(self)(*(-part.flip(0) for part in parts))

    def _with_right_tail(self, number: Tensor) -> tuple[Self, Tensor]:
        """Go on beyond the largest value with the slope before it."""
        below = number.cumsum(0) / number.sum()
        upto = normal_cdf(below.new_tensor(_TAIL))
        first, last = torch.searchsorted(below, upto).clamp(max=len(below) - 1)
        rise = self.values[last] - self.values[first]
        # the score of a mass at the smallest value is where it ends
        start = torch.where(self.low.isinf(), self.high, self.low)[first]
        run = self.low[last] - start
        if not (rise > 0 and 0 < run < torch.inf):
            return self, number
        high, largest = self.high.clone(), self.values[-1]
        if high[-1].isinf():  # an interval that reaches half the way to the next value
            high[-1] = self.low[-1] + (largest - self.values[-2]) / 2 * run / rise
        steps = torch.arange(1, _N_BEYOND + 1).to(high) * _STEP
        far, beyond = high[-1] + steps, largest + rise / run * steps
        parts = (self.values, beyond), (self.low, far), (high, far)
        number = torch.cat([number, number.new_zeros(len(far))])
        return type(self)(*map(torch.cat, parts)), number

    def moved(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Map the scores of values by an increasing function."""
        return self._replace(low=change(self.low), high=change(self.high))

    def scores(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        """Map cells (n,) to the least and the largest score, equal for a point.

        A cell between two values that leave no scores between them counts as the nearer
        one, and a cell beyond all values as the last one.
        """
        last = len(self.values) - 1
        after = torch.searchsorted(self.values, cells.contiguous()).clamp(max=last)
        before = (after - 1).clamp(min=0)
        width = self.values[after] - self.values[before]
        is_before = (cells - self.values[before]) / width <= 0.5  # NaN is not
        nearest = torch.where(is_before, before, after)
        ends = self.low[nearest], self.high[nearest]
        return tuple(self._between(before, cells, end) for end in ends)

    def limits(self, low: Tensor, high: Tensor) -> Limits:
        """Map limits of cells (n,), which may be infinite, to those of scores."""
        last = len(self.values) - 1
        after = torch.searchsorted(self.values, low.contiguous()).clamp(max=last)
        before = torch.searchsorted(self.values, high.contiguous(), right=True) - 1
        before = before.clamp(min=0)
        least = self._between((after - 1).clamp(min=0), low, self.low[after])
        most = self._between(before, high, self.high[before])
        least = least.where(low > self.values[0], -torch.inf)
        most = most.where(high < self.values[-1], torch.inf)
        return least, torch.maximum(most, least + _NARROWEST)

    def _between(self, place: Tensor, cells: Tensor, otherwise: Tensor) -> Tensor:
        """Interpolate scores after some values; otherwise where there are none."""
        after = (place + 1).clamp(max=len(self.values) - 1)
        gap = self.low[after] - self.high[place]
        width = self.values[after] - self.values[place]
        share = (cells - self.values[place]) / width
        inside = (share > 0) & (share < 1) & (gap > 0)
        return torch.where(inside, self.high[place] + share * gap, otherwise)

    def cells(self, scores: Tensor) -> Tensor:
        """Map scores (*batch) to cells."""
        place = torch.searchsorted(self.low, scores.contiguous(), right=True) - 1
        place = place.clamp(min=0)
        after = (place + 1).clamp(max=len(self.values) - 1)
        gap = self.low[after] - self.high[place]
        between = (scores > self.high[place]) & (gap > 0)
        share = ((scores - self.high[place]) / gap).where(between, 0.0)
        return self.values[place] + share * (self.values[after] - self.values[place])

    def log_slopes(self, cells: Tensor) -> Tensor:
        """Compute the log-derivatives of points by cells (n,), 0 for intervals.

        The slope at a value is that between its neighbours in the square root of the
        number of values, or nearer ones if these are more than half a score away.  An
        interval without a bound counts as its other end.
        """
        start = torch.where(self.low.isinf(), self.high, self.low)
        end = torch.where(self.high.isinf(), self.low, self.high)
        middle = (start + end) / 2
        # differences over few values are mostly noise, over many not local
        reach = max(1, round(len(self.values) ** 0.5))
        last = len(self.values) - 1
        place = torch.searchsorted(self.values, cells.contiguous()).clamp(max=last)
        # nor over many of a tail, where they are `_STEP` apart
        least = torch.searchsorted(middle, middle[place] - _STEP).minimum(place - 1)
        most = torch.searchsorted(middle, middle[place] + _STEP, right=True) - 1
        before = torch.maximum(place - reach, least).clamp(min=0)
        after = torch.minimum(place + reach, most.maximum(place + 1)).clamp(max=last)
        rise, run = (part[after] - part[before] for part in (middle, self.values))
        low, high = self.scores(cells)
        return (rise / run).log().where(low == high, 0.0)

    def probabilities(self, mean: Tensor, deviation: float) -> Tensor:
        """Compute P(value) of scores N(mean, deviation**2); (*batch, n_values)."""
        edges = (self.low[1:] - mean[..., None]) / deviation
        inner = normal_cdf(edges)
        total = inner.new_ones(*inner.shape[:-1], 1)
        return torch.cat([inner, total], -1).diff(dim=-1, prepend=0 * total)


class Bounds(NamedTuple):
    """Bounds of the latent variables of rows, which their observed cells set."""

    # (latents, n), bounds of the scores; equal where the score is known, infinite where
    # nothing is known, and for the latents of nominal columns
    low: Tensor
    high: Tensor
    levels: Tensor  # int (n_nominal, n), levels of the nominal columns; -1 if missing
    # bool (latents, n), whether the cell of a number or an ordinal column is missing
    missing: Tensor


def at_least(least: float, values: Tensor) -> Tensor:
    """Move positive values that would be rounded to zero to the first place of a grid.

    They still increase, and those of the cells, which are on the grid, do not move.
    """
    return values.where(values >= least, 0.6 * least + 0.4 * values)


class Latents(NamedTuple):
    """The columns of a mixed table in terms of latent variables."""

    marginals: list[Marginal | None]  # one for each column; None for nominal columns
    first: list[int]  # int, the first latent variable of each column
    # int, number of latent variables of each column: 1, or the number of nominal levels
    # if there are more than two; 0 of columns that are not modelled
    n_levels: list[int]

    @classmethod
    def of(
        cls,
        data: Incomplete,
        weights: Tensor,  # (n,)
        kinds: list[str],  # NUMERIC, ORDINAL or NOMINAL, for each column
        n_levels: list[int],
        fixed: dict[int, Marginal] | None = None,
    ) -> Self:
        """Estimate the marginals of the columns from their observed cells.

        `data`: numbers; levels of ordinal and nominal columns are 0, 1, ...;
        `n_levels`, int: number of levels of each column of categories; ignored for
        numbers; `fixed`: marginals of columns of numbers that are not estimated.
        """
        marginals, sizes, fixed = [], [], fixed or {}
        for j, kind in enumerate(kinds):
            size, marginal, observed = 1, None, data.observed[:, j]
            cells, weight = data.x[observed, j], weights[observed]
            if kind == NOMINAL and n_levels[j] != 2:
                size = n_levels[j]
            elif kind != NUMERIC:
                marginal = Marginal.of_levels(cells, weight, n_levels[j])
            else:
                marginal = fixed.get(j) or Marginal.of(cells, weight)
            marginals.append(marginal)
            sizes.append(size)
        return cls.in_turn(marginals, sizes)

    @classmethod
    def in_turn(cls, marginals: list[Marginal | None], n_levels: list[int]) -> Self:
        """Let latent variables follow one another, as their columns do."""
        return cls(marginals, [*accumulate([0, *n_levels])][:-1], n_levels)

    def opened(
        self,
        data: Incomplete,
        kinds: list[str],
        fixed: Collection[int] = (),
        signs: Sequence[tuple[float, float]] | None = None,
    ) -> Self:
        """Let numbers go on beyond the observed ones, but for codes.

        `data`: the rows that the marginals are of, or a sample of them; `fixed`:
        columns that remain as they are; `signs`: of all cells, or 0, and the
        smallest sizes of cells.
        """
        marginals = list(self.marginals)
        signs = [(0.0, 0.0)] * len(marginals) if signs is None else signs
        for j, marginal in enumerate(marginals):
            cells = data.x[data.observed[:, j], j].contiguous()
            if (
                kinds[j] != NUMERIC
                or j in fixed
                or are_codes(len(marginal.values), len(cells))
            ):
                continue
            places = torch.searchsorted(marginal.values, cells)
            number = torch.bincount(places, minlength=len(marginal.values))
            marginals[j] = marginal.opened(number, (0, 1), *signs[j])
        return self._replace(marginals=marginals)

    @property
    def size(self) -> int:
        """The number of latent variables."""
        return sum(self.n_levels)

    @property
    def nominal(self) -> list[tuple[int, slice]]:
        """The nominal columns, with their latent variables."""
        return [
            (j, slice(start, start + size))
            for j, (start, size, marginal) in enumerate(
                zip(self.first, self.n_levels, self.marginals, strict=True)
            )
            if marginal is None and size
        ]

    @property
    def ordered(self) -> list[tuple[int, int, Marginal]]:
        """The other columns, with their latent variable and marginal."""
        return [
            (j, start, marginal)
            for j, (start, marginal) in enumerate(
                zip(self.first, self.marginals, strict=True)
            )
            if marginal is not None
        ]

    def bounds(self, data: Incomplete, limits: Limits = ()) -> Bounds:
        """Compute the bounds that observed cells set for the latent variables.

        `limits` (n, features): least and largest values of missing cells of numbers;
        infinite where nothing is known.
        """
        n = len(data.x)
        low = data.x.new_full((self.size, n), -torch.inf)
        levels = torch.full((len(self.nominal), n), -1)
        high, missing = -low, torch.zeros(low.shape, dtype=torch.bool)
        for j, latent, marginal in self.ordered:
            observed = data.observed[:, j]
            low[latent, observed], high[latent, observed] = marginal.scores(
                data.x[observed, j]
            )
            missing[latent] = ~observed
            if limits:
                ends = [end[~observed, j] for end in limits]
                low[latent, ~observed], high[latent, ~observed] = marginal.limits(*ends)
        for place, (j, _) in enumerate(self.nominal):
            levels[place] = data.x[:, j].long().where(data.observed[:, j], -1)
        return Bounds(low, high, levels, missing)
