"""A million rows for MixtureImputer: the rows in memory, and parts of them.

    python benchmarks/large_mixture.py                # a million rows x 20, minutes
    python benchmarks/large_mixture.py --rows 20000   # seconds

The table is that of `large.py`.  In memory every row counts in the fit; the fit to
`Chunks` reads a sample of the rows, and fills one part after the other.  Each line has
wall and CPU time, the memory added, and the root mean squared error of hidden cells in
standard deviations of their columns, beside GaussianImputer on the same rows.
"""

import argparse
import time

import numpy as np
import pandas as pd
from _memory import now_mib, peak_mib
from large import rows

from skvnce import GaussianImputer, MixtureImputer
from skvnce.options import Chunks

PARTS, HIDDEN = 10, 0.05


def table(n):
    """Return the table, the table with more cells hidden, and which those are."""
    complete = pd.concat([rows(k, n // PARTS) for k in range(PARTS)], ignore_index=True)
    rng = np.random.default_rng(0)
    hidden = complete.notna().to_numpy() & (rng.random(complete.shape) < HIDDEN)
    return complete, complete.mask(hidden), hidden


def error(filled, complete, hidden):
    scaled = (filled - complete.to_numpy()) / complete.std().to_numpy()
    return np.sqrt(np.mean(scaled[hidden] ** 2))


def fill_parts(imputer, parts):
    return np.concatenate([imputer.transform(part) for part in parts])


def timed(name, call):
    wall, cpu, before = time.perf_counter(), time.process_time(), now_mib()
    result = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    added = max(0, peak_mib() - before)
    print(f"{name}: {wall:.0f} s, CPU {cpu:.0f} s, at most {added:.0f} MiB", flush=True)
    return result


def main(n):
    complete, given, hidden = table(n)
    MixtureImputer(random_state=0).fit(given[:500])  # the compilation is not counted
    parts = [given[k : k + n // PARTS] for k in range(0, n, n // PARTS)]
    for kind in (GaussianImputer, MixtureImputer):
        lazily = kind(random_state=0)
        timed(f"{kind.__name__}, fit to Chunks", lambda m=lazily: m.fit(Chunks(parts)))
        filled = timed("  fill the parts", lambda m=lazily: fill_parts(m, parts))
        print(f"  RMSE {error(filled, complete, hidden):.4f}")
        whole = kind(random_state=0)
        timed(f"{kind.__name__}, fit in memory", lambda m=whole: m.fit(given))
        filled = timed("  transform", lambda m=whole: m.transform(given))
        print(f"  RMSE {error(filled, complete, hidden):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    main(parser.parse_args().rows)
