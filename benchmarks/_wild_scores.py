"""Scores of a filled table and of draws, by the kinds of columns, on hidden cells.

Of each kind the geometric mean over columns, each at least FLOOR.
"""

import numpy as np
import pandas as pd
from _wild_tables import CATEGORY, GRADE, NAME, NUMBER

from skvnce.metrics import coverage

FLOOR = 0.01
KINDS = NUMBER, GRADE, CATEGORY
DRAWS = 20


def score_points(case, filled):
    """Score one filled table; count the cells that it leaves missing or infinite."""
    filled, left = finished(case, filled)
    found = {"unfilled": left}
    errors = {kind: [error(case, filled, c) for c in of(case, kind)] for kind in KINDS}
    for kind, some in errors.items():
        if some:
            found[kind] = geometric(some)
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
            found[f"energy_{kind}"] = geometric(some)
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


def geometric(some):
    """Return the geometric mean of numbers, each at least FLOOR."""
    return float(np.exp(np.log(np.maximum(some, FLOOR)).mean()))
