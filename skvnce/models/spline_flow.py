"""A normalising flow of rational-quadratic splines that starts at a normal.

    u = T_n( ... T_1(L^-1 (x - mean))),  log p(x) = log N(u; 0, I) + log|det du/dx|  (1)

Each T is an invertible linear map followed by a monotone spline of every coordinate,
whose knots a masked network computes from other coordinates.  All T are initially the
identity, so that p starts at N(mean, L L').

Durkan, Bekasov, Murray and Papamakarios (2019), Neural spline flows; Simkus, Rhodes and
Gutmann (2023), section 6.
"""

from collections.abc import Callable, Iterable
from math import log, pi

import torch
from torch import Tensor, nn
from torch.distributions.transforms import Transform

from skvnce.distributions.splines import (
    ComposedTransform,
    LULinearTransform,
    MaskedAutoregressiveTransform,
    MonotonicRQSTransform,
)


class SplineFlow(nn.Module):
    """p(x) of eq. (1)."""

    def __init__(
        self,
        mean: Tensor,  # (features,)
        # (features, features): L, lower triangular with a positive diagonal
        factor: Tensor,
        *,
        n_steps: int = 3,
        n_bins: int = 8,
        hidden: tuple[int, ...] = (64, 64),  # sizes of the masked networks' layers
        # 2 makes coupling steps: one half of the coordinates, in an order drawn from
        # torch's stream, transforms the other.  None makes autoregressive steps, whose
        # inverse needs as many passes as there are columns
        n_passes: int | None = 2,
        bound: float = 5.0,  # splines are the identity beyond this bound
    ) -> None:
        super().__init__()
        d = len(mean)
        self.mean = nn.Parameter(mean.clone())
        # the parameter is the inverse of L: `to_base`, used in training, is a product
        root = torch.linalg.inv(factor).tril()
        self.whiten = nn.Parameter(root.tril(-1))
        self.log_diagonal = nn.Parameter(root.diagonal().log())
        self.linear = nn.ParameterList(torch.eye(d).to(mean) for _ in range(n_steps))
        self.splines = nn.ModuleList(
            MaskedAutoregressiveTransform(
                d,
                # a single column has no other half
                passes=n_passes if d > 1 else None,
                order=torch.randperm(d),
                univariate=_spline(bound),
                shapes=[(n_bins,), (n_bins,), (n_bins - 1,)],
                hidden_features=hidden,
                activation=nn.SiLU,
            )
            for _ in range(n_steps)
        )
        for step in self.splines:
            for leaf in _last(step):
                nn.init.zeros_(leaf)
        self.to(mean)

    def log_prob(self, x: Tensor) -> Tensor:
        """Compute log p(x); (*batch, features) -> (*batch,)."""
        u, log_det = self.to_base(x)
        return log_det - (u.square() + log(2 * pi)).sum(-1) / 2

    def to_base(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map x to u; with log|det du/dx| of each row."""
        u = (x - self.mean) @ self._root().T
        log_det = self.log_diagonal.sum()
        if not u.numel():  # zuko does not support empty batches
            return u, u.sum(-1)
        u, inside = self._transform().call_and_ladj(u)
        return u, log_det + inside

    def from_base(self, u: Tensor) -> Tensor:
        """Map u (*batch, features) to x."""
        v = self._transform().inv(u)
        root = self._root()
        return torch.linalg.solve_triangular(root, v.mT, upper=False).mT + self.mean

    def sample(self, n: int) -> Tensor:
        """Draw rows from torch's stream; (n, features)."""
        return self.from_base(torch.randn(n, len(self.mean)).to(self.mean))

    def _root(self) -> Tensor:
        return self.whiten.tril(-1) + self.log_diagonal.exp().diag()

    def _transform(self) -> Transform:
        parts = []
        for linear, spline in zip(self.linear, self.splines, strict=True):
            parts += [LULinearTransform(linear), spline()]
        return ComposedTransform(*parts)


def _last(step: nn.Module) -> Iterable[Tensor]:
    """Find the parameters of the knots: the last layer, or knots of a single column."""
    return step.hyper[-1].parameters() if hasattr(step, "hyper") else step.phi


def _spline(bound: float) -> Callable[..., Transform]:
    return lambda *knots: MonotonicRQSTransform(*knots, bound=bound)
