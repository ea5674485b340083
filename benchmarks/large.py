"""A table that does not fit in memory: GaussianImputer on two workers of 1 GiB.

    python benchmarks/large.py           # 20 million rows x 20 columns, some minutes
    python benchmarks/large.py --quick   # seconds, for CI

It writes the table in parquet to a temporary folder (4 GB, deleted afterwards), fits an
imputer to it on a LocalCluster of dask, fills it, and writes the result.  It prints the
time, the bytes that pass through the process of client and scheduler, the peak memory
of the workers, and the difference from a fit in memory to the first rows.
"""

import argparse
import shutil
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
from distributed.comm import tcp

from skvnce import GaussianImputer
from skvnce.options import Chunks

WIDTH, RANK, MISSING = 20, 4, 0.15
NAMES = [f"x{j}" for j in range(WIDTH)]


def rows(number, n):
    """Draw a part of the table: correlated columns, of which four are skewed."""
    rng = np.random.default_rng([7, number])
    loadings = np.random.default_rng(7).normal(size=(RANK, WIDTH))
    X = rng.normal(size=(n, RANK)) @ loadings + rng.normal(size=(n, WIDTH))
    X[:, :4] = np.exp(X[:, :4] / 3)
    X[rng.random(X.shape) < MISSING] = np.nan
    return pd.DataFrame(X, columns=NAMES)


def write(folder, n_parts, n):
    for number in range(n_parts):
        rows(number, n).to_parquet(folder / f"{number:05d}.parquet", compression=None)


def size_of(folder):
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


@contextmanager
def counted_bytes():
    """Count what passes through the sockets of this process, with the scheduler."""
    counts, read, written = {"in": 0, "out": 0}, tcp.read_bytes_rw, tcp.TCP.write

    async def counting_read(stream, n):
        counts["in"] += n
        return await read(stream, n)

    async def counting_write(self, *args, **kwargs):
        n = await written(self, *args, **kwargs)
        counts["out"] += n
        return n

    tcp.read_bytes_rw, tcp.TCP.write = counting_read, counting_write
    try:
        yield counts
    finally:
        tcp.read_bytes_rw, tcp.TCP.write = read, written


def peak():
    """Return the largest memory of this process so far, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [one for one in lines if one.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


@contextmanager
def cluster(limit):
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": limit}
    with (
        distributed.LocalCluster(dashboard_address=None, **options) as one,
        distributed.Client(one) as client,
    ):
        yield client


def difference(one, other, X):
    """Find the largest difference of two fits, in standard deviations."""
    scale = np.outer(one.scale_, one.scale_)
    pairs = [
        (one.mean_ / one.scale_, other.mean_ / one.scale_),
        (one.covariance_ / scale, other.covariance_ / scale),
        (one.transform(X) / one.scale_, other.transform(X) / one.scale_),
    ]
    return max(abs(a - b).max() for a, b in pairs)


def compare_part(folder, n_parts):
    """Compare with the fit in memory to the first parts."""
    paths = sorted(folder.glob("*.parquet"))[:n_parts]
    X = pd.concat(map(pd.read_parquet, paths), ignore_index=True)
    options = {"categorical_features": None, "random_state": 0}
    in_memory = GaussianImputer(**options).fit(X)
    lazily = GaussianImputer(**options).fit(dd.read_parquet(paths))
    chunks = GaussianImputer(**options).fit(Chunks.from_parquet(paths))
    some = X[:1000]
    found = [difference(in_memory, one, some) for one in (lazily, chunks)]
    print(f"first {len(X):,} rows, difference from the fit in memory: ", end="")
    print(f"dask {found[0]:.1e}, Chunks {found[1]:.1e}", flush=True)
    if max(found) > 1e-10:
        raise SystemExit("the fits differ by more than 1e-10")


def measure(folder, out, client):
    frame = dd.read_parquet(folder)
    print(f"partitions: {frame.npartitions}")
    start = time.perf_counter()
    with counted_bytes() as counts:
        imputer = GaussianImputer(random_state=0, verbose=1).fit(frame)
    seconds = time.perf_counter() - start
    traffic = (counts["in"] + counts["out"]) / 2**20
    print(f"fit: {seconds:.0f} s, {imputer.n_iter_} rounds of EM over all rows")
    print(f"through the scheduler: {traffic:.1f} MiB", flush=True)
    start = time.perf_counter()
    with counted_bytes() as counts:
        imputer.transform(frame).to_parquet(out, compression=None)
    seconds = time.perf_counter() - start
    traffic = (counts["in"] + counts["out"]) / 2**20
    print(f"fill and write: {seconds:.0f} s, {traffic:.1f} MiB through the scheduler")
    peaks = client.run(peak)
    print("peak memory of workers:", *(f"{one:.0f} MiB" for one in peaks.values()))
    return imputer


def number_of(path):
    """Read the number of a part in names such as 00012.parquet and part.12.parquet."""
    return int(path.stem.split(".")[-1])


def check_filled(folder, out):
    """Compare observed cells, and count missing ones, in the first and last parts."""
    given, filled = (
        sorted(Path(one).glob("*.parquet"), key=number_of) for one in (folder, out)
    )
    assert len(given) == len(filled)
    for place in (0, -1):
        X, Y = pd.read_parquet(given[place]), pd.read_parquet(filled[place])
        seen = X.notna().to_numpy()
        assert Y.notna().to_numpy().all()
        assert (X.to_numpy()[seen] == Y.to_numpy()[seen]).all()
    print("filled: no missing cell, observed cells unchanged")


def main(n_parts, n, limit):
    base = Path(tempfile.mkdtemp(prefix="large_table_"))
    try:
        needed = 2.5 * n_parts * n * WIDTH * 8
        free = shutil.disk_usage(base).free
        if free < needed:
            raise SystemExit(f"{needed / 1e9:.0f} GB needed, {free / 1e9:.0f} free")
        folder, out = base / "table", base / "filled"
        folder.mkdir()
        start = time.perf_counter()
        write(folder, n_parts, n)
        print(
            f"{n_parts * n:,} rows x {WIDTH}, {size_of(folder) / 1e9:.2f} GB, ", end=""
        )
        print(f"written in {time.perf_counter() - start:.0f} s", flush=True)
        with cluster(limit) as client:
            measure(folder, out, client)
            check_filled(folder, out)
            compare_part(folder, 2)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000, help="of a part")
    given = parser.parse_args()
    run = partial(main, limit="1GiB")
    run(3, 2000) if given.quick else run(given.parts, given.rows)
