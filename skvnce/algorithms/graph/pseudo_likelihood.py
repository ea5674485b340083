"""The M-step by pseudo-likelihood: all univariate conditionals at once.

The loss is minus the mean over rows of ``sum_j log p(x_j | x_-j)`` (Besag 1975), where
each conditional is a normal truncated at zero.  One product of the rows with K gives
all of them, so that a value and its gradient take n d^2 operations.
"""

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.graph.em import (
    Method,
    MStep,
    Penalty,
    Solution,
    Theta,
    all_tables,
    completed_by_gibbs,
    truncated_normals,
    uncentre,
)
from skvnce.algorithms.graph.smooth import minimise_loss
from skvnce.models.truncated_gaussian import conditionals


def negative_log_pseudo_likelihood(
    x: Tensor, precision: Tensor, linear: Tensor
) -> Tensor:
    """Average the negative sum of the logs of the conditionals; (n, features) -> ()."""
    return -conditionals(x, precision, linear).log_prob(x).sum(-1).mean()


def pseudo_likelihood(
    data: Incomplete,
    centre: Tensor,
    *,
    fit_linear: bool,
    tol: tuple[float, float] = (1e-3, 1e-5),
) -> Method:
    """Build the method."""

    def solve(
        tables: tuple[Tensor, ...], start: Theta, penalty: Penalty, tol: float
    ) -> Solution:
        rows = torch.cat(tables)

        def loss(theta: Theta) -> Tensor:
            model = uncentre(theta, centre)
            return negative_log_pseudo_likelihood(rows, model.precision, model.linear)

        free = {"fit_linear": fit_linear, "fit_scale": False}
        return minimise_loss(loss, start, centre, penalty, **free, tol=tol)

    m_step = MStep(lambda x: (x,), all_tables, solve, tol)
    return Method(completed_by_gibbs(data), m_step, truncated_normals(centre))
