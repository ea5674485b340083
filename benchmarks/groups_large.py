"""A large table of groups: time and memory of random effects.

    python benchmarks/groups_large.py            # 100,000 rows in 5,000 groups
    python benchmarks/groups_large.py --quick    # seconds

Columns are correlated between groups and within them, and a fifth of the cells is
missing.  Each line has wall and CPU time and the memory added; errors of hidden cells
are in standard deviations of their columns, beside the imputer without groups.
"""

import time

import numpy as np
import pandas as pd
from _command import options_of
from _data import now_mib, peak_mib

from skvnce import GaussianImputer

WIDTH, MISSING = 15, 0.2


def table(n_groups, n_rows):
    """Return the numbers of groups, complete cells, and which are missing."""
    rng = np.random.default_rng(0)
    between, within = rng.normal(size=(2, 3, WIDTH))
    code = np.repeat(np.arange(n_groups), n_rows)
    effects = 0.6 * rng.normal(size=(n_groups, 3)) @ between
    cells = effects[code] + rng.normal(size=(len(code), 3)) @ within
    cells += rng.normal(size=cells.shape)
    return code, cells, rng.random(cells.shape) < MISSING


def timed(name, call):
    wall, cpu, before = time.perf_counter(), time.process_time(), now_mib()
    result = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    added = max(0, peak_mib() - before)
    print(f"{name}: {wall:.0f} s, CPU {cpu:.0f} s, at most {added:.0f} MiB", flush=True)
    return result


def error(filled, cells, hidden):
    scaled = (filled - cells) / cells.std(0)
    return np.sqrt(np.mean(scaled[hidden] ** 2))


def main(n_groups, n_rows):
    code, cells, hidden = table(n_groups, n_rows)
    frame = pd.DataFrame(np.where(hidden, np.nan, cells)).add_prefix("x")
    grouped = pd.concat([pd.Series(code, name="group"), frame], axis=1)
    for name, given, options in (
        ("with groups", grouped, {"groups": "group"}),
        ("without", frame, {}),
    ):
        imputer = GaussianImputer(random_state=0, **options)
        timed(f"{name}, fit", lambda m=imputer, x=given: m.fit(x))
        timed("  a draw", lambda m=imputer, x=given: m.sample(x, random_state=0))
        filled = timed("  transform", lambda m=imputer, x=given: m.transform(x))
        print(f"  RMSE {error(filled[:, -WIDTH:], cells, hidden):.3f}")


if __name__ == "__main__":
    main(50 if options_of(__doc__, {}).quick else 5000, 20)
