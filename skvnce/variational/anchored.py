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

from skvnce.distributions.affine_transformed import AffineTransformed
from skvnce.distributions.diagonal_normal import DiagonalNormal
from skvnce.distributions.normal_mixture import NormalMixture

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
