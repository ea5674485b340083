"""Associations of `CopulaGraphLearner` in tables of which many cells are missing.

    python benchmarks/graph_attenuation.py [--tables 16] [--quick]
        [--save found.json] [--before earlier.json]
        [--output doc/benchmarks/graph_attenuation.md]

`--save` keeps the figures of this version, and `--before` names those of another one,
which the report compares.  Two columns: a number, five ordinal levels, or two levels,
whose latent variables have a known correlation, and cells missing completely at random.
Then the maximum of the likelihood given the marginals only depends on the rows that
observe both.  Ten columns: a mixed graph.
"""

import argparse
import json
import time
import warnings
from itertools import combinations_with_replacement, product
from pathlib import Path

import numpy as np
import pandas as pd
from _report import made_by, publish, table
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from skvnce import CopulaGraphLearner
from skvnce.metrics import edge_auc

CUTS = {"number": (), "ordinal": (-1.0, -0.3, 0.3, 1.0), "binary": (0.3,)}
R, ROWS, MISSING = 0.5, (500, 2000), (0.3, 0.5)
STRONG = 0.9, 2000, 0.5  # one more correlation, with its rows and missing share
NODES, WIDTH = np.polynomial.legendre.leggauss(60)
FAR = 9.0
DIRECT, SECOND = 0.35, 0.25  # partial correlations of the graph of ten columns
ALPHA = 0.02  # hardly selects
GIVEN = {"random_state": 0, "on_misfit": "ignore"}


def read(z, kind):
    """Map latent variables (n,) to cells of a kind."""
    return np.exp(z) if kind == "number" else np.digitize(z, CUTS[kind]).astype(float)


def pair(kinds, r, n, missing, seed):
    """Draw a table of two columns."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    z[:, 1] = r * z[:, 0] + np.sqrt(1 - r**2) * z[:, 1]
    X = np.column_stack([read(*one) for one in zip(z.T, kinds, strict=True)])
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X


def mixed(n, d, missing, seed):
    """Draw a table of kinds in turn, and its matrix of partial correlations."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((d, d))
    for j in range(d - 1):
        truth[j, j + 1] = DIRECT
    for j in range(0, d - 3, 3):
        truth[j, j + 3] = SECOND * (-1) ** j
    truth += truth.T
    z = rng.multivariate_normal(np.zeros(d), np.linalg.inv(np.eye(d) - truth), n)
    z /= z.std(0)
    kinds = [list(CUTS)[j % len(CUTS)] for j in range(d)]
    X = np.column_stack([read(*one) for one in zip(z.T, kinds, strict=True)])
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X, kinds, truth


def learned(X, kinds):
    """Fit the graph; return it and the processor time in seconds."""
    read_as = {"ordinal": "ordinal", "binary": "nominal"}
    named = {f"x{j}": read_as[k] for j, k in enumerate(kinds) if k != "number"}
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(len(kinds))])
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = CopulaGraphLearner(ALPHA, categorical_features=named or None, **GIVEN)
        learner.fit(frame)
    return learner, time.process_time() - start


def bounds(cells, kind):
    """Return the bounds of the normal scores of observed cells; equal for numbers."""
    if kind == "number":
        scores = ndtri((rankdata(cells) - 0.5) / len(cells))
        return scores, scores
    shares = np.bincount(cells.astype(int), minlength=len(CUTS[kind]) + 1) / len(cells)
    ends = np.concatenate([[-FAR], ndtri(shares.cumsum()[:-1]), [FAR]])
    return ends[cells.astype(int)], ends[cells.astype(int) + 1]


def maximum_likelihood(X, kinds):
    """Maximise the likelihood of the correlation, given the marginals."""
    limits = []
    for cells, kind in zip(X.T, kinds, strict=True):
        ends = np.full((2, len(cells)), np.nan)
        seen = ~np.isnan(cells)
        ends[:, seen] = bounds(cells[seen], kind)
        limits.append(ends)
    both = ~np.isnan(X).any(1)
    first, second = (one[:, both] for one in limits)
    if kinds[0] != "number" and kinds[1] == "number":
        first, second = second, first
    cells, counts = np.unique(np.vstack([first, second]), axis=1, return_counts=True)

    def loss(r):
        return -(counts * log_likelihood(r, *cells)).sum()

    return minimize_scalar(loss, bounds=(-0.995, 0.995), method="bounded").x


def log_likelihood(r, a, b, low, high):
    """Compute that of cells, whose scores are between a and b, and low and high."""
    scale = np.sqrt(1 - r**2)
    if (low == high).all():  # both are numbers
        return -(((low - r * a) / scale) ** 2) / 2 - np.log(scale)
    half, middle = (b - a)[:, None] / 2, (a + b)[:, None] / 2
    z = middle + half * NODES  # a point if the first is a number
    inner = ndtr((high[:, None] - r * z) / scale) - ndtr((low[:, None] - r * z) / scale)
    weight = np.where(half > 0, half * np.exp(-(z**2) / 2), 1.0) * WIDTH
    return np.log(np.maximum((inner * weight).sum(1), 1e-300))


def cells_of(quick):
    """List the settings of the pairs."""
    kinds = list(combinations_with_replacement(CUTS, 2))
    if quick:
        return [(one, R, ROWS[0], MISSING[1]) for one in kinds]
    weak = product(kinds, (R,), ROWS, MISSING)
    return [*weak, *((one, *STRONG) for one in kinds)]


