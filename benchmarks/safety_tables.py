"""Every numeric table of the data folder, with cells hidden completely at random.

Of a csv its numeric columns, of an npz one array; at most 1500 rows, a random subset,
and of images 1000 rows and their 100 most variable pixels.  Columns observed with fewer
than two values are dropped.  Tables come in the order of their numbers of cells.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from _data import folder, load_array

ROWS = 1500
IMAGE_ROWS, PIXELS = 1000, 100
SHARES = (0.1, 0.5)  # of the observed cells that are hidden
ARRAYS = {"miniboone": "train", "frey_faces": "x", "mnist": "x", "omniglot28": "x"}
IMAGES = ("frey_faces", "mnist", "omniglot28")


class Problem(NamedTuple):
    """One table with hidden cells."""

    full: np.ndarray  # NaN where a value was never known
    masked: np.ndarray  # what the estimators see
    hidden: np.ndarray  # True at the cells to score
    columns: list  # their names
    scale: np.ndarray  # standard deviation of the observed cells of `full`


@cache
def tables():
    """Return the usable tables by name, small ones first."""
    known = {name: read(name) for name in names()}
    usable = [name for name, (X, _) in known.items() if X.shape[1] > 1]
    return {
        name: known[name] for name in sorted(usable, key=lambda n: known[n][0].size)
    }


def left_out():
    """Name the tables with fewer than two numeric columns."""
    return sorted(set(names()) - set(tables()))


def names():
    """List all files of tables, those named like their folder by the folder."""
    found = [path for path in sorted(folder().glob("*/*")) if path.suffix != ".md"]
    return [path.name.partition(".")[0] for path in found]


def read(name):
    """Return a table as floats with its columns' names."""
    if name in ARRAYS:
        frame = pd.DataFrame(load_array(name, ARRAYS[name]).astype(float))
    else:
        (path,) = folder().glob(f"*/{name}.csv*")
        frame = pd.read_csv(path).select_dtypes("number").astype(float)
    frame = frame.iloc[some_rows(len(frame), IMAGE_ROWS if name in IMAGES else ROWS)]
    if name in IMAGES:
        variance = frame.to_numpy().var(0)
        frame = frame.iloc[:, np.sort(np.argsort(-variance, kind="stable")[:PIXELS])]
    frame = frame.loc[:, frame.nunique() > 1]
    return frame.to_numpy(), [str(column) for column in frame]


def some_rows(n, most):
    """Choose at most so many of n rows at random, in their order."""
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


def hide_cells(X, columns, share, seed):
    """Hide a share of the observed cells; columns without any left are dropped."""
    random = np.random.default_rng(seed).uniform(size=X.shape)
    hidden = ~np.isnan(X) & (random < share)
    masked = np.where(hidden, np.nan, X)
    kept = ~np.isnan(masked).all(0)
    parts = (part[:, kept] for part in (X, masked, hidden))
    named = [column for column, keep in zip(columns, kept, strict=True) if keep]
    return Problem(*parts, named, np.nanstd(X[:, kept], axis=0))


def problem(name, share, seed):
    """Return a table with hidden cells."""
    return hide_cells(*tables()[name], share, seed)
