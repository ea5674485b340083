"""Fitted densities whose cells are drawn by chains: draws and scores of rows."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._keyed import row_keyed
from skvnce.algorithms.gaussian.normal_scores import CellScores
from skvnce.algorithms.vgi import density
from skvnce.algorithms.vgi.score import CHAINS, score
from skvnce.fitted.ensembles import of_rows, of_stream
from skvnce.tables.cell_limits import CellLimits

_SWEEPS = 5  # of the chains from which log-densities are estimated

_SUMMED = 20  # chains of a row over which tables are summarised
# independent chains, because draws of one chain depend on each other
_APPROXIMATE = {"n_chains": 32, "n_sweeps": 4, "n_kept": 1}


class ChainModel(NamedTuple):
    """A density of the scores of columns, with conditionals by which chains propose."""

    fitted: density.Fitted
    scores: CellScores

    def draws(
        self,
        nodes: np.ndarray,
        numbers: Callable,
        *,
        n_chains: int,
        n_sweeps: int,
        n_kept: int,
    ) -> np.ndarray:
        """Draw cells of nodes; (n_kept * n_chains, n, n_model_columns)."""
        drawn = np.repeat(nodes[None], n_kept * n_chains, 0)
        data, _ = self.scores.scores(Incomplete.from_array(nodes))
        for rows in density.chunks(self.fitted, data.observed, n_chains):
            if data.observed[rows[0]].all():
                continue
            streams = numbers(nodes[rows.numpy()])  # a single row stays a table
            found = density.draw(
                self.fitted,
                data.take(rows).on(self.fitted.device),
                streams,
                n_chains=n_chains,
                n_sweeps=n_sweeps,
                n_kept=n_kept,
            )
            drawn[:, rows.numpy()] = self.scores.cells(found.cpu()).numpy()
        return drawn

    def log_density(
        self, nodes: np.ndarray, n_draws: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate log-densities of rows and their standard errors; each (n,)."""
        data, log_slopes = self.scores.scores(Incomplete.from_array(nodes))
        found = torch.zeros(2, len(nodes)).double()
        for rows in density.chunks(self.fitted, data.observed, n_draws * CHAINS):
            if not data.observed[rows[0]].any():
                continue
            part = nodes[rows.numpy()]
            found[:, rows] = torch.stack(
                score(
                    self.fitted,
                    data.take(rows).on(self.fitted.device),
                    lambda purpose, part=part: row_keyed(part, purpose),
                    n_draws=n_draws,
                    n_sweeps=_SWEEPS,
                )
            ).cpu()
        seen = data.observed.any(1)
        return (found[0] + log_slopes.where(seen, 0.0)).numpy(), found[1].numpy()


class ChainMember(NamedTuple):
    """A density whose cells are drawn by chains."""

    model: ChainModel
    n_sweeps: int
    n_scored: int  # number of draws from which log-densities are estimated

    def draws(
        self, nodes: np.ndarray, n_draws: int, numbers: Callable
    ) -> tuple[np.ndarray, dict]:
        """Draw cells that will be summarised; see `Member`."""
        n_chains = min(n_draws, _SUMMED)
        sizes = {"n_chains": n_chains, "n_kept": -(-n_draws // n_chains)}
        drawn = self.model.draws(nodes, numbers, n_sweeps=self.n_sweeps, **sizes)
        return drawn[:n_draws], {}

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        sizes = {"n_chains": n_draws, "n_sweeps": self.n_sweeps, "n_kept": 1}
        return self.model.draws(nodes, of_stream, **sizes)

    def mean(self, nodes: np.ndarray) -> tuple[np.ndarray, dict]:
        """Approximate means; see `Member`."""
        drawn = self.model.draws(nodes, partial(of_rows, 0), **_APPROXIMATE)
        return drawn.mean(0), {}

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate log-densities and their standard errors; see `CellModel`."""
        return self.model.log_density(nodes, self.n_scored)
