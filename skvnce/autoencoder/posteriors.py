"""An encoder that corrects the exact posterior of a linear model.

    q(z | x_obs) = law of  m(x_obs) + R v,   v ~ N(shift, diag(scale^2))            (1)

where N(m, R R') is the posterior of the latents of a linear model given the observed
cells, for any pattern, and shift and log-scale are outputs of a network, initially
zero.  So before training q already has the additional variance due to missing cells.  A
mixture of several such v can represent several modes.

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families, eq. (3); Kingma and Welling (2014).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal
from torch.nn.functional import softplus

from skvnce._core.distributions.families import (
    AffineTransformed,
    DiagonalNormal,
    NormalMixture,
)
from skvnce._core.distributions.functions import PortableNormal

# exp(2) is 7: deviations differ by at most this factor from those of the linear model
_WIDEST = 2.0  # bound of |log-scale|
_APART = 0.5  # distance of the initial components of a mixture


class Anchor(NamedTuple):
    """The posterior of the linear model for some rows."""

    mean: Tensor  # (*batch, latents)
    root: Tensor  # (*batch, latents, latents): upper triangular R
    # (*batch, features): rows with missing cells at their conditional means
    filled: Tensor


class AnchoredEncoder(nn.Module):
    """q(z | x_obs) by eq. (1)."""

    def __init__(
        self,
        # (x, observed) to an `Anchor`; may be an nn.Module
        infer: Callable[[Tensor, Tensor], Anchor],
        # (filled row, mask, anchor's mean) in one to shift and log-scale, of each
        # component in turn, after the logits of all components but one
        network: nn.Module,
        n_components: int,
        n_latents: int,
    ) -> None:
        super().__init__()
        self.infer, self.network, self.n_components = infer, network, n_components
        # equal components would stay equal, as they share the gradient of a draw
        start = _APART * torch.randn(n_components, n_latents)
        self.register_buffer("start", start - start.mean(0))  # 0 for one component

    def forward(self, x: Tensor, observed: Tensor) -> AffineTransformed:
        """Return q(z | x_obs); event shape (latents,), batch shape (*batch,)."""
        observed = observed.expand(x.shape)
        return self.at(self.infer(x, observed), observed)

    @property
    def has_fixed_anchor(self) -> bool:
        """Whether the linear model stays as it is, so that anchors can be kept."""
        parts = self.infer.parameters() if isinstance(self.infer, nn.Module) else ()
        return not any(part.requires_grad for part in parts)

    def seen(self, anchor: Anchor, observed: Tensor) -> Tensor:
        """Return what the network sees; (*batch, n_inputs)."""
        return torch.cat([anchor.filled, observed.to(anchor.mean), anchor.mean], -1)

    def at(self, anchor: Anchor, observed: Tensor) -> AffineTransformed:
        """Return q(z | x_obs) given the posterior of the linear model."""
        outputs, k = self.network(self.seen(anchor, observed)), self.n_components
        logits, inside = outputs[..., : k - 1], outputs[..., k - 1 :]
        shift, free = inside.unflatten(-1, (k, -1)).chunk(2, -1)
        # a smooth bound of slope 1 at 0; clamped values would have no gradient beyond
        scale = torch.exp(_WIDEST * torch.tanh(free / _WIDEST))
        shift = shift + self.start
        if k == 1:
            v = DiagonalNormal(shift.squeeze(-2), scale.squeeze(-2))
            return AffineTransformed(v, anchor.mean, anchor.root)
        # only differences of logits matter, so that the last one is fixed
        logits = torch.cat([logits, torch.zeros_like(logits[..., :1])], -1)
        mixture = NormalMixture(logits, shift, scale, validate_args=False)
        return AffineTransformed(mixture, anchor.mean, anchor.root)

    def encode(self, seen: Tensor) -> tuple[Tensor, Tensor, tuple]:
        """Compute the parameters of v in eq. (1), for one component, without a graph.

        `seen` (n, n_inputs).  Returns `shift`, `log_scale` (n, latents); `saved`, for
        `differentiate`.
        """
        outputs, saved = self.network.evaluate(seen)
        shift, free = (part.contiguous() for part in outputs.chunk(2, -1))
        bend = free.div_(_WIDEST).tanh_()
        return shift.add_(self.start), _WIDEST * bend, (saved, bend)

    def differentiate(
        self, saved: tuple, by_shift: Tensor, by_log_scale: Tensor
    ) -> None:
        """Set the gradients of the network, given those of the results of `encode`."""
        of_network, bend = saved
        by_free = torch.ops.aten.tanh_backward(by_log_scale, bend)
        self.network.differentiate(of_network, torch.cat([by_shift, by_free], -1))


# ----------------------------------------
# Missing cells, independent given the latents and the observed cells of their row.
#
#   q(x_mis | z, x_obs) = prod_{j missing} N(x_j; loc_j(z, x_obs), scale_j(z, x_obs)^2)
#
# In a decoder x_mis depends only on z.  This is right for z of the exact posterior.
# For z of an approximate posterior, x_obs adds the information that z lacks.  The
# class `AnchoredLatentCells` starts at the first case, p(x_j | z) of a linear model.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, section 5.3.


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


# ----------------------------------------
# Encoders that give one distribution of all latents of a row.
#
# They are the posteriors of variational autoencoders: normal latents, independent
# given the row, and mixtures of them.  With missing cells the posterior of a row
# often has several modes, one for each way to complete it, which a single normal
# cannot represent.
#
# Simkus and Gutmann (2024), Improving variational autoencoder estimation from
# incomplete data with mixture variational families, eq. (3); Kingma and Welling
# (2014).


_LATENTS_APART = (
    0.1  # distance of initial components, in standard deviations of the prior
)
_LEAST_SCALE = 1e-5  # a component without width has no density


class IndependentNormalEncoder(nn.Module):
    """Normal latents, independent given the row.

    `network`: (x, observed) to 2 outputs a latent: means, then unconstrained
    deviations.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, observed: Tensor) -> Independent:
        """Return q(z | x); event shape (latents,), batch shape (*batch,)."""
        loc, free = self.network(x, observed).chunk(2, -1)
        return Independent(Normal(loc, _scale(free), validate_args=False), 1)


class MixtureEncoder(nn.Module):
    """Latents of a mixture of normals, eq. (3) of the paper.

    The initial components differ slightly.  Equal components would remain equal,
    because they share the gradient of a draw by their densities.

    `network`: (x, observed) to ``n_components * (2 * n_latents + 1)`` outputs: means
    and unconstrained deviations of each component in turn, then the logits of all.
    """

    def __init__(self, network: nn.Module, n_components: int, n_latents: int) -> None:
        super().__init__()
        self.network = network
        start = _LATENTS_APART * torch.randn(n_components, n_latents)
        self.register_buffer("start", start - start.mean(0))

    def forward(self, x: Tensor, observed: Tensor) -> NormalMixture:
        """Return q(z | x); event shape (latents,), batch shape (*batch,)."""
        n_components = len(self.start)
        outputs = self.network(x, observed)
        inside = outputs[..., :-n_components].unflatten(-1, (n_components, -1))
        loc, free = inside.chunk(2, -1)  # (*batch, components, latents)
        logits = outputs[..., -n_components:]
        return NormalMixture(
            logits, loc + self.start, _scale(free), validate_args=False
        )


def _scale(free: Tensor) -> Tensor:
    return softplus(free) + _LEAST_SCALE
