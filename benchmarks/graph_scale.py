"""Time, memory and accuracy of a graph of many columns.

    python benchmarks/graph_scale.py [--features 20 50 100 350] [--quick]
        [--output doc/benchmarks/graph_scale.md]

The ring of `graph_simulation`, n = 1000, 30 % missing, one thread.  Each fit runs in a
process of its own, so that peak memory is its own; the rivals see the table filled by
means.  The goals hold at 350 features: AUC of |K| of at least 0.90, and no more time
than GraphicalLassoCV takes on the filled table.
"""

import argparse
import time
import warnings
from multiprocessing import get_context

import numpy as np
from _memory import peak_mib
from _report import made_by, publish, table
from graph_recovery import mean_filled
from graph_simulation import simulate
from sklearn.covariance import GraphicalLassoCV
from threadpoolctl import threadpool_limits

from skvnce import TruncatedGaussianGraphLearner
from skvnce.metrics import edge_auc

MISSING = 0.3
GOAL_FEATURES, GOAL_AUC = 350, 0.90
ML = "skvnce maximum likelihood"
LASSO = "mean-filled GraphicalLassoCV"


def learner(**options):
    """Fit our learner with the automatic ridges as the only penalties."""

    def fit(X):
        model = TruncatedGaussianGraphLearner(alpha=0, random_state=0, **options)
        return model.fit(X).precision_

    return fit


METHODS = {
    "skvnce score matching": learner(),
    ML: learner(algorithm="maximum-likelihood"),
    LASSO: lambda X: GraphicalLassoCV().fit(mean_filled(X)).precision_,
    "mean-filled marginal corr.": lambda X: np.corrcoef(mean_filled(X).T),
}


def measure(method, d, seed):
    """Fit once: (seconds, MiB that the fit added, AUC, warnings)."""
    data = simulate("ring", seed, n_features=d)
    X = data.hide(MISSING)
    METHODS[method](X[:60, :5])  # imports and first calls
    before = peak_mib()
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.perf_counter()
        K = METHODS[method](X)
        seconds = time.perf_counter() - begin
    auc = edge_auc(data.precision, np.abs(K))
    return seconds, peak_mib() - before, auc, len(caught)


def run(options):
    """Measure all sizes and seeds, methods in turn; {(method, d): (seeds, 4)}."""
    found = {}
    for d in options.features:
        for seed in range(options.sets):
            for method in METHODS:
                with get_context("spawn").Pool(1) as pool:
                    result = pool.apply(measure, (method, d, seed))
                print(method, d, seed, *(f"{value:.3g}" for value in result))
                found.setdefault((method, d), []).append(result)
    return {key: np.array(results) for key, results in found.items()}


def growth(found, method, sizes):
    """Fit log seconds to log d by least squares: the exponent."""
    seconds = [np.median(found[method, d][:, 0]) for d in sizes]
    return np.polyfit(np.log(sizes), np.log(seconds), 1)[0]


def report(found, options):
    """Write the tables."""
    header = ["d", "method", "s", "MiB", "AUC of abs K", "fits that warned"]
    rows = [
        [
            d,
            method,
            *(
                f"{value:.{digits}f}"
                for value, digits in zip(middle, (1, 0, 3), strict=True)
            ),
            int((results[:, 3] > 0).sum()),
        ]
        for (method, d), results in found.items()
        for middle in [np.median(results[:, :3], 0)]
    ]
    parts = [
        "# Graphs of many columns",
        made_by("graph_scale.py", f"Seeds 0 to {options.sets - 1}."),
        f"Ring, n = 1000, {MISSING:.0%} missing, b fitted, alpha = 0; one thread, each "
        "fit in its own process; medians. MiB: peak memory that the fit added.",
        table(header, rows),
    ]
    if len(options.features) > 1:
        powers = [
            f"{method}: d^{growth(found, method, options.features):.2f}"
            for method in METHODS
        ]
        parts.append("Growth of time over these sizes. " + "; ".join(powers) + ".")
    if GOAL_FEATURES in options.features:
        ours, theirs = (
            np.median(found[method, GOAL_FEATURES], 0) for method in (ML, LASSO)
        )
        goals = {
            f"AUC at d = {GOAL_FEATURES} >= {GOAL_AUC}": (
                f"{ours[2]:.3f}",
                ours[2] >= GOAL_AUC,
            ),
            f"time over that of GraphicalLassoCV at d = {GOAL_FEATURES} <= 1": (
                f"{ours[0] / theirs[0]:.2f}",
                ours[0] <= theirs[0],
            ),
        }
        rows = [
            [goal, value, "met" if met else "**missed**"]
            for goal, (value, met) in goals.items()
        ]
        parts += [f"Goals, by {ML}:", table(["goal", "measured", ""], rows)]
    return parts


def options_of(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", nargs="+", type=int, default=[20, 50, 100, 350])
    parser.add_argument("--sets", type=int, default=3)
    parser.add_argument("--output")
    parser.add_argument("--quick", action="store_true", help="20 features, one set")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets, options.features = 1, [20]
    return options


if __name__ == "__main__":
    options = options_of()
    publish(report(run(options), options), options.output)
