"""How long does a large table take, and how much memory?

    python benchmarks/imputation_large.py [--rows 100000] [--columns 50] [--output FILE]

Five factors and noise of equal variance; 20 % of the cells missing at random.
"""

import argparse
import resource
import sys
import time

import numpy as np
from _report import made_by, publish, table

from skvnce import GaussianImputer
from skvnce.missingness import hide, mcar


def simulate(n_rows, n_columns):
    """Draw a table and hide cells."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(5, n_columns))
    X = rng.normal(size=(n_rows, 5)) @ loadings + rng.normal(size=(n_rows, n_columns))
    return hide(X, mcar(X, 0.2, random_state=0))


def peak():
    """Read the largest memory of this process so far, in GiB."""
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main():
    """Time and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--output")
    options = parser.parse_args()
    X, imputer = simulate(options.rows, options.columns), GaussianImputer()
    steps = {
        "fit": lambda: imputer.fit(X),
        "transform": lambda: imputer.transform(X),
        "first sample, which draws the parameters": lambda: imputer.sample(X),
        "further sample": lambda: imputer.sample(X),
    }
    rows = []
    for name, step in steps.items():
        start = time.perf_counter()
        step()
        rows.append([name, f"{time.perf_counter() - start:.1f}", f"{peak():.2f}"])
    notes = f"{options.rows} rows, {options.columns} columns, wall time; goal: a fit in"
    notes = made_by("imputation_large.py", f"{notes} 120 s and 2 GB.")
    header = ["step", "seconds", "peak of the process so far, GiB"]
    publish(["# A large table", notes, table(header, rows)], options.output)


if __name__ == "__main__":
    main()
