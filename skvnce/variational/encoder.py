"""Amortised posteriors: a network maps a row and its mask to q(z | x).

Kingma and Welling (2014), section 2.3; Rhodes and Gutmann (2019), section 4.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution, Normal

from skvnce.variational.base import Draws, Uniforms, with_latents


class Perceptron(nn.Module):
    """A network of (standardised row, mask), in which missing cells are zero.

    `mean`, `scale` (features,): of the columns.  `hidden`: sizes of the hidden layers.
    """

    def __init__(
        self, mean: Tensor, scale: Tensor, hidden: Sequence[int], n_outputs: int
    ) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        sizes = [2 * len(mean), *hidden]
        layers = [
            part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.Tanh())
        ]
        last = nn.Linear(sizes[-1], n_outputs)
        nn.init.zeros_(last.weight)  # initially the same q for every row
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(*layers, last)

    def forward(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute outputs; (*batch, n, features), (n, features) -> (*batch, n, k)."""
        # after the division, so that cells under the mask may be NaN
        seen = ((x - self.mean) / self.scale).where(observed, 0.0)
        mask = observed.to(seen).expand_as(seen)
        return self.layers(torch.cat([seen, mask], -1))


class NormalEncoder(nn.Module):
    """Normal latents, independent given the row.

    `network`: with twice as many outputs as latents: means, logarithms of deviations.
    """

    def __init__(self, network: Perceptron) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, observed: Tensor) -> Normal:
        """Return q(z | x); batch shape (*batch, n, latents)."""
        mean, log_std = self.network(x, observed).chunk(2, -1)
        return Normal(mean, log_std.exp(), validate_args=False)


class BernoulliEncoder(nn.Module):
    """Latents of zeros and ones, independent given the row.

    `network`: with as many outputs as latents: their logits.
    """

    def __init__(self, network: Perceptron) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, observed: Tensor) -> Bernoulli:
        """Return q(z | x); batch shape (*batch, n, latents)."""
        return Bernoulli(logits=self.network(x, observed), validate_args=False)


class Latents(nn.Module):
    """Draw the latents by an encoder, as a step.

    `encoder`: (x, observed), both (n, features), to a distribution of batch (n,
    latents).
    """

    def __init__(self, encoder: nn.Module, n_latents: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.n_latents = n_latents

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw given completed rows; complete rows are encoded once."""
        (x,) = draws.values
        rows = x[0] if observed.all() else x
        mask = observed.expand(rows.shape).flatten(0, -2)
        q: Distribution = self.encoder(rows.flatten(0, -2), mask)
        template = x.new_empty(()).expand(*x.shape[:-1], self.n_latents)
        return with_latents(draws, q, uniforms(2, template))
