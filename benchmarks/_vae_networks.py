"""Autoencoders of the benchmarks of bounds: several fits side by side."""

import torch
from torch import nn
from torch.distributions import Independent, Normal
from torch.nn.functional import softplus

D, LATENTS = 5, 2
BLOCKS, WIDTH = 2, 64


class SideBySide(nn.Module):
    """A linear layer of each of several fits."""

    def __init__(self, n_fits, n_in, n_out):
        super().__init__()
        reach = n_in**-0.5  # as torch starts its own
        self.weight = nn.Parameter(torch.empty(n_fits, n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_fits, 1, n_out))
        for value in self.parameters():
            nn.init.uniform_(value, -reach, reach)

    def forward(self, value):
        """Compute the outputs; (fits, rows, n_in) -> (fits, rows, n_out)."""
        return torch.baddbmm(self.bias, value, self.weight)


class Residual(nn.Module):
    """A network of residual blocks of each fit; (*sample, fits, rows, features)."""

    def __init__(self, n_fits, n_in, n_out, width=WIDTH):
        super().__init__()
        self.first = SideBySide(n_fits, n_in, width)
        self.last = SideBySide(n_fits, width, n_out)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.ReLU(),
                SideBySide(n_fits, width, width),
                nn.ReLU(),
                SideBySide(n_fits, width, width),
            )
            for _ in range(BLOCKS)
        )

    def forward(self, value):
        """Compute the outputs."""
        apart = value.movedim(-3, 0)
        value = self.first(apart.flatten(1, -2))
        for block in self.blocks:
            value = value + block(value)
        return self.last(value.relu()).unflatten(1, apart.shape[1:-1]).movedim(0, -3)


class Masked(Residual):
    """Read the row, zero where missing, and its mask."""

    def __init__(self, n_fits, n_out, width=WIDTH, d=D):
        super().__init__(n_fits, 2 * d, n_out, width)

    def forward(self, x, observed):
        """Compute the outputs."""
        seen = x.where(observed, 0.0)
        return super().forward(torch.cat([seen, observed.to(seen)], -1))


class Completed(Residual):
    """Read a completed row."""

    def __init__(self, n_fits, n_out, width=WIDTH, d=D):
        super().__init__(n_fits, d, n_out, width)

    def forward(self, x, observed):
        """Compute the outputs."""
        return super().forward(x)


class Autoencoder(nn.Module):
    """Normal columns given normal latents, of each fit."""

    def __init__(self, n_fits, width=WIDTH, d=D, n_latents=LATENTS):
        super().__init__()
        self.n_latents = n_latents
        self.network = Residual(n_fits, n_latents, 2 * d, width)

    def prior(self):
        """Return p(z)."""
        return Independent(Normal(torch.zeros(self.n_latents), 1.0), 1)

    def likelihood(self, z):
        """Return p(x_j | z) of all j."""
        loc, free = self.network(z).chunk(2, -1)
        return Normal(loc, softplus(free) + 1e-5, validate_args=False)
