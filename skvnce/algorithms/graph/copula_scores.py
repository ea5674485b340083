"""Scores of edges of the latent normal model: standard normal where there is no edge.

Let K be the estimate of EM, with its light penalty, S the second moments of the latent
variables given the cells under K, and v_i the information of a column per free latent
variable (`copula`, eq. 1).  ``G = S - K^-1`` is the gradient of the log-likelihood of
the observed cells, and near independence v_i v_j is the share of the information about
K_ij that the cells have.  So one step of Fisher scoring,

    T_ij = K_ij - (K G K)_ij / (v_i v_j)                                             (1)

removes what the penalty has shrunk (Jankova and van de Geer 2015, Confidence intervals
for high-dimensional inverse covariance estimation, with v = 1).  Without an edge,
``T_ij / sqrt(K_ii K_jj)`` has the variance ``1 / (n v_i v_j)``.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce.algorithms.graph import em
from skvnce.algorithms.graph.copula_m_step import whitened
from skvnce.distributions.normal import Normal

_ROUNDS = 30  # whose moments are averaged, with K held fixed


def edge_scores(problem: NamedTuple, fit: em.Fit) -> Tensor:
    """Compute scores of all pairs; (columns, columns), zero on the diagonal.

    Those of columns with one latent variable are signed.  The squares of the others,
    sums of f squares, are transformed as by Wilson and Hilferty (1931).  `fit`:
    ``problem.first``.
    """
    blocks, theta = problem.blocks, fit.theta
    share = (problem.information / blocks.free).clamp(max=1)
    known = torch.outer(share, share)
    moments, n_rounds = _moments_at(problem, fit)
    slope = moments.covariance - theta.normal().covariance
    step = theta.precision @ slope @ theta.precision / blocks.spread(known)
    canonical = whitened(theta.precision - step, theta.precision, blocks)
    # the draws of n_rounds rounds add to the variance v_i v_j / n of the moments
    unit = (problem.n_rows * known / (1 + (1 / known - 1) / n_rounds)).sqrt()
    f = torch.outer(blocks.free, blocks.free)
    chi = blocks.sums(canonical.square()) * unit.square()
    score = ((chi / f).pow(1 / 3) - 1 + 2 / (9 * f)) / (2 / (9 * f)).sqrt()
    signed = -blocks.sums(canonical) * unit
    return torch.where(f > 1, score, signed).fill_diagonal_(0.0)


def _moments_at(problem: NamedTuple, fit: em.Fit) -> tuple[Normal, float]:
    """Average the moments of further rounds; return them and the number of rounds."""
    e_step, m_step, family = problem.method
    if e_step.once:
        return fit.summary, torch.inf
    state, found = fit.state, None
    for number in range(1, _ROUNDS + 1):
        state, normal = e_step.step(state, family.model(fit.theta))
        new = m_step.summarise(normal)
        found = new if found is None else m_step.merge(found, new, 1 / number)
    return found, _ROUNDS
