"""Prediction with missing values: several draws, one filled table, raw NaN.

    python benchmarks/prediction.py [--results FILE] [--only-report] [--quick]
        [--only table=diabetes seed=0] [--output doc/benchmarks/prediction.md]

Half of the cells are hidden in training rows and in new rows, completely at random
(MCAR), or in 70 % of the columns by the others (MAR); tables and masks are those of
`imputation_tables`.  One `GaussianImputer` is fitted to the training rows for all ways
to predict.  The models are RidgeCV or LogisticRegression after a StandardScaler, and
histogram gradient boosting of 60 rounds.  Intervals of 90 % are those of
`MultipleImputationRegressor` with 5 folds; those of one table are the prediction and
quantiles of its residuals in 5 folds.  Rows with more missing cells than others are
counted apart.  Each result is a line of FILE; those that are there are not computed
again.
"""

import time
from functools import lru_cache, partial
from itertools import product

import numpy as np
from _report import Texts, average, by, geometric_mean, lines, table
from _runner import main_of
from imputation_tables import TABLES, split
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvnce import (
    GaussianImputer,
    MultipleImputationClassifier,
    MultipleImputationRegressor,
)
from skvnce.metrics import expected_calibration_error

TEXTS = Texts("prediction", globals())

MODELS = "linear", "trees"
COMPLETE, RAW, FILLED = "complete data", "raw NaN", "one filled table"
ONE, DRAWS = "one draw", "several draws"
WAYS = COMPLETE, RAW, FILLED, ONE, DRAWS
BY_ROW = "several draws, by missing cells of the row"
QUARTERS = "up to 1/4", "1/4 to 1/2", "1/2 to 3/4", "more"
ERRORS = {True: "log-loss", False: "RMSE"}


def comparison(results, ours, rivals):
    """Compare a way with others, by models and targets."""
    rows = []
    for model, classes, other in product(MODELS, ERRORS, rivals):
        draws, others = (
            {
                (r["table"], r["mechanism"], r["seed"]): r["error"]
                for r in results.of(model=model, classes=classes, way=way)
            }
            for way in (ours, other)
        )
        ratios = [draws[cell] / others[cell] for cell in draws if cell in others]
        if ratios:
            lower = f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)}"
            mean = f"{geometric_mean(ratios):.3f}"
            rows.append([model, ERRORS[classes], other, mean, lower])
    header = ["model", "error", f"{ours} against", "ratio", "smaller in"]
    return table(header, rows)


def detail(results, classes, names):
    """Write the scores of each table, averaged over the splits."""
    groups = by(results.of(classes=classes), "table", "mechanism", "model", "way")
    columns = {name: partial(average, score=score) for score, name in names.items()}
    columns["CPU, s"] = partial(average, score="seconds", digits=1)
    return lines(groups.items(), columns, "table", "missing", "model", "from")


def values(results, options):
    """Return what the page names besides."""
    numbers = {"error": "RMSE", "coverage": "coverage", "length": "length"}
    classes = {"error": "log-loss", "brier": "Brier", "ece": "ECE"}
    return {
        "n_seeds": len({r["seed"] for r in results.records}),
        "of_draws": comparison(results, DRAWS, WAYS[:-1]),
        "of_filling": comparison(results, FILLED, (COMPLETE, RAW)),
        "of_classes": detail(results, True, classes),
        "of_numbers": detail(results, False, numbers),
    }


def calibration(results):
    """Average scores of probabilities over tables and splits."""
    scores = {"log-loss": "error", "Brier": "brier", "ECE": "ece"}
    columns = {name: partial(average, score=score) for name, score in scores.items()}
    groups = by(results.of(classes=True), "model", "way").items()
    return lines(groups, columns, "model", "from")


def intervals(results):
    """Average coverage and length of intervals over tables and splits."""

    def ends(some):
        shares = [record["coverage"] for record in some]
        return f"{min(shares):.3f} to {max(shares):.3f}"

    columns = {"coverage": partial(average, score="coverage"), "in single cells": ends}
    columns["length"] = partial(average, score="length", digits=2)
    groups = by(results.of(classes=False), "model", "way").items()
    return lines(groups, columns, "model", "from")


def by_row(results):
    """Sum what intervals cover over tables and splits, by missing cells of the row."""
    rows = []
    for (model,), some in by(results.of(way=BY_ROW), "model").items():
        totals = {
            name: np.sum([record[name] for record in some], axis=0)
            for name in ("counts", "covered", "lengths")
        }
        for place, quarter in enumerate(QUARTERS):
            count, covered, length = (total[place] for total in totals.values())
            if count:
                shares = f"{covered / count:.3f}", f"{length / count:.2f}"
                rows.append([model, quarter, int(count), *shares])
    return table(
        ["model", "missing cells of the row", "rows", "coverage", "length"], rows
    )


MECHANISMS = "MCAR 50", "MAR 50"
LEVEL, FOLDS = 0.9, 5
LINEAR, TREES = MODELS


