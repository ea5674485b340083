"""The one loader of the public tables that benchmarks and examples read.

They are not part of the package.  The environment variable ``SKVNCE_DATA`` names their
folder, by default ``../shared/data`` relative to the root of the repository; each table
lies in a folder of its own, ``<name>/<file>.csv``, ``.csv.gz`` or ``.npz``.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd

VARIABLE = "SKVNCE_DATA"
_ROOT = Path(__file__).resolve().parents[1]


def folder():
    """Return the folder of the tables."""
    return Path(os.environ.get(VARIABLE) or _ROOT.parent / "shared" / "data")


def load(name, file=None):
    """Read the table ``<name>/<file>.csv[.gz]``; the file has the name of its folder.

    >>> load("sachs")
    >>> load("sachs", "sachs_edges")
    """
    return pd.read_csv(_find(folder() / name / (file or name), ".csv.gz", ".csv"))


def load_array(name, key):
    """Read one array of ``<name>/<name>.npz``.

    >>> load_array("miniboone", "train")
    """
    with np.load(_find(folder() / name / name, ".npz")) as arrays:
        return arrays[key]


def _find(stem, *endings):
    for path in (Path(f"{stem}{ending}") for ending in endings):
        if path.exists():
            return path
    raise FileNotFoundError(
        f"Expected the table {stem} as {' or '.join(endings)}, found none; set the "
        f"environment variable {VARIABLE} to the folder of the data sets."
    )
