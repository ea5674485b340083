"""Mixtures of normals some of whose missing numbers lie between limits.

Given the observed cells o of a row, and limits B of some of its missing numbers z,

    p(k | o, B)  proportional to  p(k | o) P(z in B | o, k)                          (1)

and within a component the missing numbers are normal, truncated to the limits.  Both
are exact in rows with one limit; in others the probabilities of eq. (1) are averages
over points, and draws are selected among several (`gaussian.truncation`).  Given draws
of the limited numbers, a row is one in which these are observed, and all else is exact.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce.gaussian import truncation
from skvnce.gaussian.truncation import Lattice
from skvnce.mixture import density
from skvnce.mixture.density import NONE, Arranged, Mixture
from skvnce.mixture.margins import Pair, Points

_LEAST = 1e-9  # p(k | o) below which a component does not count, whatever the limits
_CHOICE = 10**6  # the step of random numbers that choose components
_AT_ONCE = 2**20  # maximum size of the conditional covariances of a batch of rows


class Limited(NamedTuple):
    """Rows with limits of missing numbers."""

    scores: np.ndarray  # (n, d), NaN where missing
    codes: np.ndarray  # int (n, n_categorical), -1 where missing
    low: np.ndarray  # (n, d), limits of the scores; infinite where nothing is known
    high: np.ndarray  # (n, d)

    @classmethod
    def of(
        cls,
        numbers: np.ndarray,
        codes: np.ndarray,
        limits: Pair,
        points: Points,
        valid: Points,
    ) -> Self:
        """Map rows, and limits of their cells, to scores.

        Limits are moved to the range of `valid`, beyond which there are no cells.
        """
        low, high = limits
        known, ends = np.isfinite(low) | np.isfinite(high), []
        for end, nothing in ((low, -np.inf), (high, np.inf)):
            score = points.to_scores(np.clip(end, *valid.ends))
            ends.append(np.where(known, score, nothing))
        return cls(points.to_scores(numbers), codes, *ends)

    @property
    def known(self) -> np.ndarray:
        """Return which numbers have a limit; bool, (n, d)."""
        return np.isfinite(self.low) | np.isfinite(self.high)

    def take(self, rows: np.ndarray) -> Self:
        """Return some of the rows."""
        return type(self)(*(part[rows] for part in self))

    def parts(self, wanted: np.ndarray) -> Iterator:
        """Yield the wanted rows (n,) that have limits, in parts for `truncation`."""
        rows = np.flatnonzero(wanted & self.known.any(1))
        size = max(1, _AT_ONCE // max(1, self.scores.shape[1] ** 2))
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            ends = (torch.from_numpy(end[part]) for end in (self.low, self.high))
            yield part, (Incomplete.from_array(self.scores[part]), *ends)


def posterior(
    mixture: Mixture, given: Limited, lattice: Lattice, most: int | None = None
) -> np.ndarray:
    """Compute eq. (1); (n, n_components), 0 below 1e-6.

    `lattice` makes the random numbers of rows with several limits, and `most` is the
    maximum number of points; see `truncation.log_inside`.
    """
    found = np.ones((len(given.scores), len(mixture.weights)))
    if found.shape[1] == 1:
        return found
    data, prepared = Arranged.of(given.scores, given.codes), density.prepare(mixture)
    found[data.order] = density.responsibilities(prepared, data, _LEAST)[0]
    with np.errstate(divide="ignore"):
        log_shares = np.log(found)
    for k, normal in enumerate(_normals(mixture)):
        for rows, part in given.parts(found[:, k] > 0):
            inside = truncation.log_inside(normal, *part, lattice, most)
            log_shares[rows, k] += inside.numpy()
    shares = np.exp(log_shares - log_shares.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    shares[shares < NONE] = 0.0
    return shares / shares.sum(1, keepdims=True)


def completed(
    mixture: Mixture, given: Limited, shares: np.ndarray, lattice: Lattice
) -> np.ndarray:
    """Draw the limited numbers of each row; other missing ones stay missing.

    `shares` (n, n_components): eq. (1); `lattice`: makes the random numbers of rows.
    Returns (n, d).
    """
    scores = given.scores.copy()
    uniforms = lattice(Incomplete.from_array(scores))
    # another step than those of `draw_limited`
    uniform = uniforms(_CHOICE, torch.empty(len(scores), 1, dtype=torch.float64))
    chosen = density.chosen(shares, uniform[:, 0].numpy())
    for k, normal in enumerate(_normals(mixture)):
        for rows, part in given.parts(chosen == k):
            drawn = truncation.draw_limited(normal, *part, lattice).numpy()
            scores[rows] = np.where(given.known[rows], drawn, scores[rows])
    return scores


def conditional_means(
    mixture: Mixture, given: Limited, points: Points, lattice: Lattice
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Compute means and probabilities as `model.conditional_means` does.

    The shift of a mean by the limits is an average over points.
    """
    shares = posterior(mixture, given, lattice)
    data = Arranged.of(given.scores, given.codes)
    means, levels = density.conditional_means(mixture, data, points, shares[data.order])
    for k, normal in enumerate(_normals(mixture)):
        for rows, part in given.parts(shares[:, k] > 0):
            shift = truncation.mean_shift(normal, *part, lattice, _to_cells(points))
            means[rows] += shares[rows, k, None] * shift.numpy()
    return means, levels


def _to_cells(points: Points) -> truncation.ToCells:
    """Make the function by which `truncation` maps scores to cells."""

    def to_cells(rows: Tensor, columns: Tensor, scores: Tensor) -> Tensor:
        found, scores = torch.empty_like(scores), scores.numpy()
        for j in columns.unique().tolist():
            some = columns == j
            cells = np.interp(scores[:, some.numpy()], *points.pair(j))
            found[:, some] = torch.from_numpy(cells)
        return found

    return to_cells


def _normals(mixture: Mixture) -> list[Normal]:
    pairs = zip(mixture.means, mixture.covariances, strict=True)
    return [Normal(*map(torch.from_numpy, pair)) for pair in pairs]
