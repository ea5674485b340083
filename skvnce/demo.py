"""Demonstration on bundled data: ``python -m skvnce.demo [picture.png]``.

It imputes a survey of US adults with missing values, 19 measurements and 6 columns of
categories, and learns a graph of all of them.  Errors are those at cells that were
hidden on purpose, log-densities those of rows that were not used to fit.
"""

import sys
import time
import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.covariance import GraphicalLassoCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skvnce import (
    CopulaGraphLearner,
    CopulaGraphLearnerCV,
    GaussianImputer,
    TableImputer,
)
from skvnce.datasets import load_nhanes
from skvnce.exceptions import MisfitWarning, TableWarning
from skvnce.inspection import GraphDisplay
from skvnce.metrics import false_classification_rate, imputation_rmse
from skvnce.missingness import hide, mcar
from skvnce.pooling import pool

N_SHOWN = 5  # cells whose probabilities are printed
N_DRAWS = 20
N_STRONGEST, N_DRAWN = 20, 40  # edges that are printed, and drawn
N_HALVES = 6  # random halves of the rows
EMPTY = 10.0  # alpha of a graph without edges


@contextmanager
def quiet():
    """Ignore what is known of the survey and of the rivals.

    A hormone was measured in one cycle of the survey, and is filled in both.
    """
    with warnings.catch_warnings():
        for kind in (ConvergenceWarning, MisfitWarning, TableWarning):
            warnings.simplefilter("ignore", kind)
        yield


def impute_survey(table):
    """Impute numbers and categories, and print probabilities, shares, and errors."""
    categories = list(table.select_dtypes("category"))
    print(
        f"{len(table)} adults, {table.shape[1]} columns, {len(categories)} of them",
        end=" ",
    )
    print("categories; a tenth of the observed cells is hidden.\n")
    hidden = mcar(table, 0.1, random_state=0)
    given = hide(table, hidden)
    imputer = TableImputer(random_state=0).set_output(transform="pandas")
    fills = {**rival_fills(given), "TableImputer": fill(imputer, given)}

    education = table["Education"][hidden[:, table.columns.get_loc("Education")]]
    show_probabilities(imputer, given, education[:N_SHOWN])
    filled = fills["TableImputer"][0]["Education"]
    some = given.loc[education.index]
    drawn = imputer.sample(some, n_draws=N_DRAWS, random_state=0)
    show_shares(education, filled, [one["Education"] for one in drawn])

    print("Errors on the hidden cells (of categories the share of wrong levels, of")
    print("numbers the RMSE in standard deviations):")
    results = [
        (name, survey_errors(table, filled, hidden), seconds)
        for name, (filled, seconds) in fills.items()
    ]
    is_category = table.columns.isin(categories)
    means = {"mean of numbers": ~is_category, "of categories": is_category}
    show_errors(table.columns, results, means)
    errors = {name: found for name, found, _ in results}
    own = errors.pop("TableImputer")
    for name, found in errors.items():
        worse = ", ".join(table.columns[own > found]) or "no column"
        print(f"TableImputer is worse than {name} in {worse}.")
    print()


def fill(imputer, table):
    """Fill a table, and measure the seconds."""
    start = time.perf_counter()
    # several threads are many times slower than one on busy cores
    with threadpool_limits(1), quiet():
        filled = imputer.fit_transform(table)
    return filled, time.perf_counter() - start


def rival_fills(table):
    """Fill a table, in which categories come last, by imputers of codes of levels."""
    codes = with_codes(table)
    rivals = {
        "mean, most frequent": simple_fill(table),
        "IterativeImputer": IterativeImputer(random_state=0),
    }
    fills = {name: fill(rival, codes) for name, rival in rivals.items()}
    return {name: (as_levels(cells, table), t) for name, (cells, t) in fills.items()}


def with_codes(table):
    """Replace levels by their codes, NaN if missing."""
    codes = table.copy()
    for name in table.select_dtypes("category"):
        codes[name] = table[name].cat.codes.where(table[name].notna())
    return codes


