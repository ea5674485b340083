"""The page of `protocols.py`: goals, all tables, and reported figures beside."""

from functools import partial

import numpy as np
from _beside import beside
from _report import Texts, made_by, table
from protocol_methods import METHODS, OURS
from protocol_reported import REPORTED_A, REPORTED_B, goal_a
from protocol_tables import MECHANISMS_A, MECHANISMS_B, TABLES_A, TABLES_B

TEXTS = Texts("protocols", globals())

TEXT = TEXTS("text")

GOALS_TEXT = TEXTS("goals")

GOALS_B_TEXT = TEXTS("goals b")

MISSING_TEXT = TEXTS("missing")

RIVALS_TEXT = TEXTS("rivals")

GOALS = {  # geometric mean of the ratios, worst table
    "avg_mae": (0.95, 1.10),
    "min_mae": (0.95, 0.95),
    "crps": (None, 1.02),
}
NAMES = {
    "avg_mae": "AvgMAE",
    "min_mae": "MinMAE",
    "crps": "CRPS",
    "avg_mae_draws": "AvgMAE of draws",
    "mae_median": "MAE of the median",
    "rmse": "RMSE",
    "coverage": "coverage",
    "energy": "energy distance",
    "w_train": "W_train",
    "seconds": "CPU s",
    "mae_in": "MAE, in-sample",
    "rmse_in": "RMSE, in-sample",
    "mae_out": "MAE, out-of-sample",
    "rmse_out": "RMSE, out-of-sample",
}
SCORES_A = (
    *("min_mae", "avg_mae", "avg_mae_draws", "mae_median", "crps", "rmse"),
    *("coverage", "energy", "w_train", "seconds"),
)
SCORES_B = "mae_in", "rmse_in", "mae_out", "rmse_out", "seconds"


def averages(records, score, seeds=None):
    """Return the mean over seeds of a score, by method; or over some seeds only."""
    found = {}
    for r in records:
        if score in r and (seeds is None or r["seed"] in seeds):
            found.setdefault(r["method"], {})[r["seed"]] = r[score]
    return {method: float(np.mean(list(own.values()))) for method, own in found.items()}


def seeds_of(records, method):
    """Return the seeds of a method that have scores."""
    own = (r for r in records if r["method"] == method and "missing" not in r)
    return {r["seed"] for r in own}


def of(records, protocol, name, mechanism):
    """Return the records of a table."""
    asked = {"protocol": protocol, "table": name, "mechanism": mechanism}
    return [r for r in records if asked.items() <= r.items()]


def written(value, score):
    """Write a score."""
    if value is None:
        return "-"
    if score == "seconds":
        return f"{value:.0f}" if value >= 9.5 else f"{value:.1f}"
    return f"{value:.4f}"


def ratios(records, method, score):
    """Return the ratios of a method to what its goal names, by table of protocol A.

    For the CRPS this is the best rival that was run on the same masks, on the seeds
    that both have.
    """
    found = {}
    for name in TABLES_A:
        some = of(records, "A", name, "MCAR")
        mine = averages(some, score).get(method)
        if mine is None:
            continue
        if score != "crps":
            found[name] = mine / goal_a(name, score)
            continue
        pairs = []
        for rival in {r["method"] for r in some} - OURS.keys() - {method}:
            common = seeds_of(some, rival) & seeds_of(some, method)
            both = averages(some, score, common)
            if rival in both and method in both:
                pairs.append(both[method] / both[rival])
        if pairs:
            found[name] = max(pairs)
    return found


def geometric(values):
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))


def verdict(found, score):
    """Say whether ratios by table meet the goal of a score."""
    mean, worst = GOALS[score]
    met = max(found.values()) <= worst
    return met and (mean is None or geometric(found.values()) <= mean)


def goals_a(records):
    """Make the table of the goals of protocol A: all methods, ours evaluated."""
    header = ["method", "score", "tables", "geometric mean", "worst table", ""]
    lines = []
    for score in GOALS:
        for method in METHODS:
            found = ratios(records, method, score)
            if not found:
                continue
            worst = max(found, key=found.get)
            lines.append(
                [
                    *(method, NAMES[score], len(found)),
                    f"{geometric(found.values()):.3f}",
                    f"{found[worst]:.3f} ({worst})",
                    ("met" if verdict(found, score) else "missed")
                    if method in OURS
                    else "",
                ]
            )
    return table(header, lines)


def by_table(records, score):
    """Make the table of the ratios of ours by table."""
    found = {m: ratios(records, m, score) for m in OURS}
    found = {m: own for m, own in found.items() if own}
    lines = [
        [name, *(f"{own[name]:.3f}" if name in own else "-" for own in found.values())]
        for name in TABLES_A
        if any(name in own for own in found.values())
    ]
    return table(["table", *found], lines)


