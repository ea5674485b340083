"""The page of `mixed.py`: pooled tables, goals, and the best of ours beside rivals."""

from functools import partial

import mixed_rivals
import numpy as np
from _beside import beside
from _report import Texts, made_by, table
from mixed_methods import BASE, CLOCK, METHODS, OURS
from mixed_rivals import RIVALS
from mixed_scores import SCORES
from mixed_tables import MECHANISMS, TABLES

TEXTS = Texts("mixed", globals(), vars(mixed_rivals))

RATIOS = "pfc", "log_loss", "brier", "rps", "rmse", "crps"
NAMES = {
    "pfc": "PFC",
    "log_loss": "log-loss",
    "brier": "Brier",
    "rps": "RPS",
    "rmse": "RMSE",
    "crps": "CRPS",
    "ece": "ECE",
    "auc": "AUC",
    "coverage": "coverage",
    "seconds": "CPU",
}
GOAL_TABLES = "adult", "titanic", "horse_colic"
GOALS = {  # of the best of ours: at least, at most
    "pfc": (0, 0.75),
    "log_loss": (0, 0.79),
    "brier": (0, 0.77),
    "crps": (0, 0.83),
    "rmse": (0, 0.86),
    "ece": (0, 0.05),
    "auc": (0, 0.59),
    "coverage": (0.88, 0.93),
    "seconds": (0, 18),
}
PLAIN = "GaussianImputer"
PLAIN_GOALS = {
    "pfc": (0, 0.80),
    "log_loss": (0, 0.84),
    "crps": (0, 0.85),
    "auc": (0, 0.62),
    "seconds": (0, 6),
}
BEHIND = 1.02  # of a rival's score
COLUMNS = (*SCORES, "seconds")


def cells(records):
    """Return the cells (table, mechanism, seed) of some records that have scores."""
    return {place(r) for r in records if "missing" not in r}


def place(record):
    """Return the cell of a record."""
    return record["table"], record["mechanism"], record["seed"]


def values(records, method, name, among=None):
    """Return a score of a method by cell, over the base where it is a ratio."""
    base = CLOCK if name == "seconds" else BASE
    own = {place(r): r[name] for r in records if r["method"] == method and name in r}
    if among is not None:
        own = {cell: value for cell, value in own.items() if cell in among}
    if name not in (*RATIOS, "seconds"):
        return own
    other = {place(r): r[name] for r in records if r["method"] == base and name in r}
    if name == "seconds":
        own_clock = (r for r in records if r["method"] == method and "clock" in r)
        other |= {place(r): r["clock"] for r in own_clock}
    return {cell: value / other[cell] for cell, value in own.items() if other.get(cell)}


def mean(found, name):
    """Average the scores of cells, geometrically if they are ratios; None if empty."""
    some = np.array(list(found.values()))
    if not len(some):
        return None
    if name in (*RATIOS, "seconds"):
        return float(np.exp(np.log(np.maximum(some, 1e-6)).mean()))
    return float(some.mean())


def written(value, name):
    """Write an average."""
    if value is None:
        return "-"
    if name == "seconds":
        return f"{value:.0f}" if value >= 9.5 else f"{value:.1f}"
    return f"{value:.3f}"


def pooled(records):
    """Make a table of all methods, pooled over the cells of these records."""
    methods = [m for m in METHODS if cells(r for r in records if r["method"] == m)]
    lines = [
        [
            method,
            len(cells(r for r in records if r["method"] == method)),
            *(written(mean(values(records, method, c), c), c) for c in COLUMNS),
        ]
        for method in methods
    ]
    return table(["method", "cells", *(NAMES[c] for c in COLUMNS)], lines)


def goal_cells(records, methods):
    """Return the cells of the tables of the goals that all these methods have."""
    of_tables = [r for r in records if r["table"] in GOAL_TABLES]
    found = [cells(r for r in of_tables if r["method"] == m) for m in methods]
    return set.intersection(*found) if found else set()


def ours(records):
    """Return those of our methods that have results."""
    return [m for m in OURS if cells(r for r in records if r["method"] == m)]


def best_of_ours(records):
    """Return our method of the lowest log-loss on the tables of the goals, or None.

    Only methods with results on all cells are compared: one cell says little.
    """
    every = max((goal_cells(records, [m]) for m in ours(records)), key=len, default=[])
    methods = [m for m in ours(records) if goal_cells(records, [m]) >= set(every)]
    among = goal_cells(records, methods)
    losses = {
        m: mean(values(records, m, "log_loss", among), "log_loss") for m in methods
    }
    losses = {m: loss for m, loss in losses.items() if loss is not None}
    return min(losses, key=losses.get) if losses else None


def evaluated(records, method, goals):
    """Return for each goal of a method: score, bounds, average, whether it is met."""
    among, found = goal_cells(records, [method]), []
    for name, (low, high) in goals.items():
        value = mean(values(records, method, name, among), name)
        if value is not None:
            found.append((name, (low, high), value, low <= value <= high))
    return found


def goals(records):
    """Make the table of the goals."""
    best, lines = best_of_ours(records), []
    for role, method, asked in (
        ("best of ours", best, GOALS),
        ("plain", PLAIN, PLAIN_GOALS),
    ):
        if method is None:
            continue
        for name, (low, high), value, met in evaluated(records, method, asked):
            goal = f"{low} to {high}" if low else f"at most {high}"
            verdict = "met" if met else "missed"
            lines.append(
                [f"{role}: {method}", NAMES[name], goal, written(value, name), verdict]
            )
    return table(["method", "score", "goal", "value", ""], lines)


