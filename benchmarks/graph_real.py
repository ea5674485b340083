"""Graphs of four real tables: genes, signals in cells, proteins and soil.

    python benchmarks/graph_real.py [--tables tcga_brca_rnaseq sachs ...]
        [--output doc/benchmarks/graph_real.md]

``tcga_brca_rnaseq``: 353 genes of 445 tumours, log(1 + count), a tenth of the cells
hidden at random and scored; the path of graphs and its hubs.  ``sachs``: recovery of a
published network, per method, at 0, 30 and 50 % hidden.  ``lung_proteomics``: what a
model that takes cells for missing at random does where the small ones are missing.
``kola_chorizon``: element concentrations of 606 soil samples, missing where below the
detection limit.  Ends with status 1 if a default fit warns.
"""

import sys
import time
import warnings
from multiprocessing import TimeoutError, get_context
from typing import NamedTuple

import numpy as np
import pandas as pd
from _data import folder, load, peak_mib
from _report import Texts, made_by, publish, table
from _runner import options_of
from graph_simulation import graph_learner
from sklearn.covariance import GraphicalLassoCV
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler

from skvnce import (
    GaussianImputer,
    TruncatedGaussianGraphLearner,
    TruncatedGaussianGraphLearnerCV,
)
from skvnce.datasets import load_sachs, load_tcga_brca
from skvnce.metrics import edge_auc, imputation_rmse
from skvnce.missingness import hide, mcar

TEXTS = Texts("graph_real", globals())

PATIENCE = 60  # seconds that an imputer may take
SHARES = (0.0, 0.3, 0.5)  # of the cells of sachs that are hidden
VERSIONS = ("literature20", "validated17", "cdt18")  # of its published network
MASKS = {  # per method of sachs, of each share
    "score-matching": 3,
    "maximum-likelihood": 1,
    "pseudo-likelihood": 1,
    "imputed-score-matching": 3,
    "imputed-nce": 3,
    "vnce": 1,
    "vnce-lognormal": 1,
    "vnce-cdi": 1,
}
CHOOSE = {"score-matching", "maximum-likelihood", "imputed-score-matching"}
CENSORED = 0.35  # share of the cells of a column of proteins

TCGA_FIT = TEXTS("tcga fit")
TCGA_PATH = TEXTS("tcga path")
SACHS = TEXTS("sachs")
LUNG = TEXTS("lung")


class Run(NamedTuple):
    """A fitted learner and what the fit cost."""

    learner: TruncatedGaussianGraphLearner
    seconds: float
    peak: float
    growth: float
    warned: list


def fit(X):
    """Fit with default parameters, and note time, memory and warnings."""
    learner = TruncatedGaussianGraphLearner(random_state=0)
    before = peak_mib()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.perf_counter()
        learner.fit(X)
        seconds = time.perf_counter() - begin
    peak = peak_mib()
    return Run(learner, seconds, peak, peak - before, [str(w.message) for w in caught])


def fit_table(run):
    """Tabulate what a fit cost and found."""
    learner = run.learner
    d = len(learner.nodes_)
    rows = [
        ["nodes", d],
        ["fit, s", f"{run.seconds:.1f}"],
        ["rounds of EM", learner.n_iter_],
        ["change of K in the last round", f"{learner.change_:.2g}"],
        ["peak memory, MiB", f"{run.peak:.0f}"],
        ["of it since the start of the fit, MiB", f"{run.growth:.0f}"],
        [
            "edges",
            f"{np.count_nonzero(np.triu(learner.precision_, 1))} of {d * (d - 1) // 2}",
        ],
        ["ridge", f"{learner.ridge_:.3g}"],
        ["warnings", "; ".join(run.warned) or "none"],
    ]
    return table(["", "skvnce, default parameters"], rows)


