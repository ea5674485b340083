"""The M-step of any smooth loss of (K, b, c): L-BFGS with exact zeros and a bound.

The L1 term gives exact zeros, and `DIAGONAL_FLOOR` keeps the conditionals proper.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from skvnce.algorithms.graph.em import DIAGONAL_FLOOR, Penalty, Solution, Theta
from skvnce.training.lbfgs import minimise


def minimise_loss(
    loss: Callable[[Theta], Tensor],
    start: Theta,
    centre: Tensor,  # (features,)
    penalty: Penalty,  # edges of infinite weight are left out
    *,
    fit_linear: bool,
    fit_scale: bool,
    tol: float,  # largest entry of the (sub)gradient at the solution
    max_iter: int = 1000,
) -> Solution:
    """Minimise a loss plus the penalty.

    `loss`: differentiable function of theta, in the centre and scale of `start`.
    `fit_linear`, `fit_scale`: whether b and c are free; otherwise they keep the values
    of `start`.
    """
    d = len(centre)
    lower = torch.tril_indices(d, d)
    lower = lower[:, penalty.weight[tuple(lower)].isfinite()]
    n_links, linear_end = lower.shape[1], lower.shape[1] + d * fit_linear

    def theta_of(vector: Tensor) -> Theta:
        half = vector.new_zeros(d, d).index_put(tuple(lower), vector[:n_links])
        precision = half + half.T - half.diagonal().diag()
        linear = vector[n_links:linear_end] if fit_linear else start.linear
        return Theta(precision, linear, vector[-1] if fit_scale else start.log_scale)

    def value(vector: Tensor) -> Tensor:
        theta = theta_of(vector)
        return loss(theta) + penalty.smooth(theta, centre)

    parts = [start.precision[tuple(lower)]]
    parts += [start.linear] * fit_linear + [start.log_scale[None]] * fit_scale
    vector = torch.cat(parts).detach()
    weight, bound = torch.zeros_like(vector), torch.full_like(vector, -torch.inf)
    # the penalty counts both triangles, of which the vector has one
    weight[:n_links] = 2 * penalty.weight[tuple(lower)]
    bound[:n_links][lower[0] == lower[1]] = DIAGONAL_FLOOR
    found = minimise(value, vector, weight, bound, tol=tol, max_iter=max_iter)
    return Solution(theta_of(found.point), found.objective, found.gap)
