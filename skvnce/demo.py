"""Demonstration on bundled data: ``python -m skvnce.demo [picture.png]``.

It imputes a survey of US adults with missing values, 19 measurements and 6 columns of
categories, and learns a graph of all of them.  Errors are those at cells that were
hidden on purpose.
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from threadpoolctl import threadpool_limits

from skvnce import CopulaGraphLearnerCV, TableImputer
from skvnce.datasets import load_nhanes
from skvnce.exceptions import MisfitWarning, TableWarning
from skvnce.inspection import GraphDisplay
from skvnce.metrics import false_classification_rate, imputation_rmse
from skvnce.missingness import hide, mcar

N_STRONGEST, N_DRAWN = 20, 40  # edges that are printed, and drawn


def impute_survey(table):
    """Impute numbers and categories, and print errors by column."""
    is_category = np.array(table.dtypes == "category")
    print(
        f"{len(table)} adults, {table.shape[1]} columns, {is_category.sum()} of them "
        "categories; a tenth of the observed cells is hidden.\n"
    )
    hidden = mcar(table, 0.1, random_state=0)
    incomplete = hide(table, hidden)
    imputer = TableImputer(random_state=0).set_output(transform="pandas")
    fills = {**rival_fills(incomplete), "TableImputer": fill(imputer, incomplete)}
    errors = {
        name: survey_errors(table, filled, hidden)
        for name, (filled, _) in fills.items()
    }
    frame = pd.DataFrame(errors, index=table.columns)
    frame.loc["mean of numbers"] = frame[: len(is_category)][~is_category].mean()
    frame.loc["of categories"] = frame[: len(is_category)][is_category].mean()
    frame.loc["seconds"] = [seconds for _, seconds in fills.values()]
    print("Errors on the hidden cells (of categories the share of wrong levels, of")
    print("numbers the RMSE in standard deviations):")
    print(frame.round(3).to_string())
    for name in list(errors)[:-1]:
        is_worse = errors["TableImputer"] > errors[name]
        worse = ", ".join(table.columns[is_worse]) or "no column"
        print(f"TableImputer is worse than {name} in {worse}.")


def fill(imputer, table):
    """Fill a table, and measure the seconds."""
    start = time.perf_counter()
    # several threads are many times slower than one on busy cores
    with threadpool_limits(1):
        filled = imputer.fit_transform(table)
    return filled, time.perf_counter() - start


def rival_fills(table):
    """Fill a table, in which categories come last, by imputers of codes of levels."""
    codes = table.copy()
    categories = list(table.select_dtypes("category"))
    for name in categories:
        codes[name] = table[name].cat.codes.where(table[name].notna())
    simple = make_column_transformer(
        (SimpleImputer(), list(table.columns.drop(categories))),
        (SimpleImputer(strategy="most_frequent"), categories),
    )
    rivals = {
        "mean, most frequent": simple,
        "IterativeImputer": IterativeImputer(random_state=0),
    }
    fills = {name: fill(rival, codes) for name, rival in rivals.items()}
    return {name: (as_levels(cells, table), t) for name, (cells, t) in fills.items()}


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


def learn_graph(table, picture):
    """Learn the graph of all columns, print its strongest edges, and draw it."""
    print("\nWhich columns depend on which, given all others? A copula graph of all")
    with threadpool_limits(1):
        learner = CopulaGraphLearnerCV(random_state=0).fit(table)
    edges = learner.edges().drop(columns="probability")
    pairs = table.shape[1] * (table.shape[1] - 1) // 2
    print(
        f"{table.shape[1]} columns has {len(edges)} of {pairs} edges. Associations are"
    )
    print("partial correlations, of columns with three levels and more without a sign.")
    print(edges.head(N_STRONGEST).round(2).to_string(index=False))
    figure = GraphDisplay.from_estimator(learner, max_edges=N_DRAWN).figure_
    figure.set_size_inches(5.6, 5.6)  # names stay legible in a column of a page
    figure.savefig(picture, dpi=200)
    print(f"The strongest {N_DRAWN} edges are drawn in {picture}.")


def main(picture="nhanes_graph.png"):
    """Run the job and print its tables."""
    table = load_nhanes(as_frame=True, categories=True).data
    with warnings.catch_warnings():
        # a hormone was measured in one cycle of the survey, and is filled in both
        for kind in (ConvergenceWarning, MisfitWarning, TableWarning):
            warnings.simplefilter("ignore", kind)
        impute_survey(table)
        learn_graph(table, picture)


if __name__ == "__main__":
    main(*sys.argv[1:2])
