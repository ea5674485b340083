"""A path of L1 penalties on the statistics that one fit has averaged.

The draws of the E-step are most of the cost of a fit.  A path solves only the M-step,
from the sparsest graph to the densest, each starting at the previous one.
"""

from math import inf, log
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import OnRound, step, steps, tell, tell_round
from skvnce.algorithms.graph.em import (
    Fit,
    MStep,
    Penalty,
    Theta,
    completed_by_gibbs,
    off_diagonal,
    safe,
    to_model,
)
from skvnce.algorithms.graph.maximum_likelihood import Information, moments_of_draws
from skvnce.algorithms.graph.problem import Problem
from skvnce.algorithms.graph.quadratic import as_point, penalised
from skvnce.training.conjugate import minimise_over
from skvnce.training.proximal import Quadratic

_RATIO = 100  # ratio of the largest to the smallest alpha of an automatic path
_ROWS_A_NEIGHBOUR = 10
_SWEEPS = 10  # sweeps that complete the rows for the estimate of the information


class Path(NamedTuple):
    """Penalties in decreasing order, and the minimiser of each."""

    alphas: list[float]
    thetas: list[Theta]


def n_edges(theta: Theta) -> int:
    """Count the edges."""
    return int(torch.count_nonzero(theta.precision.triu(1)))


def largest_alpha(m_step: MStep, fit: Fit, penalty: Penalty) -> float:
    """Find the smallest alpha that gives an empty graph, up to 5 % too large."""
    off = off_diagonal(len(penalty.weight))
    never = torch.zeros_like(off).masked_fill(off > 0, torch.inf)
    empty = m_step.solve(
        fit.summary, fit.theta, penalty._replace(weight=never), m_step.tol[0]
    ).theta

    def links(alpha: float) -> int:
        weighted = penalty.with_alpha(alpha)
        return n_edges(m_step.solve(fit.summary, empty, weighted, m_step.tol[0]).theta)

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
    """Solve for each alpha in decreasing order; thetas are made safe for sampling."""
    theta, thetas, tol = fit.theta, [], _between(m_step.tol)
    for alpha in steps("solving for alpha", alphas, len(alphas)):
        weighted = penalty.with_alpha(alpha)
        theta = m_step.solve(fit.summary, theta, weighted, tol).theta
        thetas.append(safe(theta))
    return Path(alphas, thetas)


def learn_path(
    problem: Problem,
    alphas: int | list[float],
    *,
    max_iter: int,
    tol: float,
    on_round: OnRound = tell_round,
) -> tuple[Fit, Path]:
    """Learn all edges, and solve the path for given alphas or a number of them.

    Returns
    -------
    dense : Fit
        Without L1 penalty.
    path : Path
    """
    dense = problem.learn(0.0, max_iter=max_iter, tol=tol, on_round=on_round)
    m_step, penalty = problem.method.m_step, problem.penalty(0.0)
    if isinstance(alphas, int):
        with step("finding the largest alpha"):
            top = largest_alpha(m_step, dense, penalty)
        alphas = np.geomspace(top, top / _RATIO, alphas).tolist()
    return dense, solve_path(m_step, dense, penalty, alphas)


def _between(tol: tuple[float, float]) -> float:
    """Use a tolerance between that of the rounds and that of the last solution."""
    return (tol[0] * tol[1]) ** 0.5


class Evidence(NamedTuple):
    """The log-likelihood around an estimate with all edges, as a quadratic.

    The ridge of b remains; otherwise b would compensate for edges that are left out.

    Attributes
    ----------
    quadratic : Quadratic
        Its product is that of the Fisher information, plus the ridge of b.
    deviance : float
        That of the estimate, which `quadratic` does not contain.
    n_rows, n_pairs : float
        Number of rows, and average number of rows that observe a pair.
    """

    quadratic: Quadratic
    deviance: float
    n_rows: float
    n_pairs: float


def evidence(
    m_step: MStep,
    fit: Fit,
    penalty: Penalty,
    centre: Tensor,
    data: Incomplete,
    *,
    fit_linear: bool,
) -> Evidence:
    """Approximate the log-likelihood by least squares (Wang and Leng 2007).

    Parameters
    ----------
    m_step, fit, penalty
        The dense fit; its L1 term is zero, and the ridge of K is dropped.
    centre : Tensor of shape (features,)
    data : Incomplete
        Scaled columns.
    fit_linear : bool
        Whether b is free.
    """
    free = penalty._replace(ridge=0.0)
    best = m_step.solve(fit.summary, fit.theta, free, _between(m_step.tol)).theta
    e_step = completed_by_gibbs(data)
    state, model = e_step.init(), to_model(fit.theta, centre)
    for n_sweep in range(1, _SWEEPS + 1):
        tell("sweep", n_sweep, _SWEEPS)
        state, rows = e_step.step(state, model)
    information = Information.of(moments_of_draws(rows - centre))
    point = as_point(best, len(centre) + fit_linear)
    posed = penalised(information.quadratic(point), free, centre)
    target = posed.product(point)
    quadratic = posed._replace(target=target)
    deviance = float((point * target).sum())
    return Evidence(quadratic, deviance, len(data.x), mean_pairs(data.observed))


def extended_bic(known: Evidence, theta: Theta, gamma: float) -> float:
    """Compute the extended BIC of a graph, its edges refitted without penalties.

    ``n D + |E| (log n_pairs + 4 gamma log d)`` (Foygel and Drton 2010), where D is the
    deviance per row, by the quadratic approximation of `evidence`.  It uses only the
    estimate of a method, and does not depend on the scale of its loss.  It is infinite
    if columns have on average more than one neighbour for each ten rows that observe a
    pair; such a refit is unreliable and slow.
    """
    d, links = len(theta.precision), n_edges(theta)
    if 2 * links / d > known.n_pairs / _ROWS_A_NEIGHBOUR:
        return inf
    deviance = 2 * least_on(known.quadratic, theta) + known.deviance
    return known.n_rows * deviance + links * (log(known.n_pairs) + 4 * gamma * log(d))


def least_on(quadratic: Quadratic, theta: Theta) -> float:
    """Compute the minimum of a quadratic over the edges of theta, and b."""
    free = as_point(theta, quadratic.target.shape[1]) != 0
    free.diagonal().fill_(True)
    free[:, len(free) :] = True
    return minimise_over(quadratic, free)


def mean_pairs(observed: Tensor) -> float:
    """Average over pairs of columns the number of rows that observe both."""
    seen = observed.double()
    d = seen.shape[1]
    if d < 2:
        return float(seen.sum())
    count = (seen.T @ seen) * off_diagonal(d)
    return max(float(count.sum()) / (d * (d - 1)), 1.0)
