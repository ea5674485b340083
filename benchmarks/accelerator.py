"""What does an accelerator save in fits and draws of the estimators that can use one?

    python benchmarks/accelerator.py [--quick] [--rows 2000 20000 200000]
        [--names LAIRImputer ...] [--rounds 3] [--repetitions 3] [--seconds 180]
        [--output doc/benchmarks/accelerator.md]

Each measurement is a fit and then draws in a process of its own, with a limit of wall
time: on the CPU with two threads, and on CUDA where torch finds it.  The devices take
turns, so that other processes slow both.  What takes longer than a sixth of the limit
is not repeated.  Without CUDA only the CPU is measured, and the page says so.
"""

import json
import os
import subprocess
import sys
import time
import warnings
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
import torch
from _report import Texts, commit, made_by, publish, table
from _runner import options_of

from skvnce import LAIRImputer, VariationalAutoencoder, VGIImputer, VNCEEstimator
from skvnce.options import LBFGS, Adam, IncompleteDensity

TEXTS = Texts("accelerator", globals())

ROWS = [2000, 20_000, 200_000]
COLUMNS, MISSING, DRAWS, THREADS = 20, 0.2, 2, 2
FEW = 200  # rows that load modules, and start the device
METHODS = ("fit", "sample")
NAMES = ["LAIRImputer", "VGIImputer", "VariationalAutoencoder", "VNCEEstimator"]
COMMAND = "python benchmarks/accelerator.py --output doc/benchmarks/accelerator.md"
NO_DEVICE = TEXTS("no device")


def estimators(device, rounds):
    """Make one of each class, which trains for few rounds."""
    solver, fixed = Adam(device=device), {"random_state": 0}
    vae = VariationalAutoencoder(solver=solver, max_iter=rounds, **fixed)
    density = IncompleteDensity(solver=solver, max_iter=rounds)
    lbfgs = LBFGS(device=device)
    return {
        "LAIRImputer": LAIRImputer(vae, n_estimators=1, **fixed),
        "VGIImputer": VGIImputer(density, n_estimators=1, **fixed),
        "VariationalAutoencoder": vae,
        "VNCEEstimator": VNCEEstimator(solver=lbfgs, max_iter=rounds, **fixed),
    }


def example(n):
    """Make rows of three bent factors, a fifth of the cells missing."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n, 3)) @ rng.normal(size=(3, COLUMNS))
    X = np.tanh(factors) + 0.3 * rng.normal(size=factors.shape)
    X[rng.random(X.shape) < MISSING] = np.nan
    return X


def drawn(one, X):
    """Draw missing cells; an autoencoder alone draws as many new rows."""
    if hasattr(one, "sample"):
        return one.sample(X, DRAWS, random_state=0, as_array=True)
    return one.sample_rows(len(X), random_state=0)


def seconds(call, device):
    """Measure wall time until the device has finished."""
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(name, device, n, rounds):
    """Yield the methods and their seconds, in this process."""
    warnings.simplefilter("ignore")
    one = estimators(device, rounds)[name]
    X, few = example(n), example(FEW)
    seconds(partial(drawn, one.fit(few), few), device)
    yield "fit", seconds(partial(one.fit, X), device)
    yield "sample", seconds(partial(drawn, one, X), device)


def in_new_process(*job, limit):
    """Measure in a process of its own: what it printed until the limit."""
    command = [sys.executable, __file__, "--job", *map(str, job)]
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS)}
    options = {"stdout": subprocess.PIPE, "env": environment, "check": False}
    try:
        out, state = subprocess.run(command, timeout=limit, **options).stdout, "failed"
    except subprocess.TimeoutExpired as error:
        out, state = error.stdout or b"", f"over {limit:g} s"
    return dict.fromkeys(METHODS, state) | dict(map(json.loads, out.splitlines()))


def is_quick(run, limit):
    values = [run[method] for method in METHODS]
    return not any(isinstance(one, str) for one in values) and sum(values) < limit / 6


def repeated(job, devices, repetitions, limit):
    """Let devices take turns: runs by device, repeated while they are quick."""
    name, *sizes = job
    runs = {device: [] for device in devices}
    for _ in range(repetitions):
        for device, found in runs.items():
            if all(is_quick(run, limit) for run in found):
                found.append(in_new_process(name, device, *sizes, limit=limit))
                print(*job, device, found[-1], file=sys.stderr, flush=True)
    return runs


def row(name, n, method, runs):
    """Compare the medians of the devices; a text says why there is none."""
    cells, found = [], []
    for some in runs.values():
        values = [run[method] for run in some]
        found += [np.nan if isinstance(values[-1], str) else median(values)]
        cells += [values[-1] if np.isnan(found[-1]) else f"{found[-1]:.3g}"]
    if len(found) == 2:
        ratio = found[0] / found[1]
        cells += ["" if np.isnan(ratio) else f"{ratio:.2f}"]
    return [name, f"{n:,}", method, *cells]


def processor():
    """Name the processor, where Linux does."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


def report(found, device, options):
    """Compose the page; `device` is None, or the name of the accelerator."""
    header = ["estimator", "rows", "method", "CPU, s"]
    header += ["CUDA, s", "CPU / CUDA"] if device else []
    rows = [row(*job, m, runs) for job, runs in found.items() for m in METHODS]
    machine = f"CPU: {processor()}, {THREADS} threads."
    if device:
        machine += f" Accelerator: {device}, CUDA {torch.version.cuda}."
    return [
        "# Fits and draws on an accelerator",
        *([] if device else [NO_DEVICE]),
        made_by("accelerator.py", f"Commit {commit()}. {machine}"),
        TEXTS(
            "Tables of columns, of the", options=options, options2=options.seconds / 6
        ),
        table(header, rows),
    ]


def main():
    """Measure, and report."""
    if sys.argv[1:2] == ["--job"]:  # of one process
        name, device, n, rounds = sys.argv[2:]
        for one in measure(name, device, int(n), int(rounds)):
            print(json.dumps(one), flush=True)
        return
    options = options_of(
        __doc__,
        {"rows": [FEW], "rounds": 1, "repetitions": 1},
        rows=[*ROWS],
        names=[*NAMES],
        rounds=3,
        repetitions=3,
        seconds=180.0,
    )
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    devices = ["cpu", "cuda"] if device else ["cpu"]
    kept = devices, options.repetitions, options.seconds
    jobs = product(options.names, options.rows)
    found = {job: repeated((*job, options.rounds), *kept) for job in jobs}
    publish(report(found, device, options), options.output)


if __name__ == "__main__":
    main()
