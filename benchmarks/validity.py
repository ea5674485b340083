"""Do pooled 95 % intervals cover the truth? Designs, imputers, repetitions.

    python benchmarks/validity.py [--designs normal ...] [--methods complete ...]
        [--sizes 300 ...] [--rates 0.3 ...] [--repetitions 200] [--jobs 1]
        [--results FILE] [--output FILE] [--quick]

A line of the results is a block of ten repetitions of a design, a number of rows, a
rate of missing cells and a method: estimates, standard errors, degrees of freedom and
fractions of missing information of all slopes. What is there is not repeated.
``--repetitions 0 --output doc/benchmarks/validity.md`` only writes the page.
"""

import argparse
import warnings
from itertools import product
from multiprocessing import get_context

import _validity_basic  # noqa: F401  adds designs
import _validity_shapes  # noqa: F401
import numpy as np
import torch
from _report import publish
from _results import Results
from _validity_analyses import Failure, answer_of
from _validity_designs import DESIGNS, incomplete_table
from _validity_methods import METHODS, applies
from _validity_report import RESULTS, page
from threadpoolctl import threadpool_limits

BLOCK, DRAWS = 10, 20


def block_of(task):
    """Return the record of a block of repetitions."""
    name, rows, rate, method, block, n_draws, size = task
    design = DESIGNS[name]
    seeds = range(block * BLOCK, block * BLOCK + size)
    pairs = [incomplete_table(name, design, rows, rate, seed) for seed in seeds]
    given = [pair[method != "complete"] for pair in pairs]
    record = {"design": name, "rows": rows, "rate": rate, "method": method}
    record |= {"block": block, "draws": n_draws}
    answers, seconds, shares, failures = [], [], [], {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        completed = METHODS[method](given, design, seeds, n_draws)
        for seed, (tables, spent) in zip(seeds, completed, strict=True):
            seconds.append(round(spent, 3))
            try:
                if isinstance(tables, Exception):
                    raise Failure(f"{type(tables).__name__}: {tables}") from tables
                answers.append(answer_of(tables, design.analyse))
            except (Failure, np.linalg.LinAlgError) as error:
                failures[str(seed)] = str(error)[:120]
                continue
            if design.rule is not None:
                agree = [design.rule(table).mean() for table in tables]
                shares.append(round(float(np.mean(agree)), 4))
    for k, part in enumerate(("estimates", "errors", "dof", "fmi")):
        digits = 5 if k < 2 else 3
        record[part] = [[rounded(v, digits) for v in answer[k]] for answer in answers]
    record["seconds"] = seconds
    optional = {"failures": failures, "agreement": shares}
    return record | {key: value for key, value in optional.items() if value}


def rounded(value, digits):
    """Round to significant digits."""
    return float(f"{value:.{digits}g}")


def tasks_of(options, results):
    """List what the results lack: all designs and methods of a block, then the next."""
    done = {
        tuple(record[key] for key in ("design", "rows", "rate", "method", "block"))
        for record in results.records
    }
    blocks = range(-(-options.repetitions // BLOCK))
    for block, method, name in product(blocks, options.methods, options.designs):
        design = DESIGNS[name]
        if not applies(method, design):
            continue
        size = min(BLOCK, options.repetitions - block * BLOCK)
        for rows, rate in settings(design, options):
            if (name, rows, rate, method, block) not in done:
                yield name, rows, rate, method, block, options.draws, size


def settings(design, options):
    """List numbers of rows and rates: those of the design, in part those asked for."""
    first = [(design.sizes[0], rate) for rate in design.rates]
    others = [(rows, design.rates[0]) for rows in design.sizes[1:]]
    return [
        (rows, rate)
        for rows, rate in [*first, *others]
        if (not options.sizes or rows in options.sizes)
        and (not options.rates or rate in options.rates)
    ]


def run(results, options):
    """Compute what the results lack."""
    tasks = list(tasks_of(options, results))
    print(f"{len(tasks)} blocks", flush=True)
    if options.jobs == 1:
        for task in tasks:
            results.add(block_of(task))
            print(*task, flush=True)
        return
    with get_context("spawn").Pool(options.jobs) as pool:
        for record in pool.imap_unordered(block_of, tasks):
            results.add(record)


def main():
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--designs", nargs="+", default=list(DESIGNS), choices=DESIGNS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--sizes", nargs="+", type=int, help="default: of the designs")
    parser.add_argument(
        "--rates", nargs="+", type=float, help="default: of the designs"
    )
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", default=str(RESULTS))
    parser.add_argument("--output", help="file of the page")
    parser.add_argument(
        "--quick", action="store_true", help="2 of 5 draws, some methods, not kept"
    )
    options = parser.parse_args()
    if options.repetitions % BLOCK:
        parser.error(f"--repetitions must be a multiple of {BLOCK}")
    if options.quick:
        options.results, options.repetitions, options.draws = None, 2, 5
        options.sizes, options.rates = [300], [0.3]
        options.methods = ["complete", "cases", "gaussian"]
    results = Results(options.results)
    run(results, options)
    if options.output or options.quick:
        publish(page(results), options.output)


if __name__ == "__main__":
    main()
