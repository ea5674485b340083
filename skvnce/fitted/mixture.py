"""Fitted mixtures of normals: they fill, draw and score rows, in the units of X."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._keyed import row_lattice
from skvnce.algorithms.mixture import limited, model
from skvnce.algorithms.mixture.limited import Limited
from skvnce.algorithms.mixture.margins import Points
from skvnce.algorithms.mixture.model import Arranged, Mixture
from skvnce.fitted.base import average_density
from skvnce.tables.cell_limits import CellLimits
from skvnce.variational.base import Uniforms, global_stream

_ROWS = 2**16  # maximum number of rows, over all draws, whose limited cells are drawn


def split_columns(
    nodes: np.ndarray, is_categorical: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers (n, d), and the codes of categories, -1 where missing."""
    codes = np.nan_to_num(nodes[:, is_categorical], nan=-1)
    return nodes[:, ~is_categorical], codes.astype(np.int64)


def _lattice(data: Incomplete) -> Uniforms:
    """Make the random numbers of rows as functions of the row content."""
    return row_lattice(data.to_array(), 0)


class MixtureModel(NamedTuple):
    """A mixture of normals of scores of numbers, and of latent classes.

    Attributes
    ----------
    mixture : Mixture
    is_categorical : ndarray of bool, of shape (n_model_columns,)
    valid : Points
        From scores to valid cells of the columns of numbers.
    points : Points
        The same without ends, by which cells are scored.
    """

    mixture: Mixture
    is_categorical: np.ndarray
    valid: Points
    points: Points

    @classmethod
    def of_plain(cls, plain: tuple) -> Self:
        """Make a model of what `plain` returned."""
        mixture, is_categorical, valid, points = plain
        return cls(Mixture(*mixture), is_categorical, Points(*valid), Points(*points))

    def plain(self) -> tuple:
        """Convert the model to tuples of arrays, which can be stored anywhere."""
        parts = tuple(self.mixture), tuple(self.valid), tuple(self.points)
        return parts[0], self.is_categorical, *parts[1:]

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill by means, and by the most probable categories; see `CellModel`."""
        if limits is None:
            given = self._arranged(nodes), self.valid
            means, shares = model.conditional_means(self.mixture, *given)
        else:
            given = self._limited(nodes, limits), self.valid
            means, shares = limited.conditional_means(self.mixture, *given, _lattice)
        filled, places = nodes.copy(), np.flatnonzero(self.is_categorical)
        numbers, missing = ~self.is_categorical, np.isnan(nodes)
        filled[:, numbers] = np.where(missing[:, numbers], means, nodes[:, numbers])
        probabilities = dict(zip(places.tolist(), shares, strict=True))
        for j, found in probabilities.items():
            filled[:, j] = np.where(missing[:, j], found.argmax(1), nodes[:, j])
        return filled, probabilities

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        if limits is None:
            return self._drawn(self._arranged(nodes), nodes, n_draws)
        given, n = self._limited(nodes, limits), len(nodes)
        shares, found = limited.posterior(self.mixture, given, _lattice), []
        size = max(1, _ROWS // n)
        for first in range(0, n_draws, size):
            rows = np.tile(np.arange(n), min(size, n_draws - first))
            known = given.take(rows), shares[rows], global_stream
            scores = limited.completed(self.mixture, *known)
            data = Arranged.of(scores, given.codes[rows])
            found.append(self._drawn(data, nodes[rows], 1).reshape(-1, *nodes.shape))
        return np.concatenate(found)

    def _drawn(self, data: Arranged, nodes: np.ndarray, n_draws: int) -> np.ndarray:
        """Draw what is missing in scores of rows; (n_draws, n, n_nodes)."""
        n = len(nodes)
        uniform = torch.rand(n_draws, n, dtype=torch.float64).numpy()
        noise = torch.randn(n_draws, n, data.x.shape[1], dtype=torch.float64).numpy()
        levels = torch.rand(
            len(self.mixture.classes), n_draws, n, dtype=torch.float64
        ).numpy()
        scores, codes = model.draw(self.mixture, data, uniform, noise, levels)
        drawn = np.empty((n_draws, *nodes.shape))
        drawn[..., ~self.is_categorical] = self.valid.to_cells(scores)
        drawn[..., self.is_categorical] = codes
        return np.where(np.isnan(nodes), drawn, nodes)

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute log-densities of rows, and their standard errors, 0; each (n,)."""
        data = self._arranged(nodes)
        found = np.empty(len(nodes))
        prepared = model.prepare(self.mixture)
        found[data.order] = model.responsibilities(prepared, data)[1]
        found += self.points.log_slopes(nodes[:, ~self.is_categorical])
        return found, np.zeros(len(nodes))

    def _limited(self, nodes: np.ndarray, limits: CellLimits) -> Limited:
        rows = split_columns(nodes, self.is_categorical)
        ends = tuple(end[:, ~self.is_categorical] for end in limits)
        return Limited.of(*rows, ends, self.points, self.valid)

    def _arranged(self, nodes: np.ndarray) -> Arranged:
        numbers, codes = split_columns(nodes, self.is_categorical)
        return Arranged.of(self.points.to_scores(numbers), codes)


class Averaged(NamedTuple):
    """Models of equal weight, whose mixture is a model.

    Attributes
    ----------
    models : sequence of MixtureModel
    """

    models: Sequence[MixtureModel]

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
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

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells, of each row by a random model; see `CellModel`."""
        turns = torch.randint(len(self.models), (len(nodes),)).numpy()
        drawn = np.empty((n_draws, *nodes.shape))
        for turn in np.unique(turns):
            rows = turns == turn
            own = limits and limits.of_rows(rows)
            drawn[:, rows] = self.models[turn].draw(nodes[rows], n_draws, own)
        return drawn

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute the log of the average density, and errors, 0; each (n,)."""
        return average_density([one.log_density(nodes) for one in self.models])
