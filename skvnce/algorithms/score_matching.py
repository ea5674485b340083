"""The M-step by generalised score matching: a quadratic in (K, b), with exact zeros.

For the truncated Gaussian the loss of `objectives.score_matching` is
``sum_j theta_j' Gamma_j theta_j / 2 - g_j' theta_j`` with ``theta_j = (K_j, b_j)``,
``u = (x, -1)``, ``Gamma_j = E[h(x_j) u u']`` and ``g_j = E[h'(x_j) u] + E[h(x_j)] e_j``
(Yu, Drton and Shojaie 2019, section 3).  Penalties act on K alone, and b is free, so
that the minimum does not depend on the origin; the columns are centred all the same,
because the quadratic is far better conditioned there.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce.algorithms.graph import MStep, Solution, Theta, off_diagonal
from skvnce.objectives.score_matching import Weight, saturating_weight
from skvnce.training.proximal import Quadratic, minimise

DIAGONAL_FLOOR = 0.25  # least K_jj, for columns scaled to unit spread
_COLUMNS_AT_ONCE = 32


class Statistics(NamedTuple):
    """Averages over rows, and over draws of the missing cells.

    Attributes
    ----------
    gamma : Tensor of shape (features, width, width)
        E[h(x_j) u u'] for each j; width is features + 1 with the linear term.
    target : Tensor of shape (features, width)
        E[h'(x_j) u] + E[h(x_j)] e_j.
    """

    gamma: Tensor
    target: Tensor


def statistics(
    x: Tensor, centre: Tensor, fit_linear: bool, weight: Weight = saturating_weight
) -> Statistics:
    """Compute the statistics of completed rows; (n, features) -> Statistics."""
    h, slope = weight(x)
    u = x - centre
    if fit_linear:
        u = torch.cat([u, -u.new_ones(len(u), 1)], 1)  # (n, width)
    blocks = h.T.split(_COLUMNS_AT_ONCE)  # bounds the memory of the weighted rows
    gamma = torch.cat([(block[:, None, :] * u.T) @ u for block in blocks]).div_(len(x))
    target = slope.T @ u / len(x)
    target.diagonal().add_(h.mean(0))
    return Statistics(gamma, target)


def running_mean(old: Statistics, new: Statistics, weight: float) -> Statistics:
    """Move the statistics a fraction `weight` of the way to the new ones."""
    return Statistics(*(a.lerp_(b, weight) for a, b in zip(old, new, strict=True)))


def minimise_loss(
    stats: Statistics, start: Theta, alpha: float, ridge: float, tol: float
) -> Solution:
    """Minimise the loss plus alpha |K|_1 + ridge |K|^2 / 2 off the diagonal.

    Parameters
    ----------
    stats : Statistics
        Of columns scaled to unit spread.
    start : Theta
        In the same centre and scale as `stats`.
    alpha, ridge : float
        Penalties of the off-diagonal entries of K, both triangles counted.
    tol : float
        Certified duality gap at which to stop, relative to the loss.
    """
    d, width = stats.target.shape
    penalised = torch.zeros_like(stats.target)
    penalised[:, :d] = off_diagonal(d)
    lower = torch.full_like(penalised, -torch.inf)
    lower.diagonal().fill_(DIAGONAL_FLOOR)
    quadratic = _quadratic(stats, ridge * penalised)
    point = torch.cat([start.precision, start.linear[:, None]], 1)[:, :width]
    found = minimise(quadratic, point, alpha * penalised, lower, tol=tol)
    linear = found.point[:, d] if width > d else torch.zeros_like(start.linear)
    theta = Theta(found.point[:, :d].contiguous(), linear, start.log_scale)
    return Solution(theta, found.objective, found.gap)


def _quadratic(stats: Statistics, ridge: Tensor) -> Quadratic:
    """Write the loss as a quadratic over matrices (K, b) with symmetric K."""
    d = len(ridge)
    # the inverse of a compression is at most the compression of the inverse, so that
    # the symmetric problem is bounded by its rows taken alone
    factor, failed = torch.linalg.cholesky_ex(stats.gamma + ridge.diag_embed())

    def symmetric(matrix: Tensor) -> Tensor:
        square = matrix[:, :d]
        return matrix.index_copy(1, torch.arange(d), (square + square.T) / 2)

    def product(point: Tensor) -> Tensor:
        smooth = torch.bmm(stats.gamma, point[:, :, None]).squeeze(-1)
        return symmetric(smooth + ridge * point)

    def inverse_form(residual: Tensor) -> Tensor:
        if failed.any():  # no ridge and too few rows: nothing can be certified
            return residual.new_tensor(torch.inf)
        half = torch.linalg.solve_triangular(factor, residual[:, :, None], upper=False)
        return half.square().sum()

    return Quadratic(product, symmetric(stats.target), inverse_form)


def score_matching(
    centre: Tensor,
    *,
    fit_linear: bool,
    alpha: float,
    ridge: float,
    tol: tuple[float, float] = (1e-3, 1e-8),
    weight: Weight = saturating_weight,
) -> MStep:
    """Build the M-step; see `minimise_loss`."""
    return MStep(
        summarise=lambda x: statistics(x, centre, fit_linear, weight),
        merge=running_mean,
        solve=lambda stats, start, tol: minimise_loss(stats, start, alpha, ridge, tol),
        tol=tol,
    )
