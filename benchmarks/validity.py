"""Do pooled 95 % intervals cover the truth? Designs, imputers, repetitions.

    python benchmarks/validity.py [--designs normal ...] [--methods complete ...]
        [--sizes 300 ...] [--rates 0.3 ...] [--repetitions 200]
        [--results FILE] [--only-report] [--output FILE] [--quick]

A line of the results is a block of ten repetitions of a design, a number of rows, a
rate of missing cells and a method: estimates, standard errors, degrees of freedom and
fractions of missing information of all slopes. What is there is not repeated.
``--repetitions 0 --output doc/benchmarks/validity.md`` only writes the page.
"""

from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _report import by, specs, table
from _runner import Some, main_of
from _validity_analyses import Failure, answer_of
from _validity_designs import DESIGNS, incomplete_table
from _validity_methods import METHODS, NAMES, applies
from scipy.stats import t as student

WORDS = specs("validity")["designs"]

RESULTS = Path(__file__).with_name("results") / "validity.jsonl"
LEVEL, FEWEST = 0.95, 20  # of intervals; of repetitions of a summary


class Summary(NamedTuple):
    """Figures of a method in a design, number of rows and rate."""

    repetitions: int
    failures: int
    bias: float
    bias_error: float
    worst: float
    coverage: float
    coverage_of_interest: float
    width: float
    ratio: float
    distance: float
    fmi: float
    seconds: float
    agreement: float


def arrays(records):
    """Join the blocks of a method: estimates, errors, degrees of freedom, FMI."""
    records, parts = list(records), []
    for name in ("estimates", "errors", "dof", "fmi"):
        rows = [row for record in records for row in record[name]]
        parts.append(np.array(rows, dtype=float))
    return parts


def widths(errors, dof):
    """Return widths of intervals."""
    return 2 * student.ppf((1 + LEVEL) / 2, dof) * errors


def distance(records, complete):
    """Compare squared distances from the complete data with the variance of draws.

    The ratio of their means is 1 if draws are right; a mean over slopes.
    """
    of_block = {record["block"]: record for record in complete}
    pairs = [(r, of_block.get(r["block"], r)) for r in records]
    pairs = [(r, c) for r, c in pairs if len(r["estimates"]) == len(c["estimates"])]
    estimates, errors, _, fmi = arrays(r for r, _ in pairs)
    between = fmi * errors**2
    if not len(pairs) or not between.all():
        return np.nan
    squares = (estimates - arrays(c for _, c in pairs)[0]) ** 2
    return (squares.mean(0) / between.mean(0)).mean()


def summary(records, complete):
    """Compute the figures of a method; `complete` are the blocks of complete data."""
    design = DESIGNS[records[0]["design"]]
    truth = np.array(list(design.truth.values()))
    at = list(design.truth).index(design.interest)
    estimates, errors, dof, fmi = arrays(records)
    failures = sum(len(record.get("failures", ())) for record in records)
    seconds = np.median(np.hstack([record["seconds"] for record in records]))
    shares = np.hstack([record.get("agreement", []) for record in records])
    agreement = shares.mean() if len(shares) else np.nan
    if len(estimates) < 2:
        blank = [np.nan] * 9
        return Summary(len(estimates), failures, *blank, seconds, agreement)
    _, reference, of_complete, _ = arrays(complete)
    scale = np.where(truth == 0, reference.mean(0), np.abs(truth) / 100)
    bias = (estimates.mean(0) - truth) * np.where(truth < 0, -1, 1) / scale
    width = widths(errors, dof)
    covered = (np.abs(estimates - truth) <= width / 2).mean(0)
    relative = width.mean(0) / widths(reference, of_complete).mean(0)
    spread = estimates.std(0, ddof=1)
    nonzero = bias[truth != 0]
    return Summary(
        len(estimates),
        failures,
        bias[at],
        spread[at] / scale[at] / np.sqrt(len(estimates)),
        nonzero[np.abs(nonzero).argmax()],
        covered.mean(),
        covered[at],
        relative.mean(),
        (errors.mean(0) / spread).mean(),
        distance(records, complete),
        fmi.mean(),
        seconds,
        agreement,
    )


