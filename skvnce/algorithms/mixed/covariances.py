r"""The prior of covariances of residuals and of effects, and draws.

That of Huang and Wand (2013, Simple marginally noninformative prior distributions for
covariance matrices, eq. 2): half-t standard deviations with nu degrees of freedom and
scale A, and uniform correlations if nu = 2.  Of d variables,

.. math:: \Sigma | a \sim IW(\nu + d - 1, 2 \nu \, diag(a)), \quad
          a_k \sim Gamma(1/2, 1/A^2).                                                (1)
"""

import numpy as np
import torch
from torch import Tensor

from skvnce.algorithms.gaussian import em
from skvnce.distributions.gamma import standard_gamma

FREEDOM = 2.0  # of the half-t distributions; then correlations are uniform
SCALE = 1.0  # of the half-t distributions, for columns of about unit variance
# a covariance of collinear columns would be singular
RIDGE = 0.01  # rows of independent columns


def draw_covariance(scatter: Tensor, freedom: float, before: Tensor) -> Tensor:
    """Draw a covariance given a scatter matrix and the prior, eq. (1).

    `scatter` (d, d); `freedom`: degrees of freedom of the scatter; `before` (d, d): the
    last draw, given which the scales of the prior are drawn.
    """
    if not len(before):
        return before
    rate = FREEDOM * torch.linalg.inv(before).diagonal() + 1 / SCALE**2
    shape = torch.full_like(rate, (FREEDOM + len(rate)) / 2)
    precision = standard_gamma(shape) / rate
    scatter = scatter + 2 * FREEDOM * precision.diag()
    freedom = torch.tensor(freedom + FREEDOM + len(rate) - 1).to(scatter)
    root = em.draw_inverse_wishart_root(freedom, torch.linalg.cholesky(scatter))
    return root @ root.T


def log_density_of_scales(scales: np.ndarray, inverse: np.ndarray, d: int) -> float:
    r"""Compute the log-density of standard deviations given correlations, eq. (1).

    Without a, and up to a constant,

    .. math:: -\sum_k (\nu + d) / 2 \log(\nu R^{kk} + s_k^2 / A^2),

    with the rows of independent columns that scatter matrices have.

    `scales` (k,): some of the standard deviations; with a sign, which has no influence;
    `inverse` (k,): their diagonal elements of the inverse of the correlations R; `d`:
    number of variables.
    """
    squares = scales**2
    logs = np.log(FREEDOM * inverse + squares / SCALE**2)
    return float(-((FREEDOM + d) / 2 * logs + RIDGE / 2 * inverse / squares).sum())
