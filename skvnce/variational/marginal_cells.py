"""Posteriors that draw missing cells from fixed marginals, alone or in a mixture."""

from torch import Tensor, nn

from skvnce.distributions.truncated_normal import TruncatedNormal
from skvnce.variational.base import Draws, Uniforms, with_missing
from skvnce.variational.cells import DefensiveCells, NormalCells


class MarginalCells(nn.Module):
    """Draw the missing cells from truncated normals, independent of observed cells.

    `dist` (batch shape (features,)).
    """

    def __init__(self, dist: TruncatedNormal) -> None:
        super().__init__()
        self.register_buffer("loc", dist.loc)
        self.register_buffer("scale", dist.scale)

    def dist(self) -> TruncatedNormal:
        """Return the distribution of all columns."""
        return TruncatedNormal(self.loc, self.scale, validate_args=False)

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw; the mask has shape (n, features)."""
        (x,) = draws.values
        return with_missing(draws, observed, self.dist(), uniforms(1, x))

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute log q of the missing cells of completed rows; (*batch, n)."""
        return self.dist().log_prob(x).where(~observed, 0.0).sum(-1)


class DefendedCells(DefensiveCells):
    """Draw the missing cells from a mixture of a learned normal and of any fixed part.

    `fixed` (with `forward` and `log_prob` of `MarginalCells`).
    """

    def __init__(self, learnt: NormalCells, fixed: nn.Module) -> None:
        super().__init__(learnt)
        self.fixed = fixed
