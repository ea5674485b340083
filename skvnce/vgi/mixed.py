"""The start of variational Gibbs inference for rows of numbers and levels.

The latent normal model of `skvnce.autoencoder.vae` completes the rows, and rows
drawn from it give the conditionals: numbers start at their linear regressions on
the other cells, whose levels are indicators, and levels at linear discriminants,

    log q(x_j = k | x) = log pi_k + m_k'S^-1 e - m_k'S^-1 m_k / 2

up to a constant: e are the inputs that belong to other columns less their means, m_k
the means of e in the rows of level k, pi_k the share of the level, and S the covariance
within levels.

Hastie, Tibshirani and Friedman (2009), The elements of statistical learning, section
4.3, for linear discriminant analysis.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor

from skvnce._core.distributions.cells import Families
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce.autoencoder.vae import latents_of, order_of
from skvnce.gaussian.latent import fill
from skvnce.gaussian.latent.columns import Latents
from skvnce.gaussian.latent.gibbs import Factors
from skvnce.vgi.chains import Hypercube
from skvnce.vgi.conditionals import Indicators, MixedConditionals

_ROWS = 2**14  # number of rows from which the conditionals start
# indicators of all levels of a column sum to 1, so that their covariance is singular
_RIDGE = 1e-3  # added to variances of inputs
_PRIOR = 10.0  # weight of the prior of means of levels, in rows
# the same as in `gaussian.marginals`
_FARTHEST = 1e6  # maximum absolute score
_BURN_IN = 10  # sweeps before chains complete rows


class LatentNormal(NamedTuple):
    """The latent normal model of a table."""

    latents: Latents
    normal: Normal  # in the order of the latents

    @classmethod
    def of(cls, normal: Normal, families: Families) -> Self:
        """Reorder the normal distribution of the outputs of an autoencoder."""
        ends = normal.mean.new_tensor([-_FARTHEST, _FARTHEST])  # of any number
        table = ends[:, None].repeat(1, families.n_columns(len(normal.mean)))
        data = Incomplete(table, torch.ones_like(table, dtype=torch.bool))
        latents = latents_of(data, families)
        back = torch.tensor(order_of(latents)).argsort()
        covariance = normal.covariance[back][:, back]
        return cls(latents, Normal(normal.mean[back], covariance))

    def completed(self, data: Incomplete, n_chains: int) -> Tensor:
        """Draw the missing cells given the observed ones; (n_chains, n, features)."""
        models = [Factors.of(self.normal, self.latents)]
        chains = fill.Chains(_BURN_IN, 1)
        tables = fill.draw(
            self.latents,
            models,
            data.take(torch.arange(len(data.x)).repeat(n_chains)),
            chains,
        )
        return tables[0].view(n_chains, *data.x.shape)


def count_levels(families: Families, n_columns: int) -> Tensor:
    """Count the levels of each column, 0 for numbers; (n_columns,)."""
    found = torch.zeros(n_columns, dtype=torch.long)
    for family in families.levels:
        found[family.columns] = family.n_levels
    return found


def range_of_levels(families: Families, cube: Hypercube) -> Hypercube:
    """Extend the range of chains to all levels, and to what is rounded to a value."""
    low, high = (end.clone() for end in cube)
    for family in families.levels:
        low[family.columns] = 0.0
        high[family.columns] = (family.n_levels - 1).to(high)
    low[families.rounded] = families.edges[:, 0].to(low)
    high[families.rounded] = families.edges[:, -1].to(high)
    return Hypercube(low, high)


def start_conditionals(
    model: LatentNormal,
    families: Families,
    # maps the inputs and the numbers of levels of the columns to conditionals
    make: Callable[[Indicators, Tensor], MixedConditionals],
) -> MixedConditionals:
    """Make conditionals that start at those of a latent normal model."""
    n_levels = count_levels(families, len(model.latents.marginals))
    found = make(Indicators(n_levels), n_levels)
    z = fill.drawn(model.normal, _ROWS)
    anchor_at(found, fill.cells_of(model.latents, z), z[model.latents.first].T)
    return found


@torch.no_grad()
def anchor_at(conditionals: MixedConditionals, cells: Tensor, scores: Tensor) -> None:
    """Set the linear part to regressions and discriminants of rows, in place.

    `cells` (n, features).  `scores` (n, features): what the conditionals of numbers
    predict; other columns are not used.
    """
    inputs = conditionals.inputs(cells).double()
    mean = inputs.mean(0)
    covariance = torch.cov(inputs.T, correction=0)
    covariance.diagonal().add_(_RIDGE)
    for j, count in enumerate(conditionals.n_levels.tolist()):
        others = (conditionals.inputs.owners != j).nonzero().squeeze(1)
        part = inputs[:, others] - mean[others]
        spread = covariance[others][:, others]
        if count:
            slopes, levels = _discriminants(part, spread, cells[:, j], count)
        else:
            target = scores[:, j]
            moment = part.T @ (target - target.mean()) / len(part)
            slopes = torch.linalg.solve(spread, moment)[None]
            levels = target.mean()[None]
            rest = target - target.mean() - part @ slopes[0]
            conditionals.log_scales[j] = rest.square().mean().log() / 2
        rows = conditionals.places[j, : len(slopes)]
        conditionals.slopes[rows[:, None], others] = slopes.to(conditionals.slopes)
        intercepts = levels - slopes @ mean[others]
        conditionals.intercepts[rows] = intercepts.to(conditionals.slopes)


def _discriminants(
    inputs: Tensor, covariance: Tensor, codes: Tensor, n_levels: int
) -> tuple[Tensor, Tensor]:
    """Compute slopes and constants of the logits of levels given centred inputs."""
    one = torch.nn.functional.one_hot(codes.long(), n_levels).to(inputs)
    number = one.sum(0)
    # the logarithm of a level without a row would be infinite
    shares = (number + 0.5) / (len(codes) + 0.5 * n_levels)
    means = one.T @ inputs / (number + _PRIOR)[:, None]
    # the covariance of all rows less that between levels
    within = covariance - means.T @ (shares[:, None] * means)
    slopes = torch.linalg.solve(within, means.T).T
    return slopes, shares.log() - (slopes * means).sum(1) / 2