def complete(imputer, X):
    """Fill a table and time it, warnings aside."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return imputer.fit_transform(X), time.perf_counter() - begin


def complete_in_time(imputer, X):
    """Do so in another process; None when it takes longer than `PATIENCE`."""
    with get_context("spawn").Pool(1) as pool:  # leaving it ends the process
        try:
            return pool.apply_async(complete, (imputer, X)).get(PATIENCE)
        except TimeoutError:
            return None


def imputation_table(run, X, hidden):
    """Score imputations of the hidden cells."""
    incomplete = hide(X, hidden)
    begin = time.perf_counter()
    filled = run.learner.transform(incomplete)
    seconds = run.seconds + time.perf_counter() - begin
    rows = [["skvnce", *rmse(X, filled, hidden), f"{seconds:.1f}"]]
    peers = {
        "GaussianImputer (ours)": GaussianImputer(),
        "mean": SimpleImputer(),
        "KNNImputer": KNNImputer(),
        "IterativeImputer": IterativeImputer(min_value=0, random_state=0),
    }
    for name, imputer in peers.items():
        found = complete_in_time(imputer, incomplete)
        cells = ["-", "-", f"left out: more than {PATIENCE}"]
        if found:
            cells = [*rmse(X, found[0], hidden), f"{found[1]:.1f}"]
        rows.append([name, *cells])
    header = ["filled by", "RMSE, log units", "RMSE, column sd", "fit and transform, s"]
    return table(header, rows)


def rmse(X, filled, hidden):
    """Score in the units of X, and relative to each standard deviation."""
    scales = (None, np.std(X.to_numpy(), axis=0))
    return [f"{imputation_rmse(X, filled, hidden, scale=s):.4f}" for s in scales]


def path_of(X):
    """Learn a path and choose; notes time and warnings."""
    learner = TruncatedGaussianGraphLearnerCV(random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.perf_counter()
        learner.fit(X)
    return learner, time.perf_counter() - begin, [str(w.message) for w in caught]


def path_table(learner):
    """Tabulate the path, and what the criterion says with gamma 0 and 1."""
    found = learner.cv_results_
    price = 4 * np.log(len(learner.nodes_))  # of a link, by gamma = 1
    scores = found["ebic"], found["ebic"] + price * found["n_edges"]
    columns = zip(found["alpha"], found["n_edges"], *scores, strict=True)
    rows = [
        [f"{a:.3g}", n, *(f"{x:.0f}" if x < np.inf else "-" for x in values)]
        for a, n, *values in columns
    ]
    for column, score in enumerate(scores, start=2):
        best = rows[int(np.argmin(score))]
        best[column] = f"**{best[column]}**"
    return table(["alpha", "links", "EBIC, gamma 0", "EBIC, gamma 1"], rows)


def associations_at(learner, n_links):
    """Take the first graph of a path that has as many links; a frame."""
    enough = learner.cv_results_["n_edges"] >= n_links
    return on_path(learner, int(np.argmax(enough)) if enough.any() else -1)


def at_choice(learner):
    """Take the chosen graph; a frame."""
    return on_path(learner, list(learner.alphas_).index(learner.alpha_))


def on_path(learner, place):
    """Take a graph of the path; a frame."""
    return pd.DataFrame(
        learner.path_[place], index=learner.nodes_, columns=learner.nodes_
    )


def hub_table(associations, n_hubs=10):
    """Name the nodes with most links, and the strongest neighbours of each."""
    degree = (associations != 0).sum().sort_values(ascending=False, kind="stable")
    rows = []
    for gene, links in degree.head(n_hubs).items():
        strong = associations[gene].sort_values(key=np.abs, ascending=False).head(3)
        neighbours = ", ".join(f"{name} {a:+.2f}" for name, a in strong.items())
        rows.append([gene, links, neighbours])
    return table(["gene", "links", "strongest neighbours"], rows)


def tcga():
    """Report on gene expression with hidden cells."""
    X = np.log1p(load_tcga_brca(data_home=folder(), as_frame=True).data)
    hidden = mcar(X, 0.1, random_state=0)
    run = fit(hide(X, hidden))
    path, seconds, _ = path_of(X)
    graph = associations_at(path, 2 * X.shape[1])
    chosen = np.count_nonzero(np.triu(path.precision_, 1))
    return run, [
        f"{len(X)} tumours, log(1 + count), {hidden.mean():.1%} of the cells hidden.",
        fit_table(run),
        TCGA_FIT,
        imputation_table(run, X, hidden),
        TEXTS("The path of all genes", seconds=seconds, chosen=chosen),
        path_table(path),
        TCGA_PATH,
        "Hubs of the graph that EBIC chooses:",
        hub_table(at_choice(path)),
        f"Hubs of the first graph with two links per gene ({2 * X.shape[1]}):",
        hub_table(graph),
    ]


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


def filled(X):
    """Fill by column means and scale."""
    return StandardScaler().fit_transform(SimpleImputer().fit_transform(X))


def without_diagonal(matrix):
    """Return absolute values, zero on the diagonal."""
    strengths = np.abs(matrix)
    np.fill_diagonal(strengths, 0)
    return strengths


def partial_correlation(X):
    """Divide the inverse of the correlation of the mean-filled table by its scale."""
    inverse = np.linalg.inv(np.corrcoef(filled(X).T))
    root = np.sqrt(np.diag(inverse))
    return without_diagonal(inverse / np.outer(root, root)), None


def marginal_correlation(X):
    """Correlate the columns of the mean-filled table."""
    return without_diagonal(np.corrcoef(filled(X).T)), None


def graphical_lasso(X):
    """Choose the graphical lasso of the mean-filled table; it ranks and chooses."""
    strengths = without_diagonal(GraphicalLassoCV().fit(filled(X)).precision_)
    return strengths, strengths


def by_method(method):
    """Rank by a fit without L1 penalty, choose by EBIC where that is affordable."""

    def learn(X):
        learner = graph_learner(alpha=0, algorithm=method, random_state=0)
        free = learner.fit(X)
        if method not in CHOOSE:
            return free.edge_strengths_, None
        chosen = TruncatedGaussianGraphLearnerCV(learner, random_state=0).fit(X)
        return free.edge_strengths_, chosen.edge_strengths_

    return learn


RIVALS = {
    "mean, graphical lasso (CV)": graphical_lasso,
    "mean, partial correlation": partial_correlation,
    "mean, marginal correlation": marginal_correlation,
}


def recovery(learn, X, n_masks):
    """Score a way to learn at all shares hidden; a dict of lists over shares."""
    truths = networks(X.columns)
    scores = []
    begin = time.perf_counter()
    shares = SHARES if n_masks else SHARES[:1]
    for share in shares:
        masks = [mcar(X, share, random_state=seed) for seed in range(n_masks)]
        tables = [hide(X, mask) for mask in masks] if share else [X]
        runs = [evaluated(*quiet(learn, part), truths) for part in tables]
        scores.append(pd.DataFrame(runs).mean())
    fits = 1 + (len(shares) - 1) * n_masks
    return pd.DataFrame(scores), (time.perf_counter() - begin) / fits


def quiet(function, *arguments):
    """Call a function with its warnings aside: those of weak penalties on a path."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


