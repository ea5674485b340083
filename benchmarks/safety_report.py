"""Report of the safety of imputers, made from its results alone."""

from collections import Counter

import numpy as np
from _report import made_by, table

OVER, NOT_NEGATIVE = "over the limit", "not for negative values"
RIVALS = ("mean", "IterativeImputer")
WORSE = 1.05  # RMSE over that of means, at most, of each of ours anywhere
GUT, GUT_BOUND = ("american_gut", 0.1, "GaussianImputer"), 0.90
SHORT = {
    "IterativeImputer": "Iterative",
    "GaussianImputer": "Gaussian",
    "TruncatedGaussianGraphLearner": "graph",
    "VNCEEstimator": "VNCE",
    "LAIRImputer": "LAIR",
    "VGIImputer, MIWAE": "VGI, MIWAE",
    "VGIImputer": "VGI",
}
READ = """\
A fill is what `transform` writes into a missing cell, a draw what `sample` does; both
of the rows that were fitted. The RMSE is of the hidden cells, in standard deviations of
each column, over that of the column means. "Outside" is the share of all missing cells
filled below the least or above the largest observed cell of their column; "outside
declared" that outside of the estimator's own `feature_ranges_`, where it has them.
Impossible is a draw that is not whole in a column of whole numbers, or not 0 or 1 in a
column of these. All estimators have their defaults and the seed; IterativeImputer and
the mean are rivals. `excess` is the mean difference of squared errors to means, in
standard errors: below 2, a ratio above 1 may be chance. "VGIImputer, MIWAE" is what
VGIImputer() was before it trained by variational Gibbs inference: the autoencoder of
LAIRImputer, which MIWAE trains."""


class Results:
    """The lines of a file of results: the last plan, and a result for each cell."""

    def __init__(self, lines):
        plans = [line for line in lines if "plan" in line]
        self.plan = plans[-1] if plans else {}
        keys = ("table", "share", "estimator", "seed")
        self.found = {
            tuple(line[k] for k in keys): line for line in lines if "estimator" in line
        }
        found = list(self.found.values())
        self.places = list(dict.fromkeys((r["table"], r["share"]) for r in found))
        self.sizes = {r["table"]: (r["rows"], r["columns"]) for r in found}
        self.places.sort(key=lambda place: (np.prod(self.sizes[place[0]]), *place))
        self.seeds = sorted({r["seed"] for r in found})
        every = ["mean", *SHORT]
        self.estimators = [e for e in every if any(k[2] == e for k in self.found)]
        self.ours = [e for e in self.estimators if e not in RIVALS]

    def of(self, estimator, measure=None):
        """List the results of an estimator that have a measure."""
        return [
            r
            for r in self.found.values()
            if r["estimator"] == estimator
            and (measure is None or r.get(measure) is not None)
        ]

    def at(self, place, estimator):
        """List the results of an estimator at a table and a share, over the seeds."""
        return [r for r in self.of(estimator) if (r["table"], r["share"]) == place]

    def lacking(self):
        """List the tables, shares and estimators of the plan without a result."""
        plan = self.plan.get("plan")
        if not plan:
            return []
        return [
            (name, share, estimator)
            for name in plan["tables"]
            for share in plan["shares"]
            for estimator in plan["estimators"]
            if not any((name, share, estimator, s) in self.found for s in self.seeds)
        ]


def where(result):
    """Name a table and its share of hidden cells."""
    return f"{result['table']} {result['share']:.0%}"


def met(good):
    """Say it."""
    return "met" if good else "**missed**"


