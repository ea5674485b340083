"""Methods that `copula_graph.py` compares on tables of which the graph is known.

A method takes a `Table` and a seed, and returns a `Found`.
"""

from functools import cache
from math import inf
from pathlib import Path
from shutil import which
from subprocess import run
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from _mice import run_r
from scipy.special import ndtri
from sklearn.covariance import GraphicalLassoCV

from skvnce import (
    CopulaGraphLearner,
    CopulaGraphLearnerCV,
    TruncatedGaussianGraphLearnerCV,
)
from skvnce.algorithms.graph import graphical_lasso
from skvnce.algorithms.graph.graphical_lasso import Blocks
from skvnce.algorithms.graph.penalty_path import ROWS_A_NEIGHBOUR

OURS, TRUNCATED = "CopulaGraphLearnerCV", "TruncatedGaussianGraphLearnerCV"
N_ALPHAS, RATIO = 20, 100  # of a path, as ours
GAMMAS = (0.0, 0.5)  # of the extended BIC of rivals
OUR_GAMMAS = (0.25, 0.5)  # besides the default, 0
_EIGENVALUE = 1e-3  # the least of a matrix of correlations of pairs
_SCRIPT = Path(__file__).with_name("_graph_rivals.R")


class Found(NamedTuple):
    """What a method says about the edges.

    Attributes
    ----------
    path : ndarray of shape (n, d, d)
        Strengths, from the sparsest graph to the densest, zero without an edge.
    chosen : dict of str to ndarray of bool of shape (d, d)
        The graph that each rule of selection chooses.
    seconds : float
        Of CPU that another process took.
    version : str, or None
        Of that program.
    """

    path: np.ndarray
    chosen: dict
    seconds: float = 0.0
    version: str | None = None


def copula(table, seed):
    """Learn by `CopulaGraphLearnerCV`."""
    learner, found, parameters = copula_learner(table, seed)
    scores, unit = learner.cv_results_["ebic"], 4 * np.log(len(learner.nodes_))
    further = {
        f"ebic {gamma:g}": found.path[(scores + gamma * unit * parameters).argmin()] > 0
        for gamma in OUR_GAMMAS
    }
    return found._replace(chosen=found.chosen | further)


def copula_learner(table, seed):
    """Fit `CopulaGraphLearnerCV`: it, its path, and the parameters of the graphs."""
    model = CopulaGraphLearner(categorical_features=table.categories or None)
    learner = CopulaGraphLearnerCV(model, random_state=seed).fit(table.frame)
    found = of_learner(learner, table.X.shape[1])
    free = [
        max(n - 1, 1) if kind == "nominal" else 1
        for kind, n in zip(table.kinds, table.n_levels, strict=True)
    ]
    return learner, found, (np.outer(free, free) * (found.path > 0)).sum((1, 2)) / 2


def truncated(table, seed):
    """Learn by `TruncatedGaussianGraphLearnerCV`."""
    learner = TruncatedGaussianGraphLearnerCV(random_state=seed).fit(table.X)
    return of_learner(learner, table.X.shape[1])


def of_learner(learner, d):
    """Spread the nodes of a fitted learner over all columns."""
    nodes = np.ix_(learner.feature_indices_, learner.feature_indices_)
    path = np.zeros((len(learner.path_), d, d))
    for full, part in zip(path, learner.path_, strict=True):
        full[nodes] = np.abs(part)
    chosen = np.zeros((d, d), dtype=bool)
    chosen[nodes] = learner.edge_strengths_ > 0
    return Found(path, {"ebic 0": chosen})


def filled(table, seed):
    """Fill codes by means and most frequent levels; graphical lasso."""
    return lasso_of_rows(filled_codes(table))


def scored(table, seed):
    """Map observed cells to normal scores, fill by means; graphical lasso."""
    return lasso_of_rows(np.nan_to_num(normal_scores(table.X)))


def by_mice(table, seed):
    """Complete the table by R's mice, map it to normal scores; graphical lasso."""
    with TemporaryDirectory() as folder:
        version, seconds = _run_r(Path(folder), "mice", table, table.X, seed)
        X = _matrices(Path(folder) / "filled.bin", *table.X.shape)[0]
    found = lasso_of_rows(normal_scores(X))
    return found._replace(version=version, seconds=float(seconds))


def spearman(table, seed):
    """Turn Spearman correlations of pairs into normal ones; graphical lasso."""
    observed = (~np.isnan(table.X)).astype(float)
    ranks = table.frame.corr("spearman", min_periods=3).fillna(0).to_numpy()
    correlation = 2 * np.sin(np.pi / 6 * ranks)
    np.fill_diagonal(correlation, 1)
    n = float((observed.T @ observed)[np.triu_indices(len(ranks), 1)].mean())
    return lasso(_definite(correlation), n)


def huge(table, seed):
    """Learn by R's huge from the filled codes, by nonparanormal scores."""
    return _graph_of_r("huge", table, filled_codes(table), seed)


def bdgraph(table, seed):
    """Learn by R's BDgraph: a Bayesian copula graph, which takes missing cells."""
    found = _graph_of_r("BDgraph", table, table.X, seed)
    shares = found.path[0]
    levels = np.linspace(0.99, 0.01, N_ALPHAS)
    return found._replace(path=np.array([shares * (shares > one) for one in levels]))


def filled_codes(table):
    """Fill numbers by means and codes by the most frequent ones."""
    X = table.frame
    middle = np.where(table.levels, X.mode().iloc[0], X.mean())
    return np.where(X.isna(), middle, X)


