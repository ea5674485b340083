"""Scores of the comparison of imputers: cells, draws, and predictions made after."""

import numpy as np
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import balanced_accuracy_score, r2_score

from skvnce.metrics import (
    coverage,
    crps,
    energy_distance,
    imputation_mae,
    imputation_rmse,
)

DRAWS = 100  # of every method that draws, for CRPS and coverage
FEW_DRAWS = 20  # of them, for the energy distance


def score_points(data, filled):
    """Score one filled table."""
    cells = data.full[1], filled, data.hidden[1]
    return {"rmse": imputation_rmse(*cells), "mae": imputation_mae(*cells)}


def score_draws(data, draws):
    """Score draws, cell by cell and as rows."""
    cells = data.full[1], draws, data.hidden[1]
    distances = [energy_distance(data.full[1], one) for one in draws[:FEW_DRAWS]]
    return {
        "crps": crps(*cells),
        "coverage": coverage(*cells),
        "coverage, ties shared": coverage(*cells, ties="shared"),
        "energy": float(np.mean(distances)),
    }


def score_predictions(data, train, test):
    """Learn the target from filled training rows, predict it in filled unseen rows."""
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
    return {
        name: float(
            score(data.target[1], model.fit(train, data.target[0]).predict(test))
        )
        for name, model in models.items()
    }