def goal_table(results):
    """Set the goals beside what was measured."""
    rows = []
    for name in results.ours:
        found = results.of(name, "ratio")
        if found:
            worst = max(found, key=lambda r: r["ratio"])
            bad = sum(r["ratio"] > WORSE for r in found)
            text = f"{len(found) - bad} of {len(found)} fits; most "
            text += f"{worst['ratio']:.3f}, {where(worst)}"
            goal = f"{name}: RMSE at most {WORSE:g} of that of means anywhere"
            rows.append([goal, text, met(not bad)])
    for name in results.ours:
        measure = "draws outside declared"
        found = results.of(name, measure)
        goal = f"{name}: no draw outside of its declared range"
        if found:
            worst = max(found, key=lambda r: r[measure])
            text = f"{len(found)} fits; most {worst[measure]:.2%}, {where(worst)}"
            rows.append([goal, text, met(worst[measure] == 0)])
        elif results.of(name, "draws outside"):
            rows.append([goal, "declares none (no `feature_ranges_`)", met(False)])
    for result in results.at(GUT[:2], GUT[2]):
        goal = (
            f"{GUT[2]}: RMSE over that of means on {GUT[0]}, {GUT[1]:.0%} hidden, at "
        )
        text = f"{result['ratio']:.3f}" if "ratio" in result else result["status"]
        good = result.get("ratio", np.inf) <= GUT_BOUND
        rows.append([f"{goal}most {GUT_BOUND:g}", text, met(good)])
    return table(["goal", "measured", ""], rows)


def summary(results):
    """Tabulate each estimator over all tables."""
    header = ["", "fits", "refused", OVER, "ratio: median", "most", f"above {WORSE:g}"]
    header += ["of these, excess above 2", "farthest fill, sd", "farthest draw, sd"]
    rows = []
    for name in results.estimators:
        found = results.of(name)
        counts = Counter(r["status"] for r in found)
        ratios = results.of(name, "ratio")
        values = [r["ratio"] for r in ratios]
        worse = [r for r in ratios if r["ratio"] > WORSE]
        rows.append([name, counts["done"], counts["refused"] + counts["died"]])
        rows[-1] += [counts[OVER], number(np.median(values)) if values else "-"]
        rows[-1] += [most(ratios, "ratio", "{:.2f}"), len(worse)]
        rows[-1] += [sum(r["excess"] > 2 for r in worse)]
        rows[-1] += [
            most(results.of(name, m), m, "{:.1f}")
            for m in ("farthest", "farthest draw")
        ]
    return table(header, rows)


def shares_table(results):
    """Tabulate the shares of cells that are outside or impossible."""
    measures = {
        "fills outside": "fills outside",
        "draws outside": "draws outside",
        "fills outside declared": "fills outside declared",
        "draws outside declared": "draws outside declared",
        "impossible whole": "impossible draws, whole numbers",
        "impossible binary": "impossible draws, 0 and 1",
    }
    rows = []
    for name in results.estimators:
        row = [name]
        for measure in measures:
            found = results.of(name, measure)
            mean = np.mean([r[measure] for r in found]) if found else 0
            row.append(
                f"{mean:.2%} / {most(found, measure, '{:.1%}')}" if found else "-"
            )
        rows.append(row)
    return table(["mean over the fits / most", *measures.values()], rows)


def seconds_table(results):
    """Tabulate CPU times."""
    rows = []
    for name in results.estimators:
        row = [name]
        for step in ("fit", "transform", "sample"):
            found = results.of(name, step)
            middle = f"{np.median([r[step] for r in found]):.2f}" if found else "-"
            row.append(f"{middle} / {most(found, step, '{:.1f}')}")
        rows.append(row)
    return table(["CPU s, median / most", "fit", "transform", "sample"], rows)


def most(found, measure, form):
    """Name the largest number of a measure and where it was found."""
    if not found:
        return "-"
    worst = max(found, key=lambda r: r[measure])
    return f"{form.format(worst[measure])} ({where(worst)})"


def number(value):
    """Write a ratio."""
    return f"{value:.3f}"


def value_table(results, measure, form, bold=np.inf):
    """Tabulate a measure, a row for each table and share, its mean over the seeds."""
    rows = []
    for place in results.places:
        name, share = place
        row = [f"{name} {share:.0%}", "x".join(map(str, results.sizes[name]))]
        for estimator in results.estimators:
            found = results.at(place, estimator)
            values = [r[measure] for r in found if r.get(measure) is not None]
            if values:
                text = form.format(np.mean(values))
                row.append(f"**{text}**" if np.mean(values) > bold else text)
            else:
                row.append(why(found, measure))
        rows.append(row)
    names = [SHORT.get(e, e) for e in results.estimators]
    return table(["", "size", *names], rows)


