"""Time of fits and draws of tables with more columns than rows.

    python benchmarks/wide.py --output doc/benchmarks/wide.md

Normal columns with ten common factors and noise of the same size as one of them; a
fifth of the cells is hidden completely at random.  Times are those of the processor, of
one thread; five draws include the draws of the parameters.  Where `fit` announces that
it takes minutes, the table shows what it says, and the fit is not made.  What takes
longer than `--limit` seconds is stopped, and what depends on it is left out.
"""

import argparse
import signal
import time
import warnings

import numpy as np
from _report import made_by, publish
from _report import table as markdown
from threadpoolctl import threadpool_limits

from skvnce import CopulaGraphLearner, GaussianImputer, LAIRImputer
from skvnce.exceptions import DurationWarning

ESTIMATORS = [GaussianImputer, LAIRImputer, CopulaGraphLearner]


def table(n, d, seed=0, share=0.2):
    """Draw a table, and hide cells."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10)) @ rng.normal(size=(10, d)) + rng.normal(size=(n, d))
    X[rng.random(X.shape) < share] = np.nan
    return X


class Stopped(Exception):
    """A computation has reached the limit."""


def stop(number, frame):
    """Handle the signal of the timer."""
    raise Stopped


def seconds(function, limit):
    """Measure the time of the processor, and stop at the limit."""
    begin = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        function()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return time.process_time() - begin


def measured(kind, X, limit):
    """Measure a fit and what follows, or say what the fit announces."""
    estimator = kind(random_state=0)
    calls = [
        lambda: estimator.fit(X),
        lambda: estimator.sample(X, 5, random_state=0),
        lambda: estimator.interval(X, random_state=0),
        lambda: estimator.score(X) if hasattr(estimator, "score") else None,
    ]
    row = [kind.__name__]
    for call in calls:
        try:
            row.append(f"{seconds(call, limit):.1f}")
        except DurationWarning as found:
            row.append("announced: " + str(found).split("will take ")[1].split(",")[0])
        except Stopped:
            row.append(f"stopped after {limit:g}")
        if not hasattr(estimator, "n_features_in_"):
            break
    return row + [""] * (1 + len(calls) - len(row))


def main(arguments=None):
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 rows of 100 columns")
    parser.add_argument("--output", help="file of the report")
    parser.add_argument("--estimators", nargs="+", help="names of classes")
    parser.add_argument("--limit", type=float, default=300, help="seconds")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGPROF, stop)
    n, d = (20, 100) if options.quick else (80, 1000)
    X, rows = table(n, d), []
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", DurationWarning)
    with threadpool_limits(1):
        for kind in ESTIMATORS:
            if not options.estimators or kind.__name__ in options.estimators:
                rows.append(measured(kind, X, options.limit))
                print(*rows[-1], flush=True)
    header = ["estimator", "fit, s", "five draws, s", "interval, s", "score, s"]
    notes = f"{n} rows, {d} columns. " + " ".join(__doc__.split("\n\n")[2].split())
    parts = ["# More columns than rows", made_by("wide.py", notes)]
    publish([*parts, markdown(header, rows)], options.output)


if __name__ == "__main__":
    main()
