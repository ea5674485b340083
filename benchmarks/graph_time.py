"""Time of a fit beside GraphicalLassoCV on the mean-filled table.

    python benchmarks/graph_time.py [--repeats 5] [--features 5 10 20 50 100]
        [--output doc/benchmarks/graph_time.md]

The ring of `graph_simulation`, n = 1000, 30 % missing.  Both have one thread and their
default parameters, in one process, in turn; the filling is not counted.  The goal holds
at 20 features: at most twice the time of GraphicalLassoCV.
"""

import argparse
import time
import warnings

import numpy as np
from _report import made_by, publish, table
from graph_simulation import simulate
from sklearn.covariance import GraphicalLassoCV
from sklearn.impute import SimpleImputer
from threadpoolctl import threadpool_limits

from skvnce import TruncatedGaussianGraphLearner

GOAL_FEATURES, GOAL_RATIO = 20, 2
MISSING = 0.3


def seconds(estimator, X):
    """Time one fit; says too whether it warned."""
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.perf_counter()
        estimator.fit(X)
        return time.perf_counter() - begin, bool(caught)


def compare(d, repeats):
    """Time both in turn; (repeats, 2) seconds, the number of warnings of each."""
    X = simulate("ring", 0, n_features=d).hide(MISSING)
    filled = SimpleImputer().fit_transform(X)
    runs = np.array(
        [
            [
                seconds(TruncatedGaussianGraphLearner(random_state=0), X),
                seconds(GraphicalLassoCV(), filled),
            ]
            for _ in range(repeats + 1)  # the first is a warm-up
        ]
    )[1:]
    return runs[..., 0], runs[..., 1].sum(0).astype(int)


def row(d, times, warned):
    """Write medians, ranges and the ratio of the medians."""
    ours, theirs = np.median(times, 0)
    cells = [f"{np.median(t):.3f} ({t.min():.3f} to {t.max():.3f})" for t in times.T]
    return [d, *cells, f"{ours / theirs:.2f}", f"{warned[0]}, {warned[1]}"]


def verdict(times):
    """Say whether the goal is met."""
    ratio = np.divide(*np.median(times, 0))
    met = "met" if ratio <= GOAL_RATIO else "**missed**"
    goal = f"at d = {GOAL_FEATURES} a ratio of at most {GOAL_RATIO}"
    return f"Goal: {goal}; measured {ratio:.2f}: {met}."


def report(options):
    """Time all sizes and write the table."""
    found = {d: compare(d, options.repeats) for d in options.features}
    header = ["d", "skvnce score-matching, s", "GraphicalLassoCV, s", "ratio"]
    header += ["fits that warned"]
    setting = f"Ring, n = 1000, {MISSING:.0%} missing, default parameters, one thread. "
    parts = [
        "# Time of a fit",
        made_by("graph_time.py", "Seed 0; wall-clock seconds."),
        f"{setting}Median (least to most) of {options.repeats} runs in turn, after one "
        "that is not counted. GraphicalLassoCV sees the mean-filled table.",
        table(header, [row(d, *result) for d, result in found.items()]),
    ]
    return parts + [verdict(found[d][0]) for d in found if d == GOAL_FEATURES]


def options_of(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--features", nargs="+", type=int, default=[5, 10, 20, 50, 100])
    parser.add_argument("--output")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = options_of()
    publish(report(options), options.output)
