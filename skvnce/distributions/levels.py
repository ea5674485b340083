"""Cells of categories: probabilities of levels 0, 1, ... given outputs of a model.

    ordinal     P(x_j = k) = P(e_k < v < e_k+1) of v ~ N(loc_j, scale_j^2)
    nominal     P(x_j = k) = exp(loc_jk) / sum_l exp(loc_jl)

An ordinal column has one output and thresholds e that are not trained, a nominal column
an output for each level.  The first output of column j is output j; the others of
nominal columns follow those of all columns.  A family has the methods of `Levels`, and
`Cells` needs no more.

McCullagh (1980), Regression models for ordinal data, with a normal distribution.
"""

from math import pi
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from skvnce.distributions.bounded_normal import log_interval
from skvnce.distributions.columns import pick, place

_GUMBEL = 6**0.5 / pi  # scale of Gumbel variables of unit variance
_FAR = 1e3  # threshold that stands for an infinite one, whose gradient is no number


class Levels(Protocol):
    """A family of columns of levels."""

    columns: Tensor  # int (n,): indices of the columns
    n_levels: Tensor  # int (n,)
    n_more: int  # number of outputs besides the first ones of the columns

    def log_prob(self, code: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute log-probabilities of levels.

        `code` (that broadcasts to (*batch, n)).  `loc`, `scale` (*batch, n_outputs):
        all outputs of the model.  Returns (*batch, n).
        """
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
        interval that of an ordinal column.

        `linear` (n_outputs,) or (n_outputs, latents): means and loadings.  `deviation`
        (n_outputs,): standard deviations given the latents.
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
        # cells under a mask may hold any number
        level = code.round().long().clamp(min=0).minimum(self.n_levels - 1)
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
        found = log_interval(ends[..., :-1], ends[..., 1:]).exp()
        return found.where(_present(self.n_levels, found.shape[-1]), 0.0)

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
            own = [column, *range(start, start + size - 1)]
            outputs.append(own + own[-1:] * (max(n_levels) - size))
            start += size - 1
        tables = map(torch.tensor, (columns, n_levels, outputs))
        return cls(*tables, start - n_columns)

    def log_probabilities(self, loc: Tensor) -> Tensor:
        """Compute log-probabilities of all levels; (*batch, n, K)."""
        present = _present(self.n_levels, self.outputs.shape[1])
        return loc[..., self.outputs].where(present, -torch.inf).log_softmax(-1)

    def log_prob(self, code: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute log-probabilities; see `Levels`."""
        found = self.log_probabilities(loc)
        # cells under a mask may hold any number
        level = code.round().long().clamp(min=0).minimum(self.n_levels - 1)
        shape = torch.broadcast_shapes(level.shape, found.shape[:-1])
        found = found.expand(*shape, -1)
        return found.gather(-1, level.expand(shape)[..., None]).squeeze(-1)

    def icdf(self, uniform: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute quantiles; see `Levels`."""
        below = self.log_probabilities(loc).exp().cumsum(-1)
        level = (uniform[..., None] > below).sum(-1)
        # rounding may leave the sum of all probabilities below a uniform number
        return level.minimum(self.n_levels - 1).to(loc)

    def probabilities(self, loc: Tensor, scale: Tensor) -> Tensor:
        """Compute probabilities; see `Levels`."""
        return self.log_probabilities(loc).exp()

    def scaled(self, linear: tuple[Tensor, ...], deviation: Tensor) -> None:
        """Divide by the scale of Gumbel variables of the same mean variance.

        Their largest sum with the logits has the probabilities of the softmax
        function.
        """
        for row, size in zip(self.outputs, self.n_levels.tolist(), strict=True):
            own = row[:size]
            scale = deviation[own].square().mean().sqrt() * _GUMBEL
            for part in linear:
                # probabilities depend on differences of logits only
                part[own] = (part[own] - part[own].mean(0)) / scale


def _present(n_levels: Tensor, widest: int) -> Tensor:
    """Return which levels columns have; (n, widest)."""
    return torch.arange(widest) < n_levels[:, None]
