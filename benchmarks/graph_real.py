"""Graphs of two real tables: gene expression, and soil chemistry with missing values.

    python benchmarks/graph_real.py [--tables tcga_brca_rnaseq kola_chorizon]
        [--output doc/benchmarks/graph_real.md]

``tcga_brca_rnaseq``: 353 genes of 445 tumours, log(1 + count), a tenth of the cells
hidden at random and scored.  ``kola_chorizon``: element concentrations of 606 soil
samples, missing where below the detection limit.  Ends with status 1 if a fit warns.
"""

import argparse
import resource
import sys
import time
import warnings
from multiprocessing import TimeoutError, get_context
from typing import NamedTuple

import numpy as np
from _data import load
from _report import made_by, publish, table
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from skvnce import TruncatedGaussianGraphLearner
from skvnce.metrics import imputation_rmse
from skvnce.missingness import hide, mcar

PATIENCE = 120  # seconds that an imputer may take


class Run(NamedTuple):
    """A fitted learner and what the fit cost."""

    learner: TruncatedGaussianGraphLearner
    seconds: float
    peak: float
    growth: float
    warned: list


def peak_mib():
    """Return the largest resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


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
    """Score in the units of the table and in those of each column's spread."""
    scales = (None, np.std(X.to_numpy(), axis=0))
    return [f"{imputation_rmse(X, filled, hidden, scale=s):.4f}" for s in scales]


def tcga():
    """Report on gene expression with hidden cells."""
    X = np.log1p(load("tcga_brca_rnaseq").drop(columns="sample"))
    hidden = mcar(X, 0.1, random_state=0)
    run = fit(hide(X, hidden))
    text = f"{len(X)} tumours, log(1 + count), {hidden.mean():.1%} of the cells hidden."
    return run, [text, fit_table(run), imputation_table(run, X, hidden)]


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


TABLES = {"tcga_brca_rnaseq": tcga, "kola_chorizon": kola}


def options_of(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--output")
    return parser.parse_args(arguments)


def main(options):
    """Run the tables and report; returns whether a fit warned."""
    found = {name: TABLES[name]() for name in options.tables}
    parts = ["# Graphs of real tables", made_by("graph_real.py", "Seed 0.")]
    for name, (_, part) in found.items():
        parts += [f"## {name}", *part]
    publish(parts, options.output)
    return any(run.warned for run, _ in found.values())


if __name__ == "__main__":
    sys.exit(main(options_of()))
