"""A fitted truncated Gaussian graph: it fills, draws and scores rows."""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce._keyed import row_keyed
from skvnce.algorithms.graph import prediction
from skvnce.algorithms.graph.chain_means import N_TABLES
from skvnce.fitted.base import repeated
from skvnce.models.truncated_gaussian import TruncatedGaussian
from skvnce.tables.cell_limits import CellLimits


class GraphParameters(NamedTuple):
    """The parameters of a truncated Gaussian of columns, in the units of the table."""

    precision: np.ndarray  # (n_model_columns, n_model_columns)
    linear: np.ndarray  # (n_model_columns,)
    log_scale: float
    location: np.ndarray  # (n_model_columns,), where chains start

    def module(self) -> TruncatedGaussian:
        """Make the module of the density, without gradients."""
        parameters = map(torch.tensor, (self.precision, self.linear))
        log_scale = torch.tensor(self.log_scale, dtype=torch.float64)
        return TruncatedGaussian(*parameters, log_scale).requires_grad_(False)

    def cell_model(self, n_steps: int) -> "GraphModel":
        """Make the model of cells, whose chains have `n_steps` sweeps."""
        return GraphModel(self.module(), torch.from_numpy(self.location), n_steps)


class GraphModel(NamedTuple):
    """A truncated Gaussian of columns, in the units of the table."""

    model: TruncatedGaussian
    start: Tensor  # (n_model_columns,), where chains start
    n_steps: int  # number of sweeps of a chain

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return N_TABLES if n_draws is None else n_draws

    @property
    def n_points(self) -> int:
        """The number of tables in memory when quantiles are computed."""
        return self.n_steps

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by their conditional means; see `CellModel`."""
        found = prediction.conditional_mean(*self._given(nodes), **self._lengths)
        return found.numpy(), {}

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Find quantiles of missing cells; see `strategies`."""
        given = *self._given(nodes), torch.tensor(levels)
        return prediction.quantiles(*given, **self._lengths).numpy(), {}

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        found = prediction.draw(
            self.model,
            Incomplete.from_array(nodes),
            self.start,
            n_draws=n_draws,
            # as many sweeps as `fill` makes
            n_steps=self.n_steps + self.n_steps // 2,
        )
        return found.numpy()

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Score rows by their held-out cells, and estimate errors; each (n,)."""
        return repeated(partial(self._log_predictive, nodes), with_errors=with_errors)

    def _given(self, nodes: np.ndarray) -> tuple:
        """Return what predicts cells as functions of the row."""
        data = Incomplete.from_array(nodes)
        return self.model, data, self.start, row_keyed(nodes, 0)

    @property
    def _lengths(self) -> dict:
        """The lengths of the chains that predict cells."""
        return {"burn_in": self.n_steps // 2, "n_steps": self.n_steps}

    def _log_predictive(self, nodes: np.ndarray, number: int) -> np.ndarray:
        """Estimate the scores; others with another number."""
        # 0 is the key of `fill`, and each of the chains has its own
        first = 1 + prediction.N_CHAINS * number
        return prediction.log_predictive(
            self.model,
            Incomplete.from_array(nodes),
            self.start,
            lambda block: row_keyed(nodes, first + block),
            **self._lengths,
        ).numpy()
