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
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import imputation_tables
import numpy as np
from _beside import DEFAULT, beside
from _command import Some, options_of
from _data import cpu_seconds
from _mice import IMPUTATIONS
from _report import Results, Texts, made_by, publish, table
from _rivals import METHODS, MICE, SEEDS_AT_MOST, lacking
from imputation_tables import (
    DRAWS,
    MECHANISMS,
    TABLES,
    score_draws,
    score_points,
    score_predictions,
    split,
)
from threadpoolctl import threadpool_limits

TEXTS = Texts("imputation", globals(), vars(imputation_tables), vars(imputation_tables))

REFERENCE, DRAWN = "BR", "BR draws"
CLOSEST = ("MCAR 50", "MAR 50")  # mechanisms of the goals and of the tables in full
LOW, HIGH = 0.87, 0.93  # of the coverage, on every table
# of models of columns: on every table, and in the mean of the tables
BANDS = dict.fromkeys(
    ("ForestImputer", "stack", "boosted columns", "linear columns"),
    (0.84, 0.95, 0.88, 0.92),
)
# of each of ours: measure, mechanism, rival, the ratio to it at most
GOALS = {
    "GaussianImputer": [
        ("rmse", "MCAR 50", REFERENCE, 0.885),
        ("rmse", "MAR 50", REFERENCE, 0.90),
        *[("crps", mechanism, DRAWN, 0.98) for mechanism in CLOSEST],
        *[("energy", mechanism, DRAWN, 0.95) for mechanism in CLOSEST],
        *[("seconds", mechanism, REFERENCE, 1.0) for mechanism in CLOSEST],
    ],
    "LAIRImputer": [
        ("rmse", "MCAR 50", REFERENCE, 0.86),
        ("rmse", "MAR 50", REFERENCE, 0.88),
        *[("crps", mechanism, DRAWN, 0.93) for mechanism in CLOSEST],
        *[("energy", mechanism, DRAWN, 0.85) for mechanism in CLOSEST],
    ],
}
# of each of ours: a rival, and the ratio to it at most on every table
GOALS["VGIImputer"] = GOALS["LAIRImputer"]
GOALS["MixtureImputer"] = [
    ("rmse", "MCAR 50", REFERENCE, 0.82),
    ("rmse", "MAR 50", REFERENCE, 0.78),
    *[("crps", mechanism, DRAWN, 0.80) for mechanism in CLOSEST],
    *[("seconds", mechanism, REFERENCE, 5.0) for mechanism in CLOSEST],
]
GOALS["ForestImputer"] = [
    ("seconds", mechanism, REFERENCE, 12.0) for mechanism in CLOSEST
]
GOALS["stack"] = [
    ("rmse", "MCAR 50", REFERENCE, 0.81),
    ("rmse", "MAR 50", REFERENCE, 0.765),
    ("crps", "MCAR 50", DRAWN, 0.79),
    ("crps", "MAR 50", DRAWN, 0.775),
]
GOALS |= {"boosted columns": [], "linear columns": []}  # that of coverage alone
# the best of the first in CRPS is ahead of the best of the others on every table
BEST = "TableImputer", "GaussianImputer", "LAIRImputer", "ForestImputer"
RIVALS = "mice pmm", "mice cart"
# of each of ours: rivals, the best of which counts, and the tables of `TABLES` at least
# on which CRPS is no worse
NO_WORSE = {
    "GaussianImputer": (["mice pmm"], len(TABLES)),
    "LAIRImputer": (["mice pmm", "mice cart"], 5),
}
EVERYWHERE = dict.fromkeys(("LAIRImputer", "VGIImputer"), ("GaussianImputer", 1.02))
NAMES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "crps": "CRPS",
    "energy": "energy distance of draws",
    "coverage": "coverage of 90 % intervals",
    "coverage, ties shared": "coverage of 90 % intervals, ties shared",
    "linear": "linear model",
    "trees": "boosted trees",
    "seconds": "CPU time of fit and transform",
    "sample": f"CPU time of {DRAWS} draws of the unseen rows",
    "peak": "peak memory",
}
METHODS_READ = TEXTS("methods read").replace("IMPUTATIONS", str(IMPUTATIONS))


