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

from collections import defaultdict
from collections.abc import Callable, Iterator
from math import log, pi
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal
from skvnce._core.distributions.truncated_normal import log_interval
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import Uniforms, global_stream, inside, weighted_quantiles
from skvnce.gaussian.latent.columns import Bounds, Latents, Limits
from skvnce.gaussian.latent.gibbs import Ends, Factors, Rows, Shown, truncated
from skvnce.gaussian.latent.groups import GroupedRows
from skvnce.gaussian.latent.nominal import level_probabilities, quantile

# makes the rows of both chains, the second ones after the first ones
Paired = Callable[[Bounds], GroupedRows]

# scores, and their weights, that give the mean of a number: a midpoint rule, exact if
# it is a smooth function of the score.  Quantiles would leave out what lies in the tail
_SCORES = np.arange(-7.5, 8) / 2
_WEIGHTS = np.exp(-(_SCORES**2) / 2) / np.exp(-(_SCORES**2) / 2).mean()
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
    # others
    probabilities: list[Tensor | None]

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """Join those of parts of the rows."""
        means, probabilities = zip(*parts, strict=True)
        columns = zip(*probabilities, strict=True)
        levels = [
            None if column[0] is None else torch.cat(column) for column in columns
        ]
        return cls(torch.cat(means), levels)


class Pairs(NamedTuple):
    """Rows with missing cells, and how two antithetic chains of each are swept."""

    latents: Latents
    models: list[Factors]  # draws of the parameters
    data: Incomplete
    chains: Chains
    uniforms: Uniforms  # numbers of a sweep
    limits: Limits = ()  # (n, features), see `Latents.bounds`
    paired: Paired | None = None  # by default rows are independent

    def sweep(self, shown: Shown) -> None:
        """Sweep both chains of each row; the second ones follow the first ones."""
        n, latents = len(self.data.x), self.latents
        pairs = self.data.take(torch.arange(n).repeat(2))
        ends = tuple(end.repeat(2, 1) for end in self.limits)
        bounds = latents.bounds(pairs, ends)
        rows = self.paired(bounds) if self.paired else Rows.of(latents, bounds)
        z = rows.start(self.models[0].normal.mean)

        def mirrored(step: int, x: Tensor) -> Tensor:
            uniform = self.uniforms(step, x[:n])
            return torch.cat([uniform, 1 - uniform])

        for _ in sweep_models(rows, z, self.models, self.chains, mirrored, shown):
            pass


def predict(pairs: Pairs, levels_of: set[int]) -> Predictions:
    """Predict the missing cells of rows, averaged over draws of the parameters.

    `levels_of`: ordinal columns whose probabilities are computed; those of nominal
    columns always are.
    """
    sums = _Sums.zeros(pairs.latents, len(pairs.data.x), levels_of)
    pairs.sweep(Shown(sums.add_ordered, sums.add_nominal))
    return sums.averages(2 * len(pairs.models) * pairs.chains.n_sweeps)


