"""Quantiles of missing numbers by a latent normal model.

The latent variable of a cell is normal given all others, and the chains of `fill` draw
the others.  So a mixture of these normal distributions represents that of the cell, and
some quantiles represent each of them.  Cells are increasing functions of the latents.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.mixed.columns import Latents, Limits
from skvnce.algorithms.mixed.fill import Chains, paired_sweeps
from skvnce.algorithms.mixed.gibbs import Ends, Factors, Shown, truncated
from skvnce.algorithms.mixed.groups import Groups
from skvnce.algorithms.mixed.normal import quantile
from skvnce.distributions.quantiles import weighted_quantiles
from skvnce.variational.base import Uniforms

# an odd number, so that one of them is the median
_LEVELS = (np.arange(9) + 0.5) / 9


class Given(NamedTuple):
    """The distribution of a latent variable given the others, after a sweep."""

    # int (n,), the same after each sweep: those of one chain, and then those of the
    # other
    rows: np.ndarray
    mean: np.ndarray  # (n,)
    scale: float
    ends: Ends  # (n,), or None, limits of the cells as scores

    def points(self) -> np.ndarray:
        """Compute quantiles of both chains; (n_points, n / 2)."""
        mean = self.mean[:, None]
        if self.ends is None:
            found = mean + self.scale * quantile(_LEVELS)
        else:
            low, high = (end[:, None] for end in self.ends)
            found = truncated(mean, self.scale, low, high, _LEVELS)
        return np.concatenate(np.split(found, 2), axis=1).T


def quantiles(
    latents: Latents,
    models: list[Factors],
    data: Incomplete,
    chains: Chains,
    uniforms: Uniforms,
    levels: Tensor,
    limits: Limits | None = None,
    groups: Groups | None = None,
) -> Tensor:
    """Find quantiles of missing numbers and ordinal levels; (n_levels, n, features).

    Those of nominal columns are 0.  See `fill.predict` for the parameters.
    """
    given: dict[tuple, list[Given]] = defaultdict(list)

    def add(rows: np.ndarray, latent: int, *parts: object) -> None:
        # cells with limits are shown apart from those without
        given[latent, parts[-1] is None].append(Given(rows, *parts))

    shown = Shown(add, lambda *_: None)
    sweeps = latents, models, data, chains, uniforms, limits, shown, groups
    for _ in paired_sweeps(*sweeps):
        pass
    found = data.x.new_zeros(len(levels), *data.x.shape)
    columns = {latent: (j, marginal) for j, latent, marginal in latents.ordered}
    for (latent, _), parts in given.items():
        (j, marginal), rows = columns[latent], parts[0].rows
        points = np.concatenate([one.points() for one in parts])
        points = torch.from_numpy(points)
        scores = weighted_quantiles(points, points.new_ones(()), levels)
        found[:, rows[: len(rows) // 2], j] = marginal.cells(scores)
    return data.with_values(found)
