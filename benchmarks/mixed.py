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

from functools import cache, partial

import numpy as np
import pandas as pd
from _beside import beside, scores_of
from _cases import Answer, Case, by_imputer, by_peer, frame_of, intercepts, scored
from _cases import lacking as lacking_among
from _data import cpu_seconds, load
from _peers import LIMIT, Peer
from _report import Texts, geometric_mean, grid, specs, table
from _runner import main_of
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

import skvnce
from skvnce import metrics

TEXTS, SPECS = Texts("mixed", globals()), specs("mixed")

DRAWS = 50
ROUNDS = 5  # of chained forests
FLOOR = 0.01  # of probabilities, in the log-loss
FEWEST = 5  # hidden test cells of a column that is scored
*SCORES, _ = SPECS["names"]  # and seconds


def score(case, answer):
    """Score the hidden cells of the test rows: means over columns, but for ECE, AUC."""
    found = {name: [] for name in SCORES}
    scored = [j for j in range(len(case.kinds)) if case.hidden[1][:, j].sum() >= FEWEST]
    for j in scored:
        of_kind = of_numbers if case.kinds[j] == "numeric" else of_levels
        for name, value in of_kind(case, answer, j).items():
            found[name].append(value)
    found = {name: float(np.mean(values)) for name, values in found.items() if values}
    of_all = [j for j in scored if case.kinds[j] != "numeric"]
    if of_all:
        probabilities = {j: probabilities_of(case, answer, j) for j in of_all}
        categories = {j: range(case.levels[j]) for j in of_all}
        found["ece"] = metrics.expected_calibration_error(
            case.full[1], probabilities, case.hidden[1], categories=categories
        )
    return found | {"auc": area_under_curve(case, answer)}


def of_numbers(case, answer, j):
    """Score a column of numbers, in its standard deviations."""
    truth, hidden = case.full[1][:, [j]], case.hidden[1][:, [j]]
    draws, sd = answer.draws[..., [j]], np.nanstd(case.full[0][:, j])
    return {
        "rmse": metrics.imputation_rmse(truth, answer.points[:, [j]], hidden, scale=sd),
        "crps": metrics.crps(truth, draws, hidden, scale=sd),
        "coverage": metrics.coverage(truth, draws, hidden, ties="shared"),
    }


def of_levels(case, answer, j):
    """Score a column of levels."""
    truth, hidden = case.full[1][:, [j]], case.hidden[1][:, [j]]
    p = {0: probabilities_of(case, answer, j)}
    options = {"categories": {0: range(case.levels[j])}}
    loss = metrics.category_log_loss(truth, p, hidden, floor=FLOOR, **options)
    if answer.probabilities is None:
        options["n_draws"] = len(answer.draws)
    found = {
        "pfc": metrics.false_classification_rate(
            truth, answer.points[:, [j]], hidden, columns=[0]
        ),
        "log_loss": loss,
        "brier": metrics.brier_score(truth, p, hidden, **options),
    }
    if case.kinds[j] == "ordinal":
        options["columns"] = [0]
        found["rps"] = metrics.ranked_probability_score(truth, p, hidden, **options)
    return found


def probabilities_of(case, answer, j):
    """Return probabilities of levels, from frequencies of draws if need be."""
    if answer.probabilities is not None:
        return answer.probabilities[j]
    return (answer.draws[..., j, None] == np.arange(case.levels[j])).mean(0)


def area_under_curve(case, answer):
    """Compute the AUC with which trees tell true rows from rows completed by a draw.

    Cells that are really missing stay missing in both.
    """
    truth, hidden = case.full[1], case.hidden[1]
    completed = np.where(hidden, answer.draws[0], truth)
    pair = [frame_of(case, x) for x in (truth, completed)]
    return metrics.two_sample_auc(*pair, hidden, random_state=0)


def marginal(case, seed):
    """Fill means and modes; draw observed cells of the column."""
    rng, (train, test) = np.random.default_rng(seed), case.masked
    points, draws, probabilities = np.zeros_like(test), [], {}
    for j, kind in enumerate(case.kinds):
        seen = train[~np.isnan(train[:, j]), j]
        draws.append(rng.choice(seen, (DRAWS, len(test))))
        points[:, j] = seen.mean()
        if kind != "numeric":
            shares = np.bincount(seen.astype(int), minlength=case.levels[j])
            probabilities[j] = np.tile(shares / len(seen), (len(test), 1))
            points[:, j] = shares.argmax()
    return Answer(points, np.stack(draws, -1), probabilities)


