"""Recovery of simulated graphs from incomplete tables, beside simpler ways.

    python benchmarks/graph_recovery.py [--sets 10] [--missing 0 0.3 0.5]
        [--graphs ring hub ring-mixed thesis] [--n-jobs 2] [--without NAME ...]
        [--output doc/benchmarks/graph_recovery.md]

Edges are ranked by |K_ij| (or the absolute marginal or partial correlation); the score
is the area under the ROC curve over all pairs.  Every method sees the same tables, and
each fit has one thread.
"""

import argparse
import time
import warnings
from collections import defaultdict
from typing import NamedTuple

import numpy as np
from _report import made_by, publish, table
from graph_simulation import GRAPHS, simulate
from joblib import Parallel, delayed
from sklearn.covariance import GraphicalLassoCV
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skvnce import TruncatedGaussianGraphLearner
from skvnce.metrics import edge_auc


class Estimate(NamedTuple):
    """A matrix that ranks the pairs; K and b where the method estimates them."""

    strengths: np.ndarray
    precision: np.ndarray | None = None
    linear: np.ndarray | None = None


class Method(NamedTuple):
    """A way to learn a graph from a table with holes.

    ``fit`` maps (X, seed) to an Estimate.  ``linear`` says whether b is fitted, None
    where the method has no b: it then stands in both tables.
    """

    name: str
    fit: callable
    linear: bool | None = None
    ours: bool = False


class Result(NamedTuple):
    """What one fit gave."""

    auc: float
    seconds: float
    warned: bool
    linear_mse: float
    diagonal_mse: float


class Goal(NamedTuple):
    """A number that the better of our two methods should reach, as a median."""

    graph: str
    missing: float
    measure: str
    linear: bool
    bound: float

    def met(self, value):
        """Tell whether the value is on the right side of the bound."""
        return value >= self.bound if self.measure == "auc" else value < self.bound


GOALS = [
    *(
        Goal("ring", m, "auc", False, a)
        for m, a in ((0, 0.98), (0.3, 0.92), (0.5, 0.81))
    ),
    *(
        Goal("hub", m, "auc", False, a)
        for m, a in ((0, 0.78), (0.3, 0.65), (0.5, 0.59))
    ),
    Goal("ring-mixed", 0.5, "auc", False, 0.95),
    Goal("thesis", 0.5, "auc", True, 1.0),
    Goal("thesis", 0.5, "linear_mse", True, 0.3),
    Goal("thesis", 0.5, "diagonal_mse", True, 0.03),
]
MEASURES = {"auc": "AUC", "linear_mse": "MSE of b", "diagonal_mse": "MSE of diag K"}


def learner(linear, method="score-matching", imputer=None):
    """Fit our learner without an L1 penalty, after an imputer if one is given."""

    def fit(X, seed):
        X = X if imputer is None else imputer(seed).fit_transform(X)
        model = TruncatedGaussianGraphLearner(
            alpha=0, method=method, fit_linear=linear, random_state=seed
        ).fit(X)
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


METHODS = [
    Method("skvnce score-matching", learner(False), False, ours=True),
    Method("skvnce vnce", learner(False, "vnce"), False, ours=True),
    Method("mean-filled score matching", learner(False, imputer=mean_imputer), False),
    Method("skvnce score-matching", learner(True), True, ours=True),
    Method("skvnce vnce", learner(True, "vnce"), True, ours=True),
    Method("mean-filled score matching", learner(True, imputer=mean_imputer), True),
    Method(
        "IterativeImputer + score m.", learner(True, imputer=iterative_imputer), True
    ),
    Method("mean-filled GraphicalLassoCV", graphical_lasso),
    Method("mean-filled partial corr.", partial_correlation),
    Method("mean-filled marginal corr.", marginal_correlation),
]


def evaluate(method, data, missing, seed):
    """Fit one method to one table, with one thread, and score it."""
    X = data.hide(missing)
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.process_time()
        found = method.fit(X, seed)
        seconds = time.process_time() - begin
    auc = edge_auc(data.precision, np.abs(found.strengths))
    if found.linear is None:
        return Result(auc, seconds, bool(caught), np.nan, np.nan)
    linear = np.mean((found.linear - data.linear) ** 2)
    diagonal = np.mean((np.diag(found.precision) - np.diag(data.precision)) ** 2)
    return Result(auc, seconds, bool(caught), linear, diagonal)


def one_set(graph, seed, rates, without):
    """Run the methods on one data set; {(graph, missing, place in METHODS): Result}."""
    data = simulate(graph, seed)
    return {
        (graph, missing, place): evaluate(method, data, missing, seed)
        for missing in rates
        for place, method in enumerate(METHODS)
        if method.name not in without
        if graph != "thesis" or method.linear is not False
    }


def run(options):
    """Run all sets; {key: list of Result, one a set}."""
    jobs = [(graph, seed) for graph in options.graphs for seed in range(options.sets)]
    shared = options.missing, options.without
    parallel = Parallel(options.n_jobs, backend="loky", verbose=10)
    results = defaultdict(list)
    for found in parallel(delayed(one_set)(*job, *shared) for job in jobs):
        for key, result in found.items():
            results[key].append(result)
    return results


def quantiles(results, measure, digits=3):
    """Write the median and the quartiles."""
    low, median, high = np.quantile(
        [getattr(r, measure) for r in results], [0.25, 0.5, 0.75]
    )
    return f"{median:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def median(results, measure):
    """Take the median over the sets."""
    return float(np.median([getattr(r, measure) for r in results]))


