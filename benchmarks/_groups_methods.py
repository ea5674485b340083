"""Methods for clustered tables: ours, without groups, a row a group, R's packages.

A table is a data frame of numbers and categories 0, 1, ..., with the role of each
column: "group", "row" (varies within groups), "group level" or "design" (known always).
"""

import time

import numpy as np
import pandas as pd
from _groups_rivals import RIVALS, draw, is_categorical
from _results import Results
from threadpoolctl import threadpool_limits

from skvnce import GaussianImputer

OURS = "ours", "ours_slopes", "flat", "id", "wide"
METHODS = *OURS, *RIVALS


def measure(run, options):
    """Run with results and options, on one thread; show results that are not kept."""
    results = Results(options.results)
    with threadpool_limits(1):
        run(results, options)
    if options.quick:
        for one in results.records:
            print(one)


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
