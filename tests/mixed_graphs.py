"""Tables of columns of several kinds, of which the graph is known."""

from typing import NamedTuple

import numpy as np
from copula_graph_tables import KINDS, column, random_graph


class MixedTable(NamedTuple):
    """A table, the kinds of its columns of categories by index, and its edges."""

    X: np.ndarray
    categories: dict
    edges: np.ndarray


def mixed_table(n, d, seed, *, missing=0.0, kinds=KINDS):
    """Draw a table; its cells are missing completely at random."""
    rng = np.random.default_rng(seed)
    edges, correlations = random_graph(d, rng)
    z = rng.multivariate_normal(np.zeros(d), correlations, n)
    names = [kinds[j % len(kinds)] for j in range(d)]
    X = np.column_stack([column(z[:, j], name, rng) for j, name in enumerate(names)])
    X[rng.uniform(size=X.shape) < missing] = np.nan
    read_as = {"ordinal": "ordinal", "binary": "nominal", "nominal": "nominal"}
    categories = {j: read_as[name] for j, name in enumerate(names) if name in read_as}
    return MixedTable(X, categories, edges)


def shuffled(X, seed):
    """Permute each column on its own, so that columns are independent."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.permutation(column) for column in X.T])
