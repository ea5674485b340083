"""The folder of the public tables that benchmarks read, and those without a loader.

The environment variable ``SKVNCE_DATA`` names the folder, by default ``../shared/data``
relative to the root of the repository; each table lies in a folder of its own,
``<name>/<name>.csv``, ``.csv.gz`` or ``.npz``.  Tables that examples use, too, have a
loader in `skvnce.datasets`, which takes ``data_home=folder()``.
"""

import os
import resource
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets

from skvnce.datasets._tables import VARIABLE, in_folder


def cpu_seconds():
    """Return the CPU time of this process and of those that it has waited for."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


_ROOT = Path(__file__).resolve().parents[1]


def folder():
    """Return the folder of the tables."""
    return Path(os.environ.get(VARIABLE) or _ROOT.parent / "shared" / "data")


def find(name, *endings):
    """Return the path of the file ``<name>/<name><ending>`` of the folder."""
    path = in_folder(folder(), name, endings)
    if path is None:
        wanted = folder() / name / f"{name}{endings[0]}"
        raise FileNotFoundError(
            f"There is no {wanted}: set {VARIABLE} to the folder of the data sets."
        )
    return path


def load(name):
    """Read the table ``<name>/<name>.csv[.gz]``.

    >>> load("letter5k")
    """
    return pd.read_csv(find(name, ".csv.gz", ".csv"))


def load_array(name, key):
    """Read one array of ``<name>/<name>.npz``.

    >>> load_array("miniboone", "train")
    """
    with np.load(find(name, ".npz")) as arrays:
        return arrays[key]


def bundled(name):
    """Load rows and target of a table that scikit-learn has."""
    return getattr(datasets, f"load_{name}")(return_X_y=True)


def blocks(images, height, width, size=4):
    """Average square blocks of pixels; (n, n_blocks)."""
    x = images.reshape(len(images), height // size, size, width // size, size)
    return x.mean((2, 4)).reshape(len(images), -1)
