"""Do imputations stay possible, on every table at hand?

    python benchmarks/safety.py --results FILE [--only-report] [--quick]
        [--tables american_gut nhanes_adults] [--shares 0.1 0.5] [--seeds 1]
        [--estimators GaussianImputer LAIRImputer] [--limit 120] [--minutes 25]
        [--output doc/benchmarks/safety.md]

Tables are those of `safety_tables`, scores those of `safety_scores`.  Each estimator is
fitted to a masked table, fills it and draws it, in a process of its own that may take
`limit` seconds of CPU time.  Each result is a line of FILE, written as it is made.
Those that are there are not computed again, and the report is written from FILE alone.
"""

import argparse
import json
import os
import resource
import signal
import time
import warnings
from itertools import product
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path

import numpy as np
from _report import commit, publish
from safety_report import NOT_NEGATIVE, OVER, report
from safety_scores import score_draws, score_fills, truth_outside
from safety_tables import SHARES, left_out, problem, tables
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from threadpoolctl import threadpool_limits

from skvnce import (
    GaussianImputer,
    LAIRImputer,
    TruncatedGaussianGraphLearner,
    VGIImputer,
    VNCEEstimator,
)

DRAWS = 5
PATIENCE = 6  # seconds of the clock for each second of CPU time, on a busy machine
QUICK = ("nhanes25", "airquality_ny")
ESTIMATORS = {
    "mean": lambda seed: SimpleImputer(),
    "IterativeImputer": lambda seed: IterativeImputer(random_state=seed),
    **{
        kind.__name__: lambda seed, kind=kind: kind(random_state=seed)
        for kind in (
            GaussianImputer,
            TruncatedGaussianGraphLearner,
            VNCEEstimator,
            LAIRImputer,
            VGIImputer,
        )
    },
}
NON_NEGATIVE_ONLY = {"TruncatedGaussianGraphLearner"}
KEY = ("table", "share", "estimator", "seed")


def steps(data, estimator, seed):
    """Yield what is known after fit, transform and sample."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.process_time()
        imputer = ESTIMATORS[estimator](seed).fit(data.masked)
        declared = getattr(imputer, "feature_ranges_", None)
        fitted = time.process_time()
        yield {"fit": fitted - begin, "declares": declared is not None}
        filled = imputer.transform(data.masked)
        done = time.process_time()
        yield {"transform": done - fitted} | score_fills(data, filled, declared)
        if hasattr(imputer, "sample"):
            drawn = imputer.sample(data.masked, n_draws=DRAWS, random_state=seed)
            seconds = time.process_time() - done
            yield {"sample": seconds} | score_draws(data, np.stack(drawn), declared)
    said = {f"{w.category.__name__}: {first_words(w.message)}" for w in caught}
    yield {"warnings": sorted(said)}


def first_words(message, length=90):
    """Shorten a message to its beginning, in one line."""
    text = " ".join(str(message).split())
    return text if len(text) <= length else text[: length - 3] + "..."


def child(pipe, data, estimator, seed, limit):
    """Send the steps through a pipe, or the error that ended them."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    with threadpool_limits(1):
        try:
            for found in steps(data, estimator, seed):
                pipe.send(found)
            pipe.send({"status": "done"})
        except Exception as error:  # recorded, not hidden: it is a line of the report
            said = f"{type(error).__name__}: {first_words(error, 160)}"
            pipe.send({"status": "refused", "error": said})


def measure(data, estimator, seed, limit):
    """Fit, fill and draw in a process of its own; a dict of what it came to."""
    quickest = "fork" if "fork" in get_all_start_methods() else "spawn"
    context = get_context(quickest)
    receive, send = context.Pipe(duplex=False)
    arguments = (send, data, estimator, seed, limit)
    process = context.Process(target=child, args=arguments)
    process.start()
    send.close()
    found = {"status": None}
    end = time.monotonic() + PATIENCE * limit
    while receive.poll(max(0.0, end - time.monotonic())):
        try:
            found |= receive.recv()
        except EOFError:
            break
    else:
        process.kill()
        found |= {"status": OVER, "error": f"{PATIENCE * limit} s of the clock"}
    process.join()
    if process.exitcode == -signal.SIGXCPU:
        found |= {"status": OVER, "error": f"{limit} s of CPU time"}
    elif found["status"] is None:
        found |= {"status": "died", "error": f"exit code {process.exitcode}"}
    if found["status"] != "done":
        reached = [step for step in ("fit", "transform", "sample") if step in found]
        found["in"] = ("fit", "transform", "sample", "sample")[len(reached)]
    return found


def cells(results, options):
    """Yield what is asked for and not there yet, tables in turn, small ones first."""
    there = {tuple(result[k] for k in KEY) for result in results}
    seeds = range(options.seeds)
    for name, share, seed in product(options.tables, options.shares, seeds):
        for estimator in options.estimators:
            if (name, share, estimator, seed) not in there:
                yield name, share, estimator, seed


def compute(results, options):
    """Yield the results that are lacking, as they are made."""
    end = time.monotonic() + 60 * options.minutes
    here = {"commit": commit(), "limit": options.limit}
    for key in cells(results, options):
        if time.monotonic() > end:
            break
        name, share, estimator, seed = key
        data = problem(name, share, seed)
        found = dict(zip(KEY, key, strict=True))
        found |= {"rows": len(data.full), "columns": data.full.shape[1]}
        found |= {"truth outside": truth_outside(data)} | here
        if estimator in NON_NEGATIVE_ONLY and (data.masked < 0).any():
            yield found | {"status": NOT_NEGATIVE}
            continue
        yield found | measure(data, estimator, seed, options.limit)


def run(options):
    """Compute what the file lacks; returns the plans and the results of the file."""
    path = Path(options.results) if options.results else None
    lines = path.read_text().splitlines() if path and path.exists() else []
    known = [json.loads(line) for line in lines]
    made = [] if options.only_report else [plan_of(options)]
    if not options.only_report:
        write(path, made[0])
        for found in compute([r for r in known if "estimator" in r], options):
            write(path, found)
            made.append(found)
            said = [str(found[k]) for k in KEY] + [found["status"]]
            ratio = f"{found['ratio']:.3f}" if "ratio" in found else ""
            print(*said, ratio, found.get("error", ""), flush=True)
    return known + made


def plan_of(options):
    """Say what a run will do, for the report."""
    asked = {
        k: getattr(options, k) for k in ("tables", "shares", "estimators", "seeds")
    }
    return {"plan": asked, "left out": left_out(), "draws": DRAWS}


def write(path, line):
    """Append a line to the file."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def options_of(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", help="by default all of them")
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES))
    every = list(ESTIMATORS)
    parser.add_argument("--estimators", nargs="+", default=every, choices=every)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--limit", type=int, default=120, help="CPU seconds of a fit")
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="begin no fit after"
    )
    parser.add_argument("--results", help="file of results, one JSON object a line")
    parser.add_argument("--only-report", action="store_true", help="compute nothing")
    parser.add_argument("--quick", action="store_true", help="two small tables")
    parser.add_argument("--output", help="file of the report")
    options = parser.parse_args(arguments)
    if options.quick:
        options.tables, options.shares = options.tables or list(QUICK), [0.5]
    if not options.tables and not options.only_report:
        options.tables = list(tables())
    return options


def main(arguments=None):
    """Measure and report."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = options_of(arguments)
    found = run(options)
    publish(report(found), options.output)
    return found


if __name__ == "__main__":
    main()
