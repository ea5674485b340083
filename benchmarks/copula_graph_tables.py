"""Simulated tables of which the graph is known, for `copula_graph.py`."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from graph_simulation import simulate

from skvnce.missingness import hide, mar, mcar

ROWS = 500
KINDS = "lognormal", "zero-inflated", "ordinal", "binary", "nominal"
LEVELS = {"ordinal": 5, "binary": 2, "nominal": 4}
GRADES = (-1.0, -0.3, 0.4, 1.1)  # latent bounds of the ordinal levels
ZERO, YES = -0.4, 0.2  # latent bounds of zero inflation and of binary columns
SLOPES = (-1.8, -0.6, 0.6, 1.8)  # of the utilities of nominal levels
NOISE = 0.7  # standard deviation of the utilities
NEIGHBOURS = 3  # on average
BELOW = 0.4  # of the cells of every second column, below a limit
HOLES = ("none", 0.0), ("MCAR", 0.3), ("MAR", 0.3), ("MCAR", 0.5), ("MAR", 0.5)
TABLES = dict.fromkeys(("copula20", "copula100", "ring", "hub"), HOLES)
TABLES["censored20"] = ("none", 0.0), ("MCAR", 0.3), ("MCAR", 0.5)


class Table(NamedTuple):
    """A table with holes, and the truth behind it."""

    name: str
    X: np.ndarray  # (n, d): NaN where missing; levels are codes
    kinds: list  # "numeric", "ordinal" or "nominal"
    n_levels: list  # 1 for numbers
    truth: np.ndarray  # (d, d): the edges

    @property
    def frame(self):
        """The table with named columns."""
        return pd.DataFrame(self.X, columns=[f"x{j}" for j in range(len(self.kinds))])

    @property
    def categories(self):
        """The kinds of the columns of categories, by name."""
        return {f"x{j}": kind for j, kind in enumerate(self.kinds) if kind != "numeric"}

    @property
    def levels(self):
        """Mask of the columns of categories."""
        return np.array(self.kinds) != "numeric"


def drawn(name, mechanism, share, seed):
    """Draw a table, and hide a share of its cells."""
    others = {"ring": _truncated, "hub": _truncated, "censored20": _censored}
    table = others.get(name, _copula)(name, seed)
    way = {"none": None, "MCAR": mcar, "MAR": mar}[mechanism]
    if way is None:
        return table
    X = hide(table.X, way(table.X, share, random_state=seed))
    return table._replace(X=X[~np.isnan(X).all(1)])


def _truncated(name, seed):
    found = simulate(name, seed)
    d, truth = len(found.precision), found.precision != 0
    np.fill_diagonal(truth, False)
    return Table(name, found.X, ["numeric"] * d, [1] * d, truth)


def _censored(name, seed):
    """Draw log-normal columns, of which every second one has a detection limit."""
    table = _copula("copula20", seed, ["lognormal"])
    X = table.X.copy()
    X[:, ::2] = np.maximum(X[:, ::2], np.quantile(X[:, ::2], BELOW, axis=0))
    return table._replace(name=name, X=X)


def _copula(name, seed, kinds=KINDS):
    """Draw a latent normal graph and columns of all kinds in turn."""
    d = int(name.removeprefix("copula"))
    rng = np.random.default_rng([seed, d])
    truth, covariance = random_graph(d, rng)
    z = rng.multivariate_normal(np.zeros(d), covariance, ROWS)
    kinds = [kinds[j % len(kinds)] for j in range(d)]
    X = np.column_stack([column(z[:, j], kind, rng) for j, kind in enumerate(kinds)])
    names = ["nominal" if k == "binary" else k for k in kinds]
    names = [k if k in ("ordinal", "nominal") else "numeric" for k in names]
    return Table(name, X, names, [LEVELS.get(kind, 1) for kind in kinds], truth)


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
