"""The comparison that every imputer must face.

    python benchmarks/imputation.py --results FILE [--also FILES] [--only-report]
        [--tables diabetes digits] [--mechanisms "MCAR 50" "MAR 50"]
        [--methods BR GaussianImputer] [--seeds 3] [--n-jobs 2]
        [--output doc/benchmarks/imputation.md] [--title "Imputers compared"]
        [--picture doc/images/imputation.png]

Tables and masks are those of `imputation_tables`, methods those of `_rivals`.  Every
method learns from the masked training rows and is scored on the masked unseen rows.
Each result is one line of FILE; cells that are there, or in one of FILES, are not
computed again, and the report is written from these files alone (without --results
results are not kept).  R's mice needs Rscript and the package mice; where they are not
installed it is left out.
"""

import os
import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from _command import Some, options_of
from _report import publish
from _results import Results
from _rivals import METHODS, SEEDS_AT_MOST, lacking
from imputation_report import picture, report
from imputation_scores import DRAWS, score_draws, score_points, score_predictions
from imputation_tables import MECHANISMS, TABLES, split
from threadpoolctl import threadpool_limits

WARM_UP = np.random.default_rng(0).normal(size=(40, 3))
WARM_UP[::5, 0] = np.nan
KEY = ("table", "mechanism", "method", "seed")


def key_of(result):
    """Name the cell of a result."""
    return tuple(result[k] for k in KEY)


def measure(name, mechanism, method, seed):
    """Fit one method to one table under one mask and score it; a dict of numbers."""
    data = split(name, mechanism, seed)
    train, test = data.masked
    imputer = METHODS[method](seed)
    before = resident("VmRSS")
    forget_peak()
    start = cpu_seconds()
    imputer.fit(train)
    fitted = cpu_seconds()
    filled = imputer.transform(test)
    done = cpu_seconds()
    found = {
        "fit": fitted - start,
        "transform": done - fitted,
        "peak": getattr(imputer, "peak", resident("VmHWM") - before),
        "rows": len(train),
        "columns": train.shape[1],
    }
    found |= score_points(data, filled)
    found |= score_predictions(data, imputer.transform(train), filled)
    if getattr(imputer, "sample", None):
        number = getattr(imputer, "draws_at_most", DRAWS)
        start = cpu_seconds()
        draws = np.asarray(imputer.sample(test, n_draws=number, random_state=seed))
        found |= {"sample": cpu_seconds() - start} | score_draws(data, draws)
    return found | getattr(imputer, "remarks", {})


def cpu_seconds():
    """Return the CPU time of this process and of those that it has waited for."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


def resident(kind):
    """Read memory of this process in MiB, now (VmRSS) or at its peak (VmHWM)."""
    status = Path("/proc/self/status")
    if status.exists():
        line = status.read_text().split(f"{kind}:")[1]
        return int(line.split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS


def forget_peak():
    """Let the peak start anew, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def measure_all(name, method, masks, warm=True):
    """Measure a method on a table under all masks in one process, with one thread."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if warm:  # what a first call loads is not counted
            METHODS[method](0).fit(WARM_UP).transform(WARM_UP)
        return [
            dict(zip(KEY, (name, mechanism, method, seed), strict=True))
            | measure(name, mechanism, method, seed)
            for mechanism, seed in masks
        ]


def missing_cells(results, options):
    """List what is asked for and not there yet, (table, method, masks)."""
    there = {key_of(result) for result in results}
    absent = lacking(options.methods)
    for method, name in product(options.methods, options.tables):
        if method in absent:
            continue
        n_seeds = min(options.seeds, SEEDS_AT_MOST.get(method, options.seeds))
        masks = [
            (mechanism, seed)
            for mechanism, seed in product(options.mechanisms, range(n_seeds))
            if (name, mechanism, method, seed) not in there
        ]
        if masks:
            yield name, method, masks


def compute(cells, n_jobs):
    """Yield the results of cells, each from a fresh process (none if n_jobs is 0)."""
    if not n_jobs:
        yield from (measure_all(*cell, warm=False) for cell in cells)
        return
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    with ProcessPoolExecutor(
        n_jobs, mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        for future in as_completed([pool.submit(measure_all, *cell) for cell in cells]):
            yield future.result()


def run(options):
    """Compute what the file of results lacks; returns all that was asked for."""
    kept = Results(options.results)
    results = [*kept.records]
    for path in options.also:  # the first file that has a cell counts
        there = {key_of(result) for result in results}
        results += [r for r in Results(path).records if key_of(r) not in there]
    cells = [] if options.only_report else list(missing_cells(results, options))
    for done, found in enumerate(compute(cells, options.n_jobs), 1):
        for result in found:
            kept.add(result)
            results.append(kept.records[-1])
        last = found[-1]
        said = ", ".join(last[k] for k in ("table", "method"))
        print(f"{done} of {len(cells)}: {said}, fit {last['fit']:.2f} s", flush=True)
    if not results:
        raise SystemExit(f"There are no results in {options.results}.")
    asked = [getattr(options, f"{k}s") for k in KEY[:3]]
    return [
        result
        for result in results
        if all(result[k] in some for k, some in zip(KEY, asked, strict=False))
        and result["seed"] < options.seeds
    ]


def main():
    """Measure, report and draw."""
    options = options_of(
        __doc__,
        tables=[*TABLES],
        mechanisms=[*MECHANISMS],
        methods=[*METHODS],
        seeds=3,
        n_jobs=2,
        results=None,
        also=Some([], None),
        only_report=False,
        title="Imputers compared",
        picture=None,
    )
    results = run(options)
    if options.picture:
        picture(results, options.picture)
    publish(report(results, options), options.output)


if __name__ == "__main__":
    main()
