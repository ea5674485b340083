"""A Gaussian energy with free mean and precision P, as an unnormalised model.

    log phi(x) = -(x - mean)' P (x - mean) / 2                                     (1)
    log phi(x_o) = log N(x_o; mean, P^-1) + (d log 2 pi - log|P|) / 2              (2)

where the missing cells are integrated out.  It is the simplest model of a table of
numbers: the scale parameter that is fitted with it must equal the known normaliser, the
second summand of eq. (2).
"""

from math import log, pi

import torch
from torch import Tensor, nn

from skvnce.distributions.free_normal import FreeNormal
from skvnce.distributions.normal import (
    ByMissing,
    Normal,
    arrange,
    log_prob_observed,
)


class FreeGaussian(nn.Module):
    """The energy of eq. (1); rows may have leading dimensions.

    `initial`: the initial mean and precision.
    """

    takes_batches = True  # of `log_marginal`: one mask for all leading dimensions

    def __init__(self, initial: Normal) -> None:
        super().__init__()
        self.free = FreeNormal(initial)

    def log_density(self, x: Tensor) -> Tensor:
        """Compute eq. (1); (*batch, features) -> (*batch,)."""
        return -self.free.square(x) / 2

    def log_normaliser(self) -> Tensor:
        """Compute the logarithm of the integral of phi."""
        return (len(self.free.shift) * log(2 * pi) + self.free.log_det()) / 2

    def log_marginal(self, x: Tensor, observed: Tensor) -> Tensor:  # (*batch, n)
        """Compute eq. (2).

        `observed` (bool (n, features)).  `x` (*batch, n, features): values under the
        mask are not used.
        """
        if observed.all():
            return self.log_density(x)
        log_prob = log_prob_observed(self.free.factored(), x, observed)
        return log_prob + self.log_normaliser()

    def conditional_mean(self, x: Tensor, observed: Tensor) -> Tensor:
        """Fill missing cells by their means; (n, features), (n, features)."""
        normal, filled = self.free.factored(), torch.empty_like(x)
        for batch in arrange(x, observed, kinds=1):
            filled[batch.rows] = ByMissing.of(normal, batch).completed() + normal.mean
        return filled
