"""The M-step by generalised score matching: a quadratic in (K, b), with exact zeros.

For the truncated Gaussian the loss of `objectives.score_matching` is
``sum_j theta_j' Gamma_j theta_j / 2 - g_j' theta_j`` with ``theta_j = (K_j, b_j)``,
``u = (x, -1)``, ``Gamma_j = E[h(x_j) u u']`` and ``g_j = E[h'(x_j) u] + E[h(x_j)] e_j``
(Yu, Drton and Shojaie 2019, section 3).  The columns are centred because the quadratic
is far better conditioned there; without a penalty of b the minimum does not depend on
the centre.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.graph import (
    DIAGONAL_FLOOR,
    Method,
    MStep,
    Penalty,
    Solution,
    Theta,
    completed_by_gibbs,
    off_diagonal,
)
from skvnce.objectives.score_matching import Weight, saturating_weight
from skvnce.training.proximal import Quadratic, minimise

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
    stats: Statistics, start: Theta, centre: Tensor, penalty: Penalty, tol: float
) -> Solution:
    """Minimise the loss plus the penalty.

    Parameters
    ----------
    stats : Statistics
        Of columns scaled to unit spread.
    start : Theta
        In the same centre and scale as `stats`.
    centre : Tensor of shape (features,)
    penalty : Penalty
    tol : float
        Certified duality gap at which to stop, relative to the loss.
    """
    d, width = stats.target.shape
    weight = torch.zeros_like(stats.target)
    weight[:, :d] = penalty.weight
    lower = torch.full_like(weight, -torch.inf)
    lower.diagonal().fill_(DIAGONAL_FLOOR)
    quadratic = _quadratic(stats, penalty, centre)
    point = torch.cat([start.precision, start.linear[:, None]], 1)[:, :width]
    found = minimise(quadratic, point, weight, lower, tol=tol)
    linear = found.point[:, d] if width > d else torch.zeros_like(start.linear)
    theta = Theta(found.point[:, :d].contiguous(), linear, start.log_scale)
    return Solution(theta, found.objective, found.gap)


def _quadratic(stats: Statistics, penalty: Penalty, centre: Tensor) -> Quadratic:
    """Write the loss as a quadratic over matrices (K, b) with symmetric K."""
    d, width = stats.target.shape
    ridge = torch.zeros_like(stats.target)
    ridge[:, :d] = penalty.ridge * off_diagonal(d)
    origin = torch.cat([centre, centre.new_ones(width - d)])  # (K, b) @ origin is b
    shrunk = penalty.ridge_linear * torch.outer(origin, origin) * (width > d)
    # the inverse of a compression is at most the compression of the inverse, so that
    # the symmetric problem is bounded by its rows taken alone
    rows = stats.gamma + ridge.diag_embed() + shrunk
    factor, failed = torch.linalg.cholesky_ex(rows)

    def symmetric(matrix: Tensor) -> Tensor:
        square = matrix[:, :d]
        return matrix.index_copy(1, torch.arange(d), (square + square.T) / 2)

    def product(point: Tensor) -> Tensor:
        return symmetric(torch.bmm(rows, point[:, :, None]).squeeze(-1))

    def inverse_form(residual: Tensor) -> Tensor:
        if failed.any():  # no ridge and too few rows: nothing can be certified
            return residual.new_tensor(torch.inf)
        half = torch.linalg.solve_triangular(factor, residual[:, :, None], upper=False)
        return half.square().sum()

    return Quadratic(product, symmetric(stats.target), inverse_form)


def score_matching(
    data: Incomplete,
    centre: Tensor,
    *,
    fit_linear: bool,
    tol: tuple[float, float] = (1e-3, 1e-8),
    weight: Weight = saturating_weight,
) -> Method:
    """Build the method; see `minimise_loss`."""

    def solve(
        stats: Statistics, start: Theta, penalty: Penalty, tol: float
    ) -> Solution:
        return minimise_loss(stats, start, centre, penalty, tol)

    m_step = MStep(
        summarise=lambda x: statistics(x, centre, fit_linear, weight),
        merge=running_mean,
        solve=solve,
        tol=tol,
    )
    return Method(completed_by_gibbs(data), m_step)
