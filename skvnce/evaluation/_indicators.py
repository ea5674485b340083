"""Columns of zeros and ones that are the levels of one category."""

import numpy as np

from skvnce.tables.column_kinds import PASSED
from skvnce.tables.table import listed

_FEWEST = 20  # complete rows, of which each has a single one
_LEAST = 3  # of them with a one in each column


def one_hot(table):
    """Find sets of columns of which one is 1 in each row, and some cells are missing.

    Imputers fill such columns one by one, so that a row may get no level or several.

    Returns list of str: at most one sentence.
    """
    sets = [
        listed([table.names[place] for place in places])
        for places in one_hot_sets(table)
        if (table.n_observed[places] < len(table.cells)).any()
    ]
    if not sets:
        return []
    return [
        f"Levels of one category in columns of zeros and ones: {listed(sets, '; ')}. "
        "Filled rows may have none of the levels, or several. Give one column of the "
        "levels instead, such as X[names].idxmax(axis=1).where(X[names].notna().all("
        "axis=1)) of pandas."
    ]


def one_hot_sets(table):
    """List sets of columns of zeros and ones whose sum is 1 in all complete rows."""
    cells = {place: _indicator(table, place) for place in range(len(table.columns))}
    free = [place for place, one in cells.items() if one is not None]
    found = []
    while free:
        places = _set_from(free, cells)
        found += [places] * (len(places) > 1)
        free = [place for place in free[1:] if place not in places]
    return found


def _set_from(free, cells):
    """Add columns without a common one to the first; one column if it has no others."""
    places, total = free[:1], cells[free[0]]
    for place in free[1:]:
        both = total + cells[place]
        if (both > 1).any():  # of missing cells it is False
            continue
        places, total = [*places, place], both
        known = total[~np.isnan(total)]
        ones = [cells[one][~np.isnan(total)].sum() for one in places]
        if len(known) >= _FEWEST and known.all() and min(ones) >= _LEAST:
            return places
    return free[:1]


def _indicator(table, place):
    """Return the cells of a column as zeros and ones; None if it has other values."""
    column, cells = table.columns[place], table.cells[:, place]
    # codes of the levels 0 and 1, or False and True, are equal to them
    is_number = column.levels is None and column.is_plain
    if column.kind == PASSED or not (is_number or column.levels == (0, 1)):
        return None
    seen = cells[~np.isnan(cells)]
    is_binary = np.isin(seen, (0, 1)).all() and len(np.unique(seen)) > 1
    return cells if is_binary else None
