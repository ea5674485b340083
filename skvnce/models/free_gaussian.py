"""A Gaussian energy with free mean and precision P, as a model without a normaliser.

    log phi(x) = -(x - mean)' P (x - mean) / 2                                     (1)
    log phi(x_o) = log N(x_o; mean, P^-1) + (d log 2 pi - log|P|) / 2              (2)

where the missing cells are integrated out.  It is the smallest model of a table of
numbers: the scale parameter that is fitted with it must come out as the known
normaliser, the second summand of eq. (2).
"""

from math import log, pi

import torch
from torch import Tensor, nn

from skvnce.distributions.free_normal import FreeNormal
from skvnce.distributions.normal import ByMissing, Normal, arrange


class FreeGaussian(nn.Module):
    """The energy of eq. (1).

    Parameters
    ----------
    pilot : Normal
        Where mean and precision start.
    """

    def __init__(self, pilot: Normal) -> None:
        super().__init__()
        self.free = FreeNormal(pilot)

    def log_density(self, x: Tensor) -> Tensor:
        """Compute eq. (1); (*batch, features) -> (*batch,)."""
        return -self.free.square(x) / 2

    def log_normaliser(self) -> Tensor:
        """Compute the integral of phi, in logarithms."""
        return (len(self.free.shift) * log(2 * pi) + self.free.log_det()) / 2

    def log_marginal(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute eq. (2).

        Parameters
        ----------
        x : Tensor of shape (*batch, n, features)
            Values under the mask are never read.
        observed : Tensor of bool, of shape (n, features)

        Returns
        -------
        Tensor of shape (*batch, n)
        """
        if observed.all():
            return self.log_density(x)
        normal, batches = self.free.inverted(), arrange(x, observed, kinds=1)
        parts = [ByMissing.of(normal, batch).log_prob for batch in batches]
        order = torch.cat([batch.rows for batch in batches]).argsort()
        return torch.cat(parts, -1)[..., order] + self.log_normaliser()

    def conditional_mean(self, x: Tensor, observed: Tensor) -> Tensor:
        """Fill missing cells by their means; (n, features), (n, features)."""
        normal, filled = self.free.inverted(), torch.empty_like(x)
        for batch in arrange(x, observed, kinds=1):
            filled[batch.rows] = ByMissing.of(normal, batch).completed() + normal.mean
        return filled
