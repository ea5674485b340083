"""Scores of imputed mixed tables, for `mixed.py`.

Good (1952) and Guo and others (2017) for log-loss and calibration error, Ferro (2014)
for the correction of the other two scores of frequencies of draws.
"""

import numpy as np
from _cases import frame_of

from skvnce import metrics

FLOOR = 0.01  # of probabilities, in the log-loss
BINS = 10  # of the probabilities of the most probable levels
FEWEST = 5  # hidden test cells of a column that is scored
SCORES = (
    *("pfc", "log_loss", "brier", "rps", "rmse", "crps", "ece", "auc"),
    "coverage",
)


def score(case, answer):
    """Score the hidden cells of the test rows: means over columns, but for ECE, AUC."""
    found = {name: [] for name in SCORES}
    scored = [j for j in range(len(case.kinds)) if case.hidden[1][:, j].sum() >= FEWEST]
    for j in scored:
        of_kind = of_numbers if case.kinds[j] == "numeric" else of_levels
        for name, value in of_kind(case, answer, j).items():
            found[name].append(value)
    found = {name: float(np.mean(values)) for name, values in found.items() if values}
    of_all = [j for j in scored if case.kinds[j] != "numeric"]
    if of_all:
        found["ece"] = calibration_error(
            [hidden_levels(case, answer, j) for j in of_all]
        )
    return found | {"auc": area_under_curve(case, answer)}


def of_numbers(case, answer, j):
    """Score a column of numbers, in its standard deviations."""
    truth, hidden = case.full[1][:, [j]], case.hidden[1][:, [j]]
    draws, sd = answer.draws[..., [j]], np.nanstd(case.full[0][:, j])
    return {
        "rmse": metrics.imputation_rmse(truth, answer.points[:, [j]], hidden, scale=sd),
        "crps": metrics.crps(truth, draws, hidden, scale=sd),
        "coverage": metrics.coverage(truth, draws, hidden, ties="shared"),
    }


def of_levels(case, answer, j):
    """Score a column of levels."""
    p, codes = hidden_levels(case, answer, j)
    n_draws = len(answer.draws) if answer.probabilities is None else None
    points = answer.points[case.hidden[1][:, j], j]
    found = {
        "pfc": float(np.mean(points != codes)),
        "log_loss": log_loss(p, codes),
        "brier": fair(p, np.eye(p.shape[1])[codes], n_draws),
    }
    if case.kinds[j] == "ordinal":
        found["rps"] = ranked_probability_score(p, codes, n_draws)
    return found


def hidden_levels(case, answer, j):
    """Return probabilities (n_hidden, n_levels) and codes of the hidden cells."""
    hidden = case.hidden[1][:, j]
    return probabilities_of(case, answer, j)[hidden], case.full[1][hidden, j].astype(
        int
    )


def log_loss(p, codes):
    """Compute the mean log-loss in nats, with probabilities of at least `FLOOR`."""
    p = np.maximum(p, FLOOR)
    return float(np.mean(np.log(p.sum(1)) - np.log(p[np.arange(len(p)), codes])))


def ranked_probability_score(p, codes, n_draws=None):
    """Compute the mean squared error of sums over the first levels, except over all."""
    sums = (one.cumsum(1)[:, :-1] for one in (p, np.eye(p.shape[1])[codes]))
    return fair(*sums, n_draws)


def fair(p, y, n_draws=None):
    """Compute mean squared errors, less their variance if p are shares of draws."""
    squares = ((p - y) ** 2).sum(1)
    if n_draws is not None:
        squares = squares - (p * (1 - p)).sum(1) / (n_draws - 1)
    return float(squares.mean())


def calibration_error(columns):
    """Compute the ECE of the most probable levels of cells, pairs of p and codes."""
    tops = np.concatenate([p.max(1) for p, _ in columns])
    hits = []
    for p, codes in columns:
        is_top = p == p.max(1)[:, None]
        hits.append(is_top[np.arange(len(p)), codes] / is_top.sum(1))
    # rounded, so that a probability at the end of a bin stays in it
    bins = np.ceil(np.round(tops * BINS, 9)).astype(int)
    gaps = np.bincount(bins, np.concatenate(hits) - tops)
    return float(np.abs(gaps).sum() / len(tops))


def probabilities_of(case, answer, j):
    """Return probabilities of levels, from frequencies of draws if need be."""
    if answer.probabilities is not None:
        return answer.probabilities[j]
    return (answer.draws[..., j, None] == np.arange(case.levels[j])).mean(0)


def area_under_curve(case, answer):
    """Compute the AUC with which trees tell true rows from rows completed by a draw.

    Cells that are really missing stay missing in both.
    """
    truth, hidden = case.full[1], case.hidden[1]
    completed = np.where(hidden, answer.draws[0], truth)
    pair = [frame_of(case, x) for x in (truth, completed)]
    return metrics.two_sample_auc(*pair, hidden, random_state=0)