def normal_scores(X):
    """Map the ranks of the observed cells to normal scores; equal cells stay equal."""
    frame = pd.DataFrame(X)
    return ndtri((frame.rank() - 0.5) / frame.notna().sum()).to_numpy()


def lasso_of_rows(Z):
    """Solve the path of complete rows, and choose by cross-validation and EBIC."""
    varies = Z.std(0) > 0
    scale = np.where(varies, Z.std(0), 1.0)
    Z = (Z - Z.mean(0)) / scale
    found = lasso(Z.T @ Z / len(Z) + np.diag(~varies), len(Z))
    chosen = np.zeros(2 * Z.shape[1:], dtype=bool)
    precision = GraphicalLassoCV().fit(Z[:, varies]).precision_
    chosen[np.ix_(varies, varies)] = precision != 0
    np.fill_diagonal(chosen, False)
    return found._replace(chosen=found.chosen | {"CV": chosen})


def lasso(correlation, n):
    """Solve a path of penalties, and choose by the extended BIC of refitted edges."""
    d = len(correlation)
    off = 1 - np.eye(d)
    top = np.abs(correlation * off).max()
    found, precision = [], np.eye(d)
    for alpha in np.geomspace(top, top / RATIO, N_ALPHAS):
        precision = _solved(correlation, precision, alpha * off)
        found.append(precision)
    edges = [(one != 0) & (off > 0) for one in found]
    criteria = np.array([_criteria(correlation, n, e) for e in edges])
    chosen = {
        f"ebic {gamma:g}": edges[k]
        for gamma, k in zip(GAMMAS, criteria.argmin(0), strict=True)
    }
    roots = [np.sqrt(np.diag(one)) for one in found]
    path = [
        np.abs(one) / np.outer(r, r) * off for one, r in zip(found, roots, strict=True)
    ]
    return Found(np.array(path), chosen)


def _solved(correlation, start, weight, tol=1e-4):
    parts = (torch.from_numpy(part) for part in (correlation, start, weight))
    blocks = Blocks.of(torch.ones(len(correlation), dtype=torch.long))
    found = graphical_lasso.solve(*parts, blocks, tol=tol * len(correlation))
    return found.precision.numpy()


def _criteria(correlation, n, edges):
    """Compute the extended BIC for each gamma; too dense a graph has none."""
    d = len(correlation)
    if edges.sum() / d > n / ROWS_A_NEIGHBOUR:
        return [inf] * len(GAMMAS)
    weight = np.where(edges | np.eye(d, dtype=bool), 0.0, inf)
    precision = _solved(correlation, np.eye(d), weight, tol=0.1 / (n * d))
    loss = (correlation * precision).sum() - np.linalg.slogdet(precision)[1]
    price = [np.log(n) + 4 * gamma * np.log(d) for gamma in GAMMAS]
    return [n * loss + edges.sum() / 2 * one for one in price]


def _definite(correlation):
    """Clip the eigenvalues of a matrix, and scale its diagonal to 1."""
    values, vectors = np.linalg.eigh(correlation)
    clipped = (vectors * values.clip(_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(clipped))
    return clipped / np.outer(scale, scale)


def _graph_of_r(method, table, X, seed):
    """Run R, and read its path and its chosen graphs."""
    d = X.shape[1]
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        version, seconds = _run_r(folder, method, table, X, seed)
        path = _matrices(folder / "path.bin", d, d)
        rules = (folder / "rules.txt").read_text().split()
        chosen = dict(zip(rules, _matrices(folder / "chosen.bin", d, d), strict=True))
    path = path * (1 - np.eye(d))
    chosen = {rule: (one != 0) & ~np.eye(d, dtype=bool) for rule, one in chosen.items()}
    return Found(path, chosen, float(seconds), version)


def _run_r(folder, method, table, X, seed):
    """Hand a table to R, and return the version and the seconds of CPU."""
    X.T.astype("<f8").tofile(folder / "table.bin")
    (folder / "shape.txt").write_text(" ".join(map(str, X.shape)))
    columns = zip(table.kinds, table.n_levels, strict=True)
    (folder / "columns.txt").write_text("\n".join(f"{k} {n}" for k, n in columns))
    run_r(str(_SCRIPT), str(folder), method, str(seed))
    return (folder / "notes.txt").read_text().splitlines()


def _matrices(file, rows, columns):
    """Read matrices that R wrote column by column."""
    return np.fromfile(file, "<f8").reshape(-1, columns, rows).transpose(0, 2, 1)


@cache
def _in_r(package):
    """Say whether R has a package."""
    ask = f"quit(status = !requireNamespace('{package}', quietly = TRUE))"
    asked = ["Rscript", "-e", ask]
    if which("Rscript") is None:
        return False
    return not run(asked, capture_output=True, check=False).returncode


METHODS = {
    OURS: copula,
    TRUNCATED: truncated,
    "filled, graphical lasso": filled,
    "normal scores, graphical lasso": scored,
    "mice, graphical lasso": by_mice,
    "Spearman of pairs, graphical lasso": spearman,
    "huge": huge,
    "BDgraph": bdgraph,
}
NEEDS = {"mice, graphical lasso": "mice", "huge": "huge", "BDgraph": "BDgraph"}


def lacking(methods):
    """Return the methods whose packages R lacks."""
    return [name for name in methods if name in NEEDS and not _in_r(NEEDS[name])]
