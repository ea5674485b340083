"""What limits `CopulaGraphLearnerCV` on the truncated normals of `copula_graph.py`.

    python benchmarks/copula_graph_limits.py [--sets 5] [--rows 40000] [--quick]
        [--output doc/benchmarks/copula_graph_limits.md]

The sets have the seeds 100, 101, ..., which `copula_graph.py` does not use.
"""

import argparse
import warnings
from math import log

import numpy as np
from _report import made_by, publish, table
from copula_graph_methods import copula_learner, of_learner
from copula_graph_scores import f1, ranked
from copula_graph_tables import drawn
from graph_simulation import draw, precision
from scipy.optimize import minimize
from scipy.special import expit, ndtri
from scipy.stats import norm, rankdata
from threadpoolctl import threadpool_limits

from skvnce import (
    CopulaGraphLearner,
    TruncatedGaussianGraphLearner,
    TruncatedGaussianGraphLearnerCV,
)
from skvnce.metrics import edge_auc

FIRST = 100  # seed
ROWS = 500, 1000, 2000, 5000, 10000, 40000
REPEATS = 10  # parts of the rows, at most
HOLES = ("none", 0.0), ("MCAR", 0.3), ("MCAR", 0.5)
COPULA, AUTO, FREE = "copula", "truncated, default", "truncated, b without a ridge"


def partial_correlations(Z):
    """Compute the absolute partial correlations of columns; zero on the diagonal."""
    K = np.linalg.inv(np.corrcoef(Z.T))
    scale = np.sqrt(np.diag(K))
    found = np.abs(K / np.outer(scale, scale))
    np.fill_diagonal(found, 0)
    return found


def growth(options):
    """Tabulate the AUC of partial correlations of complete rows, as rows grow."""
    counts = [n for n in ROWS if n <= options.rows]
    lines = []
    for kind in ("ring", "hub"):
        found = [
            of_rows(kind, FIRST + k, counts, options.rows) for k in range(options.sets)
        ]
        for name in ("values", "normal scores"):
            means = np.mean([one[name] for one in found], 0)
            lines.append([kind, name, *(f"{value:.3f}" for value in means)])
    return table(["graph", "of", *(f"n = {n}" for n in counts)], lines)


