"""How do time and memory of fits grow with rows and columns?

    python benchmarks/growth.py [--quick] [--seconds 120] [--rows 1000 10000]
        [--columns 5 50] [--names NoisyOr] [--records FILE]
        [--output FILE --picture FILE]

Each fit runs in a fresh process with one thread, and reports CPU seconds and the memory
that it adds.  Sizes grow as long as the next fit is expected to take less than
`--seconds`.  What is in the file `--records` is not measured again.  Beside them are
two physical limits, measured on the same machine: the time to read the table once for
each E-step at the bandwidth of memory, and the time of its floating-point operations at
the speed of a large matrix product.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from _memory import now_mib, peak_mib
from _report import made_by, publish, table

MISSING, RANK = 0.2, 4
ROWS = [1000, 10_000, 100_000, 1_000_000]
COLUMNS = [5, 20, 50, 100, 200, 400, 800]
NOTE = """The tables of TruncatedGaussianGraphLearner are absolute values of these, and
those of NoisyOr say whether a value exceeds 1. The fits were made in several runs on a
machine with two cores that other processes used, too. The largest fit of LAIRImputer
took longer than expected. IncompleteDensity is the model of VGIImputer, and the
predictors by multiple imputation fit an imputer and then an estimator to each completed
table.

MixtureImputer was measured later, at commit 945802e on 26 November 2026, and its series
end where the next fit would take longer than 60 s.

The operations of an E-step are two products of the table and a matrix, a product of
each row and an inverse, and one inverse for each pattern of missing cells. EM uses rows
of the same pattern through their weight, mean and scatter only, so that k + 1 rows
replace all rows that observe the same k columns. A million rows of 10 columns are 6,055
rows then, and an E-step takes less time than reading the table would. Where nearly each
row has a pattern of its own, nothing is left out. There the two products alone, in
parts of the table that fit into the cache, take longer than their operations would at
the speed of a large product (column "two products"), and the rest of the time is spread
over some twenty operations on rows in the cache, and gathering and inverting one small
block for each row. Products of transposed parts are twice as fast at 20 columns, and
those of 24 columns take less time than those of 20; neither would bring the E-step near
three times the limit. Sharing inverses, sweeping blocks together, the order of memory
and malloc's thresholds were tried, and the last has no effect.

Before tables were condensed, IncompleteFactorAnalysis took 59 to 74 s for a million
rows in memory. Of 200,000 rows x 10 columns, which it reads in each of 195 rounds, it
took 15.6 s in memory and 30.1 s in `Chunks`; now 1.4 and 1.8 s, with the same rounds
(CPU time, same machine).

