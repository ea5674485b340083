"""Sparse graphs of columns of any kind with missing cells.

    python benchmarks/copula_graph.py [--results FILE] [--only-report] [--quick]
        [--only table=copula20 method=CopulaGraphLearnerCV share=0.3]
        [--output doc/benchmarks/copula_graph.md]

Simulated tables of which the graph is known, 500 rows of columns of five kinds (20 and
100 nodes) or of numbers with detection limits (20 nodes), and the ring and the hub of
truncated normals (20 nodes, 1000 rows), with 0, 30 and 50 % of the cells missing, MCAR
and MAR (by `skvnce.missingness`; the first third of the columns drives and stays
complete). Each result is a line of FILE; those that are there are not computed again.
"""

import time
from functools import partial
from itertools import groupby
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from _mice import installed, run_r
from _report import Texts, mean, table
from _runner import main_of
from copula_graph_tables import TABLES, drawn
from scipy.special import ndtri
from sklearn.covariance import GraphicalLassoCV

from skvnce import (
    CopulaGraphLearner,
    CopulaGraphLearnerCV,
    TruncatedGaussianGraphLearnerCV,
)
from skvnce.graphs import graphical_lasso
from skvnce.graphs.em import ROWS_A_NEIGHBOUR
from skvnce.graphs.graphical_lasso import Blocks
from skvnce.metrics import edge_auc

TEXTS = Texts("copula_graph", globals())