class Comparison:
    """Results by cell; a method has the measure or is left out."""

    def __init__(self, results):
        self.found = {}
        for result in results:
            key = tuple(result[k] for k in ("mechanism", "table", "method", "seed"))
            seconds = {"seconds": result["fit"] + result["transform"]}
            self.found[key] = result | seconds
        keys = list(self.found)
        self.mechanisms = [m for m in MECHANISMS if any(k[0] == m for k in keys)]
        self.tables = [t for t in TABLES if any(k[1] == t for k in keys)]
        self.methods = [m for m in METHODS if any(k[2] == m for k in keys)]

    def seeds(self, measure, mechanism, name, method):
        """Return the measure of each seed, {seed: number}."""
        return {
            seed: result[measure]
            for (a, b, c, seed), result in self.found.items()
            if (a, b, c) == (mechanism, name, method) and measure in result
        }

    def mean(self, measure, mechanism, name, method):
        """Average over the seeds; None if there is none."""
        values = list(self.seeds(measure, mechanism, name, method).values())
        return float(np.mean(values)) if values else None

    def means_of_equal_seeds(self, measure, mechanism, name, groups):
        """Average over the seeds that all methods of groups have; a dict a group."""
        parts = [
            {m: self.seeds(measure, mechanism, name, m) for m in methods}
            for methods in groups
        ]
        there = [seeds for part in parts for seeds in part.values() if seeds]
        common = set.intersection(*map(set, there)) if there else set()
        return [
            {
                m: float(np.mean([seeds[s] for s in common]))
                for m, seeds in part.items()
                if common and seeds
            }
            for part in parts
        ]

    def ratios(self, measure, mechanism, method, reference):
        """Compare with a rival seed by seed: {table: geometric mean}."""
        ratios = {}
        for name in self.tables:
            ours = self.seeds(measure, mechanism, name, method)
            theirs = self.seeds(measure, mechanism, name, reference)
            common = [s for s in ours if theirs.get(s, 0) > 0 and ours[s] > 0]
            if common:
                logs = [np.log(ours[s] / theirs[s]) for s in common]
                ratios[name] = float(np.exp(np.mean(logs)))
        return ratios

    def having(self, measure):
        """List the methods that have a measure; costs are those of imputers."""
        measure = "rmse" if measure in ("seconds", "peak") else measure
        some = {key[2] for key, result in self.found.items() if measure in result}
        return [method for method in self.methods if method in some]


def geometric_mean(ratios):
    """Average ratios of tables."""
    return float(np.exp(np.mean(np.log(list(ratios.values())))))


def ratio_table(results, measure, reference):
    """Tabulate geometric means over the tables, a column for each mechanism."""
    rows = []
    for method in results.having(measure):
        row = [method]
        for mechanism in results.mechanisms:
            ratios = results.ratios(measure, mechanism, method, reference)
            few = len(ratios) < len(results.tables)
            number = f"{geometric_mean(ratios):.3f}" if ratios else "-"
            row.append(f"{number} ({len(ratios)})" if ratios and few else number)
        rows.append(row)
    return table([f"to {reference}", *results.mechanisms], rows)


def value_table(results, measure, mechanism, digits=3):
    """Tabulate means over the seeds, a column for each table."""
    rows = []
    for method in results.having(measure):
        values = [results.mean(measure, mechanism, n, method) for n in results.tables]
        rows.append(
            [method, *("-" if v is None else f"{v:.{digits}f}" for v in values)]
        )
    return table([mechanism, *results.tables], rows)


