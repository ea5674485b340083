"""Variational noise-contrastive estimation: a lower bound of the NCE objective.

References
----------
Rhodes and Gutmann (2019), eq. (13); Rhodes (2018), eq. (4.14).
"""

from math import log

import torch
from torch import Tensor
from torch.nn.functional import softplus

from skvnce.objectives.base import Objective


def vnce(data: Tensor, noise: Tensor, noise_ratio: float) -> Objective:
    """Compute minus the VNCE objective.

    Parameters
    ----------
    data : Tensor of shape (n_draws, n)
        ``log phi(x, z) - log q(z | x) - log p_y(x)`` at draws z from q(. | x): latent
        variables, or the missing cells of x.  Where nothing is missing (or q is exact)
        the draws are equal and the objective is that of NCE.
    noise : Tensor of shape (n_draws, n_noise)
        The same at the noise.  The posterior q learns from the first term only: pass
        draws and log q without gradient here.
    noise_ratio : float
        nu, as in `nce`.
    """
    log_nu = log(noise_ratio)
    data_term = softplus(log_nu - data).mean()  # draws outside: Jensen's bound
    # draws inside the logarithm: importance sampling of phi(y)
    marginal = torch.logsumexp(noise, 0) - log(len(noise))
    noise_term = noise_ratio * softplus(marginal - log_nu).mean()
    return Objective(data_term + noise_term, {"data_term": data_term.detach()})
