"""Tables of columns of several kinds, of which the graph is known."""

from typing import NamedTuple

import numpy as np

KINDS = "lognormal", "zero-inflated", "ordinal", "binary", "nominal"
GRADES = (-1.0, -0.3, 0.4, 1.1)  # latent bounds of the ordinal levels
ZERO, YES = -0.4, 0.2  # latent bounds of zero inflation and of binary columns
SLOPES = (-1.8, -0.6, 0.6, 1.8)  # of the utilities of nominal levels
NOISE = 0.7  # standard deviation of the utilities
NEIGHBOURS = 3  # on average


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


def random_graph(d, rng):
    """Draw edges of random signs, and the correlations of their distribution."""
    pairs = np.argwhere(np.triu(np.ones((d, d)), 1))
    chosen = pairs[rng.choice(len(pairs), NEIGHBOURS * d // 2, replace=False)]
    precision = np.zeros((d, d))
    for i, j in chosen:
        precision[i, j] = rng.choice([-1, 1]) * rng.uniform(0.25, 0.45)
    precision += precision.T
    truth = precision != 0
    precision += np.eye(d) * max(1.0, 0.15 - np.linalg.eigvalsh(precision)[0])
    covariance = np.linalg.inv(precision)
    scale = np.sqrt(np.diag(covariance))
    return truth, covariance / np.outer(scale, scale)


def column(z, kind, rng):
    """Make a column of a latent variable (n,)."""
    if kind == "lognormal":
        return np.exp(z)
    if kind == "zero-inflated":
        return np.where(z < ZERO, 0.0, np.expm1(z - ZERO))
    if kind == "ordinal":
        return np.searchsorted(GRADES, z).astype(float)
    if kind == "binary":
        return (z > YES).astype(float)
    slopes = rng.permutation(SLOPES)
    utility = np.outer(z, slopes) + NOISE * rng.normal(size=(len(z), len(slopes)))
    return utility.argmax(1).astype(float)
