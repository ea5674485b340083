"""Demonstration on bundled data: ``python -m skvnce.demo [picture.png]``.

It learns a graph of 19 measurements of US adults from a table with missing values, and
measures how well the same model imputes cells that were hidden on purpose.
"""

import sys
import time
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.covariance import GraphicalLassoCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skvnce import TruncatedGaussianGraphLearner
from skvnce.datasets import load_nhanes
from skvnce.exceptions import MisfitWarning
from skvnce.inspection import GraphDisplay
from skvnce.metrics import imputation_rmse
from skvnce.missingness import hide, mcar

ALPHAS = [0.05, 0.1, 0.2, 0.4, 0.8]


def choose_alpha(table):
    """Choose alpha by the score of held-out rows."""
    search = GridSearchCV(
        TruncatedGaussianGraphLearner(random_state=0),
        {"alpha": ALPHAS},
        cv=3,
        n_jobs=2,
    )
    with warnings.catch_warnings():  # the final fit repeats relevant warnings
        warnings.simplefilter("ignore", MisfitWarning)
        return search.fit(table)


def mean_filled_graph(table):
    """Use the common procedure: fill means, standardise, graphical lasso.

    Its default path of penalties is too ill-conditioned for some tables; then a path
    that does not reach zero is used.
    """
    for lasso in (
        GraphicalLassoCV(),
        GraphicalLassoCV(alphas=np.logspace(-1.5, 0, 12)),
    ):
        pipeline = make_pipeline(SimpleImputer(), StandardScaler(), lasso)
        try:
            with threadpool_limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                precision = pipeline.fit(table)[-1].precision_
            break
        except FloatingPointError as error:
            print(f"GraphicalLassoCV() fails on the mean-filled table: {error}")
            print("Its alphas are therefore taken from 0.03 to 1.\n")
    scale = np.sqrt(np.diag(precision))
    return -precision / np.outer(scale, scale)


def hidden_cell_errors(table, hidden, alpha):
    """Fill the hidden cells by three methods."""
    scale = table.std().to_numpy()
    methods = {
        "mean": SimpleImputer(),
        "IterativeImputer": IterativeImputer(random_state=0),
        "this graph": TruncatedGaussianGraphLearner(alpha=alpha, random_state=0),
    }
    truth = table.where(hidden, 0.0)  # only hidden cells are compared
    for name, imputer in methods.items():
        start = time.perf_counter()
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", MisfitWarning)
            filled = imputer.fit_transform(hide(table, hidden))
        seconds = time.perf_counter() - start
        rmse = [
            imputation_rmse(
                truth.to_numpy()[:, [j]],
                filled[:, [j]],
                hidden[:, [j]],
                scale=scale[[j]],
            )
            for j in range(table.shape[1])
        ]
        yield name, np.array(rmse), seconds


def main(picture="nhanes_graph.png"):
    """Run the job and print its tables."""
    table = load_nhanes(as_frame=True).data
    print(f"{len(table)} adults, {table.shape[1]} measurements,", end=" ")
    print(f"{table.isna().to_numpy().mean():.0%} of the cells missing.\n")

    hidden = mcar(table, 0.1, random_state=0)  # hidden from all methods and the search
    start = time.perf_counter()
    search = choose_alpha(hide(table, hidden))
    print("Held-out score of rows (nats a row) by alpha, 3 folds:")
    for alpha, score in zip(ALPHAS, search.cv_results_["mean_test_score"], strict=True):
        chosen = "  <- chosen" if alpha == search.best_params_["alpha"] else ""
        print(f"  alpha {alpha:<5g} {score:9.3f}{chosen}")
    seconds = time.perf_counter() - start
    print(f"{3 * len(ALPHAS) + 1} fits and scores in {seconds:.0f} s.\n")

    with warnings.catch_warnings(record=True) as announced:
        warnings.simplefilter("always", MisfitWarning)
        learner = clone(search.best_estimator_).fit(table)
    edges = learner.edges()
    filled = mean_filled_graph(table)
    place = {name: i for i, name in enumerate(table.columns)}
    edges["mean-filled glasso"] = [
        filled[place[source], place[target]]
        for source, target in zip(edges["source"], edges["target"], strict=True)
    ]
    n_other = np.count_nonzero(np.triu(filled, 1))
    print(f"{len(edges)} edges (positive: rise together given all others); mean-filled")
    n_pairs = len(filled) * (len(filled) - 1) // 2
    print(f"GraphicalLassoCV keeps {n_other} of {n_pairs}:")
    print(edges.drop(columns="precision").round(3).to_string(index=False), "\n")

    for warning in announced:
        print(f"{warning.category.__name__}: {warning.message}\n")

    print(
        "Error on a further tenth of the cells, hidden (RMSE in standard deviations):"
    )
    results = list(hidden_cell_errors(table, hidden, learner.alpha))
    header = "".join(f"{name[:16]:>18}" for name, *_ in results)
    print(f"{'':18}{header}")
    for j, column in enumerate(table.columns):
        print(f"{column:18}" + "".join(f"{rmse[j]:18.3f}" for _, rmse, _ in results))
    for label, cells in (
        ("mean of columns", [f"{rmse.mean():.3f}" for _, rmse, _ in results]),
        ("seconds", [f"{seconds:.1f}" for *_, seconds in results]),
    ):
        print(f"{label:18}" + "".join(f"{cell:>18}" for cell in cells))

    GraphDisplay.from_estimator(learner).figure_.savefig(picture, dpi=150)
    print(f"\nThe graph is drawn in {picture}.")


if __name__ == "__main__":
    main(*sys.argv[1:2])
