"""Empirical Bayes for the quadratic penalties: prior variances of K_ij and b_j.

A ridge of strength 1 / (n tau^2) is a normal prior of variance tau^2, for losses that
are minus a mean log-likelihood.  Score matching finds the estimate without a prior of b
that the second needs, in a few rounds.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._progress import step
from skvnce.algorithms.graph.em import (
    Method,
    Penalty,
    Theta,
    learn_graph,
    observed_mean,
    off_diagonal,
    uncentre,
    units_of,
)
from skvnce.algorithms.graph.score_matching import score_matching

_ROUNDS = 6  # of the pilot
_FEW = 10  # rows with both columns, below which a correlation says nothing
_CAUTION = 3.0  # times the posterior variance; see `ridge_of_linear`
_ALLOWANCE = 0.1  # at most, for columns of unit spread


def ridge_of_links(data: Incomplete) -> float:
    """Choose the ridge 1 / (n tau**2), tau**2 the prior variance of a scaled K_ij.

    Near independence K_ij is minus the correlation of the columns over both their
    standard deviations, so that tau**2 is estimated by the mean over pairs of its
    square, the squared correlation over the rows which observe both reduced by the
    1 / n_ij that chance alone gives.  Sparse graphs of many columns are thereby shrunk
    more than dense graphs of few.  Pairs that hardly any row observes are left out.

    Parameters
    ----------
    data : Incomplete
        Columns in the units in which K is penalised.
    """
    n, d = data.x.shape
    if d < 2:
        return 0.0
    centre, scale = units_of(data, fit_linear=True)
    x = (data.x - centre * scale).where(data.observed, 0.0)
    seen = data.observed.to(x)
    count = (seen.T @ seen).clamp(min=1)
    mean = x.T @ seen / count  # [i, j]: of column i where j is observed too
    variance = x.square().T @ seen / count - mean.square()
    covariance = x.T @ x / count - mean * mean.T
    squared = covariance.square() / (variance * variance.T).clamp(min=1e-12)
    excess = (squared.clamp(max=1) - 1 / count) / (scale * scale[:, None]).square()
    known = off_diagonal(d) * (count >= min(_FEW, float(count.max())))
    tau2 = float((excess * known).sum() / known.sum().clamp(min=1))
    return 1 / (n * max(tau2, 0.1 / n))


class Pilot(NamedTuple):
    """A first estimate, and the ridge of b that it suggests."""

    theta: Theta
    ridge_linear: float


def pilot(data: Incomplete, start: Theta, centre: Tensor, ridge: float) -> Pilot:
    """Fit a few rounds without a ridge of b."""
    e_step, m_step = score_matching(data, centre, fit_linear=True)
    coarse = m_step.tol[0]  # is enough of a first estimate, and far cheaper
    with step("fitting a pilot that chooses the ridge of b"):
        fit = learn_graph(
            Method(e_step, m_step._replace(tol=(coarse, coarse))),
            start,
            centre,
            Penalty(torch.zeros(len(centre), len(centre)).to(centre), ridge),
            max_iter=_ROUNDS,
            tol=0.0,
            warm_up=_ROUNDS,
        )
    covariance = torch.atleast_2d(fit.completed.T.cov())
    theta = uncentre(fit.theta, centre)
    return Pilot(fit.theta, ridge_of_linear(data, theta, covariance, ridge))


def ridge_of_linear(
    data: Incomplete, theta: Theta, covariance: Tensor, ridge: float
) -> float:
    """Choose the ridge of b from an estimate without one.

    The mean of b_j^2 exceeds that of the true ones by the posterior variance, and by
    the square of a bias: the shrinkage of K moves b, all one way where most links have
    one sign.  Three times the variance is taken off for both, and 0.1 at most,
    for with many holes the variance says little.  Where the mean square is above 0.2, b
    is not small: it is left free, for any pull towards 0 moves K.

    With the information of a normal (`maximum_likelihood`), K and the linear term
    around the mean are independent given the data: ``b = u + K m``, where m is the
    mean, u has the covariance S^-1 / n, and the entries of K have, in the basis of the
    eigenvectors of S, the variances ``1 / (n (l_a l_b + 2 ridge))``.

    Parameters
    ----------
    data : Incomplete
    theta : Theta
        Around no centre.
    covariance : Tensor of shape (features, features)
        S, of completed rows.
    ridge : float
        Of the links.
    """
    square = float(theta.linear.square().mean())
    if square > 2 * _ALLOWANCE:
        return 0.0
    seen = data.observed.to(data.x)
    n_pairs = float((seen.T @ seen).mean())
    mean = observed_mean(data.x, data.observed)
    values, vectors = torch.linalg.eigh(covariance)
    values = values.clamp(min=1e-9 * float(values[-1]))
    of_links = 1 / (n_pairs * (torch.outer(values, values) + 2 * ridge))
    of_links.diagonal().mul_(2)
    spread = (of_links @ (vectors.T @ mean).square()).mean()
    spread = spread + (1 / values).mean() / n_pairs
    allowance = min(_CAUTION * float(spread), _ALLOWANCE)
    tau2 = max(square - allowance, 0.1 * float(spread))
    return 1 / (len(data.x) * tau2)
