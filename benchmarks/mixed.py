"""Imputing tables of numbers, grades and categories.

    python benchmarks/mixed.py [--results FILE] [--only-report] [--quick]
        [--only table=adult method=GaussianImputer]
        [--output doc/benchmarks/mixed.md]

Genuine holes stay; 30 % of the observed cells are hidden, completely at random (MCAR)
or by complete columns (MAR: logistic in a random 30 % of the complete columns, which
stay complete).  Methods learn from 70 % of the rows, and are scored on the hidden cells
of the others.  Each result is a line of FILE; those that are there are not computed
again.
"""

import time
from functools import cache, partial
from typing import NamedTuple

import mixed_rivals
import numpy as np
import pandas as pd
from _beside import beside
from _data import load
from _report import (
    Texts,
    geometric_mean,
    specs,
    table,
    unanswered,
)
from _runner import main_of
from mixed_rivals import RIVALS, Missing
from mixed_scores import SCORES, Answer, frame_of, score
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from skvnce import (
    GaussianImputer,
    LAIRImputer,
    MixtureImputer,
    TableImputer,
    VGIImputer,
)

TEXTS, SPECS = Texts("mixed", globals(), vars(mixed_rivals)), specs("mixed")

DRAWS = 50
ROUNDS = 5  # of chained forests


def marginal(case, seed):
    """Fill means and modes; draw observed cells of the column."""
    rng, (train, test) = np.random.default_rng(seed), case.masked
    points, draws, probabilities = np.zeros_like(test), [], {}
    for j, kind in enumerate(case.kinds):
        seen = train[~np.isnan(train[:, j]), j]
        draws.append(rng.choice(seen, (DRAWS, len(test))))
        points[:, j] = seen.mean()
        if kind != "numeric":
            shares = np.bincount(seen.astype(int), minlength=len(case.levels[j]))
            probabilities[j] = np.tile(shares / len(seen), (len(test), 1))
            points[:, j] = shares.argmax()
    return Answer(points, probabilities, np.stack(draws, -1))


def rounded(case, cells):
    """Round the codes of a filled table (..., n, d) to levels."""
    cells = np.array(cells, dtype=float)
    for j, levels in enumerate(case.levels):
        if levels is not None:
            cells[..., j] = np.clip(cells[..., j].round(), 0, len(levels) - 1)
    return cells


def iterative(case, seed):
    """Chained ridge regressions on codes, rounded: one table, without draws."""
    train, test = case.masked
    model = IterativeImputer(random_state=seed, keep_empty_features=True).fit(train)
    points = rounded(case, model.transform(test))
    return Answer(points, None, np.repeat(points[None], DRAWS, 0))


def forests(case, seed):
    """Chained random forests with their class probabilities, as missForest chains."""
    train, test = (x.copy() for x in case.masked)
    holes = np.isnan(train), np.isnan(test)
    start = marginal(case, seed).points[0]
    for x, hole in zip((train, test), holes, strict=True):
        x[hole] = np.broadcast_to(start, x.shape)[hole]
    probabilities = {}
    for _ in range(ROUNDS):
        for j in holes[0].sum(0).argsort():
            if not (holes[0][:, j].any() or holes[1][:, j].any()):
                continue
            others, seen = np.delete(train, j, 1), ~holes[0][:, j]
            kind = case.kinds[j] == "numeric"
            forest = (RandomForestRegressor if kind else RandomForestClassifier)(
                100, min_samples_leaf=1 if kind else 3, random_state=seed, n_jobs=1
            ).fit(others[seen], train[seen, j])
            if holes[0][:, j].any():
                train[~seen, j] = forest.predict(others[~seen])
            rows = np.delete(test, j, 1)
            test[holes[1][:, j], j] = forest.predict(rows)[holes[1][:, j]]
            if not kind:
                found = np.zeros((len(test), len(case.levels[j])))
                found[:, forest.classes_.astype(int)] = forest.predict_proba(rows)
                probabilities[j] = found
    return Answer(test, probabilities, np.repeat(test[None], DRAWS, 0))


def ours(make, **options):
    """Make a method of one of our imputers, which take data frames."""

    def method(case, seed):
        model = make(handle_unknown="missing", random_state=seed, **options)
        model.set_output(transform="pandas").fit(frame_of(case, case.masked[0]))
        return answer_of(model, case, seed)

    return method


def answer_of(estimator, case, seed):
    """Fill and draw by a fitted imputer that returns data frames of pandas."""
    test = frame_of(case, case.masked[1])
    points = estimator.transform(test).astype(float).to_numpy()
    drawn = estimator.sample(test, DRAWS, random_state=seed)
    draws = np.stack([table.astype(float).to_numpy() for table in drawn])
    probabilities = {}
    for name, found in estimator.category_probabilities(test).items():
        j = case.names.index(name)
        if case.levels[j] is None:  # few whole numbers, which the imputer takes as such
            continue
        probabilities[j] = np.zeros((len(test), len(case.levels[j])))
        probabilities[j][:, list(found)] = found.to_numpy()
    return Answer(points, probabilities, draws)


