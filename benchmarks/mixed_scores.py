"""Scores of imputed mixed tables by `skvnce.metrics`, for `mixed.py`."""

import numpy as np
from _cases import frame_of
from _report import specs

from skvnce import metrics

FLOOR = 0.01  # of probabilities, in the log-loss
FEWEST = 5  # hidden test cells of a column that is scored
*SCORES, _ = specs("mixed")["names"]  # and seconds


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
        probabilities = {j: probabilities_of(case, answer, j) for j in of_all}
        categories = {j: range(case.levels[j]) for j in of_all}
        found["ece"] = metrics.expected_calibration_error(
            case.full[1], probabilities, case.hidden[1], categories=categories
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
    truth, hidden = case.full[1][:, [j]], case.hidden[1][:, [j]]
    p = {0: probabilities_of(case, answer, j)}
    options = {"categories": {0: range(case.levels[j])}}
    loss = metrics.category_log_loss(truth, p, hidden, floor=FLOOR, **options)
    if answer.probabilities is None:
        options["n_draws"] = len(answer.draws)
    found = {
        "pfc": metrics.false_classification_rate(
            truth, answer.points[:, [j]], hidden, columns=[0]
        ),
        "log_loss": loss,
        "brier": metrics.brier_score(truth, p, hidden, **options),
    }
    if case.kinds[j] == "ordinal":
        options["columns"] = [0]
        found["rps"] = metrics.ranked_probability_score(truth, p, hidden, **options)
    return found


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
