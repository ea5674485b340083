"""Sparse graphs of columns of any kind with missing cells.

    python benchmarks/copula_graph.py [--results FILE] [--only-report] [--quick]
        [--parts simulated real time] [--tables copula20 ring] [--seeds 10]
        [--methods CopulaGraphLearnerCV] [--shares 0 0.3 0.5]
        [--output doc/benchmarks/copula_graph.md]

Simulated tables of which the graph is known, 500 rows of columns of five kinds (20 and
100 nodes) and the ring and the hub of truncated normals (20 nodes, 1000 rows), with 0,
30 and 50 % of the cells missing, MCAR and MAR (by `skvnce.missingness`; the first third
of the columns drives and stays complete). Real tables: held-out log-scores and the
stability of edges. Time and memory of numeric and mixed tables with 30 % missing. Each
result is a line of FILE; those that are there are not computed again.
"""

import argparse
import time
import warnings
from itertools import product

import copula_graph_real as real
from _report import publish
from _results import Results
from copula_graph_methods import METHODS, OURS, TRUNCATED, lacking
from copula_graph_report import page
from copula_graph_scores import score
from copula_graph_tables import HOLES, TABLES, drawn
from copula_graph_time import SIZES, measured_apart
from threadpoolctl import threadpool_limits

PARTS = "simulated", "real", "time"


def simulated(results, options):
    """Learn the graphs of simulated tables."""
    holes = [hole for hole in HOLES if hole[1] in options.shares]
    seeds, tables = range(options.seeds), options.tables
    for seed, name, hole, method in product(seeds, tables, holes, options.methods):
        key = {"part": "simulated", "table": name, "mechanism": hole[0]}
        key |= {"share": hole[1], "seed": seed, "method": method}
        suits = method != TRUNCATED or not name.startswith("copula")
        if suits and not results.has(**key):
            results.add(key | recovered(name, hole, seed, method))
            print(*results.records[-1].values(), flush=True)


def recovered(name, hole, seed, method):
    """Run a method on a table, and score it."""
    table = drawn(name, *hole, seed)
    begin = time.process_time()
    try:
        found = METHODS[method](table, seed)
    except RuntimeError as failure:  # of R
        return {"missing": str(failure)[-200:]}
    seconds = time.process_time() - begin + found.seconds
    notes = {"version": found.version} if found.version else {}
    return score(found, table.truth) | {"seconds": round(seconds, 2)} | notes


def real_tables(results, options):
    """Score real tables."""
    for seed, name in product(range(options.real_seeds), real.TABLES):
        key = {"part": "real", "table": name, "seed": seed}
        if not results.has(**key):
            for method, scores in real.measured(name, seed).items():
                results.add(key | {"method": method} | scores)
                print(*results.records[-1].values(), flush=True)


def times(results, options):
    """Measure time and memory."""
    for kind, d in SIZES[: 1 if options.quick else None]:
        key = {"part": "time", "kind": kind, "d": d}
        if not results.has(**key):
            results.add(key | measured_apart(kind, d))
            print(*results.records[-1].values(), flush=True)


def options_of(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", help="file of JSON lines")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.0, 0.3, 0.5])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--real-seeds", type=int, default=3)
    parser.add_argument("--only-report", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one table of 20 nodes")
    parser.add_argument("--output", help="file of the report")
    options = parser.parse_args(arguments)
    if options.quick:
        options.parts, options.seeds = ["simulated", "time"], 1
        options.tables, options.shares = ["copula20"], [0.3]
        options.methods = [OURS, "Spearman of pairs, graphical lasso"]
    return options


def main():
    """Measure and report."""
    options = options_of()
    warnings.simplefilter("ignore")
    results = Results(options.results)
    if not options.only_report:
        absent = lacking(options.methods)
        if absent:
            print("R lacks their packages, left out:", ", ".join(absent))
        options.methods = [m for m in options.methods if m not in absent]
        ways = {"simulated": simulated, "real": real_tables, "time": times}
        with threadpool_limits(1):
            for part in options.parts:
                ways[part](results, options)
    notes = " ".join(__doc__.split("\n\n")[2].split())
    publish(page(results, notes), options.output)


if __name__ == "__main__":
    main()
