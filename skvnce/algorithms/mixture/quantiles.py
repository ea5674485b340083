"""Quantiles of missing numbers by averages of mixtures of normals.

The distribution function of a cell x of a row is the average over members of

    F(x) = sum_k p(k | observed) Phi((s(x) - mean_k) / deviation_k),               (1)

with the scores s of the member, which increase, and the conditional normals of its
components.  F increases.  Its quantile is between those of the components, and is found
by steps that alternately halve this interval, and divide it by a line (regula falsi).
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce.algorithms.mixture.margins import Points
from skvnce.algorithms.mixture.model import (
    Arranged,
    Mixture,
    conditional_moments,
    prepare,
    responsibilities,
)

_STEPS = 20  # errors of F are then below 1e-6


class Given(NamedTuple):
    """The distributions of the missing numbers of rows by one mixture."""

    shares: np.ndarray  # (n, n_components), of the components
    means: np.ndarray  # (n_components, n, d), of scores
    deviations: np.ndarray  # (n_components, n, d)
    points: Points  # from scores to cells

    @classmethod
    def of(cls, mixture: Mixture, data: Arranged, points: Points) -> Self:
        """Compute those of rows."""
        prepared = prepare(mixture)
        shares = data.restored(responsibilities(prepared, data)[0])
        return cls(shares, *conditional_moments(prepared, data), points)

    def column(self, j: int, rows: np.ndarray) -> "Column":
        """Select the cells of a column in some rows, by their indices."""
        shares = self.shares[rows]
        owners, used = shares.nonzero()
        starts = np.searchsorted(owners, np.arange(len(shares)))
        moments = (part[used, rows[owners], j] for part in self[1:3])
        return Column(owners, starts, shares[owners, used], *moments, j, self.points)


class Column(NamedTuple):
    """The distributions of missing cells of one column by one mixture.

    Most components do not count in a row, and are left out.
    """

    # int (n_pairs,), the row of each pair of a row and a component, increasing
    owners: np.ndarray
    starts: np.ndarray  # int (n,), the first pair of each row
    shares: np.ndarray  # (n_pairs,)
    means: np.ndarray  # (n_pairs,)
    deviations: np.ndarray  # (n_pairs,)
    place: int  # of the column
    points: Points

    def below(self, cells: np.ndarray) -> np.ndarray:
        """Compute eq. (1) at cells (n_levels, n)."""
        scores = self.points.scores_of(self.place, cells)[:, self.owners]
        z = torch.from_numpy((scores - self.means) / self.deviations)
        found = torch.special.ndtr(z).numpy() * self.shares
        return np.add.reduceat(found, self.starts, axis=1)

    def ends(self, levels: np.ndarray) -> np.ndarray:
        """Find the outermost quantiles of components; (2, n_levels, n)."""
        z = torch.special.ndtri(torch.from_numpy(levels)).numpy()
        scores = self.means + z * self.deviations
        ends = [
            outermost.reduceat(scores, self.starts, axis=1)
            for outermost in (np.minimum, np.maximum)
        ]
        return np.interp(ends, *self.points.pair(self.place))


def quantiles(
    members: Sequence[Given], missing: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """Find quantiles of missing numbers (n, d); (n_levels, n, d), 0 where observed."""
    found = np.zeros((len(levels), *missing.shape))
    for j, rows in enumerate(map(np.flatnonzero, missing.T)):
        if len(rows):
            columns = [one.column(j, rows) for one in members]
            found[:, rows, j] = _inverted(columns, levels[:, None])
    return found


def _inverted(columns: Sequence[Column], levels: np.ndarray) -> np.ndarray:
    """Find where the average of eq. (1) over members reaches levels; (n_levels, n)."""

    def shares(cells: np.ndarray) -> np.ndarray:
        return sum(one.below(cells) for one in columns) / len(columns)

    def divided(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Find the cells where a line reaches the levels."""
        width = (up_to - below).clip(np.finfo(float).tiny)
        return low + ((levels - below) / width).clip(0, 1) * (high - low)

    ends = np.array([one.ends(levels) for one in columns])
    low, high = ends[:, 0].min(0), ends[:, 1].max(0)
    below, up_to = shares(low), shares(high)
    for number in range(_STEPS):
        middle = divided(low, high) if number % 2 else low + (high - low) / 2
        share = shares(middle)
        is_less = share < levels
        low, high = np.where(is_less, [middle, high], [low, middle])
        below, up_to = np.where(is_less, [share, up_to], [below, share])
    return divided(low, high)
