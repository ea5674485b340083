"""Parameters of a latent normal model of groups, eqs. (1) and (2) of `groups`.

Its columns are of rows or of groups: a column that is constant within groups has one
latent variable for each group.
"""

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce.algorithms.mixed.columns import Bounds, Latents
from skvnce.algorithms.mixed.gibbs import Factors, rescaled, unit_scales
from skvnce.distributions.normal import Normal

_START = 0.5, 0.1  # variances of residuals and intercepts, and of slopes, at the start


class Levels(NamedTuple):
    """The columns of a table of groups in terms of latent variables."""

    # all columns: first the latent variables of those that vary within groups, then of
    # those that do not.  Columns of slopes have none
    whole: Latents
    rows: Latents  # the two kinds of columns alone
    groups: Latents
    n_effects: int = 1  # number of columns of w in eq. (1)

    @classmethod
    def of(
        cls, latents: Latents, of_groups: list[int], slopes: list[int] | tuple = ()
    ) -> Self:
        """Divide columns; `of_groups` and `slopes` are indices of columns."""
        kinds = [of_groups, slopes]
        others = [j for j in range(len(latents.n_levels)) if not _in_any(j, kinds)]
        first, sizes = [0] * len(latents.n_levels), list(latents.n_levels)
        for j in slopes:
            sizes[j] = 0
        start = 0
        for j in [*others, *of_groups]:
            first[j], start = start, start + sizes[j]
        marginals = [
            None if j in slopes else one for j, one in enumerate(latents.marginals)
        ]
        whole = Latents(marginals, first, sizes)
        parts = (_selected(whole, some) for some in (others, of_groups))
        return cls(whole, *parts, 1 + len(slopes))

    @property
    def n_random(self) -> int:
        """Number of effects of a group: intercepts and slopes."""
        return self.rows.size * self.n_effects

    def moments(
        self, effects: "Effects", design: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute mean and covariance of the latent variables of a row of a new group.

        `design` is w of eq. (1), (n_effects,); slopes of None are multiplied by 0.
        """
        size, total = self.rows.size, self.whole.size
        if design is None:
            some = torch.cat(
                [
                    torch.arange(size),
                    torch.arange(self.n_random, len(effects.between.mean)),
                ]
            )
            covariance = effects.between.covariance[some][:, some]
            covariance[:size, :size] += effects.within.covariance
            return effects.between.mean[some], covariance
        maps = torch.block_diag(
            torch.kron(design[None], torch.eye(size).to(design)),
            torch.eye(self.groups.size).to(design),
        )
        covariance = maps @ effects.between.covariance @ maps.T
        covariance[:size, :size] += effects.within.covariance
        return maps @ effects.between.mean, covariance.reshape(total, total)

    def divided(self, bounds: Bounds) -> tuple[Bounds, Bounds]:
        """Divide what is known about rows by the two kinds of columns."""
        size, starts = self.rows.size, [block.start for _, block in self.whole.nominal]
        inner = torch.tensor([start < size for start in starts], dtype=torch.bool)
        low, high, levels, missing = bounds
        return (
            Bounds(low[:size], high[:size], levels[inner], missing[:size]),
            Bounds(low[size:], high[size:], levels[~inner], missing[size:]),
        )

    def order(self) -> list[int]:
        """List latent variables in the order of their columns."""
        pairs = zip(self.whole.first, self.whole.n_levels, strict=True)
        return [first + k for first, size in pairs for k in range(size)]

    @property
    def lack_scales(self) -> bool:
        """Whether there are latent variables without a scale of their own."""
        two = [len(one.values) == 2 for _, _, one in self.whole.ordered]
        return bool(self.whole.nominal) or any(two)

    def scales(self, effects: "Effects") -> tuple[Tensor, Tensor]:
        """Compute by what effects are shifted and divided; see `unit_scales`."""
        mean, covariance = self.moments(effects)
        shift, scale = torch.zeros_like(mean), torch.ones_like(mean)
        start = 0
        for own in (self.rows, self.groups):
            part = slice(start, start + own.size)
            normal = Normal(mean[part], covariance[part, part])
            shift[part], scale[part] = unit_scales(own, normal)
            start += own.size
        return shift, scale

    def of_effects(self, values: Tensor, others: float | None = None) -> Tensor:
        """Repeat values of latent variables for the slopes, or fill in `others`."""
        size = self.rows.size
        own = (
            values[:size] if others is None else torch.full_like(values[:size], others)
        )
        slopes = [own] * (self.n_effects - 1)
        return torch.cat([values[:size], *slopes, values[size:]])


def _in_any(item: int, lists: list) -> bool:
    return any(item in one for one in lists)


def _selected(latents: Latents, columns: list[int]) -> Latents:
    """Select columns, whose latent variables begin at 0."""
    sizes = [latents.n_levels[j] for j in columns]
    first = np.cumsum([0, *sizes])[:-1].tolist()
    return Latents([latents.marginals[j] for j in columns], first, sizes)


class Effects(NamedTuple):
    """The parameters of eqs. (1) and (2)."""

    within: Normal  # of residuals; the mean is 0
    between: Normal  # of (m, v)

    @classmethod
    def start(cls, levels: Levels) -> Self:
        """Make independent latent variables."""
        size, n_slopes = levels.rows.size, levels.n_random - levels.rows.size
        first, small = _START
        variances = [first] * size + [small] * n_slopes + [1.0] * levels.groups.size
        zero = torch.zeros(len(variances), dtype=torch.float64)
        within = Normal(zero[:size], first * torch.eye(size, dtype=torch.float64))
        return cls(within, Normal(zero, torch.tensor(variances).double().diag()))

    def rescaled(self, levels: Levels, shift: Tensor, scale: Tensor) -> Self:
        """Shift and then divide latent variables; see `Levels.scales`."""
        shift, wide = levels.of_effects(shift, 0.0), levels.of_effects(scale)
        own = scale[: levels.rows.size]
        return Effects(
            rescaled(self.within, torch.zeros_like(own), own),
            rescaled(self.between, shift, wide),
        )


class Given(NamedTuple):
    """Parameters, ready for sweeps."""

    effects: Effects
    rows: Factors  # of residuals
    groups: Factors  # of v given m, but for its mean
    slope: np.ndarray  # (n_group_latents, n_random), of v given m
    gain: np.ndarray  # (n_random, n_group_latents), of m given v
    precision: np.ndarray  # (n_random, n_random), of m given v
    residual: np.ndarray  # (n_row_latents, n_row_latents), precision of residuals

    @classmethod
    def of(cls, effects: Effects, levels: Levels) -> Self:
        """Condition the two kinds of effects on each other."""
        within, between = effects
        k, covariance = levels.n_random, between.covariance
        first, cross, last = covariance[:k, :k], covariance[:k, k:], covariance[k:, k:]
        slope = torch.linalg.solve(first, cross).T
        rest = Normal(between.mean[k:], _symmetric(last - slope @ cross))
        gain = torch.linalg.solve(last, cross.T).T
        precision = torch.linalg.inv(_symmetric(first - gain @ cross.T))
        factors = Factors.of(within, levels.rows), Factors.of(rest, levels.groups)
        parts = slope, gain, precision, torch.linalg.inv(within.covariance)
        return cls(effects, *factors, *(one.numpy() for one in parts))

    @property
    def normal(self) -> Normal:
        """The distribution of effects."""
        return self.effects.between


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.T) / 2
