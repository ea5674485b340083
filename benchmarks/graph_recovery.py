"""Recovery of simulated graphs from incomplete tables, beside simpler ways.

    python benchmarks/graph_recovery.py [--results FILE] [--only-report] [--quick]
        [--only graph=thesis missing=0.5 seed=0] [--output FILE]

Figure 5 of Rhodes and Gutmann (2019) and figures 5.2 to 5.4 of Rhodes (2018).  Edges
are ranked by |K_ij| (or the absolute marginal or partial correlation); the score is the
area under the ROC curve over all pairs.  Every method sees the same tables, and each
fit has one thread.  All fits take days: choose some by ``--only``.  With ``--results``
each fit is a line of that file; a run makes those which the file lacks, and the report
shows all that it has.  Pseudo-likelihood, and methods of tables that are imputed once,
have results but are not run any more: commit 7886ee75 is the last that does.
"""

import time
import warnings
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from _paper import along, medians
from _runner import main_of
from graph_simulation import GRAPHS, simulate
from sklearn.covariance import GraphicalLassoCV
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler

from skvnce import TruncatedGaussianGraphLearner
from skvnce.metrics import edge_auc


class Estimate(NamedTuple):
    """A matrix that ranks the pairs; K and b where the method estimates them."""

    strengths: np.ndarray
    precision: np.ndarray | None = None
    linear: np.ndarray | None = None


def learner(linear, algorithm="score-matching", imputer=None, **options):
    """Fit our learner without an L1 penalty, after an imputer if one is given."""

    def fit(X, seed):
        X = X if imputer is None else imputer(seed).fit_transform(X)
        fixed = {"algorithm": algorithm, "fit_linear": linear, "random_state": seed}
        model = TruncatedGaussianGraphLearner(alpha=0, **fixed, **options).fit(X)
        return Estimate(model.precision_, model.precision_, model.linear_)

    return fit


def mean_filled(X):
    """Fill with column means and standardise."""
    return StandardScaler().fit_transform(SimpleImputer().fit_transform(X))


def graphical_lasso(X, seed):
    """Fit scikit-learn's graphical lasso, its penalty cross-validated."""
    return Estimate(GraphicalLassoCV().fit(mean_filled(X)).precision_)


def partial_correlation(X, seed):
    """Invert the correlation matrix."""
    K = np.linalg.pinv(np.corrcoef(mean_filled(X).T))
    return Estimate(K / np.sqrt(np.outer(np.diag(K), np.diag(K))))


def marginal_correlation(X, seed):
    """Correlate pairs, whatever the other columns say."""
    return Estimate(np.corrcoef(mean_filled(X).T))


def mean_imputer(seed):
    """Fill with column means."""
    return SimpleImputer()


def iterative_imputer(seed):
    """Fill by chained regressions, not below zero."""
    return IterativeImputer(min_value=0, random_state=seed)


COSTLY = "vnce", "vnce-cdi", "vnce-lognormal"
OURS = "score-matching", "maximum-likelihood", *COSTLY
B = {False: ", b = 0", True: ", b fitted"}


def methods(linear):
    """Make the methods that have a b, fitted or not, by name."""
    found = {f"skvnce {name}": learner(linear, name) for name in OURS}
    found["mean-filled score matching"] = learner(linear, imputer=mean_imputer)
    if linear:
        for name in ("score-matching", "maximum-likelihood", "vnce"):
            free = learner(True, name, ridge_linear=0)  # no automatic ridge on b
            found[f"skvnce {name}, b free"] = free
        found["IterativeImputer + score m."] = learner(True, imputer=iterative_imputer)
    return {name + B[linear]: fit for name, fit in found.items()}


METHODS = {
    **methods(False),
    **methods(True),
    "mean-filled GraphicalLassoCV": graphical_lasso,
    "mean-filled partial corr.": partial_correlation,
    "mean-filled marginal corr.": marginal_correlation,
}


def possible(key):
    """Say that b of the thesis, whose shares reach 90 %, is not zero."""
    if key["graph"] == "thesis":
        return B[False] not in key["method"]
    return key["missing"] <= 0.5


@lru_cache(maxsize=2)
def simulated(graph, seed):
    """Keep the last tables: all methods see the same."""
    return simulate(graph, seed)


def measured(key, options):
    """Fit one method to one table, and score it.

    ``ranking`` says of the pairs, the strongest first, which are edges.
    """
    data = simulated(key["graph"], key["seed"])
    X = data.hide(key["missing"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.process_time()
        found = METHODS[key["method"]](X, key["seed"])
        seconds = time.process_time() - begin
    strengths, below = np.abs(found.strengths), np.tril_indices(len(data.precision), -1)
    order = np.argsort(-strengths[below], kind="stable")
    edges = np.abs(data.precision[below][order]) > 1e-5
    return {
        "auc": float(edge_auc(data.precision, strengths)),
        "seconds": round(seconds, 4),
        "warned": sorted({str(w.message)[:60] for w in caught}),
        **errors(found, data),
        "ranking": "".join("01"[int(edge)] for edge in edges),
    }


ERRORS = {
    "linear_mse": "MSE of b",
    "diagonal_mse": "MSE of diag K",
    "link_mse": "MSE of off-diagonal K",
}


def errors(found, data):
    """Compute the mean squared errors of b, and of K on and off the diagonal."""
    if found.linear is None:
        return dict.fromkeys(ERRORS)
    off = found.precision - data.precision
    parts = {
        "linear_mse": found.linear - data.linear,
        "diagonal_mse": np.diag(off),
        "link_mse": off[np.tril_indices(len(off), -1)],
    }
    return {name: float(np.mean(part**2)) for name, part in parts.items()}


def curve(record, at):
    """Return the share of edges found where so many other pairs are taken for edges."""
    edge = np.array(list(record["ranking"])) == "1"
    hits = np.append(0, np.cumsum(edge)) / edge.sum()
    false = np.append(0, np.cumsum(~edge)) / (~edge).sum()
    return [hits[np.searchsorted(false, at + 1e-9, side="right") - 1]]


def values(results, options):
    """Make medians of all scores, and ROC curves."""
    keys = "graph", "missing", "method"
    scores = {"auc": "AUC of edges", **ERRORS, "seconds": "CPU s"}
    return {
        "scores": medians(results.records, keys, scores),
        "curves": along(results.records, keys, (0, 0.1, 0.2, 0.3, 0.5, 0.7), curve),
    }


RATES = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
CASES = {"seed": range(10), "graph": GRAPHS, "missing": RATES, "method": METHODS}
CHEAP = [m for m in METHODS if not any(f"skvnce {name}" in m for name in COSTLY)]
QUICK = {"graph": ["ring", "hub", "thesis"], "method": CHEAP}
main = main_of(globals(), {"seed": [0], "missing": [0.3], **QUICK})