def evaluated(strengths, chosen, truths):
    """Score a ranking, and count the chosen links and those of them published."""
    scores = {name: edge_auc(truth, strengths) for name, truth in truths.items()}
    scores["links"] = np.nan
    if chosen is not None:
        links = np.triu(chosen, 1) > 0
        scores["links"] = np.count_nonzero(links)
        for name, truth in truths.items():
            scores[f"{name} hits"] = np.count_nonzero(links & (truth > 0))
    return scores


def recovery_rows(name, found, seconds):
    """Write one row of the table of rankings and, with a choice, one of graphs."""
    ranking = [
        " / ".join(f"{auc:.2f}" for auc in found[version]) for version in VERSIONS
    ]
    chosen = None
    if found["links"].notna().all():
        names = ["links", *(f"{version} hits" for version in VERSIONS)]
        counts = [" / ".join(f"{n:.3g}" for n in found[column]) for column in names]
        chosen = [name, *counts]
    return [name, *ranking, f"{seconds:.1f}"], chosen


def recovery_tables(ways, X):
    """Tabulate rankings and chosen graphs; `ways` maps names to (learn, masks)."""
    found = [
        recovery_rows(name, *recovery(learn, X, n_masks))
        for name, (learn, n_masks) in ways.items()
    ]
    sizes = [f"{name} ({int(t.sum() / 2)})" for name, t in networks(X.columns).items()]
    ranking = table(["AUC of", *sizes, "s a table"], [row for row, _ in found])
    chosen = table(["chosen by", "links", *sizes], [row for _, row in found if row])
    return ranking, chosen


