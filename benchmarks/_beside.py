"""The default imputer beside each other method, on the tables that both have."""

from _report import Texts, geometric_mean, table

TEXTS = Texts("beside", globals())

DEFAULT = "TableImputer"
CLEAR = 1.02  # a ratio above it is a loss
TEXT = TEXTS("text", clear=CLEAR - 1)


def scores_of(records, method, score, place):
    """Return a score of a method, {(place, seed): score}; fields make a place."""
    return {
        (tuple(r[name] for name in place), r["seed"]): r[score]
        for r in records
        if r["method"] == method and score in r
    }


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
    ratios = {}
    for key in mine.keys() & theirs.keys():
        if mine[key] > 0 and theirs[key] > 0:
            ratios.setdefault(key[0], []).append(mine[key] / theirs[key])
    return {place: geometric_mean(some) for place, some in ratios.items()}


def written(ratios):
    """Write the mean of ratios, and how many are losses."""
    if not ratios:
        return "-"
    mean = geometric_mean(ratios.values())
    text = f"**{mean:.3f}**" if mean > 1 else f"{mean:.3f}"
    losses = sum(value > CLEAR for value in ratios.values())
    return f"{text} ({losses} of {len(ratios)})"


def wins(method, columns):
    """Write the scores in which a method is ahead of the default in the mean."""
    parts = []
    for heading, scores in columns.items():
        ratios = by_place(scores(DEFAULT), scores(method))
        behind = geometric_mean(ratios.values()) - 1 if ratios else 0
        if behind > CLEAR - 1:
            parts.append(f"{heading} by {100 * behind:.0f} %")
    return f"- **{method}**: {'; '.join(parts)}." if parts else ""


def beside(methods, columns, ours=()):
    """Make the table of the default beside others.

    Parameters
    ----------
    methods : list of str
    columns : dict
        {heading: function of a method to {(place, seed): score}}
    ours : list of str
        Imputers of skvnce, whose wins are put into words.

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
    parts = [f"## Where {DEFAULT} loses", TEXT]
    parts.append(table([f"{DEFAULT} over", *columns], rows))
    won = "\n".join(filter(None, (wins(method, columns) for method in ours)))
    if ours:
        parts.append(TEXTS("wins", clear=CLEAR - 1, won=won or "None."))
    return parts
