"""Time and peak memory of NoisyOr on a sparse table of 100,000 x 5,000.

python benchmarks/noisy_or_scale.py --output noisy_or_scale.md
python benchmarks/noisy_or_scale.py --quick
"""

import argparse
import subprocess
import sys
from time import perf_counter

import numpy as np
from _memory import now_mib, peak_mib
from _report import made_by, publish, table
from scipy import sparse

N, D, K, WORDS = 100_000, 5_000, 20, 20


def corpus(n, d, seed=0):
    """Draw rows of about 20 ones: columns of a topic, Zipf-like, and of all."""
    rng = np.random.default_rng(seed)
    popularity = 1 / (np.arange(d) + 10)
    columns = rng.choice(d, (n, WORDS), p=popularity / popularity.sum())
    topic = rng.integers(K, size=n)
    columns[:, ::2] = (columns[:, ::2] // K) * K + topic[:, None]
    start = np.arange(0, n * WORDS + 1, WORDS)
    table = sparse.csr_array((np.ones(n * WORDS), columns.ravel() % d, start), (n, d))
    table.sum_duplicates()
    table.data[:] = 1.0
    return table


def measured(task, n):
    """Run one task; returns seconds, and what the peak is above the memory before."""
    from skvnce import NoisyOr

    rows = corpus(n, D)
    model = NoisyOr(K, max_iter=1, random_state=0).fit(rows[:500])  # loads everything
    if task in ("fit", "partial_fit"):
        model = NoisyOr(K, max_iter=1, random_state=0)
    before, start = now_mib(), perf_counter()
    if task == "partial_fit":
        for first in range(0, n, 10_000):
            model.partial_fit(rows[first : first + 10_000])
    else:
        getattr(model, task)(rows)
    return perf_counter() - start, peak_mib() - before, before


def main():
    """Run each task in a process of its own, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5,000 rows")
    parser.add_argument("--output")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    n = 5_000 if options.quick else N
    if options.task:
        print(*measured(options.task, n))
        return
    rows = []
    for task in ("fit", "partial_fit", "transform", "score_samples"):
        command = [sys.executable, __file__, "--task", task]
        command += ["--quick"] if options.quick else []
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, rise, before = map(float, done.stdout.split())
        rows.append((task, f"{seconds:.1f}", f"{rise:.0f}", f"{before:.0f}"))
    stored = corpus(n, D)
    size = (stored.data.nbytes + stored.indices.nbytes + stored.indptr.nbytes) / 2**20
    parts = [
        "# NoisyOr on a large sparse table",
        made_by("noisy_or_scale.py", "One thread; each task in a process of its own."),
        f"{n} x {D}, {stored.nnz / n:.1f} ones a row: {size:.0f} MiB as CSR, "
        f"{n * D * 8 / 2**20:.0f} MiB if it were dense. K = {K}; one pass over the "
        "rows, with the factorisation that it starts from.",
        table(
            ("task", "seconds", "MiB at most above the start", "MiB at the start"), rows
        ),
    ]
    publish(parts, options.output)


if __name__ == "__main__":
    main()
