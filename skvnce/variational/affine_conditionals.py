"""Univariate truncated-normal conditionals, affine in the other columns.

    q(x_j | x_-j) = N(x_j; m_j, s_j^2) truncated to x_j >= 0
    m_j = v_j' x_-j + c_j,   log s_j = w_j' x_-j + d_j                             (1)

Rhodes (2018), eq. (5.19), with the logarithm of s_j instead of s_j itself, which could
be negative.  The conditionals of a truncated Gaussian have this form with w = 0.
"""

import torch
from torch import Tensor, nn

from skvnce.distributions.truncated_normal import TruncatedNormal


class AffineConditionals(nn.Module):
    """The conditionals of eq. (1); the columns are initially independent.

    `start` (batch shape (features,)).  `origin` (features,): subtracted from the
    columns, which improves the condition of the problem.
    """

    def __init__(self, start: TruncatedNormal, origin: Tensor) -> None:
        super().__init__()
        d = len(origin)
        self.register_buffer("origin", origin)
        self.register_buffer("others", 1 - torch.eye(d).to(origin))
        self.slopes = nn.Parameter(torch.zeros(2, d, d).to(origin))  # rows v_j and w_j
        start = torch.stack([start.loc, start.scale.log()])
        self.intercepts = nn.Parameter(start)  # c and d, at the origin

    def at(self, x: Tensor, columns: Tensor) -> TruncatedNormal:
        """Return q_j of one column a row; x (*batch, n, features), columns (n,)."""
        seen = (x - self.origin) * self.others[columns]
        by_loc, by_scale = self.slopes[:, columns]
        at_loc, at_scale = self.intercepts[:, columns]
        loc = (seen * by_loc).sum(-1) + at_loc
        scale = ((seen * by_scale).sum(-1) + at_scale).exp()
        return TruncatedNormal(loc, scale, validate_args=False)