def recovery_table(results, options, linear):
    """Tabulate the AUC of the methods which fit b, or do not."""
    rates = options.missing
    header = ["graph", "method", *(f"{m:.0%} missing" for m in rates)]
    header += ["sets", "CPU s (" + ", ".join(f"{m:.0%}" for m in rates) + ")", "warned"]
    rows = []
    for graph in options.graphs:
        for place, method in enumerate(METHODS):
            cells = [results.get((graph, m, place)) for m in rates]
            if method.linear in (linear, None) and all(cells):
                rows.append([graph, method.name, *recovery_cells(cells)])
    return table(header, only_if_ours(rows))


def recovery_cells(cells):
    """Write the scores, the number of sets, the seconds and the fits that warned."""
    seconds = ", ".join(f"{median(c, 'seconds'):.2g}" for c in cells)
    warned = sum(r.warned for c in cells for r in c)
    scores = [quantiles(c, "auc") for c in cells]
    return [*scores, len(cells[0]), seconds, f"{warned} of {sum(map(len, cells))}"]


def only_if_ours(rows):
    """Leave out graphs of which the table has none of our methods."""
    ours = {row[0] for row in rows if row[1].startswith("skvnce")}
    return [row for row in rows if row[0] in ours]


def parameter_table(results, options):
    """Tabulate the errors of b and of the diagonal of K on the thesis graph."""
    header = ["method", "missing", "MSE of b", "MSE of diag K"]
    rows = []
    for place, method in enumerate(METHODS):
        for missing in options.missing:
            cell = results.get(("thesis", missing, place))
            if method.linear and cell:
                errors = [quantiles(cell, m) for m in ("linear_mse", "diagonal_mse")]
                rows.append([method.name, f"{missing:.0%}", *errors])
    return table(header, rows)


def goal_table(results):
    """Compare the better of our two methods with each goal that was measured."""
    header = ["graph", "missing", "b", "measure", "goal", "measured", "by", ""]
    rows = []
    for goal in GOALS:
        found = [
            (
                median(results[goal.graph, goal.missing, place], goal.measure),
                method.name,
            )
            for place, method in enumerate(METHODS)
            if method.ours
            and method.linear is goal.linear
            and (goal.graph, goal.missing, place) in results
        ]
        if found:
            value, name = (max if goal.measure == "auc" else min)(found)
            sign = ">=" if goal.measure == "auc" else "<"
            rows.append(
                [goal.graph, f"{goal.missing:.0%}", "fitted" if goal.linear else "0"]
                + [
                    MEASURES[goal.measure],
                    f"{sign} {goal.bound:g}",
                    f"{value:.4f}",
                    name,
                ]
                + ["met" if goal.met(value) else "**missed**"]
            )
    return table(header, rows)


def rival_table(results, options):
    """Set the best of ours beside the best of the others, by the median AUC."""
    header = ["graph", "missing", "b", "best of ours", "best of the others"]
    header += ["sets ahead, level, behind", ""]
    rows = [
        [graph, f"{missing:.0%}", "fitted" if linear else "0", *verdict(*best)]
        for graph in options.graphs
        for linear in (False, True)
        for missing in options.missing
        if (best := best_two(results, graph, missing, linear))
    ]
    return table(header, rows)


def best_two(results, graph, missing, linear):
    """Find the best of ours and of the others, (median AUC, name, list of Result)."""
    found = {True: [], False: []}
    for place, method in enumerate(METHODS):
        cell = results.get((graph, missing, place))
        if cell and method.linear in (linear, None):
            found[method.ours].append((median(cell, "auc"), method.name, cell))
    return [max(best) for best in found.values()] if all(found.values()) else None


def verdict(ours, theirs):
    """Compare the medians, and set by set."""
    sign = np.sign([a.auc - b.auc for a, b in zip(ours[2], theirs[2], strict=True)])
    sets = ", ".join(str(np.count_nonzero(sign == s)) for s in (1, 0, -1))
    word = {1: "ahead", 0: "level", -1: "**behind**"}[np.sign(ours[0] - theirs[0])]
    return *(f"{value:.3f} {name}" for value, name, _ in (ours, theirs)), sets, word


def report(results, options):
    """Write all tables."""
    seeds = f"Seeds 0 to {options.sets - 1}." if options.sets > 1 else "Seed 0."
    cells = "Cells: median [quartiles] over the sets; n = 1000 rows, MCAR masks."
    parts = [
        "# Recovery of simulated graphs",
        made_by("graph_recovery.py", f"{seeds} One thread a fit; CPU seconds."),
        f"{cells} AUC of |K| over the pairs. `warned`: fits that gave a warning. Ours "
        "have alpha = 0: the automatic ridge is the only penalty.",
        "## As the paper has it (b = 0)",
        recovery_table(results, options, False),
        "## With b fitted on both sides",
        recovery_table(results, options, True),
    ]
    if "thesis" in options.graphs:
        parts += [
            "### Parameters of the thesis graph",
            parameter_table(results, options),
        ]
    parts += ["## Goals", goal_table(results)]
    parts += ["## Ahead of or behind simpler ways", rival_table(results, options)]
    return parts


def options_of(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ["ring", "hub", "ring-mixed", "thesis"]
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--graphs", nargs="+", default=default, choices=GRAPHS)
    parser.add_argument("--missing", nargs="+", type=float, default=[0.0, 0.3, 0.5])
    parser.add_argument("--n-jobs", type=int, default=2)
    names = sorted({method.name for method in METHODS})
    parser.add_argument("--without", nargs="+", default=[], choices=names)
    parser.add_argument("--output")
    parser.add_argument("--quick", action="store_true", help="one set, 30 % missing")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets, options.missing = 1, [0.3]
    return options


if __name__ == "__main__":
    options = options_of()
    publish(report(run(options), options), options.output)
