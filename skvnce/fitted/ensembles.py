"""Several fitted models that draw cells in turn, and predict by all their draws."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from skvnce._keyed import row_keyed
from skvnce.algorithms.vae.sampling import Rule
from skvnce.fitted.autoencoder import EncoderModel, stratified
from skvnce.fitted.base import average_density
from skvnce.tables.cell_limits import CellLimits
from skvnce.tables.valid_values import ValidValues
from skvnce.variational.base import global_stream


class Member(Protocol):
    """A model whose random numbers are chosen by the caller; see `CellModel`."""

    def draws(
        self, nodes: np.ndarray, n_draws: int, numbers: Callable
    ) -> tuple[np.ndarray, dict]:
        """Draw cells that will be summarised, and may be dependent.

        `nodes` (n, n_model_columns).  `numbers`: maps rows and a purpose to uniform
        numbers.  Returns `drawn` (n_draws, n, n_model_columns), and `probabilities`
        (n, n_categories) by column of categories.
        """
        ...

    def mean(self, nodes: np.ndarray) -> tuple[np.ndarray, dict]:
        """Approximate means (n, n_model_columns), and probabilities, at low cost."""
        ...

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        ...

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate log-densities and their standard errors; see `CellModel`."""
        ...


class EncoderMember(NamedTuple):
    """An autoencoder whose cells are drawn by a rule."""

    model: EncoderModel
    rule: Rule
    n_steps: int  # number of iterations, or of moves of each chain
    # (2, n_model_columns): of cells, by which they are drawn conditionally; infinite
    # without a bound
    bounds: np.ndarray
    # number of draws of the latents from which log-densities are estimated
    n_scored: int

    def draws(
        self, nodes: np.ndarray, n_draws: int, numbers: Callable
    ) -> tuple[np.ndarray, dict]:
        """Draw cells that will be summarised; see `Member`."""
        return self._by(stratified(self.rule), nodes, n_draws, numbers)

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        return self._by(self.rule, nodes, n_draws, of_stream)[0]

    def mean(self, nodes: np.ndarray) -> tuple[np.ndarray, dict]:
        """Approximate means; see `Member`."""
        return self.model.mean(nodes, self.bounds)

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate log-densities and their standard errors; see `CellModel`."""
        return self.model.log_density(nodes, self.n_scored)

    def _by(
        self, rule: Rule, nodes: np.ndarray, n_draws: int, numbers: Callable
    ) -> tuple[np.ndarray, dict]:
        sizes = self.n_steps, nodes, n_draws
        return self.model.draws(rule, *sizes, numbers, self.bounds)


class Ensemble(NamedTuple):
    """Models that predict cells by all their draws."""

    members: Sequence[Member]
    n_draws: int  # number of draws of a prediction, by all members together
    values: ValidValues  # to which draws are rounded before their means are computed
    columns: np.ndarray  # int (n_model_columns,)

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return self.n_draws if n_draws is None else 1

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by means of draws; see `CellModel`."""
        drawn, probabilities = self._drawn_by_all(nodes)
        cells = self.values.rounded(drawn, self.columns).mean(0)
        for node, levels in probabilities.items():
            cells[:, node] = levels.argmax(1)
        return cells, probabilities

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Draw cells that represent their distributions; see `strategies`."""
        return self._drawn_by_all(nodes)

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate the log of the average density, and its errors; each (n,)."""
        return average_density([one.log_density(nodes) for one in self.members])

    def _drawn_by_all(self, nodes: np.ndarray) -> tuple[np.ndarray, dict]:
        """Draw cells by all members, and average probabilities of categories."""
        shares = np.array_split(np.arange(self.n_draws), len(self.members))
        drawn, total = [], {}
        for number, (member, share) in enumerate(
            zip(self.members, shares, strict=True)
        ):
            if not len(share):
                continue
            numbers = partial(of_rows, number)
            tables, found = member.draws(nodes, len(share), numbers)
            drawn.append(tables)
            for node, levels in found.items():
                own = levels * len(share) / self.n_draws
                total[node] = total.get(node, 0) + own
        return np.concatenate(drawn), total


def of_rows(number: int, rows: np.ndarray) -> Callable:
    """Make uniform numbers as functions of the row, for one member."""
    # apart by more than the number of purposes, so that members share no numbers
    return lambda purpose: row_keyed(rows, 16 * number + purpose)


def of_stream(rows: np.ndarray) -> Callable:
    """Take uniform numbers from torch's global stream."""
    return lambda purpose: global_stream