def average_table(results, mechanism):
    """Tabulate predictions, averaged over the tables that all methods have."""
    rows = []
    for method in results.having("trees"):
        row = [method]
        for measure in ("linear", "trees"):
            cells = [
                results.mean(measure, mechanism, n, method) for n in results.tables
            ]
            there = [value for value in cells if value is not None]
            few = f" ({len(there)})" if len(there) < len(cells) else ""
            row.append(f"{np.mean(there):.3f}{few}" if there else "-")
        rows.append(row)
    return table([mechanism, NAMES["linear"], NAMES["trees"]], rows)


def goal_table(results, ours):
    """Set each goal of one of ours beside what was measured."""
    rows = []
    for measure, mechanism, rival, bound in GOALS[ours]:
        ratios = results.ratios(measure, mechanism, ours, rival)
        if ratios:
            value = geometric_mean(ratios)
            goal = f"{NAMES[measure]}, {mechanism}: at most {bound:g} of {rival}"
            worst = max(ratios, key=ratios.get)
            found = f"{value:.3f} ({len(ratios)} tables; most {ratios[worst]:.2f}, "
            is_whole = len(ratios) == len(results.tables)
            verdict = met(value <= bound) if is_whole else "tables lack"
            rows.append([goal, f"{found}{worst})", verdict])
    rows += everywhere(results, ours) + no_worse(results, ours)
    measures = ("coverage", "coverage, ties shared")
    for mechanism, measure in product(CLOSEST, measures):
        found = {n: results.mean(measure, mechanism, n, ours) for n in results.tables}
        found = {name: value for name, value in found.items() if value is not None}
        if found:
            low, high, *mean_band = BANDS.get(ours, (LOW, HIGH))
            outside = [n for n, value in found.items() if not low <= value <= high]
            mean = float(np.mean(list(found.values())))
            text = f"{min(found.values()):.3f} to {max(found.values()):.3f}"
            text += f", mean {mean:.3f}"
            text += f"; outside: {', '.join(outside)}" if outside else ""
            goal = f"{NAMES[measure]}, {mechanism}: {low} to {high} on every table"
            is_met = not outside
            if mean_band:
                goal += f", {mean_band[0]} to {mean_band[1]} in the mean"
                is_met &= mean_band[0] <= mean <= mean_band[1]
            rows.append([goal, text, met(is_met)])
    return table([f"goal of {ours}", "measured", ""], rows)


def best_table(results):
    """Set the best of ours in CRPS beside the best of mice, on each table."""
    rows = []
    for mechanism, name in product(CLOSEST, results.tables):
        parts = results.means_of_equal_seeds("crps", mechanism, name, (BEST, RIVALS))
        if all(parts):
            best = [min(part, key=part.get) for part in parts]
            scores = [part[m] for part, m in zip(parts, best, strict=True)]
            text = [f"{m}, {v:.3f}" for m, v in zip(best, scores, strict=True)]
            ratio = scores[0] / scores[1]
            among = ", ".join(m.removeprefix("mice ") for m in parts[1])
            row = [mechanism, name, *text, among, f"{ratio:.3f}", met(ratio < 1)]
            rows.append(row)
    head = ["CRPS", "table", "best of ours", "best of mice", "of", "ratio", ""]
    return [table(head, rows)] if rows else []


def losses(results):
    """Set the default beside each other method, where it has results."""
    measures = product(("rmse", "crps", "energy"), CLOSEST)
    columns = {
        f"{NAMES[measure].removesuffix(' of draws')}, {mechanism}": partial(
            cells_of, results, measure, mechanism
        )
        for measure, mechanism in measures
        if mechanism in results.mechanisms
    }
    parts = beside(results.methods, columns)
    absent = [n for n in results.tables if not cells_there(results, n)]
    if parts and absent:
        parts.append(TEXTS("has no results on ", absent=" and ".join(absent)))
    return parts


def cells_there(results, name):
    """Say whether the default has results on a table."""
    return any(
        results.seeds("rmse", mechanism, name, DEFAULT)
        for mechanism in results.mechanisms
    )


