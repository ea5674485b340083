"""How much memory do methods of fitted estimators add?

    python benchmarks/method_memory.py [--quick] [--rows 100000 1000000]
        [--names GaussianImputer ...] [--seconds 150]

Each method runs in a fresh process with one thread, on a table of 10 columns with 20 %
missing cells, after a fit and a call of the method with 3000 rows.  It prints the peak
of the memory that the method adds, its result included, in MiB and in tables (80 MB for
a million rows).
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from _memory import now_mib

COLUMNS, MISSING, RANK, FITTED = 10, 0.2, 3, 3000
METHODS = ["transform", "sample", "score_samples"]
QUICK_VAE = {"max_iter": 2, "n_importance_samples": 32}


def makers():
    """Return functions that make each estimator, in quick configurations."""
    import skvnce

    def deep(name, **given):
        vae = skvnce.VariationalAutoencoder(**QUICK_VAE)
        density = skvnce.options.IncompleteDensity(
            "vae", max_iter=2, n_training_draws=1, n_importance_samples=16
        )
        model = vae if name == "LAIRImputer" else density
        return getattr(skvnce, name)(model, n_draws=16, n_estimators=1, **given)

    return {
        "GaussianImputer": lambda: skvnce.GaussianImputer(n_parameter_draws=2),
        "IncompleteFactorAnalysis": lambda: skvnce.IncompleteFactorAnalysis(2),
        "CopulaGraphLearner": lambda: skvnce.CopulaGraphLearner(max_iter=20),
        "TruncatedGaussianGraphLearner": lambda: skvnce.TruncatedGaussianGraphLearner(
            max_iter=5, n_steps=4
        ),
        "MixtureImputer": lambda: skvnce.MixtureImputer(5, n_estimators=2, max_iter=3),
        "ConstrainedImputer": skvnce.ConstrainedImputer,
        "VariationalAutoencoder": lambda: skvnce.VariationalAutoencoder(**QUICK_VAE),
        "LAIRImputer": lambda: deep("LAIRImputer", n_steps=3),
        "VGIImputer": lambda: deep("VGIImputer", n_steps=2),
        "VNCEEstimator": lambda: skvnce.VNCEEstimator(max_iter=2),
        "NoisyOr": lambda: skvnce.NoisyOr(3, max_iter=2, binarize=0.0),
    }


def table(n, positive):
    rng = np.random.default_rng(n)
    loadings = np.random.default_rng(7).normal(size=(RANK, COLUMNS))
    X = np.empty((n, COLUMNS))
    for part in np.array_split(X, max(1, n // 100_000)):  # views of X
        part[:] = rng.normal(size=(len(part), RANK)) @ loadings
        part += rng.normal(size=part.shape)
        part[rng.random(part.shape) < MISSING] = np.nan
    return np.abs(X, out=X) if positive else X


def resident(key):
    """Return a line of the status of this process in MiB: VmRSS or VmHWM (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [one for one in lines if one.startswith(key)]
    return int(line.split()[1]) / 1024


def measure(name, method, n):
    """Call a method in this process, and print seconds and the memory added."""
    warnings.simplefilter("ignore")
    positive = name == "TruncatedGaussianGraphLearner"
    small, X = table(FITTED, positive), table(n, positive)
    estimator = makers()[name]().fit(small)
    call = getattr(estimator, method)
    call(small)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, start = now_mib(), time.perf_counter()
    call(X)
    seconds = time.perf_counter() - start
    added = max(0.0, resident("VmHWM") - before)
    print(json.dumps({"seconds": seconds, "added": added}))


def in_new_process(*job, seconds):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--job", *map(str, job)]
    options = {"capture_output": True, "text": True, "env": environment}
    try:
        done = subprocess.run(command, timeout=seconds, check=True, **options)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout)


def main(names, sizes, seconds):
    print("| estimator | method | rows | seconds | MiB added | tables |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in names:
        estimator = makers()[name]()
        for method in METHODS:
            for n in sizes if hasattr(estimator, method) else ():
                found = in_new_process(name, method, n, seconds=seconds)
                if found is None:
                    print(f"| {name} | {method} | {n:,} | over {seconds} | | |")
                    break
                tables = found["added"] * 2**20 / (8 * COLUMNS * n)
                print(
                    f"| {name} | {method} | {n:,} | {found['seconds']:.1f} | "
                    f"{found['added']:.0f} | {tables:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--names", nargs="+")
    parser.add_argument("--seconds", type=int, default=150)
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        measure(given.job[0], given.job[1], int(given.job[2]))
    elif given.quick:
        main(["GaussianImputer", "NoisyOr"], [5000], 100)
    else:
        main(given.names or list(makers()), given.rows, given.seconds)
