"""Empirical Bayes for the quadratic penalties: prior variances of K_ij and b_j.

A ridge of strength 1 / (n tau^2) is a normal prior of variance tau^2, for losses that
are negative mean log-likelihoods.  The variance for b needs an estimate without a prior
of b, which score matching computes in a few rounds.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import State
from skvnce._core.progress import step
from skvnce.graphs import em
from skvnce.graphs.score_matching import score_matching

_ROUNDS = 6  # rounds of the pilot fit
_FEW = 10  # minimum number of rows that observe both columns of a pair
_CAUTION = 3.0  # factor of the posterior variance; see `ridge_of_linear`
_ALLOWANCE = 0.1  # maximum correction, for columns of unit standard deviation


def ridge_of_links(data: Incomplete) -> float:
    """Choose the ridge 1 / (n tau**2), tau**2 the prior variance of a scaled K_ij.

    Near independence K_ij is minus the correlation of the columns over the product
    of their standard deviations. So tau**2 is estimated by the mean over pairs of
    its square: the squared correlation over the rows that observe both columns,
    minus 1 / n_ij, its expectation without dependence. Pairs that few rows observe
    are left out.
    """
    n, d = data.x.shape
    if d < 2:
        return 0.0
    centre, scale = em.units_of(data, fit_linear=True)
    x = (data.x - centre * scale).where(data.observed, 0.0)
    observed = data.observed.to(x)
    count = (observed.T @ observed).clamp(min=1)
    mean = x.T @ observed / count  # [i, j]: of column i where j is observed too
    variance = x.square().T @ observed / count - mean.square()
    covariance = x.T @ x / count - mean * mean.T
    squared = covariance.square() / (variance * variance.T).clamp(min=1e-12)
    excess = (squared.clamp(max=1) - 1 / count) / (scale * scale[:, None]).square()
    # if all pairs are observed by few rows, those with most are used
    usable = em.off_diagonal(d) * (count >= min(_FEW, float(count.max())))
    tau2 = float((excess * usable).sum() / usable.sum().clamp(min=1))
    # the ridge is at most 10, also if no pair is correlated
    return 1 / (n * max(tau2, 0.1 / n))


class Pilot(NamedTuple):
    """An initial estimate, and the ridge of b that it implies."""

    theta: em.Theta
    # of the E-step by Gibbs sampling, where other fits may start; None without gaps
    state: State | None
    ridge_linear: float


def pilot(data: Incomplete, start: em.Theta, centre: Tensor, ridge: float) -> Pilot:
    """Fit a few rounds without a ridge of b."""
    method = em.coarse(score_matching(data, centre, fit_linear=True))
    with step("fitting a pilot that chooses the ridge of b"):
        fit = em.learn_graph(
            method,
            start,
            em.Penalty(torch.zeros(len(centre), len(centre)).to(centre), ridge),
            max_iter=_ROUNDS,
            tol=0.0,
            warm_up=_ROUNDS,
        )
    covariance = torch.atleast_2d(fit.completed.T.cov())
    theta = em.uncentre(fit.theta, centre)
    ridge_linear = ridge_of_linear(data, theta, covariance, ridge)
    state = None if method.e_step.once else fit.state
    return Pilot(fit.theta, state, ridge_linear)


def ridge_of_linear(
    data: Incomplete, theta: em.Theta, covariance: Tensor, ridge: float
) -> float:
    """Choose the ridge of b from an estimate without one.

    The mean of b_j^2 exceeds that of the true values by the posterior variance and
    by the square of a bias: shrinkage of K changes b, always in one direction if
    most edges have the same sign. The function subtracts three times the variance
    for both, at most 0.1, because with many missing values the variance is
    unreliable. If the mean square is above 0.2, b is not small, and it gets no
    penalty, because shrinkage of b towards 0 would change K.

    With the information of a normal (`maximum_likelihood`), K and the linear term
    around the mean are independent given the data: ``b = u + K m``, where m is the
    mean, u has the covariance S^-1 / n, and the entries of K have, in the basis of
    the eigenvectors of S, the variances ``1 / (n (l_a l_b + 2 ridge))``.
    """
    square = float(theta.linear.square().mean())
    if square > 2 * _ALLOWANCE:
        return 0.0
    observed = data.observed.to(data.x)
    n_pairs = float((observed.T @ observed).mean())
    mean = em.observed_mean(data.x, data.observed)
    values, vectors = torch.linalg.eigh(covariance)
    # eigenvalues are divisors, and zero for collinear columns
    values = values.clamp(min=1e-9 * float(values[-1]))
    of_links = 1 / (n_pairs * (torch.outer(values, values) + 2 * ridge))
    # off-diagonal entries occur twice in the likelihood, and vary less
    of_links.diagonal().mul_(2)
    variance = (of_links @ (vectors.T @ mean).square()).mean()
    variance = variance + (1 / values).mean() / n_pairs
    allowance = min(_CAUTION * float(variance), _ALLOWANCE)
    tau2 = max(square - allowance, 0.1 * float(variance))
    return 1 / (len(data.x) * tau2)
