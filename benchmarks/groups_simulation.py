"""Random intercepts from clustered tables with missing cells: bias and coverage.

    python benchmarks/groups_simulation.py [--methods complete ours flat id jomo pan
        mice_2lpan] [--repetitions 40] [--groups 30] [--rows 10] [--icc 0.3]
        [--mechanisms MCAR MAR] [--outcome number] [--results FILE] [--quick]
    python benchmarks/groups_real.py --only-report --output doc/benchmarks/groups.md

y = 1 + x / 2 + w / 2 + u + e; x varies within groups (ICC .2), w does not, u is of the
group. z = .4 x + .4 y + noise is known always and not analysed. 30 % of x and of y are
missing, at random (MCAR) or with a probability proportional to the rank of z (MAR). A
binary outcome is y > 1, and an ordinal one has four grades, divided at 0, 1 and 2; both
are analysed as numbers, with the truth from a large table. 20 completed tables are
analysed by REML with random intercepts and pooled by Rubin's rules. A line of the
results is a repetition of a method; what is there is not repeated.
"""

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from _groups_methods import NAMES, complete_tables, methods_of, numbers
from _report import Texts, by, table
from _runner import main_of
from _validity_analyses import random_intercept
from scipy.stats import t as student

from skvnce.pooling import pool

RESULTS = Path(__file__).with_name("results") / "groups_simulation.jsonl"
ROLES = {"g": "group", "y": "row", "x": "row", "w": "group level", "z": "row"}
BETA, ICC_OF_X, SHARE, DRAWS = (1.0, 0.5, 0.5), 0.2, 0.3, 20
CUTS = {"binary": [0], "ordinal": [-1, 0, 1]}  # of y less its mean
MECHANISMS = "MCAR", "MAR"
KEYS = "groups", "rows", "icc", "outcome", "mechanism"
COEFFICIENTS = "b0", "b1 (x)", "b2 (w)"
VARIANCES = "variance of groups", "of rows", "ICC"


def simulate(rng, groups, rows, icc, outcome):
    """Draw a complete table."""
    g = np.repeat(np.arange(groups), rows)

    def clustered(share):
        between = rng.normal(size=groups)[g] * np.sqrt(share)
        return between + rng.normal(size=len(g)) * np.sqrt(1 - share)

    x, w = clustered(ICC_OF_X), rng.normal(size=groups)[g]
    y = np.column_stack([np.ones(len(g)), x, w]) @ BETA + clustered(icc)
    z = 0.4 * x + 0.4 * y + rng.normal(size=len(g))
    if outcome in CUTS:
        cuts = CUTS[outcome]
        grades = np.searchsorted(cuts, y - BETA[0])
        y = pd.Categorical(grades, range(len(cuts) + 1), ordered=len(cuts) > 1)
    return pd.DataFrame({"g": g, "y": y, "x": x, "w": w, "z": z})


def hide(rng, frame, mechanism):
    """Hide cells of x and y."""
    chance = np.full(len(frame), SHARE)
    if mechanism == "MAR":
        chance = 2 * SHARE * frame["z"].rank().to_numpy() / len(frame)
    hidden = rng.random((len(frame), 2)) < chance[:, None]
    cells = {name: frame[name].mask(hidden[:, k]) for k, name in enumerate(("x", "y"))}
    return frame.assign(**cells)


def analyse(cells, columns):
    """Fit y to x and w; coefficients, squared errors, variances and ICC."""
    g, y, x, w = (cells[:, columns.index(name)] for name in "gyxw")
    design = np.column_stack([np.ones(len(y)), x, w])
    beta, covariance, group, row = random_intercept(y, design, g.astype(int))
    return beta, np.diag(covariance), [group, row, group / (group + row)]


def pooled(draws, columns):
    """Analyse tables and pool; an interval of one table is that of Student's t.

    Degrees of freedom are those of groups, or of rows within them for x.
    """
    found = [analyse(one, columns) for one in draws]
    beta, squares, variances = (np.array(part) for part in zip(*found, strict=True))
    rows, groups = draws.shape[1], len(np.unique(draws[0, :, columns.index("g")]))
    ends = []
    for j, dof in enumerate([groups - 2, rows - groups - 1, groups - 2]):
        if len(draws) == 1:
            half = student.ppf(0.975, dof) * np.sqrt(squares[0, j])
            ends.append([beta[0, j] - half, beta[0, j] + half])
        else:
            ends.append(pool(beta[:, j], squares[:, j], dof).interval(0.95))
    low, high = np.array(ends, dtype=float).T
    estimate = np.array([*beta.mean(0), *variances.mean(0)]).tolist()
    return {"estimate": estimate, "low": low.tolist(), "high": high.tolist()}


