"""The default imputer beside each other method, on the tables that both have."""

import numpy as np
from _report import Texts, table

TEXTS = Texts("beside", globals())

DEFAULT = "TableImputer"
CLEAR = 1.02  # a ratio above it is a loss
TEXT = TEXTS("text", clear=CLEAR - 1)


def by_place(mine, theirs):
    """Return the ratios of scores, geometric means over seeds.

    Parameters
    ----------
    mine, theirs : dict
        {(place, seed): score}; scores of 0 are left out.

    Returns
    -------
    dict of place : ratio
    """
    logs = {}
    for key in mine.keys() & theirs.keys():
        if mine[key] > 0 and theirs[key] > 0:
            logs.setdefault(key[0], []).append(np.log(mine[key] / theirs[key]))
    return {place: float(np.exp(np.mean(some))) for place, some in logs.items()}


def written(ratios):
    """Write the mean of ratios, and how many are losses."""
    if not ratios:
        return "-"
    values = np.array(list(ratios.values()))
    mean = float(np.exp(np.log(values).mean()))
    text = f"**{mean:.3f}**" if mean > 1 else f"{mean:.3f}"
    return f"{text} ({(values > CLEAR).sum()} of {len(values)})"


def beside(methods, columns):
    """Make the table of the default beside others.

    Parameters
    ----------
    methods : list of str
    columns : dict
        {heading: function of a method to {(place, seed): score}}

    Returns
    -------
    list of str
        The parts of a page; none where the default has no results.
    """
    if not any(scores(DEFAULT) for scores in columns.values()):
        return []
    rows = []
    for method in methods:
        cells = [
            written(by_place(scores(DEFAULT), scores(method)))
            for scores in columns.values()
        ]
        if method != DEFAULT and any(cell != "-" for cell in cells):
            rows.append([method, *cells])
    header = [f"{DEFAULT} over", *columns]
    return [f"## Where {DEFAULT} loses", TEXT, table(header, rows)]
