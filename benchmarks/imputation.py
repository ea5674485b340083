"""The comparison that every imputer must face.

    python benchmarks/imputation.py --results FILE [--also FILES] [--only-report]
        [--only table=diabetes "mechanism=MCAR 50" method=BR seed=0] [--quick]
        [--title "Imputers compared"] [--output doc/benchmarks/imputation.md]

Tables and masks are those of `imputation_tables`, methods those of `_rivals`.  Every
method learns from the masked training rows and is scored on the masked unseen rows.
Each result is one line of FILE; cells that are there, or in one of FILES, are not
computed again, and the report is written from these files alone (without --results
results are not kept).  R's mice needs Rscript and the package mice; where they are not
installed it is left out.
"""

import os
import resource
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import _peers
import imputation_tables
import numpy as np
from _beside import DEFAULT, beside, by_place
from _data import cpu_seconds
from _report import Texts, geometric_mean, grid, met, specs, table
from _rivals import METHODS, MICE, OURS, REMOVED, SEEDS_AT_MOST, lacking  # noqa: F401
from _runner import Some, by_name, main_of
from imputation_tables import MECHANISMS, TABLES
from threadpoolctl import threadpool_limits

TEXTS = Texts("imputation", globals(), vars(imputation_tables), vars(_peers))
SPECS = specs("imputation")
NAMES = SPECS["names"]
REFERENCE, DRAWN = "BR", "BR draws"
CLOSEST = "MCAR 50", "MAR 50"  # mechanisms of the goals and of the tables in full


class Comparison:
    """Results by cell; the first file that has a cell counts."""

    def __init__(self, records, options):
        self.records = {}
        axes = {"mechanism": MECHANISMS, "table": TABLES, "method": METHODS}
        asked = by_name(options.only).items()
        for record in records:
            key = tuple(record[name] for name in axes)
            if all(str(record[name]) in some for name, some in asked):
                seconds = {"seconds": record["fit"] + record["transform"]}
                self.records.setdefault((*key, record["seed"]), record | seconds)
        self.mechanisms, self.tables, self.methods = (
            [one for one in order if one in {key[i] for key in self.records}]
            for i, order in enumerate(axes.values())
        )

    def scores(self, measure, mechanism, method):
        """Return a measure of a method, {(table, seed): number}."""
        return {
            (name, seed): record[measure]
            for (a, name, b, seed), record in self.records.items()
            if (a, b) == (mechanism, method) and measure in record
        }

    def means(self, measure, mechanism, method):
        """Average over the seeds, {table: number}."""
        found = {name: [] for name in self.tables}
        for (name, _), value in self.scores(measure, mechanism, method).items():
            found[name].append(value)
        return {name: float(np.mean(some)) for name, some in found.items() if some}

    def ratios(self, measure, mechanism, method, reference):
        """Compare with a rival seed by seed: {table: geometric mean}."""
        sides = (self.scores(measure, mechanism, m) for m in (method, reference))
        ratios = by_place(*sides)
        return {name: ratios[name] for name in self.tables if name in ratios}

    def having(self, measure):
        """List the methods that have a measure; costs are those of imputers."""
        measure = "rmse" if measure in ("seconds", "peak") else measure
        some = {key[2] for key, record in self.records.items() if measure in record}
        return [method for method in self.methods if method in some]

    def few(self, values):
        """Write how many tables are averaged, if not all."""
        return f" ({len(values)})" if len(values) < len(self.tables) else ""

    def closest(self):
        """List the mechanisms shown in full of which there are results."""
        return [mechanism for mechanism in CLOSEST if mechanism in self.mechanisms]


def ratio_table(results, measure, reference):
    """Tabulate geometric means over the tables, a column for each mechanism."""

    def cell(method, mechanism):
        found = results.ratios(measure, mechanism, method, reference).values()
        return f"{geometric_mean(found):.3f}{results.few(found)}" if found else "-"

    rows = results.having(measure)
    return grid(f"to {reference}", rows, results.mechanisms, cell, empty=True)


