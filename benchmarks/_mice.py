"""R's mice as a rival: chained equations, each imputation a run of their own.

``mice(data, m=20, maxit=5, method=...)``, its default number of iterations, with
``ignore=`` for the rows that must not be learned from.  Tables travel as the bits of
their doubles.
"""

import subprocess
from functools import cache
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import numpy as np

IMPUTATIONS = 20  # trees take minutes a table, and m imputations m times as long
_SCRIPT = Path(__file__).with_name("_mice.R")


@cache
def installed(package="mice"):
    """Say whether Rscript is there and finds a package."""
    code = f"quit(status = !requireNamespace('{package}', quietly = TRUE))"
    ask = ["Rscript", "-e", code]
    return (
        which("Rscript") is not None
        and not subprocess.run(ask, capture_output=True, check=False).returncode
    )


class Mice:
    """Multiple imputation by chained equations of one kind.

    Rows of `fit` are only kept: `transform` and `sample` run R once for the training
    rows and the new rows together, where only the training rows are learned from.
    What mice leaves missing is filled by the means of the training rows, and counted.

    Parameters
    ----------
    method : str
        Of mice, for all columns: "pmm", "norm", "cart" and so on.
    seed : int
    n_draws : int
        Imputations that `transform` averages over.
    maxit : int
        Iterations.

    Attributes
    ----------
    remarks : dict
        How many columns mice would have left missing by default, as another is nearly
        the same (`remove.collinear = FALSE` fills them), and how many cells means fill.
    peak : float
        Memory of R at its peak, in MiB; NaN where the system does not say.
    """

    draws_at_most = IMPUTATIONS

    def __init__(self, method, seed, n_draws=IMPUTATIONS, maxit=5):
        self.method, self.seed = method, seed
        self.n_draws, self.maxit = n_draws, maxit

    def fit(self, X):
        """Keep the rows to learn from."""
        self.train = np.array(X, dtype=float)
        self._done = None
        return self

    def transform(self, X):
        """Fill by the mean of the draws."""
        X = np.asarray(X, dtype=float)
        if self._done and np.array_equal(X, self.train, equal_nan=True):
            mean = self._done[1][:, : len(X)].mean(0)
        else:
            mean = self.sample(X, self.n_draws, self.seed).mean(0)
        return np.where(np.isnan(X), mean, X)

    def sample(self, X, n_draws, random_state):
        """Draw tables; those that the last call drew, where it was the same."""
        X = np.asarray(X, dtype=float)
        asked = (X.tobytes(), n_draws, random_state)
        if not self._done or self._done[0] != asked:
            self._done = asked, self._impute(X, n_draws, random_state)
        return self._done[1][:, -len(X) :]

    def _impute(self, X, n_draws, seed):
        new = not np.array_equal(X, self.train, equal_nan=True)
        table = np.vstack([self.train, X]) if new else X
        with TemporaryDirectory() as folder:
            folder = Path(folder)
            table.T.astype("<f8").tofile(folder / "table.bin")
            shape = *table.shape, len(self.train)
            (folder / "shape.txt").write_text(" ".join(map(str, shape)))
            numbers = map(str, (n_draws, self.maxit, seed))
            run_r(str(_SCRIPT), str(folder), self.method, *numbers)
            draws = np.fromfile(folder / "draws.bin", "<f8")
            notes = (folder / "notes.txt").read_text().split()
        draws = draws.reshape(n_draws, *table.T.shape).transpose(0, 2, 1)
        self.peak = float("nan") if notes[2] == "NA" else float(notes[2]) / 2**10
        self.remarks = {
            "mice": notes[0],
            "nearly repeated columns": int(notes[1]),
            "cells filled by means": int(np.isnan(draws[0]).sum()),
        }
        draws = np.where(np.isnan(draws), np.nanmean(self.train, 0), draws)
        return np.where(np.isnan(table), draws, table)


def run_r(*arguments):
    """Run a script in R; an error of R is raised with its words."""
    done = subprocess.run(
        ["Rscript", "--vanilla", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"R failed: {done.stderr.strip()[-2000:]}")