def of_pair(kinds, r, n, missing, n_tables):
    """Measure a setting: biases, standard deviation and time."""
    found = []
    for seed in range(n_tables):
        X = pair(kinds, r, n, missing, seed)
        learner, seconds = learned(X, kinds)
        exact = maximum_likelihood(X, kinds)
        found.append([learner.associations_[0, 1], exact, seconds])
    own, exact, seconds = np.array(found).T
    return {
        "bias": float((own - exact).mean()),
        "error": float((own - exact).std(ddof=1) / n_tables**0.5),
        "from truth": float(own.mean() - r),
        "deviation": float(exact.std(ddof=1)),
        "own deviation": float(own.std(ddof=1)),
        "seconds": float(np.median(seconds)),
    }


def of_mixed(n, d, missing, n_tables):
    """Measure a graph: bias and error of edges, error of other pairs, AUC and time."""
    found, pairs = [], np.triu_indices(d, 1)
    for seed in range(n_tables):
        X, kinds, truth = mixed(n, d, missing, seed)
        learner, seconds = learned(X, kinds)
        own, edges = learner.associations_[pairs], truth[pairs] != 0
        gap = own - truth[pairs]
        found.append(
            [
                (gap * np.sign(truth[pairs]))[edges].mean(),
                (gap[edges] ** 2).mean() ** 0.5,
                (gap[~edges] ** 2).mean() ** 0.5,
                edge_auc(truth != 0, learner.edge_strengths_),
                seconds,
            ]
        )
    names = "bias", "error of edges", "error of others", "auc", "seconds"
    return dict(zip(names, np.mean(found, 0).tolist(), strict=True))


def measured(options):
    """Measure all settings, by name."""
    found = {}
    for one in cells_of(options.quick):
        name = " ".join(map(str, (*one[0], *one[1:])))
        found[name] = of_pair(*one, options.tables)
        print(name, found[name], flush=True)
    for n, missing in (
        [(ROWS[0], MISSING[0])] if options.quick else product(ROWS, MISSING)
    ):
        name = f"mixed {n} {missing}"
        found[name] = of_mixed(n, 10, missing, options.tables)
        print(name, found[name], flush=True)
    return found


def of_pairs(now, before):
    """Tabulate the pairs."""
    lines = []
    for name, one in now.items():
        if name.startswith("mixed"):
            continue
        old, unit = before.get(name), one["deviation"]
        then = (
            [f"{old['bias']:+.3f}", f"{old['bias'] / unit:+.1f}"] if old else ["", ""]
        )
        own = [f"{one['bias']:+.3f}", f"{one['bias'] / unit:+.1f}"]
        ratio = f"{one['seconds'] / old['seconds']:.2f}" if old else ""
        first, second, r, n, missing = name.split()
        cell = [f"{first}, {second}", r, n, f"{float(missing):.0%}"]
        lines.append([*cell, f"{unit:.3f}", *then, *own, ratio])
    heads = "columns", "r", "rows", "missing", "sd of ML"
    more = "bias before", "in sd", "bias now", "in sd", "time"
    return table([*heads, *more], lines)


def of_graphs(now, before):
    """Tabulate the graphs of ten columns: before, now."""
    names = "bias", "error of edges", "error of others", "auc", "seconds"
    lines = []
    for name, one in now.items():
        if name.startswith("mixed"):
            old, (_, n, missing) = before.get(name, {}), name.split()
            cells = [
                " → ".join(f"{t[key]:.3f}" for t in (old, one) if t) for key in names
            ]
            lines.append([n, f"{float(missing):.0%}", *cells])
    return table(["rows", "missing", *names], lines)


def main():
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=16, help="of each setting")
    parser.add_argument("--quick", action="store_true", help="three tables, few rows")
    parser.add_argument("--save", help="file of the figures")
    parser.add_argument("--before", help="figures of another version")
    parser.add_argument("--output", help="file of the report")
    options = parser.parse_args()
    if options.quick:
        options.tables = 3
    with threadpool_limits(1):
        now = measured(options)
    if options.save:
        Path(options.save).write_text(json.dumps(now, indent=1))
    before = json.loads(Path(options.before).read_text()) if options.before else {}
    publish(report(options, now, before), options.output)


def report(options, now, before):
    """List the parts of the page."""
    notes = f"{options.tables} tables of each setting."
    first = f"""# Associations where cells are missing

{made_by("graph_attenuation.py", notes)}

## Two columns

Cells are missing completely at random. *bias*: mean difference of the association and
of the maximum of the likelihood given the marginals, in the same tables, which only
depends on the rows that observe both columns. *sd of ML*: over the tables, the sampling
standard deviation of that maximum. *in sd*: the bias over it. *time*: processor time of
`fit` over that before.

*before* is the version whose EM started at independent columns, with the same penalty
for all pairs. The bias is what EM had not forgotten of its start after 70 rounds, and
the penalty of its rounds: two binary columns of which half is missing have about an
eighth of the information of complete numbers, so that a round moves by an eighth of
the way. Now EM starts at the correlations of pairs of columns, and the penalty of
strong edges is smaller."""
    second = f"""## Ten columns

Numbers, five ordinal levels and two levels in turn, with {DIRECT} between neighbours
and ±{SECOND} between some others. Mean bias in the direction of the edge, root mean
squared errors of the partial correlations of edges and of other pairs, AUC of the
edges, and processor time in seconds: before → now."""
    return [first, of_pairs(now, before), second, of_graphs(now, before)]


if __name__ == "__main__":
    main()
