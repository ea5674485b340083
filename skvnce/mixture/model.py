"""Fitted mixtures of normals: they fill, draw and score rows, in the units of X."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce._imputer.fitted import Densities, Filled, average_density
from skvnce._tables.values import NO_LIMITS, Limits
from skvnce.mixture import density
from skvnce.mixture.density import Arranged, Mixture
from skvnce.mixture.margins import Points


def split_columns(
    nodes: np.ndarray, is_categorical: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers (n, d), and the codes of categories, -1 where missing."""
    codes = np.nan_to_num(nodes[:, is_categorical], nan=-1)
    return nodes[:, ~is_categorical], codes.astype(np.int64)


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
        points = (part.take(numbers) for part in (self.valid, self.points))
        return MixtureModel(mixture, are[order], *points)

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill by means, and by the most probable categories; see `CellModel`."""
        data = self._rows(nodes)
        means, shares = density.conditional_means(self.mixture, data, self.valid)
        filled, places = nodes.copy(), np.flatnonzero(self.is_categorical)
        numbers, missing = ~self.is_categorical, np.isnan(nodes)
        filled[:, numbers] = np.where(missing[:, numbers], means, nodes[:, numbers])
        probabilities = dict(zip(places.tolist(), shares, strict=True))
        for j, share in probabilities.items():
            filled[:, j] = np.where(missing[:, j], share.argmax(1), nodes[:, j])
        return filled, probabilities

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        numbers = self._random_numbers(n_draws, len(nodes))
        scores, codes = density.draw(self.mixture, self._rows(nodes), *numbers)
        drawn = np.empty((n_draws, *nodes.shape))
        drawn[..., ~self.is_categorical] = self.valid.to_cells(scores)
        drawn[..., self.is_categorical] = codes
        return np.where(np.isnan(nodes), drawn, nodes)

    def _random_numbers(self, n_draws: int, n: int) -> tuple:
        """Make the random numbers of draws with torch's global stream."""
        sizes, width = (n_draws, n), np.count_nonzero(~self.is_categorical)
        uniform = torch.rand(sizes, dtype=torch.float64).numpy()
        noise = torch.randn(*sizes, width, dtype=torch.float64).numpy()
        n_classes = len(self.mixture.classes)
        levels = torch.rand(n_classes, *sizes, dtype=torch.float64).numpy()
        return uniform, noise, levels

    def log_density(self, nodes: np.ndarray, *, with_errors: bool = False) -> Densities:
        """Compute log-densities of rows, and their standard errors, 0; each (n,)."""
        data = self._rows(nodes)
        log_density = np.empty(len(nodes))
        prepared = density.prepare(self.mixture)
        log_density[data.order] = density.responsibilities(prepared, data)[1]
        log_density += self.points.log_slopes(nodes[:, ~self.is_categorical])
        return log_density, np.zeros(len(nodes))

    def _rows(self, nodes: np.ndarray) -> Arranged:
        """Map rows to scores."""
        numbers, codes = split_columns(nodes, self.is_categorical)
        return Arranged.of(self.points.to_scores(numbers), codes)


class Averaged(NamedTuple):
    """Models of equal weight, whose mixture is a model."""

    models: Sequence[MixtureModel]

    def with_one_draw(self) -> list[Self]:
        """Make a model of each of the models."""
        return [self._replace(models=[model]) for model in self.models]

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Average means and probabilities; see `CellModel`."""
        filled, probabilities = 0.0, {}
        for model in self.models:
            cells, shares = model.fill(nodes)
            filled = filled + cells / len(self.models)
            for j, share in shares.items():
                probabilities[j] = probabilities.get(j, 0.0) + share / len(self.models)
        for j, shares in probabilities.items():
            missing = np.isnan(nodes[:, j])
            filled[:, j] = np.where(missing, shares.argmax(1), nodes[:, j])
        return filled, probabilities

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells, of each row by a random model; see `CellModel`."""
        turns = torch.randint(len(self.models), (len(nodes),)).numpy()
        drawn = np.empty((n_draws, *nodes.shape))
        for turn in np.unique(turns):
            rows = turns == turn
            drawn[:, rows] = self.models[turn].draw(nodes[rows], n_draws)
        return drawn

    def log_density(self, nodes: np.ndarray, *, with_errors: bool = False) -> Densities:
        """Compute the log of the average density, and errors, 0; each (n,)."""
        return average_density([model.log_density(nodes) for model in self.models])
