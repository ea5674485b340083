"""Recovery of simulated graphs from incomplete tables, beside simpler ways.

    python benchmarks/graph_recovery.py [--sets 10] [--missing 0 0.3 0.5]
        [--graphs ring hub ring-mixed hub-mixed thesis] [--methods NAME ...]
        [--without NAME ...] [--linear 0 fitted] [--n-jobs 2] [--only-report]
        [--results graph_recovery.jsonl] [--output doc/benchmarks/graph_recovery.md]

Edges are ranked by |K_ij| (or the absolute marginal or partial correlation); the score
is the area under the ROC curve over all pairs.  Every method sees the same tables, and
each fit has one thread.  With ``--results`` each fit is a line of that file; a run
makes those which the file lacks, and the report shows all that it has.
"""

import time
import warnings
from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from _report import Results, Texts, made_by, publish, table
from _runner import Some, options_of
from graph_simulation import GRAPHS, graph_learner, simulate
from joblib import Parallel, delayed
from sklearn.covariance import GraphicalLassoCV
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skvnce.metrics import edge_auc

TEXTS = Texts("graph_recovery", globals())


class Estimate(NamedTuple):
    """A matrix that ranks the pairs; K and b where the method estimates them."""

    strengths: np.ndarray
    precision: np.ndarray | None = None
    linear: np.ndarray | None = None


class Method(NamedTuple):
    """A way to learn a graph from a table with missing values.

    ``fit`` maps (X, seed) to an Estimate.  ``linear`` says whether b is fitted, None
    where the method has no b: it then stands in both tables.  ``ours`` are the methods
    that account for missing values, not the imputed baselines.  ``thesis`` marks what
    only the thesis compares with.
    """

    name: str
    fit: callable
    linear: bool | None = None
    ours: bool = False
    thesis: bool = False

    @property
    def label(self):
        """Tell the two fits of a method apart."""
        return self.name + {None: "", False: ", b = 0", True: ", b fitted"}[self.linear]

    def fits(self, graph):
        """Tell whether to run it: b of the thesis is not zero."""
        return self.linear is not False if graph == "thesis" else not self.thesis


class Result(NamedTuple):
    """What one fit gave; ``ranking`` has 1 for each edge, 0 for each other pair."""

    auc: float
    seconds: float
    warned: list
    linear_mse: float
    diagonal_mse: float
    link_mse: float
    ranking: str


class Goal(NamedTuple):
    """A number that the best of our methods should reach, as a median."""

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
        for m, a in ((0, 0.98), (0.3, 0.93), (0.5, 0.86))
    ),
    *(
        Goal("hub", m, "auc", False, a)
        for m, a in ((0, 0.79), (0.3, 0.70), (0.5, 0.65))
    ),
    Goal("ring-mixed", 0.5, "auc", False, 0.95),
    Goal("thesis", 0.5, "auc", True, 1.0),
    Goal("thesis", 0.5, "linear_mse", True, 0.3),
    Goal("thesis", 0.5, "diagonal_mse", True, 0.03),
]
ERRORS = {
    "link_mse": "MSE of off-diagonal K",
    "diagonal_mse": "MSE of diag K",
    "linear_mse": "MSE of b",
}
MEASURES = {"auc": "AUC"} | ERRORS
FAILED = 0.75  # of the median AUC, below which a fit has failed