def of_rows(kind, seed, counts, n_rows):
    """Compute the AUC for each number of rows, of the values and their ranks."""
    K = precision(kind, np.random.default_rng(seed), 20)
    X = draw(K, np.zeros(20), n_rows, seed, n_sweeps=60)
    truth = (K != 0) & ~np.eye(20, dtype=bool)
    scores = ndtri((rankdata(X, axis=0) - 0.5) / n_rows)
    return {
        name: [
            np.mean(
                [
                    edge_auc(truth, partial_correlations(Z[k * n : (k + 1) * n]))
                    for k in range(min(REPEATS, n_rows // n))
                ]
            )
            for n in counts
        ]
        for name, Z in (("values", X), ("normal scores", scores))
    }


def learners(name, seed):
    """Build the truncated learners: of the default, and with a free b."""
    if name.startswith("copula"):
        return {}
    free = TruncatedGaussianGraphLearner(ridge_linear=0.0)
    return {
        AUTO: TruncatedGaussianGraphLearnerCV(random_state=seed),
        FREE: TruncatedGaussianGraphLearnerCV(free, random_state=seed),
    }


def prices(table, n):
    """Return what criteria charge for a parameter."""
    observed = (~np.isnan(table.X)).astype(float)
    pairs = (observed.T @ observed)[np.triu_indices(observed.shape[1], 1)].mean()
    return {
        "log n": log(n),
        "log n of pairs": log(pairs),
        "half of log n": log(n) / 2,
        "2 log log n": 2 * log(log(n)),
        "2 (AIC)": 2.0,
    }


def edge_scores(table, seed):
    """Return strengths of all pairs over their standard errors under independence."""
    model = CopulaGraphLearner(
        alpha=0.0, categorical_features=table.categories or None, random_state=seed
    ).fit(table.frame)
    known = len(table.X) * np.outer(model.information_, model.information_)
    scores = model.associations_ * np.sqrt(known)
    return scores[np.triu_indices(len(scores), 1)]


def probabilities(scores):
    """Fit a mixture of N(0, 1) and N(0, 1 + s^2); the probability of the second."""

    def log_parts(point):
        wide = norm.logpdf(scores, 0, np.sqrt(1 + np.exp(point[1])))
        share = expit(point[0])
        return np.log1p(-share) + norm.logpdf(scores), np.log(share) + wide

    def loss(point):
        share = expit(point[0])  # with a Beta(2, 2) prior
        return -np.logaddexp(*log_parts(point)).sum() - log(share * (1 - share))

    bounds = [(-8, 3), (-5, 6)]
    starts = [(a, b) for a in (-2, -0.5) for b in (0, 2)]
    fits = [minimize(loss, start, bounds=bounds) for start in starts]
    null, edge = log_parts(min(fits, key=lambda fit: fit.fun).x)
    return expit(edge - null)


def expected_f1(path, scores):
    """Return the place of the graph that is expected to have the best F1."""
    share, pairs = probabilities(scores), np.triu_indices(path.shape[1], 1)
    graphs = [graph[pairs] > 0 for graph in path]
    return int(
        np.argmax([share[one].sum() / (one.sum() + share.sum()) for one in graphs])
    )


def measured(name, hole, seed):
    """Return AUC of the learners, and the F1 of the graphs that the rules choose."""
    one = drawn(name, *hole, seed)
    learner, found, parameters = copula_learner(one, seed)
    criterion, log_n = learner.cv_results_["ebic"], log(len(one.X))
    chosen = {"best": max(f1(graph > 0, one.truth) for graph in found.path)}
    scores = edge_scores(one, seed)
    # underdispersed if holes take information that the deviance counts
    dispersion = min(np.median(scores**2) / norm.ppf(0.75) ** 2, 1.0)
    charged = {**prices(one, len(one.X)), "log n, dispersion": dispersion * log_n}
    places = {
        rule: (criterion + (price - log_n) * parameters).argmin()
        for rule, price in charged.items()
    }
    places["expected F1"] = expected_f1(found.path, scores)
    for rule, place in places.items():
        chosen[rule] = f1(found.path[place] > 0, one.truth)
    areas = {COPULA: edge_auc(one.truth, ranked(found.path))}
    for label, other in learners(name, seed).items():
        path = of_learner(other.fit(one.X), len(one.truth)).path
        areas[label] = edge_auc(one.truth, ranked(path))
    return areas, chosen


def averages(found):
    """Average dictionaries of numbers."""
    return {key: np.mean([one[key] for one in found]) for key in found[0]}


def comparisons(options):
    """Tabulate AUC, and F1 over the best of the path."""
    areas, shares = [], []
    for name in ("ring", "hub", "copula20", "copula100"):
        for hole in HOLES:
            sets = [measured(name, hole, FIRST + k) for k in range(options.sets)]
            auc, chosen = (averages(some) for some in zip(*sets, strict=True))
            cell = f"{name}, {hole[1]:.0%} {hole[0]}" if hole[1] else f"{name}, 0%"
            best = chosen.pop("best")
            values = [f"{value / best:.2f}" for value in chosen.values()]
            shares.append([cell, f"{best:.3f}", *values])
            if len(auc) > 1:
                areas.append([cell, *(f"{value:.3f}" for value in auc.values())])
            print(*shares[-1], auc, flush=True)
    return (
        table(["cell", COPULA, AUTO, FREE], areas),
        table(["cell", "best F1 of the path", *chosen], shares),
    )


def main():
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--rows", type=int, default=40000, help="most rows")
    parser.add_argument("--quick", action="store_true", help="one set, few rows")
    parser.add_argument("--output", help="file of the report")
    options = parser.parse_args()
    if options.quick:
        options.sets, options.rows = 1, 2000
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        grown = growth(options)
        areas, shares = comparisons(options)
    notes = f"Averages over {options.sets} sets, seeds from {FIRST}."
    head = made_by("copula_graph_limits.py", notes)
    parts = ["# Limits of copula graphs on truncated normals", head]
    parts += ["## AUC of complete rows, as rows grow", GROWTH, grown]
    parts += ["## What the mode tells", MODE, areas]
    publish([*parts, "## The price of an edge", PRICE, shares], options.output)


GROWTH = """\
Pairs are ranked by their partial correlations, of the values or of their normal scores,
without a penalty. With enough rows all edges stand out: a copula loses no edge of the
truncated normals in principle. It loses a little by taking ranks instead of values."""

MODE = """\
The simulations have their mode at zero (b = 0). `TruncatedGaussianGraphLearnerCV`
shrinks b by a ridge, which it estimates; then the distributions of single columns tell
about edges too. Without the ridge it has to learn b. A copula is blind to the
distributions of single columns, as any increasing function of a column gives the same
graph. AUC:"""

PRICE = """\
F1 of the graph of `CopulaGraphLearnerCV` that minimises `n D + price * parameters`,
with the deviance D of refitted edges, over the best F1 of the path. EBIC with gamma 0
has the price log n. *log n, dispersion*: log n times the variance of the scores of all
pairs without a penalty (by their median), if it is below 1, as in quasi-likelihoods:
with holes the deviance of completed rows varies less than that of complete ones.
*expected F1*: the graph with the largest expected F1, by the probabilities of a mixture
of these scores, a standard normal for pairs without an edge and a wider one for others.

No rule is within 10 % of the best on all tables. Lower prices find the weak edges of
the hub, and add false ones where edges are strong (ring, complete) or pairs are many
(copula100). The dispersion tells holes from complete tables, but not weak edges from
none: it gains on truncated normals with holes and loses more on copula100. The mixture
has to estimate the number of edges from scores of which most are noise. So the default
remains EBIC with gamma 0; `gamma` and `selection` are there for what is known of a
table."""

if __name__ == "__main__":
    main()
