"""How the distribution of a missing number becomes the one value that fills it.

Means are those of `CellModel.fill`.  For the other strategies a model has a method
``points(nodes, levels, limits)``, which returns values (n_points, n, n_model_columns)
of equal weight that represent the distribution of each missing cell, and the
probabilities of categories as `CellModel.fill` returns them: quantiles at the levels
where a model has them, or else draws, of any number.  The points are functions of each
row alone, and cells of categories are not used.  An attribute ``n_points`` is the
number of tables in memory meanwhile, if it is larger than that of the levels.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from skvnce.fitted.base import CellModel, n_chains
from skvnce.tables.cell_limits import CellLimits
from skvnce.tables.statistics import half_sample_mode
from skvnce.tables.valid_values import ValidValues

_N_LEVELS = 31  # quantiles, whose distances show the mode


class Strategy(NamedTuple):
    """A summary of points."""

    levels: np.ndarray  # (n_levels,), of the quantiles that it needs
    summary: Callable  # maps points (n_points, ...) to a value of each cell (...)

    def of(
        self, points: np.ndarray, values: ValidValues, columns: np.ndarray
    ) -> np.ndarray:
        """Summarise points (n_points, n, n_columns) of some columns by valid values."""
        # rounded first: the mode of repeated values is the most frequent one
        cells = self.summary(values.rounded(points, columns))
        # and afterwards, because the middle of two values need not be one
        return values.rounded(cells, columns)

    def fill(
        self,
        model: CellModel,
        nodes: np.ndarray,
        limits: CellLimits | None,
        values: ValidValues,
        columns: np.ndarray,
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by a model that has points; see `CellModel.fill`."""
        points, probabilities = model.points(nodes, self.levels, limits)
        cells = self.of(points, values, columns)
        for node, shares in probabilities.items():
            cells[:, node] = shares.argmax(1)
        return cells, probabilities

    def n_chains(self, model: CellModel) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return max(n_chains(model), len(self.levels), getattr(model, "n_points", 1))


STRATEGIES = {
    "mean": None,  # models compute means without points
    "median": Strategy(np.array([0.5]), partial(np.median, axis=0)),
    "mode": Strategy((np.arange(_N_LEVELS) + 0.5) / _N_LEVELS, half_sample_mode),
}
