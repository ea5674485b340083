"""Maximum likelihood of a normal distribution whose edges are known.

Covariance selection (Dempster 1972) minimises, over positive definite matrices K,

    tr(S K) - log det K,   K_ij = 0 where there is no edge                           (1)

At the minimum the inverse of K is equal to S on the diagonal and at all edges.
Newton's method finds it, see `newton` (Dahl, Vandenberghe and Roychowdhury 2008,
Covariance selection for nonchordal graphs via chordal embedding).
"""

import torch
from torch import Tensor

from skvnce.algorithms.graph.graphical_lasso import (
    Blocks,
    Point,
    Solution,
    certify,
    point_at,
    smooth_loss,
    started,
)
from skvnce.algorithms.graph.newton import newton_step

_STEPS = 200  # of conjugate gradients
_NEAR = 0.25  # Newton decrement below which the full step decreases the loss
_HALVINGS = 5
_ROUNDING = 1e-14  # of the loss


def fit_to_edges(
    covariance: Tensor,  # (latents, latents), positive definite
    start: Tensor,  # (latents, latents)
    edges: Tensor,  # (columns, columns), bool, symmetric
    blocks: Blocks,
    *,
    tol: float,  # the duality gap at which to stop
    max_iter: int = 100,
) -> Solution:
    """Minimise (1).

    `max_iter`: number of Newton steps after which the last point is returned, with its
    gap.
    """
    own = torch.eye(len(edges), dtype=torch.bool)
    weight = torch.where(edges | own, 0.0, torch.inf).to(covariance)
    free = blocks.spread(edges | own).to(covariance)
    here = started(covariance, start, weight, blocks)
    count, objective, gap = 0, torch.inf, torch.inf
    while count < max_iter and gap > tol:
        count += 1
        move = newton_step(
            covariance - here.gradient, here.gradient * free, free, _STEPS
        )
        slope = float((here.gradient * move).sum())
        here = _moved(here, move, slope, covariance)
        objective, gap = certify(here, covariance, weight, blocks)
        # such a step changes the loss by less than its rounding
        if slope > -_ROUNDING:
            break
    return Solution(here.precision, objective, gap, count)


def _moved(here: Point, move: Tensor, slope: float, covariance: Tensor) -> Point:
    """Make the full step, or a shorter one that is certain to decrease the loss."""
    decrement = (-slope) ** 0.5
    lengths = [0.5**k for k in range(_HALVINGS)]
    # near the minimum shorter steps are never necessary
    for length in lengths if decrement > _NEAR else lengths[:1]:
        found = here.precision + length * move
        smooth, root = smooth_loss(found, covariance)
        # Armijo's condition
        if smooth <= here.smooth + 1e-4 * length * slope:
            return point_at(found, smooth, root, covariance)
    # the loss is self-concordant, so that this length decreases it in any case
    found = here.precision + move / (1 + decrement)
    return point_at(found, *smooth_loss(found, covariance), covariance)
