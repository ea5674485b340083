"""ForestImputer beside scikit-learn's chained random forests, on lattices and others.

    python benchmarks/chained_forests.py [--results FILE] [--only-report] [--seeds 3]
        [--tables concrete yacht] [--output doc/benchmarks/chained_forests.md]

Cells of complete tables are hidden completely at random, and filled in the rows that
methods learn from.  Errors are in units of each column's range.
"""

import argparse
import time
import warnings
from itertools import product

import numpy as np
from _data import load
from _report import made_by, publish, table
from _results import Results
from sklearn import datasets
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from threadpoolctl import threadpool_limits

from skvnce import ForestImputer, GaussianImputer, MixtureImputer
from skvnce.metrics import crps

BASE, CLOCK = "chained forests", "IterativeImputer"
SHARES = 0.1, 0.2, 0.5
SMALL = "concrete", "yacht", "energy", "boston", "parkinsons", "iris", "wine"
DRAWS = 50
NOTES = f"""\
Rows of training are filled; errors are in units of each column's range. Ratios compare
equal masks with **{BASE}**, `IterativeImputer(RandomForestRegressor(50), max_iter=5)`,
and are geometric means over shares of hidden cells and seeds; CRPS are ratios to its
mean absolute error, which is the CRPS of a single value. CPU times are ratios to those
of `IterativeImputer()`. Coverage is that of 90 % intervals, from {DRAWS} draws.
"""
METHODS = {
    BASE: lambda seed: IterativeImputer(
        RandomForestRegressor(50, random_state=seed), max_iter=5, random_state=seed
    ),
    CLOCK: lambda seed: IterativeImputer(random_state=seed),
    "GaussianImputer": lambda seed: GaussianImputer(random_state=seed),
    "MixtureImputer": lambda seed: MixtureImputer(random_state=seed),
    "ForestImputer": lambda seed: ForestImputer(random_state=seed),
    "ForestImputer, median": lambda seed: ForestImputer(
        strategy="median", random_state=seed
    ),
}
OURS = [name for name in METHODS if name not in (BASE, CLOCK)]


def complete(name):
    """Return the numbers of a table, with its target."""
    if name in ("iris", "wine"):
        bunch = getattr(datasets, f"load_{name}")()
        return np.column_stack([bunch.data, bunch.target])
    X = load(name).select_dtypes("number").to_numpy(float)
    return X[:, X.std(0) > 0]


def masked(X, share, seed):
    """Hide cells, but not all of a row; returns the mask."""
    hidden = np.random.default_rng([seed, int(100 * share)]).random(X.shape) < share
    hidden[hidden.all(1), 0] = False
    return hidden


def measured(method, X, hidden, seed):
    """Fit, fill and score."""
    scale, masked_table = np.ptp(X, axis=0), np.where(hidden, np.nan, X)
    begin = time.process_time()
    imputer = METHODS[method](seed).fit(masked_table)
    filled = imputer.transform(masked_table)
    found = {"seconds": time.process_time() - begin}
    errors = ((filled - X) / scale)[hidden]
    found |= {"mae": abs(errors).mean(), "rmse": np.sqrt((errors**2).mean())}
    if hasattr(imputer, "sample"):
        draws = imputer.sample(masked_table, DRAWS, 0, as_array=True)
        found["crps"] = crps(X / scale, draws / scale, hidden, scale=1)
        ends = np.quantile(draws[:, hidden], [0.05, 0.95], axis=0, method="nearest")
        found["coverage"] = ((ends[0] <= X[hidden]) & (X[hidden] <= ends[1])).mean()
    return {name: float(value) for name, value in found.items()}


def run(results, options):
    """Compute what the results lack."""
    ways = product(options.tables, SHARES, range(options.seeds), METHODS)
    for name, share, seed, method in ways:
        key = {"table": name, "share": share, "seed": seed, "method": method}
        if not results.has(**key):
            X = complete(name)
            results.add(key | measured(method, X, masked(X, share, seed), seed))


def ratios(results, method, measure, **key):
    """List the ratios of a method to what it is compared with."""
    reference = {"seconds": CLOCK}.get(measure, BASE)
    against = "mae" if measure == "crps" else measure
    found = []
    for one in results.of(method=method, **key):
        same = {name: one[name] for name in ("table", "share", "seed")}
        [other] = results.of(method=reference, **same)
        found.append(one[measure] / other[against])
    return found


def mean(values):
    """Return the geometric mean."""
    return f"{np.exp(np.mean(np.log(values))):.3f}"


def page(results, tables):
    """Write the tables of the page."""
    parts = ["# ForestImputer beside chained random forests"]
    parts.append(made_by("chained_forests.py", NOTES))
    header = ["method", "MAE", "RMSE", "CRPS", "coverage", "CPU"]
    lines = []
    for method in OURS:
        cells = [mean(ratios(results, method, m)) for m in ("mae", "rmse", "crps")]
        covered = np.mean([one["coverage"] for one in results.of(method=method)])
        time_of = mean(ratios(results, method, "seconds"))
        lines.append([method, *cells, f"{covered:.3f}", time_of])
    lines.append([BASE, 1, 1, 1, "-", mean(ratios(results, BASE, "seconds"))])
    parts += ["## All tables", table(header, lines)]
    for measure in ("mae", "rmse", "crps"):
        rows = [
            [m, *(mean(ratios(results, m, measure, table=name)) for name in tables)]
            for m in OURS
        ]
        title = f"## {measure.upper()}, table by table"
        parts += [title, table(["method", *tables], rows)]
    return parts


def main():
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results")
    parser.add_argument("--only-report", action="store_true")
    parser.add_argument("--tables", nargs="+", default=list(SMALL))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = Results(options.results)
    with threadpool_limits(1):
        if not options.only_report:
            run(results, options)
    publish(page(results, options.tables), options.output)


if __name__ == "__main__":
    main()