BASE = "draws of the marginal"
CLOCK = "IterativeImputer, codes and rounding"
BASELINES = {BASE: marginal, CLOCK: iterative, "chained random forests": forests}
REMOVED = "ForestImputer", "ForestImputer, LAIR"  # only their results are left
OURS = {
    "TableImputer": ours(TableImputer),
    "GaussianImputer": ours(GaussianImputer, on_misfit="ignore"),
    "MixtureImputer": ours(MixtureImputer, on_misfit="ignore"),
    "LAIRImputer": ours(LAIRImputer, n_draws=DRAWS, on_misfit="ignore"),
    "VGIImputer": ours(VGIImputer, n_draws=DRAWS, on_misfit="ignore"),
    **dict.fromkeys(REMOVED),
}
METHODS = BASELINES | OURS | RIVALS


SHARE, TEST = 0.3, 0.3  # of the observed cells that are hidden, of the rows that test
STEEP = 2.0  # slope of the log-odds of MAR, a standard deviation of the driver
MECHANISMS = "MCAR", "MAR"


class Kinds(NamedTuple):
    """Columns of a table by kind; all others are left out."""

    numeric: tuple
    ordinal: tuple = ()
    nominal: tuple = ()


TABLES = {
    name: Kinds(**{kind: tuple(columns) for kind, columns in kinds.items()})
    for name, kinds in specs("mixed_tables").items()
}
FILES = {"adult": "adult6k", "nhanes": "nhanes_adults"}
ROWS = 1200  # at most
ORDERS = {
    "Education": [
        *("8th Grade", "9 - 11th Grade", "High School", "Some College"),
        "College Grad",
    ]
}


class Case(NamedTuple):
    """A table with hidden cells."""

    kinds: list  # "numeric", "ordinal" or "nominal"
    levels: list  # levels of each column in the order of their codes
    names: list  # list of str
    # (n, d): Rows to learn from and rows to test, NaN where missing; levels are codes
    full: tuple
    masked: tuple

    @property
    def hidden(self):
        """The cells that are scored: hidden cells of the test rows."""
        return np.isnan(self.masked[1]) & ~np.isnan(self.full[1])


def encoded(name):
    """Read a table: codes, kinds, levels, names."""
    frame = load(FILES.get(name, name))
    if name == "adult":
        frame["capital_gain"] = np.log1p(frame["capital_gain"])
    asked, columns, levels = TABLES[name], [], []
    names = [c for some in asked for c in some]
    kinds = [
        kind for kind, some in zip(Kinds._fields, asked, strict=True) for _ in some
    ]
    for column, kind in zip(names, kinds, strict=True):
        cells = frame[column]
        known = None
        if kind != "numeric":
            known = ORDERS.get(column) or sorted(cells.dropna().unique())
            codes = {level: code for code, level in enumerate(known)}
            cells = cells.map(codes, na_action="ignore")
        columns.append(pd.to_numeric(cells).to_numpy(float))
        levels.append(known)
    return np.column_stack(columns), kinds, levels, names


def split(name, mechanism, seed):
    """Hide cells of a table, and split its rows."""
    rng = np.random.default_rng([seed, *map(ord, name)])
    x, kinds, levels, names = encoded(name)
    x = x[rng.permutation(len(x))[:ROWS]]
    masked = np.where(hidden_cells(x, mechanism, rng), np.nan, x)
    masked[np.isnan(masked).all(1)] = x[np.isnan(masked).all(1)]
    cut = round((1 - TEST) * len(x))
    parts = (x[:cut], x[cut:]), (masked[:cut], masked[cut:])
    return Case(kinds, levels, names, *parts)


def hidden_cells(x, mechanism, rng):
    """Choose observed cells completely at random, or by complete columns."""
    chance = np.full(x.shape, SHARE)
    if mechanism == "MAR":
        complete = np.flatnonzero(~np.isnan(x).any(0) & (np.nanstd(x, 0) > 0))
        count = max(1, round(0.3 * len(complete)))
        drivers = rng.choice(complete, count, replace=False)
        score = ((x - x.mean(0)) / x.std(0))[:, drivers] @ rng.normal(
            size=(count, x.shape[1])
        )
        score *= STEEP / np.maximum(score.std(0), 1e-9)
        chance = 1 / (1 + np.exp(-score - _intercepts(score)))
        chance[:, drivers] = 0.0
    return (rng.random(x.shape) < chance) & ~np.isnan(x)


