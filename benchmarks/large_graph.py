"""A graph of a table in parts: time, memory, and the difference from other fits.

    python benchmarks/large_graph.py [--quick] [--parts 10] [--rows 100000]

It fits CopulaGraphLearner to the table of `large.py`: to chunks, to the same rows in
memory, and to parquet files on a LocalCluster of dask with two workers of 1 GiB.  Each
of the first two runs in a process of its own, whose peak memory it prints.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import dask.dataframe as dd
import numpy as np
from _memory import now_mib, peak_mib
from large import cluster, counted_bytes, peak, rows, write

from skvnce import CopulaGraphLearner
from skvnce.options import Chunks

HERE = Path(__file__)


def fit(X, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CopulaGraphLearner(random_state=seed).fit(X)


def summary(learner, seconds):
    return {
        "wall": seconds,
        "rounds": learner.n_iter_,
        "associations": learner.associations_.tolist(),
        "edges": int((learner.associations_ != 0).sum()) // 2,
    }


def fit_once(where, n_parts, n, seed):
    """Fit in this process, and print what was measured as JSON."""
    chunks = Chunks([partial(rows, number, n) for number in range(n_parts)])
    X = np.concatenate(list(chunks)) if where == "memory" else chunks.map(np.asarray)
    before, start, cpu = now_mib(), time.perf_counter(), time.process_time()
    learner = fit(X, seed)
    found = summary(learner, time.perf_counter() - start)
    found |= {"cpu": time.process_time() - cpu, "added": peak_mib() - before}
    print(json.dumps(found))


def in_new_process(*arguments):
    command = [sys.executable, HERE, "--fit", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def on_cluster(n_parts, n, seed):
    folder = Path(tempfile.mkdtemp(prefix="large_graph_"))
    try:
        write(folder, n_parts, n)
        with cluster("1GiB") as client:
            frame, start = dd.read_parquet(folder), time.perf_counter()
            with counted_bytes() as counts:
                learner = fit(frame, seed)
            found = summary(learner, time.perf_counter() - start)
            peaks = client.run(peak).values()
        traffic = (counts["in"] + counts["out"]) / 2**20
        return found | {"traffic": traffic, "peaks": list(peaks)}
    finally:
        shutil.rmtree(folder)


def difference(one, other):
    return float(abs(np.subtract(one["associations"], other["associations"])).max())


def main(n_parts, n):
    chunks, memory, other = (
        in_new_process(where, n_parts, n, seed)
        for where, seed in (("chunks", 0), ("memory", 0), ("memory", 1))
    )
    print(f"{n_parts * n:,} rows x 20")
    for name, found in (("chunks", chunks), ("memory", memory)):
        print(
            f"{name}: {found['wall']:.0f} s, {found['cpu']:.0f} s of CPU time, "
            f"{found['added']:.0f} MiB added, {found['rounds']} rounds, "
            f"{found['edges']} edges",
            flush=True,
        )
    lazily = on_cluster(n_parts, n, 0)
    print(
        f"dask: {lazily['wall']:.0f} s, {lazily['traffic']:.0f} MiB through the "
        f"scheduler, peak memory of workers",
        *(f"{one:.0f} MiB" for one in lazily["peaks"]),
    )
    print("largest difference of associations from that of chunks:")
    for name, one in (("dask", lazily), ("memory", memory)):
        print(f"  {name}: {difference(chunks, one):.1e}")
    print(f"  of two seeds in memory: {difference(memory, other):.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--rows", type=int, default=100_000, help="of a part")
    parser.add_argument("--fit", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        fit_once(given.fit[0], *map(int, given.fit[1:]))
    elif given.quick:
        main(3, 2000)
    else:
        main(given.parts, given.rows)