def simple_fill(table):
    """Make an imputer of codes by means and, in the last columns, frequent levels."""
    categories = list(table.select_dtypes("category"))
    return make_column_transformer(
        (SimpleImputer(), list(table.columns.drop(categories))),
        (SimpleImputer(strategy="most_frequent"), categories),
    )


def as_levels(cells, table):
    """Make a data frame like `table` from numbers; codes are rounded to levels."""
    frame = pd.DataFrame(cells, table.index, table.columns)
    for name in table.select_dtypes("category"):
        dtype = table[name].dtype
        codes = frame[name].round().clip(0, len(dtype.categories) - 1).astype(int)
        frame[name] = pd.Categorical.from_codes(codes, dtype=dtype)
    return frame


def survey_errors(table, filled, hidden):
    """Compute the share of wrong levels, or the RMSE, of each column."""
    errors = []
    for place, name in enumerate(table.columns):
        cells = table[[name]], filled[[name]], hidden[:, [place]]
        if table[name].dtype == "category":
            errors.append(false_classification_rate(*cells))
        else:
            errors.append(imputation_rmse(*cells, scale=table[name].std()))
    return np.array(errors)


def show_probabilities(imputer, given, truth):
    """Print the probabilities of the levels of hidden cells, whose truth is given."""
    found = imputer.category_probabilities(given.loc[truth.index])[truth.name]
    print(f"{truth.name} of the first {len(truth)} adults for whom it is hidden:")
    print(found.round(2).assign(truth=truth).to_string(index=False), "\n")


def show_shares(truth, filled, draws):
    """Print the shares of levels in hidden cells: true, filled in, and drawn."""
    rows = truth.index
    true, filled, *drawn = (
        cells[rows].value_counts(normalize=True, sort=False)
        for cells in (truth, filled, *draws)
    )
    drawn = np.array(drawn)
    # variance of the share of a level in independent rows
    pooled = pool(drawn, drawn * (1 - drawn) / len(rows))
    shares = {
        "truth": true,
        "most probable": filled,
        f"{len(draws)} draws, pooled": pooled.estimate,
        "their standard error": pooled.standard_error,
    }
    print(f"Shares of levels in all {len(rows)} hidden cells of {truth.name}:")
    print(pd.DataFrame(shares).T.round(3).to_string())
    print("Use means and most probable levels to predict, draws to estimate shares.\n")


def show_errors(columns, results, means):
    """Print the errors of methods by column, means over columns, and seconds.

    Parameters
    ----------
    columns : sequence of str
    results : list of tuple
        Name, errors (n_columns,) and seconds of each method.
    means : dict of str to ndarray of bool, of shape (n_columns,)
        The columns of each mean, by its label.
    """
    print(" " * 18 + "".join(f"{name:>20}" for name, *_ in results))
    lines = [(name, [e[j] for _, e, _ in results]) for j, name in enumerate(columns)]
    for label, some in means.items():
        lines.append((label, [errors[some].mean() for _, errors, _ in results]))
    for label, cells in lines:
        print(f"{label:18}" + "".join(f"{cell:20.3f}" for cell in cells))
    times = "".join(f"{seconds:20.1f}" for *_, seconds in results)
    print(f"{'seconds':18}{times}\n")


def learn_graph(table, picture):
    """Learn and draw the graph of all columns, and print its tables."""
    print("Which columns depend on which, given all others? A copula graph of all")
    start = time.perf_counter()
    learner = CopulaGraphLearnerCV(random_state=0)
    with threadpool_limits(1), quiet():
        learner.fit(table)
    edges = learner.edges().drop(columns="probability")
    pairs = table.shape[1] * (table.shape[1] - 1) // 2
    seconds = time.perf_counter() - start
    print(
        f"{table.shape[1]} columns has {len(edges)} of {pairs} edges ({seconds:.0f} s)."
    )
    print("association: partial correlation, of columns with three levels and more")
    print(
        f"without a sign; halves: share of {N_HALVES} halves of the rows that have the"
    )
    print("edge; mean-filled: GraphicalLassoCV after filling means and most frequent")
    print("levels, on codes of levels, whose order is arbitrary in nominal columns.\n")
    filled = mean_filled_graph(table)
    strongest = edges.head(N_STRONGEST).assign(
        halves=at_edges(edge_shares(table, learner), edges.head(N_STRONGEST), table),
        mean_filled=at_edges(filled, edges.head(N_STRONGEST), table),
    )
    print(f"The strongest {N_STRONGEST} edges:")
    print(strongest.round(2).to_string(index=False))
    n_other = np.count_nonzero(np.triu(filled, 1))
    print(f"The mean-filled graph keeps {n_other} of {pairs} edges.\n")
    show_scores(table, learner.alpha_)
    figure = GraphDisplay.from_estimator(learner, max_edges=N_DRAWN).figure_
    figure.set_size_inches(5.6, 5.6)  # names stay legible in a column of a page
    figure.savefig(picture, dpi=200)
    print(f"The strongest {N_DRAWN} edges are drawn in {picture}.")


