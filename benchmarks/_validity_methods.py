"""Methods of the validity study: each completes the tables of a block of repetitions.

A method yields, for each table, a list of completed tables, or an exception, and the
seconds of CPU of fit and draws.
"""

import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from _peers import exchange
from _report import specs
from _validity_analyses import Failure
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

import skvnce

_SCRIPT = Path(__file__).with_name("_validity_mice.R")


def levels_of(table):
    """Return the observed levels of text columns, and of columns of 0 and 1."""
    levels = {}
    for name, column in table.items():
        values = np.unique(column.dropna().to_numpy())
        if not pd.api.types.is_numeric_dtype(column) or np.isin(values, (0, 1)).all():
            levels[name] = values
    return levels


def by_imputer(make, tables, design, seeds, n_draws, *, groups=False):
    """Complete by an imputer of skvnce, which gets the column of groups if `groups`."""
    for table, seed in zip(tables, seeds, strict=True):
        begin = time.process_time()
        options = {"groups": design.group} if groups else {}
        dropped = [] if groups or design.group is None else [design.group]
        part = table.drop(columns=dropped)
        try:
            imputer = make(random_state=seed, **options).set_output(transform="pandas")
            draws = imputer.fit(part).sample(part, n_draws=n_draws, random_state=seed)
            draws = [draw.assign(**table[dropped]) for draw in draws]
        except Exception as error:  # noqa: BLE001  an imputer's error is a result
            draws = error
        yield draws, time.process_time() - begin


def by_iterative_imputer(tables, design, seeds, n_draws):
    """Complete by `IterativeImputer(sample_posterior=True)`, with a seed for each draw.

    Text is one-hot encoded, and the level of the largest column is taken; columns of 0
    and 1 are rounded.
    """
    for table, seed in zip(tables, seeds, strict=True):
        begin = time.process_time()
        part = table.drop(columns=[design.group] if design.group else [])
        levels, blocks = levels_of(part), {}
        for name, column in part.items():
            if name in levels and not pd.api.types.is_numeric_dtype(column):
                cells = column.to_numpy()[:, None] == levels[name]
                blocks[name] = np.where(
                    column.isna().to_numpy()[:, None], np.nan, cells
                )
            else:
                blocks[name] = column.to_numpy()[:, None]
        X = np.hstack(list(blocks.values())).astype(float)
        ends = np.cumsum([block.shape[1] for block in blocks.values()])[:-1]
        draws = []
        for k in range(n_draws):
            imputer = IterativeImputer(
                sample_posterior=True, random_state=seed * n_draws + k
            )
            filled = np.split(imputer.fit_transform(X), ends, axis=1)
            draw = table.copy()
            for name, block in zip(blocks, filled, strict=True):
                if block.shape[1] > 1:
                    draw[name] = levels[name][block.argmax(1)]
                elif name in levels:
                    draw[name] = np.clip(np.round(block[:, 0]), 0, 1)
                else:
                    draw[name] = block[:, 0]
            draws.append(draw.where(table.isna(), table))
        yield draws, time.process_time() - begin


def by_r(method, tables, design, seeds, n_draws):
    """Complete all tables by one process of R; see `_validity_mice.R`."""
    names = [name for name in tables[0] if name != design.group]
    levels = levels_of(pd.concat(tables)[names])
    kinds = []
    for name in names:
        text = not pd.api.types.is_numeric_dtype(tables[0][name])
        kind = "nominal" if text else "binary" if name in levels else "number"
        kinds.append((name, kind, len(levels.get(name, ()))))
    stacked = np.vstack([_codes(table, names, levels) for table in tables])
    shape = len(tables[0]), len(names), len(tables)
    arguments = n_draws, seeds[0], *([design.formula] if design.formula else [])
    command = "Rscript", "--vanilla", _SCRIPT, method
    draws, notes = exchange(command, arguments, stacked, shape, kinds)
    draws = draws.reshape(len(tables), n_draws, len(names), -1)
    for table, arrays, note in zip(tables, draws, notes, strict=True):
        seconds, _, error = note.partition(" ")
        if error.strip():
            yield Failure(error.strip()), float(seconds)
        else:
            frames = [_decoded(table, names, levels, array) for array in arrays]
            yield frames, float(seconds)


def _codes(table, names, levels):
    """Return numbers, and codes of levels of text."""
    columns = []
    for name in names:
        column = table[name]
        if name in levels:
            places = np.searchsorted(levels[name], column.fillna(levels[name][0]))
            column = np.where(column.isna(), np.nan, places)
        columns.append(np.asarray(column, dtype=float))
    return np.column_stack(columns)


def _decoded(table, names, levels, array):
    """Return a completed data frame of numbers and codes of levels."""
    frame = table.copy()
    for name, cells in zip(names, array, strict=True):
        if np.isnan(cells).any():
            frame[name] = np.nan
        elif name in levels:
            frame[name] = levels[name][cells.astype(int)]
        else:
            frame[name] = cells
    return frame


def _ours(name, **parameters):
    """Return a method of an imputer of skvnce, by name."""
    return lambda *task: by_imputer(partial(getattr(skvnce, name), **parameters), *task)


def complete_data(tables, design, seeds, n_draws):
    """Take the complete tables, which the study passes to this method."""
    return ([[table], 0.0] for table in tables)


def complete_cases(tables, design, seeds, n_draws):
    """Leave out the rows with missing cells."""
    return ([[table.dropna()], 0.0] for table in tables)


METHODS = {
    "complete": complete_data,
    "cases": complete_cases,
    "table": _ours("TableImputer"),
    "table_alone": _ours("TableImputer", relations=None),
    "gaussian": _ours("GaussianImputer"),
    "gaussian_groups": partial(by_imputer, skvnce.GaussianImputer, groups=True),
    "mixture": _ours("MixtureImputer"),
    "columns": _ours("ColumnImputer"),
    "lair": _ours("LAIRImputer"),
    "vgi": _ours("VGIImputer"),
    "iterative": by_iterative_imputer,
    "mice": partial(by_r, "default"),
    "mice_norm": partial(by_r, "norm"),
    "mice_cart": partial(by_r, "cart"),
    "mice_rf": partial(by_r, "rf"),
    "smcfcs": partial(by_r, "smcfcs"),
}
NAMES = specs("validity")["methods"]


def completed(method, table, seed, n_draws):
    """Complete one table, of no design: completed tables or an error, and seconds."""
    design = SimpleNamespace(group=None, formula=None)
    [answer] = METHODS[method]([table], design, [seed], n_draws)
    return answer


def applies(method, design):
    """Say whether a method is one for a design, and is there."""
    if method == "table_alone":
        return design.has_relations
    if method == "gaussian_groups":
        return design.group is not None
    return method != "smcfcs" or design.formula is not None