The M-steps of graphs of 20 and 50 columns are small: up to 10 ms each, most of it the
overhead of operations on matrices of some thousand entries. These columns have four
strong common factors, which is the hardest case; the graphical lasso of
CopulaGraphLearner had not converged after 1000 proximal gradient steps. With steps of
Newton's method between them, 84 M-steps of one fit (d = 100) took 2.0 instead of 5.3 s,
and all converged; on rings of 50 and 100 columns 0.09 and 0.25 instead of 0.12 and 0.28
s. Newton steps after every 2 to 12 instead of 8 steps, with at most 10 or 20 conjugate
gradients, take 0.7 to 1.1 of the time at 20 columns, 0.9 to 1.8 at 50 and 0.8 to 2.2 at
100: no choice is better at all three."""
E_STEP_HEADER = ["rows", "columns", "patterns", "operations, ms", "reading, ms"]
E_STEP_HEADER += ["two products, ms", "E-step of all rows, ms", "ratio"]
E_STEP_HEADER += ["rows left", "condensing, ms"]
E_STEP_HEADER += ["E-step of the rows left, ms", "ratio"]
M_STEP_HEADER = ["estimator", "columns", "M-steps", "fit, ms", "M-steps, ms"]
M_STEP_HEADER += ["operations, ms", "reading, ms", "ratio"]
FIXED_COLUMNS, FIXED_ROWS = 10, 2000
FEWEST = 200  # rows
CACHE = 2**20  # bytes: larger matrices are read from memory at each use
OPTIONS = {
    "GaussianImputer": {"marginals": "normal", "random_state": 0},
    "IncompleteFactorAnalysis": {"n_components": RANK},
    "TruncatedGaussianGraphLearner": {"random_state": 0},
    "TruncatedGaussianGraphLearnerCV": {"random_state": 0},
    "CopulaGraphLearner": {"random_state": 0},
    "CopulaGraphLearnerCV": {"random_state": 0},
    "NoisyOr": {"n_components": RANK, "random_state": 0},
    "MixtureImputer": {"random_state": 0},
    "ConstrainedImputer": {"random_state": 0},
    "VariationalAutoencoder": {"random_state": 0},
    "LAIRImputer": {"random_state": 0},
    "VGIImputer": {"random_state": 0},
    "VNCEEstimator": {"random_state": 0},
}
E_STEPS = [(20_000, 10), (1_000_000, 10), (200_000, 20), (20_000, 50), (5000, 200)]
M_STEPS = [
    (name, 1000, d)
    for name in ("TruncatedGaussianGraphLearner", "CopulaGraphLearner")
    for d in (20, 50, 100, 200)
]


def simulate(n, d):
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(RANK, d))
    X = rng.normal(size=(n, RANK)) @ loadings + rng.normal(size=(n, d))
    X[rng.random(X.shape) < MISSING] = np.nan
    return X


def table_for(name, n, d):
    """Simulate any numbers, positive ones, or zeros and ones."""
    X = simulate(n, d)
    if name.startswith("TruncatedGaussianGraphLearner"):
        return abs(X)
    if name == "NoisyOr":
        return np.where(np.isnan(X), np.nan, X > 1)
    return X


def fit_once(name, n, d):
    """Fit in this process; return CPU seconds, MiB and the number of rounds."""
    warnings.simplefilter("ignore")
    if n > FEWEST:
        made(name).fit(table_for(name, FEWEST, 5))  # imports
    estimator, X = made(name), table_for(name, n, d)
    before, start = now_mib(), time.process_time()
    estimator.fit(X)
    seconds = time.process_time() - start
    record = {"name": name, "n": n, "d": d, "seconds": seconds}
    return record | {"mib": peak_mib() - before}


def made(name):
    import skvnce

    return getattr(skvnce, name)(**OPTIONS[name])


def speeds():
    """Measure flops a second of a matrix product, and bytes a second of a sum."""
    A, x = np.ones((1500, 1500)), np.ones(2**24)
    flops = 2 * 1500**3 / least_time(lambda: A @ A)
    return {"flops": flops, "bytes": x.nbytes / least_time(x.sum)}


def least_time(work, repeats=5):
    """Measure CPU seconds of calls that together take at least a fifth of a second."""
    n_calls, found = 1, [0.0]
    while found[-1] < 0.2:
        n_calls *= 2
        found.append(_seconds(work, n_calls))
    return min(_seconds(work, n_calls) for _ in range(repeats)) / n_calls


def _seconds(work, n_calls):
    start = time.process_time()
    for _ in range(n_calls):
        work()
    return time.process_time() - start


def e_step_once(n, d):
    """Time one E-step of EM with and without `condensed`, and count its operations."""
    import torch

    from skvnce._incomplete import Incomplete
    from skvnce.algorithms.gaussian import em
    from skvnce.algorithms.gaussian.rows import Rows
    from skvnce.distributions.normal import Normal, prepare

    X = simulate(n, d)
    X = (X - np.nanmean(X, 0)) / np.nanstd(X, 0)
    rows = Rows(Incomplete.from_array(X), torch.ones(n, dtype=torch.float64))
    start = Normal(torch.zeros(d).double(), torch.eye(d).double())
    normal = em.iterate(rows, 0.1 * d, start, max_iter=2, tol=0.0).normal
    few = rows.condensed()
    found = {
        "rows_left": len(few.weights),
        "seconds": least_time(lambda: em.e_step(prepare(normal), few), 3),
        "seconds_of_all": least_time(lambda: em.e_step(prepare(normal), rows), 3),
        "condensing": least_time(rows.condensed, 3),
    }
    masks = np.isnan(X)
    # two products of the table and a matrix, one of each row and the inverse of a
    # block, and one Cholesky factorisation and inverse for each pattern
    block, own = (
        np.minimum(mask.sum(1), (~mask).sum(1)).astype(float)
        for mask in (masks, np.unique(masks, axis=0))
    )
    flops = n * (2 * d**2 + 2 * d**2) + (2 * block**2).sum() + (own**3).sum()
    shares = {"patterns": len(own), "flops": flops, "bytes": X.nbytes}
    shares["products"] = least_time(lambda: two_products(rows.data.x, normal[1]), 3)
    return {"n": n, "d": d, **found, **shares}


def two_products(x, matrix):
    """Multiply parts of a table by a matrix, and the parts by these products."""
    for part in x.split(max(1, 2**16 // x.shape[1])):
        (part @ matrix).T @ part


def m_steps_once(name, n, d):
    """Time all M-steps of a fit of a graph; count their operations in a second fit."""
    from skvnce.algorithms.graph import graphical_lasso, quadratic

    module, function = {
        "TruncatedGaussianGraphLearner": (quadratic, "minimise"),
        "CopulaGraphLearner": (graphical_lasso, "solve"),
    }[name]
    m_step, spent, count = getattr(module, function), [], Operations()

    def timed(*arguments, **options):
        start = time.process_time()
        found = m_step(*arguments, **options)
        spent.append(time.process_time() - start)
        return found

    def counted(*arguments, **options):
        with count:
            return m_step(*arguments, **options)

    warnings.simplefilter("ignore")
    X, seconds = table_for(name, n, d), []
    made(name).fit(X[:, :5])  # imports
    for run in (timed, timed, timed, counted):
        setattr(module, function, run)
        spent.clear()
        start = time.process_time()
        made(name).fit(X)
        seconds.append((sum(spent), time.process_time() - start, len(spent)))
    median = sorted(seconds[:3])[1]
    found = dict(zip(("seconds", "whole", "n_steps"), median, strict=True))
    return {"n": n, "d": d, **found, "flops": count.flops, "bytes": count.bytes}


def Operations():  # noqa: N802
    """Make a context that counts operations, and bytes of matrices beyond the cache."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    aten = torch.ops.aten
    cubes = {  # operations in cubes of the width of a matrix
        aten.linalg_cholesky_ex.default: 1 / 3,
        aten.cholesky_inverse.default: 2 / 3,
        aten.cholesky_solve.default: 2.0,
        aten._linalg_svd.default: 4 / 3,
    }

    class Counter(TorchDispatchMode):
        flops = bytes = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            if func in cubes:
                first = tensors[0]
                self.flops += cubes[func] * first.numel() * first.shape[-1]
            elif func._overloadpacket in flop_registry:
                self.flops += flop_registry[func._overloadpacket](
                    *args, **(kwargs or {}), out_val=out
                )
            elif func in (aten.mv.default, aten.addmv.default, aten.dot.default):
                self.flops += 2 * max(one.numel() for one in tensors)
            else:
                return out
            sizes = [one.numel() * one.element_size() for one in tensors]
            self.bytes += sum(size for size in sizes if size > CACHE)
            return out

    return Counter()


