"""Packages of others that benchmarks compare; each run is a process of its own.

R's mice needs `Rscript` with the packages mice, ranger, rpart, nnet and MASS, and
missForest itself. The Python packages need environments of their own, since they ask
for other versions than skvnce does (``PEERS`` below is the folder of your choice):

    python -m venv PEERS
    PEERS/bin/pip install "scikit-learn==1.5.2" "numpy==2.2.6" "pandas==2.2.3" \\
        xgboost-cpu numba kditransform tqdm
    PEERS/bin/pip install --no-deps utrees==0.3.0
    export SKVNCE_RIVALS=PEERS/bin/python

and HyperImpute one with numpy 1.26, pandas 2.2 and scikit-learn 1.5. ``SKVNCE_RIVALS``
is by default ``../rivals_env/bin/python`` relative to the root of the repository. A
table travels as the bits of its doubles.

miceforest, gcimpute and mixed-imputer are not run any more: commit f22947a5 is the last
that does, and their results stay.
"""

import os
import resource
import signal
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

VARIABLE = "SKVNCE_RIVALS"
LIMIT = 300  # seconds of CPU for a table
IMPUTATIONS = 20  # trees take minutes a table, and m imputations m times as long
_HERE = Path(__file__).resolve().parent


class Missing(RuntimeError):
    """A peer that gives no answer: it takes too long, or fails."""


class Run(NamedTuple):
    """What a peer says about the rows to fill."""

    draws: np.ndarray  # (m, n, d)
    seconds: float  # of CPU
    peak: float  # memory in MiB; NaN where it is not known
    version: str
    remarks: list


class Peer(NamedTuple):
    """A package of R, or of Python with the name of its module, and what it is told."""

    package: str
    method: str = ""

    def command(self):
        """Return the words of its command."""
        if self.package in _R:
            return "Rscript", "--vanilla", _HERE / _R[self.package], self.method
        return interpreter(), _HERE / "_python_peers.py", self.package

    def installed(self):
        """Say whether it can be run here."""
        if self.package in _R:
            code = f"quit(status = !requireNamespace('{self.package}', quietly = TRUE))"
            return _succeeds("Rscript", "-e", code)
        return _succeeds(interpreter(), "-c", f"import {self.package}")

    def run(self, learn, others, columns, n_draws, seed, start=0, limit=None):
        """Learn from rows, and fill these and others from a number on.

        Parameters
        ----------
        learn, others : arrays of shape (n, d)
            NaN where missing.
        columns : list of (kind, number of levels)
        n_draws, seed, start : int
        limit : int
            Seconds of CPU.
        """
        table = np.vstack([learn, others])
        shape = *table.shape, len(learn), start
        drawn, notes = exchange(
            self.command(), (n_draws, seed), table, shape, columns, limit
        )
        drawn = drawn.reshape(-1, shape[1], shape[0] - start).transpose(0, 2, 1)
        return Run(drawn, float(notes[1]), float(notes[2]) / 2**10, notes[0], notes[3:])


_R = {"mice": "_mice.R", "missForest": "_miss_forest.R"}


def interpreter():
    """Return the Python interpreter of the peers."""
    default = _HERE.parents[1] / "rivals_env" / "bin" / "python"
    return os.environ.get(VARIABLE) or str(default)


@cache
def _succeeds(*command):
    try:
        return not subprocess.run(command, capture_output=True, check=False).returncode
    except FileNotFoundError:
        return False


def exchange(command, arguments, table, shape, columns, limit=None):
    """Let a command fill a table that lies in a folder.

    The folder is an argument between those of the command and the others.

    Returns
    -------
    ndarray of double
        All that it draws.
    list of str
        Its notes.
    """
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        table.T.astype("<f8").tofile(folder / "table.bin")
        shape, *columns = (" ".join(map(str, line)) for line in (shape, *columns))
        (folder / "shape.txt").write_text(shape)
        (folder / "columns.txt").write_text("\n".join(columns) + "\n")
        execute([*command, folder, *arguments], limit)
        drawn = np.fromfile(folder / "draws.bin", "<f8")
        return drawn, (folder / "notes.txt").read_text().splitlines()


def execute(command, limit):
    """Run a peer; an error or the end of its CPU time is raised as `Missing`."""

    def restrict():
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))

    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | threads | {"PYTHONPATH": ""},
        preexec_fn=restrict if limit else None,
    )
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise Missing(f"takes more than {limit} s of CPU")
    if done.returncode:
        lines = [f"exit {done.returncode}", *done.stderr.strip().splitlines()]
        said = [x for x in lines if not x.startswith(("Calls: ", "Execution halted"))]
        raise Missing(f"fails: {said[-1].strip()[:200]}")


class Mice:
    """Multiple imputation by chained equations of one kind: R's mice.

    Rows of `fit` are only kept: `transform` and `sample` run R once for the training
    rows and the new rows together, where only the training rows are learned from, with
    as many draws as `draws_at_most` and the seed of the start.
    What mice leaves missing is filled by the means of the training rows, and counted.

    Parameters
    ----------
    peer : Peer
        With the method for all columns: "pmm", "norm", "cart" and so on.
    seed : int

    Attributes
    ----------
    remarks : dict
        How many columns mice would have left missing by default, as another is nearly
        the same (`remove.collinear = FALSE` fills them), and how many cells means fill.
    peak : float
        Memory of R at its peak, in MiB; NaN where the system does not say.
    """

    draws_at_most = IMPUTATIONS

    def __init__(self, peer, seed):
        self.peer, self.seed = peer, seed

    def fit(self, X):
        """Keep the rows to learn from."""
        self.train = np.array(X, dtype=float)
        self._done = None
        return self

    def transform(self, X):
        """Fill by the mean of the draws."""
        return np.where(np.isnan(X), self.sample(X).mean(0), X)

    def sample(self, X, n_draws=IMPUTATIONS, random_state=None):
        """Draw tables; those of the last run, where it has these rows."""
        known = np.array_equal(X, self.train, equal_nan=True)
        if known and self._done:
            return self._done[1][:, : len(X)]
        if not self._done or self._done[0] != X.tobytes():
            self._done = X.tobytes(), self._impute(X[:0] if known else X)
        return self._done[1][:, -len(X) :]

    def _impute(self, X):
        columns = [("numeric", 0)] * X.shape[1]
        run = self.peer.run(self.train, X, columns, IMPUTATIONS, self.seed)
        self.peak = run.peak
        repeated = [int(remark.split()[-1]) for remark in run.remarks]
        self.remarks = {
            "mice": run.version.removeprefix("mice "),
            "nearly repeated columns": sum(repeated),
            "cells filled by means": int(np.isnan(run.draws[0]).sum()),
        }
        draws = np.where(np.isnan(run.draws), np.nanmean(self.train, 0), run.draws)
        table = np.vstack([self.train, X])
        return np.where(np.isnan(table), draws, table)
