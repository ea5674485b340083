"""Small variational autoencoders with log p(x_obs) known, for tests."""

import numpy as np
import torch
from oracles import line_rule, log_integral
from torch import nn
from torch.distributions import Independent, Normal

from skvnce._core.distributions.cells import Families
from skvnce._core.distributions.families import NormalMixture
from skvnce._core.incomplete import Incomplete, Rows
from skvnce._core.models import log_joint
from skvnce._core.training.adam import named_leaves
from skvnce.autoencoder import vae
from skvnce.autoencoder.factor_analysis import FactorModel, fit_factors
from skvnce.autoencoder.vae import Autoencoder

N = 40  # number of rows of `rounded_table`


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


def random_factors(d, k, seed, least=0.0):
    """Make a factor model whose variances of the noise are above the least."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(d, k + 2, generator=generator, dtype=torch.float64)
    return FactorModel(numbers[:, 0], numbers[:, 1:-1], least + numbers[:, -1].exp())


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


def families(student=(), bernoulli=(), rounded=(), pairs=(), values=(), edges=()):
    """Make columns of these families; the others are normal."""
    places = (
        torch.tensor(at, dtype=torch.long) for at in (student, bernoulli, rounded)
    )
    numbers = (one if len(one) else torch.zeros(0, 2) for one in (pairs, values, edges))
    tables = (torch.as_tensor(one, dtype=torch.float64) for one in numbers)
    return Families(*places, *tables)


NORMAL = families()


def rounded_families(*rounded):
    """Make columns of the values -1, 0 and 1, and normal ones."""
    values, edges = [-1.0, 0.0, 1.0], [-1.5, -0.5, 0.5, 1.5]
    n = len(rounded)
    return families(rounded=rounded, values=[values] * n, edges=[edges] * n)


def rounded_table(rounded, d):
    """Draw rows of such columns, with missing cells."""
    x = torch.randn(N, d).double()
    for column in rounded:
        x[:, column] = torch.randint(-1, 2, (N,)).double()
    return Incomplete(x, torch.rand(N, d) < 0.6)


def moved_autoencoder(d, k, rounded, sizes, far=1.0):
    """Make an autoencoder whose parameters are all far from their start."""
    linear = FactorModel(
        far * torch.randn(d).double(),
        torch.randn(d, k).double(),
        torch.rand(d).double() + 0.1,
    )
    auto = vae.build(linear, rounded_families(*rounded), sizes)
    auto = Autoencoder(*(part.double() for part in auto))
    for _, leaf in named_leaves(auto._asdict()):
        leaf.data += 0.3 * torch.randn_like(leaf)
        leaf.grad = torch.full_like(leaf, torch.nan)  # all are to be set
    return auto


def started(data, sizes, families=NORMAL):
    """Make an autoencoder at the factor analysis of a table, and give that."""
    rows = Rows(data, torch.ones(len(data.x)).double())
    model = fit_factors(rows, 1, floor=2e-3, max_iter=200, tol=1e-2).model
    return vae.build(model, families, sizes), model


def table(kind, seed, n=500, missing=0.3, rounded=False):
    """Make standardised rows of a kind, such as `circle`, with missing cells."""
    rng = np.random.default_rng(seed)
    x = kind(rng, n)
    x = (x - x.mean(0)) / x.std(0)
    if rounded:
        x[:, 1] = np.round(2 * x[:, 1]) / 2
    x[rng.uniform(size=x.shape) < missing] = np.nan
    return Incomplete.from_array(x[~np.isnan(x).all(1)])


def circle(rng, n):
    angle = rng.uniform(0, 2 * np.pi, n)
    a, b = np.cos(angle), np.sin(angle)
    return np.stack([a, b, a + b], 1) + 0.1 * rng.normal(size=(n, 3))
