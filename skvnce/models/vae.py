"""The model of a variational autoencoder: a linear model plus a network.

    z ~ N(0, I)                                                                    (1)
    x_j | z ~ family_j(mean_j + w_j'z + f_j(z),  scale_j e^(g_j(z)))              (2)

With f = g = 0, the initial state, and normal columns it is factor analysis; this is
obtained by a network (f, g) whose last layer is zero.  Near its lower bound the scale
is less sensitive to g.

Kingma and Welling (2014), Auto-encoding variational Bayes; Rezende, Mohamed and
Wierstra (2014); Simkus et al. (2023), appendix J, for the linear model.
"""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from skvnce.distributions.cells import Cells, Families
from skvnce.distributions.diagonal_normal import DiagonalNormal

# exp(3) is 20: deviations of a column differ by at most this factor from scale_j
_STEEPEST = 3.0  # bound of |g|


class VariationalAutoencoderModel(nn.Module):
    """p(z) and p(x | z), eqs. (1) and (2)."""

    def __init__(
        self,
        mean: Tensor,  # (features,)
        loadings: Tensor,  # (features, latents): the w_j
        scale: Tensor,  # (features,): standard deviations given the latents
        network: nn.Module,  # z (*batch, latents) to f and g, (*batch, 2 * features)
        families: Families,
        # minimum standard deviation: without it the likelihood has no maximum
        floor: float,
    ) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean.clone())
        self.loadings = nn.Parameter(loadings.clone())
        self.free_scale = nn.Parameter(_unbounded(scale, floor))
        self.network, self.families, self.floor = network, families, floor
        # a buffer, so that the prior follows the type and the device of the module
        self.register_buffer("origin", torch.zeros(loadings.shape[1]).to(loadings))

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "VariationalAutoencoderModel":
        """Move the tables of the families with the parameters; types stay."""
        super()._apply(fn, recurse)
        self.families = self.families.on(self.origin.device)
        return self

    @property
    def sizes(self) -> tuple[int, int, list[int]]:
        """Numbers of columns and latents, and of outputs of the hidden layers."""
        widths = [block[-1].out_features for block in self.network.blocks]
        return *self.loadings.shape, widths

    def prior(self) -> DiagonalNormal:
        """Return p(z), of event shape (latents,)."""
        return DiagonalNormal(self.origin, torch.ones_like(self.origin))

    def likelihood(self, z: Tensor) -> Cells:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        f, g = self.network(z).chunk(2, -1)
        loc = linear(z, self.loadings, self.mean) + f
        # a smooth bound of slope 1 at 0; a clamped g would have no gradient beyond
        g = _STEEPEST * torch.tanh(g / _STEEPEST)
        scale = self.floor * torch.exp(softplus(self.free_scale + g))
        return Cells(loc, scale, self.families)

    def decode(self, z: Tensor) -> tuple[Tensor, Tensor, tuple]:
        """Compute the parameters of eq. (2) without a graph.

        `z` (*batch, latents).  Returns `loc`, `log_scale` (*batch, features); `saved`,
        for `differentiate`.
        """
        outputs, saved = self.network.evaluate(z)
        shape, z = (*z.shape[:-1], -1), z.reshape(-1, z.shape[-1])
        f, g = (part.contiguous() for part in outputs.chunk(2, -1))
        loc = f.addmm_(z, self.loadings.T).add_(self.mean)
        bend = g.div_(_STEEPEST).tanh_()
        above = torch.add(self.free_scale, bend, alpha=_STEEPEST)
        log_scale = above.exp().log1p_().add_(log(self.floor))
        return loc.view(shape), log_scale.view(shape), (saved, z, bend, above)

    def differentiate(
        self, saved: tuple, by_loc: Tensor, by_log_scale: Tensor
    ) -> Tensor:  # (*batch, latents): the gradient in z
        """Set the gradients of all parameters from those of the results of `decode`."""
        of_network, z, bend, above = saved
        shape = *by_loc.shape[:-1], -1
        by_loc, by_log_scale = by_loc.flatten(0, -2), by_log_scale.flatten(0, -2)
        by_above = by_log_scale * above.sigmoid()
        by_g = torch.ops.aten.tanh_backward(by_above, bend)
        torch.mm(by_loc.T, z, out=self.loadings.grad)
        torch.sum(by_loc, 0, out=self.mean.grad)
        torch.sum(by_above, 0, out=self.free_scale.grad)
        by_outputs = torch.cat([by_loc, by_g], -1)
        by_z = self.network.differentiate(of_network, by_outputs, needs_input=True)
        return by_z.addmm_(by_loc, self.loadings).view(shape)


def _unbounded(scale: Tensor, floor: float) -> Tensor:
    """Invert the bound of the scale, at a point slightly above it."""
    above = (scale / floor).clamp(min=1.05).log()
    return above.expm1().log()