def table_a(records, name, mechanism):
    """Make the table of the scores of a table of protocol A."""
    some = of(records, "A", name, mechanism)
    reported = REPORTED_A[name] if mechanism == "MCAR" else {}
    head = ["MinMAE (reported)", "AvgMAE (reported)"] if reported else []
    scores = [s for s in SCORES_A if averages(some, s)]
    lines = []
    for method in [*METHODS, *(m for m in reported if m not in METHODS)]:
        seeds = seeds_of(some, method)
        notes = reported.get(method, {})
        if not seeds and not notes:
            continue
        cells = [f"{notes[s]:.3f}" if notes else "-" for s in ("min_mae", "avg_mae")]
        own = (written(averages(some, s).get(method), s) for s in scores)
        lines.append([method, *(cells if head else []), len(seeds), *own])
    return table(["method", *head, "seeds", *(NAMES[s] for s in scores)], lines)


def table_b(records, name, mechanism):
    """Make the table of the scores of a table of protocol B."""
    some = of(records, "B", name, mechanism)
    reported = REPORTED_B[name] if mechanism == "MAR" else {}
    head = ["MAE, in-sample (reported)", "RMSE, in-sample (reported)"]
    head = head if reported else []
    lines = [
        [method, *(f"{value:.4f}" for value in pair), "-", *["-"] * len(SCORES_B)]
        for method, pair in reported.items()
    ]
    for method in METHODS:
        seeds = seeds_of(some, method)
        if seeds:
            own = (written(averages(some, s).get(method), s) for s in SCORES_B)
            lines.append([method, *["-"] * len(head), len(seeds), *own])
    return table(["method", *head, "masks", *(NAMES[s] for s in SCORES_B)], lines)


def goals_b(records):
    """Compare ours with the figures that DiffPuter reports."""
    lines = []
    for name, reported in REPORTED_B.items():
        some = of(records, "B", name, "MAR")
        for i, score in enumerate(("mae_in", "rmse_in")):
            other = reported["DiffPuter"][i]
            own = averages(some, score)
            for method in OURS:
                if method in own:
                    ratio, value = own[method] / other, f"{own[method]:.4f}"
                    met = "met" if ratio <= 1 else "missed"
                    count = len(seeds_of(some, method))
                    line = [method, name, NAMES[score], count, value, f"{other:.4f}"]
                    lines.append([*line, f"{ratio:.3f}", met])
    head = ["method", "table", "score", "masks", "measured", "DiffPuter (reported)"]
    return table([*head, "ratio", ""], lines)


def losses(records):
    """Set the default beside each other method in protocol A, MCAR."""
    scores = "crps", "rmse", "mae_median", "min_mae", "energy"
    columns = {NAMES[score]: partial(of_seeds, records, score) for score in scores}
    return beside(list(METHODS), columns)


def of_seeds(records, score, method):
    """Return a score of a method by table and seed."""
    asked = {"protocol": "A", "mechanism": "MCAR", "method": method}
    return {
        (r["table"], r["seed"]): r[score]
        for r in records
        if score in r and asked.items() <= r.items()
    }


def missing(records):
    """List the cases without an answer."""
    lines = {}
    for r in records:
        if "missing" in r:
            key = r["method"], r["table"], r["missing"]
            lines.setdefault(key, []).append(f"{r['mechanism']} {r['seed']}")
    if not lines:
        return "None."
    rows = [[*key, ", ".join(places)] for key, places in sorted(lines.items())]
    return table(["method", "table", "reason", "mechanism and seed"], rows)


def versions(records):
    """List versions and remarks of the rivals."""
    found = {r["version"]: r.get("remarks", []) for r in records if "version" in r}
    names = [" ".join([v, *(f"({x})" for x in some)]) for v, some in found.items()]
    return f"Versions: {', '.join(sorted(names)) or 'none'}."


def page(results, notes):
    """Return the parts of the page."""
    records = results.records
    parts = [
        "# Two published protocols",
        made_by("protocols.py", f"Code of commit {results.commits()}."),
        *(notes, TEXT, *losses(records), "## Goals", GOALS_TEXT, goals_a(records)),
    ]
    for score in GOALS:
        parts += [f"### {NAMES[score]} by table", by_table(records, score)]
    parts += ["### Protocol B", GOALS_B_TEXT, goals_b(records)]
    for mechanism in MECHANISMS_A:
        for name in TABLES_A:
            if of(records, "A", name, mechanism):
                parts.append(f"## Protocol A: {name}, {mechanism}")
                parts.append(table_a(records, name, mechanism))
    for mechanism in MECHANISMS_B:
        for name in TABLES_B:
            if of(records, "B", name, mechanism):
                parts.append(f"## Protocol B: {name}, {mechanism}")
                parts.append(table_b(records, name, mechanism))
    parts += ["## Without an answer", MISSING_TEXT, missing(records)]
    return [*parts, "## Rivals", RIVALS_TEXT, versions(records)]
