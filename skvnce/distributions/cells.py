"""Cells of a row, independent given its latents, with a family for each column.

    normal      x_j ~ N(loc_j, scale_j^2)
    student     (x_j - loc_j) / scale_j ~ t with 4 degrees of freedom                (1)
    bernoulli   P(x_j is the larger of the column's two values) = sigmoid(loc_j)
    rounded     x_j is the nearest of the column's values to N(loc_j, scale_j^2)     (2)
    continuous-bernoulli    density proportional to exp(loc_j u_j), where u_j is the
                            place of x_j between the ends 0 and 1 of the column
    ordinal, nominal        levels 0, 1, ...; see `skvnce.distributions.levels`

Rounded columns are those with repeated values: counts, grades, records of few digits,
amounts that are mostly zero.  A density would give unbounded rewards for narrow peaks
at these values; their probabilities are at most 1.  The intervals of the smallest and
the largest value are symmetric around them, and the normal extends beyond: the
probabilities sum to less than 1.

Shaw (2006), Sampling Student's t distribution - use of the inverse cumulative
distribution function, eq. (36), for the quantiles of (1); Heitjan and Rubin (1991),
Ignorability and coarse data, for (2).
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, StudentT
from torch.nn.functional import logsigmoid

from skvnce.distributions import continuous_bernoulli as unit
from skvnce.distributions.bounded_normal import log_interval
from skvnce.distributions.columns import pick, place
from skvnce.distributions.levels import Levels
from skvnce.distributions.observed_sum import Intervals, observed_sum

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
        """Return the tables on a device.

        Raises NotImplementedError for columns of categories, unless they are there.
        """
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
        """Map cells of rounded columns to levels between the edges of their values.

        `x`, `uniform` (*batch, features).
        """
        if not len(self.rounded):
            return x
        low, high = self._ends(x[..., self.rounded])
        level = low + (high - low) * uniform[..., self.rounded]
        return x.index_copy(-1, self.rounded, level.to(x))

    def intervals(self, x: Tensor) -> Intervals | None:
        """Return what is known of cells (*rows, features).

        None if columns are neither normal nor rounded.
        """
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
        seen = observed[..., self.rounded]
        return (high - low).log().where(seen, 0.0).sum(-1)

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

    `outputs` (*batch, n_outputs).  `loc`, `scale` (*batch, n_outputs): one output for
    each column, then the further ones of nominal columns.  `loc`, `scale` (*batch,
    features): the first outputs of the columns.
    """

    arg_constraints: dict = {}

    def __init__(self, loc: Tensor, scale: Tensor, families: Families) -> None:
        self.outputs, self.families = (loc, scale), families
        width = families.n_columns(loc.shape[-1])
        self.loc, self.scale = loc[..., :width], scale[..., :width]
        self._known: Intervals | None = None
        super().__init__(self.loc.shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log-densities, or log-probabilities of discrete columns.

        `value` (that broadcasts to (*batch, features)).
        """
        families, loc, scale = self.families, self.loc, self.scale
        if len(families.rounded) == loc.shape[-1]:  # in their order
            return self._log_rounded(value, slice(None))
        found = Normal(loc, scale, validate_args=False).log_prob(value)
        if len(families.student):
            at = families.student
            q = StudentT(_DEGREES, loc[..., at], scale[..., at], validate_args=False)
            found = found.index_copy(-1, at, q.log_prob(value[..., at]))
        if len(families.bernoulli):
            at = families.bernoulli
            larger = value[..., at] > families.pairs.mean(-1)
            sign = torch.where(larger, 1.0, -1.0).to(loc)
            found = found.index_copy(-1, at, logsigmoid(sign * loc[..., at]))
        if len(families.rounded):
            at = families.rounded
            found = found.index_copy(-1, at, self._log_rounded(value, at))
        if len(families.unit):
            at = families.unit
            low, width = self._span(value)
            inside = unit.log_prob((value[..., at] - low) / width, loc[..., at])
            found = found.index_copy(-1, at, inside - width.log())
        for levels in families.levels:
            at = levels.columns
            inside = levels.log_prob(value[..., at], *self.outputs)
            found = found.index_copy(-1, at, inside)
        return found

    def taken(self, index: Tensor) -> "Cells":
        """Return the cells at indices (k, *batch) of the first dimension."""
        where = index[..., None]
        outputs = (
            part.gather(0, where.expand(*index.shape, part.shape[-1]))
            for part in self.outputs
        )
        return Cells(*outputs, self.families)

    def given(self, cells: Intervals | None) -> "Cells":
        """Keep what is known of the rows that `sum_observed` will be called with."""
        self._known = cells
        return self

    def sum_observed(self, x: Tensor, observed: Tensor) -> Tensor:
        """Sum log-densities over observed cells; (*batch,).

        `x` (that broadcasts to (*batch, features)): values under the mask may be
        anything, NaN included.
        """
        cells = self._known
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
        left = self.families.places(value[..., at])
        ends = (pick(edges, left + k).to(value) for k in (0, 1))
        return log_interval(*((end - loc) / scale for end in ends))

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles; (*sample, *batch, features)."""
        families, loc, scale = self.families, self.loc, self.scale
        found = Normal(loc, scale, validate_args=False).icdf(value)
        if len(families.student):
            at = families.student
            t = loc[..., at] + scale[..., at] * student_quantile(value[..., at])
            found = found.index_copy(-1, at, t)
        if len(families.bernoulli):
            at = families.bernoulli
            larger = value[..., at] > torch.sigmoid(-loc[..., at])
            one = torch.where(larger, families.pairs[:, 1], families.pairs[:, 0])
            found = found.index_copy(-1, at, one.to(found))
        if len(families.rounded):
            at = families.rounded
            found = found.index_copy(-1, at, families.nearest(found[..., at]))
        if len(families.unit):
            at = families.unit
            low, width = self._span(value)
            level = low + width * unit.quantile(value[..., at], loc[..., at])
            found = found.index_copy(-1, at, level)
        for levels in families.levels:
            at = levels.columns
            code = levels.icdf(value[..., at], *self.outputs)
            found = found.index_copy(-1, at, code.expand(*found.shape[:-1], len(at)))
        return found

    @property
    def level_probabilities(self) -> Tensor:
        """Probabilities of the levels of all columns of categories, one after another.

        `Families.level_blocks` tells where they are; (*batch, n_probabilities).
        """
        found = [one.probabilities(*self.outputs) for one in self.families.levels]
        empty = self.loc[..., :0]
        return torch.cat([empty, *(table.flatten(-2) for table in found)], -1)

    def _span(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower ends and the widths of continuous Bernoulli columns."""
        low, high = self.families.ends.to(like).unbind(-1)
        return low, high - low


class ScoredCells(Cells):
    """Cells of which the missing ones are the numbers before rounding, eq. (2).

    Missing cells of rounded columns are then normal, with a differentiable density and
    reparametrised draws.  Integrated over them, the density is that of `Cells` at the
    observed cells.

    `observed` (bool that broadcasts to (*batch, features)).
    """

    def __init__(self, cells: Cells, observed: Tensor) -> None:
        self.observed = observed
        super().__init__(*cells.outputs, cells.families)

    def taken(self, index: Tensor) -> "ScoredCells":
        """Return the cells at indices (k, *batch) of the first dimension."""
        return ScoredCells(super().taken(index), self.observed)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log-densities, or log-probabilities of observed discrete cells."""
        found, at = super().log_prob(value), self.families.rounded
        if not len(at):
            return found
        loc, scale = self.loc[..., at], self.scale[..., at]
        score = Normal(loc, scale, validate_args=False).log_prob(value[..., at])
        rounded = found[..., at].where(self.observed[..., at], score)
        return found.index_copy(-1, at, rounded)

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles of missing cells; (*sample, *batch, features)."""
        found, at = super().icdf(value), self.families.rounded
        if not len(at):
            return found
        normal = Normal(self.loc, self.scale, validate_args=False).icdf(value)
        return found.index_copy(-1, at, normal[..., at])


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
