"""Distribution function and quantiles of the standard normal distribution."""

import numpy as np
import torch

from skvnce.distributions.quantiles import normal_cdf


def cdf(x: np.ndarray) -> np.ndarray:
    """Compute Phi(x), accurately in the lower tail."""
    return normal_cdf(torch.from_numpy(x)).numpy()


def quantile(p: np.ndarray) -> np.ndarray:
    """Compute the inverse of `cdf`."""
    return torch.special.ndtri(torch.from_numpy(p)).numpy()
