"""Accelerated proximal gradient for a convex quadratic with an L1 term.

Minimises ``f(A) + sum_kl weight_kl |A_kl|`` subject to ``lower_kl <= A_kl <=
upper_kl`` over a linear space of matrices that contains every gradient, with
``f(A) = <A, Q A> / 2 - <G, A>``.  The duality gap is bounded at every stopping point,
which needs no reference solution.  Steps are in units of the curvature of each entry, a
diagonal metric in which the L1 term has its closed form.

Beck and Teboulle (2009), FISTA; O'Donoghue and Candes (2015), adaptive restart.
"""

from collections.abc import Callable
from math import nan
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import diags_array
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor, as_tensor

from skvnce._core.progress import tell

# an entry without curvature would make infinite steps
_FLAT = 1e-6  # minimum divisor, relative to the largest diagonal entry


class Quadratic(NamedTuple):
    """The smooth part f, a bound of its inverse, and its diagonal."""

    product: Callable[[Tensor], Tensor]  # a -> Q A
    target: Tensor  # G
    inverse_form: Callable[[Tensor], Tensor]  # R -> an upper bound of <R, Q^-1 R>
    diagonal: Tensor  # curvature of f along each entry, positive: the unit of steps


class Certified(NamedTuple):
    """A point, its objective, an upper bound of its suboptimality, the iterations."""

    point: Tensor
    objective: float
    gap: float
    n_iter: int
    curvature: float = nan


def minimise(
    quadratic: Quadratic,
    # starting point, L1 weights (>= 0, infinite: the entry is zero), lower bounds (-inf
    # for none; a bounded entry has no L1 weight), upper bounds (inf for none)
    start: Tensor,
    weight: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    # stop when the certified gap is below ``tol * max(1, |objective|)``
    tol: float = 1e-8,
    # number of iterations after which the best point is returned, with its gap
    max_iter: int = 5000,
    # that of a similar problem; None estimates it.  If it is too small for a step, it
    # is doubled
    curvature: float | None = None,
    interval: int = 10,  # number of iterations between computations of the gap
) -> Certified:
    """Minimise the quadratic plus the weighted L1 term."""
    metric = quadratic.diagonal.clamp(min=_FLAT * float(quadratic.diagonal.max()))
    if curvature is None:
        curvature = _largest_eigenvalue(quadratic.product, metric)
    # the projection of the start has no threshold that would remove excluded entries
    start = start.where(weight < torch.inf, 0.0)
    point = ahead = _prox(start, torch.zeros_like(weight), lower, upper)
    product, momentum = quadratic.product(ahead), 1.0
    for n_iter in range(1, max_iter + 1):
        unit = curvature * metric
        descended = ahead - (product - quadratic.target) / unit
        following = _prox(descended, weight / unit, lower, upper)
        move = following - point
        if dot((ahead - following) * metric, move) > 0:
            momentum = 1.0  # restart because the momentum points uphill
        faster = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        before, product_before = ahead, product
        ahead = torch.add(following, move, alpha=(momentum - 1) / faster)
        point, momentum, product = following, faster, quadratic.product(ahead)
        path = ahead - before
        if dot(path, product - product_before) > curvature * dot(path * metric, path):
            curvature = 2 * curvature  # the power iteration missed a direction
        # each computation of the gap takes a further product and an inverse form
        if n_iter % interval == 0 or n_iter == max_iter:
            tell("iteration", n_iter)
            objective, gap = certify(quadratic, point, weight, lower, upper)
            if gap <= tol * max(1.0, abs(objective)):
                break
    return Certified(point, objective, gap, n_iter, curvature)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Sum the products of the entries, without a matrix of them."""
    return torch.vdot(a.flatten(), b.flatten())


def certify(
    quadratic: Quadratic, point: Tensor, weight: Tensor, lower: Tensor, upper: Tensor
) -> tuple[float, float]:
    """Compute the objective and an upper bound of its distance to the minimum.

    With u the feasible dual point nearest to -gradient and delta = -gradient - u, the
    duality gap is ``weight |A| - <u, A> + <delta, Q^-1 delta> / 2``, plus the slack of
    the lower bounds; upper bounds have multipliers if there is no slack.
    """
    gradient = quadratic.product(point) - quadratic.target
    dual = -gradient.clamp(-weight, weight)
    bounded = lower > -torch.inf
    multiplier = gradient.clamp(min=0).where(bounded, gradient.new_zeros(()))
    slack = (multiplier * (point - lower).where(bounded, point.new_zeros(()))).sum()
    delta = -gradient - dual + multiplier
    delta += gradient.clamp(max=0).where(point >= upper, gradient.new_zeros(()))
    l1 = (weight.where(point != 0, 0.0) * point.abs()).sum()  # weights may be infinite
    complementarity = l1 - (dual * point).sum()
    smooth = ((gradient - quadratic.target) * point).sum() / 2
    objective = smooth + l1
    gap = complementarity + slack + quadratic.inverse_form(delta) / 2
    return float(objective), float(gap)


def _largest_eigenvalue(product: Callable[[Tensor], Tensor], metric: Tensor) -> float:
    """Estimate the largest eigenvalue of Q in the metric by power iteration.

    The result is increased by a fifth.  The iteration starts from a fixed vector and
    may miss the largest eigenvalue; `minimise` detects that.
    """
    root = metric.sqrt()
    vector = root * torch.linspace(1, 2, metric.numel()).to(metric).view(metric.shape)
    for _ in range(8):
        vector = product(vector / vector.norm() / root) / root
    return 1.2 * float(vector.norm())


def _prox(point: Tensor, threshold: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Soft-threshold, then clip to the bounds."""
    return (point - point.clamp(-threshold, threshold)).clamp(lower, upper)


# ----------------------------------------
# Minimisation of a quadratic over some of its entries, by conjugate gradients.


# the error of the minimum is of the order of the square of the residual
_PRECISE = 1e-6  # residual, relative to the target
_STEPS = 3000


def minimise_over(quadratic: Quadratic, free: Tensor) -> float:
    """Minimise ``<A, Q A> / 2 - <G, A>`` where A is zero outside the free entries.

    `free`: the linear space of A restricted to these must contain their gradients.
    Returns the minimum, to about ``1e-12 |G|^2`` over the smallest eigenvalue of Q.
    """
    target = quadratic.target[free]

    def embed(values: np.ndarray) -> Tensor:
        zeros = quadratic.target.new_zeros(free.shape)
        return zeros.masked_scatter(free, as_tensor(values))

    def product(values: np.ndarray) -> np.ndarray:
        return quadratic.product(embed(values))[free].numpy()

    solution, _ = cg(
        LinearOperator((len(target),) * 2, product, dtype=float),
        target.numpy(),
        rtol=_PRECISE,
        maxiter=_STEPS,
        # entries may differ strongly in curvature, to which the steps are adapted
        M=diags_array(1 / quadratic.diagonal[free].numpy()),
    )
    point = embed(solution)
    return float((point * (quadratic.product(point) / 2 - quadratic.target)).sum())
