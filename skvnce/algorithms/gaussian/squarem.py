"""SQUAREM: extrapolation of EM.

Varadhan and Roland (2008), Simple and globally convergent methods for accelerating the
convergence of any EM algorithm.
"""

import torch
from torch import Tensor

from skvnce.distributions.normal import Normal


def extrapolate(first: Normal, second: Normal, third: Normal) -> Normal:
    """Extrapolate from three points of EM by SQUAREM's third scheme.

    The step is halved until the covariance is positive definite (Varadhan and Roland
    2008, eqs. 6-9).
    """
    steps = [(b - a, c - b) for a, b, c in zip(first, second, third, strict=True)]
    before = sum(squares(r) for r, _ in steps)
    bend = sum(squares(v - r) for r, v in steps)
    length = (before / bend) ** 0.5 if bend else 1.0
    # a length of 1 is a step of EM without extrapolation
    while length > 1.01:
        mean, covariance = (
            a + 2 * length * r + length**2 * (v - r)
            for a, (r, v) in zip(first, steps, strict=True)
        )
        if not torch.linalg.cholesky_ex(covariance).info:
            return Normal(mean, covariance)
        length = (length + 1) / 2
    return third


def squares(x: Tensor) -> float:
    """Sum the squares of all entries."""
    return float(x.square().sum())
