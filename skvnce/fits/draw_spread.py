"""Spread of the draws of an average of models, chosen by draws of held-out cells.

A pool of models whose draws have the right spread draws too widely: the differences of
the models' means come on top (Gneiting and Ranjan 2013, Combining predictive
distributions, theorem 3.1).  So draws X of numbers are moved towards their mean m,

    m + s (X - m),                                                                   (1)

by a factor s of each column with which the share u of the draws below the truth has the
variance of a uniform number:

    mean (u - 1 / 2)^2 = 1 / 12 + sum_k w_k^2 / (6 n),                               (2)

where the last term is the noise of u, from n draws of each model k of weight w_k.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skvnce.fitted.pools import narrowed

_OF_KIND = 50  # cells that those of all columns count for, as for weights
# a pool is never narrower than its models, so a factor above one would mend these
_SPREADS = np.linspace(0.7, 1.0, 31)


class HeldOutDraws(NamedTuple):
    """Draws of models, and the truth."""

    draws: Sequence[np.ndarray]  # (n_draws, n, n_nodes), of each model
    nodes: np.ndarray  # (n, n_nodes)
    hidden: np.ndarray  # (n, n_nodes), bool, the cells that were drawn, and are known


def spreads_of(
    found: HeldOutDraws, weights: np.ndarray, is_continuous: np.ndarray
) -> np.ndarray:  # (n_nodes,)
    """Choose the factor of each column by eq. (2).

    `weights`: (n_models, n_nodes), those of a column add up to one. `is_continuous`:
    (n_nodes,), bool, numbers whose values do not repeat: with ties, u is not uniform.
    Result: at most 1; 1 for the other columns.
    """
    spreads = np.ones(len(is_continuous))
    rows, column = (found.hidden & is_continuous).nonzero()
    if not len(rows):
        return spreads
    cells = np.stack([one[:, rows, column] for one in found.draws])
    truth, own = found.nodes[rows, column], weights[:, column]
    means = (own * cells.mean(1)).sum(0)
    noise = (own**2).sum(0) / (6 * cells.shape[1])
    excess = np.empty((len(_SPREADS), len(rows)))
    for one, spread in zip(excess, _SPREADS, strict=True):
        share = (own * (narrowed(cells, means, spread) < truth).mean(1)).sum(0)
        one[:] = (share - 0.5) ** 2 - 1 / 12 - noise
    of_kind = _OF_KIND * excess.mean(1)
    for j in np.flatnonzero(is_continuous):
        total = excess[:, column == j].sum(1) + of_kind
        spreads[j] = _SPREADS[abs(total).argmin()]
    return spreads
