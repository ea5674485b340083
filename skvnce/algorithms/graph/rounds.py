"""How many rounds EM needs: what chains remember, and how far a start is forgotten."""

from math import ceil, log

import torch
from torch import Tensor

_LEAST_TOLERANCE = 2e-3
_FEWEST, _MOST = 2, 10  # rounds of `rounds_to_settle`


def lagged_products(before: Tensor, after: Tensor, missing: Tensor) -> Tensor:
    """Multiply deviations of draws with those of the next round; (2, features)."""
    # the difference of two chains of a row has mean 0, for any mean of the row
    first, second = ((x[0] - x[1]).where(missing, 0.0) for x in (before, after))
    square = (first.square() + second.square()) / 2
    return torch.stack([(first * second).sum(0), square.sum(0)])


def largest_autocorrelation(products: Tensor) -> float:
    """Divide the products of `lagged_products`, summed over rounds."""
    return float((products[0] / products[1].clamp(min=1e-300)).max().clamp(0, 1))


def tolerance(observed: Tensor) -> float:  # observed (n, features), bool
    """Compute a tenth of the standard error of a weak edge strength, at least 0.002."""
    seen = observed.double()
    pairs = float((seen.T @ seen).mean())  # rows that observe both of two columns
    return max(_LEAST_TOLERANCE, 0.1 / max(pairs, 1.0) ** 0.5)


def rounds_needed(autocorrelation: float) -> float:
    """Compute the rounds to average over, for draws of this autocorrelation.

    This is twice the integrated autocorrelation time ``(1 + r) / (1 - r)``.  The steps
    of averaged rounds become small whether or not the chains have moved, so they cannot
    indicate convergence.
    """
    return 2 * (1 + autocorrelation) / max(1 - autocorrelation, 1e-9)


def rounds_to_settle(observed: Tensor, left: float) -> int:
    """Compute the rounds after which a share of the distance of a start is left.

    The share of the missing information of a covariance is at most about that of the
    pairs of cells that are not both observed, and so is the rate of EM (Dempster, Laird
    and Rubin 1977). At least 2, and at most 10.  `observed`: (n, features), bool.
    `left`: the share.
    """
    seen = observed.double()
    rate = 1 - float((seen.T @ seen).mean()) / len(seen)
    # the logarithms of 0 and of 1 are no divisors
    n_rounds = ceil(log(left) / log(min(max(rate, 0.1), 0.99)))
    return min(max(n_rounds, _FEWEST), _MOST)
