"""Which rule chooses a good graph from the path of L1 strengths.

    python benchmarks/graph_selection.py [--sets 10] [--quick]
        [--output doc/benchmarks/graph_selection.md]

Simulated graphs of `graph_simulation`, n = 1000.  F1 counts links found and right.  The
goal: F1 of the graph that EBIC chooses is within 10 % of the best on the same path.
"""

import time
import warnings

import numpy as np
from _report import Texts, made_by, publish, table
from _runner import options_of
from graph_simulation import simulate
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from skvnce import TruncatedGaussianGraphLearnerCV

TEXTS = Texts("graph_selection", globals())

GRAPHS, RATES = ("ring", "ring-mixed", "hub"), (0.0, 0.3)
RULES = {
    "EBIC, gamma 0": {},
    "EBIC, gamma 0.5": {"gamma": 0.5},
    "CV": {"selection": "cv"},
    "CV, one standard error": {"selection": "cv-1se"},
    "stability": {"selection": "stability"},
}
DEAR = ("CV", "CV, one standard error", "stability")
PROBABLE = "edge probability > 1/2"
GOAL = 0.9
VERDICT = TEXTS("verdict")


def f1(true, found):
    """Score links, as vectors of truth values over pairs."""
    return 2 * np.sum(true & found) / (true.sum() + found.sum())


def choose(rule, data, missing, seed):
    """Fit one rule: {name: (F1, F1 over the best of the path, links, seconds)}."""
    X, upper = data.hide(missing), np.triu_indices(len(data.precision), 1)
    true = np.abs(data.precision[upper]) > 1e-5
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # choices at the edge of the path
        begin = time.process_time()
        model = TruncatedGaussianGraphLearnerCV(random_state=seed, **RULES[rule]).fit(X)
        seconds = time.process_time() - begin
    best = max(f1(true, found[upper] != 0) for found in model.path_)
    links = {rule: model.precision_[upper] != 0}
    if rule == next(iter(RULES)):
        links[PROBABLE] = model.edge_probabilities_[upper] > 0.5
    return {
        name: (f1(true, found), f1(true, found) / best, found.sum(), seconds)
        for name, found in links.items()
    }


def one(graph, missing, seed, rules):
    """Run the rules on one data set."""
    data, found = simulate(graph, seed), {}
    for rule in rules:
        found.update(choose(rule, data, missing, seed))
    return (graph, missing), found


def run(options):
    """Run all; {(graph, missing): {rule: (sets, 4)}}."""
    cheap = [rule for rule in RULES if rule not in DEAR]
    jobs = [
        (graph, missing, seed, cheap if seed >= options.dear else list(RULES))
        for graph in GRAPHS
        for missing in RATES
        for seed in range(options.sets)
    ]
    found = {}
    for key, results in Parallel(options.n_jobs)(delayed(one)(*job) for job in jobs):
        for rule, result in results.items():
            found.setdefault(key, {}).setdefault(rule, []).append(result)
    return found


def report(found, options):
    """Write the tables."""
    header = ["graph", "missing", "rule", "sets", "F1", "F1 / best of the path"]
    header += ["links", "CPU s"]
    rows = []
    for (graph, missing), rules in found.items():
        for rule, results in rules.items():
            f, share, links, seconds = np.median(results, 0)
            cells = [f"{f:.2f}", f"{share:.2f}", f"{links:.0f}", f"{seconds:.1f}"]
            rows.append([graph, f"{missing:.0%}", rule, len(results), *cells])
    goals = []
    for (graph, missing), rules in found.items():
        share = np.median(rules[next(iter(RULES))], 0)[1]
        word = "met" if share >= GOAL else "**missed**"
        goals.append([graph, f"{missing:.0%}", f"{share:.2f}", word])
    return [
        "# Choosing the strength of the L1 penalty",
        made_by("graph_selection.py", f"Seeds 0 to {options.sets - 1}, medians."),
        TEXTS("d = 20, n ="),
        table(header, rows),
        f"Goal: F1 of EBIC (gamma 0, the default) at least {GOAL} of the path's best:",
        table(["graph", "missing", "measured", ""], goals),
        VERDICT,
    ]


def main():
    """Run and report."""
    quick = {"sets": 1, "dear": 0}
    options = options_of(__doc__, quick, sets=10, dear=3, n_jobs=1)
    publish(report(run(options), options), options.output)


if __name__ == "__main__":
    main()
