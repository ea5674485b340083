"""Draws of sums over a large table, from draws of some of its rows.

Data augmentation needs, for parameters t near their estimate, sums of completed rows
of the whole table.  Let t0 be the point of the last E-step, E(t) their expectation over
a sample of the rows, D(t) the sums over the sample with drawn cells, and c the ratio of
the weights of table and sample.  Then

    E_all(t0) + c (E(t) - E(t0)) + sqrt(c) (D(t) - E(t))                           (1)

has the expectation of the sums over the table, up to the error of their change from t0
to t that the sample makes, and the covariance that it estimates.  That error is t - t0
times one over the root of the number of rows of the sample.  The last E-step of the fit
has computed E_all(t0), so draws need no pass over the table.
"""

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce.algorithms.gaussian import em
from skvnce.algorithms.gaussian.em import Moments
from skvnce.algorithms.gaussian.rows import Rows
from skvnce.distributions.normal import Normal, prepare


class Whole(NamedTuple):
    """Expected sums over a whole table, and its weight.

    Attributes
    ----------
    point : Normal
        Near the estimate: t0 of eq. (1).
    moments : Moments
        Expected there, relative to its mean.
    total : Tensor of shape ()
    """

    point: Normal
    moments: Moments
    total: Tensor

    def to_arrays(self) -> tuple[np.ndarray, ...]:
        """Convert to arrays, which can be stored."""
        return tuple(part.numpy() for part in (*self.point, *self.moments, self.total))

    @classmethod
    def from_arrays(cls, *arrays: np.ndarray) -> Self:
        """Convert back."""
        mean, covariance, first, second, total = map(torch.as_tensor, arrays)
        return cls(Normal(mean, covariance), Moments(first, second), total)


class Enlarged:
    """Eq. (1).

    Parameters
    ----------
    rows : Rows
        The sample.
    whole : Whole
    """

    def __init__(self, rows: Rows, whole: Whole) -> None:
        self.rows, self.whole = rows, whole
        self.expected, _ = em.e_step(prepare(whole.point), rows)

    def drawn(self, normal: Normal) -> Moments:
        """Draw sums over the table, relative to the mean of `normal`."""
        c, shift = (
            self.whole.total / self.rows.total,
            self.whole.point.mean - normal.mean,
        )
        found, _ = em.e_step(prepare(normal), self.rows)
        noise = em.drawn_moments(normal, self.rows.batches, self.rows.weights)
        base = self.whole.moments.shifted(shift, self.whole.total)
        own = self.expected.shifted(shift, self.rows.total)
        parts = zip(base, own, found, noise, strict=True)
        return Moments(
            *(a + c * (e - b) + torch.sqrt(c) * (d - e) for a, b, e, d in parts)
        )


def posterior_draws(
    start: Normal, rows: Rows, whole: Whole | None, strength: float, *, n_draws: int
) -> list[Normal]:
    """Draw parameters given a table: the rows, or the one that they are a sample of."""
    if whole is None:
        return em.posterior_draws(
            start, rows.data, rows.weights, strength, n_draws=n_draws
        )
    drawn, total = Enlarged(rows, whole).drawn, whole.total
    return em.chain_of_draws(start, rows, drawn, total, strength, n_draws=n_draws)
