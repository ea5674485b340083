"""Fitted mixtures of normals: they fill, draw and score rows, in the units of X."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import Uniforms, row_keyed
from skvnce._imputer.fitted import Filled, average_density
from skvnce._tables.values import NO_LIMITS, CellLimits, Limits
from skvnce.gaussian.truncation import by_content
from skvnce.mixture import density, limited
from skvnce.mixture.density import Arranged, Given, Mixture, quantiles
from skvnce.mixture.limited import Free, Limited
from skvnce.mixture.margins import Points

_KEYED = 63  # draws of cells with limits whose median or mode is filled
_LEAST = 2.0**-54  # of uniform numbers whose normal quantiles are finite


def _keyed(seed: int, data: Incomplete) -> Uniforms:
    # rows of scores, whose numbers differ from those of rows of cells
    return row_keyed(data.to_array(), seed)


def split_columns(
    nodes: np.ndarray, is_categorical: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers (n, d), and the codes of categories, -1 where missing."""
    codes = np.nan_to_num(nodes[:, is_categorical], nan=-1)
    return nodes[:, ~is_categorical], codes.astype(np.int64)


def rows_of(
    nodes: np.ndarray,
    is_categorical: np.ndarray,
    limits: Limits,
    points: Points,
    valid: Points,
) -> Free | Limited:
    """Map rows, and limits of their cells, to scores.

    Limits are moved to the range of `valid`, beyond which there are no cells.
    """
    numbers, codes = split_columns(nodes, is_categorical)
    rows = Free(points.to_scores(numbers), codes)
    if not limits:
        return rows
    low, high = (end[:, ~is_categorical] for end in limits)
    known, ends = np.isfinite(low) | np.isfinite(high), []
    for end, nothing in ((low, -np.inf), (high, np.inf)):
        score = points.to_scores(np.clip(end, *valid.ends))
        ends.append(np.where(known, score, nothing))
    return Limited(*rows, *ends)


