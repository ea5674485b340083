"""Missing cells, independent given the latents and the observed cells of their row.

    q(x_mis | z, x_obs) = prod_{j missing} N(x_j; loc_j(z, x_obs), scale_j(z, x_obs)^2)

In a decoder x_mis depends only on z.  This is right for z of the exact posterior.  For
z of an approximate posterior, x_obs adds the information that z lacks.  The class
`AnchoredLatentCells` starts at the first case, p(x_j | z) of a linear model.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, section 5.3.
"""

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from skvnce.distributions.portable import PortableNormal

# exp(12) is 2e5: squares and inverses of scales are far from overflow in float32
_STEEPEST = 12.0  # bound of log-scales


class NormalLatentCells(nn.Module):
    """q(x_j | z, x_obs) of all columns, normal.

    `network`: (observed cells, zero where missing; latents) in one, (*batch, features +
    latents), to means and log-scales, (*batch, 2 * features).
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, observed: Tensor, z: Tensor) -> Normal:
        """Return q of all columns, of batch shape (*batch, features).

        `observed` (bool that broadcasts to (*batch, features)), `z` (*batch, latents).
        `x` (*batch, features): values under the mask are arbitrary.
        """
        seen = torch.cat([x.where(observed, x.new_zeros(())), z], -1)
        return _normal(*self.network(seen).chunk(2, -1))


class AnchoredLatentCells(nn.Module):
    """q(x_j | z, x_obs) of all columns: p(x_j | z) of a linear model plus a network.

        x_j ~ N(mean_j + w_j'z + f_j(x_obs, z), (scale_j exp(g_j(x_obs, z)))^2)

    `mean`, `scale` (features,).  `loadings` (features, latents): the w_j.  Mean,
    loadings and scale are initial values; they are trained, too.  `network`: (observed
    cells, zero where missing; mask; latents) in one, (*batch, 2 * features + latents),
    to f and g, (*batch, 2 * features), initially zero.
    """

    def __init__(
        self, mean: Tensor, loadings: Tensor, scale: Tensor, network: nn.Module
    ) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean.detach().clone())
        self.loadings = nn.Parameter(loadings.detach().clone())
        self.log_scale = nn.Parameter(scale.detach().log())
        self.network = network

    def forward(self, x: Tensor, observed: Tensor, z: Tensor) -> Normal:
        """Return q of all columns; see `NormalLatentCells.forward`."""
        mask = observed.expand(x.shape).to(z)
        seen = torch.cat([x.where(observed, x.new_zeros(())), mask, z], -1)
        f, g = self.network(seen).chunk(2, -1)
        return _normal(self.mean + z @ self.loadings.T + f, self.log_scale + g)


def _normal(loc: Tensor, log_scale: Tensor) -> Normal:
    scale = log_scale.clamp(-_STEEPEST, _STEEPEST).exp()
    return PortableNormal(loc, scale, validate_args=False)
