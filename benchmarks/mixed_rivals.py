"""Packages of others that `mixed.py` compares; each run is a process of its own.

R's mice needs `Rscript` with the packages mice, ranger, rpart, nnet and MASS. The
Python packages need an environment of their own, since they ask for other versions than
skvnce does (``RIVALS`` below is the folder of your choice):

    python -m venv RIVALS
    RIVALS/bin/pip install "scikit-learn==1.5.2" "numpy==2.2.6" "pandas==2.2.3" \\
        xgboost-cpu numba kditransform tqdm statsmodels
    RIVALS/bin/pip install --no-deps gcimpute==0.0.4 mixed-imputer==0.1.4.post1 \\
        utrees==0.3.0
    export SKVNCE_RIVALS=RIVALS/bin/python

``SKVNCE_RIVALS`` is by default ``../rivals_env/bin/python`` relative to the root of the
repository. A table travels as the bits of its doubles, with codes of the levels that
the rows to learn from hold; other levels of the rows to fill are missing for the rival.
"""

import os
import resource
import signal
import subprocess
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from _mice import installed as has_mice
from mixed_scores import Answer

VARIABLE = "SKVNCE_RIVALS"
LIMIT = 300  # seconds of CPU for a table
_HERE = Path(__file__).resolve().parent
_MODULES = {"mixed-imputer": "mixedimputer"}


class Missing(RuntimeError):
    """A rival that gives no answer: it takes too long, or fails."""


class Coded(NamedTuple):
    """What a rival gets of a case."""

    # rows to learn from and to fill; columns of a single value are left out
    tables: tuple
    columns: list  # their places in the case
    seen: list  # values of each column of the case in the rows to learn from


def interpreter():
    """Return the Python interpreter of the rivals."""
    default = _HERE.parents[1] / "rivals_env" / "bin" / "python"
    return os.environ.get(VARIABLE) or str(default)


@cache
def has_package(package):
    """Say whether the environment of the rivals has a package."""
    ask = [interpreter(), "-c", f"import {_MODULES.get(package, package)}"]
    try:
        return not subprocess.run(ask, capture_output=True, check=False).returncode
    except FileNotFoundError:
        return False


def coded(case):
    """Number the levels of each column that the rows to learn from hold."""
    train, test = (x.copy() for x in case.masked)
    seen = [np.unique(x[~np.isnan(x)]) for x in train.T]
    for j, kind in enumerate(case.kinds):
        if kind != "numeric":
            for x in (train, test):
                unknown = ~np.isin(x[:, j], seen[j])
                place = np.searchsorted(seen[j], x[:, j]).astype(float)
                x[:, j] = np.where(unknown, np.nan, place)
    columns = [j for j, values in enumerate(seen) if len(values) > 1]
    return Coded((train[:, columns], test[:, columns]), columns, seen)


def write(case, given, folder):
    """Write the files of a run."""
    table = np.vstack(given.tables)
    table.T.astype("<f8").tofile(folder / "table.bin")
    shape = *table.shape, len(given.tables[0])
    (folder / "shape.txt").write_text(" ".join(map(str, shape)))
    lines = [f"{case.kinds[j]} {len(given.seen[j])}" for j in given.columns]
    (folder / "columns.txt").write_text("\n".join(lines) + "\n")


def execute(command, limit=None):
    """Run a rival; an error or the end of its CPU time is raised as `Missing`."""
    limit = limit or LIMIT

    def restrict():
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))

    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | threads | {"PYTHONPATH": ""},
        preexec_fn=restrict,
    )
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise Missing(f"takes more than {limit} s of CPU")
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        raise Missing(f"fails: {words[-1].strip()[:200]}")


def read(case, given, folder, n_draws, seed):
    """Read what a rival wrote, in the codes of the case."""
    test, width = case.masked[1], len(given.columns)
    version, seconds, *remarks = (folder / "notes.txt").read_text().splitlines()
    cells = np.fromfile(folder / "draws.bin", "<f8")
    drawn = cells.reshape(n_draws, width, len(test)).transpose(0, 2, 1)
    left = np.isnan(drawn)
    if left.any():
        remarks.append(f"cells left missing: {int(left[0].sum())}")
    draws = np.tile(test, (n_draws, 1, 1))
    rng = np.random.default_rng(seed)
    for j, seen in enumerate(given.seen):
        known = case.masked[0][:, j]
        draws[..., j] = rng.choice(known[~np.isnan(known)], draws.shape[:2])
        if j in given.columns:
            own = drawn[..., given.columns.index(j)]
            found = ~np.isnan(own)
            draws[..., j][found] = levels_of(own[found], case.kinds[j], seen)
    hole = np.isnan(test)
    draws = np.where(hole, draws, test)
    points = points_of(case, draws)
    if (folder / "points.bin").exists():
        own = np.fromfile(folder / "points.bin", "<f8").reshape(width, -1).T
        for place, j in enumerate(given.columns):
            points[:, j] = levels_of(own[:, place], case.kinds[j], given.seen[j])
        points = np.where(hole, points, test)
    notes = {"version": version} | ({"remarks": remarks} if remarks else {})
    return Answer(points, None, draws, float(seconds), notes)


def levels_of(cells, kind, seen):
    """Convert codes of the levels that were seen to codes of the case."""
    if kind == "numeric":
        return cells
    return seen[np.clip(np.round(cells), 0, len(seen) - 1).astype(int)]


def points_of(case, draws):
    """Return means of numbers and the most frequent levels."""
    points = draws.mean(0)
    for j, kind in enumerate(case.kinds):
        if kind != "numeric":
            codes = np.arange(len(case.levels[j]))
            shares = (draws[..., j, None] == codes).mean(0)
            points[:, j] = shares.argmax(1)
    return points


def run(case, seed, *, command, n_draws=50):
    """Let a rival fill the rows to test, by files in a folder that is removed."""
    given = coded(case)
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        write(case, given, folder)
        execute(command(folder, n_draws, seed))
        return read(case, given, folder, n_draws, seed)


def _r(method):
    script = str(_HERE / "_mixed_mice.R")
    return lambda folder, n_draws, seed: [
        *("Rscript", "--vanilla", script, str(folder), method),
        *(str(n_draws), str(seed)),
    ]


def _python(package):
    script = str(_HERE / "_mixed_rivals.py")
    return lambda folder, n_draws, seed: [
        *(interpreter(), script, str(folder), package, str(n_draws), str(seed))
    ]


_MICE = {f"mice {kind}": kind for kind in ("default", "cart", "rf")}
_PACKAGES = {
    "gcimpute": "gcimpute",
    "mixed-imputer": "mixed-imputer",
    "UnmaskingTrees": "utrees",
}
RIVALS = {name: partial(run, command=_r(kind)) for name, kind in _MICE.items()}
RIVALS |= {name: partial(run, command=_python(p)) for name, p in _PACKAGES.items()}


def lacking(methods):
    """List the methods whose software is not installed here."""
    found = [method for method in methods if method in _MICE and not has_mice()]
    return found + [
        method
        for method in methods
        if method in _PACKAGES and not has_package(_PACKAGES[method])
    ]