def summaries(results):
    """Return the figures of each setting and method, in the order of designs."""
    found, order = {}, list(DESIGNS)
    groups = by(results.records, "design", "rows", "rate")
    for key in sorted(groups, key=lambda key: (order.index(key[0]), *key[1:])):
        blocks = by(groups[key], "method")
        there = [method for method in NAMES if (method,) in blocks]
        complete = blocks[("complete",)]
        found[key] = {m: summary(blocks[(m,)], complete) for m in there}
    return found


def bias_of(value, key):
    """Write a bias: percent, or standard errors if the true slope is 0."""
    if np.isnan(value):
        return "-"
    design = DESIGNS[key[0]]
    if design.truth[design.interest] == 0:
        return f"{value:+.2f} SE"
    return f"{value:+.1f} %"


def coverage_of(value, repetitions):
    """Write a coverage, bold if it is too low by more than two standard errors."""
    if np.isnan(value):
        return "-"
    limit = LEVEL - 2 * np.sqrt(LEVEL * (1 - LEVEL) / repetitions)
    return f"**{value:.1%}**" if value < limit else f"{value:.1%}"


def number(value, digits=2):
    """Write a number."""
    return "-" if np.isnan(value) else f"{value:.{digits}f}"


def title_of(key):
    """Name a setting."""
    name, rows, rate = key
    design = DESIGNS[name]
    parts = [name]
    if len(design.sizes) > 1:
        parts.append(f"{rows} rows")
    if len(design.rates) > 1 or rate != 0.3:
        parts.append(f"{rate:.0%} missing")
    return ", ".join(parts)


def detail(key, methods):
    """Write the table of a setting."""
    design = DESIGNS[key[0]]
    header = ["method", "repetitions", "failures", "bias", "worst bias", "coverage"]
    header += [f"coverage of {design.interest}".replace("*", " x "), "width"]
    header += ["SE / spread", "FMI", "seconds"]
    has_rule = design.rule is not None
    header += ["rows that agree"] * has_rule
    rows = []
    for method, s in methods.items():
        worst = "-" if np.isnan(s.worst) else f"{s.worst:+.1f} %"
        bias = f"{bias_of(s.bias, key)} ({number(s.bias_error, 1)})"
        row = [NAMES[method], s.repetitions, s.failures, bias, worst]
        row.append(coverage_of(s.coverage, s.repetitions * len(design.truth)))
        row.append(coverage_of(s.coverage_of_interest, s.repetitions))
        row += [number(s.width), number(s.ratio), number(s.fmi)]
        row.append("" if s.seconds == 0 else number(s.seconds))
        agreement = "-" if np.isnan(s.agreement) else f"{s.agreement:.1%}"
        rows.append(row + [agreement] * has_rule)
    return [f"### {title_of(key)}", f"{WORDS[key[0]]}.", table(header, rows)]


def overview(figures, write):
    """Write a table of settings and methods."""
    methods = [name for name in NAMES if any(name in one for one in figures.values())]
    rows = [
        [title_of(key), *(write(of[m], key) if m in of else "" for m in methods)]
        for key, of in figures.items()
    ]
    return table(["design", *(NAMES[name] for name in methods)], rows)


def enough(figures, method):
    """List the settings in which a method has enough answers."""
    return [
        key
        for key, of in figures.items()
        if method in of and of[method].repetitions >= FEWEST
    ]


def shared(figures):
    """List methods with enough answers in most settings, and their common settings."""
    settings = {method: enough(figures, method) for method in NAMES}
    methods = [
        method
        for method, keys in settings.items()
        if method != "cases" and 2 * len(keys) > len(figures)
    ]
    common = [key for key in figures if all(key in settings[m] for m in methods)]
    return methods, common


