"""Draws of sums over a large table, from draws of some of its rows.

Data augmentation needs, for parameters t near their estimate t0, sums of completed rows
of the whole table.  Let E(t) be their expectation over a sample of the rows, D(t) the
sums over the sample with drawn cells, and c the ratio of the weights of table and
sample.  Then

    E_all(t0) + c (E(t) - E(t0)) + sqrt(c) (D(t) - E(t))                           (1)

has the expectation of the sums over the table, up to the error of their change from t0
to t that the sample makes, and the covariance that it estimates.  Posterior draws
differ from t0 by the order of their standard error; so the relative error of eq. (1)
decreases as one over the root of the number of rows of the sample.  E_all(t0) is one
pass over the table, and draws need no other one.
"""

from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce.algorithms.gaussian import em
from skvnce.algorithms.gaussian.em import Moments
from skvnce.algorithms.gaussian.rows import Rows, Table
from skvnce.distributions.normal import Normal, prepare


class Whole(NamedTuple):
    """Expected sums over a whole table at the estimate, and its weight.

    Attributes
    ----------
    moments : Moments
        Relative to the mean of the estimate.
    total : Tensor of shape ()
    """

    moments: Moments
    total: Tensor

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Convert to arrays, which can be stored."""
        return tuple(part.numpy() for part in (*self.moments, self.total))

    @classmethod
    def from_arrays(cls, first: np.ndarray, second: np.ndarray, total: object) -> Self:
        """Convert back."""
        moments = Moments(torch.as_tensor(first), torch.as_tensor(second))
        return cls(moments, torch.as_tensor(total))


def whole_at(normal: Normal, table: Table) -> Whole:
    """Compute the expected sums at the estimate."""
    moments, _ = table.summed(partial(em.e_step, prepare(normal)))
    return Whole(moments, table.total)


class Enlarged:
    """Eq. (1).

    Parameters
    ----------
    rows : Rows
        The sample.
    estimate : Normal
    whole : Whole
        At the estimate.
    """

    def __init__(self, rows: Rows, estimate: Normal, whole: Whole) -> None:
        self.rows, self.estimate, self.whole = rows, estimate, whole
        self.expected, _ = em.e_step(prepare(estimate), rows)

    def drawn(self, normal: Normal) -> Moments:
        """Draw sums over the table, relative to the mean of `normal`."""
        c, shift = self.whole.total / self.rows.total, self.estimate.mean - normal.mean
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
    drawn, total = Enlarged(rows, start, whole).drawn, whole.total
    return em.chain_of_draws(start, rows, drawn, total, strength, n_draws=n_draws)
