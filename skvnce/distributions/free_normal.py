"""A normal distribution with free mean and precision, parametrised by a given one.

With ``R R'`` the covariance of the initial normal and m its mean,

    mean = m + R shift,   precision = R^-T A A' R^-1,   A lower triangular        (1)

where the diagonal of A is ``exp(log_diagonal)``: any positive definite precision has
exactly one such form.  The parameters are zero at the initial normal, and otherwise of
the size of one standard error times the root of n, for all units and correlations.  So
optimisers see a well-conditioned problem, and a penalty on their squares shrinks
towards the initial normal.
"""

import torch
from torch import Tensor, nn

from skvnce.distributions.normal import FactoredNormal, Normal, cholesky


class FreeNormal(nn.Module):
    """A normal distribution in the parameters of eq. (1).

    `initial`: the normal at which the parameters are zero.
    """

    def __init__(self, initial: Normal) -> None:
        super().__init__()
        d = len(initial.mean)
        root = cholesky(initial.covariance)
        eye = torch.eye(d).to(root)
        self.register_buffer("initial_mean", initial.mean.clone())
        self.register_buffer("root", root)
        inverse = torch.linalg.solve_triangular(root, eye, upper=False)
        self.register_buffer("inverse_root", inverse)
        self.shift = nn.Parameter(torch.zeros(d).to(root))
        self.log_diagonal = nn.Parameter(torch.zeros(d).to(root))
        self.below = nn.Parameter(torch.zeros(d * (d - 1) // 2).to(root))

    def factor(self) -> Tensor:
        """Compute A; (features, features)."""
        d = len(self.shift)
        places = torch.tril_indices(d, d, -1, device=self.below.device)
        zeros = self.below.new_zeros(d, d)
        below = zeros.index_put(tuple(places), self.below)
        return below + self.log_diagonal.exp().diag()

    def mean(self) -> Tensor:
        """Compute the mean; (features,)."""
        return self.initial_mean + self.root @ self.shift

    def precision(self) -> Tensor:
        """Compute the precision; (features, features)."""
        half = self.inverse_root.T @ self.factor()
        return half @ half.T

    def log_det(self) -> Tensor:
        """Compute the log-determinant of the covariance."""
        return 2 * (self.root.diagonal().log().sum() - self.log_diagonal.sum())

    def square(self, x: Tensor) -> Tensor:
        """Compute ``(x - mean)' precision (x - mean)``; (*batch, features)."""
        whitened = (x - self.initial_mean) @ self.inverse_root.T - self.shift
        return (whitened @ self.factor()).square().sum(-1)

    def factored(self) -> FactoredNormal:
        """Return the parts for conditioning on missing blocks, differentiable."""
        precision = self.precision()
        nothing = precision.new_empty(0)
        return FactoredNormal(self.mean(), nothing, precision, nothing, self.log_det())

    @torch.no_grad()
    def normal(self) -> Normal:
        """Return mean and covariance."""
        d = len(self.shift)
        eye = torch.eye(d).to(self.root)
        inverse = torch.linalg.solve_triangular(self.factor(), eye, upper=False)
        half = self.root @ inverse.T
        return Normal(self.mean(), half @ half.T)
