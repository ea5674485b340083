"""The one loader of the public tables that benchmarks and examples read.

They are not part of the package.  The environment variable ``SKVNCE_DATA`` names their
folder, by default ``../shared/data`` relative to the root of the repository; each table
lies in a folder of its own, ``<name>/<file>.csv`` or ``.csv.gz``.
"""

import os
from pathlib import Path

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
    stem = folder() / name / (file or name)
    for path in (Path(f"{stem}.csv.gz"), Path(f"{stem}.csv")):
        if path.exists():
            return pd.read_csv(path)
    raise FileNotFoundError(
        f"Expected the table {stem}.csv.gz or {stem}.csv, found neither; set the "
        f"environment variable {VARIABLE} to the folder of the data sets."
    )
