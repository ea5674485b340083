"""Encoders that give one distribution of all latents of a row.

They are the posteriors of variational autoencoders: normal latents, independent given
the row, and mixtures of them.  With missing cells the posterior of a row often has
several modes, one for each way to complete it, which a single normal cannot represent.

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families, eq. (3); Kingma and Welling (2014).
"""

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal
from torch.nn.functional import softplus

from skvnce.distributions.normal_mixture import NormalMixture

_APART = 0.1  # distance of initial components, in standard deviations of the prior
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
        start = _APART * torch.randn(n_components, n_latents)
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
