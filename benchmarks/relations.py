"""What find_relations finds: by chance, with missing cells, how exact, how fast.

    python benchmarks/relations.py [--results FILE] [--only-report] [--quick]
        [--output doc/benchmarks/relations.md]

Each result is a line of FILE; what is there is not computed again.
"""

import time
from functools import partial

import numpy as np
from _report import geometric_mean, table
from _runner import main_of
from _wild_tables import FLOOR, WAYS, case_of, names, read, score_points

from skvnce import TableImputer, find_relations
from skvnce.relations.closure import closed, misses
from skvnce.relations.columns import read_columns
from skvnce.relations.formulas import Formula
from skvnce.relations.lookups import Lookup, Steps

SHARES = 0.15, 0.3, 0.5
SIMULATED = 200
SIZES = (1500, 40), (100_000, 50), (1500, 120), (1000, 800)


def shuffled(name):
    """Count the relations of a table whose columns are permuted."""
    frame, rng = read(name).copy(), np.random.default_rng(1)
    for column in frame:
        frame[column] = rng.permutation(frame[column].to_numpy())
    return {"found": len(find_relations(frame))}


def simulated(seed, *, noisy):
    """Count the relations of 12 independent columns, or of noisy functions."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([30, 80, 300, 1000]))
    X = rng.normal(size=(n, 12)) * 10 ** rng.uniform(0, 3, 12) + 50
    X[:, 0], X[:, 1] = rng.integers(2, size=n), rng.integers(5, size=n)
    if noisy:
        exact = X[:, 2] + X[:, 3], X[:, 4] * X[:, 5], X[:, 6] ** 2
        for j, y in enumerate(exact):
            X[:, 9 + j] = y + 1e-3 * y.std() * rng.normal(size=n)
    X[rng.random(X.shape) < 0.2] = np.nan
    return {"found": len(find_relations(X))}


def hidden(key):
    """Compare the relations of a table and of the same with a share of hidden cells."""
    name, share = parts_of(key)
    share = float(share)
    frame, rng = read(name), np.random.default_rng(2)
    away = rng.random(frame.shape) < share
    masked = frame.mask(away)
    full, columns = read_columns(frame), read_columns(masked)
    away &= ~np.isnan(full.cells)
    complete, relations = find_relations(frame), find_relations(masked)
    ours, theirs = (
        {frozenset(one.columns) for one in some} for some in (relations, complete)
    )
    record = {"of": len(theirs), "found": len(theirs & ours)}
    start = np.where(away, np.nan, full.cells)
    follow = away & ~np.isnan(
        closed(full.bounds, start, [one.checked for one in complete])
    )
    cells = closed(columns.bounds, columns.cells, [one.checked for one in relations])
    record |= {
        "follow": int(follow.sum()),
        "filled": int((away & ~np.isnan(cells)).sum()),
    }
    exact = [one for one in relations if not isinstance(one.rule, Lookup | Steps)]
    cells = closed(columns.bounds, columns.cells, [one.checked for one in exact])
    new = away & ~np.isnan(cells)
    off = abs(cells - full.cells) > 0.02 * full.bounds.deviation
    return record | {"cells": int(new.sum()), "wrong": int((new & off).sum())}


def seconds(key):
    """Time a table of a few relations; the key is its size."""
    n, p = map(int, key.split())
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, p))
    X[:, 1], X[:, 2] = X[:, 0] ** 2, X[:, 3] * X[:, 4]
    X[:, 5], X[:, 9] = X[:, 6:9].sum(1), rng.integers(50, size=n)
    X[:, 10] = 7 * X[:, 9] % 50
    X[rng.random(X.shape) < 0.1] = np.nan
    start = time.process_time()
    found = len(find_relations(X))
    return {"found": found, "seconds": time.process_time() - start}


def filled(key):
    """Fill a table with and without relations; the key is its name and a way."""
    name, way = parts_of(key)
    case, record = case_of(name, way, 0), {}
    relations = find_relations(case.masked)
    if not relations:
        return {"relations": 0}
    rules = [r.checked for r in relations if isinstance(r.rule, Formula)]
    for setting in ("auto", None):
        start = time.process_time()
        imputer = TableImputer(relations=setting, random_state=0)
        imputer = imputer.set_output(transform="pandas").fit(case.masked)
        table = imputer.transform(case.masked)
        record[str(setting)] = {
            "seconds": time.process_time() - start,
            "broken": broken(case, table, rules),
            **score_points(case, table),
        }
    return {"relations": len(relations), **record}


def broken(case, table, rules):
    """Count filled rows of formulas, and those of them that violate one."""
    columns = read_columns(case.full)
    cells, bounds = read_columns(table[list(case.full)]).cells, columns.bounds
    rows = np.zeros((2, len(cells)), bool)
    for one in rules:
        places = list(one.rule.columns)
        new = case.hidden[:, places].any(1) & ~np.isnan(cells[:, places]).any(1)
        held = ~misses(bounds, columns.cells[:, places], one)  # before
        wrong = misses(bounds, cells[:, places], one)
        rows |= new & held, new & held & wrong
    return rows.sum(1).tolist()


def parts_of(key):
    """Split a key into the name of a table and what is done with it."""
    return key.rsplit(" ", 1)


def by_chance(results):
    """Count relations of tables that have none."""
    rows = []
    for part in ("shuffled", "independent", "noisy"):
        found = np.array([r["found"] for r in results.of(part=part)])
        rows.append([part, len(found), found.sum(), (found > 0).sum()])
    return table(["tables", "number", "relations", "tables with some"], rows)


def with_hidden(results):
    """Count relations, and cells that follow from them, where cells are hidden."""
    rows = []
    for share in SHARES:
        some = results.of(part="hidden")
        some = [r for r in some if float(parts_of(r["key"])[1]) == share]
        names = "of", "found", "follow", "filled", "cells", "wrong"
        sums = [sum(r[name] for r in some) for name in names]
        total, found, follow, filled, cells, wrong = sums
        shares = [f"{a / max(b, 1):.1%}" for a, b in ((found, total), (filled, follow))]
        exact = f"{wrong} of {cells}" if cells else "-"
        rows.append([share, len(some), total, shares[0], follow, shares[1], exact])
    header = ["hidden", "tables", "relations", "found", "cells", "filled", "wrong"]
    return table(header, rows)


def fills(results):
    """Compare fills with and without relations."""
    rows = [fills_of(results, way) for way in WAYS]
    header = ["hidden", "tables", "RMSE", "grades", "categories", "time"]
    return table([*header, "broken", "-"], rows)


def fills_of(results, way):
    """Compare the fills of a way."""
    some = [r for r in results.of(part="filled") if r["relations"]]
    some = [r for r in some if parts_of(r["key"])[1] == way]
    row = [way, len(some)]
    for score in ("numbers", "grades", "categories", "seconds"):
        pairs = [[r[s].get(score) for s in ("auto", "None")] for r in some]
        pairs = np.array([pair for pair in pairs if None not in pair], float)
        pairs = np.maximum(pairs[~np.isnan(pairs).any(1)], FLOOR)
        ratios = pairs[:, 0] / pairs[:, 1]
        worse = "" if score == "seconds" else f" ({(ratios > 1.1).sum()})"
        row.append(f"{geometric_mean(ratios):.3f}{worse}")
    for setting in ("auto", "None"):
        rows, wrong = np.array([r[setting]["broken"] for r in some]).sum(0)
        row.append(f"{wrong / max(rows, 1):.1%} of {rows}")
    return row


def times(results):
    """Write the seconds."""
    rows = [
        [*r["key"].split(), r["found"], f"{r['seconds']:.2f}"]
        for r in results.of(part="time")
    ]
    return table(["rows", "columns", "relations", "CPU seconds"], rows)


PARTS = {  # of each: what measures a key
    "independent": partial(simulated, noisy=False),
    "noisy": partial(simulated, noisy=True),
    "shuffled": shuffled,
    "hidden": hidden,
    "filled": filled,
    "time": seconds,
}


def cells(options):
    """List the keys of all parts."""
    keys = dict.fromkeys(PARTS, range(SIMULATED)) | {
        "shuffled": names(),
        "hidden": [f"{name} {share}" for name in names() for share in SHARES],
        "filled": [f"{name} {way}" for name in names() for way in WAYS],
        "time": [f"{n} {p}" for n, p in SIZES],
    }
    for part, some in keys.items():
        for key in some[:2] if options.quick else some:
            yield {"part": part, "key": key}


def measured(key, options):
    """Measure a part of a key."""
    return PARTS[key["part"]](key["key"])


main = main_of(globals(), {})