def model_of(name, classes, seed):
    """Make a model that predicts from a complete table."""
    if name == TREES and classes:
        return HistGradientBoostingClassifier(max_iter=60, random_state=seed)
    if name == TREES:
        return HistGradientBoostingRegressor(max_iter=60, random_state=seed)
    alphas = np.logspace(-2, 4, 13)
    last = LogisticRegression(max_iter=500) if classes else RidgeCV(alphas)
    return make_pipeline(StandardScaler(), last)


def tables_of(way, data, imputer):
    """Return the training rows and the new rows that a way predicts from."""
    if way == COMPLETE:
        return data.full
    if way == FILLED:
        return tuple(imputer.transform(part) for part in data.masked)
    return data.masked


def several(way, model, imputer, classes, seed):
    """Make the predictor that draws missing cells, once or several times."""
    given = {"random_state": seed}
    if way == ONE:
        given |= {"n_estimators": 1, "n_draws": 1}
    if classes:
        make = MultipleImputationClassifier
    else:
        make, given = MultipleImputationRegressor, given | {"cv": FOLDS}
    return make(FrozenEstimator(imputer), model, **given)


def predicted(way, name, data, imputer, seed):
    """Fit one model in one way, and score it on new rows."""
    train, new = tables_of(way, data, imputer)
    y, target = data.target
    model = model_of(name, data.classes, seed)
    if way in (ONE, DRAWS):
        model = several(way, model, imputer, data.classes, seed)
    begin = time.process_time()
    model.fit(train, y)
    if data.classes:
        found = scores_of_classes(model.predict_proba(new), target, model.classes_)
    else:
        ends = interval(model, train, y, new, seed)
        found = scores_of_numbers(model.predict(new), target, ends)
    return found | {"seconds": round(time.process_time() - begin, 2)}


def interval(model, train, y, new, seed):
    """Compute intervals of new targets; residuals of folds if the model has none."""
    if hasattr(model, "interval"):
        return model.interval(new, LEVEL)
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    gaps = np.sort(y - cross_val_predict(clone(model), train, y, cv=folds))
    first = int((1 - LEVEL) / 2 * (len(gaps) + 1))
    return tuple(model.predict(new) + gaps[place] for place in (first - 1, -first))


def scores_of_classes(probabilities, target, classes):
    """Score probabilities of classes."""
    truth = target[:, None] == classes
    cells = target[:, None].astype(float), {0: probabilities}
    hidden = np.ones((len(target), 1), dtype=bool)
    ece = expected_calibration_error(*cells, hidden, categories={0: classes})
    return {
        "error": log_loss(target, probabilities, labels=classes),
        "brier": float(((probabilities - truth) ** 2).sum(1).mean()),
        "ece": float(ece),
    }


def scores_of_numbers(predicted, target, ends):
    """Score predictions of numbers, and intervals, in standard deviations."""
    lower, upper = ends
    return {
        "error": float(np.sqrt(np.mean((predicted - target) ** 2)) / target.std()),
        "coverage": float(((lower <= target) & (target <= upper)).mean()),
        "length": float((upper - lower).mean() / target.std()),
    }


def coverage_by_row(name, data, imputer, seed):
    """Count what intervals cover in rows with few and many missing cells."""
    y, target = data.target
    model = model_of(name, data.classes, seed)
    model = several(DRAWS, model, imputer, data.classes, seed).fit(data.masked[0], y)
    lower, upper = model.interval(data.masked[1], LEVEL)
    share = np.isnan(data.masked[1]).mean(1)
    place = np.searchsorted([0.25, 0.5, 0.75], share)
    values = {
        "counts": np.ones(len(target)),
        "covered": (lower <= target) & (target <= upper),
        "lengths": (upper - lower) / target.std(),
    }
    return {
        key: np.bincount(place, value, minlength=len(QUARTERS)).tolist()
        for key, value in values.items()
    }


@lru_cache(1)
def fitted(name, mechanism, seed):
    """Fit the imputer of all ways; a table, the imputer and the seconds."""
    data, begin = split(name, mechanism, seed), time.process_time()
    imputer = GaussianImputer(random_state=seed).fit(data.masked[0])
    imputer.sample(data.masked[0][:2])  # the first call draws the parameters
    return data, imputer, round(time.process_time() - begin, 2)


def measured(key, options):
    """Predict in one way, and score it."""
    seed = key["seed"]
    data, imputer, seconds = fitted(key["table"], key["mechanism"], seed)
    if key["way"] == BY_ROW:
        return coverage_by_row(key["model"], data, imputer, seed)
    kind = {"classes": bool(data.classes), "rows": len(data.target[0])}
    scores = predicted(key["way"], key["model"], data, imputer, seed)
    return kind | {"imputer": seconds} | scores


def possible(key):
    """Say whether a way is possible for a model and a table."""
    if key["way"] == BY_ROW:
        return key["table"] not in ("breast_cancer", "digits")
    return (key["model"], key["way"]) != (LINEAR, RAW)


CASES = {
    "seed": range(3),
    "table": TABLES,
    "mechanism": MECHANISMS,
    "model": MODELS,
    "way": [*WAYS, BY_ROW],
}
main = main_of(globals(), {"table": ["diabetes", "breast_cancer"], "seed": [0]})