def _intercepts(score):
    """Find the intercepts with which the mean chance of each column is SHARE."""
    low, high = np.full(score.shape[1], -50.0), np.full(score.shape[1], 50.0)
    for _ in range(60):
        middle = (low + high) / 2
        above = (1 / (1 + np.exp(-score - middle))).mean(0) > SHARE
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return middle


RATIOS = "pfc", "log_loss", "brier", "rps", "rmse", "crps"
NAMES = SPECS["names"]
GOALS = SPECS["goals"]  # of the best of ours, and of the plain imputer
GOAL_TABLES = "adult", "titanic", "horse_colic"
PLAIN = "GaussianImputer"
BEHIND = 1.02  # of a rival's score
COLUMNS = (*SCORES, "seconds")


def place(record):
    """Return the cell of a record."""
    return record["table"], record["mechanism"], record["seed"]


def scored_cells(records, method):
    """Return the cells (table, mechanism, seed) of a method that have scores."""
    return {place(r) for r in records if r["method"] == method and "missing" not in r}


def relative(records, method, name, among=None):
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


def mean(scores, name):
    """Average the scores of cells, geometrically if they are ratios; None if empty."""
    some = np.array(list(scores.values()))
    if not len(some):
        return None
    if name in (*RATIOS, "seconds"):
        return geometric_mean(np.maximum(some, 1e-6))
    return float(some.mean())


def written(value, name):
    """Write an average."""
    if value is None:
        return "-"
    digits = 3 if name != "seconds" else 0 if value >= 9.5 else 1
    return f"{value:.{digits}f}"


def pooled(records):
    """Make a table of all methods, pooled over the cells of these records."""
    lines = []
    for method in METHODS:
        if count := len(scored_cells(records, method)):
            scores = {c: mean(relative(records, method, c), c) for c in COLUMNS}
            lines.append([method, count, *(written(v, c) for c, v in scores.items())])
    return table(["method", "cells", *(NAMES[c] for c in COLUMNS)], lines)


def goal_cells(records, methods):
    """Return the cells of the tables of the goals that all these methods have."""
    of_tables = [r for r in records if r["table"] in GOAL_TABLES]
    there = [scored_cells(of_tables, method) for method in methods]
    return set.intersection(*there) if there else set()


def of_ours(records):
    """Return those of our methods that have results."""
    return [method for method in OURS if scored_cells(records, method)]


def best_of_ours(records):
    """Return our method of the lowest log-loss on the tables of the goals, or None.

    Only methods with results on all cells are compared: one cell says little.
    """
    there = {method: goal_cells(records, [method]) for method in of_ours(records)}
    every = max(there.values(), key=len, default=set())
    methods = [method for method, cells in there.items() if cells >= every]
    among = goal_cells(records, methods)
    losses = {
        m: mean(relative(records, m, "log_loss", among), "log_loss") for m in methods
    }
    losses = {m: loss for m, loss in losses.items() if loss is not None}
    return min(losses, key=losses.get) if losses else None


def evaluated(records, method, role):
    """Return for each goal of a role: score, bounds, average, whether it is met."""
    among = goal_cells(records, [method])
    for name, (low, high) in GOALS[role].items():
        value = mean(relative(records, method, name, among), name)
        if value is not None:
            yield name, (low, high), value, low <= value <= high


def roles(records):
    """Return what has goals: role, words of it, and a method of ours."""
    plain = "plain", "plain", "as the plain imputer", PLAIN
    best = best_of_ours(records)
    first = "best", "best of ours", "as the best of ours", best
    return [first, plain] if best else [plain]


def goals(records):
    """Make the table of the goals."""
    lines = []
    for role, label, _, method in roles(records):
        for name, (low, high), value, is_met in evaluated(records, method, role):
            goal = f"{low} to {high}" if low else f"at most {high}"
            verdict = "met" if is_met else "missed"
            cells = [f"{label}: {method}", NAMES[name], goal, written(value, name)]
            lines.append([*cells, verdict])
    return table(["method", "score", "goal", "value", ""], lines)


def versus(records, name):
    """Compare the best of ours with the best rival on each table.

    Of ours, the one of the least score on the cells that all of ours have; of the
    rivals, the one that is best beside it on the cells that both have.  Yields table,
    ours, rival, number of cells, score of ours, ratio to the rival.
    """
    rivals = [m for m in METHODS if m in RIVALS or m == "chained random forests"]
    for one in TABLES:
        some = [r for r in records if r["table"] == one]
        scores = {m: relative(some, m, name) for m in [*of_ours(some), *rivals]}
        own = [m for m in of_ours(some) if scores[m]]
        common = set.intersection(*(set(scores[m]) for m in own)) if own else ()
        if not common:
            continue
        own = {m: mean({c: scores[m][c] for c in common}, name) for m in own}
        best = min(own, key=own.get)
        pairs = []
        for rival in rivals:
            both = scores[rival].keys() & scores[best].keys()
            if both:
                sides = (
                    {cell: scores[m][cell] for cell in both} for m in (best, rival)
                )
                mine, other = (mean(side, name) for side in sides)
                pairs.append((mine / other, rival, len(both), mine))
        if pairs:
            ratio, rival, count, mine = max(pairs)
            yield one, best, rival, count, mine, ratio


