"""Cells of a row, independent given its latents, with a family for each column.

    normal      x_j ~ N(loc_j, scale_j^2)
    student     (x_j - loc_j) / scale_j ~ t with 4 degrees of freedom                (1)
    bernoulli   P(x_j is the larger of the column's two values) = sigmoid(loc_j)
    rounded     x_j is the nearest of the column's values to N(loc_j, scale_j^2)     (2)
    continuous-bernoulli    density proportional to exp(loc_j u_j), where u_j is the
                            place of x_j between the ends 0 and 1 of the column
    ordinal, nominal        levels 0, 1, ...; see `skvnce._core.distributions.cells`

Rounded columns are those with repeated values: counts, grades, records of few digits,
amounts that are mostly zero.  A density would give unbounded rewards for narrow peaks
at these values; their probabilities are at most 1.  The intervals of the smallest and
the largest value are symmetric around them, and the normal extends beyond: the
probabilities sum to less than 1.

Shaw (2006), Sampling Student's t distribution - use of the inverse cumulative
distribution function, eq. (36), for the quantiles of (1); Heitjan and Rubin (1991),
Ignorability and coarse data, for (2).
"""

from collections.abc import Sequence
from math import log, pi, sqrt
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, StudentT
from torch.nn.functional import logsigmoid, pad

from skvnce._core.distributions import families as unit
from skvnce._core.distributions.truncated_normal import (
    FARTHEST,
    UNDERFLOW,
    BoundedNormal,
    log_interval,
)
from skvnce._core.random import pick, place

# ----------------------------------------
# Cells of categories: probabilities of levels 0, 1, ... given outputs of a model.
#
#     ordinal     P(x_j = k) = P(e_k < v < e_k+1) of v ~ N(loc_j, scale_j^2)
#     nominal     P(x_j = k) = exp(loc_jk) / sum_l exp(loc_jl)
#
# An ordinal column has one output and thresholds e that are not trained, a nominal
# column an output for each level.  The first output of column j is output j; the
# others of nominal columns follow those of all columns.  A family has the methods of
# `Levels`, and `Cells` needs no more.
#
# McCullagh (1980), Regression models for ordinal data, with a normal distribution.

_GUMBEL = 6**0.5 / pi  # scale of Gumbel variables of unit variance
_FAR = 1e3  # threshold that stands for an infinite one, whose gradient is no number