def cells_of(results, measure, mechanism, method):
    """Return a measure of a method by table and seed."""
    return {
        (name, seed): value
        for name in results.tables
        for seed, value in results.seeds(measure, mechanism, name, method).items()
    }


def everywhere(results, ours):
    """List the goals that hold on every table, measure by measure."""
    rows = []
    for rival, bound in [EVERYWHERE[ours]] if ours in EVERYWHERE else []:
        for measure, mechanism in product(("rmse", "crps"), CLOSEST):
            ratios = results.ratios(measure, mechanism, ours, rival)
            if ratios:
                worst = max(ratios, key=ratios.get)
                goal = f"{NAMES[measure]}, {mechanism}: at most {bound:g} of {rival}"
                text = f"most {ratios[worst]:.3f}, {worst}"
                good = met(ratios[worst] <= bound)
                rows.append([f"{goal} on every table", text, good])
    return rows


def no_worse(results, ours):
    """Count the tables on which the draws score no worse than those of rivals."""
    rivals, least = NO_WORSE.get(ours, ([], 0))
    rows = []
    for mechanism in CLOSEST:
        each = [results.ratios("crps", mechanism, ours, rival) for rival in rivals]
        names = [n for n in results.tables if all(n in ratios for ratios in each)]
        worst = {n: max(ratios[n] for ratios in each) for n in names if each}
        if worst:
            good = sum(ratio <= 1 for ratio in worst.values())
            text = f"{good} of {len(worst)}; ratio to the best: "
            text += ", ".join(f"{ratio:.3f} {name}" for name, ratio in worst.items())
            goal = f"CRPS, {mechanism}: no worse than {' and '.join(rivals)} on at "
            goal += f"least {least} of {len(TABLES)} tables"
            rows.append([goal, text, met(good >= least)])
    return rows


def met(good):
    """Say it."""
    return "met" if good else "**missed**"


def in_full(results, measure, digits=3):
    """Tabulate a measure under the mechanisms shown in full."""
    shown = [m for m in CLOSEST if m in results.mechanisms]
    return [value_table(results, measure, mechanism, digits) for mechanism in shown]


def protocol(results):
    """Say what was done."""
    seeds = defaultdict(set)
    for _, _, method, seed in results.found:
        seeds[method].add(seed)
    most = max(map(len, seeds.values()))
    fewer = ", ".join(f"{m} {len(s)}" for m, s in seeds.items() if len(s) < most)
    return TEXTS(
        "At most 2000 rows a", most=most, fewer=f", but {fewer}" if fewer else ""
    )


REMARKS = {
    "nearly repeated columns": TEXTS("columns that mice leaves"),
    "cells filled by means": "cells that mice leaves missing are scored as the mean of "
    "their column",
}


def mice_remarks(results, asked):
    """Say whether mice was left out, and where it needed help to fill every cell."""
    absent = ", ".join(m for m in MICE if m in asked and m not in results.methods)
    lines = []
    if absent:
        lines.append(f"Left out, as they need R with the package mice: {absent}.")
    for remark, text in REMARKS.items():
        found = [
            f"{method} on {name}, {mechanism}, seed {seed}: {result[remark]}"
            for (mechanism, name, method, seed), result in results.found.items()
            if result.get(remark)
        ]
        if found:
            lines.append(f"Note: {text} ({'; '.join(found)}).")
    versions = {r["mice"] for r in results.found.values() if "mice" in r}
    if versions:
        lines.append(f"Version of mice: {', '.join(sorted(versions))}.")
    return lines


def commits(results):
    """Say which commits the results are of, where the file knows."""
    known = defaultdict(set)
    for (_, name, method, _), result in results.found.items():
        if method not in MICE and "commit" in result:
            known[method, result["commit"]].add(name)
    said = [f"{m} on {', '.join(sorted(n))}: {c}" for (m, c), n in known.items()]
    return [f"Commits. {'; '.join(said)}."] if said else []