def rounded(case, cells):
    """Round the codes of a filled table (..., n, d) to levels."""
    cells = np.array(cells, dtype=float)
    for j, count in enumerate(case.levels):
        if count:
            cells[..., j] = np.clip(cells[..., j].round(), 0, count - 1)
    return cells


def iterative(case, seed):
    """Chained ridge regressions on codes, rounded: one table, without draws."""
    train, test = case.masked
    model = IterativeImputer(random_state=seed, keep_empty_features=True).fit(train)
    points = rounded(case, model.transform(test))
    return Answer(points, np.repeat(points[None], DRAWS, 0))


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
                found = np.zeros((len(test), case.levels[j]))
                found[:, forest.classes_.astype(int)] = forest.predict_proba(rows)
                probabilities[j] = found
    return Answer(test, np.repeat(test[None], DRAWS, 0), probabilities)


def ours(make, **options):
    """Make a method of one of our imputers, which take data frames."""

    def method(case, seed):
        model = make(handle_unknown="missing", random_state=seed, **options)
        begin, test = cpu_seconds(), case.masked[1:]
        model, answer = by_imputer(model, case, test, DRAWS, seed)
        probabilities = {}
        found = model.category_probabilities(frame_of(case, *test))
        for name, shares in found.items():
            j = case.names.index(name)
            if case.levels[j]:  # not few whole numbers, which it takes as levels
                probabilities[j] = np.zeros((len(test[0]), case.levels[j]))
                probabilities[j][:, list(shares)] = shares.to_numpy()
        seconds = cpu_seconds() - begin
        return Answer(*answer.points, *answer.draws, probabilities, seconds)

    return method


def rival(peer, case, seed):
    """Let a package of others fill the rows to test: means, most frequent levels."""
    start = len(case.masked[0])
    answer = by_peer(peer, case, DRAWS, seed, start=start, limit=LIMIT)
    points = answer.draws.mean(0)
    for j, count in enumerate(case.levels):
        if count:
            shares = (answer.draws[..., j, None] == np.arange(count)).mean(0)
            points[:, j] = shares.argmax(1)
    return answer._replace(points=points)


BASE = "draws of the marginal"
CLOCK = "IterativeImputer, codes and rounding"
FORESTS = "chained random forests"
BASELINES = {BASE: marginal, CLOCK: iterative, FORESTS: forests}
REMOVED = "ForestImputer", "ForestImputer, LAIR"  # only their results are left
OURS = {
    "TableImputer": ours(skvnce.TableImputer),
    "GaussianImputer": ours(skvnce.GaussianImputer, on_misfit="ignore"),
    "MixtureImputer": ours(skvnce.MixtureImputer, on_misfit="ignore"),
    "LAIRImputer": ours(skvnce.LAIRImputer, n_draws=DRAWS, on_misfit="ignore"),
    "VGIImputer": ours(skvnce.VGIImputer, n_draws=DRAWS, on_misfit="ignore"),
    **dict.fromkeys(REMOVED),
}
PEERS = {f"mice {kind}": Peer("mice", kind) for kind in ("default", "cart", "rf")}
PEERS |= {"gcimpute": None, "mixed-imputer": None, "UnmaskingTrees": Peer("utrees")}
METHODS = BASELINES | OURS
METHODS |= {name: peer and partial(rival, peer) for name, peer in PEERS.items()}
lacking = partial(lacking_among, METHODS, PEERS)


SHARE, TEST = 0.3, 0.3  # of the observed cells that are hidden, of the rows that test
STEEP = 2.0  # slope of the log-odds of MAR, a standard deviation of the driver
MECHANISMS = "MCAR", "MAR"


KINDS = "numeric", "ordinal", "nominal"
TABLES = {  # the kinds of their columns; all others are left out
    name: {column: kind for kind in KINDS for column in kinds.get(kind, ())}
    for name, kinds in specs("mixed_tables").items()
}
FILES, ORDERS = SPECS["files"], SPECS["orders"]
ROWS = 1200  # at most