def why(found, measure):
    """Say why there is no number."""
    if not found:
        return "not reached"
    status = found[0]["status"]
    if status == "done":
        return ""
    return {NOT_NEGATIVE: "-", OVER: "late"}.get(status, status)


def failures(results):
    """List the fits that were refused, died or came to their limit."""
    rows = [
        [where(r), r["estimator"], r["status"], r["in"], r["error"].replace("|", "/")]
        for r in results.found.values()
        if r["status"] not in ("done", NOT_NEGATIVE)
    ]
    return table(["table", "estimator", "", "in", "error"], rows) if rows else "None."


def warnings_table(results):
    """Count the warnings and where they were given."""
    rows = []
    for name in results.estimators:
        notes = Counter()
        example = {}
        for result in results.of(name, "warnings"):
            for said in result["warnings"]:
                kind = said[:70].replace("|", "/")
                notes[kind] += 1
                example.setdefault(kind, where(result))
        rows += [[name, kind, n, example[kind]] for kind, n in notes.most_common()]
    return table(["estimator", "warning", "fits", "first"], rows) if rows else "None."


def far_cells(results, number_of=3):
    """List the cells that each estimator filled farthest from the truth."""
    rows = []
    for name in results.estimators:
        found = sorted(results.of(name, "farthest"), key=lambda r: -r["farthest"])
        for r in found[:number_of]:
            column, truth, filled = r["farthest cell"]
            far = f"{r['farthest']:.1f}"
            rows.append([name, where(r), column, f"{truth:.4g}", f"{filled:.4g}", far])
    return table(["", "table", "column", "truth", "fill", "sd"], rows)


def protocol(results):
    """Say what was done and what was not."""
    reached = len({name for name, _ in results.places})
    text = (
        f"{reached} tables, {len(results.seeds)} seed(s), {results.plan.get('draws')} "
    )
    text += (
        "draws. At most 1500 rows of a table (a random subset), of images 1000 rows "
    )
    text += "and their 100 most variable pixels; numeric columns with two different "
    text += (
        "values; a tenth or a half of the observed cells hidden at random. Each fit "
    )
    text += "in a process of its own, one thread, with a limit of "
    text += ", ".join(sorted({str(r["limit"]) for r in results.found.values()}))
    text += " s of CPU time; what was known by then counts."
    for name in results.ours:
        commits = sorted({r["commit"] for r in results.of(name, "commit")})
        text += f" {name}: code of commit {', '.join(commits)}." if commits else ""
    absent = results.plan.get("left out")
    if absent:
        text += f" Fewer than two numeric columns have: {', '.join(absent)}."
    lacking = results.lacking()
    if lacking:
        names = ", ".join(sorted({name for name, _, _ in lacking}))
        text += f" **Not reached**: {len(lacking)} fits, of {names}."
    return text


def report(lines):
    """Write all tables; a list of paragraphs."""
    results = Results(lines)
    return [
        "# Safety of imputations",
        made_by("safety.py", "CPU seconds."),
        protocol(results),
        READ,
        "## Goals",
        goal_table(results),
        "## All tables together",
        summary(results),
        shares_table(results),
        seconds_table(results),
        "The farthest fills:",
        far_cells(results),
        "## Fits without a result, or without all of it",
        failures(results),
        "## Warnings",
        warnings_table(results),
        "## RMSE over that of means",
        value_table(results, "ratio", "{:.3f}", WORSE),
        "## Farthest fill, in standard deviations from the truth",
        value_table(results, "farthest", "{:.1f}"),
        "## Draws outside of the observed range",
        value_table(results, "draws outside", "{:.1%}"),
        "## Impossible draws",
        value_table(results, "impossible", "{:.1%}"),
    ]
