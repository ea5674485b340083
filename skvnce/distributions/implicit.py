"""Gradients of draws that a numerical inverse has found.

A draw x at the quantile u solves F(x) = u; when the parameters of F move and u stays,
``dx = -dF / f(x)`` (Figurnov, Mohamed and Mnih 2018, eq. 5).
"""

import torch
from torch import Tensor
from torch.distributions import Distribution


def with_gradient(drawn: Tensor, q: Distribution) -> Tensor:
    """Give draws without a gradient that of the quantile, once.

    Parameters
    ----------
    drawn : Tensor of shape (*sample, *batch)
    q : Distribution of batch shape (*batch,)
        Univariate, with `cdf` and `log_prob`.
    """
    if not torch.is_grad_enabled():
        return drawn
    least = torch.finfo(drawn.dtype).tiny ** 0.5  # no draw is so far out
    step = -q.cdf(drawn) / q.log_prob(drawn).detach().exp().clamp(min=least)
    return drawn + (step - step.detach())