def in_full(results, measure, digits=3):
    """Tabulate means over the seeds under the mechanisms shown in full."""
    rows = results.having(measure)
    for mechanism in results.closest():
        means = {m: results.means(measure, mechanism, m) for m in rows}

        def cell(method, name, means=means):
            found = means[method]
            return f"{found[name]:.{digits}f}" if name in found else "-"

        yield grid(mechanism, rows, results.tables, cell, empty=True)


def average_table(results, mechanism):
    """Tabulate predictions, averaged over the tables that all methods have."""

    def cell(method, measure):
        found = [*results.means(measure, mechanism, method).values()]
        return f"{np.mean(found):.3f}{results.few(found)}" if found else "-"

    columns = {NAMES[measure]: measure for measure in ("linear", "trees")}
    return grid(mechanism, results.having("trees"), columns, cell, empty=True)


def goal_table(results, ours):
    """Set each goal of one of ours beside what was measured."""
    sources = against, everywhere, no_worse, coverage_goals
    rows = [
        [goal, text, "tables lack" if is_met is None else met(is_met)]
        for goals in sources
        for goal, text, is_met in goals(results, ours)
    ]
    return table([f"goal of {ours}", "measured", ""], rows)


def at_most(measure, mechanism, bound, rival):
    """Write a goal."""
    return f"{NAMES[measure]}, {mechanism}: at most {bound:g} of {rival}"


def against(results, ours):
    """Yield the goals in the mean of the tables: goal, what was measured, verdict."""
    for measure, rival, *bounds in SPECS["goals"][ours]:
        for mechanism, bound in zip(CLOSEST, bounds, strict=True):
            if ratios := results.ratios(measure, mechanism, ours, rival):
                value = geometric_mean(ratios.values())
                worst = max(ratios, key=ratios.get)
                text = f"{value:.3f} ({len(ratios)} tables; most {ratios[worst]:.2f}, "
                verdict = None if results.few(ratios) else value <= bound
                goal = at_most(measure, mechanism, bound, rival)
                yield goal, f"{text}{worst})", verdict


def everywhere(results, ours):
    """Yield the goals that hold on every table, measure by measure."""
    rival, bound = SPECS["everywhere"].get(ours, (None, None))
    for measure, mechanism in product(("rmse", "crps"), CLOSEST if rival else ()):
        if ratios := results.ratios(measure, mechanism, ours, rival):
            worst = max(ratios, key=ratios.get)
            goal = at_most(measure, mechanism, bound, rival) + " on every table"
            text = f"most {ratios[worst]:.3f}, {worst}"
            yield goal, text, ratios[worst] <= bound


def no_worse(results, ours):
    """Count the tables on which the draws score no worse than those of rivals."""
    rivals, least = SPECS["no_worse"].get(ours, ([], 0))
    for mechanism in CLOSEST if rivals else ():
        each = [results.ratios("crps", mechanism, ours, rival) for rival in rivals]
        names = [n for n in results.tables if all(n in ratios for ratios in each)]
        worst = {n: max(ratios[n] for ratios in each) for n in names}
        if worst:
            good = sum(ratio <= 1 for ratio in worst.values())
            text = f"{good} of {len(worst)}; ratio to the best: "
            text += ", ".join(f"{ratio:.3f} {name}" for name, ratio in worst.items())
            goal = f"CRPS, {mechanism}: no worse than {' and '.join(rivals)} on at "
            yield f"{goal}least {least} of {len(TABLES)} tables", text, good >= least


def coverage_goals(results, ours):
    """Compare the coverage with its bounds on every table, and in the mean."""
    bands = SPECS["coverage"]
    low, high, *mean_band = bands.get(ours, bands["others"])
    for mechanism, measure in product(CLOSEST, ("coverage", "coverage, ties shared")):
        if shares := results.means(measure, mechanism, ours):
            outside = [n for n, value in shares.items() if not low <= value <= high]
            values, mean = shares.values(), float(np.mean([*shares.values()]))
            text = f"{min(values):.3f} to {max(values):.3f}, mean {mean:.3f}"
            text += f"; outside: {', '.join(outside)}" if outside else ""
            goal = f"{NAMES[measure]}, {mechanism}: {low} to {high} on every table"
            is_met = not outside
            if mean_band:
                goal += f", {mean_band[0]} to {mean_band[1]} in the mean"
                is_met &= mean_band[0] <= mean <= mean_band[1]
            yield goal, text, is_met