def report(found, options):
    """Write all tables; a list of paragraphs."""
    results = Comparison(found)
    parts = [
        f"# {options.title}",
        made_by("imputation.py", "One thread a method; CPU seconds."),
        protocol(results),
        METHODS_READ,
        *mice_remarks(results, options.methods),
        *commits(results),
        *losses(results),
        "## Goals",
        *[goal_table(results, ours) for ours in GOALS if ours in results.methods],
        *best_table(results),
    ]
    if options.picture:
        parts.append(
            f"![Ratios, table by table](../images/{Path(options.picture).name})"
        )
    for measure, rival in (
        ("rmse", REFERENCE),
        ("mae", REFERENCE),
        ("crps", DRAWN),
        ("energy", DRAWN),
    ):
        title = f"## {NAMES[measure]}: ratio, less is better"
        parts += [title, ratio_table(results, measure, rival)]
        parts += in_full(results, measure) if measure != "mae" else []
    parts += [f"## {NAMES['coverage']}", *in_full(results, "coverage")]
    if results.having("coverage, ties shared"):
        parts.append(TEXTS("Discrete draws cover more"))
        parts += in_full(results, "coverage, ties shared")
    parts += [
        "## Prediction from the filled tables",
        TEXTS("Ridge or logistic"),
        *[average_table(results, m) for m in CLOSEST if m in results.mechanisms],
    ]
    parts += [f"{NAMES[m]}, table by table:\n\n" + "\n\n".join(in_full(results, m))
              for m in ("linear", "trees")]  # fmt: skip
    parts += ["## Time and memory", f"{NAMES['seconds']}, s:"]
    parts += in_full(results, "seconds", 2)[:1]
    parts += [
        ratio_table(results, "seconds", REFERENCE),
        f"{NAMES['sample']}, s:",
        *in_full(results, "sample", 2)[:1],
        TEXTS("Peak memory of fit and"),
        *in_full(results, "peak", 0)[:1],
    ]
    return parts


def picture(found, path):
    """Draw the ratios: a dot for each table, a bar at their geometric mean."""
    import matplotlib.pyplot as plt

    results = Comparison(found)
    panels = [("rmse", REFERENCE), ("crps", DRAWN)]
    fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    styles = zip(
        CLOSEST, ("#0072B2", "#D55E00"), ("o", "D"), (-0.16, 0.16), strict=True
    )
    styles = [style for style in styles if style[0] in results.mechanisms]
    for ax, (measure, rival) in zip(axes, panels, strict=True):
        methods = [
            m for m in results.having(measure) if m != rival
        ]  # the rival is the line at 1
        for mechanism, color, marker, shift in styles:
            for place, method in enumerate(methods):
                ratios = results.ratios(measure, mechanism, method, rival)
                draw_dots(ax, ratios, place + shift, color, marker)
        ax.axvline(1, color="0.6", lw=1, zorder=0)
        ax.set_yticks(range(len(methods)), methods)
        ax.set_ylim(len(methods) - 0.5, -0.5)
        ax.set_xscale("log", base=2)
        low, high = ax.get_xlim()
        low, high = min(low, 0.78), max(high, 1.28)
        steps = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4)
        ticks = [t for t in steps if low <= t <= high]
        ax.set_xlim(low, high)
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.minorticks_off()
        ax.set_xlabel(f"{NAMES[measure]} on unseen rows / that of {rival}")
    for mechanism, color, marker, _ in styles:
        axes[0].plot([], [], marker, color=color, label=f"{mechanism} %")
    axes[0].plot([], [], "|", color="0.2", ms=14, mew=2.5, label="geometric mean")
    fig.legend(loc="outside upper center", ncols=3, frameon=False)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=130)
    plt.close(fig)


def draw_dots(ax, ratios, height, color, marker):
    """Draw one method under one mechanism."""
    if ratios:
        values = list(ratios.values())
        ax.plot(values, [height] * len(values), marker, color=color, ms=5, alpha=0.55)
        ax.plot(geometric_mean(ratios), height, "|", color=color, ms=16, mew=2.5)


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
