"""Readers of tables: of the package, and of the user's folder of data sets."""

import csv
import gzip
import os
from importlib.resources import files
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

VARIABLE = "SKVNCE_DATA"


def bundled(file):
    """Read a table of the package; return a dict of columns, tuples of text."""
    return _columns(files("skvnce.datasets") / "data" / file)


def from_folder(name, needed, how, data_home=None):
    """Read the table ``<name>/<name>.csv`` or ``.csv.gz`` of the user's folder.

    `name` str; `needed` sequence of str: columns that the table must have; `how` str:
    how to get the table, for errors; `data_home` path or None: the folder; None uses
    the one that the environment variable names. Returns dict of str to tuple of str:
    the columns.
    """
    path = find(name, (".csv.gz", ".csv"), how, data_home)
    columns = _columns(path)
    lacking = [column for column in needed if column not in columns]
    if lacking:
        raise ValueError(
            f"The table {path} lacks the columns {', '.join(lacking)}. "
            f"How to get it: {how}"
        )
    return columns


def find(name, endings, how, data_home=None):
    """Return the path of the file ``<name>/<name><ending>``, or raise with a remedy."""
    folder = data_home or os.environ.get(VARIABLE)
    if folder:
        for ending in endings:
            path = Path(folder).expanduser() / name / f"{name}{ending}"
            if path.is_file():
                return path
    wanted = " or ".join(f"{name}/{name}{ending}" for ending in endings)
    place = f"{folder} has no such file" if folder else f"{VARIABLE} is not set"
    raise FileNotFoundError(
        f"The data set {name!r} does not come with skvnce. Expected {wanted} in the "
        f"folder that `data_home` or the environment variable {VARIABLE} names; "
        f"{place}. How to get it: {how}"
    )


def numbers(columns, names):
    """Make a float array (n, names) of columns; empty cells and ``NA`` are NaN."""
    missing = {"": "nan", "NA": "nan"}
    # copied, because the transpose is not in the order of rows in memory
    return np.array(
        [[float(missing.get(c, c)) for c in columns[name]] for name in names]
    ).T.copy()


def bunch(data, names, description, target=None, *, as_frame=False, **more):
    """Pack a table as scikit-learn does, as a frame if `as_frame`.

    `data` (n, features); `names` list of str; `description` str; `target` (str,
    ndarray (n,)): name and values; `as_frame` bool; `**more`
    object: further entries. Returns sklearn.utils.Bunch.
    """
    frame = None
    entries = {} if target is None else {"target": target[1]}
    if as_frame:
        import pandas as pd

        frame = data = pd.DataFrame(data, columns=names)
        if target is not None:
            entries["target"] = pd.Series(target[1], name=target[0])
            frame = data.assign(**{target[0]: target[1]})
    named = {"feature_names": list(names), "DESCR": description}
    return Bunch(data=data, frame=frame, **entries, **named, **more)


def _columns(path):
    raw = path.read_bytes()
    # the first bytes of gzip, whatever the name of the file
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    # csv needs the line ends of quoted cells
    names, *rows = csv.reader(text.splitlines(keepends=True))
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(
                f"Row {i} of the table {path} has {len(row)} cells instead of "
                f"{len(names)}; write the file again, as CSV with commas and a header."
            )
    return dict(zip(names, zip(*rows, strict=True), strict=True))
