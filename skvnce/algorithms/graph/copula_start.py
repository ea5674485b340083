"""The start of EM for a graph of columns of any kind, and its penalty.

EM approaches the maximum of the likelihood at the rate of the share of the information
that is missing (Dempster, Laird and Rubin 1977): 0.9 for two binary columns of which
half of the cells are missing.  So it starts where pairs of columns, each on its own,
put it (`mixed.pairs`), and not at independence.

A penalty w moves a partial correlation r by about ``t = w / (s_i s_j)`` near
independence, where s_i s_j is the share of the information about it that the cells
have.  Since t is larger than the standard error, that of strong edges is reduced, as in
the adaptive lasso (Zou 2006):

    w'_ij = w_ij t_ij / (t_ij + |u_ij|),   u = r / (1 - r**2)                      (1)

The standard error of u is about that of r near independence, whatever r is.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce.algorithms.graph.copula_m_step import Penalty, Theta
from skvnce.algorithms.graph.em import EStep, Method
from skvnce.distributions.normal import Normal

# correlations of pairs, each on its own, may have negative eigenvalues
_LEAST = 1e-4  # eigenvalue of the correlations of a start
_SOLVES = 2  # of which the first has the whole penalty
_SETTLE = 5  # sweeps that forget where latent variables start


class Start(NamedTuple):
    """Parameters at which EM starts, and its penalty."""

    theta: Theta
    penalty: Penalty


def started(normal: Normal, penalty: Penalty, share: Tensor, method: Method) -> Start:
    """Solve the M-step for correlations of pairs, with weights in the unit of t.

    `normal`: with the correlations of pairs, or of all rows. `share`: (columns,), s,
    the information of a column in that of an observed number.
    """
    known, tol = torch.outer(share, share), method.m_step.tol[0]
    found = Start(Theta.independent(len(normal.mean)), penalty)
    for _ in range(_SOLVES):
        own = penalty._replace(weight=found.penalty.weight / known)
        theta = method.m_step.solve(normal, found.theta, own, tol).theta
        strengths = method.family.strengths(theta)
        found = Start(theta, adapted(penalty, penalty.weight / known, strengths))
    return found


def adapted(penalty: Penalty, moved: Tensor, strengths: Tensor) -> Penalty:
    """Reduce the weights of strong edges, eq. (1); `moved` is t."""
    # u is infinite at r = 1
    r = strengths.abs().clamp(max=1 - _LEAST)
    share = moved / (moved + r / (1 - r.square())).clamp(min=_LEAST)
    return penalty._replace(weight=penalty.weight * share)


def positive(correlations: Tensor) -> Tensor:
    """Return a correlation matrix with positive eigenvalues near to a symmetric one."""
    values, vectors = torch.linalg.eigh(correlations)
    found = (vectors * values.clamp(min=_LEAST)) @ vectors.T
    scale = found.diagonal().rsqrt()
    return found * torch.outer(scale, scale)


def settled(e_step: EStep, theta: Theta) -> object:
    """Make the state of an E-step after some sweeps at these parameters."""
    state = e_step.init()
    for _ in range(0 if e_step.once else _SETTLE):
        state, _normal = e_step.step(state, theta)
    return state
