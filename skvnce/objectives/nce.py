"""Noise-contrastive estimation: tell data from noise by the log-ratio of densities.

References
----------
Gutmann and Hyvarinen (2012); Rhodes and Gutmann (2019), eqs. (5)-(6).
"""

from math import log

from torch import Tensor
from torch.nn.functional import softplus

from skvnce.objectives.base import Objective


def nce(data: Tensor, noise: Tensor, noise_ratio: float) -> Objective:
    """Compute minus the NCE objective.

    Parameters
    ----------
    data : Tensor of shape (n,)
        log phi(x) - log p_y(x) at the data; with holes, both of the observed part.
    noise : Tensor of shape (n_noise,)
        The same at the noise.
    noise_ratio : float
        nu, noise rows a data row in the objective; the second term is nu times a
        mean, whatever n_noise.
    """
    log_nu = log(noise_ratio)
    data_term = softplus(log_nu - data).mean()  # -J1
    noise_term = noise_ratio * softplus(noise - log_nu).mean()  # -J2
    right = (data > log_nu).double().mean(), (noise <= log_nu).double().mean()
    accuracy = (right[0] + noise_ratio * right[1]) / (1 + noise_ratio)
    return Objective(data_term + noise_term, {"accuracy": accuracy})
