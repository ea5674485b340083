"""Gradients of draws that are computed by numerical inversion.

A draw x at the quantile u solves F(x) = u.  If the parameters of F change and u is
fixed, ``dx = -dF / f(x)`` (Figurnov, Mohamed and Mnih 2018, eq. 5).
"""

import torch
from torch import Tensor
from torch.distributions import Distribution


def with_gradient(drawn: Tensor, q: Distribution) -> Tensor:
    """Add the gradient of the quantile to draws without a gradient, first order only.

    `drawn` (*sample, *batch).  `q` (batch shape (*batch,)): univariate, with `cdf` and
    `log_prob`.
    """
    if not torch.is_grad_enabled():
        return drawn
    least = torch.finfo(drawn.dtype).tiny ** 0.5  # below the density of any draw
    step = -q.cdf(drawn) / q.log_prob(drawn).detach().exp().clamp(min=least)
    # zero, with the gradient of the step
    return drawn + (step - step.detach())
