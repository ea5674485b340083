"""The graphical lasso for columns with one latent variable or several.

The M-step of a latent normal model minimises, over positive definite matrices K,

    tr(S K) - log det K + sum_{i != j} w_ij |K_ij|_F                                 (1)

where S is a covariance matrix, and K_ij is the block of K of the latent variables of
the columns i and j: a number, or a matrix if a column has several latent variables.  A
block is zero as a whole (group lasso; Yuan and Lin 2006), so that a column is one node
of the graph.  Proximal gradient steps have the step sizes of Barzilai and Borwein and
are shortened until they decrease a quadratic bound of (1) (Rolfs, Rajaratnam, Guillot,
Wong and Maleki 2012, Iterative thresholding for sparse inverse covariance estimation).
They find the blocks that are zero.  Every few steps, one step of Newton's method moves
the others, and sets blocks to zero that would leave their half-space.  The duality gap
bounds the difference from the minimum.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce._core.training.proximal import dot

# ----------------------------------------
# Steps of Newton's method for normal log-likelihoods of precision matrices.
#
# With W the inverse of K, the Hessian of ``tr(S K) - log det K`` maps a step D to W D
# W. Steps of entries that are free solve
#
#   (W D W + H D)_ij = -gradient_ij,   D_ij = 0 where an entry is not free       (1)
#
# with H the Hessian of a penalty, by conjugate gradients that the diagonal of W D W
# preconditions (Dahl, Vandenberghe and Roychowdhury 2008; for graphical lassos
# Oztoprak, Nocedal, Rennie and Olsen 2012, Newton-like methods for sparse inverse
# covariance estimation).

_RESIDUAL = 0.1  # of conjugate gradients, relative to the gradient


def newton_step(
    inverse: Tensor,  # (latents, latents), W
    gradient: Tensor,  # (latents, latents), symmetric, zero where an entry is not free
    free: Tensor,  # (latents, latents), 1 where an entry is free, else 0
    n_steps: int,  # maximum number of conjugate gradients
    of_penalty: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Solve (1), more exactly as the gradient vanishes; `of_penalty` maps D to H D."""
    diagonal = inverse.diagonal()
    unit = (torch.outer(diagonal, diagonal) + inverse.square()).reciprocal_()
    move, rest = torch.zeros_like(gradient), -gradient
    towards = scaled = rest * unit
    old = dot(rest, scaled)
    least = old * min(_RESIDUAL, float(old.sqrt())) ** 2
    for _ in range(n_steps):
        if old <= least:
            break
        product = (inverse @ towards @ inverse).mul_(free)
        if of_penalty is not None:
            product += of_penalty(towards)
        step = old / dot(towards, product)
        move.add_(step * towards)
        rest.sub_(step * product)
        scaled = rest * unit
        new = dot(rest, scaled)
        towards = torch.addcmul(scaled, new / old, towards)
        old = new
    # exactly symmetric in spite of rounding
    return (move + move.T) / 2


# each computation takes a further Cholesky factor
_CERTIFY = 2  # iterations between two computations of the duality gap
_NEWTON = 8  # iterations between two steps of Newton's method
# 2**-60 of the first step is below its rounding
_HALVINGS = 60  # of a step
_SHORTER = 8  # number of lengths of a step of Newton's method
_CONJUGATE = 20  # conjugate gradients of such a step
# norms of blocks of zero are divisors
_TINY = 1e-300


class Blocks(NamedTuple):
    """The latent variables of the columns: consecutive ones belong to one column."""

    sizes: Tensor  # (columns,), int, number of latent variables of each column
    # (columns,), number of those whose differences matter: 1 less if several
    free: Tensor
    places: Tensor  # (latents,), int, the column of each latent variable
    are_single: bool  # whether each column has one latent variable

    @classmethod
    def of(cls, sizes: Tensor) -> Self:
        """Make the blocks of columns with these numbers of latent variables."""
        free = (sizes - 1).clamp(min=1).double()
        places = torch.repeat_interleave(sizes)
        return cls(sizes, free, places, bool((sizes == 1).all()))

    def sums(self, matrix: Tensor) -> Tensor:
        """Add the entries of each block; (latents, latents) -> (columns, columns)."""
        if self.are_single:
            return matrix
        width, places = len(self.sizes), self.places
        rows = matrix.new_zeros(width, matrix.shape[1]).index_add_(0, places, matrix)
        return matrix.new_zeros(width, width).index_add_(1, places, rows)

    def spread(self, matrix: Tensor) -> Tensor:
        """Repeat entries over blocks; (columns, columns) -> (latents, latents)."""
        if self.are_single:
            return matrix
        places = self.places
        return matrix[places][:, places]

    def norms(self, matrix: Tensor) -> Tensor:
        """Compute the Frobenius norm of each block."""
        return matrix.abs() if self.are_single else self.sums(matrix.square()).sqrt()

    def limited(self, matrix: Tensor, weight: Tensor) -> Tensor:
        """Shrink blocks until their norms are at most their weights."""
        share = (weight / self.norms(matrix).clamp(min=_TINY)).clamp(max=1)
        return matrix * self.spread(share)

    def shrunk(self, matrix: Tensor, weight: Tensor) -> Tensor:
        """Shrink the norms of blocks by their weights, to zero if they are smaller."""
        share = (1 - weight / self.norms(matrix).clamp(min=_TINY)).clamp(min=0)
        return matrix * self.spread(share)