def totals(figures, methods, keys=None):
    """Write a line for each method; without `keys` over all settings it has."""
    header = ["method", "settings", "coverage of interest, mean", "lowest"]
    header += ["below 92 %", "below 85 %", "median size of bias", "largest", "width"]
    header += ["SE / spread", "seconds"]
    rows = []
    for method in methods:
        parts = [
            (key, figures[key][method])
            for key in enough(figures, method)
            if keys is None or key in keys
        ]
        if not parts:
            continue
        coverage = np.array([s.coverage_of_interest for _, s in parts])
        bias = [
            abs(s.bias)
            for (name, *_), s in parts
            if DESIGNS[name].truth[DESIGNS[name].interest] != 0
        ]
        low, lower = (coverage < 0.92).sum(), (coverage < 0.85).sum()
        row = [NAMES[method], len(parts), f"{coverage.mean():.1%}"]
        row += [f"{coverage.min():.1%}", low, lower]
        row += [f"{f(bias):.1f} %" if bias else "" for f in (np.median, np.max)]
        row += [number(np.mean([s.width for _, s in parts]))]
        row += [number(np.mean([s.ratio for _, s in parts]))]
        rows.append([*row, number(np.median([s.seconds for _, s in parts]))])
    return table(header, rows)


def values(results, options):
    """Make the tables of the page."""
    figures = summaries(results)
    shown = {
        "coverage": lambda s, _: coverage_of(s.coverage_of_interest, s.repetitions),
        "bias": lambda s, key: bias_of(s.bias, key),
        "width": lambda s, _: number(s.width),
        "distance": lambda s, _: number(s.distance),
    }
    parts = [part for key, of in figures.items() for part in detail(key, of)]
    return {name: overview(figures, write) for name, write in shown.items()} | {
        "totals": totals(figures, NAMES),
        "shared": totals(figures, *shared(figures)),
        "details": "\n\n".join(parts),
    }


BLOCK, DRAWS = 10, 20


def measured(key, options):
    """Return the record of a block of repetitions."""
    name, rows, rate, method, block = key.values()
    design, first = DESIGNS[name], block * BLOCK
    seeds = range(first, min(first + BLOCK, options.repetitions))
    pairs = [incomplete_table(name, design, rows, rate, seed) for seed in seeds]
    given = [pair[method != "complete"] for pair in pairs]
    answers, seconds, shares, failures = [], [], [], {}
    completed = METHODS[method](given, design, seeds, options.draws)
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
    record = {"draws": options.draws}
    for k, part in enumerate(("estimates", "errors", "dof", "fmi")):
        digits = 5 if k < 2 else 3
        record[part] = [[rounded(v, digits) for v in answer[k]] for answer in answers]
    record["seconds"] = seconds
    optional = {"failures": failures, "agreement": shares}
    return record | {key: value for key, value in optional.items() if value}


def rounded(value, digits):
    """Round to significant digits."""
    return float(f"{value:.{digits}g}")


def cells(options):
    """List blocks: all designs and methods of the first one, then of the next."""
    if options.repetitions % BLOCK and not options.quick:
        raise SystemExit(f"--repetitions must be a multiple of {BLOCK}")
    blocks = range(-(-options.repetitions // BLOCK))
    for block, method, name in product(blocks, options.methods, options.designs):
        if applies(method, DESIGNS[name]):
            for rows, rate in settings(DESIGNS[name], options):
                key = {"design": name, "rows": rows, "rate": rate}
                yield key | {"method": method, "block": block}


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


QUICK = {"results": None, "repetitions": 2, "draws": 5, "sizes": [300], "rates": [0.3]}
main = main_of(
    globals(),
    QUICK | {"methods": ["complete", "cases", "gaussian"]},
    designs=[*DESIGNS],
    methods=[*METHODS],
    sizes=Some([], kind=int),
    rates=Some([], kind=float),
    repetitions=200,
    draws=DRAWS,
    results=str(RESULTS),
)
