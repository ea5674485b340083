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
from skvnce.gaussian import em
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
from skvnce.vgi.mixed import LatentNormal, range_of_levels, start_conditionals
from skvnce.vgi.training import Chains, from_marginals

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
