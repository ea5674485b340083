"""Packages of others that `protocols.py` compares, each run a process of its own.

R's mice needs `Rscript` with the packages mice, ranger and rpart. The Python packages
need an environment of their own (``RIVALS`` below is the folder of your choice), whose
interpreter is the argument ``--rivals-python RIVALS/bin/python``:

    python -m venv RIVALS
    RIVALS/bin/pip install "scikit-learn==1.5.2" "numpy==2.2.6" "pandas==2.2.3" \\
        "lightgbm==4.6.0" xgboost-cpu numba tqdm statsmodels importlib_resources
    RIVALS/bin/pip install --no-deps miceforest==6.0.5 utrees==0.3.0 \\
        kditransform==1.0.0

A run reads an .npz file and writes another (`_protocol_rivals.py`). Numbers go in the
units of the table, categories as codes.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from mixed_rivals import Missing, execute
from protocol_scores import Answer

_SCRIPT = str(Path(__file__).with_name("_protocol_rivals.py"))
SETTINGS = {"python": None, "limit": 300}  # interpreter; seconds of CPU for a table


def interpreter():
    """Return the interpreter of the rivals: by default that of this process."""
    return SETTINGS["python"] or sys.executable


@cache
def has_module(module):
    """Say whether the environment of the rivals has a module."""
    ask = [interpreter(), "-c", f"import {module}"]
    try:
        return not subprocess.run(ask, capture_output=True, check=False).returncode
    except FileNotFoundError:
        return False


def exchange(learn, others, levels, *arguments):
    """Give tables to a run, and return the arrays that it writes."""
    with TemporaryDirectory() as folder:
        given, answer = Path(folder, "given.npz"), Path(folder, "answer.npz")
        np.savez(given, learn=learn, others=others, levels=levels)
        command = [interpreter(), _SCRIPT, given, answer, *arguments]
        execute([str(part) for part in command], SETTINGS["limit"])
        with np.load(answer) as arrays:
            return dict(arrays)


def levels_of(case):
    """Count the levels of the columns of a case; 0 for numbers."""
    full = case.full[0]
    columns = range(full.shape[1])
    return np.array(
        [int(full[:, j].max()) + 1 if j in case.nominal else 0 for j in columns]
    )


class Rival:
    """A method that runs a package: a case and a seed to an `Answer`."""

    def __init__(self, module):
        self.module = module

    def __call__(self, case, seed, n_draws):
        """Fill all parts of a case."""
        learn = case.masked[0]
        others = case.masked[1] if len(case.masked) > 1 else learn[:0]
        found = exchange(learn, others, levels_of(case), self.module, n_draws, seed)
        version, seconds, *remarks = map(str, found["notes"])
        notes = {"version": version} | ({"remarks": remarks} if remarks else {})
        parts = range(len(case.masked))
        draws = [found[f"draws{i}"] for i in parts]
        if any(np.isnan(part).any() for part in draws):
            raise Missing("leaves cells missing")
        return Answer(None, draws, float(seconds), notes)