def learner(linear, algorithm="score-matching", imputer=None, **options):
    """Fit our learner without an L1 penalty, after an imputer if one is given."""

    def fit(X, seed):
        X = X if imputer is None else imputer(seed).fit_transform(X)
        model = graph_learner(
            alpha=0,
            algorithm=algorithm,
            fit_linear=linear,
            random_state=seed,
            **options,
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


OURS = (
    "score-matching",
    "maximum-likelihood",
    "pseudo-likelihood",
    "vnce",
    "vnce-cdi",
    "vnce-lognormal",
)
FREE = ", b free"  # of a name: without the automatic ridge on b
COSTLY = *(f"skvnce {name}" for name in OURS[2:]), f"skvnce vnce{FREE}"
FILLED = "mean-filled score matching"
ROUGH = tuple(("imputed-nce", filling) for filling in ("noise", "uniform", "zeros"))


def methods(linear):
    """List the methods that have a b, fitted or not."""
    yield from (
        Method(f"skvnce {name}", learner(linear, name), linear, ours=True)
        for name in OURS
    )
    fillings = [("imputed-score-matching", "mean"), ("imputed-score-matching", "zeros")]
    fillings += [("imputed-nce", "mean"), *(ROUGH if linear else ())]
    for name, filling in fillings:
        fit = learner(linear, name, imputation=filling)
        label = f"skvnce {name}, {filling}"
        yield Method(label, fit, linear, thesis=(name, filling) in ROUGH)
    yield Method(FILLED, learner(linear, imputer=mean_imputer), linear)


METHODS = [
    *methods(False),
    *methods(True),
    *(
        Method(f"skvnce {name}{FREE}", learner(True, name, ridge_linear=0), True)
        for name in ("score-matching", "maximum-likelihood", "vnce")
    ),
    Method(
        "IterativeImputer + score m.", learner(True, imputer=iterative_imputer), True
    ),
    Method("mean-filled GraphicalLassoCV", graphical_lasso),
    Method("mean-filled partial corr.", partial_correlation),
    Method("mean-filled marginal corr.", marginal_correlation),
]
NAMES = list(dict.fromkeys(method.name for method in METHODS))


def evaluate(method, data, missing, seed):
    """Fit one method to one table, with one thread, and score it."""
    X = data.hide(missing)
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.process_time()
        found = method.fit(X, seed)
        seconds = time.process_time() - begin
    strengths = np.abs(found.strengths)
    warned = sorted({str(w.message)[:60] for w in caught})
    auc = edge_auc(data.precision, strengths)
    rest = *errors(found, data), ranking(data.precision, strengths)
    return Result(float(auc), round(seconds, 4), warned, *rest)


def errors(found, data):
    """Compute the mean squared errors of b, and of K on and off the diagonal."""
    if found.linear is None:
        return None, None, None
    off = found.precision - data.precision
    below = off[np.tril_indices(len(off), -1)]
    parts = found.linear - data.linear, np.diag(off), below
    return tuple(float(np.mean(part**2)) for part in parts)


def ranking(truth, strengths):
    """Write which pairs are edges, the strongest first."""
    below = np.tril_indices(len(truth), -1)
    order = np.argsort(-strengths[below], kind="stable")
    return "".join("01"[int(edge)] for edge in (np.abs(truth[below]) > 1e-5)[order])


@lru_cache(maxsize=2)
def simulated(graph, seed):
    """Keep the last tables: all methods see the same."""
    return simulate(graph, seed)


def one_fit(graph, seed, missing, place):
    """Fit one method to one table."""
    return evaluate(METHODS[place], simulated(graph, seed), missing, seed)


class Store:
    """Results of fits, in a file of lines where one is named.

    ``cells`` maps (graph, missing, label of the method) to {seed: Result}.
    """

    def __init__(self, path=None):
        self.results, self.cells = Results(path), defaultdict(dict)
        for record in self.results.records:
            one = {name: record[name] for name in Result._fields if name in record}
            key = tuple(record[name] for name in ("graph", "missing", "method"))
            self.cells[key][record["seed"]] = Result(**one)

    def add(self, graph, seed, missing, label, result):
        """Keep one result."""
        self.cells[graph, missing, label][seed] = result
        key = {"graph": graph, "seed": seed, "missing": missing, "method": label}
        self.results.add(key | result._asdict())

    def cell(self, graph, missing, method):
        """Get {seed: Result}, empty where nothing was run."""
        return self.cells.get((graph, missing, method.label), {})

    def run(self, jobs, n_jobs=1):
        """Fit what is missing of (graph, seed, missing, place in METHODS)."""
        jobs = [job for job in jobs if not self._has(*job)]
        parallel = Parallel(n_jobs, backend="loky", return_as="generator")
        found = parallel(delayed(one_fit)(*job) for job in jobs)
        for (graph, seed, missing, place), result in zip(jobs, found, strict=True):
            self.add(graph, seed, missing, METHODS[place].label, result)
        return self

    def _has(self, graph, seed, missing, place):
        return seed in self.cell(graph, missing, METHODS[place])


def chosen(names, graph, linears=(False, True)):
    """Places in METHODS of those to run on a graph."""
    return [
        place
        for place, method in enumerate(METHODS)
        if method.name in names and method.fits(graph)
        if method.linear in (*linears, None)
    ]


def jobs_of(options):
    """List what the command line asks for, set by set."""
    names = set(options.methods) - set(options.without)
    linears = [linear == "fitted" for linear in options.linear]
    return [
        (graph, seed, missing, place)
        for seed in range(options.sets)
        for graph in options.graphs
        for missing in options.missing
        for place in chosen(names, graph, linears)
    ]


def values(cell, measure):
    """Take a measure of all sets."""
    return [getattr(result, measure) for result in cell.values()]


def quantiles(cell, measure, digits=3):
    """Write the median and the quartiles."""
    if not cell:
        return "-"
    low, middle, high = np.quantile(values(cell, measure), [0.25, 0.5, 0.75])
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def median(cell, measure):
    """Take the median over the sets."""
    return float(np.median(values(cell, measure)))


def recovery_table(store, options, linear):
    """Tabulate the AUC of the methods which fit b, or do not."""
    rates = options.missing
    listed = ", ".join(f"{m:.0%}" for m in rates)
    header = ["graph", "method", *(f"{m:.0%} missing" for m in rates)]
    header += [f"sets ({listed})", f"CPU s ({listed})", "warned"]
    rows = []
    for graph in options.graphs:
        for method in METHODS:
            cells = [store.cell(graph, m, method) for m in rates]
            if method.fits(graph) and method.linear in (linear, None) and any(cells):
                rows.append([graph, method.name, *recovery_cells(cells)])
    ours = {row[0] for row in rows if row[1].removeprefix("skvnce ") in OURS}
    return table(header, [row for row in rows if row[0] in ours])


def recovery_cells(cells):
    """Write the scores, the number of sets, the seconds and the fits that warned."""
    seconds = ", ".join(f"{median(c, 'seconds'):.2g}" if c else "-" for c in cells)
    warned = sum(bool(r.warned) for c in cells for r in c.values())
    scores = [quantiles(c, "auc") for c in cells]
    sets = ", ".join(str(len(c)) for c in cells)
    return [*scores, sets, seconds, f"{warned} of {sum(map(len, cells))}"]


def error_table(store, options):
    """Tabulate the errors of K and b on the ring and on the graph of the thesis."""
    header = ["graph", "b", "missing", "method", *ERRORS.values(), "sets"]
    rows = []
    for graph in sorted({"ring", "thesis"} & set(options.graphs)):
        for linear in (False, True):
            for missing in options.missing:
                rows += error_rows(store, graph, missing, linear)
    return table(header, rows)


def error_rows(store, graph, missing, linear):
    """Write the errors of the methods in one setting."""
    for method in METHODS:
        cell = store.cell(graph, missing, method)
        if method.linear is linear and cell and method.fits(graph):
            found = [quantiles(cell, e) for e in ("link_mse", "diagonal_mse")]
            found.append(quantiles(cell, "linear_mse") if linear else "-")
            setting = [graph, "fitted" if linear else "0", f"{missing:.0%}"]
            yield [*setting, method.name, *found, len(cell)]


def goal_table(store):
    """Compare the best of our methods with each goal that was measured."""
    header = ["graph", "missing", "b", "measure", "goal", "measured", "by", "sets", ""]
    rows = []
    for goal in GOALS:
        cells = {
            method.name: cell
            for method in METHODS
            if method.ours and method.linear is goal.linear
            if (cell := store.cell(goal.graph, goal.missing, method))
        }
        if cells:
            rows.append(goal_row(goal, cells))
    return table(header, rows)


def goal_row(goal, cells):
    """Write a goal and what was measured, by the method with the most sets first."""
    most = max(map(len, cells.values()))
    found = [
        (median(cell, goal.measure), name)
        for name, cell in cells.items()
        if len(cell) == most
    ]
    auc = goal.measure == "auc"
    value, name = (max if auc else min)(found)
    setting = [goal.graph, f"{goal.missing:.0%}", "fitted" if goal.linear else "0"]
    measured = [f"{'>=' if auc else '<'} {goal.bound:g}", f"{value:.4f}", name, most]
    met = "met" if goal.met(value) else "**missed**"
    return [*setting, MEASURES[goal.measure], *measured, met]


def rival_table(store, options):
    """Set the best of ours beside the best of the others, by the median AUC."""
    header = ["graph", "missing", "b", "best of ours", "best of the others"]
    header += ["sets ahead, level, behind", ""]
    rows = [
        [graph, f"{missing:.0%}", "fitted" if linear else "0", *verdict(*best)]
        for graph in options.graphs
        for linear in (False, True)
        for missing in options.missing
        if (best := best_two(store, graph, missing, linear))
    ]
    return table(header, rows)


def best_two(store, graph, missing, linear):
    """Find the best of ours and of the others, (median AUC, name, cell).

    Only methods with as many sets as the best run ones take part.
    """
    found = {
        method: cell
        for method in METHODS
        if method.linear in (linear, None) and method.fits(graph)
        if (cell := store.cell(graph, missing, method))
    }
    most = max(map(len, found.values()), default=0)
    sides = [
        [
            (median(cell, "auc"), method.name, cell)
            for method, cell in found.items()
            if method.ours is ours and len(cell) == most
        ]
        for ours in (True, False)
    ]
    return [max(side, key=lambda one: one[:2]) for side in sides] if all(sides) else []


def verdict(ours, theirs):
    """Compare the medians, and set by set."""
    _, sets, word = against(ours[2], theirs[2])
    return *(f"{value:.3f} {name}" for value, name, _ in (ours, theirs)), sets, word


def against(ours, theirs):
    """Compare two cells on the sets that both have: medians, sets, a word."""
    both = sorted(ours.keys() & theirs.keys())
    a, b = ([cell[seed].auc for seed in both] for cell in (ours, theirs))
    sign = np.sign(np.subtract(a, b))
    sets = ", ".join(str(np.count_nonzero(sign == s)) for s in (1, 0, -1))
    medians = float(np.median(a)), float(np.median(b))
    words = {1: "ahead", 0: "level", -1: "**behind**"}
    return medians, sets, words[np.sign(round(medians[0] - medians[1], 9))]


def filling_table(store, options):
    """Set our methods with b fitted beside mean filling with b fitted."""
    header = ["method", "graph", "missing", "median", "mean-filled"]
    header += ["sets ahead, level, behind", ""]
    filled = next(m for m in METHODS if m.name == FILLED and m.linear)
    rows = []
    for method in METHODS:
        for graph in options.graphs:
            for missing in options.missing:
                ours = store.cell(graph, missing, method)
                theirs = store.cell(graph, missing, filled)
                if method.ours and method.linear and missing and ours and theirs:
                    medians, sets, word = against(ours, theirs)
                    shown = [f"{value:.3f}" for value in medians]
                    rows.append(
                        [method.name, graph, f"{missing:.0%}", *shown, sets, word]
                    )
    return table(header, rows)


def failure_table(store, options):
    """Count the sets at which a method failed, of ours, b = 0 or fitted."""
    header = ["method", "b", "missing", "graphs", "sets", "lowest AUC"]
    header += ["failed", "warned", "not finite or MSE of K above 10"]
    rows = []
    for method in METHODS:
        for missing in options.missing:
            cells = {
                graph: cell
                for graph in options.graphs
                if (cell := store.cell(graph, missing, method))
            }
            if method.ours and cells:
                b = "fitted" if method.linear else "0"
                rows.append([method.name, b, f"{missing:.0%}", *failure_cells(cells)])
    return table(header, rows)


def failure_cells(cells):
    """Count failures over graphs; each set is held against the median of its graph."""
    low = {g: min((r.auc, seed) for seed, r in c.items()) for g, c in cells.items()}
    worst = ", ".join(f"{g} {auc:.3f} (set {seed})" for g, (auc, seed) in low.items())
    failed = sum(
        r.auc < FAILED * median(c, "auc") for c in cells.values() for r in c.values()
    )
    results = [r for c in cells.values() for r in c.values()]
    warned = sum(bool(r.warned) for r in results)
    wild = sum(not r.link_mse + r.diagonal_mse < 10 for r in results)
    sets = ", ".join(str(len(c)) for c in cells.values())
    return [", ".join(cells), sets, worst, failed, warned, wild]


def warning_list(store, options):
    """List what the warnings said, and how often."""
    count = defaultdict(int)
    for (graph, missing, label), cell in store.cells.items():
        if graph in options.graphs and missing in options.missing:
            for result in cell.values():
                for message in result.warned:
                    count[label, " ".join(message.split())] += 1
    rows = [[*key, n] for key, n in sorted(count.items())]
    return table(["method", "warning begins", "fits"], rows) if rows else "None."


def absent_table(store, options):
    """List where a method has fewer sets than were asked for."""
    rows = []
    for method in METHODS:
        for graph in filter(method.fits, options.graphs):
            sets = [len(store.cell(graph, m, method)) for m in options.missing]
            if min(sets) < options.sets:
                b = {None: "", False: "0", True: "fitted"}[method.linear]
                rows.append([method.name, b, graph, *(options.sets - n for n in sets)])
    header = ["method", "b", "graph", *(f"{m:.0%} missing" for m in options.missing)]
    return table(header, rows) if rows else "None."


def report(store, options):
    """Write all tables."""
    parts = [
        "# Recovery of simulated graphs",
        made_by("graph_recovery.py", "One thread a fit; CPU seconds."),
        TEXTS("Cells: median [quartiles]"),
        "## Goals",
        "The best of our methods (those that account for missing values), among those "
        "with the most sets.",
        goal_table(store),
        "## No method below mean filling, with b fitted?",
        TEXTS("Each method against score"),
        filling_table(store, options),
        "## Failed sets",
        f"A set has failed where the AUC is below {FAILED:g} of its graph's median.",
        failure_table(store, options),
        "## As the paper has it (b = 0)",
        recovery_table(store, options, False),
        "## With b fitted on both sides",
        recovery_table(store, options, True),
        "## Errors of K and b",
        "MSE of b is left out where b is fixed at its true value 0.",
        error_table(store, options),
        "## Ahead of or behind simpler ways",
        "Only methods with the most sets of a setting take part.",
        rival_table(store, options),
        "## Warnings",
        warning_list(store, options),
        "## Sets not run",
        TEXTS("How many of sets each", options=options),
        absent_table(store, options),
    ]
    return parts


def main():
    """Run and report."""
    quick = {"sets": 1, "missing": [0.3], "graphs": ["ring", "hub", "thesis"]}
    options = options_of(
        __doc__,
        quick | {"without": COSTLY},
        sets=10,
        graphs=[*GRAPHS],
        missing=[0.0, 0.3, 0.5],
        methods=NAMES,
        without=Some([], NAMES),
        linear=["0", "fitted"],
        n_jobs=1,
        results=None,
        only_report=False,
    )
    store = Store(options.results)
    if not options.only_report:
        store.run(jobs_of(options), options.n_jobs)
    elif not store.cells:
        raise SystemExit(f"There are no results in {options.results}.")
    publish(report(store, options), options.output)


if __name__ == "__main__":
    main()