def at_edges(matrix, edges, table):
    """Look up the entries of a matrix (n_columns, n_columns) at edges."""
    places = table.columns.get_indexer
    return matrix[places(edges["source"]), places(edges["target"])]


def edge_shares(table, learner):
    """Compute the share of random halves of the rows whose graph has each edge.

    The penalty grows as random associations of half of the rows do.
    """
    rng = np.random.default_rng(0)
    # no check of predictions: the fit to all rows has made it
    half = CopulaGraphLearner(
        alpha=learner.alpha_ * 2**0.5, on_misfit="ignore", random_state=0
    )
    chosen = [rng.choice(len(table), len(table) // 2, False) for _ in range(N_HALVES)]
    graphs = Parallel(n_jobs=2)(
        delayed(edges_of)(half, table.iloc[rows]) for rows in chosen
    )
    return np.mean(graphs, axis=0)


def edges_of(learner, table):
    """Learn which pairs of columns have an edge; (n_columns, n_columns)."""
    with quiet():
        return clone(learner).fit(table).edge_strengths_ > 0


def show_scores(table, alpha):
    """Print log-densities of held-out rows: no edges, the graph, all edges."""
    train, test = train_test_split(table, test_size=0.25, random_state=0)
    models = {
        "independent columns (no edges)": CopulaGraphLearner(
            alpha=EMPTY, on_misfit="ignore", random_state=0
        ),
        f"the graph (alpha {alpha:.3f})": CopulaGraphLearner(
            alpha=alpha, on_misfit="ignore", random_state=0
        ),
        "GaussianImputer (all edges)": GaussianImputer(random_state=0),
    }
    print(f"Log-density of {len(test)} held-out rows (nats a row, larger is better;")
    print("in brackets the standard error of the difference from the graph):")
    with threadpool_limits(1), quiet():
        scores = [model.fit(train).score_samples(test) for model in models.values()]
    for name, score in zip(models, scores, strict=True):
        error = (score - scores[1]).std() / len(test) ** 0.5
        print(f"  {name:32}{score.mean():9.2f}  ({error:.2f})")
    print()


def mean_filled_graph(table):
    """Fill means and most frequent levels, standardise, and use the graphical lasso.

    Its default path of penalties is too ill-conditioned for some tables; then a path
    that does not reach zero is used.
    """
    codes = with_codes(table)
    for lasso in (
        GraphicalLassoCV(),
        GraphicalLassoCV(alphas=np.logspace(-1.5, 0, 12)),
    ):
        pipeline = make_pipeline(simple_fill(table), StandardScaler(), lasso)
        try:
            with threadpool_limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                precision = pipeline.fit(codes)[-1].precision_
            break
        except FloatingPointError as error:
            print(f"GraphicalLassoCV() fails on the mean-filled table: {error}")
            print("Its alphas are therefore taken from 0.03 to 1.\n")
    scale = np.sqrt(np.diag(precision))
    return -precision / np.outer(scale, scale)


def main(picture="nhanes_graph.png"):
    """Run the job and print its tables."""
    table = load_nhanes(as_frame=True, categories=True).data
    impute_survey(table)
    learn_graph(table, picture)


if __name__ == "__main__":
    main(*sys.argv[1:2])
