"""A path of L1 penalties on the statistics that one fit has averaged.

The E-step's draws cost most of a fit; a path solves only the M-step, from the sparsest
graph to the densest, each from the one before.
"""

from math import inf, log
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce.algorithms.graph import Fit, MStep, Penalty, Theta, off_diagonal, safe

_ROWS_A_NEIGHBOUR = 10


class Path(NamedTuple):
    """Penalties, largest first, and the minimiser of each."""

    alphas: list[float]
    thetas: list[Theta]


def n_edges(theta: Theta) -> int:
    """Count the links."""
    return int(torch.count_nonzero(theta.precision.triu(1)))


def largest_alpha(m_step: MStep, fit: Fit, penalty: Penalty) -> float:
    """Find the smallest alpha that leaves no link, to 5 % from above."""
    off = off_diagonal(len(penalty.weight))
    never = torch.zeros_like(off).masked_fill(off > 0, torch.inf)
    empty = m_step.solve(
        fit.summary, fit.theta, penalty._replace(weight=never), m_step.tol[0]
    ).theta

    def links(alpha: float) -> int:
        return n_edges(
            m_step.solve(
                fit.summary, empty, penalty._replace(weight=alpha * off), m_step.tol[0]
            ).theta
        )

    if len(off) < 2:
        return 1.0
    high = 1.0
    while links(high):
        high *= 2
    low = high / 2
    while low > 1e-8 and not links(low):
        low, high = low / 2, low
    while high > 1.05 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if links(middle) else (low, middle)
    return high


def solve_path(m_step: MStep, fit: Fit, penalty: Penalty, alphas: list[float]) -> Path:
    """Solve for each alpha, largest first; thetas are made safe to sample from."""
    off = off_diagonal(len(penalty.weight))
    theta, thetas = fit.theta, []
    for alpha in alphas:
        weighted = penalty._replace(weight=alpha * off)
        theta = m_step.solve(fit.summary, theta, weighted, m_step.tol[1]).theta
        thetas.append(safe(theta))
    return Path(alphas, thetas)


def extended_bic(
    m_step: MStep,
    fit: Fit,
    penalty: Penalty,
    theta: Theta,
    *,
    n_rows: int,
    n_pairs: float,
    gamma: float,
) -> float:
    """Compute the extended BIC of a graph, its links refitted without penalties.

    ``2 n L + |E| (log n_pairs + 4 gamma log d)`` (Foygel and Drton 2010), with the loss
    L of the method in place of minus a mean log-likelihood, and the number of rows that
    observe a pair, on average, in place of n where the size of a sample decides how
    much a link must gain.  Infinite where a column has more than one neighbour on
    average for ten such rows: such a refit says nothing, and is slow.
    """
    d, links = len(theta.precision), n_edges(theta)
    if 2 * links / d > n_pairs / _ROWS_A_NEIGHBOUR:
        return inf
    absent = (theta.precision == 0) & (off_diagonal(len(theta.precision)) > 0)
    weight = torch.zeros_like(theta.precision).masked_fill(absent, torch.inf)
    refit = penalty._replace(weight=weight, ridge=0.0)
    loss = m_step.solve(fit.summary, theta, refit, m_step.tol[1]).loss
    return 2 * n_rows * loss + links * (log(n_pairs) + 4 * gamma * log(d))


def mean_pairs(observed: Tensor) -> float:
    """Average over pairs of columns the number of rows that observe both."""
    seen = observed.double()
    d = seen.shape[1]
    if d < 2:
        return float(seen.sum())
    count = (seen.T @ seen) * off_diagonal(d)
    return max(float(count.sum()) / (d * (d - 1)), 1.0)