class Solution(NamedTuple):
    """A precision matrix, the objective (1), and a bound of its excess."""

    precision: Tensor
    objective: float
    gap: float
    n_iter: int


class Point(NamedTuple):
    """A precision matrix, the smooth part of (1), and its gradient."""

    precision: Tensor
    smooth: Tensor
    gradient: Tensor


def smooth_loss(precision: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Compute tr(S K) - log det K, infinite if indefinite, and the Cholesky factor."""
    root, failure = torch.linalg.cholesky_ex(precision)
    if failure:
        return precision.new_tensor(inf), root
    return (covariance * precision).sum() - 2 * root.diagonal().log().sum(), root


def solve(
    covariance: Tensor,  # (latents, latents), with a positive diagonal
    start: Tensor,  # (latents, latents)
    weight: Tensor,  # (columns, columns)
    blocks: Blocks,
    *,
    tol: float,  # the duality gap at which to stop
    max_iter: int = 1000,
) -> Solution:
    """Minimise (1), with an infinite weight for blocks that have to be zero.

    After `max_iter` steps the last point is returned, with its gap.
    """
    here = start_at(covariance, start, weight, blocks)
    step, gap, objective, count = None, inf, inf, 0
    for count in range(1, max_iter + 1):
        if step is None:
            inverse = covariance - here.gradient
            # the Hessian D -> W D W has the square of the largest eigenvalue of W
            step = torch.linalg.matrix_norm(inverse, 2).square().reciprocal()
        before, here, step = here, *_moved(here, step, covariance, weight, blocks)
        # a point that does not move is the minimum up to rounding
        if count % _CERTIFY == 0 or here.precision.equal(before.precision):
            objective, gap = certify(here, covariance, weight, blocks)
            if gap <= tol or here.precision.equal(before.precision):
                break
            if count % _NEWTON == 0:
                here = newton_move(here, objective, covariance, weight, blocks)
    return Solution(here.precision, objective, gap, count)


def start_at(
    covariance: Tensor, start: Tensor, weight: Tensor, blocks: Blocks
) -> Point:
    """Start without the excluded blocks; with the diagonal if that is better."""
    precision = start * blocks.spread((weight < inf).to(start))
    diagonal = covariance.diagonal().reciprocal().diag()
    # negated, so that NaN counts as worse
    if not smooth_loss(precision, covariance)[0] < smooth_loss(diagonal, covariance)[0]:
        precision = diagonal
    return point_at(precision, *smooth_loss(precision, covariance), covariance)


def point_at(
    precision: Tensor, smooth: Tensor, root: Tensor, covariance: Tensor
) -> Point:
    """Compute the gradient at a matrix of known smooth part and Cholesky factor."""
    return Point(precision, smooth, covariance - torch.cholesky_inverse(root))


def _moved(
    here: Point, step: Tensor, covariance: Tensor, weight: Tensor, blocks: Blocks
) -> tuple[Point, Tensor]:
    """Make a step that decreases the bound; return it and the length of the next."""
    for _ in range(_HALVINGS):
        ahead = here.precision - step * here.gradient
        precision = blocks.shrunk(ahead, step * weight)
        move = precision - here.precision
        smooth, root = smooth_loss(precision, covariance)
        square = move.square().sum()
        bound = here.smooth + (here.gradient * move).sum() + square / (2 * step)
        # close to the minimum both sides are equal up to rounding
        if smooth <= bound + 1e-12 * bound.abs():
            break
        step = step / 2
    else:
        return here, step
    there = point_at(precision, smooth, root, covariance)
    curvature = (move * (there.gradient - here.gradient)).sum()
    return there, square / curvature if curvature > _TINY else step


def newton_move(
    here: Point, objective: float, covariance: Tensor, weight: Tensor, blocks: Blocks
) -> Point:
    """Make a step of Newton's method in the blocks that are not zero.

    Near them the penalty is smooth. A block whose product with its previous value
    is not positive becomes zero. Without a step that decreases the objective,
    return the point.
    """
    norms = blocks.norms(here.precision)
    # the penalty has no derivative at blocks of zero, which stay so in this step
    pull = blocks.spread((weight / norms).where(norms > 0, 0.0))
    free = blocks.spread((norms > 0).to(norms))
    gradient = torch.addcmul(here.gradient * free, pull, here.precision)
    curvature = _curvature(here.precision, pull, norms, blocks)
    inverse = covariance - here.gradient
    move = newton_step(inverse, gradient, free, _CONJUGATE, curvature)
    for k in range(_SHORTER):
        precision = here.precision + 0.5**k * move
        # the diagonal, without a penalty, cannot become zero
        stays = (weight == 0) | (blocks.sums(precision * here.precision) > 0)
        precision = precision * blocks.spread(stays.to(precision))
        smooth, root = smooth_loss(precision, covariance)
        if smooth + penalty(precision, weight, blocks) < objective:
            return point_at(precision, smooth, root, covariance)
    return here


def _curvature(
    precision: Tensor, pull: Tensor, norms: Tensor, blocks: Blocks
) -> Callable[[Tensor], Tensor] | None:
    """Map D to the product of the Hessian of the penalty and D.

    It is ``w (D - B <B, D> / |B|^2) / |B|`` for each block B, zero for numbers.
    """
    if blocks.are_single:
        return None
    square = norms.square().clamp(min=_TINY)

    def product(move: Tensor) -> Tensor:
        along = blocks.spread(blocks.sums(precision * move) / square)
        return pull * (move - along * precision)

    return product


def penalty(precision: Tensor, weight: Tensor, blocks: Blocks) -> Tensor:
    """Compute the penalty of (1)."""
    norms = blocks.norms(precision)
    return (weight.where(norms > 0, 0.0) * norms).sum()


def certify(
    point: Point, covariance: Tensor, weight: Tensor, blocks: Blocks
) -> tuple[float, float]:
    """Compute (1) and the duality gap.

    The dual of (1) maximises ``log det(S + U) + d`` over matrices U whose blocks have
    norms of at most w_ij.  Near the minimum ``K^-1 - S`` is nearly such a matrix.
    """
    objective = point.smooth + penalty(point.precision, weight, blocks)
    dual = covariance + blocks.limited(-point.gradient, weight)
    root, failure = torch.linalg.cholesky_ex(dual)
    if failure:
        return float(objective), inf
    bound = 2 * root.diagonal().log().sum() + len(dual)
    return float(objective), float(objective - bound)


# ----------------------------------------
# Maximum likelihood of a normal distribution whose edges are known.
#
# Covariance selection (Dempster 1972) minimises, over positive definite matrices K,
#
#   tr(S K) - log det K,   K_ij = 0 where there is no edge               (1)
#
# At the minimum the inverse of K is equal to S on the diagonal and at all edges.
# Newton's method finds it, as above (Dahl, Vandenberghe and Roychowdhury 2008,
# Covariance selection for nonchordal graphs via chordal embedding).

_STEPS = 200  # of conjugate gradients
_NEAR = 0.25  # Newton decrement below which the full step decreases the loss
_NEWTON_HALVINGS = 5
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
    """Minimise (1); after `max_iter` steps return the last point, with its gap."""
    diagonal = torch.eye(len(edges), dtype=torch.bool)
    weight = torch.where(edges | diagonal, 0.0, torch.inf).to(covariance)
    free = blocks.spread(edges | diagonal).to(covariance)
    here = start_at(covariance, start, weight, blocks)
    count, objective, gap = 0, torch.inf, torch.inf
    while count < max_iter and gap > tol:
        count += 1
        move = newton_step(
            covariance - here.gradient, here.gradient * free, free, _STEPS
        )
        slope = float((here.gradient * move).sum())
        here = _newton_step(here, move, slope, covariance)
        objective, gap = certify(here, covariance, weight, blocks)
        # such a step changes the loss by less than its rounding
        if slope > -_ROUNDING:
            break
    return Solution(here.precision, objective, gap, count)


def _newton_step(here: Point, move: Tensor, slope: float, covariance: Tensor) -> Point:
    """Make the full step, or a shorter one that is certain to decrease the loss."""
    decrement = (-slope) ** 0.5
    lengths = [0.5**k for k in range(_NEWTON_HALVINGS)]
    # near the minimum shorter steps are never necessary
    for length in lengths if decrement > _NEAR else lengths[:1]:
        precision = here.precision + length * move
        smooth, root = smooth_loss(precision, covariance)
        # Armijo's condition
        if smooth <= here.smooth + 1e-4 * length * slope:
            return point_at(precision, smooth, root, covariance)
    # the loss is self-concordant, so that this length decreases it in any case
    precision = here.precision + move / (1 + decrement)
    return point_at(precision, *smooth_loss(precision, covariance), covariance)
