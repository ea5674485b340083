"""Tables and masks of the comparison of imputers.

At most 2000 rows (a random subset); columns with one value in more than 90 % of the
rows dropped; the target of the prediction afterwards is set aside and never imputed;
70 % of the rows to learn from; columns are standardised by the complete
training rows, so that errors of all columns count alike.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from _data import bundled, load, load_array
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import balanced_accuracy_score, r2_score
from sklearn.model_selection import train_test_split

from skvnce import metrics
from skvnce.missingness import hide, mar, mcar, mnar

DRAWS = 100  # of every method that draws, for CRPS and coverage
FEW_DRAWS = 20  # of them, for the energy distance


def score_draws(data, draws):
    """Score draws, cell by cell and as rows."""
    truth, some = data.full[1], draws[:FEW_DRAWS]
    cells = truth, draws, data.hidden[1]
    return {
        "crps": metrics.crps(*cells),
        "coverage": metrics.coverage(*cells),
        "coverage, ties shared": metrics.coverage(*cells, ties="shared"),
        "energy": float(np.mean([metrics.energy_distance(truth, one) for one in some])),
    }


def score_filled(data, train, test):
    """Score filled unseen rows, and how well the target is predicted.

    It is learned from filled training rows, and predicted in the unseen ones.
    """
    if data.classes:
        models = {
            "linear": LogisticRegression(max_iter=1000),
            "trees": HistGradientBoostingClassifier(random_state=0, max_iter=50),
        }
    else:
        models = {
            "linear": RidgeCV(np.logspace(-2, 3, 6)),
            "trees": HistGradientBoostingRegressor(random_state=0, max_iter=50),
        }
    score = balanced_accuracy_score if data.classes else r2_score
    cells, (known, truth) = (data.full[1], test, data.hidden[1]), data.target
    found = {
        "rmse": metrics.imputation_rmse(*cells),
        "mae": metrics.imputation_mae(*cells),
    }
    for name, model in models.items():
        found[name] = float(score(truth, model.fit(train, known).predict(test)))
    return found


ROWS = 2000
DRIVERS = 0.3  # share of the columns that MAR leaves complete
# change of the log-odds by a standard deviation of the score, or of the cell
STRENGTH = 1.0


class Split(NamedTuple):
    """One table under one mask: training and unseen rows."""

    full: tuple  # complete, (train, test)
    masked: tuple  # with NaN
    hidden: tuple  # True at the cells to score
    target: tuple
    classes: bool


def last_column(table):
    """Split a table off its last column."""
    table = np.asarray(table, dtype=float)
    return table[:, :-1], table[:, -1], False


TABLES = {
    "diabetes": lambda: (*bundled("diabetes"), False),
    "breast_cancer": lambda: (*bundled("breast_cancer"), True),
    "wine_red": lambda: last_column(load("wine_red")),
    "concrete": lambda: last_column(load("concrete")),
    "gas_turbine": lambda: last_column(load("gas_turbine")),
    "miniboone": lambda: last_column(load_array("miniboone", "train")),
    "digits": lambda: (*bundled("digits"), True),
}


def mar_half(X, seed):
    """Hide half of a column given a random sum of the columns that stay complete."""
    rng = np.random.default_rng(seed)
    columns = rng.permutation(X.shape[1])
    n_drivers = max(1, round(DRIVERS * len(columns)))
    drivers, others = columns[:n_drivers], columns[n_drivers:]
    scores = X[:, drivers] @ rng.normal(size=(n_drivers, len(others)))
    hidden = np.zeros(X.shape, dtype=bool)
    for j, score in zip(others, scores.T, strict=True):
        pair = np.column_stack([score, X[:, j]])
        masked = mar(pair, 0.5, drivers=[0], strength=STRENGTH, random_state=rng)
        hidden[:, j] = masked[:, 1]
    return hidden


MECHANISMS = {
    "MCAR 10": lambda X, seed: mcar(X, 0.1, random_state=seed),
    "MCAR 30": lambda X, seed: mcar(X, 0.3, random_state=seed),
    "MCAR 50": lambda X, seed: mcar(X, 0.5, random_state=seed),
    "MCAR 70": lambda X, seed: mcar(X, 0.7, random_state=seed),
    "MAR 50": mar_half,
    "MNAR 50": lambda X, seed: mnar(X, 0.5, strength=STRENGTH, random_state=seed),
}


@cache
def complete_table(name):
    """Load a table and choose its rows and columns."""
    X, target, classes = TABLES[name]()
    some = np.sort(np.random.default_rng(0).permutation(len(X))[:ROWS])
    X, target = X[some], target[some]
    commonest = [np.unique(column, return_counts=True)[1].max() for column in X.T]
    return X[:, np.array(commonest) <= 0.9 * len(X)], target, classes


def split(name, mechanism, seed):
    """Split, scale and mask a table; the seed decides both split and mask."""
    X, target, classes = complete_table(name)
    rows = train_test_split(np.arange(len(X)), test_size=0.3, random_state=seed)
    X = (X - X[rows[0]].mean(0)) / X[rows[0]].std(0)
    hidden = MECHANISMS[mechanism](X, seed)
    parts = [tuple(part[i] for i in rows) for part in (X, hide(X, hidden), hidden)]
    return Split(*parts, tuple(target[i] for i in rows), classes)
