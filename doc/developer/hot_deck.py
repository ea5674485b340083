"""A nearest-neighbour hot deck: missing cells get cells of similar rows."""

from typing import NamedTuple

import numpy as np
import torch

from skvnce._imputer.fitted import Fitted
from skvnce._imputer.imputer import Imputer
from skvnce._imputer.validation import OF_CATEGORIES, integer_from


class HotDeck(NamedTuple):
    """A fitted model of cells, see `skvnce._imputer.fitted.CellModel`."""

    donors: np.ndarray  # (n_donors, n_model_columns), NaN where missing
    scale: np.ndarray  # (n_model_columns,)
    n_categories: np.ndarray  # (n_model_columns,), 0 for numbers
    n_neighbors: int

    def n_chains(self, n_draws):
        return len(self.donors)  # a row is compared with all donors at a time

    def fill(self, nodes, limits=None):
        cells, probabilities = nodes.copy(), {}
        for node, missing, given in self._given(nodes, limits):
            cells[missing, node] = given.mean(1)
            if k := self.n_categories[node]:
                shares = probabilities[node] = np.zeros((len(nodes), k))
                shares[missing] = (given[..., None] == np.arange(k)).mean(1)
                cells[missing, node] = shares[missing].argmax(1)
        return cells, probabilities

    def draw(self, nodes, n_draws, limits=None):
        drawn = np.repeat(nodes[None], n_draws, 0)
        rank = torch.randint(2**31, (n_draws, len(nodes))).numpy()
        for node, missing, given in self._given(nodes, limits):
            chosen = rank[:, missing] % given.shape[1]
            drawn[:, missing, node] = np.take_along_axis(given.T, chosen, 0)
        return drawn

    def _given(self, nodes, limits):
        """Yield a column, the rows that miss its cell, and the cells of donors."""
        gaps = abs(nodes[:, None] - self.donors) / self.scale
        gaps = np.where(self.n_categories > 0, np.sign(gaps), np.minimum(gaps, 3.0))
        n_common = (~np.isnan(gaps)).sum(2)
        far = np.where(n_common, np.nansum(gaps**2, 2) / np.maximum(n_common, 1), 9.0)
        for node in np.flatnonzero(np.isnan(nodes).any(0)):
            missing, known = np.isnan(nodes[:, node]), ~np.isnan(self.donors[:, node])
            cells, own = self.donors[known, node], far[np.ix_(missing, known)]
            if limits:  # cells outside of the limits come last
                low, high = (end[missing, node, None] for end in limits)
                own += 99.0 * ((cells < low) | (cells > high))
            nearest = own.argsort(1, kind="stable")[:, : self.n_neighbors]
            yield node, missing, cells[nearest]


class HotDeckImputer(Imputer):
    """Fill missing cells by those of the `n_neighbors` most similar rows."""

    _takes_limits = True
    _parameter_constraints = {"n_neighbors": [integer_from(1)], **OF_CATEGORIES}

    def __init__(
        self, n_neighbors=5, categorical_features="from_dtype", handle_unknown="error"
    ):
        self.n_neighbors = n_neighbors
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown

    def fit(self, X, y=None, *, lower=None, upper=None):
        table = self._read(X, lower=lower, upper=upper)
        cells, n_categories = table.cells, table.schema.n_categories
        model = HotDeck(cells.nodes, cells.scale, n_categories, int(self.n_neighbors))
        return self._publish(Fitted(table.schema, model, table.report))
