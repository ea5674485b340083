"""Real tables of `copula_graph.py`: held-out scores, and how stable the edges are."""

import time
import warnings
from functools import partial

import numpy as np
import pandas as pd
from _data import folder, load
from copula_graph_scores import ranked
from mixed_tables import encoded

from skvnce import CopulaGraphLearner, CopulaGraphLearnerCV, GaussianImputer
from skvnce.datasets import load_sachs, load_tcga_brca
from skvnce.metrics import edge_auc
from skvnce.missingness import hide, mcar

ROWS, TEST = 1200, 0.3  # rows at most, and the share of them that is scored
BLOCKS = 5
EMPTY = 1e3  # an alpha without edges
COIN = "coin"
VERSIONS = ("literature20", "validated17", "cdt18")  # of the network of sachs
GRAPH, FIXED = "CopulaGraphLearnerCV", "CopulaGraphLearner, alpha of theory"
NORMAL, BESIDE = "GaussianImputer", "GaussianImputer, with a coin"
INDEPENDENT = "independent columns"
TABLES = {
    "sachs": 0.0,
    "sachs 30 %": 0.3,
    "sachs 50 %": 0.5,
    "hepatitis": 0.0,
    "horse_colic": 0.0,
    "adult": 0.0,
    "nhanes": 0.0,
    "american_gut": 0.0,
    "tcga": 0.1,
}  # the share of the cells that is hidden besides genuine holes


def prepared(name, seed):
    """Read a table, hide cells and shuffle its rows; returns it and its categories."""
    share, base = TABLES[name], name.split()[0]
    if base in ("sachs", "tcga", "american_gut"):
        frame, categories = _numbers(base), {}
    else:
        x, kinds, _, names = encoded(base)
        frame = pd.DataFrame(x, columns=names)
        categories = {n: k for n, k in zip(names, kinds, strict=True) if k != "numeric"}
    rng = np.random.default_rng(seed)
    frame = frame.iloc[rng.permutation(len(frame))[:ROWS]].reset_index(drop=True)
    if share:
        frame = hide(frame, mcar(frame, share, random_state=seed))
    return frame[frame.notna().any(axis=1)].reset_index(drop=True), categories


def _numbers(base):
    if base == "tcga":
        return np.log1p(load_tcga_brca(data_home=folder(), as_frame=True).data)
    if base == "american_gut":
        return load("american_gut").astype(float)
    X, condition = load_sachs(data_home=folder(), return_X_y=True, as_frame=True)
    return np.log(X[condition == "cd3cd28"]).reset_index(drop=True)


def with_coin(frame, categories):
    """Append a fair coin to a table of numbers, which makes a mixed table of it.

    `GaussianImputer` then has the same marginals as `CopulaGraphLearner`.
    """
    if categories:
        return frame, categories
    coin = np.random.default_rng(0).integers(2, size=len(frame)).astype(float)
    return frame.assign(**{COIN: coin}), {COIN: "nominal"}


def models(categories, width, n_rows):
    """Name the models of a table, as functions of a seed."""
    kinds = {"categorical_features": categories, "handle_unknown": "missing"}
    graph = partial(CopulaGraphLearner, on_misfit="ignore", **kinds)
    theory = float(np.sqrt(np.log(width) / n_rows))
    return {
        GRAPH: lambda seed: CopulaGraphLearnerCV(graph(), random_state=seed),
        FIXED: lambda seed: graph(theory, random_state=seed),
        INDEPENDENT: lambda seed: graph(EMPTY, random_state=seed),
        BESIDE: lambda seed: GaussianImputer(
            on_misfit="ignore", random_state=seed, **kinds
        ),
    }


def log_score(model, test, blocks):
    """Compute the composite log-score in nats a scored cell.

    Each block of columns is scored given the others: the log-density of the observed
    cells less that without the block.
    """
    whole = model.score_samples(test)
    total, cells = 0.0, 0
    for block in blocks:
        rest = test.copy()
        rest[block] = np.nan
        total += float((whole - model.score_samples(rest)).sum())
        cells += int(test[block].notna().sum().sum())
    return total / cells


def measured(name, seed):
    """Score all models of a table on held-out rows; a dict of dicts by model."""
    plain, categories = prepared(name, seed)
    frame, kinds = with_coin(plain, categories)
    cut = round((1 - TEST) * len(frame))
    columns = np.random.default_rng(seed).permutation(plain.columns)
    blocks = [list(part) for part in np.array_split(columns, BLOCKS)]
    train, test = frame[:cut], frame[cut:].reset_index(drop=True)
    found = {}
    asked = models(kinds, frame.shape[1], len(train))
    for method, make in asked.items():
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(seed).fit(train)
            seconds = time.process_time() - begin
            value = log_score(model, test, blocks)
        found[method] = {"log_score": value, "seconds": round(seconds, 2)}
        if method in (GRAPH, FIXED):
            found[method]["edges"] = int(np.count_nonzero(model.edge_strengths_) // 2)
            found[method]["stability"] = stability(model, train, seed)
        if method == GRAPH and name.startswith("sachs"):
            found[method]["auc"] = _published(model, plain)
    return found


def stability(model, train, seed):
    """Compute the share of edges of one half of the rows that are in the other."""
    rows = np.random.default_rng(seed).permutation(len(train))
    halves = []
    for part in np.array_split(rows, 2):
        half = train.iloc[part].reset_index(drop=True)
        halves.append(_edges(model, half))
    both = len(halves[0] & halves[1])
    least = [both / len(one) for one in halves if one]
    return float(np.mean(least)) if least else None


def _edges(model, half):
    """Learn the edges of some rows at an alpha."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(model, CopulaGraphLearnerCV):
            settings = {"alphas": [model.alpha_], "random_state": 0}
            learner = CopulaGraphLearnerCV(model.model, **settings)
        else:
            learner = CopulaGraphLearner(**model.get_params())
        table = learner.fit(half).edges()
    return {frozenset(pair) for pair in zip(table.source, table.target, strict=True)}


def networks(nodes):
    """Read the published versions of the signalling network as 0/1 matrices."""
    edges = load_sachs(data_home=folder()).edges
    found = {}
    for version in VERSIONS:
        matrix = pd.DataFrame(0, index=nodes, columns=nodes)
        for source, target in edges[version]:
            matrix.loc[source, target] = matrix.loc[target, source] = 1
        found[version] = matrix.to_numpy()
    return found


def _published(model, frame):
    """Compare the ranking of the pairs with the published networks."""
    places = [list(model.nodes_).index(name) for name in frame.columns]
    path = np.abs(model.path_[:, places][:, :, places])
    truths = networks(frame.columns)
    return {name: edge_auc(truth, ranked(path)) for name, truth in truths.items()}