def best_table(results):
    """Set the best of ours in CRPS beside the best of mice, on each table."""
    rows = []
    for mechanism, name in product(CLOSEST, results.tables):
        sides = [scores_on(results, mechanism, name, m) for m in SPECS["best"].values()]
        every = [set(seeds) for side in sides for seeds in side.values()]
        if not all(sides) or not (common := set.intersection(*every)):
            continue
        means = [
            {m: np.mean([seeds[s] for s in common]) for m, seeds in side.items()}
            for side in sides
        ]
        best = [min(part, key=part.get) for part in means]
        scores = [part[m] for part, m in zip(means, best, strict=True)]
        text = [f"{m}, {v:.3f}" for m, v in zip(best, scores, strict=True)]
        among = ", ".join(m.removeprefix("mice ") for m in means[1])
        ratio = scores[0] / scores[1]
        rows.append([mechanism, name, *text, among, f"{ratio:.3f}", met(ratio < 1)])
    head = ["CRPS", "table", "best of ours", "best of mice", "of", "ratio", ""]
    return [table(head, rows)] if rows else []


def scores_on(results, mechanism, name, methods):
    """Return the CRPS of methods on a table by seed, of those that have some."""
    scores = {m: results.scores("crps", mechanism, m).items() for m in methods}
    found = {m: {s: v for (n, s), v in some if n == name} for m, some in scores.items()}
    return {method: seeds for method, seeds in found.items() if seeds}


def losses(results):
    """Set the default beside each other method, where it has results."""
    columns = {
        f"{NAMES[measure].removesuffix(' of draws')}, {mechanism}": partial(
            results.scores, measure, mechanism
        )
        for measure, mechanism in product(("rmse", "crps", "energy"), results.closest())
    }
    parts = beside(results.methods, columns, [m for m in OURS if m not in REMOVED])
    there = [results.means("rmse", m, DEFAULT) for m in results.mechanisms]
    absent = [n for n in results.tables if not any(n in means for means in there)]
    if parts and absent:
        parts.append(TEXTS("has no results on ", absent=" and ".join(absent)))
    return [*parts, TEXTS("numbers alone")] if parts else []


def protocol(results):
    """Say what was done."""
    seeds = defaultdict(set)
    for _, _, method, seed in results.records:
        seeds[method].add(seed)
    most = max(map(len, seeds.values()))
    fewer = ", ".join(f"{m} {len(s)}" for m, s in seeds.items() if len(s) < most)
    fewer = f", but {fewer}" if fewer else ""
    return TEXTS("At most 2000 rows a", most=most, fewer=fewer)


def mice_remarks(results, asked):
    """Say whether mice was left out, and where it needed help to fill every cell."""
    absent = ", ".join(m for m in MICE if m in asked and m not in results.methods)
    if absent:
        yield f"Left out, as they need R with the package mice: {absent}."
    for remark, text in SPECS["remarks"].items():
        places = [
            f"{method} on {name}, {mechanism}, seed {seed}: {record[remark]}"
            for (mechanism, name, method, seed), record in results.records.items()
            if record.get(remark)
        ]
        if places:
            yield f"Note: {text} ({'; '.join(places)})."
    versions = {r["mice"] for r in results.records.values() if "mice" in r}
    if versions:
        yield f"Version of mice: {', '.join(sorted(versions))}."


