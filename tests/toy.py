"""Two latent variable models whose conditionals are known, and a distance.

`Linear` is factor analysis: everything is normal.  `Clusters` is the two-dimensional
problem of Simkus and Gutmann (2023), appendix C.1, built by hand: one latent runs along
a path through thirteen clusters of data, of which each has its own stretch of the prior
and is decoded to one normal.  The distribution of the data is then exactly the mixture
of thirteen normals of equal weights, and so are its conditionals, in closed form.
"""

from math import inf, nan
from typing import NamedTuple

import numpy as np
import torch
from oracles import missing_moments
from scipy import stats
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from skvnce._core.incomplete import Incomplete
from skvnce.autoencoder.factor_analysis import FactorModel, infer
from skvnce.vgi.conditionals import Indicators, MixedConditionals, NormalHead


def latents(mean, std):
    return Independent(Normal(mean, std), 1)


# Factor analysis


class Linear(NamedTuple):
    """x = mean + W z + noise; the columns of W are orthogonal where noise has unit
    spread, so that p(z | x) of complete rows has independent latents."""

    mean: Tensor
    loadings: Tensor
    std: Tensor

    def prior(self):
        zeros = torch.zeros(self.loadings.shape[1]).to(self.mean)
        return latents(zeros, torch.ones_like(zeros))

    def likelihood(self, z):
        return Normal(self.mean + z @ self.loadings.T, self.std)

    def factor_model(self):
        return FactorModel(self.mean, self.loadings, self.std.square())


_AXES = np.array([[1, 1, 1, 1], [1, -1, 1, -1]]).T / 2 * [2.0, 1.5]
_SPREAD = np.array([0.5, 0.8, 0.4, 1.0])
LINEAR = Linear(
    torch.tensor([0.5, -1.0, 0.0, 2.0]).double(),
    torch.tensor(_AXES * _SPREAD[:, None]),
    torch.tensor(_SPREAD),
)
ROWS = np.array([[1.0, nan, nan, 3.5], [nan, nan, 0.8, nan], [nan, nan, nan, nan]])


def linear_posterior(widen=1.0, shift=0.0):
    """Make an encoder: the exact posterior, or one that is off."""
    scaled = LINEAR.loadings / LINEAR.std[:, None].square()
    variance = 1 / (1 + (scaled * LINEAR.loadings).sum(0))

    def posterior(x, observed):
        assert observed.all()
        mean = (x - LINEAR.mean) @ scaled * variance
        return latents(mean + shift, widen * variance.sqrt().expand_as(mean))

    return posterior


def exact_latents(data):
    """Draw z from p(z | x_obs), one for each row."""
    found = infer(LINEAR.factor_model(), *data)
    noise = torch.randn_like(found.mean)[..., None]
    root = found.factor.mT
    return found.mean + torch.linalg.solve_triangular(root, noise, upper=True)[..., 0]


def exact_moments(row):
    """Compute first and second moments of the missing cells; see `first_and_second`."""
    covariance = LINEAR.factor_model().covariance().numpy()
    return missing_moments(LINEAR.mean.numpy(), covariance, row)


def repeat(rows, n):
    """Make a table of n copies of every row, one after the other."""
    return Incomplete.from_array(np.repeat(rows, n, 0))


# Thirteen clusters

_TABLE = np.array(  # in the order of the path: rows of clusters, there and back
    [(0, -30, 2)]
    + [(x, -15, 1.75) for x in (15, 0, -15)]
    + [(x, 0, 1.5) for x in (-30, -15, 0, 15, 30)]
    + [(x, 15, 1.25) for x in (7.5, 0, -7.5)]
    + [(0, 30, 1)]
)
_SCALE = np.sqrt(_TABLE[:, :2].var(0) + np.square(_TABLE[:, 2]).mean())  # mean is 0
CENTRES = torch.tensor(_TABLE[:, :2] / _SCALE)
SPREADS = torch.tensor(_TABLE[:, 2:] / _SCALE)
_CUTS = stats.norm.ppf(np.arange(1, 13) / 13)
_LOW, _HIGH = np.r_[-inf, _CUTS], np.r_[_CUTS, inf]
_MOMENTS = [stats.truncnorm.stats(*cut) for cut in zip(_LOW, _HIGH, strict=True)]
STRETCH_MEAN, STRETCH_VARIANCE = torch.tensor(np.array(_MOMENTS, float)).T


class Clusters:
    """One standard normal latent, cut into thirteen stretches of equal probability."""

    def prior(self):
        return latents(torch.zeros(1).double(), torch.ones(1).double())

    def likelihood(self, z):
        cluster = torch.bucketize(z[..., 0].contiguous(), torch.tensor(_CUTS))
        return Normal(CENTRES[cluster], SPREADS[cluster])


def clusters_posterior(widen=1.2):
    """Make the normal encoder with the moments of p(z | x), a little wider."""

    def posterior(x, observed):
        assert observed.all()
        log_prob = Normal(CENTRES, SPREADS).log_prob(x[..., None, :]).sum(-1)
        weight = log_prob.softmax(-1)
        mean = weight @ STRETCH_MEAN
        second = weight @ (STRETCH_VARIANCE + STRETCH_MEAN.square())
        std = (second - mean.square()).sqrt()
        return latents(mean[..., None], widen * std[..., None])

    return posterior


BINS = np.linspace(-3, 3, 61)


def exact_histogram(row):
    """Compute the probabilities of bins of the one missing cell of a row."""
    seen, hidden = (~np.isnan(row)).argmax(), np.isnan(row).argmax()
    centres, spreads = CENTRES.numpy(), SPREADS.numpy()
    weight = stats.norm.pdf(row[seen], centres[:, seen], spreads[:, seen])
    cdf = stats.norm.cdf(BINS[:, None], centres[:, hidden], spreads[:, hidden])
    return np.diff(cdf, axis=0) @ (weight / weight.sum())


def divergence(draws, row):
    """Compute the Jensen-Shannon divergence, in nats, of draws from the exact answer.

    At most log 2 = 0.693; 0.42 where one of five equal modes is found.
    """
    p = np.histogram(draws, BINS)[0] / np.size(draws)
    q = exact_histogram(row)
    middle = (p + q) / 2
    return sum(stats.entropy(side, middle) for side in (p, q)) / 2


def random_conditionals(levels, extended=False, head=None):
    """Make conditionals of levels and numbers of which all parameters are random."""
    inputs = Indicators(levels)
    body = nn.Sequential(nn.Linear(len(inputs.owners), 6), nn.SiLU())
    visible = torch.ones_like(inputs.others) if extended else inputs.others
    head = head or NormalHead()
    q = MixedConditionals(inputs, levels, head, body, 6, (5,), visible)
    with torch.no_grad():
        for leaf in q.parameters():
            leaf.normal_()
    return q.double()


def of_all_columns(q, x):
    """Give the conditionals of all columns of rows, of the batch shape of x."""
    columns = torch.arange(x.shape[-1]).expand(x.shape)
    return q.at(x.unsqueeze(-2).expand(*x.shape, -1), columns)
