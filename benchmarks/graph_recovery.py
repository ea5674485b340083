"""Recovery of simulated graphs from incomplete tables, beside simpler ways.

    python benchmarks/graph_recovery.py [--sets 10] [--missing 0 0.3 0.5]
        [--graphs ring hub ring-mixed hub-mixed thesis] [--methods NAME ...]
        [--without NAME ...] [--linear 0 fitted] [--only-report]
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
from itertools import chain, product
from typing import NamedTuple

import numpy as np
from _report import Texts, made_by, met, specs, table
from _runner import Some, carry_out
from graph_simulation import GRAPHS, graph_learner, simulate
from sklearn.covariance import GraphicalLassoCV
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler

from skvnce.metrics import edge_auc

TEXTS, SPECS = Texts("graph_recovery", globals()), specs("graph_recovery")


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


GOALS, MEASURES = SPECS["goals"], SPECS["measures"]
ERRORS = {name: text for name, text in MEASURES.items() if name != "auc"}
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
    *("score-matching", "maximum-likelihood", "pseudo-likelihood"),
    *("vnce", "vnce-cdi", "vnce-lognormal"),
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
BY_LABEL = {method.label: method for method in METHODS}


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
        found = BY_LABEL[key["method"]].fit(X, key["seed"])
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


class Fits:
    """Records of fits: {seed: record} of each graph, share missing and method."""

    def __init__(self, results):
        self.cells = defaultdict(dict)
        for r in results.records:
            self.cells[r["graph"], r["missing"], r["method"]][r["seed"]] = r

    def cell(self, graph, missing, method):
        """Get {seed: record}, empty where nothing was run."""
        return self.cells.get((graph, missing, method.label), {})

    def there(self, graph, missing, methods):
        """Return the cells of methods that have results: {method: cell}."""
        cells = {method: self.cell(graph, missing, method) for method in methods}
        return {method: cell for method, cell in cells.items() if cell}


def chosen(names, graph, linears=(False, True)):
    """List the methods to run on a graph."""
    return [
        method
        for method in METHODS
        if method.name in names and method.fits(graph)
        if method.linear in (*linears, None)
    ]


def cells(options):
    """List what the command line asks for, set by set."""
    names = set(options.methods) - set(options.without)
    linears = [linear == "fitted" for linear in options.linear]
    ways = product(range(options.sets), options.graphs, options.missing)
    for seed, graph, missing in ways:
        key = {"graph": graph, "seed": seed, "missing": missing}
        for method in chosen(names, graph, linears):
            yield key | {"method": method.label}


def values(cell, measure):
    """Take a measure of all sets."""
    return [record[measure] for record in cell.values()]


def quantiles(cell, measure, digits=3):
    """Write the median and the quartiles."""
    if not cell:
        return "-"
    low, middle, high = np.quantile(values(cell, measure), [0.25, 0.5, 0.75])
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def median(cell, measure):
    """Take the median over the sets."""
    return float(np.median(values(cell, measure)))


def b_of(linear):
    """Write how b is fitted."""
    return {None: "", False: "0", True: "fitted"}[linear]


def recovery_table(fits, options, linear):
    """Tabulate the AUC of the methods which fit b, or do not."""
    rates = options.missing
    listed = ", ".join(f"{m:.0%}" for m in rates)
    header = ["graph", "method", *(f"{m:.0%} missing" for m in rates)]
    header += [f"sets ({listed})", f"CPU s ({listed})", "warned"]
    rows = []
    for graph, method in product(options.graphs, METHODS):
        cells = [fits.cell(graph, m, method) for m in rates]
        if method.fits(graph) and method.linear in (linear, None) and any(cells):
            rows.append([graph, method.name, *recovery_cells(cells)])
    ours = {row[0] for row in rows if row[1].removeprefix("skvnce ") in OURS}
    return table(header, [row for row in rows if row[0] in ours])


def recovery_cells(cells):
    """Write the scores, the number of sets, the seconds and the fits that warned."""
    seconds = ", ".join(f"{median(c, 'seconds'):.2g}" if c else "-" for c in cells)
    warned = sum(bool(r["warned"]) for c in cells for r in c.values())
    scores = [quantiles(c, "auc") for c in cells]
    sets = ", ".join(str(len(c)) for c in cells)
    return [*scores, sets, seconds, f"{warned} of {sum(map(len, cells))}"]


def error_table(fits, options):
    """Tabulate the errors of K and b on the ring and on the graph of the thesis."""
    graphs, rows = sorted({"ring", "thesis"} & set(options.graphs)), []
    for graph, linear, missing in product(graphs, (False, True), options.missing):
        setting = [graph, b_of(linear), f"{missing:.0%}"]
        methods = [m for m in METHODS if m.linear is linear and m.fits(graph)]
        for method, cell in fits.there(graph, missing, methods).items():
            found = [quantiles(cell, e) for e in ("link_mse", "diagonal_mse")]
            found.append(quantiles(cell, "linear_mse") if linear else "-")
            rows.append([*setting, method.name, *found, len(cell)])
    return table(["graph", "b", "missing", "method", *ERRORS.values(), "sets"], rows)


def goal_table(fits):
    """Compare the best of our methods with each goal that was measured.

    Of the methods with the most sets.
    """
    rows = []
    for graph, missing, measure, linear, bound in GOALS:
        ours = [m for m in METHODS if m.ours and m.linear is linear]
        there = fits.there(graph, missing, ours)
        if there:
            most = max(map(len, there.values()))
            found = [
                (median(cell, measure), method.name)
                for method, cell in there.items()
                if len(cell) == most
            ]
            is_auc = measure == "auc"
            value, name = (max if is_auc else min)(found)
            good = value >= bound if is_auc else value < bound
            goal = f"{'>=' if is_auc else '<'} {bound:g}"
            setting = [graph, f"{missing:.0%}", b_of(linear), MEASURES[measure], goal]
            rows.append([*setting, f"{value:.4f}", name, most, met(good)])
    header = ["graph", "missing", "b", "measure", "goal", "measured", "by", "sets", ""]
    return table(header, rows)


def rival_table(fits, options):
    """Set the best of ours beside the best of the others, by the median AUC."""
    rows = []
    for graph, linear, missing in product(
        options.graphs, (False, True), options.missing
    ):
        if best := best_two(fits, graph, missing, linear):
            _, sets, word = against(*(cell for *_, cell in best))
            shown = [f"{value:.3f} {name}" for value, name, _ in best]
            rows.append([graph, f"{missing:.0%}", b_of(linear), *shown, sets, word])
    header = ["graph", "missing", "b", "best of ours", "best of the others"]
    return table([*header, "sets ahead, level, behind", ""], rows)


def best_two(fits, graph, missing, linear):
    """Find the best of ours and of the others, (median AUC, name, cell).

    Only methods with as many sets as the best run ones take part.
    """
    methods = [m for m in METHODS if m.linear in (linear, None) and m.fits(graph)]
    there = fits.there(graph, missing, methods)
    most = max(map(len, there.values()), default=0)
    sides = [
        [
            (median(cell, "auc"), method.name, cell)
            for method, cell in there.items()
            if method.ours is ours and len(cell) == most
        ]
        for ours in (True, False)
    ]
    return [max(side, key=lambda one: one[:2]) for side in sides] if all(sides) else []


def against(ours, theirs):
    """Compare two cells on the sets that both have: medians, sets, a word."""
    both = sorted(ours.keys() & theirs.keys())
    a, b = ([cell[seed]["auc"] for seed in both] for cell in (ours, theirs))
    sign = np.sign(np.subtract(a, b))
    sets = ", ".join(str(np.count_nonzero(sign == s)) for s in (1, 0, -1))
    medians = float(np.median(a)), float(np.median(b))
    words = {1: "ahead", 0: "level", -1: "**behind**"}
    return medians, sets, words[np.sign(round(medians[0] - medians[1], 9))]


def filling_table(fits, options):
    """Set our methods with b fitted beside mean filling with b fitted."""
    filled = next(m for m in METHODS if m.name == FILLED and m.linear)
    methods, rows = [m for m in METHODS if m.ours and m.linear], []
    rates = [missing for missing in options.missing if missing]
    for method, graph, missing in product(methods, options.graphs, rates):
        ours, theirs = (fits.cell(graph, missing, m) for m in (method, filled))
        if ours and theirs:
            medians, sets, word = against(ours, theirs)
            shown = [f"{value:.3f}" for value in medians]
            rows.append([method.name, graph, f"{missing:.0%}", *shown, sets, word])
    header = ["method", "graph", "missing", "median", "mean-filled"]
    return table([*header, "sets ahead, level, behind", ""], rows)


def failure_table(fits, options):
    """Count the sets at which a method failed, of ours, b = 0 or fitted."""
    header = ["method", "b", "missing", "graphs", "sets", "lowest AUC"]
    header += ["failed", "warned", "not finite or MSE of K above 10"]
    rows = []
    for method, missing in product([m for m in METHODS if m.ours], options.missing):
        cells = {graph: fits.cell(graph, missing, method) for graph in options.graphs}
        cells = {graph: cell for graph, cell in cells.items() if cell}
        if cells:
            setting = [method.name, b_of(method.linear), f"{missing:.0%}"]
            rows.append([*setting, *failure_cells(cells)])
    return table(header, rows)


def failure_cells(cells):
    """Count failures over graphs; each set is held against the median of its graph."""
    low = {g: min((r["auc"], seed) for seed, r in c.items()) for g, c in cells.items()}
    worst = ", ".join(f"{g} {auc:.3f} (set {seed})" for g, (auc, seed) in low.items())
    failed = sum(
        auc < FAILED * median(c, "auc")
        for c in cells.values()
        for auc in values(c, "auc")
    )
    records = [r for c in cells.values() for r in c.values()]
    warned = sum(bool(r["warned"]) for r in records)
    wild = sum(not r["link_mse"] + r["diagonal_mse"] < 10 for r in records)
    sets = ", ".join(str(len(c)) for c in cells.values())
    return [", ".join(cells), sets, worst, failed, warned, wild]


def warning_list(fits, options):
    """List what the warnings said, and how often."""
    count = defaultdict(int)
    for (graph, missing, label), cell in fits.cells.items():
        if graph in options.graphs and missing in options.missing:
            for message in chain(*values(cell, "warned")):
                count[label, " ".join(message.split())] += 1
    rows = [[*key, n] for key, n in sorted(count.items())]
    return table(["method", "warning begins", "fits"], rows) if rows else "None."


def absent_table(fits, options):
    """List where a method has fewer sets than were asked for."""
    rows = []
    for method in METHODS:
        for graph in filter(method.fits, options.graphs):
            sets = [len(fits.cell(graph, m, method)) for m in options.missing]
            if min(sets) < options.sets:
                absent = [options.sets - n for n in sets]
                rows.append([method.name, b_of(method.linear), graph, *absent])
    header = ["method", "b", "graph", *(f"{m:.0%} missing" for m in options.missing)]
    return table(header, rows) if rows else "None."


def page(results, options):
    """Write all tables."""
    fits = Fits(results)
    return [
        "# Recovery of simulated graphs",
        made_by("graph_recovery.py", "One thread a fit; CPU seconds."),
        TEXTS("Cells: median [quartiles]"),
        "## Goals",
        "The best of our methods (those that account for missing values), among those "
        "with the most sets.",
        goal_table(fits),
        "## No method below mean filling, with b fitted?",
        TEXTS("Each method against score"),
        filling_table(fits, options),
        "## Failed sets",
        f"A set has failed where the AUC is below {FAILED:g} of its graph's median.",
        failure_table(fits, options),
        "## As the paper has it (b = 0)",
        recovery_table(fits, options, False),
        "## With b fitted on both sides",
        recovery_table(fits, options, True),
        "## Errors of K and b",
        "MSE of b is left out where b is fixed at its true value 0.",
        error_table(fits, options),
        "## Ahead of or behind simpler ways",
        "Only methods with the most sets of a setting take part.",
        rival_table(fits, options),
        "## Warnings",
        warning_list(fits, options),
        "## Sets not run",
        TEXTS("How many of sets each", options=options),
        absent_table(fits, options),
    ]


def main():
    """Run and report."""
    quick = {"sets": 1, "missing": [0.3], "graphs": ["ring", "hub", "thesis"]}
    carry_out(
        __doc__,
        cells,
        measured,
        page,
        quick | {"without": COSTLY},
        sets=10,
        graphs=[*GRAPHS],
        missing=[0.0, 0.3, 0.5],
        methods=NAMES,
        without=Some([], NAMES),
        linear=["0", "fitted"],
    )


if __name__ == "__main__":
    main()