def encoded(name):
    """Read a table: codes, kinds, levels, names."""
    frame = load(FILES.get(name, name))
    if name == "adult":
        frame["capital_gain"] = np.log1p(frame["capital_gain"])
    columns, levels = [], []
    for column, kind in TABLES[name].items():
        cells = frame[column]
        known = ()
        if kind != "numeric":
            known = ORDERS.get(column) or sorted(cells.dropna().unique())
            codes = {level: code for code, level in enumerate(known)}
            cells = cells.map(codes, na_action="ignore")
        columns.append(pd.to_numeric(cells).to_numpy(float))
        levels.append(len(known))
    kinds = [*TABLES[name].values()]
    return np.column_stack(columns), kinds, levels, [*TABLES[name]]


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
        chance = 1 / (1 + np.exp(-score - intercepts(score, SHARE)))
        chance[:, drivers] = 0.0
    return (rng.random(x.shape) < chance) & ~np.isnan(x)


RATIOS = "pfc", "log_loss", "brier", "rps", "rmse", "crps"
NAMES, LABELS = SPECS["names"], SPECS["labels"]
GOAL_TABLES = "adult", "titanic", "horse_colic"
PLAIN = "GaussianImputer"
BEHIND = 1.02  # of a rival's score
COLUMNS = (*SCORES, "seconds")


PLACE = "table", "mechanism"


def scored_cells(records, method):
    """Return the cells of a method that have scores."""
    return {*scores_of(records, method, "seconds", PLACE)}


def relative(records, method, name, among=None):
    """Return a score of a method by cell, over the base where it is a ratio."""
    own, other = (scores_of(records, m, name, PLACE) for m in (method, BASE))
    if among is not None:
        own = {cell: value for cell, value in own.items() if cell in among}
    if name == "seconds":
        other = scores_of(records, CLOCK, name, PLACE)
        other |= scores_of(records, method, "clock", PLACE)
    elif name not in RATIOS:
        return own
    return {cell: value / other[cell] for cell, value in own.items() if other.get(cell)}


def mean(scores, name):
    """Average the scores of cells, geometrically if they are ratios; None if empty."""
    some = [*scores.values()]
    if some and name in (*RATIOS, "seconds"):
        return geometric_mean(np.maximum(some, 1e-6))
    return float(np.mean(some)) if some else None


def written(value, name):
    """Write an average."""
    if value is None:
        return "-"
    digits = 3 if name != "seconds" else 0 if value >= 9.5 else 1
    return f"{value:.{digits}f}"


def pooled(records):
    """Make a table of all methods, pooled over the cells of these records."""

    def cell(method, score):
        return written(mean(relative(records, method, score), score), score)

    counts = {method: len(scored_cells(records, method)) for method in METHODS}
    rows = {(method, count): method for method, count in counts.items() if count}
    columns = {NAMES[score]: score for score in COLUMNS}
    return grid(["method", "cells"], rows, columns, cell, empty=True)


def goal_cells(records, *methods):
    """Return the cells of the tables of the goals that all these methods have."""
    there = [scored_cells(records, method) for method in methods]
    common = set.intersection(*there) if there else set()
    return {cell for cell in common if cell[0][0] in GOAL_TABLES}


def of_ours(records):
    """Return those of our methods that have results."""
    return [method for method in OURS if scored_cells(records, method)]


def best_of_ours(records):
    """Return our method of the lowest log-loss on the tables of the goals, or None.

    Only methods with results on all cells are compared: one cell says little.
    """
    there = {method: goal_cells(records, method) for method in of_ours(records)}
    every = max(there.values(), key=len, default=set())
    methods = [method for method, cells in there.items() if cells >= every]
    among = goal_cells(records, *methods)
    losses = {m: relative(records, m, "log_loss", among) for m in methods}
    losses = {m: mean(some, "log_loss") for m, some in losses.items() if some}
    return min(losses, key=losses.get) if losses else None


def evaluated(records):
    """Yield what has goals, our method, and its goals: score, bounds, average, verdict.

    The best of ours has goals, and the plain imputer.
    """
    for role, method in (("best", best_of_ours(records)), ("plain", PLAIN)):
        among, found = goal_cells(records, method), []
        for name, (low, high) in SPECS["goals"][role].items():
            value = mean(relative(records, method, name, among), name)
            if value is not None:
                found.append((name, (low, high), value, low <= value <= high))
        if found:
            yield role, method, found


