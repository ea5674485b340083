"""The extended Bayesian information criterion of truncated Gaussian graphs."""

from math import inf, log
from typing import NamedTuple

from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import tell
from skvnce.algorithms.graph.em import (
    Fit,
    MStep,
    Penalty,
    Theta,
    completed_by_gibbs,
    off_diagonal,
    to_model,
)
from skvnce.algorithms.graph.maximum_likelihood import Information, moments_of_draws
from skvnce.algorithms.graph.penalty_path import ROWS_A_NEIGHBOUR, between, n_links
from skvnce.algorithms.graph.quadratic import as_point, penalised
from skvnce.training.conjugate import minimise_over
from skvnce.training.proximal import Quadratic

_SWEEPS = 10  # sweeps that complete the rows for the estimate of the information


class Evidence(NamedTuple):
    """The log-likelihood around an estimate with all edges, as a quadratic.

    The ridge of b remains; otherwise b would compensate for edges that are left out.
    """

    # its product is that of the Fisher information, plus the ridge of b
    quadratic: Quadratic
    deviance: float  # that of the estimate, which `quadratic` does not contain
    n_rows: float
    n_pairs: float  # average number of rows that observe a pair


def evidence(
    m_step: MStep,  # the dense fit; its L1 term is zero, and the ridge of K is dropped
    fit: Fit,
    penalty: Penalty,
    centre: Tensor,  # (features,)
    data: Incomplete,  # scaled columns
    *,
    fit_linear: bool,  # whether b is free
) -> Evidence:
    """Approximate the log-likelihood by least squares (Wang and Leng 2007)."""
    free = penalty._replace(ridge=0.0)
    best = m_step.solve(fit.summary, fit.theta, free, between(m_step.tol)).theta
    e_step = completed_by_gibbs(data)
    state, model = e_step.init(), to_model(fit.theta, centre)
    for n_sweep in range(1, _SWEEPS + 1):
        tell("sweep", n_sweep, _SWEEPS)
        state, rows = e_step.step(state, model)
    information = Information.of(moments_of_draws(rows - centre))
    point = as_point(best, len(centre) + fit_linear)
    quadratic_form = penalised(information.quadratic(point), free, centre)
    target = quadratic_form.product(point)
    quadratic = quadratic_form._replace(target=target)
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
    d, links = len(theta.precision), n_links(theta.precision)
    if 2 * links / d > known.n_pairs / ROWS_A_NEIGHBOUR:
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
    # the logarithm of less than one row would reward edges
    return max(float(count.sum()) / (d * (d - 1)), 1.0)