def versus(records, name):
    """Compare the best of ours with the best rival on each table.

    Of ours, the one of the least score on the cells that all of ours have; of the
    rivals, the one that is best beside it on the cells that both have.

    Returns
    -------
    list of (table, ours, rival, number of cells, score of ours, ratio to the rival)
    """
    found = []
    rivals = [m for m in METHODS if m in RIVALS or m == "chained random forests"]
    for one in TABLES:
        some = [r for r in records if r["table"] == one]
        scores = {m: values(some, m, name) for m in [*ours(some), *rivals]}
        own = [m for m in ours(some) if scores[m]]
        common = set.intersection(*(set(scores[m]) for m in own)) if own else ()
        if not common:
            continue
        own = {m: mean({c: scores[m][c] for c in common}, name) for m in own}
        best = min(own, key=own.get)
        pairs = []
        for rival in rivals:
            both = scores[rival].keys() & scores[best].keys()
            if both:
                mine, other = (
                    mean({cell: scores[m][cell] for cell in both}, name)
                    for m in (best, rival)
                )
                pairs.append((mine / other, rival, len(both), mine))
        if pairs:
            ratio, rival, count, mine = max(pairs)
            found.append((one, best, rival, count, mine, ratio))
    return found


def duel(records, name):
    """Write `versus` as a table."""
    lines = [
        [
            *(one, best, f"{mine:.3f}", rival, f"{mine / ratio:.3f}", count),
            f"{ratio:.3f}",
            "behind by more than 2 %" if ratio > BEHIND else "",
        ]
        for one, best, rival, count, mine, ratio in versus(records, name)
    ]
    header = ["table", "best of ours", NAMES[name], "best rival", NAMES[name], "cells"]
    return table([*header, "ours / rival", ""], lines)


def losses(records):
    """Set the default beside each other method, where it has results."""
    scores = "pfc", "log_loss", "brier", "rmse", "crps"
    columns = {NAMES[score]: partial(of_seeds, records, score) for score in scores}
    return beside(list(METHODS), columns)


def of_seeds(records, score, method):
    """Return a score of a method by table with mechanism, and by seed."""
    return {
        ((r["table"], r["mechanism"]), r["seed"]): r[score]
        for r in records
        if r["method"] == method and score in r
    }


def found(records):
    """Say in words how many goals are met, and where rivals are ahead."""
    lines = []
    best = best_of_ours(records)
    for method, asked, role in (
        (best, GOALS, "as the best of ours"),
        (PLAIN, PLAIN_GOALS, "as the plain imputer"),
    ):
        verdicts = evaluated(records, method, asked) if method else []
        if verdicts:
            missed = [NAMES[name] for name, _, _, met in verdicts if not met]
            lines.append(
                f"- {method} meets {len(verdicts) - len(missed)} of {len(verdicts)} "
                f"goals {role} (on {len(goal_cells(records, [method]))} of 18 cells)"
                + (f", and misses {', '.join(missed)}." if missed else ".")
            )
    for name in ("log_loss", "crps"):
        duels = versus(records, name)
        if not duels:
            continue
        ahead = [one for one, *_, ratio in duels if ratio <= 1]
        behind = [f"{d[0]} ({d[2]})" for d in duels if d[-1] > BEHIND]
        lines.append(
            f"- In {NAMES[name]}, the best of ours is ahead of all rivals with results "
            f"on {len(ahead)} of {len(duels)} tables, and behind one by more than 2 % "
            + (f"on {', '.join(behind)}." if behind else "on none.")
        )
    return "\n".join(lines)


def missing(records):
    """Make the table of the cells without an answer, or say that there is none."""
    lines = {}
    for r in records:
        if "missing" in r:
            key = r["method"], r["table"], r["missing"]
            lines.setdefault(key, []).append(f"{r['mechanism']} {r['seed']}")
    if not lines:
        return "None."
    rows = [[*key, ", ".join(places)] for key, places in lines.items()]
    return table(["method", "table", "reason", "mechanism and seed"], sorted(rows))


def remarks(records):
    """List versions and remarks of the rivals."""
    lines = {}
    for r in records:
        for remark in r.get("remarks", []):
            lines.setdefault((r["version"], remark), set()).add(r["table"])
    versions = sorted({r["version"] for r in records if "version" in r}) or ["none"]
    rows = [
        f"- {version}: {remark} ({', '.join(sorted(tables))})"
        for (version, remark), tables in sorted(lines.items())
    ]
    return "\n".join([f"Versions: {', '.join(versions)}.", "", *rows]).strip()


def page(results, notes):
    """Return the parts of the page."""
    records = results.records
    parts = [
        "# Imputing mixed tables",
        made_by("mixed.py", f"Code of commit {results.commits()}."),
        notes,
        TEXT,
        *losses(records),
        "## Goals",
        GOALS_TEXT,
        goals(records),
        "## The best of ours beside the best rival",
        DUEL_TEXT,
    ]
    for name in ("log_loss", "crps"):
        parts += [f"### {NAMES[name]}", duel(records, name)]
    for mechanism in MECHANISMS:
        some = [r for r in records if r["mechanism"] == mechanism]
        if cells(some):
            parts += [f"## All tables, {mechanism}", pooled(some)]
    for name in TABLES:
        some = [r for r in records if r["table"] == name]
        if cells(some):
            parts += [f"## {name}", pooled(some)]
    parts += ["## What was found", FOUND_TEXT, found(records)]
    parts += ["## Without an answer", MISSING_TEXT, missing(records)]
    return [*parts, "## Rivals", RIVALS_TEXT, remarks(records)]


TEXT = TEXTS("text")

GOALS_TEXT = TEXTS("goals")

DUEL_TEXT = TEXTS("duel")

FOUND_TEXT = """\
The script writes these lines from the tables above."""

MISSING_TEXT = TEXTS("missing")

RIVALS_TEXT = TEXTS("rivals")
