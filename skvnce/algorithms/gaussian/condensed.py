"""Tables with fewer rows for which EM computes the same sums.

EM for normal distributions uses rows of the same pattern of missing cells through their
weight, mean and scatter only.  So k + 1 rows with the same weight, mean and scatter can
replace all rows that observe the same k columns: with ``S = L L'`` the scatter, w the
weight, and the columns of U the vertices of a simplex,

    x_j = mean + sqrt((k + 1) / w) L u_j,  of weight w / (k + 1),                  (1)

where ``U U' = I`` and ``U 1 = 0``.
"""

from functools import cache

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.distributions.patterns import patterns

# rows of one pattern may all have the weight zero
_LEAST = 1e-300  # weight of a pattern, as a divisor


def condensed(data: Incomplete, weights: Tensor) -> tuple[Incomplete, Tensor]:
    """Replace the rows of each pattern by at most k + 1 rows, see eq. (1).

    `data`: of shape (n, features); `weights` (n,): positive.  Returns `data`;
    `weights`: the same objects if more than half of the rows would be left.
    """
    masks, pattern = patterns(data.observed)
    counts, enough = torch.bincount(pattern, minlength=len(masks)), masks.sum(1) + 1
    if 2 * torch.minimum(counts, enough).sum() > len(pattern):
        return data, weights
    many = counts > enough
    alone = ~many[pattern]
    found = [(data.x[alone], data.observed[alone], weights[alone])]
    order = pattern.argsort(stable=True)
    rows = order.split(counts.tolist())
    for number in many.nonzero()[:, 0].tolist():
        own, mask = rows[number], masks[number]
        found.append(_simplex(data.x[own], mask, weights[own]))
    x, observed, weights = map(torch.cat, zip(*found, strict=True))
    return Incomplete(x, observed), weights


def n_condensed(observed: Tensor) -> int:
    """Count the rows that are left of a table with this mask (n, features)."""
    masks, pattern = patterns(observed)
    counts = torch.bincount(pattern, minlength=len(masks))
    return int(torch.minimum(counts, masks.sum(1) + 1).sum())


def _simplex(x: Tensor, mask: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Replace rows of one pattern; return cells, mask and weights of the new rows."""
    cells, total = x[:, mask], weights.sum().clamp(min=_LEAST)
    k = cells.shape[1]
    mean = weights @ cells / total
    centred = cells - mean
    scatter = (centred * weights[:, None]).T @ centred
    # not Cholesky, because a scatter may be singular
    values, vectors = torch.linalg.eigh(scatter)
    # rounding may make eigenvalues of zero negative
    root = vectors * values.clamp(min=0).sqrt()
    made = x.new_zeros(k + 1, len(mask))
    made[:, mask] = mean + ((k + 1) / total).sqrt() * vertices(k).to(x) @ root.T
    return made, mask.expand(k + 1, -1), (total / (k + 1)).expand(k + 1)


@cache
def vertices(k: int) -> Tensor:
    """List vertices of a simplex with orthonormal columns of sum 0; (k + 1, k).

    They are the last columns of a Householder reflection that maps the first axis to
    the diagonal.
    """
    normal = torch.full((k + 1,), -((k + 1) ** -0.5), dtype=torch.float64)
    normal[0] += 1.0
    square = normal @ normal
    reflection = torch.eye(k + 1, dtype=torch.float64)
    if k:
        reflection -= 2 / square * torch.outer(normal, normal)
    return reflection[:, 1:]
