"""What a fitted model of cells can do.

A model knows the columns in `feature_indices_` of an estimator, as float64 with NaN for
missing cells and codes for categories, and nothing else of a table: constant and empty
columns, data types, bounds, `where` and the rest are the same for all models, see
`skvnce.fitted.fill` and the base class of imputers.
"""

from typing import Protocol

import numpy as np

from skvnce.tables.cell_limits import CellLimits


class CellModel(Protocol):
    """A fitted model that fills and draws the missing cells of rows.

    It may also have ``log_density(nodes)``, which returns values (n,) and their
    standard errors (n,), and ``n_chains(n_draws)``, the number of copies of the rows
    that are in memory at a time when so many draws are made, or with None when means
    are computed; without it one copy is.
    """

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by their means, or by their most probable category.

        Parameters
        ----------
        nodes : ndarray of shape (n, n_model_columns)
            Each row has a missing cell.
        limits : CellLimits, default=None
            Of the missing cells.

        Returns
        -------
        filled : ndarray of shape (n, n_model_columns)
            Functions of each row alone.
        probabilities : dict of int to ndarray of shape (n, n_categories)
            For each column of categories.
        """
        ...

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells with torch's global stream of random numbers.

        Returns
        -------
        ndarray of shape (n_draws, n, n_model_columns)
        """
        ...


def n_chains(model: CellModel, n_draws: int | None = None) -> int:
    """Return how many copies of the rows a model has in memory at a time."""
    return model.n_chains(n_draws) if hasattr(model, "n_chains") else 1
