"""Are pairs edges as often as ``edge_probabilities_`` of copula graphs say?

    python benchmarks/edge_probabilities.py [--tables 125] [--scores FILE]
        [--output FILE] [--quick]

Tables of 8, 12 and 20 columns of a latent normal graph, complete or with 30 % of the
cells missing, with edges of one sign or of both.  The number of rows, the kinds of the
columns and the share of pairs that are edges vary from table to table.  The fit is
nearly all of the cost, so that ``--scores`` keeps the scores of pairs, from which
another mixture gives other probabilities in seconds.
"""

import argparse
import warnings
from itertools import pairwise, product

import numpy as np
import torch
from _report import made_by, publish, table
from _results import Results
from copula_graph_tables import KINDS, column
from threadpoolctl import threadpool_limits

from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce.algorithms.graph import copula
from skvnce.algorithms.graph.copula_scores import edge_scores
from skvnce.algorithms.graph.score_posterior import probabilities_of_scores

COLUMNS, MISSING, SIGNS = (8, 12, 20), (0.0, 0.3), ("one sign", "both signs")
ROWS = 200, 300, 500, 1000, 2000
SHARES = 0.07, 0.15, 0.3  # of pairs that are edges
DENSE = 0.6
STRENGTHS = 0.15, 0.45  # of partial correlations, before dense graphs are made proper
BINS = np.linspace(0, 1, 6)
PRIOR_SEEDS = 40  # whose tables served to choose the prior
KEY = "d", "missing", "signs", "dense", "seed"
READ_AS = {"ordinal": "ordinal", "binary": "nominal", "nominal": "nominal"}
LEVELS = {"ordinal": 5, "binary": 2, "nominal": 4}


def graph(d, share, signs, rng):
    """Draw edges and the correlations of latent variables."""
    pairs = np.argwhere(np.triu(np.ones((d, d)), 1))
    n_edges = max(1, round(share * len(pairs)))
    precision = np.zeros((d, d))
    for i, j in pairs[rng.choice(len(pairs), n_edges, replace=False)]:
        sign = -1 if signs == "one sign" else rng.choice([-1, 1])
        precision[i, j] = sign * rng.uniform(*STRENGTHS)
    precision += precision.T
    edges = precision != 0
    precision += np.eye(d) * max(1.0, 0.15 - np.linalg.eigvalsh(precision)[0])
    covariance = np.linalg.inv(precision)
    scale = np.sqrt(np.diag(covariance))
    return edges, covariance / np.outer(scale, scale)


def simulated(d, missing, signs, share, seed):
    """Draw a table; return it with its kinds and numbers of levels, and its edges."""
    rng = np.random.default_rng([seed, d, round(10 * missing), SIGNS.index(signs)])
    n, mixed = int(rng.choice(ROWS)), bool(rng.integers(2))
    share = share or float(rng.choice(SHARES))
    edges, correlations = graph(d, share, signs, rng)
    X = rng.multivariate_normal(np.zeros(d), correlations, n)
    names = rng.permutation(np.resize(KINDS, d)) if mixed else [""] * d
    if mixed:
        X = np.column_stack(
            [column(X[:, j], name, rng) for j, name in enumerate(names)]
        )
    X[rng.uniform(size=X.shape) < missing] = np.nan
    kinds = [READ_AS.get(name, "numeric") for name in names]
    levels = [LEVELS.get(name, 1) for name in names]
    about = {"n": n, "mixed": mixed, "share": share}
    return X[~np.isnan(X).all(1)], kinds, levels, edges, about


def scored(X, kinds, levels, seed):
    """Fit the latent variables; return scores, and which have no sign."""
    with seeded(seed):
        problem = copula.make_problem(Incomplete.from_array(X), kinds, levels)
        first = problem.first(max_iter=100, tol=2e-3)
        scores = edge_scores(problem, first)
    grouped = problem.blocks.sizes > 1
    return scores, grouped[:, None] | grouped


def record(d, missing, signs, share, seed):
    """Make the record of a table: scores of all pairs, and which are edges."""
    X, kinds, levels, edges, about = simulated(d, missing, signs, share, seed)
    scores, unsigned = scored(X, kinds, levels, seed)
    i, j = np.triu_indices(d, 1)
    return about | {
        "scores": scores[i, j].numpy().round(4).tolist(),
        "unsigned": unsigned[i, j].int().tolist(),
        "edges": edges[i, j].astype(int).tolist(),
    }


def collected(results, seeds, of=COLUMNS):
    """Add the records of tables that are not there yet."""
    cells = list(product(of, MISSING, SIGNS, (None, DENSE)))
    there = {tuple(one[name] for name in KEY) for one in results.records}
    for seed, (d, missing, signs, share) in product(seeds, cells):
        key = dict(zip(KEY, (d, missing, signs, share is not None, seed), strict=True))
        if tuple(key.values()) not in there and (share is None or seed % 5 == 0):
            results.add(key | record(d, missing, signs, share, seed))


