"""The page of `wild.py`: geometric means over tables, spread, the worst tables."""

import numpy as np
from _report import table
from _wild_methods import BASE, CLOCK
from _wild_scores import FLOOR

SCORES = {  # of a record: its name on the page, and the method that it is relative to
    "numbers": ("RMSE", CLOCK),
    "grades": ("grades", CLOCK),
    "categories": ("categories", BASE),
    "energy_numbers": ("energy: numbers", BASE),
    "energy_grades": ("energy: grades", BASE),
    "energy_categories": ("energy: categories", BASE),
    "energy_rows": ("energy: rows", BASE),
    "coverage": ("90 % covers", None),
    "time": ("time", CLOCK),
}
CUT = 20  # the largest ratio that counts, and one over the smallest


def values(records, method, way, score):
    """Return a score of a method by table, relative to its base where it has one.

    Where a method fails it has the score of means and modes, but no time.
    """
    own = by_table(records, method, way, score)
    if score != "time" and own:
        failed = {r["table"] for r in records if is_of(r, method, way) and "error" in r}
        fallback = by_table(records, BASE, way, score)
        own |= {name: fallback[name] for name in failed if name in fallback}
    base = SCORES[score][1]
    if base is None:
        return own
    other, low = by_table(records, base, way, score), 0 if score == "time" else FLOOR
    return {
        name: float(np.clip(max(value, low) / max(other[name], low), 1 / CUT, CUT))
        for name, value in own.items()
        if name in other
    }


def by_table(records, method, way, score):
    """Return a score of a method by table."""
    some = [r for r in records if is_of(r, method, way) and "error" not in r]
    if score == "time":
        return {r["table"]: r["fit"] + r["transform"] for r in some}
    return {r["table"]: r[score] for r in some if score in r}


def is_of(record, method, way):
    """Say whether a record is of a method and a way."""
    return record["method"] == method and record["way"] == way


def mean(some, score):
    """Average over tables: geometrically, if these are ratios."""
    some = list(some)
    if not some:
        return None
    if SCORES[score][1] is None:
        return float(np.mean(some))
    return float(np.exp(np.log(some).mean()))


def written(value):
    """Write an average."""
    return "–" if value is None else f"{value:.3f}" if value < 9.5 else f"{value:.0f}"


def means(records, methods, way, among=None):
    """Make a table of averages over the tables that each method has, or of `among`."""
    lines = []
    for method in methods:
        some = [r for r in records if is_of(r, method, way)]
        if among is not None:
            some = [r for r in some if r["table"] in among]
        line = [method, len(some), sum("error" in r for r in some)]
        for score in SCORES:
            found = values(records, method, way, score)
            some = [v for name, v in found.items() if among is None or name in among]
            line.append(written(mean(some, score)))
        lines.append(line)
    header = ["method", "tables", "failures", *(name for name, _ in SCORES.values())]
    return table(header, lines)


def beside(records, candidate, ways):
    """Compare a candidate with the recorded methods, on the tables that all have."""
    parts = []
    for way in ways:
        some = [r for r in records if r["way"] == way]
        own = {r["table"] for r in some if r["method"] == candidate}
        if not own:
            continue
        methods = list(dict.fromkeys(r["method"] for r in some))
        parts.append(f"{way}: {len(own)} tables; each method on those that it has")
        parts.append(means(records, methods, way, own))
        rows = []
        for score in ("numbers", "grades", "categories"):
            found = values(records, candidate, way, score)
            for name in sorted(found, key=found.get, reverse=True)[:5]:
                rows.append([score, name, written(found[name])])
        parts.append(table(["score", "worst tables of the candidate", "ratio"], rows))
        failed = [r for r in some if r["method"] == candidate and "error" in r]
        parts += [f"{r['table']}: {r['error']}" for r in failed]
        texts = [
            t for r in some if r["method"] == candidate for t in r.get("texts", [])
        ]
        parts += [
            f"warning in {texts.count(t)} tables: {t}" for t in sorted(set(texts))
        ]
    return parts


def report(records, ways):
    """Write the page."""
    methods = list(dict.fromkeys(r["method"] for r in records))
    return ["# Tables of others", *(means(records, methods, way) for way in ways)]