def sachs():
    """Report on the signalling network, per method."""
    X, condition = load_sachs(data_home=folder(), return_X_y=True, as_frame=True)
    raw = X[condition == "cd3cd28"]
    rivals = {name: (learn, 3) for name, learn in RIVALS.items()}
    ours = {name: (by_method(name), n) for name, n in MASKS.items()}
    default = {"score-matching": ours["score-matching"]}
    log_ranking, log_chosen = recovery_tables({**ours, **rivals}, np.log(raw))
    raw_ranking, raw_chosen = recovery_tables({**default, **rivals}, raw)
    run = fit(np.log(raw))
    slow = ", ".join(name for name, n_masks in MASKS.items() if n_masks == 1)
    parts = [
        TEXTS("cells of condition", rows=len(raw), raw=raw, slow=slow),
        "Logarithms:",
        log_ranking,
        TEXTS("Links chosen by EBIC (by"),
        log_chosen,
        "Raw intensities:",
        raw_ranking,
        raw_chosen,
        SACHS,
    ]
    return run, parts


def intensity_table(X):
    """Tabulate the share of missing cells by the intensity of the protein."""
    rows_mean = X.mean(axis=1)
    fifth = pd.qcut(rows_mean, 5, labels=False)
    part = pd.DataFrame(
        {"intensity": rows_mean, "missing": X.isna().mean(axis=1)}
    ).groupby(fifth)
    rows = [
        [f"{g['intensity'].min():.1f} to {g['intensity'].max():.1f}"]
        + [f"{g['missing'].mean():.1%}"]
        for _, g in part
    ]
    return table(["mean of the observed cells, log2", "cells missing"], rows)


def imputed_table(X, imputers):
    """Compare imputed cells with the observed ones of their columns."""
    missing = X.isna().to_numpy()
    column = np.nonzero(missing)[1]
    low, middle = X.quantile(0.01).to_numpy(), X.median().to_numpy()
    observed = X.to_numpy()[~missing]
    columns = {"observed cells": described(observed)}
    columns["observed cells"] += ["99.0%", "50.0%"]
    for name, imputer in imputers.items():
        means = imputer.transform(X)[missing]
        draws = imputer.sample(X, n_draws=5, random_state=0, as_array=True)[:, missing]
        for kind, cells in (("means", means), ("draws", draws)):
            above = [f"{(cells > limit[column]).mean():.1%}" for limit in (low, middle)]
            columns[f"{name}, {kind}"] = described(cells) + above
    names = ["mean, log2", "standard deviation", "least", "greatest"]
    names += ["above the column's 1 % quantile", "above the column's median"]
    return table(["", *columns], zip(names, *columns.values(), strict=True))


def described(cells):
    """Return mean, standard deviation and extremes as text."""
    values = cells.mean(), cells.std(), cells.min(), cells.max()
    return [f"{value:.2f}" for value in values]


def smallest(X, columns):
    """Mark the smallest cells of columns."""
    mask = pd.DataFrame(False, index=X.index, columns=X.columns)
    mask[columns] = X[columns] < X[columns].quantile(CENSORED)
    return mask.to_numpy()


def at_random(X, columns):
    """Mark as many cells of columns at random."""
    mask = pd.DataFrame(False, index=X.index, columns=X.columns)
    mask[columns] = mcar(X[columns], CENSORED, random_state=0)
    return mask.to_numpy()


def least_observed(X):
    """Fill by the least observed value of the column."""
    return X.fillna(X.min()).to_numpy()


def bias_row(name, X, hidden, completed, associations, truth):
    """Judge a completed table against the true one, and a graph against that of it."""
    scale = X.std(ddof=0)
    columns = hidden.any(axis=0)
    error = (completed - X.to_numpy()) / scale.to_numpy()
    column_bias = error.mean(axis=0)[columns].mean()
    graph = ["-", "-"]
    if associations is not None:
        pairs = np.triu_indices(X.shape[1], 1)
        found, true = associations[pairs], truth[pairs]
        graph = [
            f"{np.sqrt(np.mean((found - true) ** 2)):.3f}",
            f"{np.count_nonzero(found)}, {np.count_nonzero((found != 0) & (true != 0))}"
            f" of {np.count_nonzero(true)}",
        ]
    return [
        name,
        f"{column_bias:+.2f}",
        f"{error[hidden].mean():+.2f}",
        f"{np.sqrt(np.mean(error[hidden] ** 2)):.2f}",
        *graph,
    ]


def signed(learner):
    """Return -K_ij / sqrt(K_ii K_jj)."""
    return -np.sign(learner.precision_) * learner.edge_strengths_


