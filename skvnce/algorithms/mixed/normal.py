"""Distribution function and quantiles of the standard normal distribution."""

from math import sqrt

import numpy as np
import torch


def cdf(x: np.ndarray) -> np.ndarray:
    """Compute Phi(x), accurately in the lower tail."""
    found = np.asarray(x / -sqrt(2))
    # the tensor shares the memory of the array
    torch.from_numpy(found).erfc_()
    found /= 2
    return found


def quantile(p: np.ndarray) -> np.ndarray:
    """Compute the inverse of `cdf`."""
    return torch.special.ndtri(torch.from_numpy(p)).numpy()
