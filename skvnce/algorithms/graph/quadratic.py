"""M-steps whose loss is a quadratic in (K, b): exact zeros and a certified gap.

A point is the matrix (K, b) of shape (features, width), with symmetric K; width is
features + 1 with the linear term and features without.
"""

import torch
from torch import Tensor

from skvnce.algorithms.graph.em import (
    DIAGONAL_FLOOR,
    Penalty,
    Solution,
    Theta,
    off_diagonal,
)
from skvnce.training.proximal import Quadratic, minimise


def symmetric(matrix: Tensor) -> Tensor:
    """Make K symmetric: the projection on the space of the points."""
    d = len(matrix)
    square = matrix[:, :d]
    return matrix.index_copy(1, torch.arange(d), (square + square.T) / 2)


def as_point(theta: Theta, width: int) -> Tensor:
    """Write theta as a matrix."""
    return torch.cat([theta.precision, theta.linear[:, None]], 1)[:, :width]


def origin(centre: Tensor, width: int) -> Tensor:
    """Return the vector that maps (K, b) to b of the columns before centring."""
    return torch.cat([centre, centre.new_ones(width - len(centre))])


def ridges(penalty: Penalty, width: int) -> Tensor:
    """Return the ridge of each entry of K, zero for b; (features, width)."""
    d = len(penalty.weight)
    strength = penalty.weight.new_zeros(d, width)
    strength[:, :d] = penalty.ridge * off_diagonal(d)
    return strength


def penalised(quadratic: Quadratic, penalty: Penalty, centre: Tensor) -> Quadratic:
    """Add the quadratic penalties; the bound of the inverse remains valid."""
    width = quadratic.target.shape[1]
    ridge, to_linear = ridges(penalty, width), origin(centre, width)
    strength = penalty.ridge_linear * (width > len(centre))

    def product(point: Tensor) -> Tensor:
        shrunk = strength * torch.outer(point @ to_linear, to_linear)
        return quadratic.product(point) + ridge * point + symmetric(shrunk)

    along = symmetric(strength * to_linear.square().expand_as(ridge))
    return quadratic._replace(
        product=product, diagonal=quadratic.diagonal + ridge + along
    )


def minimise_quadratic(
    quadratic: Quadratic,
    start: Theta,  # in the same centre and scale
    penalty: Penalty,  # the function adds its L1 term
    tol: float,  # certified duality gap at which to stop, relative to the loss
    ceiling: Tensor | None = None,  # (features,), upper bounds of K_jj
    **options: object,  # further ones of `proximal.minimise`
) -> Solution:
    """Minimise a quadratic over (K, b) of scaled columns plus the L1 term."""
    d, width = quadratic.target.shape
    weight = torch.zeros_like(quadratic.target)
    weight[:, :d] = penalty.weight
    lower = torch.full_like(weight, -torch.inf)
    lower.diagonal().fill_(DIAGONAL_FLOOR)
    upper = torch.full_like(weight, torch.inf)
    if ceiling is not None:
        upper.diagonal().copy_(ceiling)
    limits = weight, lower, upper
    found = minimise(quadratic, as_point(start, width), *limits, tol=tol, **options)
    linear = found.point[:, d] if width > d else torch.zeros_like(start.linear)
    theta = Theta(found.point[:, :d].contiguous(), linear, start.log_scale)
    return Solution(theta, found.objective, found.gap, found.curvature)
