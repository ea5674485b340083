"""A path of L1 penalties on the statistics that one fit has averaged.

The draws of the E-step are most of the cost of a fit.  A path solves only the M-step,
from the sparsest graph to the densest, each starting at the previous one.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from skvnce._core.progress import OnRound, step, steps, tell_round
from skvnce.graphs.em import Fit, Method, off_diagonal

ROWS_A_NEIGHBOUR = 10  # fewer rows for each neighbour make a refit unreliable
# as in scikit-learn's GraphicalLassoCV
_RATIO = 100  # ratio of the largest to the smallest alpha of an automatic path


class Path(NamedTuple):
    """Penalties in decreasing order, and the minimiser of each."""

    alphas: list[float]
    thetas: list[Any]


def n_links(matrix: Tensor) -> int:
    """Count the pairs of columns whose entry of a symmetric matrix is not zero."""
    return int(torch.count_nonzero(matrix.triu(1)))


def empty_graph(method: Method, fit: Fit, penalty: NamedTuple) -> NamedTuple:
    """Solve without edges, at which paths start."""
    m_step, off = method.m_step, off_diagonal(len(penalty.weight))
    never = torch.zeros_like(off).masked_fill(off > 0, torch.inf)
    excluded = penalty._replace(weight=never)
    return m_step.solve(fit.summary, fit.theta, excluded, m_step.tol[0]).theta


def largest_alpha(method: Method, fit: Fit, penalty: NamedTuple) -> float:
    """Find the smallest alpha that gives an empty graph, up to 5 % too large."""
    m_step, empty = method.m_step, empty_graph(method, fit, penalty)

    def links(alpha: float) -> int:
        weighted, tol = penalty.with_alpha(alpha), m_step.tol[0]
        theta = m_step.solve(fit.summary, empty, weighted, tol).theta
        return n_links(method.family.strengths(theta))

    if len(penalty.weight) < 2:
        return 1.0
    high = 1.0
    while links(high):
        high *= 2
    low = high / 2
    # without any dependence no alpha gives an edge
    while low > 1e-8 and not links(low):
        low, high = low / 2, low
    while high > 1.05 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if links(middle) else (low, middle)
    return high


def solve_path(
    method: Method, fit: Fit, penalty: NamedTuple, alphas: list[float]
) -> Path:
    """Solve for each alpha in decreasing order; thetas are those of densities."""
    theta, thetas = empty_graph(method, fit, penalty), []
    tol = between(method.m_step.tol)
    for alpha in steps("solving for alpha", alphas, len(alphas)):
        weighted = penalty.with_alpha(alpha)
        theta = method.m_step.solve(fit.summary, theta, weighted, tol).theta
        thetas.append(method.family.safe(theta))
    return Path(alphas, thetas)


def learn_path(
    problem: NamedTuple,  # of `problem` or of `copula`
    alphas: int | list[float],
    *,
    max_iter: int,  # see `em.learn_graph`
    tol: float,
    on_round: OnRound = tell_round,
) -> tuple[Fit, Path]:
    """Average the statistics (`problem.first`), and solve the path of penalties."""
    first = problem.first(max_iter=max_iter, tol=tol, on_round=on_round)
    method, penalty = problem.method, problem.penalty(0.0)
    if isinstance(alphas, int):
        with step("finding the largest alpha"):
            top = largest_alpha(method, first, penalty)
        alphas = np.geomspace(top, top / _RATIO, alphas).tolist()
    return first, solve_path(method, first, penalty, alphas)


def between(tol: tuple[float, float]) -> float:
    """Use a tolerance between that of the rounds and that of the last solution."""
    return (tol[0] * tol[1]) ** 0.5
