"""A fitted density with a scale parameter: means, draws and scores of rows."""

from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._keyed import row_lattice
from skvnce._units import Units
from skvnce.algorithms.vnce.fitted import CANDIDATES, EVALUATED, Fitted
from skvnce.tables.cell_limits import CellLimits

_CELLS, _LATENTS = 0, 1  # what `Fitted.one_draw` draws


class ScaledDensity(NamedTuple):
    """A density of scaled columns, perhaps with latent variables."""

    fitted: Fitted
    units: Units

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many numbers a cell are in memory at a time."""
        number = EVALUATED if n_draws is None else CANDIDATES * n_draws
        return number * self.fitted.n_states

    @torch.no_grad()
    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by their means; see `CellModel`."""
        found = self.fitted.filled(self._scaled(nodes), row_lattice(nodes, 0))
        return self.units.restored(found.cpu()), {}

    @torch.no_grad()
    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Find quantiles of missing cells; see `strategies`."""
        numbers, levels = row_lattice(nodes, 0), torch.tensor(levels)
        found = self.fitted.quantiles(self._scaled(nodes), numbers, levels)
        return self.units.restored(found.cpu()), {}

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        return self.units.restored(self._drawn(nodes, n_draws, _CELLS))

    def latent_mean(self, nodes: np.ndarray) -> np.ndarray:
        """Compute posterior means of the latents; (n, n_components)."""
        with torch.no_grad():
            numbers = row_lattice(nodes, 0)
            return self.fitted.latent_mean(self._scaled(nodes), numbers).cpu().numpy()

    def draw_latents(self, nodes: np.ndarray, n_draws: int) -> np.ndarray:
        """Draw the latents with torch's global stream; (n_draws, n, n_components)."""
        return self._drawn(nodes, n_draws, _LATENTS).numpy()

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute log-densities of rows and their standard errors; each (n,)."""
        with torch.no_grad():
            found, error = self.fitted.log_prob(
                self._scaled(nodes), row_lattice(nodes, 0)
            )
        return found.cpu().numpy() - self.units.log_scales(nodes), error.cpu().numpy()

    def _scaled(self, nodes: np.ndarray) -> Incomplete:
        return self.units.scaled(nodes).on(self.fitted.device)

    @torch.no_grad()
    def _drawn(self, nodes: np.ndarray, n_draws: int, what: int) -> torch.Tensor:
        rows = self._scaled(np.tile(nodes, (n_draws, 1)))
        found = self.fitted.one_draw(rows, what).cpu()
        return found.reshape(n_draws, len(nodes), -1)
