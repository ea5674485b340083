"""Posterior draws of the parameters of a large table, from a sample of its rows.

Let c be the ratio of the weights of table and sample.  The posterior given the
sample, with c times its weights, has the spread of that given the table, with a
relative error of one over the root of the number of rows of the sample.  Let
``(m_s, L_s L_s')`` be its mode and ``(m_0, L_0 L_0')`` the estimate from all rows.
A draw (m, S) is moved,

    m -> m_0 + A (m - m_s),    S -> A S A',    A = L_0 L_s^-1.                     (1)

So draws need no pass over the table.
"""

from math import sqrt

import torch

from skvnce._core.distributions.normal import Normal, cholesky
from skvnce._core.incomplete import Rows
from skvnce._core.progress import step
from skvnce.gaussian import em

_PRECISION = 0.01  # of the mode, in standard errors of a mean
_MOST_ROUNDS = 1000


def posterior_draws(
    estimate: Normal,  # from all rows of the table
    rows: Rows,  # of the table, or a sample of them
    total: float | None,  # the weight of the table; None if the rows are the table
    strength: float,  # k of the prior, see `em`
    *,
    n_draws: int,
) -> list[Normal]:
    """Draw parameters given a table."""
    if total is None:
        table = rows.data, rows.weights, strength
        return em.posterior_draws(estimate, *table, n_draws=n_draws)
    sample = rows.data, rows.weights * (total / rows.total), strength
    stopping = {"max_iter": _MOST_ROUNDS, "tol": _PRECISION / sqrt(total)}
    with step("fitting the sample of rows"):
        mode = em.fit_normal(*sample, estimate, **stopping).normal
    draws = em.posterior_draws(mode, *sample, n_draws=n_draws)
    return [_move(draw, mode, estimate) for draw in draws]


def _move(draw: Normal, mode: Normal, estimate: Normal) -> Normal:
    """Move a draw by eq. (1)."""
    roots = cholesky(estimate.covariance), cholesky(mode.covariance)
    turn = torch.linalg.solve_triangular(roots[1], roots[0], upper=False, left=False)
    mean = estimate.mean + turn @ (draw.mean - mode.mean)
    return Normal(mean, turn @ draw.covariance @ turn.T)
