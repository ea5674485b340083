"""Rows that are completed by a mixture of normals, at which autoencoders start.

One mixture is fitted to the scores of the columns by a few rounds of EM, which takes
the time of some tens of steps of an autoencoder.  Its draws are complete rows with the
groups and bends of the table: an autoencoder that learns them together with the rows
themselves needs fewer steps than one that starts at the normal distribution alone.
"""

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian import em as normal_em
from skvnce.algorithms.mixture import em, model
from skvnce.algorithms.mixture.model import Arranged, Mixture
from skvnce.algorithms.vgi.initial import Start
from skvnce.fits.mixtures import STRENGTH, count_components

_ROUNDS = 12  # of EM, those of `MixtureImputer`
_TABLES = 3  # number of completions of each row
_WIDE = 100  # columns from which an autoencoder starts at a normal distribution
_SHARE = 0.7  # of completed rows in a batch


def fit_mixture(start: Start, hidden: Tensor) -> Mixture | None:
    """Fit a mixture to scores of numbers, without held-out cells.

    `hidden` (bool (n, features)).  Returns None if there are categories, if the table
    has too few rows, or too many columns, for several components, or if EM fails.
    """
    n, d = start.data.x.shape
    size = count_components("auto", n, d)
    if start.families.levels or size == 1 or d >= _WIDE:
        return None
    data, normal = start.without(hidden).data, start.normal
    filled = normal_em.conditional_mean(normal, data).numpy()
    arranged, weights = _arranged(data), start.weights.numpy()
    prior = em.Prior(STRENGTH * d, normal.covariance.numpy(), normal.mean.numpy())
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


def with_completed(
    start: Start, hidden: Tensor, mixture: Mixture
) -> tuple[Incomplete, Tensor, Tensor]:
    """Add completed rows to rows; cells of rounded columns are values of these.

    Returns `data`; `hidden` (bool (n_rows, features)), the held-out cells; completed
    rows have none; `weights` (n_rows,).
    """
    seen, at = start.without(hidden).data, start.families.rounded
    tables = completed(mixture, seen, _TABLES)
    if len(at):
        tables = tables.index_copy(-1, at, start.families.nearest(tables[..., at]))
        tables = seen.with_values(tables)
    more = tables.flatten(0, 1).to(start.data.x)
    every = torch.ones_like(more, dtype=torch.bool)
    data = Incomplete(
        torch.cat([start.data.x, more]), torch.cat([start.data.observed, every])
    )
    own, others = start.weights * (1 - _SHARE), start.weights * _SHARE / _TABLES
    weights = torch.cat([own, others.repeat(_TABLES)])
    return data, torch.cat([hidden, ~every]), weights


def _arranged(data: Incomplete) -> Arranged:
    return Arranged.of(data.x.where(data.observed, torch.nan).double().numpy())


def _generator() -> np.random.Generator:
    """Make a generator of numpy from torch's stream."""
    return np.random.default_rng(int(torch.randint(2**31 - 1, ())))
