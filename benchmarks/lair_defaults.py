"""What `LAIRImputer()` costs with no argument, and what it gains on tables of any size.

Curved tables with 30 % of the cells missing completely at random; a process of its own
for each size; wall and CPU seconds of fit and transform, peak memory, and the RMSE of
the hidden cells against column means and `GaussianImputer`.

    python benchmarks/lair_defaults.py --output doc/benchmarks/lair_defaults.md
"""

import argparse
import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from _report import made_by, publish, table
from sklearn.impute import SimpleImputer

from skvnce import GaussianImputer, LAIRImputer
from skvnce.metrics import imputation_rmse
from skvnce.missingness import hide, mcar

SIZES = [(60, 5), (100, 5), (1000, 10), (3000, 40)]


def curved(n, d):
    """Draw rows around a curved surface of three dimensions."""
    rng = np.random.default_rng(n + d)
    z = rng.normal(size=(n, 3))
    inside = np.tanh(z @ rng.normal(size=(3, 16)) + rng.normal(size=16))
    return inside @ rng.normal(size=(16, d)) / 2 + 0.5 * rng.normal(size=(n, d))


def measure(n, d):
    """Fit and fill one table; a row of the report."""
    warnings.simplefilter("ignore")
    full = curved(n, d)
    hidden = mcar(full, 0.3, random_state=0)
    X = hide(full, hidden)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    imputer = LAIRImputer(random_state=0).fit(X)
    filled = imputer.transform(X)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    error = imputation_rmse(full, filled, hidden)
    rivals = [
        error / imputation_rmse(full, rival.fit_transform(X), hidden)
        for rival in (SimpleImputer(), GaussianImputer())
    ]
    first = imputer.estimators_[0]
    return [
        f"{n} x {d}",
        f"{wall:.1f}",
        f"{cpu:.1f}",
        f"{memory:.0f}",
        len(imputer.estimators_),
        first.best_iter_,
        *(f"{ratio:.2f}" for ratio in rivals),
    ]


def main():
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", help="file of the report")
    options = parser.parse_args()
    rows = []
    for size in SIZES:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rows.append(pool.submit(measure, *size).result())
        print(*rows[-1], flush=True)
    header = ["table", "wall s", "CPU s", "peak MiB more", "members", "rounds"]
    parts = [
        "# LAIRImputer() with no argument",
        made_by("lair_defaults.py", ""),
        "Fit and transform of the same table; RMSE of the hidden cells as a ratio to "
        "that of column means and of `GaussianImputer()`.",
        table([*header, "RMSE / means", "RMSE / Gaussian"], rows),
    ]
    publish(parts, options.output)


if __name__ == "__main__":
    main()
