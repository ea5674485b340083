"""Mixtures of normals some of whose missing numbers lie between limits.

Given the observed cells o of a row, and limits B of some of its missing numbers z,

    p(k | o, B)  proportional to  p(k | o) P(z in B | o, k)                          (1)

and within a component the missing numbers are normal, truncated to the limits.  Both
are exact in rows with one limit; in others the probabilities of eq. (1) are averages
over points, and draws are selected among several (`gaussian.truncation`).  Given draws
of the limited numbers, a row is one in which these are observed, and all else is exact.

In each round of stochastic EM the limited cells are drawn given the observed cells of
their row, their limits and the parameters so far, and then count as observed.

Celeux, G. and Diebolt, J. (1985), The SEM algorithm: a probabilistic teacher algorithm
derived from the EM algorithm for the mixture problem.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import global_stream
from skvnce.gaussian import truncation
from skvnce.gaussian.truncation import Lattice, by_content
from skvnce.mixture import density
from skvnce.mixture.density import NONE, Arranged, Mixture
from skvnce.mixture.em import of_one
from skvnce.mixture.margins import Points

_LEAST = 1e-9  # p(k | o) below which a component does not count, whatever the limits
_CHOICE = 10**6  # the step of random numbers that choose components
_AT_ONCE = 2**20  # maximum size of the conditional covariances of a batch of rows
_ROWS = 2**16  # maximum number of rows, over all draws, whose limited cells are drawn
_POINTS = 16  # of probabilities of several limits, which are estimated in each round
_ANCHOR = 10.0  # v of `source`; with 3 and 30 errors are about the same
_ROUNDS = 60  # draws of limited cells for one normal, the second half of which counts

# rows given the parameters: those of a round of EM
Source = Callable[[Mixture], Arranged]


def _numbers(rng: np.random.Generator) -> Lattice:
    def uniforms(step: int, like: Tensor) -> Tensor:
        return torch.from_numpy(rng.random(tuple(like.shape)))

    return lambda data: uniforms


class Free(NamedTuple):
    """Rows without limits of missing numbers."""

    scores: np.ndarray  # (n, d), NaN where missing
    codes: np.ndarray  # int (n, n_categorical), -1 where missing

    def means(
        self, mixture: Mixture, points: Points
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """See `density.conditional_means`."""
        return density.conditional_means(mixture, Arranged.of(*self), points)

    def completions(self, mixture: Mixture, n_draws: int) -> Iterator:
        """Yield numbers of draws, and the rows that are drawn so often."""
        yield n_draws, slice(None), Arranged.of(*self)

    def source(
        self, weights: np.ndarray, start: Mixture, rng: np.random.Generator
    ) -> tuple[Source, np.ndarray]:
        """Return the rows, which are the same in each round of EM, and their order."""
        data = Arranged.of(*self)
        return lambda mixture: data, data.order

    def averaged(
        self, normal: Normal, go_on: Callable, rng: np.random.Generator
    ) -> tuple[Normal, np.ndarray]:
        """Return the normal that is fitted to these rows, and the scores."""
        return normal, self.scores


class Limited(NamedTuple):
    """Rows with limits of missing numbers."""

    scores: np.ndarray  # (n, d), NaN where missing
    codes: np.ndarray  # int (n, n_categorical), -1 where missing
    low: np.ndarray  # (n, d), limits of the scores; infinite where nothing is known
    high: np.ndarray  # (n, d)

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

    def means(
        self, mixture: Mixture, points: Points
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """See `density.conditional_means`."""
        return conditional_means(mixture, self, points, by_content)

    def completions(self, mixture: Mixture, n_draws: int) -> Iterator:
        """Yield numbers of draws, and rows whose limited numbers are drawn."""
        shares, n = posterior(mixture, self, by_content), len(self.scores)
        size = max(1, _ROWS // n)
        for first in range(0, n_draws, size):
            rows = np.tile(np.arange(n), min(size, n_draws - first))
            known = self.take(rows), shares[rows], lambda data: global_stream
            scores = completed(mixture, *known)
            yield 1, rows, Arranged.of(scores, self.codes[rows])

    def redrawing(self, rng: np.random.Generator) -> Source:
        """Draw limited cells in each round of EM for one normal."""
        lattice = _numbers(rng)

        def redrawn(mixture: Mixture) -> Arranged:
            shares = posterior(mixture, self, lattice, _POINTS)
            scores = completed(mixture, self, shares, lattice)
            return Arranged.of(scores, self.codes)

        return redrawn

    def averaged(
        self, normal: Normal, go_on: Callable, rng: np.random.Generator
    ) -> tuple[Normal, np.ndarray]:
        """Average normals that EM goes on with, after draws of the limited cells.

        `go_on` maps scores and a normal to the next one.  Also returns the last scores.
        """
        redrawn = self._replace(codes=self.codes[:, :0]).redrawing(rng)
        found = []
        for _ in range(_ROUNDS):
            data = redrawn(of_one(*(part.numpy() for part in normal)))
            scores = data.restored(np.where(data.observed, data.x, np.nan))
            normal = go_on(scores, normal)
            found.append(normal)
        parts = zip(*found[_ROUNDS // 2 :], strict=True)
        return Normal(*(torch.stack(one).mean(0) for one in parts)), scores

    def source(
        self, weights: np.ndarray, start: Mixture, rng: np.random.Generator
    ) -> tuple[Source, np.ndarray]:
        """Draw limited cells in each round of EM for several components.

        Nothing says where the rows of a component lie beyond a limit if none of them is
        observed, and its mean would drift away from the limit.  Cells of a component
        with n observed cells of the column are therefore drawn from `start`, one normal
        distribution of all rows, with probability v / (v + n), as by a prior of v rows.

        `weights` (n,).  Also returns the order of the rows.
        """
        order, lattice = self.redrawing(rng)(start).order, _numbers(rng)
        certain = np.ones((len(weights), 1))
        seen = weights[:, None] * ~np.isnan(self.scores)

        def redrawn(mixture: Mixture) -> Arranged:
            shares = posterior(mixture, self, lattice, _POINTS)
            scores = completed(mixture, self, shares, lattice)
            chances = shares @ (_ANCHOR / (_ANCHOR + shares.T @ seen))
            rows = rng.random(len(scores)) < np.where(self.known, chances, 0.0).max(1)
            known = self.take(rows), certain[rows], lattice
            scores[rows] = completed(start, *known)
            return Arranged.of(scores, self.codes)

        return redrawn, order


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
