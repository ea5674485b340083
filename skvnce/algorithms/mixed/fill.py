"""Predictions and draws of missing cells by a latent normal model.

The chains of `gibbs` draw the latent variables of a row given its observed cells.  What
is predicted is averaged over the conditional distributions of the chain, and not
counted from its draws (Rao-Blackwell).  Each row has two chains, one with the uniform
numbers u and one with 1 - u: where latent variables are normal, their errors cancel
(antithetic variables; Hammersley and Morton 1956).  The probabilities of levels are

    P(x_j = k) = average of Phi((high_k - m) / s) - Phi((low_k - m) / s)             (1)
    P(x_j = k) = average of Phi((m_k - max_{l != k} z_l) / s_k)                      (2)

for ordinal and nominal columns, with mean m and standard deviation s of a latent
variable given the others.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.mixed.columns import Bounds, Latents, Limits, Marginal
from skvnce.algorithms.mixed.gibbs import Ends, Factors, Rows, Shown, truncated
from skvnce.algorithms.mixed.groups import GroupedRows, Groups
from skvnce.algorithms.mixed.nominal import level_probabilities
from skvnce.algorithms.mixed.normal import quantile
from skvnce.distributions.normal import Normal
from skvnce.distributions.quantiles import inside
from skvnce.variational.base import Uniforms, global_stream

# normal quantiles that give the mean of a number
_SCORES = quantile((np.arange(5) + 0.5) / 5)
_LEVELS = (np.arange(25) + 0.5) / 25  # between limits, where distributions are skewed


class Chains(NamedTuple):
    """Lengths of chains."""

    n_burn_in: int  # sweeps before the first one that counts
    n_sweeps: int  # sweeps that count, for each draw of the parameters


class Predictions(NamedTuple):
    """Predictions of the cells of rows; those of observed cells are not meaningful."""

    # (n, features), of numbers and of the codes of ordinal levels; 0 in nominal columns
    means: Tensor
    # for each column, the probabilities of its values, (n, n_values); None for the
    # columns that were not asked for
    probabilities: list[Tensor | None]

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """Join those of parts of the rows."""
        means, probabilities = zip(*parts, strict=True)
        columns = zip(*probabilities, strict=True)
        levels = [None if one[0] is None else torch.cat(one) for one in columns]
        return cls(torch.cat(means), levels)


def predict(
    latents: Latents,
    models: list[Factors],  # draws of the parameters
    data: Incomplete,
    chains: Chains,
    uniforms: Uniforms,  # numbers of a sweep
    levels_of: set[int],
    limits: Limits | None = None,  # (n, features), see `Latents.bounds`
    groups: Groups | None = None,  # which rows have the same effects
) -> Predictions:
    """Predict the missing cells of rows, averaged over draws of the parameters.

    `levels_of`: ordinal columns whose probabilities are wanted; those of nominal
    columns always are.
    """
    sums = _Sums.zeros(latents, len(data.x), levels_of)
    sweeps = latents, models, data, chains, uniforms, limits, sums.shown(), groups
    for _ in paired_sweeps(*sweeps):
        pass
    return sums.averages(2 * len(models) * chains.n_sweeps)


def paired_sweeps(
    latents: Latents,
    models: list[Factors],
    data: Incomplete,
    chains: Chains,
    uniforms: Uniforms,
    limits: Limits | None,
    shown: Shown,
    groups: Groups | None = None,
) -> Iterator[np.ndarray]:
    """Sweep both chains of each row, and yield when those of each model are done.

    The second chains of all rows follow the first ones.  See `predict`.
    """
    n = len(data.x)
    pairs = data.take(torch.arange(n).repeat(2))
    ends = limits and tuple(one.repeat(2, 1) for one in limits)
    rows = rows_of(latents.bounds(pairs, ends), latents, groups and groups.twice())
    z = rows.start(models[0].normal.mean)

    def mirrored(step: int, x: Tensor) -> Tensor:
        uniform = uniforms(step, x[:n])
        return torch.cat([uniform, 1 - uniform])

    yield from swept(rows, z, models, chains, mirrored, shown)


def rows_of(
    bounds: Bounds, latents: Latents, groups: Groups | None
) -> Rows | GroupedRows:
    """Make rows whose latent variables are drawn."""
    return Rows.of(latents, bounds) if groups is None else groups.rows(bounds)


def swept(
    rows: Rows | GroupedRows,
    z: np.ndarray,
    models: list[Factors],
    chains: Chains,
    uniforms: Uniforms = global_stream,
    shown: Shown | None = None,
) -> Iterator[np.ndarray]:
    """Sweep z in place, and yield it when the sweeps of each model are done.

    Sweeps of the burn-in are not shown.
    """
    number = 0
    for place, factors in enumerate(models):
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
    """Sums of predictions over sweeps."""

    latents: Latents
    means: np.ndarray  # as in `Predictions`
    probabilities: list[np.ndarray | None]

    @classmethod
    def zeros(cls, latents: Latents, n: int, levels_of: set[int]) -> Self:
        """Make sums of zero for the two chains of n rows."""
        probabilities: list[np.ndarray | None] = []
        for j, marginal in enumerate(latents.marginals):
            width = latents.n_levels[j] if marginal is None else len(marginal.values)
            is_nominal = marginal is None and width > 0
            wanted = is_nominal or j in levels_of
            probabilities.append(np.zeros((2 * n, width)) if wanted else None)
        means = np.zeros((2 * n, len(latents.marginals)))
        return cls(latents, means, probabilities)

    def shown(self) -> Shown:
        """Return what adds the predictions of the conditionals of a sweep."""
        ordered = {k: (j, marginal) for j, k, marginal in self.latents.ordered}
        nominal = {block.start: j for j, block in self.latents.nominal}

        def add(rows: np.ndarray, latent: int, *parts: object) -> None:
            self._add_ordered(rows, *ordered[latent], *parts)

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
        ends: Ends,
    ) -> None:
        if self.probabilities[j] is not None:
            found = marginal.probabilities(torch.from_numpy(mean), scale)
            self.probabilities[j][rows] += found.numpy()
            self.means[rows, j] += (found @ marginal.values).numpy()
        else:
            scores = mean[:, None] + scale * _SCORES
            if ends is not None:
                low, high = (end[:, None] for end in ends)
                scores = truncated(mean[:, None], scale, low, high, _LEVELS)
            scores = torch.from_numpy(scores)
            self.means[rows, j] += marginal.cells(scores).mean(1).numpy()

    def averages(self, n: int) -> Predictions:
        """Add both chains, and divide by the sweeps; probabilities sum to one."""
        means, *probabilities = (
            None if one is None else one.reshape(2, -1, one.shape[1]).sum(0)
            for one in (self.means, *self.probabilities)
        )
        found = [
            # rows that observe the column have no prediction, and the sum 0
            None if p is None else torch.from_numpy(p / p.sum(1, keepdims=True).clip(1))
            for p in probabilities
        ]
        return Predictions(torch.from_numpy(means / n), found)


def draw(
    latents: Latents,
    models: list[Factors],
    data: Incomplete,
    chains: Chains,
    uniforms: Uniforms = global_stream,
    limits: Limits | None = None,
    groups: Groups | None = None,
) -> Tensor:
    """Draw the missing cells once for each of the models; (n_models, n, features).

    See `predict` for the parameters.
    """
    rows = rows_of(latents.bounds(data, limits), latents, groups)
    z = rows.start(models[0].normal.mean)
    if groups is None:
        empty = ~data.observed.any(1)
        # rows without an observed cell start at exact draws, and need no burn-in
        z[:, empty.numpy()] = drawn(models[0].normal, int(empty.sum()))
    return torch.stack(
        [
            data.with_values(cells_of(latents, torch.from_numpy(moved)))
            for moved in swept(rows, z, models, chains, uniforms)
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
