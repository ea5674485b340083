"""Rows that are completed by a mixture of normals, at which autoencoders start.

One mixture is fitted to the scores of the columns by a few rounds of EM, which takes
the time of some tens of steps of an autoencoder.  Its draws are complete rows with the
groups and bends of the table: an autoencoder that learns them together with the rows
themselves needs fewer steps than one that starts at the normal distribution alone.
"""

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian import em as normal_em
from skvnce.algorithms.mixture import em, model
from skvnce.algorithms.mixture.model import Arranged, Mixture
from skvnce.distributions.cells import Families
from skvnce.distributions.normal import Normal
from skvnce.fits.mixtures import STRENGTH, count_components

_ROUNDS = 12  # of EM, those of `MixtureImputer`
_TABLES = 3  # number of completions of each row
_SHARE = 0.7  # of completed rows in a batch


class Rows(NamedTuple):
    """Rows of a training, and which of their cells are held out.

    Attributes
    ----------
    data : Incomplete
    hidden : Tensor of bool, of shape (n, features)
    weights : Tensor of shape (n,)
    """

    data: Incomplete
    hidden: Tensor
    weights: Tensor

    def single(self) -> Self:
        """Return scores in single precision."""
        data = Incomplete(self.data.x.float(), self.data.observed)
        return self._replace(data=data)

    def on(self, device: torch.device) -> Self:
        """Return cells on a device; the weights stay where they are."""
        return self._replace(data=self.data.on(device), hidden=self.hidden.to(device))

    def seen(self) -> Incomplete:
        """Return the cells that are not held out."""
        kept = self.data.observed & ~self.hidden
        return Incomplete(self.data.x.where(kept, 0.0), kept)


def can_start(n_rows: int, n_columns: int) -> bool:
    """Return whether a table of numbers is fitted by several components."""
    return count_components("auto", n_rows, n_columns) > 1


def fit_mixture(rows: Rows, normal: Normal) -> Mixture | None:
    """Fit a mixture to the scores of rows, without held-out cells.

    Parameters
    ----------
    rows : Rows
    normal : Normal
        Fitted to the scores.

    Returns
    -------
    Mixture or None
        None if EM fails.
    """
    data, d = rows.seen(), rows.data.x.shape[1]
    size = count_components("auto", len(data.x), d)
    filled = normal_em.conditional_mean(normal, data).numpy()
    arranged, weights = _arranged(data), rows.weights.numpy()
    covariance, mean = normal.covariance.numpy(), normal.mean.numpy()
    prior = em.Prior(STRENGTH * d, covariance, mean)
    shares, centres = em.clustered(filled, weights, size, _generator())
    given = weights[arranged.order], centres, shares[arranged.order], prior
    found = em.fit_mixture(arranged, *given, _ROUNDS).mixture
    return found if np.isfinite(found.covariances).all() else None


def completed(mixture: Mixture, data: Incomplete, n_tables: int) -> Tensor:
    """Draw the missing scores of rows; (n_tables, n, features), within their range."""
    (n, d), rng = data.x.shape, _generator()
    shape = n_tables, n
    numbers = rng.random(shape), rng.standard_normal((*shape, d)), np.empty((0, *shape))
    drawn = torch.from_numpy(model.draw(mixture, _arranged(data), *numbers)[0])
    low, high = (data.x.where(data.observed, end) for end in (torch.inf, -torch.inf))
    return data.with_values(drawn.clamp(low.amin(0), high.amax(0)))


def with_completed(rows: Rows, mixture: Mixture, families: Families) -> Rows:
    """Add completed rows to rows; cells of rounded columns are values of these."""
    seen, at = rows.seen(), families.rounded
    tables = completed(mixture, seen, _TABLES)
    if len(at):
        tables = tables.index_copy(-1, at, families.nearest(tables[..., at]))
        tables = seen.with_values(tables)
    more = tables.flatten(0, 1).to(rows.data.x)
    every = torch.ones_like(more, dtype=torch.bool)
    data = Incomplete(
        torch.cat([rows.data.x, more]), torch.cat([rows.data.observed, every])
    )
    own, others = rows.weights * (1 - _SHARE), rows.weights * _SHARE / _TABLES
    weights = torch.cat([own, others.repeat(_TABLES)])
    return Rows(data, torch.cat([rows.hidden, ~every]), weights)


def _arranged(data: Incomplete) -> Arranged:
    return Arranged.of(data.x.where(data.observed, torch.nan).double().numpy())


def _generator() -> np.random.Generator:
    """Make a generator of numpy from torch's stream."""
    return np.random.default_rng(int(torch.randint(2**31 - 1, ())))
