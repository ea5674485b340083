"""Draws of the latent variables of a nominal column given those of the others.

In rows that miss the column they are jointly normal.  In the others that of the
observed level is the largest: each variable has a truncated normal distribution given
all others (Albert and Chib 1993, section 4).
"""

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple, Self

import numpy as np
import torch

# ----------------------------------------
# Distribution function and quantiles of the standard normal distribution.


def cdf(x: np.ndarray) -> np.ndarray:
    """Compute Phi(x), accurately in the lower tail."""
    probability = np.asarray(x / -sqrt(2))
    # the tensor shares the memory of the array
    torch.from_numpy(probability).erfc_()
    probability /= 2
    return probability


def quantile(p: np.ndarray) -> np.ndarray:
    """Compute the inverse of `cdf`."""
    return torch.special.ndtri(torch.from_numpy(p)).numpy()


# ----------------------------------------
# Draws of the latent variables of a nominal column given those of the others.


# the quantile of 0 is infinite
_LEAST = 1e-300  # probability below which a draw is its bound
_TOGETHER = 32  # levels, to whose means all others contribute by a product of matrices


def below(
    mean: np.ndarray, scale: float | np.ndarray, bound: np.ndarray, u: np.ndarray
) -> np.ndarray:
    """Map uniform numbers to draws of normal distributions below bounds; (n,)."""
    part = (mean - bound) * (1 / (sqrt(2) * scale))
    torch.from_numpy(part).erfc_()  # twice the probability to be below
    part *= u
    part *= 0.5
    np.maximum(part, _LEAST, out=part)
    part = quantile(part)
    part *= scale
    part += mean
    # quantiles of rounded probabilities may exceed the bound
    return np.minimum(part, bound, out=part)


def above(
    mean: np.ndarray, scale: float | np.ndarray, bound: np.ndarray, u: np.ndarray
) -> np.ndarray:
    """Map uniform numbers to draws of normal distributions above bounds; (n,)."""
    return -below(-mean, scale, -bound, u)


class GivenOthers(NamedTuple):
    """The distribution of the latent variables of a column given those of the others.

    With ``b = offsets - before @ z[:start] - after @ z[stop:]``, where z[start:stop]
    are those of the column, it is ``N(gain @ b, root @ root.T)``, and the mean of each
    one given all others is ``b - inner @ z[start:stop]``.
    """

    before: np.ndarray  # (n_levels, start)
    after: np.ndarray  # (n_levels, latents - stop)
    inner: np.ndarray  # (n_levels, n_levels), 0 on the diagonal
    offsets: np.ndarray  # (n_levels, 1) or (n_levels, n), see `gibbs.Factors`
    scales: np.ndarray  # (n_levels,)
    gain: np.ndarray  # (n_levels, n_levels)
    root: np.ndarray  # (n_levels, n_levels)

    @classmethod
    def of(
        cls, block: slice, slopes: np.ndarray, offsets: np.ndarray, scales: np.ndarray
    ) -> Self:
        """Make that of a block from what `gibbs.Factors` holds."""
        scale, inner_slopes = scales[block], slopes[block, block]
        others = slopes[block, : block.start], slopes[block, block.stop :]
        precision = inner_slopes / np.square(scale)[:, None]
        # slopes over variances are symmetric but for rounding
        root = np.linalg.inv(np.linalg.cholesky((precision + precision.T) / 2)).T
        gain = root @ root.T / np.square(scale)
        inner = inner_slopes - np.eye(len(inner_slopes))
        return cls(*others, inner, offsets[block][:, None], scale, gain, root)

    @property
    def block(self) -> slice:
        """The latent variables of the column."""
        start = self.before.shape[1]
        return slice(start, start + len(self.inner))

    def base(self, block: slice, z: np.ndarray) -> np.ndarray:
        """Compute b, what the other columns contribute; z is (latents, n)."""
        base = self.offsets - self.before @ z[: block.start]
        base -= self.after @ z[block.stop :]
        return base


# rows that miss the column, its first latent variable, the means of its latent
# variables given all others and the largest others (n_levels, n_rows), deviations
OnLevels = Callable[[np.ndarray, int, np.ndarray, np.ndarray, np.ndarray], None]


class Nominal(NamedTuple):
    """The rows of a nominal column by what is observed."""

    block: slice  # its latent variables
    observed: np.ndarray  # int, the rows in which it is observed, and the others
    missing: np.ndarray  # int
    levels: np.ndarray  # int (n_observed,)
    rows_of: list[np.ndarray]  # the rows of each level

    @classmethod
    def of(cls, block: slice, levels: np.ndarray) -> Self:
        """Find the rows of levels (n,), -1 where they are missing."""
        observed, missing = np.flatnonzero(levels >= 0), np.flatnonzero(levels < 0)
        rows_of = [np.flatnonzero(levels == k) for k in range(block.stop - block.start)]
        return cls(block, observed, missing, levels[observed], rows_of)

    def sweep(
        self,
        z: np.ndarray,
        others: GivenOthers,
        uniform: np.ndarray,
        on_missing: OnLevels | None = None,
    ) -> None:
        """Draw the latent variables of the column, in place; z is (latents, n)."""
        base = others.base(self.block, z)
        z, uniform = z[self.block], uniform[self.block]
        if len(self.observed):
            self._draw_observed(z, base, others, uniform)
        if len(self.missing):
            base = base[:, self.missing]
            noise = quantile(uniform[:, self.missing])
            free = others.gain @ base + others.root @ noise
            if on_missing:
                mean, most = base - others.inner @ free, largest_others(free)
                first = self.block.start
                on_missing(self.missing, first, mean, most, others.scales)
            z[:, self.missing] = free

    def _draw_observed(
        self, z: np.ndarray, base: np.ndarray, others: GivenOthers, uniform: np.ndarray
    ) -> None:
        """Draw those of other levels below that of the own level, then the latter.

        Rows that miss the column are drawn without bounds, which costs less than to
        select the others.
        """
        places, largest = (self.levels, self.observed), np.full(z.shape[1], np.inf)
        largest[self.observed] = z[places]
        for start in range(0, len(z), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            mean = base[part] - others.inner[part, :start] @ z[:start]
            mean -= others.inner[part, part.stop :] @ z[part.stop :]
            for k, rows in enumerate(self.rows_of[part], start):
                centre = mean[k - start] - others.inner[k, part] @ z[part]
                z[k] = below(centre, others.scales[k], largest, uniform[k])
                z[k, rows] = largest[rows]
        pull = np.einsum(
            "kr,kr->r", others.inner.T[:, self.levels], z[:, self.observed]
        )
        mean = base[places] - pull
        # not among those of which the maximum is taken
        z[places] = -np.inf
        parts = others.scales[self.levels], z.max(0)[self.observed], uniform[places]
        z[places] = above(mean, *parts)


def largest_others(z: np.ndarray) -> np.ndarray:
    """Find the largest of the other rows of z for each; (n_levels, n)."""
    first, columns = z.argmax(0), np.arange(z.shape[1])
    rest = z.copy()
    rest[first, columns] = -np.inf
    most = np.repeat(z[first, columns][None], len(z), 0)
    most[first, columns] = rest.max(0)
    return most


def level_probabilities(
    mean: np.ndarray, most: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    """Compute the probabilities that each latent variable is the largest."""
    return cdf((mean - most) / scales[:, None])
