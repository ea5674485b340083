"""The continuous Bernoulli distribution on [0, 1], by its logit.

    p(u) = exp(eta u - A(eta)),   A(eta) = log int_0^1 exp(eta u) du               (1)

An autoencoder with Bernoulli likelihoods of numbers between 0 and 1, such as grey
levels, omits A and is therefore no density.

Loaiza-Ganem and Cunningham (2019), The continuous Bernoulli: fixing a pervasive error
in variational autoencoders.
"""

import torch
from torch import Tensor

# there the next terms of the series, and the cancellation without them, are about 1e-12
_SMALL = 1e-2  # below it series are more accurate
# sinh(eta / 2)^2 overflows if eta is above 709
_STEEPEST = 400.0  # bound of logits that `logit_of` finds


def log_prob(u: Tensor, eta: Tensor) -> Tensor:
    """Compute the log-density (1); numbers outside [0, 1] count as its nearest end."""
    return eta * u.clamp(0.0, 1.0) - log_partition(eta)


def log_partition(eta: Tensor) -> Tensor:
    """Compute A(eta) = eta / 2 + log(sinh(eta / 2) / (eta / 2))."""
    small = eta.abs() < _SMALL
    # 1 where the series is used, so that gradients of the other branch are finite
    size = eta.where(~small, torch.ones_like(eta)).abs()
    even = size / 2 + torch.log(-torch.expm1(-size)) - size.log()
    return eta / 2 + torch.where(small, eta.square() / 24, even)


def quantile(level: Tensor, eta: Tensor) -> Tensor:
    """Compute quantiles."""
    # the formula is 0 / 0 at 0; its exponential of a negative number does not overflow
    steep = -eta.abs().clamp(min=1e-6)
    mirrored = eta > 0
    below = torch.where(mirrored, 1 - level, level)
    u = torch.log1p(below * torch.expm1(steep)) / steep
    return torch.where(mirrored, 1 - u, u).clamp(0.0, 1.0)


def moments(eta: Tensor) -> tuple[Tensor, Tensor]:
    """Compute mean and variance, the first two derivatives of A."""
    small = eta.abs() < _SMALL
    # 1 where the series is used, so that gradients of the other branch are finite
    safe = eta.where(~small, torch.ones_like(eta))
    mean = -1 / torch.expm1(-safe) - 1 / safe
    variance = 1 / safe.square() - 1 / (4 * torch.sinh(safe / 2).square())
    mean = torch.where(small, 0.5 + eta / 12 - eta**3 / 720, mean)
    return mean, torch.where(small, 1 / 12 - eta.square() / 240, variance)


def logit_of(mean: Tensor) -> Tensor:
    """Return the logit of a mean between 0 and 1, by bisection."""
    low = torch.full_like(mean, -_STEEPEST)
    high = -low
    # halvings of 800 down to 7e-16
    for _ in range(60):
        middle = (low + high) / 2
        above = moments(middle)[0] > mean
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return (low + high) / 2