def score(found, truth):
    """Score a path and the graphs that are chosen from it."""
    counts = {rule: int(one.sum()) // 2 for rule, one in found.chosen.items()}
    return {
        "auc": edge_auc(truth, ranked(found.path)),
        "best_f1": max(f1(one > 0, truth) for one in found.path),
        "f1": {rule: f1(one, truth) for rule, one in found.chosen.items()},
        "edges": counts,
        "truth": int(truth.sum()) // 2,
    }


def ranked(path):
    """Rank pairs by the graph in which they enter, then by their strength there."""
    order = np.zeros(path.shape[1:])
    for place, strengths in enumerate(path[::-1]):
        most = max(strengths.max(), 1e-300)
        order = np.where(strengths > 0, place + 1 + strengths / most / 2, order)
    return order


def f1(edges, truth):
    """Compute the F1 of the edges."""
    pairs = np.triu_indices(len(truth), 1)
    edges, truth = edges[pairs], truth[pairs]
    return float(2 * (edges & truth).sum() / max(edges.sum() + truth.sum(), 1))


OURS, TRUNCATED = "CopulaGraphLearnerCV", "TruncatedGaussianGraphLearnerCV"
N_ALPHAS, RATIO = 20, 100  # of a path, as ours
GAMMAS = (0.0, 0.5)  # of the extended BIC of rivals
OUR_GAMMAS = (0.25, 0.5)  # besides the default, 0
_EIGENVALUE = 1e-3  # the least of a matrix of correlations of pairs
_SCRIPT = Path(__file__).with_name("_graph_rivals.R")


class Found(NamedTuple):
    """What a method says about the edges."""

    # (n, d, d): strengths, from the sparsest graph to the densest, zero without an edge
    path: np.ndarray
    chosen: dict  # (d, d): the graph that each rule of selection chooses
    seconds: float = 0.0  # of CPU that another process took
    version: str | None = None  # of that program


def copula(table, seed):
    """Learn by `CopulaGraphLearnerCV`, and choose by further rules of selection."""
    model = CopulaGraphLearner(categorical_features=table.categories or None)
    learner = CopulaGraphLearnerCV(model, random_state=seed).fit(table.frame)
    found = of_learner(learner, table.X.shape[1])
    free = [
        max(n - 1, 1) if kind == "nominal" else 1
        for kind, n in zip(table.kinds, table.n_levels, strict=True)
    ]
    parameters = (np.outer(free, free) * (found.path > 0)).sum((1, 2)) / 2
    scores, unit = learner.cv_results_["ebic"], 4 * np.log(len(learner.nodes_))
    further = {
        f"ebic {gamma:g}": found.path[(scores + gamma * unit * parameters).argmin()] > 0
        for gamma in OUR_GAMMAS
    }
    return found._replace(chosen=found.chosen | further)


def truncated(table, seed):
    """Learn by `TruncatedGaussianGraphLearnerCV`."""
    learner = TruncatedGaussianGraphLearnerCV(random_state=seed).fit(table.X)
    return of_learner(learner, table.X.shape[1])


def of_learner(learner, d):
    """Spread the nodes of a fitted learner over all columns."""
    nodes = np.ix_(learner.feature_indices_, learner.feature_indices_)
    path = np.zeros((len(learner.path_), d, d))
    for full, part in zip(path, learner.path_, strict=True):
        full[nodes] = np.abs(part)
    chosen = np.zeros((d, d), dtype=bool)
    chosen[nodes] = learner.edge_strengths_ > 0
    return Found(path, {"ebic 0": chosen})


def filled(table, seed):
    """Fill codes by means and most frequent levels; graphical lasso."""
    return lasso_of_rows(filled_codes(table))


def scored(table, seed):
    """Map observed cells to normal scores, fill by means; graphical lasso."""
    return lasso_of_rows(np.nan_to_num(normal_scores(table.X)))


def by_mice(table, seed):
    """Complete the table by R's mice, map it to normal scores; graphical lasso."""
    with TemporaryDirectory() as folder:
        version, seconds = _run_r(Path(folder), "mice", table, table.X, seed)
        X = _matrices(Path(folder) / "filled.bin", *table.X.shape)[0]
    found = lasso_of_rows(normal_scores(X))
    return found._replace(version=version, seconds=float(seconds))


def spearman(table, seed):
    """Turn Spearman correlations of pairs into normal ones; graphical lasso."""
    observed = (~np.isnan(table.X)).astype(float)
    ranks = table.frame.corr("spearman", min_periods=3).fillna(0).to_numpy()
    correlation = 2 * np.sin(np.pi / 6 * ranks)
    np.fill_diagonal(correlation, 1)
    n = float((observed.T @ observed)[np.triu_indices(len(ranks), 1)].mean())
    return lasso(_definite(correlation), n)


def huge(table, seed):
    """Learn by R's huge from the filled codes, by nonparanormal scores."""
    return _graph_of_r("huge", table, filled_codes(table), seed)


def bdgraph(table, seed):
    """Learn by R's BDgraph: a Bayesian copula graph, which takes missing cells."""
    found = _graph_of_r("BDgraph", table, table.X, seed)
    shares = found.path[0]
    levels = np.linspace(0.99, 0.01, N_ALPHAS)
    return found._replace(path=np.array([shares * (shares > one) for one in levels]))


def em_gaussian(table, seed):
    """Learn by R's EMgaussian from normal scores, holes left: EM with a lasso."""
    return _graph_of_r("EMgaussian", table, normal_scores(table.X), seed)


def cglasso(table, seed):
    """Learn by R's cglasso from normal scores; repeated lowest numbers are censored."""
    Z = normal_scores(table.X)
    shares = table.frame.eq(table.frame.min()).sum() / table.frame.notna().sum()
    is_lowest = table.frame.eq(table.frame.min()) & ~table.levels
    Z = np.where(is_lowest & (is_lowest.sum() > 1), ndtri(shares), Z)
    return _graph_of_r("cglasso", table, Z, seed)


def filled_codes(table):
    """Fill numbers by means and codes by the most frequent ones."""
    X = table.frame
    middle = np.where(table.levels, X.mode().iloc[0], X.mean())
    return np.where(X.isna(), middle, X)


def normal_scores(X):
    """Map the ranks of the observed cells to normal scores; equal cells stay equal."""
    frame = pd.DataFrame(X)
    return ndtri((frame.rank() - 0.5) / frame.notna().sum()).to_numpy()


def lasso_of_rows(Z):
    """Solve the path of complete rows, and choose by cross-validation and EBIC."""
    varies = Z.std(0) > 0
    scale = np.where(varies, Z.std(0), 1.0)
    Z = (Z - Z.mean(0)) / scale
    found = lasso(Z.T @ Z / len(Z) + np.diag(~varies), len(Z))
    chosen = np.zeros(2 * Z.shape[1:], dtype=bool)
    precision = GraphicalLassoCV().fit(Z[:, varies]).precision_
    chosen[np.ix_(varies, varies)] = precision != 0
    np.fill_diagonal(chosen, False)
    return found._replace(chosen=found.chosen | {"CV": chosen})


def lasso(correlation, n):
    """Solve a path of penalties, and choose by the extended BIC of refitted edges."""
    d = len(correlation)
    off = 1 - np.eye(d)
    top = np.abs(correlation * off).max()
    found, precision = [], np.eye(d)
    for alpha in np.geomspace(top, top / RATIO, N_ALPHAS):
        precision = _solved(correlation, precision, alpha * off)
        found.append(precision)
    edges = [(one != 0) & (off > 0) for one in found]
    criteria = np.array([_criteria(correlation, n, e) for e in edges])
    chosen = {
        f"ebic {gamma:g}": edges[k]
        for gamma, k in zip(GAMMAS, criteria.argmin(0), strict=True)
    }
    roots = [np.sqrt(np.diag(one)) for one in found]
    path = [
        np.abs(one) / np.outer(r, r) * off for one, r in zip(found, roots, strict=True)
    ]
    return Found(np.array(path), chosen)


def _solved(correlation, start, weight, tol=1e-4):
    parts = (torch.from_numpy(part) for part in (correlation, start, weight))
    blocks = Blocks.of(torch.ones(len(correlation), dtype=torch.long))
    found = graphical_lasso.solve(*parts, blocks, tol=tol * len(correlation))
    return found.precision.numpy()


def _criteria(correlation, n, edges):
    """Compute the extended BIC for each gamma; too dense a graph has none."""
    d = len(correlation)
    if edges.sum() / d > n / ROWS_A_NEIGHBOUR:
        return [inf] * len(GAMMAS)
    weight = np.where(edges | np.eye(d, dtype=bool), 0.0, inf)
    precision = _solved(correlation, np.eye(d), weight, tol=0.1 / (n * d))
    loss = (correlation * precision).sum() - np.linalg.slogdet(precision)[1]
    price = [np.log(n) + 4 * gamma * np.log(d) for gamma in GAMMAS]
    return [n * loss + edges.sum() / 2 * one for one in price]


def _definite(correlation):
    """Clip the eigenvalues of a matrix, and scale its diagonal to 1."""
    values, vectors = np.linalg.eigh(correlation)
    clipped = (vectors * values.clip(_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(clipped))
    return clipped / np.outer(scale, scale)


def _graph_of_r(method, table, X, seed):
    """Run R, and read its path and its chosen graphs."""
    d = X.shape[1]
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        version, seconds = _run_r(folder, method, table, X, seed)
        path = _matrices(folder / "path.bin", d, d)
        rules = (folder / "rules.txt").read_text().splitlines()
        chosen = dict(zip(rules, _matrices(folder / "chosen.bin", d, d), strict=True))
    path = path * (1 - np.eye(d))
    chosen = {rule: (one != 0) & ~np.eye(d, dtype=bool) for rule, one in chosen.items()}
    return Found(path, chosen, float(seconds), version)


def _run_r(folder, method, table, X, seed):
    """Hand a table to R, and return the version and the seconds of CPU."""
    X.T.astype("<f8").tofile(folder / "table.bin")
    (folder / "shape.txt").write_text(" ".join(map(str, X.shape)))
    columns = zip(table.kinds, table.n_levels, strict=True)
    (folder / "columns.txt").write_text("\n".join(f"{k} {n}" for k, n in columns))
    run_r(str(_SCRIPT), str(folder), method, str(seed))
    return (folder / "notes.txt").read_text().splitlines()


def _matrices(file, rows, columns):
    """Read matrices that R wrote column by column."""
    return np.fromfile(file, "<f8").reshape(-1, columns, rows).transpose(0, 2, 1)


METHODS = {
    OURS: copula,
    TRUNCATED: truncated,
    "filled, graphical lasso": filled,
    "normal scores, graphical lasso": scored,
    "mice, graphical lasso": by_mice,
    "Spearman of pairs, graphical lasso": spearman,
    "huge": huge,
    "BDgraph": bdgraph,
    "EMgaussian": em_gaussian,
    "cglasso": cglasso,
}
NEEDS = {"mice, graphical lasso": "mice"}
NEEDS |= {name: name for name in ("huge", "BDgraph", "EMgaussian", "cglasso")}


def lacking(methods):
    """Return the methods whose packages R lacks."""
    return [name for name in methods if name in NEEDS and not installed(NEEDS[name])]


NEAR = 0.03  # of the AUC of the truncated learner
DEFAULT = "ebic 0"  # our rule of selection
SHARE = 0.9  # of the best F1 on the path
WORDS = {"copula20": "20 nodes of five kinds", "copula100": "100 nodes of five kinds"}
WORDS["censored20"] = "20 log-normal columns, half of them with detection limits"
WORDS |= {"ring": "ring of truncated normals", "hub": "hub of truncated normals"}


class Place:
    """The records of a table with holes that have scores: by method and seed."""

    def __init__(self, results, name, hole):
        key = {"part": "simulated", "table": name, "mechanism": hole[0]}
        some = [r for r in results.of(**key, share=hole[1]) if "missing" not in r]
        self.records = {
            method: {r["seed"]: r for r in some if r["method"] == method}
            for method in METHODS
        }
        self.name, self.share = name, hole[1]
        self.label = (
            f"{name}, {hole[1]:.0%} {hole[0]}" if hole[1] else f"{name}, complete"
        )

    def averages(self, method, seeds=None):
        """Average scores over sets; the F1 is that of each rule of selection.

        ``chosen`` is that of our default rule, or the best of those of a rival.
        """
        own = self.records[method]
        records = [own[seed] for seed in (own if seeds is None else seeds)]
        f1s = [record["f1"] for record in records]
        rules = {rule: mean(f1s, rule) for rule in f1s[0]}
        chosen = rules[DEFAULT] if method == OURS else max(rules.values())
        means = {s: mean(records, s) for s in ("auc", "best_f1", "seconds")}
        return means | {"f1": rules, "chosen": chosen, "sets": len(records)}

    def paired(self):
        """Average ours and each rival over the sets that both have."""
        for rival in METHODS:
            both = sorted(self.records[OURS].keys() & self.records[rival].keys())
            if rival != OURS and both:
                yield rival, self.averages(OURS, both), self.averages(rival, both)


def recovery(place):
    """Tabulate the methods in a cell."""
    lines = []
    for method in filter(place.records.get, METHODS):
        found = place.averages(method)
        rules = ", ".join(f"{rule}: {value:.3f}" for rule, value in found["f1"].items())
        values = [f"{found[key]:.3f}" for key in ("auc", "best_f1")]
        seconds = f"{found['seconds']:.1f}"
        lines.append([method, found["sets"], *values, rules, seconds])
    header = ["method", "sets", "AUC", "best F1 of the path", "F1 of the chosen graph"]
    return table([*header, "CPU, s"], lines)


def behind(score, place):
    """Name the rivals that are ahead in a cell of copula data with holes."""
    if place.name in ("ring", "hub") or not place.share:
        return None
    return "; ".join(
        f"{rival} ({theirs[score]:.3f} against {ours[score]:.3f}, {ours['sets']} sets)"
        for rival, ours, theirs in place.paired()
        if theirs[score] >= ours[score]
    )


def far_below(place):
    """Say by how much the AUC is too far below, on truncated normals."""
    pair = [pair for rival, *pair in place.paired() if rival == TRUNCATED]
    if not pair:
        return None
    gap = pair[0][1]["auc"] - pair[0][0]["auc"]
    return f"{gap:.3f} below" if gap > NEAR else ""


def badly_chosen(place):
    """Say where EBIC's F1 is not near the best on the path."""
    found = place.averages(OURS)
    is_near = found["chosen"] >= SHARE * found["best_f1"]
    return "" if is_near else f"{found['chosen']:.3f} of {found['best_f1']:.3f}"


GOALS = {  # None where a goal is not asked for, "" where it is met
    "Ahead of all rivals in AUC on copula data with holes": partial(behind, "auc"),
    "Ahead of all rivals in F1 of the chosen graph on copula data with holes": partial(
        behind, "chosen"
    ),
    f"At most {NEAR} below the AUC of {TRUNCATED} on truncated normals": far_below,
    "F1 of EBIC within 10 % of the best F1 of the path": badly_chosen,
}


def verdict(goal, places):
    """Say whether a goal is met, and list the cells where it is not."""
    answers = [(place.label, GOALS[goal](place)) for place in places]
    asked = [(label, lost) for label, lost in answers if lost is not None]
    missed = [f"  - {label}: {lost}" for label, lost in asked if lost]
    if not asked:
        return f"- {goal}: not measured."
    if not missed:
        return f"- {goal}: **met** in all {len(asked)} cells."
    head = f"- {goal}: **missed** in {len(missed)} of {len(asked)} cells."
    return "\n".join([head, *missed])


def measured(key, options):
    """Run a method on a table, and score it."""
    seed = key["seed"]
    table = drawn(key["table"], key["mechanism"], key["share"], seed)
    begin = time.process_time()
    try:
        found = METHODS[key["method"]](table, seed)
    except RuntimeError as failure:  # of R
        return {"missing": str(failure)[-200:]}
    seconds = time.process_time() - begin + found.seconds
    notes = {"version": found.version} if found.version else {}
    return score(found, table.truth) | {"seconds": round(seconds, 2)} | notes


def places_of(results):
    """List the cells that have results of ours."""
    places = [Place(results, name, hole) for name in TABLES for hole in TABLES[name]]
    return [place for place in places if place.records[OURS]]


def recoveries(results):
    """Write the tables of all cells."""
    parts = []
    for name, some in groupby(places_of(results), lambda place: place.name):
        parts.append(f"### {name}: {WORDS[name]}")
        for place in some:
            parts += [f"{place.label.capitalize()}:", recovery(place)]
    return parts


def verdicts(results):
    """Say which goals are met."""
    return "\n".join(verdict(goal, places_of(results)) for goal in GOALS)


def possible(key):
    """Say whether there are such holes, and the method is one for the table."""
    suits = key["method"] != TRUNCATED or key["table"] in ("ring", "hub")
    return suits and (key["mechanism"], key["share"]) in TABLES[key["table"]]


CASES = {
    "part": ["simulated"],
    "seed": range(10),
    "table": TABLES,
    "mechanism": ["none", "MCAR", "MAR"],
    "share": [0.0, 0.3, 0.5],
    "method": METHODS,
}
QUICK = {"seed": [0], "table": ["copula20"], "share": [0.3]}
QUICK |= {"method": [OURS, "Spearman of pairs, graphical lasso"]}
main = main_of(globals(), QUICK)