def commits(results):
    """Say which commits the results are of, where the file knows."""
    tables = defaultdict(set)
    for (_, name, method, _), record in results.records.items():
        if method not in MICE and "commit" in record:
            tables[method, record["commit"]].add(name)
    said = [f"{m} on {', '.join(sorted(n))}: {c}" for (m, c), n in tables.items()]
    named = {commit for _, commit in tables}
    of = {c: text for c, text in SPECS["conditions"].items() if c in named}
    conditions = [f"Results of commit {c}: {text}" for c, text in of.items()]
    return [f"Commits. {'; '.join(said)}.", *conditions] if said else []


def measured(key, options):
    """Measure in a process of its own, whose peak memory is that of the method."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, **key).result()


@threadpool_limits.wrap(limits=1)
def measure(table, mechanism, method, seed):
    """Fit one method to one table under one mask and score it; a dict of numbers."""
    warnings.simplefilter("ignore")
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[::5, 0] = np.nan
    METHODS[method](0).fit(X).transform(X)  # what a first call loads is not counted
    data = imputation_tables.split(table, mechanism, seed)
    train, test = data.masked
    imputer = METHODS[method](seed)
    forget_peak()
    before, start = resident("VmRSS"), cpu_seconds()
    imputer.fit(train)
    fitted = cpu_seconds()
    filled = imputer.transform(test)
    scores = {
        "fit": fitted - start,
        "transform": cpu_seconds() - fitted,
        "peak": getattr(imputer, "peak", resident("VmHWM") - before),
        "rows": len(train),
        "columns": train.shape[1],
    }
    scores |= imputation_tables.score_filled(data, imputer.transform(train), filled)
    if getattr(imputer, "sample", None):
        number = getattr(imputer, "draws_at_most", imputation_tables.DRAWS)
        start = cpu_seconds()
        draws = np.asarray(imputer.sample(test, n_draws=number, random_state=seed))
        scores["sample"] = cpu_seconds() - start
        scores |= imputation_tables.score_draws(data, draws)
    return scores | getattr(imputer, "remarks", {})


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


def possible(key):
    """Say whether a method has so many seeds."""
    return key["seed"] < SEEDS_AT_MOST.get(key["method"], SEEDS)


SEEDS = 3
CASES = {"method": METHODS, "table": TABLES, "mechanism": MECHANISMS}
CASES["seed"] = range(SEEDS)
QUICK = {"table": ["diabetes"], "method": ["BR", "GaussianImputer"], "seed": [0]}


def values(results, options):
    """Return the tables of the page."""
    results = Comparison(results.records, options)
    scores, found = [], {}
    rivals = {"rmse": REFERENCE, "mae": REFERENCE, "crps": DRAWN, "energy": DRAWN}
    for measure, rival in rivals.items():
        title = f"## {NAMES[measure]}: ratio, less is better"
        scores += [title, ratio_table(results, measure, rival)]
        scores += in_full(results, measure) if measure != "mae" else []
    ties = []
    if results.having("coverage, ties shared"):
        ties = [TEXTS("Discrete draws cover more")]
        ties += in_full(results, "coverage, ties shared")
    predictions = [average_table(results, m) for m in results.closest()]
    for measure in ("linear", "trees"):
        tables = in_full(results, measure)
        predictions += [f"{NAMES[measure]}, table by table:", *tables]
    for measure, digits in (("seconds", 2), ("sample", 2), ("peak", 0)):
        found[measure] = [*in_full(results, measure, digits)][:1]
    found |= {
        "protocol": [protocol(results)],
        "notes_on_mice": mice_remarks(
            results, by_name(options.only).get("method", METHODS)
        ),
        "commits_by_table": commits(results),
        "losses": losses(results),
        "goals": [
            goal_table(results, m) for m in SPECS["goals"] if m in results.methods
        ],
        "best": best_table(results),
        "scores": scores,
        "coverage": in_full(results, "coverage"),
        "coverage_of_ties": ties,
        "predictions": predictions,
        "ratios_of_seconds": [ratio_table(results, "seconds", REFERENCE)],
    }
    return {name: "\n\n".join(parts) for name, parts in found.items()}


main = main_of(globals(), QUICK, also=Some([], None), title="Imputers compared")
