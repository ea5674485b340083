"""Scores of imputed mixed tables, for `mixed.py`."""

from typing import NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

FLOOR = 0.01  # of probabilities
FEWEST = 5  # hidden test cells of a column that is scored
BINS = 10
SCORES = "pfc", "log_loss", "brier", "rmse", "crps", "ece", "auc", "coverage"


class Answer(NamedTuple):
    """What a method says about the test rows.

    Attributes
    ----------
    points : ndarray of shape (n, d)
        Best guesses; codes of levels.
    probabilities : dict of int to ndarray of shape (n, n_levels), or None
        Of levels; None means the frequencies of the draws.
    draws : ndarray of shape (m, n, d)
    """

    points: np.ndarray
    probabilities: dict | None
    draws: np.ndarray


def score(case, answer):
    """Score the hidden cells of the test rows."""
    truth, hidden = case.full[1], case.hidden
    found = {name: [] for name in SCORES}
    tops = []
    for j, kind in enumerate(case.kinds):
        rows = hidden[:, j]
        if rows.sum() < FEWEST:
            continue
        x, draws = truth[rows, j], answer.draws[:, rows, j]
        if kind == "numeric":
            sd = np.nanstd(case.full[0][:, j])
            found["rmse"].append(
                np.sqrt(np.mean((answer.points[rows, j] - x) ** 2)) / sd
            )
            found["crps"].append(crps(x, draws) / sd)
            low, high = np.quantile(draws, [0.05, 0.95], axis=0)
            found["coverage"].append(np.mean((x >= low) & (x <= high)))
            continue
        codes, k = x.astype(int), len(case.levels[j])
        p = probabilities_of(answer, j, rows, k)
        found["pfc"].append(np.mean(answer.points[rows, j] != x))
        found["log_loss"].append(-np.log(p[np.arange(len(codes)), codes]).mean())
        found["brier"].append(((p - np.eye(k)[codes]) ** 2).sum(1).mean())
        tops.append((p.max(1), p.argmax(1) == codes))
    found = {name: float(np.mean(values)) for name, values in found.items() if values}
    found["ece"] = calibration_error(*map(np.concatenate, zip(*tops, strict=True)))
    found["auc"] = told_apart(case, answer)
    return found


def probabilities_of(answer, j, rows, k):
    """Return probabilities of levels, at least FLOOR, from frequencies if need be."""
    if answer.probabilities is not None:
        p = answer.probabilities[j][rows]
    else:
        drawn = answer.draws[:, rows, j].astype(int)
        p = (drawn[..., None] == np.arange(k)).mean(0)
    p = np.maximum(p, FLOOR)
    return p / p.sum(1, keepdims=True)


def crps(x, draws):
    """Compute the mean CRPS of draws (m, n) with the fair correction."""
    m = len(draws)
    ordered = np.sort(draws, 0)
    weights = 2 * np.arange(1, m + 1) - m - 1
    spread = (weights[:, None] * ordered).sum(0) / (m * max(m - 1, 1))
    return float((np.abs(draws - x).mean(0) - spread).mean())


def calibration_error(confidence, right):
    """Compute the expected calibration error of the top level."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    total = 0.0
    for b in range(BINS):
        some = place == b
        if some.any():
            total += abs(confidence[some].mean() - right[some].mean()) * some.mean()
    return float(total)


def told_apart(case, answer):
    """Compute the AUC with which trees tell true rows from rows completed by draws.

    Cells that are really missing stay missing in both.
    """
    truth, hidden = case.full[1], case.hidden
    rows = hidden.any(1)
    completed = np.where(hidden, answer.draws[0], truth)[rows]
    x = np.concatenate([truth[rows], completed])
    y = np.repeat([0, 1], rows.sum())
    groups = np.tile(np.arange(rows.sum()) % 5, 2)
    folds = [
        (np.flatnonzero(groups != f), np.flatnonzero(groups == f)) for f in range(5)
    ]
    model = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    p = cross_val_predict(model, x, y, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(y, p))
