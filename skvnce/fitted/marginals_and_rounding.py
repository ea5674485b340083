"""Cells of models as valid values of their columns, and marginal distributions.

A column that a model does not predict has the distribution of its observed cells.
"""

from typing import NamedTuple, Self

import numpy as np
import torch

from skvnce.fitted.base import CellModel, n_chains
from skvnce.fitted.strategies import STRATEGIES
from skvnce.tables.cell_limits import CellLimits
from skvnce.tables.valid_values import ValidValues

Limits = CellLimits | None


class Marginal(NamedTuple):
    """The distribution of the observed cells of a column."""

    best: float  # what predictions are: the mean, or the most frequent category
    values: np.ndarray  # (n,), the observed cells, increasing
    below: np.ndarray  # (n - 1,), cumulative weights; those of all cells add up to 1

    @classmethod
    def of(cls, column: np.ndarray, weights: np.ndarray, *, is_category: bool) -> Self:
        """Find the distribution of a column (n,) of rows with weights (n,)."""
        seen = ~np.isnan(column)
        order = np.argsort(column[seen], kind="stable")
        values, weight = column[seen][order], weights[seen][order]
        share = weight / weight.sum()
        best = share @ values
        if is_category:
            best = np.bincount(values.astype(int), share).argmax()
        # without the last sum, which rounding may put below 1 and a uniform number
        return cls(float(best), values, share.cumsum()[:-1])

    def probabilities(self, n_categories: int) -> np.ndarray:
        """Return the weights of the categories of a column; (n_categories,)."""
        share = np.diff(self.below, prepend=0.0, append=1.0)
        return np.bincount(self.values.astype(int), share, minlength=n_categories)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Find quantiles, linear between the middles of the weights; (n_levels,)."""
        below, up_to = np.append(0.0, self.below), np.append(self.below, 1.0)
        return np.interp(levels, (below + up_to) / 2, self.values)

    def draws(self, shape: tuple) -> np.ndarray:
        """Draw observed cells of a shape, with torch's global stream."""
        uniform = torch.rand(shape, dtype=torch.float64).numpy()
        return self.values[np.searchsorted(self.below, uniform, side="right")]


class ValidCells(NamedTuple):
    """A model whose cells are valid values of their columns."""

    model: CellModel
    values: ValidValues  # of all columns of the table
    columns: np.ndarray  # int (n_model_columns,), the columns of the model
    # by model column: what takes the place of the model.  Cells with limits are the
    # model's, as observed values may be outside of the limits
    marginals: dict
    strategy: str = "mean"  # by which numbers are filled, a key of `STRATEGIES`

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        strategy = STRATEGIES[self.strategy]
        if strategy and n_draws is None:
            return strategy.n_chains(self.model)
        return n_chains(self.model, n_draws)

    def fill(self, nodes: np.ndarray, limits: Limits = None) -> tuple[np.ndarray, dict]:
        """Fill missing cells; see `CellModel`."""
        cells, probabilities = self._predicted(nodes, limits)
        for node, one in self.marginals.items():
            best = self._best(node, is_number=node not in probabilities)
            cells[..., node] = _unless_limited(best, cells, node, limits)
            if node in probabilities:
                own = probabilities[node]
                own[:] = one.probabilities(own.shape[1])
        return cells, probabilities

    def independent(self, nodes: np.ndarray, n_draws: int) -> list[Self]:
        """List models of draws in which rows are independent; see `GroupedNormal`."""
        models = self.model.independent(nodes, n_draws)
        return [self._replace(model=one) for one in models]

    def determined(self, nodes: np.ndarray) -> np.ndarray:
        """Fill cells that follow from others; see `GroupedNormal`."""
        return self.model.determined(nodes)

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = None
    ) -> tuple[np.ndarray, dict]:
        """Represent the distributions of cells; see `skvnce.fitted.strategies`."""
        points, probabilities = self.model.points(nodes, levels, limits)
        middles = (np.arange(len(points)) + 0.5) / len(points)
        for node, one in self.marginals.items():
            own = one.quantiles(middles)[:, None]
            points[..., node] = _unless_limited(own, points, node, limits)
        return self.values.rounded(points, self.columns), probabilities

    def _predicted(self, nodes: np.ndarray, limits: Limits) -> tuple[np.ndarray, dict]:
        """Fill missing cells by the model."""
        strategy, valid = STRATEGIES[self.strategy], (self.values, self.columns)
        if strategy:
            return strategy.fill(self.model, nodes, limits, *valid)
        cells, probabilities = self.model.fill(nodes, limits)
        return self.values.clipped(cells, self.columns), probabilities

    def _best(self, node: int, *, is_number: bool) -> float:
        """Return what fills a column by its marginal distribution."""
        one, strategy = self.marginals[node], STRATEGIES[self.strategy]
        if strategy and is_number:
            points = one.quantiles(strategy.levels)[:, None]
            return strategy.of(points, self.values, self.columns[[node]])[0]
        return one.best

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        cells = self.model.draw(nodes, n_draws, limits)
        for node, one in self.marginals.items():
            drawn = one.draws(cells.shape[:-1])
            cells[..., node] = _unless_limited(drawn, cells, node, limits)
        # last, because draws from marginals need not be within the user's bounds
        return self.values.rounded(cells, self.columns)


def _unless_limited(
    new: float | np.ndarray, cells: np.ndarray, node: int, limits: Limits
) -> float | np.ndarray:
    """Return new cells of a column, except where cells have limits."""
    if limits is None:
        return new
    return np.where(limits.known[:, node], cells[..., node], new)
