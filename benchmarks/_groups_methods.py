"""Methods for clustered tables: ours, without groups, a row a group, R's packages.

A table is a data frame of numbers and categories 0, 1, ..., with the role of each
column: "group", "row" (varies within groups), "group level" or "design" (known always).
"""

import time
from functools import cache
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from _mice import run_r
from _report import specs

from skvnce import GaussianImputer

RIVALS = "jomo", "jomo_200", "pan", "mice_2lpan"
NAMES = specs("groups")
_SCRIPT = Path(__file__).with_name("_groups_rivals.R")


def draw(method, frame, roles, n_draws, seed):
    """Complete a table by a package of R.

    Parameters
    ----------
    method : str
        One of `RIVALS`.
    frame : DataFrame
        Numbers, 0, 1, ... in categorical columns; NaN where missing.
    roles : dict
        Of each column: "group", "row", "group level" or "design".
    n_draws, seed : int

    Returns
    -------
    draws : array of shape (n_draws, n_samples, n_features)
    costs : dict
        Version and seconds of CPU, without the start of R.
    """
    numbers = frame.astype(float)
    [group] = [name for name in frame if roles[name] == "group"]
    order = np.argsort(numbers[group].to_numpy(), kind="stable")
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        codes = numbers.iloc[order].assign(**{group: codes_of(numbers, group)[order]})
        codes.to_csv(folder / "table.csv", index=False, na_rep="NA")
        _columns(frame, roles).to_csv(folder / "columns.csv", index=False)
        run_r(str(_SCRIPT), str(folder), method, str(n_draws), str(seed))
        cells = pd.read_csv(folder / "draws.csv")[list(frame)].to_numpy(float)
        version, seconds = (folder / "costs.txt").read_text().splitlines()
    draws = np.empty((n_draws, *frame.shape))
    draws[:, order] = cells.reshape(draws.shape)
    table = numbers.to_numpy()
    costs = {"version": version, "seconds": float(seconds)}
    return np.where(np.isnan(table), draws, table), costs


def codes_of(frame, group):
    """Number the groups from 1."""
    return pd.factorize(frame[group], sort=True)[0] + 1


def _columns(frame, roles):
    kinds = [_kind_of(frame[name]) for name in frame]
    return pd.DataFrame(
        {"name": list(frame), "kind": kinds, "role": [roles[name] for name in frame]}
    )


def _kind_of(column):
    if not is_categorical(column):
        return "numeric"
    return "ordinal" if column.dtype.ordered else "binary"


def is_categorical(column):
    """Say whether a column has categories: two, or ordered ones."""
    return isinstance(column.dtype, pd.CategoricalDtype)


@cache
def data_of_r(package, expression):
    """Return a data frame of R; nothing of it is kept."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "table.csv")
        code = (
            f"suppressPackageStartupMessages(library({package})); "
            f"write.csv(as.data.frame({expression}), '{file}', row.names = FALSE)"
        )
        run(["Rscript", "--vanilla", "-e", code], check=True, capture_output=True)
        return pd.read_csv(file)


def methods_of(records):
    """List the methods of records, in the order of `NAMES`."""
    there = {record["method"] for record in records}
    return [name for name in NAMES if name in there]


def complete_tables(method, frame, roles, n_draws, seed, visit=None):
    """Draw completed tables.

    Returns
    -------
    draws : array of shape (n_draws, n_samples, n_features)
    filled : array of shape (n_samples, n_features) or None
        By `transform`, where the method has it.
    costs : dict
        Seconds of CPU of fit and draws, without the start of R.
    """
    if method in RIVALS:
        draws, costs = draw(method, frame, roles, n_draws, seed)
        return draws, None, costs
    if method == "wide":
        return _wide(frame, roles, visit, n_draws, seed)
    [group] = [name for name, role in roles.items() if role == "group"]
    if method == "ours":
        return _gaussian(frame, n_draws, seed, groups=group)
    if method == "ours_slopes":
        slopes = [name for name, role in roles.items() if role == "design"]
        return _gaussian(frame, n_draws, seed, groups={group: slopes})
    if method == "id":
        return _gaussian(_with_names(frame, group), n_draws, seed)
    found = _gaussian(frame.drop(columns=group), n_draws, seed)
    at = list(frame).index(group)
    draws, filled = (np.insert(x, at, frame[group], axis=-1) for x in found[:2])
    return draws, filled, found[2]


def numbers(frame):
    """Return the cells as numbers."""
    return frame.astype(float).to_numpy()


def _with_names(frame, group):
    names = frame[group].astype(int).astype("category")
    return frame.assign(**{group: names})


def _gaussian(frame, n_draws, seed, **options):
    begin = time.process_time()
    imputer = GaussianImputer(random_state=seed, **options)
    imputer.set_output(transform="pandas").fit(frame)
    tables = imputer.sample(frame, n_draws=n_draws, random_state=seed)
    seconds = time.process_time() - begin
    filled = numbers(imputer.transform(frame))
    return np.stack([numbers(one) for one in tables]), filled, {"seconds": seconds}


def _wide(frame, roles, visit, n_draws, seed):
    """Give each group a row, and each planned visit columns of its own."""
    wide, places = to_wide(frame, roles, visit)
    draws, filled, costs = _gaussian(wide, n_draws, seed)
    back = np.repeat(numbers(frame)[None], n_draws + 1, axis=0)
    for j, name in enumerate(frame):
        if name in places:
            rows, columns = places[name]
            back[:-1, :, j] = draws[:, rows, columns]
            back[-1, :, j] = filled[rows, columns]
    return back[:-1], back[-1], costs


def to_wide(frame, roles, visit):
    """Return a table of a row a group, and where in it the cells of each column are."""
    [group] = [name for name, role in roles.items() if role == "group"]
    rows, names = pd.factorize(frame[group])
    wide, places = {}, {}
    for name, role in roles.items():
        if role not in ("row", "group level"):
            continue
        when = np.zeros(len(frame), int) if role == "group level" else np.asarray(visit)
        columns = np.empty(len(frame), int)
        for k in np.unique(when):
            cells = np.full(len(names), np.nan)
            at = when == k
            cells[rows[at]] = frame[name][at].astype(float)
            columns[at] = len(wide)
            wide[f"{name} {k}"] = like(cells, frame[name])
        places[name] = rows, columns
    return pd.DataFrame(wide), places


def like(cells, column):
    """Make numbers a column of the kind of another one."""
    cells = pd.Series(cells)
    return cells.astype(column.dtype) if is_categorical(column) else cells
