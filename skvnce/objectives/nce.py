"""Noise-contrastive estimation: classify data and noise by the log-ratio of densities.

With h the probability that a row u is data, nu the number of noise rows for each data
row, and G the log-ratio of the model and the noise,

    J_NCE = E_x log h(x) + nu E_y log(1 - h(y))                                    (1)
    h(u) = phi(u) / (phi(u) + nu p_y(u)) = 1 / (1 + nu exp(-G(u)))                 (2)

Gutmann and Hyvarinen (2012); Rhodes and Gutmann (2019), eqs. (4)-(5).
"""

from math import log

import torch
from torch import Tensor
from torch.nn.functional import softplus

from skvnce.objectives.base import Objective


def log_is_data(log_ratio: Tensor, noise_ratio: float) -> Tensor:
    """Compute log h(u), eq. (2), of each row; any shape."""
    # the sigmoid itself would underflow, and its logarithm would be infinite
    return -softplus(log(noise_ratio) - log_ratio)


def log_is_noise(log_ratio: Tensor, noise_ratio: float) -> Tensor:
    """Compute log(1 - h(u)) of each row; any shape."""
    return -softplus(log_ratio - log(noise_ratio))


def accuracy(data: Tensor, noise: Tensor, noise_ratio: float) -> Tensor:
    """Compute the accuracy of h on data and noise, with weight nu for noise rows."""
    log_nu = log(noise_ratio)
    right = (data > log_nu).double().mean(), (noise <= log_nu).double().mean()
    return (right[0] + noise_ratio * right[1]) / (1 + noise_ratio)


def nce(data: Tensor, noise: Tensor, noise_ratio: float) -> Objective:
    """Compute minus the NCE objective, eq. (1).

    `data` (n,): log phi(x) - log p_y(x) at the data; of the observed part if values are
    missing.  `noise` (n_noise,): the same at the noise.  `noise_ratio`: nu, the number
    of noise rows for each data row in the objective; the second term is nu times a
    mean, for any n_noise.
    """
    data_term = log_is_data(data, noise_ratio).mean()
    noise_term = noise_ratio * log_is_noise(noise, noise_ratio).mean()
    with torch.no_grad():
        metrics = {"accuracy": accuracy(data, noise, noise_ratio)}
    return Objective(-data_term - noise_term, metrics)