class MixtureModel(NamedTuple):
    """A mixture of normals of scores of numbers, and of latent classes."""

    mixture: Mixture
    is_categorical: np.ndarray  # bool (n_model_columns,)
    valid: Points  # from scores to valid cells of the columns of numbers
    points: Points  # the same without ends, by which cells are scored

    def take(self, order: np.ndarray) -> Self:
        """Make the same model of columns in another order."""
        are = self.is_categorical
        places = np.where(are, are.cumsum(), (~are).cumsum())[order] - 1
        numbers, levels = places[~are[order]], places[are[order]]
        mixture = self.mixture._replace(
            means=self.mixture.means[:, numbers],
            covariances=self.mixture.covariances[:, numbers][:, :, numbers],
            classes=tuple(self.mixture.classes[j] for j in levels),
        )
        points = (one.take(numbers) for one in (self.valid, self.points))
        return MixtureModel(mixture, are[order], *points)

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill by means, and by the most probable categories; see `CellModel`."""
        means, shares = self._rows(nodes, limits).means(self.mixture, self.valid)
        filled, places = nodes.copy(), np.flatnonzero(self.is_categorical)
        numbers, missing = ~self.is_categorical, np.isnan(nodes)
        filled[:, numbers] = np.where(missing[:, numbers], means, nodes[:, numbers])
        probabilities = dict(zip(places.tolist(), shares, strict=True))
        for j, found in probabilities.items():
            filled[:, j] = np.where(missing[:, j], found.argmax(1), nodes[:, j])
        return filled, probabilities

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        parts = self._rows(nodes, limits).completions(self.mixture, n_draws)
        found = [
            self._drawn(data, nodes[rows], self._of_stream(count, len(data.x)))
            for count, rows, data in parts
        ]
        return np.concatenate([one.reshape(-1, *nodes.shape) for one in found])

    def keyed_draws(
        self, nodes: np.ndarray, seeds: Sequence[int], limits: CellLimits
    ) -> np.ndarray:
        """Draw missing cells, as functions of their row and of seeds.

        Returns (n_seeds, n, n_nodes).
        """
        given, found = self._rows(nodes, limits), []
        shares = limited.posterior(self.mixture, given, by_content)
        for seed in seeds:
            uniforms, lattice = row_keyed(nodes, seed), partial(_keyed, seed)
            scores = limited.completed(self.mixture, given, shares, lattice)
            data = Arranged.of(scores, given.codes)
            table = torch.empty((1, *nodes.shape), dtype=torch.float64)
            uniform, normal, levels = (uniforms(i, table) for i in range(3))
            normal = torch.special.ndtri(normal.clamp(min=_LEAST))
            numbers = uniform[..., 0], normal, levels.movedim(-1, 0)
            numbers = (one.numpy() for one in numbers)
            found.append(self._drawn(data, nodes, numbers)[0])
        return np.stack(found)

    def _of_stream(self, n_draws: int, n: int) -> tuple:
        """Make the random numbers of draws with torch's global stream."""
        sizes, width = (n_draws, n), np.count_nonzero(~self.is_categorical)
        uniform = torch.rand(sizes, dtype=torch.float64).numpy()
        noise = torch.randn(*sizes, width, dtype=torch.float64).numpy()
        n_classes = len(self.mixture.classes)
        levels = torch.rand(n_classes, *sizes, dtype=torch.float64).numpy()
        return uniform, noise, levels

    def _drawn(
        self, data: Arranged, nodes: np.ndarray, numbers: Iterable[np.ndarray]
    ) -> np.ndarray:
        """Draw what is missing in scores of rows; (n_draws, n, n_nodes)."""
        uniform, noise, levels = numbers
        given = uniform, noise[..., : data.x.shape[1]], levels
        scores, codes = density.draw(self.mixture, data, *given)
        drawn = np.empty((len(uniform), *nodes.shape))
        drawn[..., ~self.is_categorical] = self.valid.to_cells(scores)
        drawn[..., self.is_categorical] = codes
        return np.where(np.isnan(nodes), drawn, nodes)

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute log-densities of rows, and their standard errors, 0; each (n,)."""
        data = Arranged.of(*self._rows(nodes))
        found = np.empty(len(nodes))
        prepared = density.prepare(self.mixture)
        found[data.order] = density.responsibilities(prepared, data)[1]
        found += self.points.log_slopes(nodes[:, ~self.is_categorical])
        return found, np.zeros(len(nodes))

    def given(self, nodes: np.ndarray) -> Given:
        """Compute the distributions of missing numbers given their rows."""
        return Given.of(self.mixture, Arranged.of(*self._rows(nodes)), self.points)

    def _rows(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Free | Limited:
        return rows_of(nodes, self.is_categorical, limits, self.points, self.valid)


class Averaged(NamedTuple):
    """Models of equal weight, whose mixture is a model."""

    models: Sequence[MixtureModel]

    def with_one_draw(self) -> list[Self]:
        """Make a model of each of the models."""
        return [self._replace(models=[one]) for one in self.models]

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Average means and probabilities; see `CellModel`."""
        filled, probabilities = 0.0, {}
        for one in self.models:
            cells, shares = one.fill(nodes, limits)
            filled = filled + cells / len(self.models)
            for j, own in shares.items():
                probabilities[j] = probabilities.get(j, 0.0) + own / len(self.models)
        for j, shares in probabilities.items():
            missing = np.isnan(nodes[:, j])
            filled[:, j] = np.where(missing, shares.argmax(1), nodes[:, j])
        return filled, probabilities

    @property
    def n_points(self) -> int:
        """The number of tables in memory when quantiles are computed."""
        return 2 * sum(len(one.mixture.weights) for one in self.models)

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> Filled:
        """Find quantiles of missing cells; see `_imputer.fill`."""
        numbers, found = ~self.models[0].is_categorical, np.nan_to_num(nodes)
        if limits:
            draws = [
                one.keyed_draws(nodes, seeds, limits)
                for one, seeds in zip(
                    self.models,
                    np.array_split(np.arange(_KEYED), len(self.models)),
                    strict=True,
                )
                if len(seeds)
            ]
            return np.concatenate(draws), self.fill(nodes, limits)[1]
        found = np.repeat(found[None], len(levels), axis=0)
        members = [one.given(nodes) for one in self.models]
        missing = np.isnan(nodes[:, numbers])
        cells = quantiles(members, missing, levels)
        found[..., numbers] = np.where(missing, cells, found[..., numbers])
        has_levels = not numbers.all()
        return found, self.fill(nodes)[1] if has_levels else {}

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells, of each row by a random model; see `CellModel`."""
        turns = torch.randint(len(self.models), (len(nodes),)).numpy()
        drawn = np.empty((n_draws, *nodes.shape))
        for turn in np.unique(turns):
            rows = turns == turn
            own = limits.of(rows)
            drawn[:, rows] = self.models[turn].draw(nodes[rows], n_draws, own)
        return drawn

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute the log of the average density, and errors, 0; each (n,)."""
        return average_density([one.log_density(nodes) for one in self.models])
