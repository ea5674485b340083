"""The start of variational Gibbs inference: completed rows, and conditionals.

A normal distribution fitted by EM completes the rows and anchors the conditionals, or
rows are completed by observed cells of their columns.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, algorithm 1, sections 3.1 and 3.3.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from skvnce._core.distributions.cells import Families
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.posteriors import global_stream
from skvnce.autoencoder.vae import latents_of, order_of
from skvnce.gaussian import em
from skvnce.gaussian.latent import fill
from skvnce.gaussian.latent.columns import Latents
from skvnce.gaussian.latent.gibbs import Factors
from skvnce.vgi.chains import Hypercube, observed_hypercube, unbounded
from skvnce.vgi.conditionals import (
    ExtendedConditionals,
    Head,
    Indicators,
    MixedConditionals,
    MixtureOffset,
    StandardConditionals,
    anchor,
)
from skvnce.vgi.training import Chains, from_marginals

# ----------------------------------------
# The start of variational Gibbs inference for rows of numbers and levels.
#
# The latent normal model of `skvnce.autoencoder.vae` completes the rows, and rows
# drawn from it give the conditionals: numbers start at their linear regressions on
# the other cells, whose levels are indicators, and levels at linear discriminants,
#
#     log q(x_j = k | x) = log pi_k + m_k'S^-1 e - m_k'S^-1 m_k / 2
#
# up to a constant: e are the inputs that belong to other columns less their means,
# m_k the means of e in the rows of level k, pi_k the share of the level, and S the
# covariance within levels.
#
# Hastie, Tibshirani and Friedman (2009), The elements of statistical learning,
# section 4.3, for linear discriminant analysis.


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


# ----------------------------------------
# The start of variational Gibbs inference: completed rows, and conditionals.


_BODY = 64  # width of the shared layers of the conditionals


class Start(NamedTuple):
    """The inputs of a training."""

    data: Incomplete  # scores of cells
    normal: Normal  # fitted to them
    families: Families  # only the rounded columns are used
    weights: Tensor  # (n,): rows are drawn in proportion to these

    def on(self, device: torch.device) -> Self:
        """Return scores and families on a device; the others stay where they are."""
        return self._replace(
            data=self.data.on(device), families=self.families.on(device)
        )

    def without(self, held_out: Tensor) -> Self:
        """Leave out some cells."""
        kept = self.data.observed & ~held_out
        return self._replace(data=Incomplete(self.data.x.where(kept, 0.0), kept))

    def dequantised(self) -> Incomplete:
        """Draw cells of rounded columns from their intervals; in single precision.

        If there are levels, the model has probabilities of intervals, and cells of
        rounded columns keep their scores.
        """
        if self.families.levels:
            return Incomplete(self.data.x.float(), self.data.observed)
        numbers = global_stream(0, self.data.x)
        x = self.families.dequantised(self.data.x, numbers).float()
        return Incomplete(x.where(self.data.observed, 0.0), self.data.observed)


def _body(n_inputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(n_inputs, _BODY), nn.SiLU(), nn.Linear(_BODY, _BODY), nn.SiLU()
    )


def _with_body(
    kind: type[StandardConditionals] | type[ExtendedConditionals],
    d: int,
    head: Head,
) -> StandardConditionals | ExtendedConditionals:
    return kind(d, head, _body(d), _BODY, (_BODY // 2,))


def _independent(d: int, head: Head) -> StandardConditionals:
    return StandardConditionals(d, head, nn.Identity(), d, (_BODY // 2, _BODY // 2))


NETWORKS = {
    "shared": partial(_with_body, StandardConditionals),
    "extended": partial(_with_body, ExtendedConditionals),
    "independent": _independent,
}


def _mixed_with_body(
    head: Head, inputs: Indicators, n_levels: Tensor, visible: Tensor | None = None
) -> MixedConditionals:
    seen = inputs.others if visible is None else visible
    body = _body(len(inputs.owners))
    return MixedConditionals(inputs, n_levels, head, body, _BODY, (_BODY // 2,), seen)


def _mixed_extended(
    head: Head, inputs: Indicators, n_levels: Tensor
) -> MixedConditionals:
    return _mixed_with_body(head, inputs, n_levels, torch.ones_like(inputs.others))


def _mixed_independent(
    head: Head, inputs: Indicators, n_levels: Tensor
) -> MixedConditionals:
    hidden, width = (_BODY // 2, _BODY // 2), len(inputs.owners)
    sizes = nn.Identity(), width, hidden
    return MixedConditionals(inputs, n_levels, head, *sizes, inputs.others)


MIXED_NETWORKS = {
    "shared": _mixed_with_body,
    "extended": _mixed_extended,
    "independent": _mixed_independent,
}


def anchored_conditionals(
    normal: Normal,
    head: Head,
    network: str = "shared",
    mixture: tuple[Tensor, ...] | None = None,
) -> StandardConditionals | ExtendedConditionals:
    """Make conditionals of a kind of `NETWORKS`, exact for a normal distribution.

    With the weights, means and covariances of a mixture they have its means and
    standard deviations instead.
    """
    found = NETWORKS[network](len(normal.mean), head)
    if mixture is None:
        anchor(found, normal.mean, torch.linalg.inv(normal.covariance))
    else:
        found.offset = MixtureOffset(*mixture)
    return found


def mixed_conditionals(
    normal: Normal, families: Families, head: Head, network: str = "shared"
) -> MixedConditionals:
    """Make conditionals of numbers and levels that start at a latent normal model."""
    make = partial(MIXED_NETWORKS[network], head)
    return start_conditionals(LatentNormal.of(normal, families), families, make)


def by_normal(start: Start, n_chains: int) -> Tensor:
    """Complete rows by draws of the normal given the observed cells."""
    if start.families.levels:
        model = LatentNormal.of(start.normal, start.families)
        return model.completed(start.data, n_chains).float()
    return em.draw(start.normal, start.data, n_chains).float()


def by_marginals(start: Start, n_chains: int) -> Tensor:
    """Complete rows by observed cells of the same columns, f0 of the paper."""
    return from_marginals(start.data, n_chains).float()


class ChainSettings(NamedTuple):
    """Settings of the chains of a training."""

    n_chains: int  # K
    # maps (start, n_chains) to the initial tables: `by_normal` or `by_marginals`
    complete: Callable[[Start, int], Tensor] = by_normal
    # maps a table to the range of draws: `observed_hypercube`, or that of algorithm 1,
    # which has none, `unlimited`
    limits: Callable[[Incomplete], Hypercube] = observed_hypercube


def unlimited(data: Incomplete) -> Hypercube:
    """Return the range of all numbers."""
    return unbounded(data.x.shape[1])


def make_chains(start: Start, settings: ChainSettings) -> Chains:
    """Complete rows, within the range of draws."""
    data = start.dequantised()
    x = settings.complete(start, settings.n_chains)
    return Chains(data, x, _limits(data, start, settings))


def _limits(data: Incomplete, start: Start, settings: ChainSettings) -> Hypercube:
    found = settings.limits(data)
    return range_of_levels(start.families, found) if start.families.levels else found


def renewed(chains: Chains, start: Start, settings: ChainSettings) -> Chains:
    """Continue with all observed cells and their range; counts of draws restart."""
    data = start.dequantised()
    return Chains(data, chains.x, _limits(data, start, settings))


def range_of(start: Start) -> Hypercube:
    """Find the range of the scores of all observed cells, for bounded conditionals."""
    seen = start.data
    low = seen.x.where(seen.observed, torch.inf).amin(0)
    high = seen.x.where(seen.observed, -torch.inf).amax(0)
    low[start.families.rounded] = start.families.edges[:, 0].to(low)
    high[start.families.rounded] = start.families.edges[:, -1].to(high)
    return Hypercube(low.float(), high.float())
