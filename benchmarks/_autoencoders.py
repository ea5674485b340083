"""Small variational autoencoders for the benchmarks of samplers, and their training.

The networks of Simkus and Gutmann (2023), appendix C.3: perceptrons with residual
blocks, normal latents, normal or Bernoulli cells.  They are trained on complete rows by
the evidence lower bound, with the gradients of Roeder, Wu and Duvenaud (2017),
"sticking the landing".
"""

import time
from functools import partial

import torch
from torch import nn
from torch.distributions import Bernoulli, Independent, Normal
from torch.nn.functional import softplus

from skvnce._core.random import seeded

LEAST_SCALE = 1e-5
MAX_NORM = 10.0  # of gradients


class ResidualNetwork(nn.Module):
    """A perceptron with residual blocks of two layers of one width."""

    def __init__(self, n_in, n_out, width, n_blocks=2, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(n_in, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.ReLU(),
                nn.Linear(width, width),
                nn.ReLU(),
                nn.Dropout(dropout),
                nn.Linear(width, width),
            )
            for _ in range(n_blocks)
        )
        self.last = nn.Linear(width, n_out)

    def forward(self, value):
        """Map (*batch, n_in) to (*batch, n_out)."""
        value = self.first(value)
        for block in self.blocks:
            value = value + block(value)
        return self.last(value.relu())


class Autoencoder(nn.Module):
    """p(z), p(x | z) and the encoder q(z | x) of completed rows."""

    def __init__(self, n_features, n_latents, width, *, binary=False, dropout=0.0):
        super().__init__()
        self.n_latents, self.binary = n_latents, binary
        n_out = n_features if binary else 2 * n_features
        size = {"width": width, "dropout": dropout}
        self.decoder = ResidualNetwork(n_latents, n_out, **size)
        self.encoder = ResidualNetwork(n_features, 2 * n_latents, **size)

    def prior(self):
        """Return p(z)."""
        return independent(torch.zeros(self.n_latents), torch.ones(self.n_latents))

    def likelihood(self, z):
        """Return p(x_j | z) of all j."""
        outputs = self.decoder(z)
        if self.binary:
            return Bernoulli(logits=outputs, validate_args=False)
        loc, free = outputs.chunk(2, -1)
        return Normal(loc, softplus(free) + LEAST_SCALE, validate_args=False)

    def posterior(self, x, observed=None):
        """Return q(z | x)."""
        loc, free = self.encoder(x).chunk(2, -1)
        return independent(loc, softplus(free) + LEAST_SCALE)


def independent(loc, scale):
    """Return normal latents."""
    return Independent(Normal(loc, scale, validate_args=False), 1, validate_args=False)


def bound(vae, x, n_draws):
    """Compute the mean lower bound of log p(x); parameters of log q are held fixed."""
    q = vae.posterior(x)
    z = q.rsample((n_draws,))
    held = independent(q.base_dist.loc.detach(), q.base_dist.scale.detach())
    log_p = vae.likelihood(z).log_prob(x).sum(-1) + vae.prior().log_prob(z)
    return (log_p - held.log_prob(z)).mean()


def adam_steps(
    loss,
    leaves,
    rate,
    n_steps,
    limit=lambda: None,
    on_step=lambda step: None,
    **options,
):
    """Minimise a loss by Adam, the rate falling to zero along half a cosine."""
    adam = torch.optim.Adam(leaves, rate, **options)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, n_steps)
    for step in range(1, n_steps + 1):
        adam.zero_grad()
        loss().backward()
        limit()  # the gradients
        adam.step()
        schedule.step()
        on_step(step)


def train(vae, x, *, n_steps, batch_size, n_draws, rate, noise=0.0):
    """Maximise the bound."""

    def loss():
        rows = x[torch.randint(len(x), (batch_size,))]
        return -bound(vae, rows + noise * torch.randn_like(rows), n_draws)

    leaves = [*vae.train().parameters()]
    limit = partial(nn.utils.clip_grad_norm_, leaves, MAX_NORM)
    adam_steps(loss, leaves, rate, n_steps, limit)
    return vae.eval().requires_grad_(False)


def trained(study, x, parts, seed, *, binary=False):
    """Train the autoencoder of a study; with the bounds of parts, and CPU seconds."""
    begin = time.process_time()
    with seeded(seed):
        size = {"binary": binary, "dropout": study.dropout}
        vae = Autoencoder(x.shape[1], study.n_latents, study.width, **size)
        vae = train(vae, x, **study.training)
        bounds = [float(bound(vae, part, 4)) for part in parts]
    return vae, bounds, time.process_time() - begin