def truth_table(X):
    """Hide cells of complete rows in four ways, and compare with the complete rows."""
    select = TruncatedGaussianGraphLearnerCV(random_state=0)
    truth = signed(quiet(select.fit, X))
    whole, one = list(X.columns), [X.columns[0]]
    ways = {
        "at random, one column": at_random(X, one),
        "the smallest, one column": smallest(X, one),
        "at random, all columns": at_random(X, whole),
        "the smallest, all columns": smallest(X, whole),
    }
    rows, empty = [], {}
    for name, hidden in ways.items():
        incomplete = hide(X, hidden)
        empty[name] = incomplete.isna().all(axis=1).mean()
        learner = quiet(select.fit, incomplete)
        ours = [learner.transform(incomplete), signed(learner), truth]
        rows.append(bias_row(f"{name}: skvnce", X, hidden, *ours))
        peers = {
            "GaussianImputer": GaussianImputer(random_state=0).fit_transform(
                incomplete
            ),
            "column mean": SimpleImputer().fit_transform(incomplete),
            "least observed": least_observed(incomplete),
        }
        for peer, completed in peers.items():
            rows.append(bias_row(f"{name}: {peer}", X, hidden, completed, None, None))
    header = [
        "hidden: filled by",
        "bias of the columns' means, sd",
        "bias of the hidden cells, sd",
        "RMSE, sd",
        "error of associations",
        "links, of the true graph's",
    ]
    return table(header, rows), empty["the smallest, all columns"]


def lung():
    """Report on proteins, whose small intensities are missing."""
    X = np.log2(load("lung_proteomics").drop(columns="protein"))
    run, missing = fit(X), X.isna().mean()
    normal = GaussianImputer(random_state=0)
    imputers = {"skvnce": run.learner, "normal": normal.fit(X)}
    complete_rows = X.dropna()
    truths, empty = truth_table(complete_rows)
    parts = [
        TEXTS(
            "proteins x samples",
            rows=len(X),
            X=X,
            mean=missing.mean(),
            least=missing.min(),
            most=missing.max(),
        ),
        intensity_table(X),
        fit_table(run),
        TEXTS("The model takes the"),
        imputed_table(X, imputers),
        TEXTS("With a known truth: the", complete_rows=len(complete_rows), empty=empty),
        truths,
        LUNG,
    ]
    return run, parts


def elements():
    """Load the concentrations of one series of measurements, in logarithms.

    Columns named by the element alone come from one method; others repeat them.  In
    units of the smallest value observed the logarithms are not negative, and 0 is about
    where the instrument stops to see.
    """
    soil = load("kola_chorizon")
    soil = soil.loc[:, soil.columns.str.fullmatch("[A-Z][a-z]?")]
    soil = soil.loc[:, soil.isna().mean() <= 0.5]
    return np.log(soil / soil.min())


def kola():
    """Report on soil chemistry with the missing cells it has."""
    X = elements()
    run, missing = fit(X), X.isna().mean()
    text = (
        f"{len(X)} samples, {X.shape[1]} elements, log(concentration / least observed)"
        f"; {missing.mean():.1%} of the cells missing (at most {missing.max():.0%} of "
        "a column). They are missing because they are small, which the model does not "
        "know: it takes them for missing at random."
    )
    edges = run.learner.edges().head(10)
    rows = [
        [e.source, e.target, f"{e.association:+.2f}"]
        for e in edges.itertuples(index=False)
    ]
    strongest = table(["element", "element", "association given the others"], rows)
    return run, [text, fit_table(run), "The ten strongest edges:", strongest]


TABLES = {
    "tcga_brca_rnaseq": tcga,
    "sachs": sachs,
    "lung_proteomics": lung,
    "kola_chorizon": kola,
}


def main():
    """Run the tables and report; returns whether a fit warned."""
    options = options_of(__doc__, tables=list(TABLES))
    found = {name: TABLES[name]() for name in options.tables}
    parts = ["# Graphs of real tables", made_by("graph_real.py", "Seed 0.")]
    for name, (_, part) in found.items():
        parts += [f"## {name}", *part]
    publish(parts, options.output)
    return any(run.warned for run, _ in found.values())


if __name__ == "__main__":
    sys.exit(main())
