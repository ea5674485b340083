"""A model with its scale parameter: log phi(x) = log phi_0(x) - c.

If phi_0 is not normalised, the c that maximises the objective estimates the logarithm
of its integral (Gutmann and Hyvarinen 2012, section 2).
"""

import torch
from torch import Tensor, nn


class Scaled(nn.Module):
    """Subtract a free scale parameter from the log-density of a module.

    `model`: its `log_density` and `log_marginal` get rows of shape (n, features)
    without further leading dimensions, unless it has `takes_batches`.  `free`: if
    False, the scale parameter is a constant: zero, until `rescale`.
    """

    def __init__(self, model: nn.Module, *, free: bool = True) -> None:
        super().__init__()
        self.model = model
        zero = torch.zeros((), dtype=torch.float64)
        self.log_scale = nn.Parameter(zero, requires_grad=free)

    @torch.no_grad()
    def rescale(self, log_scale: float | Tensor) -> None:
        """Set the scale parameter."""
        self.log_scale.fill_(log_scale)

    @property
    def states(self) -> Tensor:
        """The states of the latents, of an enumerable model."""
        return self.model.states.to(self.log_scale)

    def log_density(self, *values: Tensor) -> Tensor:
        """Compute log phi(x) or log phi(x, z); (*batch, k), ... -> (*batch,)."""
        flat = [value.flatten(0, -2) for value in values]
        found = self.model.log_density(*flat)
        return found.view(values[0].shape[:-1]) - self.log_scale

    def log_marginal(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute log phi of observed cells; (*batch, n, d), (n, d) -> (*batch, n)."""
        if x.dim() == 2 or getattr(self.model, "takes_batches", False):
            found = self.model.log_marginal(x, observed)
        else:
            tables = x.flatten(0, -3)
            found = [self.model.log_marginal(table, observed) for table in tables]
            found = torch.stack(found).view(x.shape[:-1])
        return found - self.log_scale