def sweep_models(
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
    numbers = inside(uniforms(number, torch.from_numpy(z).T))
    return np.ascontiguousarray(numbers.numpy().T)


class _Sums(NamedTuple):
    """Sums of predictions over sweeps."""

    latents: Latents
    columns: dict[int, int]  # of the latent variables, and of the first ones of nominal
    means: np.ndarray  # as in `Predictions`
    probabilities: list[np.ndarray | None]

    @classmethod
    def zeros(cls, latents: Latents, n: int, levels_of: set[int]) -> Self:
        """Make sums of zero for the two chains of n rows."""
        probabilities: list[np.ndarray | None] = []
        for j, marginal in enumerate(latents.marginals):
            width = latents.n_levels[j] if marginal is None else len(marginal.values)
            is_nominal = marginal is None and width > 0
            has_probabilities = is_nominal or j in levels_of
            probabilities.append(
                np.zeros((2 * n, width)) if has_probabilities else None
            )
        means = np.zeros((2 * n, len(latents.marginals)))
        columns = {latent: j for j, latent, _ in latents.ordered}
        columns |= {block.start: j for j, block in latents.nominal}
        return cls(latents, columns, means, probabilities)

    def add_nominal(self, rows: np.ndarray, first: int, *parts: np.ndarray) -> None:
        """Add the conditional distributions of nominal cells; see `OnLevels`."""
        probabilities = level_probabilities(*parts)
        self.probabilities[self.columns[first]][rows] += probabilities.T

    def add_ordered(
        self, rows: np.ndarray, latent: int, mean: np.ndarray, scale: float, ends: Ends
    ) -> None:
        """Add the conditional distributions of other cells; see `OnMissingScore`."""
        j = self.columns[latent]
        marginal = self.latents.marginals[j]
        if self.probabilities[j] is not None:
            probabilities = marginal.probabilities(torch.from_numpy(mean), scale)
            self.probabilities[j][rows] += probabilities.numpy()
            self.means[rows, j] += (probabilities @ marginal.values).numpy()
        else:
            scores = _quantiles_of(mean, scale, ends, _SCORES, _LEVELS)
            cells = marginal.cells(torch.from_numpy(scores)).numpy()
            # no product of matrices, whose rounding depends on the other rows
            cells = cells if ends else cells * _WEIGHTS
            self.means[rows, j] += cells.mean(1)

    def averages(self, n: int) -> Predictions:
        """Add both chains, and divide by the sweeps; probabilities sum to one."""
        means, *probabilities = (
            None if sums is None else sums.reshape(2, -1, sums.shape[1]).sum(0)
            for sums in (self.means, *self.probabilities)
        )
        shares = [
            # rows that observe the column have no prediction, and the sum 0
            None if p is None else torch.from_numpy(p / p.sum(1, keepdims=True).clip(1))
            for p in probabilities
        ]
        return Predictions(torch.from_numpy(means / n), shares)


def _quantiles_of(
    mean: np.ndarray, scale: float, ends: Ends, scores: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """Compute quantiles of normals: at some scores, or at levels within limits."""
    mean = mean[:, None]
    if not ends:
        return mean + scale * scores
    low, high = (end[:, None] for end in ends)
    return truncated(mean, scale, low, high, levels)


def draw(
    latents: Latents,
    models: list[Factors],
    data: Incomplete,
    chains: Chains,
    limits: Limits = (),
) -> Tensor:
    """Draw the missing cells once for each of the models; (n_models, n, features).

    See `predict` for the parameters.
    """
    rows = Rows.of(latents, latents.bounds(data, limits))
    z, empty = rows.start(models[0].normal.mean), ~data.observed.any(1)
    # rows without an observed cell start at exact draws, and need no burn-in
    z[:, empty.numpy()] = draw_latents(models[0].normal, int(empty.sum()))
    return complete(latents, data, sweep_models(rows, z, models, chains))


def complete(latents: Latents, data: Incomplete, moved: Iterator) -> Tensor:
    """Fill missing cells by latent variables of each model; see `sweep_models`."""
    tables = [cells_of(latents, torch.from_numpy(z)) for z in moved]
    return torch.stack([data.with_values(cells) for cells in tables])


def draw_latents(normal: Normal, n: int) -> Tensor:
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


# ----------------------------------------
# Quantiles of missing numbers by a latent normal model.
#
# The latent variable of a cell is normal given all others, and the chains of `fill`
# draw the others.  So a mixture of these normal distributions represents that of the
# cell, and some quantiles represent each of them.  Cells are increasing functions of
# the latents.


# an odd number, so that one of them is the median
_POINT_LEVELS = (np.arange(9) + 0.5) / 9


class Conditional(NamedTuple):
    """The distribution of a latent variable given the others, after a sweep."""

    # int (n,), the same after each sweep: those of one chain, and then those of the
    # other
    rows: np.ndarray
    mean: np.ndarray  # (n,)
    scale: float
    ends: Ends  # (n,), limits of the cells as scores, or ()

    def points(self) -> np.ndarray:
        """Compute quantiles of both chains; (n_points, n / 2)."""
        levels = quantile(_POINT_LEVELS), _POINT_LEVELS
        points = _quantiles_of(self.mean, self.scale, self.ends, *levels)
        return np.concatenate(np.split(points, 2), axis=1).T


def quantiles(pairs: Pairs, levels: Tensor) -> Tensor:
    """Find quantiles of missing numbers and ordinal levels; (n_levels, n, features).

    Those of nominal columns are 0.
    """
    data, ordered = pairs.data, pairs.latents.ordered
    conditionals: dict[tuple, list[Conditional]] = defaultdict(list)

    def add(rows: np.ndarray, latent: int, *parts: object) -> None:
        # cells with limits are shown apart from those without
        conditionals[latent, parts[-1] == ()].append(Conditional(rows, *parts))

    pairs.sweep(Shown(add, lambda *_: None))
    filled = data.x.new_zeros(len(levels), *data.x.shape)
    columns = {latent: (j, marginal) for j, latent, marginal in ordered}
    for (latent, _), parts in conditionals.items():
        (j, marginal), rows = columns[latent], parts[0].rows
        points = np.concatenate([part.points() for part in parts])
        points = torch.from_numpy(points)
        scores = weighted_quantiles(points, points.new_ones(()), levels)
        filled[:, rows[: len(rows) // 2], j] = marginal.cells(scores)
    return data.with_values(filled)


# ----------------------------------------
# Log-probabilities of the observed cells of rows under a latent normal model.
#
# The probability that latent variables are within the bounds of the observed cells
# has no closed form.  It is estimated by drawing one variable after the other within
# its bounds (the GHK simulator; Genz 1992, Numerical computation of multivariate
# normal probabilities): the product of the probabilities of the intervals is
# unbiased.  For a nominal column the bounded variables are the differences between
# the latent variable of the observed level and the others.


# 16 MiB in double precision
_AT_ONCE = 2**21  # maximum size of a batch of matrices or draws


def log_prob(
    latents: Latents, normal: Normal, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> Tensor:
    """Estimate log p(x_obs) of each row; (n,).

    Probabilities of values that are intervals of a score, and densities of others.

    `uniforms`: random numbers of step 0, of shape (n_draws, n, latents).
    """
    d, n = latents.size, len(data.x)
    table = inside(uniforms(0, data.x.new_empty(n_draws, n, d)))
    size = max(1, _AT_ONCE // (d * max(d, n_draws)))
    parts = [
        _of_rows(latents, normal, data.take(part), table[:, part])
        for part in torch.arange(n).split(size)
    ]
    return torch.cat(parts) if parts else data.x.new_zeros(0)


def _of_rows(
    latents: Latents, normal: Normal, data: Incomplete, uniform: Tensor
) -> Tensor:
    low, high, maps = _known_first(*_bounded(latents, data))
    mean = (maps @ normal.mean[:, None])[..., 0]
    root = torch.linalg.cholesky(maps @ normal.covariance @ maps.mT)
    z = torch.zeros_like(uniform)
    total = uniform.new_zeros(uniform.shape[:-1])
    for j in range(uniform.shape[-1]):
        shift = mean[:, j] + (root[:, j, :j] * z[..., :j]).sum(-1)
        scale = root[:, j, j]
        a, b = (low[:, j] - shift) / scale, (high[:, j] - shift) / scale
        is_known = low[:, j] == high[:, j]
        density = -(a.square() + log(2 * pi)) / 2 - scale.log()
        total = total + torch.where(is_known, density, log_interval(a, b))
        inner = truncated(0.0, 1.0, *(t.numpy() for t in (a, b, uniform[..., j])))
        z[..., j] = torch.where(is_known, a, torch.from_numpy(inner))
    slopes = sum(
        marginal.log_slopes(data.x[:, j]).where(data.observed[:, j], 0.0)
        for j, _, marginal in latents.ordered
    )
    return total.logsumexp(0) - log(len(uniform)) + slopes


def _known_first(low: Tensor, high: Tensor, maps: Tensor) -> tuple[Tensor, ...]:
    """Order the functions of each row: known ones, bounded ones, and the others."""
    free = low.isinf() & high.isinf()
    order = (1 + free.int() - (low == high).int()).argsort(dim=1, stable=True)
    maps = maps.gather(1, order[..., None].expand_as(maps))
    return low.gather(1, order), high.gather(1, order), maps


def _bounded(latents: Latents, data: Incomplete) -> tuple[Tensor, Tensor, Tensor]:
    """Find bounded linear functions of the latent variables of each row.

    Returns `low`, `high` (n, latents); `maps` (n, latents, latents).
    """
    bounds = latents.bounds(data)
    low, high = bounds.low.T.clone(), bounds.high.T.clone()
    maps = torch.eye(latents.size).to(low).repeat(len(low), 1, 1)
    for place, (_, block) in enumerate(latents.nominal):
        levels = bounds.levels[place]
        observed = (levels >= 0).nonzero().squeeze(1)
        own_level = torch.eye(block.stop - block.start).to(low)[levels[observed]]
        part = own_level[:, None, :] - torch.eye(own_level.shape[1]).to(low)
        # the observed level itself stays as it is, so that the map is invertible
        part = torch.where(own_level[:, :, None] > 0, own_level[:, None, :], part)
        maps[observed, block, block] = part
        low[observed, block] = torch.where(own_level > 0, -torch.inf, 0.0).to(low)
    return low, high, maps