def duel(records, name):
    """Write `versus` as a table."""
    lines = []
    for one, best, rival, count, mine, ratio in versus(records, name):
        scores = [best, f"{mine:.3f}", rival, f"{mine / ratio:.3f}", count]
        word = "behind by more than 2 %" if ratio > BEHIND else ""
        lines.append([one, *scores, f"{ratio:.3f}", word])
    header = ["table", "best of ours", NAMES[name], "best rival", NAMES[name], "cells"]
    return table([*header, "ours / rival", ""], lines)


def losses(records):
    """Set the default beside each other method, where it has results."""

    def scores(score, method):
        return {
            ((r["table"], r["mechanism"]), r["seed"]): r[score]
            for r in records
            if r["method"] == method and score in r
        }

    names = "pfc", "log_loss", "brier", "rmse", "crps"
    columns = {NAMES[name]: partial(scores, name) for name in names}
    parts = beside(list(METHODS), columns, [m for m in OURS if m not in REMOVED])
    return "\n\n".join([*parts, TEXTS("losses")] if parts else [])


def summary(records):
    """Say in words how many goals are met, and where rivals are ahead."""
    lines = []
    for role, _, words, method in roles(records):
        if verdicts := list(evaluated(records, method, role)):
            missed = [NAMES[name] for name, *_, is_met in verdicts if not is_met]
            met = f"{len(verdicts) - len(missed)} of {len(verdicts)} goals {words}"
            count = len(goal_cells(records, [method]))
            end = f", and misses {', '.join(missed)}." if missed else "."
            lines.append(f"- {method} meets {met} (on {count} of 18 cells){end}")
    for name in ("log_loss", "crps"):
        if duels := list(versus(records, name)):
            ahead = sum(ratio <= 1 for *_, ratio in duels)
            behind = [f"{d[0]} ({d[2]})" for d in duels if d[-1] > BEHIND]
            lines.append(
                f"- In {NAMES[name]}, the best of ours is ahead of all rivals with "
                f"results on {ahead} of {len(duels)} tables, and behind one by more "
                f"than 2 % on {', '.join(behind) or 'none'}."
            )
    return "\n".join(lines)


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


@cache
def clock(*place):
    """Time the method that all others are compared with, in the same run."""
    begin = time.process_time()
    METHODS[CLOCK](split(*place), place[-1])
    return round(time.process_time() - begin, 3)


def measured(key, options):
    """Run and score a method, or say why there is no answer."""
    case, begin = split(*place(key)), time.process_time()
    try:
        answer = METHODS[key["method"]](case, key["seed"])
    except Missing as reason:
        scores = {"missing": str(reason)}
    else:
        seconds = time.process_time() - begin
        if answer.seconds is not None:
            seconds = answer.seconds
        scores = score(case, answer) | {"seconds": round(seconds, 2)}
        scores |= answer.notes or {}
    if key["method"] == CLOCK:
        return scores
    return scores | {"clock": clock(*place(key))}


def values(results, options):
    """Return what the page names."""
    records = results.records
    functions = losses, goals, summary, unanswered, remarks
    return {make.__name__: make(records) for make in functions}


def duels(results):
    """Write the tables of the best."""
    pairs = (
        [f"### {NAMES[n]}", duel(results.records, n)] for n in ("log_loss", "crps")
    )
    return sum(pairs, [])


def means(results):
    """Write the tables of all methods, by mechanism and by table."""
    places, parts = [(f"All tables, {m}", {"mechanism": m}) for m in MECHANISMS], []
    for title, key in [*places, *((name, {"table": name}) for name in TABLES)]:
        some = results.of(**key)
        if any("missing" not in record for record in some):
            parts += [f"## {title}", pooled(some)]
    return parts


def lacking(methods):
    """List the methods that cannot be run here."""
    absent = mixed_rivals.lacking(methods)
    return [*absent, *(m for m in methods if m in REMOVED)]


CASES = {"seed": range(3), "mechanism": MECHANISMS, "method": METHODS, "table": TABLES}
QUICK = {"table": ["titanic"], "seed": [0], "mechanism": MECHANISMS[:1]}
main = main_of(globals(), QUICK | {"method": [BASE, CLOCK, PLAIN]})
