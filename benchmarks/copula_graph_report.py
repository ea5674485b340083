"""The page of `copula_graph.py`: tables, goals, and what was found."""

import numpy as np
from _report import made_by, table
from copula_graph_methods import METHODS, OURS, TRUNCATED
from copula_graph_real import BESIDE, FIXED, GRAPH, INDEPENDENT
from copula_graph_real import TABLES as REAL
from copula_graph_tables import HOLES, TABLES

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


def means(results, name, method):
    """Average the numbers of a model on a real table; {} without results."""
    records = results.of(part="real", table=name, method=method)
    names = "log_score", "seconds", "edges", "stability"
    found = {}
    for key in names:
        values = [r[key] for r in records if r.get(key) is not None]
        if values:
            found[key] = float(np.mean(values))
    return found | ({"seeds": len(records)} if records else {})


def real_scores(results):
    """Tabulate the log-scores of real tables."""
    models = [GRAPH, FIXED, BESIDE, INDEPENDENT]
    lines = []
    for name in REAL:
        found = [means(results, name, method) for method in models]
        if all(found):
            scored = [f"{one['log_score']:.3f}" for one in found]
            times = " / ".join(f"{one['seconds']:.1f}" for one in found[:3])
            lines.append([name, found[0]["seeds"], *scored, times])
    return table(["table", "splits", *models, "fit, CPU s"], lines)


def real_edges(results):
    """Tabulate numbers and stability of the edges of real tables."""
    lines = []
    for name in REAL:
        found = [means(results, name, method) for method in (GRAPH, FIXED)]
        if all(found):
            cells = [
                (f"{one['edges']:.0f}", f"{one.get('stability', np.nan):.2f}")
                for one in found
            ]
            lines.append([name, *cells[0], *cells[1]])
    header = ["table", f"edges, {GRAPH}", "kept by the other half"]
    return table([*header, f"edges, {FIXED}", "kept by the other half"], lines)


def sachs(results):
    """Tabulate the AUC against the published networks of sachs."""
    lines = []
    for name in REAL:
        found = [
            r["auc"]
            for r in results.of(part="real", table=name, method=GRAPH)
            if "auc" in r
        ]
        if found:
            lines.append(
                [name, *(f"{np.mean([f[v] for f in found]):.3f}" for v in found[0])]
            )
            header = ["table", *found[0]]
    return table(header, lines) if lines else "Not measured."


def behind_normal(results):
    """List the real tables where a dense normal distribution predicts better."""
    asked, lost = 0, []
    for name in REAL:
        ours, dense = (means(results, name, method) for method in (GRAPH, BESIDE))
        if ours and dense:
            asked += 1
            if ours["log_score"] < dense["log_score"]:
                gap = dense["log_score"] - ours["log_score"]
                lost.append(f"{name}: by {gap:.3f} nats a cell")
    return asked, lost


def times(results):
    """Tabulate time and memory."""
    lines = []
    for r in results.of(part="time"):
        clock = r["GraphicalLassoCV"]
        ratios = [f"{r[key]:.2f} ({r[key] / clock:.1f})" for key in ("alpha", "CV")]
        memory = f"{r['memory']:.0f} ({r['memory'] - r['memory before']:.0f})"
        lines.append([r["kind"], r["d"], *ratios, f"{clock:.2f}", memory])
    header = ["columns", "d", "CopulaGraphLearner", "CopulaGraphLearnerCV"]
    return table([*header, "GraphicalLassoCV", "peak memory, MiB"], lines)


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
        (
            "No goal, but worth knowing: ahead of GaussianImputer in log-score on real "
            "tables",
            behind_normal(results),
        ),
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
    if results.of(part="real"):
        parts += ["## Real tables", REAL_TEXT, real_scores(results)]
        parts += [STABLE, real_edges(results), SACHS, sachs(results)]
    if results.of(part="time"):
        parts += ["## Time and memory", TIME, times(results)]
    return [*parts, "## What was found", FOUND, found(results), WHY]


RECOVERY = """\
AUC: pairs are ranked by the graph of the path in which they enter, then by their
strength there. CPU: seconds of one thread, on a machine that others used too. All
rivals of the graphical lasso have 20 penalties down to a hundredth of the largest,
which our solver minimises, and the EBIC of refitted edges with gamma 0 and 0.5; `CV` is
the choice of `GraphicalLassoCV`. They get codes of levels. *filled*: means and most
frequent codes. *normal scores*: ranks of the observed cells, holes filled by the mean.
*mice*: one completed table (pmm, logreg, polyreg; five iterations), then normal scores.
*Spearman of pairs*: `2 sin(pi r / 6)` of the rows that both columns have, made positive
definite; n is their mean number. R's huge gets the filled codes (nonparanormal by
shrinkage, EBIC and the rotation information criterion), and BDgraph the incomplete
codes (`gcgm`, 5000 iterations, AUC of the probabilities of edges, chosen above .5).
Methods without a line were not run."""

REAL_TEXT = f"""\
70 % of at most 1200 rows are learned from, the others are scored: the mean of log
p(block | others) over five random blocks of columns, in nats a scored cell, computed as
`score_samples` of the row less that without the block; higher is better. *sachs 30 %*
and *50 %*: so many cells hidden at random; *tcga*: 10 %; the other tables have their
genuine holes or none. Tables without a line were not run. `{FIXED}`: `sqrt(log(d) /
n)`. *{INDEPENDENT}*: the same learner with an alpha without edges. Tables of numbers
get a fair coin as a further column, so that `GaussianImputer` takes the marginals of
mixed tables, which are those of `CopulaGraphLearner`: the scores differ by the
dependence alone. Without it a value that occurs often has a probability in one model
and a density in the other, and the scores cannot be compared.
`TruncatedGaussianGraphLearner` is left out: its score is a sum over blocks of its own,
without a joint score from which ours would follow."""

STABLE = """\
Edges of the chosen graph, and which share of those of one half of the training rows the
other half has, at the same alpha:"""

SACHS = "AUC against the published networks of sachs (all columns, path of the choice):"

TIME = """\
CPU seconds of one thread, in brackets over those of GraphicalLassoCV on the filled
table; 445 rows, a latent normal graph, 30 % missing, `alpha = sqrt(log(d) / n)` for
`CopulaGraphLearner`. Peak memory of the process, in brackets what our two fits add."""

FOUND = """\
The script writes these lines from the tables above; our learner counts with its
default, EBIC with gamma 0, and a rival with the best of its rules of selection, on the
sets that both have."""

WHY = """\
Why the goals on truncated normals are missed was measured with other seeds
(copula_graph_limits.py of commit 16f1b40a). The dependence of a
truncated normal is not lost in a copula: with 10,000 complete rows the ranks find
nearly all edges of the hub. With 1000 rows many of its edges are as large as the noise.
Most of the lead of the truncated learner, in all cells but the complete ring, is what
it knows of the single columns: that their mode is at zero. A copula cannot know it, as
it is blind to increasing functions of a column. EBIC misses the edges of the hub in
complete rows, too: most of them change the deviance by less than the price log n. A
price that accounts for missing cells does not find enough of them either; lower ones
find more of the hub, and lose on columns of five kinds, so that the default remains."""