def matrix(values, d):
    """Fill a symmetric matrix with the values of pairs."""
    full = torch.zeros(d, d, dtype=torch.float64)
    i, j = torch.triu_indices(d, d, 1)
    full[i, j] = full[j, i] = torch.tensor(values, dtype=torch.float64)
    return full


def said(one):
    """Compute the probabilities of the pairs of a record."""
    scores, unsigned = (matrix(one[name], one["d"]) for name in ("scores", "unsigned"))
    found = probabilities_of_scores(scores, unsigned > 0)
    return found[tuple(torch.triu_indices(one["d"], one["d"], 1))].numpy()


def collapses(probabilities, edges):
    """Say whether more than twice as many pairs are called edges as there are."""
    return (probabilities > 0.5).sum() > 2 * edges.sum() + 2


def by_bins(pairs, edges):
    """Write the mean probability, the share of edges and the number of pairs by bin."""
    cells = []
    for low, high in pairwise(BINS):
        some = (pairs >= low) & ((pairs < high) | (high == 1))
        cells.append(
            f"{pairs[some].mean():.2f} / {edges[some].mean():.2f} ({some.sum()})"
            if some.any()
            else "-"
        )
    return cells


def line(name, tables):
    """Make a row of the report from probabilities and edges of tables."""
    pairs, edges = (np.concatenate(some) for some in zip(*tables, strict=True))
    called = pairs > 0.5
    return [
        name,
        len(tables),
        sum(collapses(*one) for one in tables),
        *by_bins(pairs, edges),
        f"{called[edges].mean():.2f}",
        f"{edges[called].mean():.2f}",
    ]


def reported(records):
    """Tabulate claimed and true frequencies."""
    found = [
        (
            one | {"fresh": one["seed"] >= PRIOR_SEEDS},
            (said(one), np.array(one["edges"]) > 0),
        )
        for one in records
    ]

    def rows(groups):
        for name, which in groups.items():
            tables = [pair for one, pair in found if which.items() <= one.items()]
            if tables:
                yield line(name, tables)

    header = ["tables of", "tables", "collapses", *HEADER, "found", "right"]
    return [
        table(header, rows(groups(dense=False))),
        DENSE_TEXT,
        table(header, rows(groups(dense=True))),
    ]


def groups(dense):
    """Name the groups of records, and what they have in common."""
    by_size = {f"{d} columns": {"d": d} for d in COLUMNS}
    by_missing = {f"{share:.0%} missing": {"missing": share} for share in MISSING}
    by_sign = {f"edges of {name}": {"signs": name} for name in SIGNS}
    by_kind = {"numbers": {"mixed": False}, "five kinds of columns": {"mixed": True}}
    by_rows = {f"{n} rows": {"n": n} for n in ROWS}
    fresh = {f"seeds from {PRIOR_SEEDS}": {"fresh": True}}
    every = {"all": {}} | fresh | by_size | by_missing | by_sign | by_kind | by_rows
    return {name: {"dense": dense} | which for name, which in every.items()}


HEADER = [f"{low:.1f} to {high:.1f}" for low, high in pairwise(BINS)]
TEXT = """\
Tables of a latent normal graph, drawn anew each: 7, 15 or 30 % of the pairs are edges,
with partial correlations between 0.15 and 0.45 in absolute value (less where these are
impossible together); 200 to 2000 rows; normal columns, or columns of five kinds
(lognormal, zero-inflated, five grades, two and four levels). In a bin of probabilities:
mean probability / share of edges (number of pairs). *collapses*: tables with
probabilities above 0.5 for more than twice as many pairs as there are edges, plus two.
*found*: share of the edges with a probability above 0.5; *right*: share of edges among
such pairs. Tables of the first seeds served to choose the prior."""
DENSE_TEXT = """\
## Dense graphs

60 % of all pairs are edges. Their partial correlations are smaller, as larger ones are
impossible together: many cannot be told from zero, and no estimate of their number is
reliable. Probabilities below a half are too low there."""


def main():
    """Collect scores and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=125, help="of each of 12 cells")
    parser.add_argument("--scores", help="file in which to keep scores")
    parser.add_argument("--output", help="file of the report")
    parser.add_argument("--quick", action="store_true", help="two small tables a cell")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = Results(options.scores)
    seeds = range(2 if options.quick else options.tables)
    with threadpool_limits(1):
        collected(results, seeds, COLUMNS[:1] if options.quick else COLUMNS)
    records = [one for one in results.records if one["seed"] in seeds]
    head = made_by("edge_probabilities.py", f"Seeds below {len(seeds)}.")
    parts = ["# Probabilities of edges of copula graphs", head, TEXT]
    publish([*parts, *reported(records)], options.output)


if __name__ == "__main__":
    main()
