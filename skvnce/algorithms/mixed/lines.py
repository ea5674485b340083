"""Joint moves of latent variables that are nearly the same.

Where two columns that nearly repeat each other are both missing, a draw of one given
the other hardly moves: after a sweep 1 - r**2 of the squared distance is forgotten.  So
in rows that miss all columns of such a group, the draw of the first one moves all
along a line,

    z + t w,   t ~ N(-w'K (z - mean) / w'Kw, 1 / w'Kw)                             (1)

which leaves their normal distribution unchanged (Gibbs sampling in other coordinates).
"""

from functools import reduce
from typing import NamedTuple, Self

import numpy as np

from skvnce.algorithms.mixed.normal import quantile

# a draw of one given the other forgets 1 - 0.95^2, a tenth
_SAME = 0.95  # correlation above which columns form a group


class Line(NamedTuple):
    """A line along which the latent variables of a group move, eq. (1)."""

    members: np.ndarray  # int, latent variables; the first one names the group
    direction: np.ndarray  # (latents,), w, and ``w'K / w'Kw``
    slopes: np.ndarray  # (latents,)
    # (n,), ``slopes @ mean``, of each row if their means differ
    offset: float | np.ndarray
    scale: float  # standard deviation of t

    @classmethod
    def of(
        cls,
        members: np.ndarray,
        covariance: np.ndarray,
        precision: np.ndarray,
        mean: np.ndarray,
    ) -> Self:
        """Make the line along which members have their correlations with the first."""
        direction = np.zeros(len(mean))
        signs = np.sign(covariance[members[0], members])
        direction[members] = signs * np.sqrt(covariance[members, members])
        slopes = direction @ precision
        size = slopes @ direction
        slopes = slopes / size
        return cls(members, direction, slopes, float(slopes @ mean), float(size**-0.5))

    def moved(self, z: np.ndarray, uniform: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Move latent variables (latents, n_rows) of rows by uniform numbers."""
        offset = self.offset[rows] if np.ndim(self.offset) else self.offset
        step = offset - self.slopes @ z + self.scale * quantile(uniform)
        return z + np.outer(self.direction, step)


def lines_of(
    places: list[int], covariance: np.ndarray, precision: np.ndarray, mean: np.ndarray
) -> dict[int, Line]:
    """Make the lines of the groups among these latent variables, by first member."""
    found = {}
    if len(places) < 2:
        return found
    for members in groups(covariance[np.ix_(places, places)]):
        own = np.array(places)[members]
        found[int(own[0])] = Line.of(own, covariance, precision, mean)
    return found


def groups(covariance: np.ndarray) -> list[np.ndarray]:
    """List the groups of several variables that strong correlations connect."""
    scale = np.sqrt(covariance.diagonal())
    linked = np.abs(covariance) > _SAME * np.outer(scale, scale)
    if linked.sum() <= len(linked):
        return []
    label = np.arange(len(linked))
    while True:
        least = np.where(linked, label, len(label)).min(1)
        if (least == label).all():
            break
        label = least
    found = [np.flatnonzero(label == first) for first in np.unique(label)]
    return [members for members in found if len(members) > 1]


def shared(rows: list[np.ndarray]) -> np.ndarray:
    """Find the rows that all lists of different rows contain."""
    return reduce(lambda a, b: np.intersect1d(a, b, assume_unique=True), rows)
