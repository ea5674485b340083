"""The page of `copula_graph.py`: tables, goals, and what was found."""

import numpy as np
from _report import Texts, made_by, table
from copula_graph_methods import METHODS, OURS, TRUNCATED
from copula_graph_tables import HOLES, TABLES

TEXTS = Texts("copula_graph", globals())

NEAR = 0.03  # of the AUC of the truncated learner
DEFAULT = "ebic 0"  # our rule of selection
SHARE = 0.9  # of the best F1 on the path
WORDS = {"copula20": "20 nodes of five kinds", "copula100": "100 nodes of five kinds"}
WORDS |= {"ring": "ring of truncated normals", "hub": "hub of truncated normals"}


def cell(results, name, hole, method):
    """Return the records of a method in a cell that have scores."""
    found = results.of(
        part="simulated", table=name, mechanism=hole[0], share=hole[1], method=method
    )
    return [record for record in found if "missing" not in record]


def averages(records):
    """Average scores over sets; the F1 is that of each rule of selection.

    Returns
    -------
    dict of str to float or dict
        With ``f1``, those of the rules, and ``chosen``: that of our default rule, or
        the best of those of a rival.
    """
    rules = {
        rule: float(np.mean([r["f1"][rule] for r in records]))
        for rule in records[0]["f1"]
    }
    names = "auc", "best_f1", "seconds"
    means = {name: float(np.mean([r[name] for r in records])) for name in names}
    ours = records[0]["method"] == OURS
    chosen = rules[DEFAULT] if ours else max(rules.values())
    return means | {"f1": rules, "chosen": chosen, "sets": len(records)}


def scores(results, name, hole):
    """Return the averages of all methods in a cell."""
    found = {method: cell(results, name, hole, method) for method in METHODS}
    return {method: averages(some) for method, some in found.items() if some}


def paired(results, name, hole, rival):
    """Average ours and a rival over the sets that both have."""
    ours, other = (
        {r["seed"]: r for r in cell(results, name, hole, method)}
        for method in (OURS, rival)
    )
    both = sorted(ours.keys() & other.keys())
    if not both:
        return None
    return tuple(averages([some[seed] for seed in both]) for some in (ours, other))


def cells(results, start):
    """List the cells of tables whose names start so, which have results of ours."""
    return [
        (name, hole)
        for name in TABLES
        for hole in HOLES
        if name.startswith(start) and cell(results, name, hole, OURS)
    ]


def label(name, hole):
    """Name a cell."""
    way, share = hole
    return f"{name}, complete" if not share else f"{name}, {share:.0%} {way}"


def recovery(results, name, hole):
    """Tabulate the methods in a cell."""
    lines = []
    for method, found in scores(results, name, hole).items():
        rules = ", ".join(f"{rule}: {value:.3f}" for rule, value in found["f1"].items())
        values = [f"{found[key]:.3f}" for key in ("auc", "best_f1")]
        seconds = f"{found['seconds']:.1f}"
        lines.append([method, found["sets"], *values, rules, seconds])
    header = ["method", "sets", "AUC", "best F1 of the path", "F1 of the chosen graph"]
    return table([*header, "CPU, s"], lines)


def rivals(results, name, hole):
    """Compare ours with each rival on common sets: (rival, ours, theirs) averages."""
    found = []
    for method in METHODS:
        pair = method != OURS and paired(results, name, hole, method)
        if pair:
            found.append((method, *pair))
    return found


def behind(results, score):
    """List the cells of copula data with holes, and the rivals that are ahead."""
    asked, lost = 0, []
    for name, hole in cells(results, "copula"):
        if hole[1]:
            asked += 1
            ahead = [
                f"{rival} ({theirs[score]:.3f} against {ours[score]:.3f}, "
                f"{ours['sets']} sets)"
                for rival, ours, theirs in rivals(results, name, hole)
                if theirs[score] >= ours[score]
            ]
            if ahead:
                lost.append(f"{label(name, hole)}: {'; '.join(ahead)}")
    return asked, lost


def verdict(goal, asked, lost):
    """Say whether a goal is met, and list the cells where it is not."""
    if not asked:
        return f"- {goal}: not measured."
    if not lost:
        return f"- {goal}: **met** in all {asked} cells."
    head = f"- {goal}: **missed** in {len(lost)} of {asked} cells."
    return "\n".join([head, *(f"  - {one}" for one in lost)])


def near_truncated(results):
    """List the cells of truncated normals where the AUC is too far below."""
    asked, lost = 0, []
    for name in ("ring", "hub"):
        for _, hole in cells(results, name):
            pair = paired(results, name, hole, TRUNCATED)
            if pair:
                asked += 1
                gap = pair[1]["auc"] - pair[0]["auc"]
                if gap > NEAR:
                    lost.append(f"{label(name, hole)}: {gap:.3f} below")
    return asked, lost


def well_chosen(results):
    """List the cells where EBIC's F1 is not near the best on the path."""
    asked, lost = 0, []
    for name, hole in cells(results, ""):
        found = scores(results, name, hole)[OURS]
        asked += 1
        if found["chosen"] < SHARE * found["best_f1"]:
            lost.append(
                f"{label(name, hole)}: {found['chosen']:.3f} of {found['best_f1']:.3f}"
            )
    return asked, lost


def found(results):
    """Name each goal as met or missed."""
    goals = [
        (
            "Ahead of all rivals in AUC on copula data with holes",
            behind(results, "auc"),
        ),
        (
            "Ahead of all rivals in F1 of the chosen graph on copula data with holes",
            behind(results, "chosen"),
        ),
        (
            f"At most {NEAR} below the AUC of {TRUNCATED} on truncated normals",
            near_truncated(results),
        ),
        ("F1 of EBIC within 10 % of the best F1 of the path", well_chosen(results)),
    ]
    return "\n".join(verdict(goal, *counts) for goal, counts in goals)


def page(results, notes):
    """Return the parts of the page."""
    commits = f"Code of commit {results.commits()}."
    parts = ["# Graphs of columns of any kind", made_by("copula_graph.py", commits)]
    parts += [notes, "## Recovery of known graphs", RECOVERY]
    for name in TABLES:
        if cells(results, name):
            parts.append(f"### {name}: {WORDS[name]}")
        for _, hole in cells(results, name):
            parts += [
                label(name, hole).capitalize() + ":",
                recovery(results, name, hole),
            ]
    versions = sorted({r["version"] for r in results.records if "version" in r})
    parts.append(f"Packages of R: {', '.join(versions) or 'none'}.")
    return [*parts, "## What was found", FOUND, found(results), WHY]


RECOVERY = TEXTS("recovery")

FOUND = TEXTS("found")

WHY = TEXTS("why")
