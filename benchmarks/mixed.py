"""Imputing tables of numbers, grades and categories.

    python benchmarks/mixed.py [--results FILE] [--only-report] [--quick]
        [--tables adult titanic] [--methods GaussianImputer] [--seeds 3]
        [--output doc/benchmarks/mixed.md]

Genuine holes stay; 30 % of the observed cells are hidden, completely at random (MCAR)
or by complete columns (MAR: logistic in a random 30 % of the complete columns, which
stay complete).  Methods learn from 70 % of the rows, and are scored on the hidden cells
of the others.  Each result is a line of FILE; those that are there are not computed
again.
"""

import time
from functools import cache, partial
from itertools import product
from typing import NamedTuple

import mixed_rivals
import numpy as np
import pandas as pd
from _beside import beside
from _command import carry_out, options_of
from _data import load
from _report import Texts, made_by, specs, table, unanswered
from mixed_rivals import RIVALS, Missing, lacking
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

TEXTS = Texts("mixed", globals(), vars(mixed_rivals))

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


def of_estimator(estimator, case, seed):
    """Fill and draw by one of our imputers that takes data frames."""
    estimator.set_output(transform="pandas").fit(frame_of(case, case.masked[0]))
    return answer_of(estimator, case, seed)


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


def default(case, seed):
    """Fit the default imputer."""
    model = TableImputer(handle_unknown="missing", random_state=seed)
    return of_estimator(model, case, seed)


def gaussian(case, seed):
    """Fit the latent normal model."""
    options = {"on_misfit": "ignore", "handle_unknown": "missing"}
    model = GaussianImputer(random_state=seed, **options)
    return of_estimator(model, case, seed)


def mixture(case, seed):
    """Fit mixtures of normals and of latent classes."""
    options = {"on_misfit": "ignore", "handle_unknown": "missing"}
    model = MixtureImputer(random_state=seed, **options)
    return of_estimator(model, case, seed)


def lair(case, seed):
    """Fit autoencoders that start at the latent normal model."""
    options = {"on_misfit": "ignore", "handle_unknown": "missing"}
    model = LAIRImputer(n_draws=DRAWS, random_state=seed, **options)
    return of_estimator(model, case, seed)


def vgi(case, seed):
    """Fit autoencoders by variational Gibbs inference."""
    options = {"on_misfit": "ignore", "handle_unknown": "missing"}
    model = VGIImputer(n_draws=DRAWS, random_state=seed, **options)
    return of_estimator(model, case, seed)


BASE = "draws of the marginal"
CLOCK = "IterativeImputer, codes and rounding"
BASELINES = {BASE: marginal, CLOCK: iterative, "chained random forests": forests}
REMOVED = "ForestImputer", "ForestImputer, LAIR"  # only their results are left
OURS = {
    "TableImputer": default,
    "GaussianImputer": gaussian,
    "MixtureImputer": mixture,
    "LAIRImputer": lair,
    "VGIImputer": vgi,
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


def scored_cells(records):
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
    methods = [
        m for m in METHODS if scored_cells(r for r in records if r["method"] == m)
    ]
    lines = [
        [
            method,
            len(scored_cells(r for r in records if r["method"] == method)),
            *(written(mean(values(records, method, c), c), c) for c in COLUMNS),
        ]
        for method in methods
    ]
    return table(["method", "cells", *(NAMES[c] for c in COLUMNS)], lines)


def goal_cells(records, methods):
    """Return the cells of the tables of the goals that all these methods have."""
    of_tables = [r for r in records if r["table"] in GOAL_TABLES]
    found = [scored_cells(r for r in of_tables if r["method"] == m) for m in methods]
    return set.intersection(*found) if found else set()


def ours(records):
    """Return those of our methods that have results."""
    return [m for m in OURS if scored_cells(r for r in records if r["method"] == m)]


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
        if scored_cells(some):
            parts += [f"## All tables, {mechanism}", pooled(some)]
    for name in TABLES:
        some = [r for r in records if r["table"] == name]
        if scored_cells(some):
            parts += [f"## {name}", pooled(some)]
    parts += ["## What was found", FOUND_TEXT, found(records)]
    parts += ["## Without an answer", MISSING_TEXT, unanswered(records)]
    return [*parts, "## Rivals", RIVALS_TEXT, remarks(records)]


TEXT = TEXTS("text")

GOALS_TEXT = TEXTS("goals")

DUEL_TEXT = TEXTS("duel")

FOUND_TEXT = """\
The script writes these lines from the tables above."""

MISSING_TEXT = TEXTS("missing")

RIVALS_TEXT = TEXTS("rivals")


QUICK = [BASE, CLOCK, "GaussianImputer"]


def cells(options):
    """List what is asked for, one method after the other."""
    mechanisms = MECHANISMS[: 1 if options.quick else None]
    ways = product(range(options.seeds), mechanisms, options.methods, options.tables)
    for seed, mechanism, method, name in ways:
        key = {"table": name, "mechanism": mechanism, "seed": seed, "method": method}
        yield key


@cache
def clock(*place):
    """Time the method that all others are compared with, in the same run."""
    begin = time.process_time()
    METHODS[CLOCK](split(*place), place[-1])
    return round(time.process_time() - begin, 3)


def measured(key, options):
    """Run and score a method, or say why there is no answer."""
    method, place = key["method"], (key["table"], key["mechanism"], key["seed"])
    case, begin = split(*place), time.process_time()
    try:
        answer = METHODS[method](case, key["seed"])
    except Missing as reason:
        found = {"missing": str(reason)}
    else:
        seconds = time.process_time() - begin
        if answer.seconds is not None:
            seconds = answer.seconds
        found = score(case, answer) | {"seconds": round(seconds, 2)}
        found |= answer.notes or {}
    return found if method == CLOCK else found | {"clock": clock(*place)}


def left_out(methods):
    """List the methods that cannot be run here."""
    return [*lacking(methods), *(m for m in methods if m in REMOVED)]


def main():
    """Measure and report."""
    options = options_of(
        __doc__,
        {"tables": ["titanic"], "seeds": 1, "methods": QUICK},
        results=None,
        tables=[*TABLES],
        methods=[*METHODS],
        seeds=3,
        only_report=False,
    )
    carry_out(cells, measured, page, options, __doc__, left_out)


if __name__ == "__main__":
    main()