def goals(results):
    """Make the table of the goals."""
    lines = []
    for role, method, found in evaluated(results.records):
        for name, (low, high), value, is_met in found:
            goal = f"{low} to {high}" if low else f"at most {high}"
            cells = [f"{LABELS[role][0]}: {method}", NAMES[name], goal]
            cells += [written(value, name), "met" if is_met else "missed"]
            lines.append(cells)
    return table(["method", "score", "goal", "value", ""], lines)


def versus(records, name):
    """Compare the best of ours with the best rival on each table.

    Of ours, the one of the least score on the cells that all of ours have; of the
    rivals, the one that is best beside it on the cells that both have.  Yields table,
    ours, rival, number of cells, score of ours, ratio to the rival.
    """
    for one in TABLES:
        some = [r for r in records if r["table"] == one]
        scores = {m: relative(some, m, name) for m in METHODS}
        own = [m for m in of_ours(some) if scores[m]]
        common = set.intersection(*(set(scores[m]) for m in own)) if own else ()
        if not common:
            continue

        def over(method, cells, scores=scores):
            return mean({cell: scores[method][cell] for cell in cells}, name)

        best, pairs = min(own, key=lambda m: over(m, common)), []  # noqa: B023
        for rival in (FORESTS, *PEERS):
            if both := scores[rival].keys() & scores[best].keys():
                mine = over(best, both)
                pairs.append((mine / over(rival, both), rival, len(both), mine))
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


def losses(results):
    """Set the default beside each other method, where it has results."""
    names = "pfc", "log_loss", "brier", "rmse", "crps"
    scores = partial(scores_of, results.records, place=PLACE)
    columns = {NAMES[name]: partial(scores, score=name) for name in names}
    parts = beside(list(METHODS), columns, [m for m in OURS if OURS[m]])
    return [*parts, TEXTS("losses")] if parts else []


def summary(results):
    """Say in words how many goals are met, and where rivals are ahead."""
    records, lines = results.records, []
    for role, method, verdicts in evaluated(records):
        missed = [NAMES[name] for name, *_, is_met in verdicts if not is_met]
        met = f"{len(verdicts) - len(missed)} of {len(verdicts)} goals"
        met += f" {LABELS[role][1]} (on {len(goal_cells(records, method))} of 18 cells)"
        end = f", and misses {', '.join(missed)}." if missed else "."
        lines.append(f"- {method} meets {met}{end}")
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


def remarks(results):
    """List remarks of the rivals."""
    lines = {}
    for r in results.records:
        for remark in r.get("remarks", []):
            lines.setdefault((r["version"], remark), set()).add(r["table"])
    return "\n".join(
        f"- {version}: {remark} ({', '.join(sorted(tables))})"
        for (version, remark), tables in sorted(lines.items())
    )


@cache
def clock(*place):
    """Time the method that all others are compared with, in the same run."""
    begin = cpu_seconds()
    METHODS[CLOCK](split(*place), place[-1])
    return round(cpu_seconds() - begin, 3)


def measured(key, options):
    """Run and score a method, or say why there is no answer."""
    place = key["table"], key["mechanism"], key["seed"]
    case = split(*place)
    method = partial(METHODS[key["method"]], case, key["seed"])
    scores = scored(method, partial(score, case))
    return scores | ({} if key["method"] == CLOCK else {"clock": clock(*place)})


def duels(results):
    """Write the tables of the best."""
    for name in ("log_loss", "crps"):
        yield from (f"### {NAMES[name]}", duel(results.records, name))


def means(results):
    """Write the tables of all methods, by mechanism and by table."""
    places = {f"All tables, {m}": {"mechanism": m} for m in MECHANISMS}
    for title, key in (places | {name: {"table": name} for name in TABLES}).items():
        some = results.of(**key)
        if any("missing" not in record for record in some):
            yield from (f"## {title}", pooled(some))


CASES = {"seed": range(3), "mechanism": MECHANISMS, "method": METHODS, "table": TABLES}
QUICK = {"table": ["titanic"], "seed": [0], "mechanism": MECHANISMS[:1]}
main = main_of(globals(), QUICK | {"method": [BASE, CLOCK, PLAIN]})
