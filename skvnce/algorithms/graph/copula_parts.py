"""The E-step of copula graphs of a table in parts.

Moments of latent variables are sums over the rows, so that parts of a table are swept
where they are, and keep their latent variables.  If the random numbers of a sweep are
functions of the number of the row in the table and of the round, the result does not
depend on how the rows are divided, nor on where they are swept, and a part that is lost
can be swept again.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.graph.copula_m_step import Theta
from skvnce.algorithms.graph.em import EStep
from skvnce.algorithms.mixed.columns import Latents
from skvnce.algorithms.mixed.gibbs import (
    Factors,
    Ordered,
    Rows,
    at_once,
    rescaled,
    unit_scales,
)
from skvnce.algorithms.mixed.nominal import Nominal
from skvnce.distributions.normal import Normal
from skvnce.distributions.quantiles import inside
from skvnce.variational.base import Uniforms


class Sums(NamedTuple):
    """Moments of the latent variables of some rows."""

    n_rows: int
    mean: np.ndarray  # (latents,)
    # (latents, latents), sums of products of deviations from the mean
    scatter: np.ndarray

    @classmethod
    def of(cls, z: np.ndarray) -> Self:
        """Compute those of latent variables (latents, n)."""
        # numpy warns of means of no row
        mean = z.mean(1) if z.shape[1] else np.zeros(len(z))
        deviations = z - mean[:, None]
        return cls(z.shape[1], mean, deviations @ deviations.T)

    def merged(self, other: Self) -> "Sums":
        """Merge with those of other rows (Chan, Golub and LeVeque 1983)."""
        total = self.n_rows + other.n_rows
        # two parts without rows are merged, too
        share, gap = other.n_rows / max(total, 1), other.mean - self.mean
        between = self.n_rows * share * np.outer(gap, gap)
        scatter = self.scatter + other.scatter + between
        return Sums(total, self.mean + share * gap, scatter)

    def normal(self) -> Normal:
        """Return mean and covariance."""
        covariance = torch.from_numpy(self.scatter / self.n_rows)
        return Normal(torch.from_numpy(self.mean), covariance)


class Part(NamedTuple):
    """The latent variables of some rows, and what is known about them."""

    z: np.ndarray  # (latents, n)
    # the columns of `Rows`, ordered and nominal ones, for each batch of rows that is
    # swept together
    known: list[tuple[list[Ordered], list[Nominal]]]

    @classmethod
    def of(cls, latents: Latents, nodes: np.ndarray) -> Self:
        """Read rows (n, features)."""
        batches = (
            Rows.parts(latents, Incomplete.from_array(nodes)) if len(nodes) else []
        )
        mean = Theta.independent(latents.size).mean
        # the first one is for parts without rows
        z = [np.empty((latents.size, 0)), *(rows.start(mean) for rows in batches)]
        known = [(rows.ordered, rows.nominal) for rows in batches]
        return cls(np.concatenate(z, 1), known)

    def batches(self, latents: Latents) -> Iterator[tuple[slice, Rows]]:
        """Yield batches of rows, and their places."""
        none, size = np.empty((0, 0)), at_once(latents)
        for number, columns in enumerate(self.known):
            place = slice(size * number, size * (number + 1))
            yield place, Rows(latents, none, none, *columns)


class Round(NamedTuple):
    """What happens to all rows in a round."""

    number: int  # the first is 1
    theta: Theta
    # (latents,), by which latent variables are shifted and divided first, see
    # `set_scales`
    shift: Tensor
    scale: Tensor  # (latents,)

    def swept(
        self, latents: Latents, part: Part, uniforms: Callable[[slice], Uniforms]
    ) -> tuple[Part, Sums]:
        """Sweep over some rows; `uniforms` makes the numbers of some of them."""
        new = np.empty_like(part.z)
        factors = Factors.of(self.theta.normal(), latents)
        shift, scale = self.shift[:, None].numpy(), self.scale[:, None].numpy()
        sums = Sums.of(new[:, :0])
        for place, rows in part.batches(latents):
            one = (part.z[:, place] - shift) / scale
            uniform = uniforms(place)(self.number, torch.from_numpy(one).T).T
            rows.sweep(one, factors, inside(uniform).numpy())
            new[:, place] = one
            sums = sums.merged(Sums.of(one))
        return part._replace(z=new), sums


class State(NamedTuple):
    """The latent variables after a round, and by what they are scaled next.

    `parts` is what `advance` of `e_step` has returned.
    """

    parts: object
    number: int
    shift: Tensor
    scale: Tensor


def e_step(
    latents: Latents,
    advance: Callable[[Round, object], tuple[object, Sums]],
    once: bool,  # whether all latent variables are known
) -> EStep:
    """Build the E-step.

    `advance`: maps a round, and its own last result, None at first, to the latent
    variables of all parts, in any form, and their `Sums`.
    """
    zeros = torch.zeros(latents.size, dtype=torch.float64)

    def init() -> State:
        return State(None, 0, zeros, torch.ones_like(zeros))

    def step(state: State, theta: Theta) -> tuple[State, Normal]:
        one = Round(state.number + 1, theta, state.shift, state.scale)
        parts, sums = advance(one, state.parts)
        normal = sums.normal()
        shift, scale = unit_scales(latents, normal)
        state = State(parts, one.number, shift, scale)
        return state, rescaled(normal, shift, scale)

    return EStep(init, step, once)


def needs_sweeps(latents: Latents, missing: np.ndarray) -> bool:
    """Return whether latent variables are not known from the cells, or cells miss."""
    intervals = any((one.low < one.high).any() for _, _, one in latents.ordered)
    return bool(missing.any() or intervals or latents.nominal)
