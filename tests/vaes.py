"""Small variational autoencoders with log p(x_obs) known, for tests."""

import torch
from oracles import line_rule, log_integral
from torch import nn
from torch.distributions import Independent, Normal

from skvnce.distributions.normal_mixture import NormalMixture
from skvnce.objectives.elbo import log_joint


class Curved(nn.Module):
    """Normal columns around a curve of the latents; ``mean`` may have a row for each.

    With ``bend`` 0 it is factor analysis.
    """

    def __init__(self, loadings, scale, bend=1.0, mean=0.0):
        super().__init__()
        self.loadings = nn.Parameter(torch.as_tensor(loadings).double())
        self.log_scale = nn.Parameter(torch.as_tensor(scale).double().log())
        self.mean = nn.Parameter(torch.as_tensor(mean).double())
        self.bend = bend

    def prior(self):
        zeros = torch.zeros(self.loadings.shape[1]).double()
        return Independent(Normal(zeros, 1.0), 1)

    def likelihood(self, z):
        bent = z + self.bend * (2 * z.roll(1, -1)).sin()
        return Normal(self.mean + bent @ self.loadings.T, self.log_scale.exp())


class Given(nn.Module):
    """A posterior whose parameters have a row for each row of data: replicates."""

    def __init__(self, logits, loc, scale, n):
        super().__init__()
        values = (torch.as_tensor(v).double() for v in (logits, loc, scale))
        self.values = nn.ParameterList([v.repeat(n, *[1] * v.dim()) for v in values])

    def forward(self, x, observed):
        return NormalMixture(*self.values)


class Single(Given):
    """The first component of `Given` alone, as torch has it."""

    def forward(self, x, observed):
        _, loc, scale = self.values
        return Independent(Normal(loc[:, 0], scale[:, 0]), 1)


def grid(n_latents, length=7.0, n_points=60):
    """Make points (n, n_latents) and weights (n,) of quadrature."""
    points, weights = line_rule(length, n_points)
    places = torch.cartesian_prod(*[torch.arange(n_points)] * n_latents)
    places = places.view(-1, n_latents)
    return points[places, 0], weights[places].prod(-1)


def log_evidence(model, x, observed, n_points=60):
    """Integrate log p(x_obs) of rows over the latents; (n,)."""
    z, weights = grid(model.loadings.shape[1], n_points=n_points)
    joint = log_joint(model, x, observed, z.unsqueeze(1).expand(-1, len(x), -1))
    return log_integral(joint, weights.unsqueeze(1))