class Levels(Protocol):
    """A family of columns of levels."""

    columns: Tensor  # int (n,): indices of the columns
    n_levels: Tensor  # int (n,)
    n_more: int  # number of outputs besides the first ones of the columns

    def log_prob(self, code: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute log-probabilities of levels (*batch, n) from all outputs."""
        ...

    def icdf(self, uniform: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute quantiles, the levels as numbers; (*sample, *batch, n)."""
        ...

    def probabilities(self, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute probabilities, 0 of levels that a column lacks; (*batch, n, K)."""
        ...

    def scaled(self, linear: tuple[Tensor, ...], deviation: Tensor) -> None:
        """Convert parameters of latent normal variables to those of outputs, in place.

        The largest of the latent variables of a nominal column names its level, and an
        interval that of an ordinal column.  The deviation is given the latents.
        """
        ...


class Ordinal(NamedTuple):
    """Levels in their order: intervals of a normal variable."""

    columns: Tensor  # int (n,)
    n_levels: Tensor  # int (n,)
    # (n, K + 1): increasing thresholds; the last is repeated if a column has fewer
    # levels
    edges: Tensor
    n_more: int = 0

    @classmethod
    def of(cls, columns: list[int], thresholds: list[Tensor]) -> "Ordinal":
        """Make the family from increasing thresholds (n_levels - 1,) of each column."""
        widest = max(map(len, thresholds))
        edges = [pad(t, (0, widest + 1 - len(t)), value=_FAR) for t in thresholds]
        return cls(
            torch.tensor(columns),
            torch.tensor([len(t) + 1 for t in thresholds]),
            pad(torch.stack(edges), (1, 0), value=-_FAR),
        )

    def log_prob(self, code: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute log-probabilities; see `Levels`."""
        level = _level_of(code, self.n_levels)
        ends = (pick(self.edges, level + k).to(loc) for k in (0, 1))
        loc, scale = loc[..., self.columns], scale[..., self.columns]
        return log_interval(*((end - loc) / scale for end in ends))

    def icdf(self, uniform: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute quantiles; see `Levels`."""
        score = torch.special.ndtri(uniform) * scale[..., self.columns]
        score = score + loc[..., self.columns]
        level = place(self.edges[:, 1:-1].to(score), score)
        return level.minimum(self.n_levels - 1).to(score)

    def probabilities(self, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute probabilities; see `Levels`."""
        edges = self.edges.to(loc) - loc[..., self.columns, None]
        ends = edges / scale[..., self.columns, None]
        masses = log_interval(ends[..., :-1], ends[..., 1:]).exp()
        return masses.where(_present(self.n_levels, masses.shape[-1]), 0.0)

    def scaled(self, linear: tuple[Tensor, ...], deviation: Tensor) -> None:
        """Leave the parameters as they are; see `Levels`."""


class Nominal(NamedTuple):
    """Levels without an order: the outputs are their logits."""

    columns: Tensor  # int (n,)
    n_levels: Tensor  # int (n,)
    # int (n, K): the outputs of each column; the last is repeated if it has fewer
    # levels
    outputs: Tensor
    n_more: int

    @classmethod
    def of(cls, columns: list[int], n_levels: list[int], n_columns: int) -> "Nominal":
        """Make the family of some of all columns from their numbers of levels."""
        outputs, start = [], n_columns
        for column, size in zip(columns, n_levels, strict=True):
            outputs_of_column = [column, *range(start, start + size - 1)]
            outputs.append(
                outputs_of_column + outputs_of_column[-1:] * (max(n_levels) - size)
            )
            start += size - 1
        tables = map(torch.tensor, (columns, n_levels, outputs))
        return cls(*tables, start - n_columns)

    def log_probabilities(self, loc: Tensor) -> Tensor:
        """Compute log-probabilities of all levels; (*batch, n, K)."""
        present = _present(self.n_levels, self.outputs.shape[1])
        return loc[..., self.outputs].where(present, -torch.inf).log_softmax(-1)

    def log_prob(self, code: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute log-probabilities; see `Levels`."""
        return _at_levels(self.log_probabilities(loc), code, self.n_levels)

    def icdf(self, uniform: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute quantiles; see `Levels`."""
        return _level_at(self.probabilities(loc, scale), uniform, self.n_levels).to(loc)

    def probabilities(self, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute probabilities; see `Levels`."""
        return self.log_probabilities(loc).exp()

    def scaled(self, linear: tuple[Tensor, ...], deviation: Tensor) -> None:
        """Divide by the scale of Gumbel variables of the same mean variance.

        Their largest sum with the logits has the probabilities of the softmax
        function.
        """
        for row, size in zip(self.outputs, self.n_levels.tolist(), strict=True):
            place = row[:size]
            scale = deviation[place].square().mean().sqrt() * _GUMBEL
            for part in linear:
                # probabilities depend on differences of logits only
                part[place] = (part[place] - part[place].mean(0)) / scale


def _level_of(code: Tensor, n_levels: Tensor) -> Tensor:
    # cells under a mask may hold any number
    return code.round().long().clamp(min=0).minimum(n_levels - 1)


def _at_levels(table: Tensor, code: Tensor, n_levels: Tensor) -> Tensor:
    """Look codes (*batch) of levels up in a table (*batch, n_levels)."""
    level = _level_of(code, n_levels)
    shape = torch.broadcast_shapes(level.shape, table.shape[:-1])
    return table.expand(*shape, -1).gather(-1, level.expand(shape)[..., None])[..., 0]


def _level_at(probabilities: Tensor, uniform: Tensor, n_levels: Tensor) -> Tensor:
    """Return the quantile of levels with probabilities (*batch, n_levels)."""
    level = (uniform[..., None] > probabilities.cumsum(-1)).sum(-1)
    # rounding may leave the sum of all probabilities below a uniform number
    return level.minimum(n_levels - 1)


def _present(n_levels: Tensor, widest: int) -> Tensor:
    """Return which levels columns have; (n, widest)."""
    return torch.arange(widest) < n_levels[:, None]


# ----------------------------------------
# Cells that are numbers or levels, and means over them that are differentiable.
#
# A mean over a level x is a sum over all of its K levels,
#
#     E_q f(x) = sum_k q_k f(k)                                                      (1)
#
# which is exact, and so is its gradient in q and f.  With many levels the n - 1 most
# probable ones are summed, T, and one draw represents the others (sum and sample),
#
#     E_q f(x) = sum_(k in T) q_k f(k) + r E f(l),   l ~ q_l / r,                    (2)
#
# where r is the probability of the others.  In eq. (2) the weight of the draw is ``r
# q_l / s(q_l)``, with s the identity without a gradient: its value is r, and its
# gradient makes that of eq. (2) in q unbiased.
#
# Liu, Regier, Tripuraneni, Jordan and McAuliffe (2019), Rao-Blackwellized stochastic
# gradients for discrete distributions.


class Candidates(NamedTuple):
    """Weighted values of cells, which represent means over a distribution."""

    values: Tensor  # (*batch, n_candidates): values of weight 0 are arbitrary
    weights: Tensor  # (*batch, n_candidates)
    entropy: Tensor  # (*batch,): of the distribution, or an unbiased estimate


def entropy(q: Distribution, drawn: Tensor) -> Tensor:
    """Compute the entropy, in closed form, or else by -log q at a draw of q."""
    try:
        return q.entropy()
    except NotImplementedError:
        return -q.log_prob(drawn)


def drawn_once(q: Distribution) -> Candidates:
    """Represent a distribution by one draw, which has a gradient."""
    drawn = q.rsample()
    weight = torch.ones_like(drawn).unsqueeze(-1)
    return Candidates(drawn.unsqueeze(-1), weight, entropy(q, drawn))


class NumberOrLevel(Distribution):
    """Cells that each have a distribution of numbers, or probabilities of levels.

    `number` is used where `n_levels` (int (*batch,)) is 0. `logits` (*batch,
    most_levels): those beyond `n_levels` are not used.
    """

    arg_constraints: dict = {}

    def __init__(self, number: Distribution, logits: Tensor, n_levels: Tensor) -> None:
        self.number, self.n_levels = number, n_levels
        places = torch.arange(logits.shape[-1])
        # numbers have one "level", because the softmax of none is NaN
        self._present = places < n_levels.clamp(min=1).unsqueeze(-1)
        logits = logits.where(self._present, -torch.inf)
        self.log_probabilities = logits.log_softmax(-1)
        super().__init__(n_levels.shape, validate_args=False)

    @property
    def is_level(self) -> Tensor:
        """Which cells are levels; (*batch,)."""
        return self.n_levels > 0

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log-densities of numbers, log-probabilities of levels."""
        # numbers are looked up, too, where their result is not used
        level = _at_levels(self.log_probabilities, value, self.n_levels.clamp(min=1))
        return level.where(self.is_level, self.number.log_prob(value))

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles, levels as numbers; (*sample, *batch)."""
        n_levels = self.n_levels.clamp(min=1)
        level = _level_at(self.log_probabilities.exp(), value, n_levels).to(value)
        return level.where(self.is_level, self.number.icdf(value))

    def candidates(self, most: int) -> Candidates:
        """Represent means by a number, or by up to `most` levels, eq. (2)."""
        number = drawn_once(self.number)
        probabilities = self.log_probabilities.exp()
        codes, weights = _levels(probabilities, most)
        # 0 times -inf would be NaN
        inside = self.log_probabilities.where(self._present, 0.0)
        uncertainty = -(probabilities * inside).sum(-1)
        first = torch.eye(codes.shape[-1])[0].to(weights)
        level = self.is_level.unsqueeze(-1)
        return Candidates(
            codes.to(weights).where(level, number.values),
            weights.where(level, first),
            uncertainty.where(self.is_level, number.entropy),
        )


def _levels(probabilities: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Choose levels, and their weights in eq. (1) or (2); (*batch, n_chosen)."""
    n_levels = probabilities.shape[-1]
    if n_levels <= most:
        return torch.arange(n_levels).expand(probabilities.shape), probabilities
    fixed = probabilities.detach()
    top = fixed.topk(most - 1).indices
    others = fixed.scatter(-1, top, 0.0)
    rest = others.sum(-1, keepdim=True)
    tiny = torch.finfo(fixed.dtype).tiny
    # torch rejects rows in which all weights are zero
    drawn = torch.multinomial((others + tiny).flatten(0, -2), 1)
    drawn = drawn.view(*rest.shape)
    codes = torch.cat([top, drawn], -1)
    chosen = probabilities.gather(-1, codes)
    share = rest / fixed.gather(-1, drawn).clamp(min=tiny)
    factors = torch.ones_like(chosen.detach())
    factors[..., -1:] = share.where(rest > 0, 0.0)
    return codes, chosen * factors


# ----------------------------------------
# Sums of log-densities of observed cells, normal or rounded, with their gradients.
#
# A rounded cell is an interval of half-width h around c, both in units of the scale
# and c relative to loc.  With p = |c| - h, q = |c| + h, phi the standard normal
# density and Q its upper tail, it contributes
#
#     log P = log(Q(p) - Q(q))                                                       (1)
#     d log P / d loc = sign(c) (phi(p) - phi(q)) / (P scale)                        (2)
#     d log P / d log scale = (p phi(p) - q phi(q)) / P                              (3)
#
# and a normal cell log phi(c) - log scale.  An interval of infinite width contributes
# nothing, so that missing cells need no mask.  One function of autograd is much
# faster than a graph of thirty, because the tables of a batch are small.

_CONSTANT = log(2 * pi) / 2
# not infinite, because differences and products with 0 would be NaN
_EVERYTHING = 1e6  # half-width of an interval of probability 1
# exp(-t^2 / 2) is there 6e-171 (float64) or 1e-20 (float32), far from underflow
_NEGLIGIBLE = 0.8  # share of the range of `UNDERFLOW` beyond which a tail is 0


class Centred(NamedTuple):
    """Cells of rows, some of which are observed."""

    # (*rows, features): of the interval, or the value of a normal cell; 0 where missing
    middle: Tensor
    # (*rows, features): half of the width of the interval, "infinite" for normal and
    # missing cells; None if no column is rounded
    half: Tensor | None
    # (*rows, features): 1 for observed normal cells, else 0; None if no column is
    # normal
    normal: Tensor | None

    def take(self, rows: Tensor | slice) -> Self:
        """Return the given rows."""
        if isinstance(rows, slice):
            return type(self)(*(part if part is None else part[rows] for part in self))
        return type(self)(
            *(part if part is None else part.index_select(0, rows) for part in self)
        )


class Intervals(NamedTuple):
    """What is known of the cells of rows."""

    # (*rows, features): ends of the intervals of rounded cells; both are the value of a
    # normal cell
    low: Tensor
    high: Tensor  # (*rows, features)
    rounded: Tensor  # bool (features,): which columns are rounded
    n_rounded: int

    def take(self, rows: Tensor | slice) -> Self:
        """Return the given rows."""
        return self._replace(low=self.low[rows], high=self.high[rows])

    def centred(self, observed: Tensor) -> Centred:
        """Leave out missing cells; `observed` broadcasts to (*rows, features)."""
        middle, half, normal = (self.low + self.high) / 2, None, None
        if self.n_rounded:
            at_rounded = observed & self.rounded
            half = ((self.high - self.low) / 2).where(at_rounded, _EVERYTHING)
        if self.n_rounded < self.low.shape[-1]:
            normal = (observed & ~self.rounded).to(middle)
        return Centred(middle.where(observed, 0.0), half, normal)


def observed_sum(
    loc: Tensor, scale: Tensor, cells: Intervals, observed: Tensor
) -> Tensor:  # (*batch,): its gradients in loc and scale cannot be differentiated again
    """Sum log-densities of observed cells, which broadcast to the batch."""
    centred = cells.centred(observed)
    if torch.is_grad_enabled() and (loc.requires_grad or scale.requires_grad):
        return _ObservedSum.apply(loc, scale, centred)
    return log_probs(loc, scale.log(), centred).sum(-1)


class _ObservedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        loc: Tensor,
        scale: Tensor,
        cells: Centred,
    ) -> Tensor:
        total, by_loc, by_log_scale = sum_and_slopes(loc, scale.log(), cells)
        ctx.save_for_backward(by_loc, by_log_scale / scale)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        slopes = (slope * gradient.unsqueeze(-1) for slope in ctx.saved_tensors)
        return *slopes, None


def sum_and_slopes(
    loc: Tensor, log_scale: Tensor, cells: Centred
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum log-densities of observed cells, with derivatives by eqs. (2) and (3)."""
    c, h, inverse = _standardised(loc, log_scale, cells)
    parts = []
    if h is not None:
        parts.append(_rounded(c, h))
    if cells.normal is not None:
        square = c.square()
        log_prob = _log_normal(square, log_scale, cells.normal)
        square.sub_(1).mul_(cells.normal)
        parts.append((log_prob, c.mul_(cells.normal), square))
    log_prob, by_loc, by_log_scale = map(_added, zip(*parts, strict=True))
    return log_prob.sum(-1), by_loc.mul_(inverse), by_log_scale


def log_probs(loc: Tensor, log_scale: Tensor, cells: Centred) -> Tensor:
    """Compute the log-density of each observed cell, and 0 for the others."""
    c, h, _ = _standardised(loc, log_scale, cells)
    parts = []
    if h is not None:
        ends, far = _ends(c, h)
        logs = _twice_between(ends).log_().sub_(log(2))
        if far is not None:
            logs[far] = _rounded_far(c[far], h[far])[0]
        parts.append(logs)
    if cells.normal is not None:
        parts.append(_log_normal(c.square(), log_scale, cells.normal))
    return _added(parts)


def _added(parts: Sequence[Tensor]) -> Tensor:
    """Add tensors, in place."""
    total, *others = parts
    for other in others:
        total.add_(other)
    return total


def _standardised(
    loc: Tensor, log_scale: Tensor, cells: Centred
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Compute c and h, and the inverse of the scale."""
    inverse = torch.exp(-log_scale)
    c = (cells.middle - loc).mul_(inverse)
    return c, None if cells.half is None else cells.half * inverse, inverse


def _log_normal(square: Tensor, log_scale: Tensor, where: Tensor) -> Tensor:
    """Compute the log-densities of normal cells, given squares of c."""
    half = torch.add(log_scale, square, alpha=0.5)
    return half.add_(_CONSTANT).mul_(where).neg_()


def _ends(c: Tensor, h: Tensor) -> tuple[Tensor, Tensor | None]:
    """Compute p and q, bounded, and where the bounds are too close, if anywhere."""
    last, apart = -UNDERFLOW[c.dtype], c.abs()
    ends, far = torch.stack([apart - h, apart.add_(h)]), None
    if ends.numel() and ends[0].max() > last:
        far = ends[0] > last
    return ends.clamp_(_NEGLIGIBLE * -last, last + 1), far  # underflow is slow


def _twice_between(ends: Tensor) -> Tensor:
    """Compute 2 P."""
    above, below = torch.erfc(ends * sqrt(0.5)).unbind()
    least = torch.finfo(ends.dtype).eps
    # an interval that is narrower than the rounding has a positive probability
    return torch.maximum(below.neg_().add_(above), above.mul_(least))


def _rounded(c: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute eq. (1), scale times eq. (2), and eq. (3)."""
    ends, far = _ends(c, h)
    twice = _twice_between(ends)
    at = ends.square().mul_(-0.5).exp_().mul_(sqrt(2 / pi)).div_(twice)  # phi / P
    by_loc = c.sign().mul_(at[0] - at[1])
    by_log_scale = torch.sub(*ends.mul_(at).unbind())
    results = twice.log_().sub_(log(2)), by_loc, by_log_scale
    if far is not None:
        for whole, part in zip(results, _rounded_far(c[far], h[far]), strict=True):
            whole[far] = part
    return results


def _rounded_far(c: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the same where probabilities underflow; constant beyond FARTHEST."""
    p, q = c.abs() - h, c.abs() + h
    log_prob = log_interval(-q, -p)
    at_p, at_q = (
        (t.square() / -2 - _CONSTANT - log_prob).exp().where(t <= FARTHEST, 0.0)
        for t in (p, q)
    )
    return log_prob, c.sign() * (at_p - at_q), p * at_p - q * at_q


# the quantiles of t with 4 degrees of freedom have a closed form
_DEGREES = 4.0


class Families(NamedTuple):
    """The columns that are not normal, and their values."""

    student: Tensor  # indices of the columns
    bernoulli: Tensor
    rounded: Tensor
    pairs: Tensor  # (n_bernoulli, 2): the smaller and the larger value
    # (n_rounded, n_values): increasing; the last is repeated if a column has fewer
    values: Tensor
    # (n_rounded, n_values + 1): between the values and around them; the last is
    # repeated likewise
    edges: Tensor
    # indices of the continuous Bernoulli columns
    unit: Tensor = torch.zeros(0, dtype=torch.long)
    # (n_unit, 2): the numbers that stand for 0 and 1
    ends: Tensor = torch.zeros(0, 2, dtype=torch.float64)
    levels: tuple[Levels, ...] = ()  # the families of columns of categories

    def on(self, device: torch.device) -> Self:
        """Return the tables on a device; columns of categories are on the CPU only."""
        if self.student.device == device:
            return self
        if self.levels:
            raise NotImplementedError("Categories are trained on the CPU only.")
        return type(self)(
            *(part.to(device) if isinstance(part, Tensor) else part for part in self)
        )

    def n_columns(self, n_outputs: int) -> int:
        """Return the number of columns of a model with some number of outputs."""
        return n_outputs - sum(family.n_more for family in self.levels)

    def places(self, x: Tensor) -> Tensor:
        """Return which value is nearest; rounded columns (*batch, n_rounded)."""
        last = self.edges[:, -1:]  # the value of the padding
        inner = self.edges[:, 1:-1].where(self.edges[:, 1:-1] < last, torch.inf)
        return place(inner.to(x), x)

    def dequantised(self, x: Tensor, uniform: Tensor) -> Tensor:
        """Map cells of rounded columns to levels between the edges of their values."""
        if not len(self.rounded):
            return x
        low, high = self._ends(x[..., self.rounded])
        level = low + (high - low) * uniform[..., self.rounded]
        return x.index_copy(-1, self.rounded, level.to(x))

    def intervals(self, x: Tensor) -> Intervals | None:
        """Return the intervals of cells; None if none is normal or rounded."""
        at = self.rounded
        if any(map(len, (self.student, self.bernoulli, self.unit, self.levels))):
            return None
        kind = torch.zeros(x.shape[-1], dtype=torch.bool, device=x.device)
        if not len(at):
            return Intervals(x, x, kind, 0)
        low, high = (end.to(x) for end in self._ends(x[..., at]))
        if len(at) < len(kind):  # else all columns, in their order
            low, high = (x.index_copy(-1, at, end) for end in (low, high))
        return Intervals(low, high, kind.index_fill(0, at, True), len(at))

    def log_width(self, x: Tensor, observed: Tensor) -> Tensor:
        """Sum logs of the distances of these edges over observed cells; (*batch,)."""
        if not len(self.rounded):
            return torch.zeros_like(x[..., 0])
        low, high = self._ends(x[..., self.rounded])
        at_rounded = observed[..., self.rounded]
        return (high - low).log().where(at_rounded, 0.0).sum(-1)

    def _ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        places = self.places(x)
        return pick(self.edges, places), pick(self.edges, places + 1)

    def level_blocks(self) -> dict[int, slice]:
        """Return where `Cells.level_probabilities` has those of each column."""
        blocks, start = {}, 0
        for family in self.levels:
            widest = int(family.n_levels.max())
            for column, size in zip(family.columns, family.n_levels, strict=True):
                blocks[int(column)] = slice(start, start + int(size))
                start += widest
        return blocks

    def nearest(self, x: Tensor) -> Tensor:
        """Round the rounded columns (*batch, n_rounded) to their values."""
        return pick(self.values, self.places(x)).to(x)


class Cells(Distribution):
    """Independent cells of batch shape (*batch, features).

    `outputs` (*batch, n_outputs): one for each column (`loc`, `scale`), then the
    further ones of nominal columns.
    """

    arg_constraints: dict = {}

    def __init__(self, loc: Tensor, scale: Tensor, families: Families) -> None:
        self.outputs, self.families = (loc, scale), families
        width = families.n_columns(loc.shape[-1])
        self.loc, self.scale = loc[..., :width], scale[..., :width]
        self._intervals: Intervals | None = None
        super().__init__(self.loc.shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log-densities, or log-probabilities of discrete columns."""
        families, loc, scale = self.families, self.loc, self.scale
        if len(families.rounded) == loc.shape[-1]:  # in their order
            return self._log_rounded(value, slice(None))
        logs = Normal(loc, scale, validate_args=False).log_prob(value)
        if len(families.student):
            at = families.student
            q = StudentT(_DEGREES, loc[..., at], scale[..., at], validate_args=False)
            logs = logs.index_copy(-1, at, q.log_prob(value[..., at]))
        if len(families.bernoulli):
            at = families.bernoulli
            larger = value[..., at] > families.pairs.mean(-1)
            sign = torch.where(larger, 1.0, -1.0).to(loc)
            logs = logs.index_copy(-1, at, logsigmoid(sign * loc[..., at]))
        if len(families.rounded):
            at = families.rounded
            logs = logs.index_copy(-1, at, self._log_rounded(value, at))
        if len(families.unit):
            at = families.unit
            low, width = self._span(value)
            inside = unit.log_prob((value[..., at] - low) / width, loc[..., at])
            logs = logs.index_copy(-1, at, inside - width.log())
        for levels in families.levels:
            at = levels.columns
            inside = levels.log_prob(value[..., at], *self.outputs)
            logs = logs.index_copy(-1, at, inside)
        return logs

    def take(self, index: Tensor) -> "Cells":
        """Return the cells at indices (k, *batch) of the first dimension."""
        where = index[..., None]
        outputs = (
            part.gather(0, where.expand(*index.shape, part.shape[-1]))
            for part in self.outputs
        )
        return Cells(*outputs, self.families)

    def with_intervals(self, cells: Intervals | None) -> "Cells":
        """Store the intervals of the rows that `sum_observed` will be called with."""
        self._intervals = cells
        return self

    def sum_observed(self, x: Tensor, observed: Tensor) -> Tensor:
        """Sum log-densities over observed cells; (*batch,). Others may be NaN."""
        cells = self._intervals
        # `observed_sum` has no gradient in x, and subclasses have other densities
        if cells is None and type(self) is Cells and not x.requires_grad:
            cells = self.families.intervals(x.where(observed, 0.0))
        if cells is None:
            # under the mask there may be NaN, which would reach the gradient
            inside = self.log_prob(x.where(observed, 1.0))
            return inside.where(observed, 0.0).sum(-1)
        return observed_sum(self.loc, self.scale, cells, observed)

    def _log_rounded(self, value: Tensor, at: Tensor | slice) -> Tensor:
        """Compute log-probabilities of the cells of rounded columns, eq. (2)."""
        edges, loc, scale = self.families.edges, self.loc[..., at], self.scale[..., at]
        place = self.families.places(value[..., at])
        ends = (pick(edges, place + k).to(value) for k in (0, 1))
        return log_interval(*((end - loc) / scale for end in ends))

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles; (*sample, *batch, features)."""
        families, loc, scale = self.families, self.loc, self.scale
        points = Normal(loc, scale, validate_args=False).icdf(value)
        if len(families.student):
            at = families.student
            t = loc[..., at] + scale[..., at] * student_quantile(value[..., at])
            points = points.index_copy(-1, at, t)
        if len(families.bernoulli):
            at = families.bernoulli
            larger = value[..., at] > torch.sigmoid(-loc[..., at])
            pair_values = torch.where(
                larger, families.pairs[:, 1], families.pairs[:, 0]
            )
            points = points.index_copy(-1, at, pair_values.to(points))
        if len(families.rounded):
            at = families.rounded
            points = points.index_copy(-1, at, families.nearest(points[..., at]))
        if len(families.unit):
            at = families.unit
            low, width = self._span(value)
            level = low + width * unit.quantile(value[..., at], loc[..., at])
            points = points.index_copy(-1, at, level)
        for levels in families.levels:
            at = levels.columns
            code = levels.icdf(value[..., at], *self.outputs)
            codes = code.expand(*points.shape[:-1], len(at))
            points = points.index_copy(-1, at, codes)
        return points

    @property
    def level_probabilities(self) -> Tensor:
        """Probabilities of levels, column after column; (*batch, n_probabilities)."""
        tables = [
            levels.probabilities(*self.outputs) for levels in self.families.levels
        ]
        empty = self.loc[..., :0]
        return torch.cat([empty, *(table.flatten(-2) for table in tables)], -1)

    def _span(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower ends and the widths of continuous Bernoulli columns."""
        low, high = self.families.ends.to(like).unbind(-1)
        return low, high - low


class ScoredCells(Cells):
    """Cells whose missing ones are the numbers before rounding, eq. (2).

    Missing cells of rounded columns are then normal, with a differentiable density
    and reparametrised draws. Integrated over them, the density is that of `Cells`
    at the observed cells.
    """

    def __init__(self, cells: Cells, observed: Tensor) -> None:
        self.observed = observed
        super().__init__(*cells.outputs, cells.families)

    def take(self, index: Tensor) -> "ScoredCells":
        """Return the cells at indices (k, *batch) of the first dimension."""
        return ScoredCells(super().take(index), self.observed)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log-densities, or log-probabilities of observed discrete cells."""
        logs, at = super().log_prob(value), self.families.rounded
        if not len(at):
            return logs
        loc, scale = self.loc[..., at], self.scale[..., at]
        score = Normal(loc, scale, validate_args=False).log_prob(value[..., at])
        rounded = logs[..., at].where(self.observed[..., at], score)
        return logs.index_copy(-1, at, rounded)

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles of missing cells; (*sample, *batch, features)."""
        quantiles, at = super().icdf(value), self.families.rounded
        if not len(at):
            return quantiles
        normal = Normal(self.loc, self.scale, validate_args=False).icdf(value)
        return quantiles.index_copy(-1, at, normal[..., at])


def student_cdf(t: Tensor) -> Tensor:
    """Compute the distribution function of t with 4 degrees of freedom."""
    share = t / (4 + t.square()).sqrt()
    # inf / inf is NaN
    share = torch.where(t.isinf(), t.sign(), share)
    return 0.5 + 0.75 * share - 0.25 * share**3


def student_quantile(uniform: Tensor) -> Tensor:
    """Compute quantiles of t with 4 degrees of freedom, eq. (36) of Shaw."""
    # the root is a divisor, and 0 at the levels 0 and 1
    product = (4 * uniform * (1 - uniform)).clamp(min=torch.finfo(uniform.dtype).tiny)
    root = product.sqrt()
    # rounding may leave the domain of the arc cosine
    ratio = torch.cos(torch.acos(root.clamp(max=1.0)) / 3) / root
    return 2 * (uniform - 0.5).sign() * (ratio - 1).clamp(min=0.0).sqrt()


# ----------------------------------------
# Cells of a row that are known to lie within bounds.
#
# A missing cell lies between the bounds of its column with probability
#
#     P(low_j < x_j < high_j | z),                                                   (1)
#
# which contains information about the latents, as an observed cell does.  Given the
# latents, the cell follows its distribution truncated to the bounds.


class BoundedCells(Distribution):
    """Independent cells, normal or Student's t, with bounds in some columns.

    Observed cells have the same density as without bounds, and missing cells the
    logarithm of (1), `log_inside`; see `skvnce._core.models.observed_log_prob`.
    `places`: columns with bounds, none of them binary or rounded. ``low < high``;
    one may be infinite.
    """

    arg_constraints: dict = {}

    def __init__(self, cells: Cells, places: Tensor, low: Tensor, high: Tensor) -> None:
        self.cells, self.places, self.low, self.high = cells, places, low, high
        self._heavy = torch.isin(places, cells.families.student)
        super().__init__(cells.batch_shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log-densities as if there were no bounds."""
        return self.cells.log_prob(value)

    @property
    def log_inside(self) -> Tensor:
        """The logarithm of (1), 0 in columns without bounds; (*batch, features)."""
        a, b = self._standard()
        logs = log_interval(a, b)
        if self._heavy.any():
            low, high = self._levels(a, b)
            # far in a tail the difference may be 0, which has no logarithm
            share = (high - low).clamp(min=torch.finfo(low.dtype).tiny)
            logs = torch.where(self._heavy, share.log(), logs)
        nothing = torch.zeros_like(self.cells.loc)
        return nothing.index_copy(-1, self.places, logs)

    @property
    def level_probabilities(self) -> Tensor:
        """Those of the cells; columns of categories have no bounds."""
        return self.cells.level_probabilities

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles of the truncated distribution; (*sample, *batch, d)."""
        quantiles, at = self.cells.icdf(value), self.places
        loc, scale = self.cells.loc[..., at], self.cells.scale[..., at]
        part = value[..., at]
        normal = BoundedNormal(loc, scale, self.low, self.high, validate_args=False)
        inside = normal.icdf(part)
        if self._heavy.any():
            low, high = self._levels(*self._standard())
            t = loc + scale * student_quantile(low + (high - low) * part)
            # rounding may leave the interval
            inside = torch.where(self._heavy, t.clamp(self.low, self.high), inside)
        return quantiles.index_copy(-1, at, inside)

    def _standard(self) -> tuple[Tensor, Tensor]:
        loc, scale = (p[..., self.places] for p in (self.cells.loc, self.cells.scale))
        return (self.low - loc) / scale, (self.high - loc) / scale

    @staticmethod
    def _levels(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return student_cdf(a), student_cdf(b)
