"""Sparse graphs of columns of any kind with missing cells.

    python benchmarks/copula_graph.py [--results FILE] [--only-report] [--quick]
        [--tables copula20 ring] [--seeds 10]
        [--methods CopulaGraphLearnerCV] [--shares 0 0.3 0.5]
        [--output doc/benchmarks/copula_graph.md]

Simulated tables of which the graph is known, 500 rows of columns of five kinds (20 and
100 nodes) and the ring and the hub of truncated normals (20 nodes, 1000 rows), with 0,
30 and 50 % of the cells missing, MCAR and MAR (by `skvnce.missingness`; the first third
of the columns drives and stays complete). Each result is a line of
FILE; those that are there are not computed again.
"""

import time
from itertools import product

from _command import carry_out, options_of
from copula_graph_methods import METHODS, OURS, TRUNCATED, lacking
from copula_graph_report import page
from copula_graph_scores import score
from copula_graph_tables import HOLES, TABLES, drawn


def cells(options):
    """List what is asked for, one set after the other."""
    holes = [hole for hole in HOLES if hole[1] in options.shares]
    seeds, tables = range(options.seeds), options.tables
    for seed, name, hole, method in product(seeds, tables, holes, options.methods):
        key = {"part": "simulated", "table": name, "mechanism": hole[0]}
        if method != TRUNCATED or not name.startswith("copula"):
            yield key | {"share": hole[1], "seed": seed, "method": method}


def measured(key, options):
    """Run a method on a table, and score it."""
    seed = key["seed"]
    table = drawn(key["table"], key["mechanism"], key["share"], seed)
    begin = time.process_time()
    try:
        found = METHODS[key["method"]](table, seed)
    except RuntimeError as failure:  # of R
        return {"missing": str(failure)[-200:]}
    seconds = time.process_time() - begin + found.seconds
    notes = {"version": found.version} if found.version else {}
    return score(found, table.truth) | {"seconds": round(seconds, 2)} | notes


def main():
    """Measure and report."""
    quick = {"seeds": 1, "tables": ["copula20"], "shares": [0.3]}
    options = options_of(
        __doc__,
        quick | {"methods": [OURS, "Spearman of pairs, graphical lasso"]},
        results=None,
        tables=[*TABLES],
        methods=[*METHODS],
        shares=[0.0, 0.3, 0.5],
        seeds=10,
        only_report=False,
    )
    carry_out(cells, measured, page, options, __doc__, lacking)


if __name__ == "__main__":
    main()
