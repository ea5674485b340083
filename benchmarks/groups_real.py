"""Hidden cells of clustered tables of R: errors of draws and of single values.

    python benchmarks/groups_real.py [--methods ours ours_slopes flat id wide jomo_200
        pan mice_2lpan] [--tables brandsma popmis ...] [--settings cells rows]
        [--seeds 3] [--results FILE] [--quick]
    python benchmarks/groups_report.py --output doc/benchmarks/groups.md

20 % of the cells are hidden at random ("cells"), or all cells that vary within groups
of 20 % of the rows ("rows"): whole visits. Groups and times are always known. "wide", a
row a group, is for tables with planned visits. A line of the results is a seed of a
method; what is there is not repeated.
"""

import argparse
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from _groups_methods import METHODS, complete_tables, measure, numbers
from _groups_rivals import is_categorical
from groups_tables import SETTINGS, TABLES, has_setting, mask

from skvnce.metrics import crps

RESULTS = Path(__file__).with_name("results") / "groups_real.jsonl"
DEFAULT, DRAWS = (
    ("ours", "ours_slopes", "flat", "id", "wide", "jomo_200", "pan", "mice_2lpan"),
    20,
)


def hide(frame, hidden):
    """Make cells missing."""
    cells = {name: frame[name].mask(hidden[:, j]) for j, name in enumerate(frame)}
    return frame.assign(**cells)


def scores(frame, draws, filled, scored):
    """Score cells in units of the standard deviation of each column.

    RMSE are those of the mean of the draws, and of `transform` in numeric columns,
    beside that of the mean of the draws in them.
    """
    truth = numbers(frame)
    scale = np.nanstd(truth, axis=0)
    found = {"crps": crps(truth, draws, scored, scale=np.where(scale > 0, scale, 1))}
    mean, cells = draws.mean(0), {"rmse": scored}
    numeric = scored & ~np.array([is_categorical(frame[name]) for name in frame])
    if numeric.any():
        cells["rmse_numbers"] = numeric
    for name, where in cells.items():
        found[name] = _rmse(truth, mean, scale, where)
    if filled is not None and numeric.any():
        found["rmse_transform"] = _rmse(truth, filled, scale, numeric)
    return {name: float(value) for name, value in found.items()}


def _rmse(truth, values, scale, where):
    errors = (values - truth)[where] / np.broadcast_to(scale, truth.shape)[where]
    return np.sqrt((errors**2).mean())


def measured(method, table, setting, seed, n_draws):
    """Hide, complete and score."""
    hidden, scored = mask(table, setting, seed)
    incomplete = hide(table.frame, hidden)
    draws, filled, costs = complete_tables(
        method, incomplete, table.roles, n_draws, seed + 1, table.visit
    )
    return scores(table.frame, draws, filled, scored) | costs


def run(results, options):
    """Compute what the results lack."""
    for name in options.tables:
        table = TABLES[name]()
        ways = product(range(options.seeds), options.settings, options.methods)
        for seed, setting, method in ways:
            key = {"table": name, "setting": setting, "seed": seed, "method": method}
            possible = method != "wide" or table.visit is not None
            if possible and has_setting(table, setting) and not results.has(**key):
                found = measured(method, table, setting, seed, options.draws)
                results.add(key | {"draws": options.draws} | found)


def main():
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--methods", nargs="+", default=list(DEFAULT), choices=list(METHODS)
    )
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--results", default=str(RESULTS))
    parser.add_argument("--quick", action="store_true", help="2 seeds, not kept")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.quick:
        options.results, options.seeds = None, 2
    measure(run, options)


if __name__ == "__main__":
    main()