@cache
def truth(icc, outcome):
    """Return the true coefficients, variances and ICC."""
    if outcome == "number":
        return [*BETA, icc, 1 - icc, icc]
    frame = simulate(np.random.default_rng(0), 50_000, 20, icc, outcome)
    beta, _, variances = analyse(numbers(frame), list(frame))
    return [*beta, *variances]


def measured(key, options):
    """Simulate, complete and analyse."""
    sizes = key["groups"], key["rows"], key["icc"], key["outcome"]
    rng = np.random.default_rng([key["repetition"], *sizes[:2], int(1000 * key["icc"])])
    full = simulate(rng, *sizes)
    incomplete = hide(rng, full, key["mechanism"])
    method, seed = key["method"], key["repetition"] + 1
    if method == "complete":
        found = pooled(numbers(full)[None], list(full)) | {"seconds": 0.0}
    else:
        tables, _, costs = complete_tables(
            method, incomplete, ROLES, options.draws, seed
        )
        found = pooled(tables, list(full)) | costs
    return {"draws": options.draws} | found


def cells(options):
    """List what is asked for, one repetition after the other."""
    setting = {name: getattr(options, name) for name in KEYS[:-1]}
    ways = product(range(options.repetitions), options.mechanisms, options.methods)
    for repetition, mechanism, method in ways:
        key = setting | {"mechanism": mechanism, "repetition": repetition}
        yield key | {"method": method}


def mean_and_error(values):
    """Return a mean as text, with its standard error."""
    values = np.asarray(values)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():+.3f} ({error:.3f})"


def arrays(results, method, key):
    """Return estimates and ends of intervals of a method, a row a repetition."""
    found = results.of(**key, method=method)
    names = "estimate", "low", "high", "seconds"
    return [np.array([one[name] for one in found]) for name in names]


def setting_tables(results, key):
    """Write the tables of a setting of the simulation."""
    true = np.array(truth(key["icc"], key["outcome"]))
    bias, cover = [], []
    complete = arrays(results, "complete", key)
    wide = (complete[2] - complete[1]).mean(0) if len(complete[0]) else np.nan
    for method in methods_of(results.of(**key)):
        estimate, low, high, seconds = arrays(results, method, key)
        errors = [mean_and_error(one) for one in (estimate - true).T]
        bias.append([NAMES[method], len(estimate), *errors])
        covered = ((low < true[:3]) & (true[:3] < high)).mean(0)
        shares = [f"{value:.1%}" for value in (*covered, covered.mean())]
        ratios = [f"{value:.2f}" for value in (high - low).mean(0) / wide]
        time = "" if method == "complete" else f"{seconds.mean():.2f}"
        cover.append([NAMES[method], *shares, *ratios, time])
    sizes = f"{key['groups']} groups of {key['rows']} rows, ICC {key['icc']:g}"
    outcome = "" if key["outcome"] == "number" else f", {key['outcome']} outcome"
    widths = [f"width {name}" for name in COEFFICIENTS]
    return [
        f"### {sizes}, {key['mechanism']}{outcome}",
        "Bias (standard error):",
        table(["method", "repetitions", *COEFFICIENTS, *VARIANCES], bias),
        "Coverage of 95 % intervals, and their widths:",
        table(["method", *COEFFICIENTS, "mean", *widths, "seconds"], cover),
    ]


def page(results, options=None):
    """Write the part of the page."""
    settings = sorted(by(results.records, *KEYS))
    keys = [dict(zip(KEYS, values, strict=True)) for values in settings]
    parts = [part for key in keys for part in setting_tables(results, key)]
    return ["## Simulation", Texts("groups", globals())("simulated"), *parts]


METHODS = ["complete", "ours", "flat", "id", "jomo", "pan", "mice_2lpan"]
SIZES = {"groups": 30, "rows": 10, "icc": 0.3, "outcome": "number"}
ASKED = {"repetitions": 40, "mechanisms": [*MECHANISMS], "methods": METHODS, **SIZES}
QUICK = {"results": None, "repetitions": 2, "draws": 5}
main = main_of(globals(), QUICK, **ASKED, draws=DRAWS, results=str(RESULTS))