def in_new_process(*arguments, limit):
    """Run this script; return its record, or None if it took too much CPU time."""
    command = [sys.executable, __file__, "--job", *map(str, arguments)]
    command += ["--seconds", str(4 * limit)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    options = {"capture_output": True, "text": True, "env": environment}
    done = subprocess.run(command, check=False, **options)
    if done.returncode:
        print(done.stderr[-500:], file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def in_this_process(*arguments, limit):
    """Make a measurement of which only the time is right, without a new start."""
    return job(*arguments)


def measured(name, n, d, limit, path, run=in_new_process):
    """Look up a measurement, or make it and append it to the file."""
    lines = path.read_text().splitlines() if path and path.exists() else []
    known = {tuple(key): record for key, record in map(json.loads, lines)}
    if (name, n, d) in known or not limit:
        return known.get((name, n, d))
    record = run(name, n, d, limit=limit)
    print(record, flush=True)
    if record and path:
        with path.open("a") as file:
            print(json.dumps([[name, n, d], record]), file=file)
    return record


def series(name, sizes, limit, path, run=in_new_process):
    """Fit to growing tables, as long as the next fit is expected to be within it."""
    found = []
    for n, d in sizes:
        fits = not found or expected(found, n * d) <= limit
        record = measured(name, n, d, limit if fits else 0, path, run)
        if record is None:
            break
        found.append(record)
    return found


def expected(records, n_cells):
    """Extrapolate the seconds of the last fit, at least in proportion to the cells."""
    cells, seconds = (
        [r["n"] * r["d"] for r in records],
        [r["seconds"] for r in records],
    )
    power = 1.0
    if len(records) > 1:
        last = np.diff(np.log(seconds[-2:]))[0] / np.diff(np.log(cells[-2:]))[0]
        power = max(power, last)
    return seconds[-1] * (n_cells / cells[-1]) ** power


def slope(records, key, value):
    """Fit the exponent of growth to the larger half of the sizes."""
    some = records[len(records) // 2 :] if len(records) > 3 else records
    x, y = (np.log([max(r[k], 1e-3) for r in some]) for k in (key, value))
    return np.polyfit(x, y, 1)[0] if len(some) > 1 else np.nan


def growth_rows(found):
    for (name, key), records in found.items():
        sizes = ", ".join(f"{r[key]:,}: {r['seconds']:.2g} s" for r in records)
        memory = ", ".join(f"{r[key]:,}: {r['mib']:.0f}" for r in records)
        slopes = [f"{slope(records, key, value):.2f}" for value in ("seconds", "mib")]
        yield [name, key, sizes, slopes[0], memory, slopes[1]]


def limit(one, speed):
    return max(one["flops"] / speed["flops"], one["bytes"] / speed["bytes"])


def sized(one):
    return f"{one['n']:,} x {one['d']}"


def verdict(name, goal, steps, speed):
    """Say which steps are within a multiple of their limit."""
    found = {True: [], False: []}
    for label, one in steps:
        ratio = one["seconds"] / limit(one, speed)
        found[ratio <= goal].append(f"{label} ({ratio:.1f})")
    met, missed = ("; ".join(found[key]) or "none" for key in (True, False))
    return (
        f"Goal: each {name} within {goal} times its limit. Met: {met}. "
        f"**Missed**: {missed}."
    )


def e_step_rows(steps, speed):
    for one in steps:
        values = [one["flops"] / speed["flops"], one["bytes"] / speed["bytes"]]
        keys = "products", "seconds_of_all", "condensing", "seconds"
        values += [one[key] for key in keys]
        cells = [f"{1e3 * value:.2f}" for value in values]
        sizes = [f"{one[key]:,}" for key in ("n", "d", "patterns")]
        ratios = [
            f"{one[key] / limit(one, speed):.1f}"
            for key in ("seconds_of_all", "seconds")
        ]
        left = f"{one['rows_left']:,}"
        yield [*sizes, *cells[:4], ratios[0], left, *cells[4:], ratios[1]]


def m_step_rows(steps, speed):
    for name, one in steps:
        values = one["flops"] / speed["flops"], one["bytes"] / speed["bytes"]
        values = one["whole"], one["seconds"], *values
        cells = [f"{1e3 * value:.1f}" for value in values]
        ratio = f"{one['seconds'] / limit(one, speed):.1f}"
        yield [name, one["d"], one["n_steps"], *cells, ratio]


def draw(found, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
    for column, key in enumerate(("n", "d")):
        for row, value in enumerate(("seconds", "mib")):
            axis = axes[row, column]
            for (name, own), records in found.items():
                if own == key and records:
                    x, y = zip(*((r[key], r[value]) for r in records), strict=True)
                    place = list(OPTIONS).index(name)
                    style = f"C{place % 10}{'os'[place // 10]}-"
                    axis.loglog(x, y, style, label=name)
            fixed = (FIXED_COLUMNS, FIXED_ROWS)[column]
            other = "columns" if key == "n" else "rows"
            axis.set_xlabel(f"{'rows' if key == 'n' else 'columns'} ({fixed} {other})")
            axis.set_ylabel("CPU seconds" if value == "seconds" else "MiB added")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=110)


def report(options):
    small = options.quick
    rows, columns, fixed_rows = options.rows, options.columns, FIXED_ROWS
    if small:
        rows, columns, fixed_rows = [FEWEST, 2 * FEWEST], COLUMNS[:1], FEWEST
    speed = measured("speeds", 0, 0, 60, options.records)
    sizes = [(2000, 5)] if small else E_STEPS
    e_steps = [measured("e-step", *one, 60, options.records) for one in sizes]
    m_steps = [
        (name, measured(f"m-steps of {name}", *size, 200, options.records))
        for name, *size in (M_STEPS[:1] if small else M_STEPS)
    ]
    found = {}
    for place, name in enumerate(options.names):
        run = in_new_process
        if small and place:  # a quick run only tries the others
            run, rows, columns = in_this_process, [FEWEST // 2], []
        kept = options.seconds, options.records, run
        found[name, "n"] = series(name, [(n, FIXED_COLUMNS) for n in rows], *kept)
        found[name, "d"] = series(name, [(fixed_rows, d) for d in columns], *kept)
    if options.picture:
        draw(found, options.picture)
    header = ["estimator", "size", "CPU time", "slope", "MiB added", "slope"]
    setting = (
        f"Normal tables of {RANK} factors, {MISSING:.0%} of the cells missing; n rows "
        f"with {FIXED_COLUMNS} columns, d columns with {FIXED_ROWS} rows. A series "
        f"ends where the next fit would take longer than {options.seconds:g} s of CPU "
        "time. Slopes are exponents over the larger half of the sizes."
    )
    limits = (
        f"A large matrix product runs at {speed['flops'] / 1e9:.1f} Gflop/s, and a sum "
        f"reads {speed['bytes'] / 1e9:.1f} GB/s. A ratio is the time of a step over "
        "the larger of its two limits: operations, and reading what is larger than the "
        "cache. Rows of the same pattern of missing cells are condensed, once in a fit."
    )
    return [
        "# Growth of time and memory",
        made_by("growth.py", "One thread; each fit in its own process."),
        setting,
        table(header, growth_rows(found)),
        *(["![Growth](../images/growth.png)"] if options.picture else []),
        "## Physical limits",
        limits,
        table(E_STEP_HEADER, e_step_rows(e_steps, speed)),
        verdict("E-step", 3, [(sized(one), one) for one in e_steps], speed),
        table(M_STEP_HEADER, m_step_rows(m_steps, speed)),
        verdict("M-step", 5, [(f"{n}, d = {o['d']}", o) for n, o in m_steps], speed),
        NOTE,
    ]


def job(what, n, d):
    if what == "speeds":
        return speeds()
    if what == "e-step":
        return e_step_once(n, d)
    if what.startswith("m-steps of "):
        return m_steps_once(what.removeprefix("m-steps of "), n, d)
    return fit_once(what, n, d)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--columns", nargs="+", type=int, default=COLUMNS)
    parser.add_argument("--names", nargs="+", default=list(OPTIONS), choices=OPTIONS)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--output")
    parser.add_argument("--picture")
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        most = int(given.seconds) + 60
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        print(json.dumps(job(given.job[0], *map(int, given.job[1:]))))
    else:
        publish(report(given), given.output)
