"""Predictions and draws of missing cells by a latent normal model.

The chains of `gibbs` draw the latent variables of a row given its observed cells.  What
is predicted is averaged over the conditional distributions of the chain, and not
counted from its draws (Rao-Blackwell): the probabilities of levels

    P(x_j = k) = average of Phi((high_k - m) / s) - Phi((low_k - m) / s)             (1)
    P(x_j = k) = average of Phi((m_k - max_{l != k} z_l) / s_k)                      (2)

for ordinal and nominal columns, with mean m and standard deviation s of a latent
variable given the others, and the means of numbers.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.mixed.columns import Latents, Marginal
from skvnce.algorithms.mixed.gibbs import Factors, Rows, Shown
from skvnce.algorithms.mixed.nominal import level_probabilities
from skvnce.algorithms.mixed.normal import quantile
from skvnce.distributions.normal import Normal
from skvnce.distributions.quantiles import inside
from skvnce.variational.base import Uniforms, global_stream

# normal quantiles that give the mean of a number
_SCORES = quantile((np.arange(5) + 0.5) / 5)


class Chains(NamedTuple):
    """Lengths of chains.

    Attributes
    ----------
    n_burn_in : int
        Sweeps before the first one that counts.
    n_sweeps : int
        Sweeps that count, for each draw of the parameters.
    """

    n_burn_in: int
    n_sweeps: int


class Predictions(NamedTuple):
    """Predictions of the cells of rows; those of observed cells are not meaningful.

    Attributes
    ----------
    means : Tensor of shape (n, features)
        Of numbers and of the codes of ordinal levels; 0 in nominal columns.
    probabilities : list of Tensor or None
        For each column, the probabilities of its values, (n, n_values); None for the
        columns that were not asked for.
    """

    means: Tensor
    probabilities: list[Tensor | None]


def predict(
    latents: Latents,
    normals: list[Normal],
    data: Incomplete,
    chains: Chains,
    uniforms: Uniforms,
    levels_of: set[int],
) -> Predictions:
    """Predict the missing cells of rows, averaged over draws of the parameters.

    Parameters
    ----------
    latents : Latents
    normals : list of Normal
        Draws of the parameters.
    data : Incomplete
    chains : Chains
    uniforms : callable
        Numbers of a sweep.
    levels_of : set of int
        Ordinal columns whose probabilities are wanted; those of nominal columns always
        are.
    """
    rows = Rows.of(latents, latents.bounds(data))
    z = rows.start(normals[0].mean)
    sums = _Sums.zeros(latents, data, levels_of)
    for _ in _swept(rows, z, normals, chains, uniforms, sums.shown()):
        pass
    return sums.averages(len(normals) * chains.n_sweeps)


def _swept(
    rows: Rows,
    z: np.ndarray,
    normals: list[Normal],
    chains: Chains,
    uniforms: Uniforms,
    shown: Shown | None = None,
) -> Iterator[np.ndarray]:
    """Sweep z in place, and yield it when the sweeps of each normal are done.

    Sweeps of the burn-in are not shown.
    """
    number, latents = 0, rows.latents
    for place, normal in enumerate(normals):
        factors = Factors.of(normal, latents)
        ignored = chains.n_burn_in if place == 0 else 0
        for n_done in range(ignored + chains.n_sweeps):
            uniform = _uniform(uniforms, number, z)
            rows.sweep(z, factors, uniform, shown if n_done >= ignored else None)
            number += 1
        yield z


def _uniform(uniforms: Uniforms, number: int, z: np.ndarray) -> np.ndarray:
    """Make the numbers of a sweep, of the shape of z, (latents, n)."""
    found = inside(uniforms(number, torch.from_numpy(z).T))
    return np.ascontiguousarray(found.numpy().T)


class _Sums(NamedTuple):
    """Sums of predictions over sweeps.

    Attributes
    ----------
    latents : Latents
    means, probabilities
        As in `Predictions`.
    """

    latents: Latents
    means: np.ndarray
    probabilities: list[np.ndarray | None]

    @classmethod
    def zeros(cls, latents: Latents, data: Incomplete, levels_of: set[int]) -> Self:
        """Make sums of zero."""
        probabilities: list[np.ndarray | None] = []
        for j, marginal in enumerate(latents.marginals):
            width = latents.n_levels[j] if marginal is None else len(marginal.values)
            wanted = marginal is None or j in levels_of
            probabilities.append(np.zeros((len(data.x), width)) if wanted else None)
        return cls(latents, np.zeros(data.x.shape), probabilities)

    def shown(self) -> Shown:
        """Return what adds the predictions of the conditionals of a sweep."""
        ordered = {k: (j, marginal) for j, k, marginal in self.latents.ordered}
        nominal = {block.start: j for j, block in self.latents.nominal}

        def add(rows: np.ndarray, latent: int, mean: np.ndarray, scale: float) -> None:
            self._add_ordered(rows, *ordered[latent], mean, scale)

        def add_nominal(rows: np.ndarray, first: int, *parts: np.ndarray) -> None:
            found = level_probabilities(*parts)
            self.probabilities[nominal[first]][rows] += found.T

        return Shown(add, add_nominal)

    def _add_ordered(
        self,
        rows: np.ndarray,
        j: int,
        marginal: Marginal,
        mean: np.ndarray,
        scale: float,
    ) -> None:
        if self.probabilities[j] is not None:
            found = marginal.probabilities(torch.from_numpy(mean), scale)
            self.probabilities[j][rows] += found.numpy()
            self.means[rows, j] += (found @ marginal.values).numpy()
        else:
            scores = torch.from_numpy(mean[:, None] + scale * _SCORES)
            self.means[rows, j] += marginal.cells(scores).mean(1).numpy()

    def averages(self, n: int) -> Predictions:
        """Divide by the number of sweeps; probabilities of levels sum to one."""
        found = [
            None if p is None else torch.from_numpy(p / p.sum(1, keepdims=True).clip(1))
            for p in self.probabilities
        ]
        return Predictions(torch.from_numpy(self.means / n), found)


def draw(
    latents: Latents,
    normals: list[Normal],
    data: Incomplete,
    chains: Chains,
    uniforms: Uniforms = global_stream,
) -> Tensor:
    """Draw the missing cells once for each of the normals; (n_normals, n, features)."""
    rows = Rows.of(latents, latents.bounds(data))
    z = rows.start(normals[0].mean)
    empty = ~data.observed.any(1)
    z[:, empty.numpy()] = drawn(normals[0], int(empty.sum()))
    return torch.stack(
        [
            data.with_values(cells_of(latents, torch.from_numpy(moved)))
            for moved in _swept(rows, z, normals, chains, uniforms)
        ]
    )


def drawn(normal: Normal, n: int) -> Tensor:
    """Draw latent variables of rows without an observed cell; (latents, n)."""
    root = torch.linalg.cholesky(normal.covariance)
    return normal.mean[:, None] + root @ torch.randn(len(root), n, dtype=root.dtype)


def cells_of(latents: Latents, z: Tensor) -> Tensor:
    """Map latent variables (latents, n) to cells (n, features)."""
    cells = z.new_zeros(z.shape[1], len(latents.marginals))
    for j, latent, marginal in latents.ordered:
        cells[:, j] = marginal.cells(z[latent])
    for j, block in latents.nominal:
        cells[:, j] = z[block].argmax(0).to(z)
    return cells
