"""Scores of two published protocols, and proper ones beside them, for `protocols.py`.

Errors of protocol A are absolute, of columns scaled by the range of the true table;
those of three levels and more are 0 or 1 (half the sum over their columns of zeros and
ones).
"""

from typing import NamedTuple

import numpy as np
from protocol_tables import dummies
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from skvnce import metrics

IMPUTATIONS = 5  # of protocol A
ENOUGH = 20  # draws for intervals of 90 %
MANY = 2000  # rows: of larger tables some, or none, are compared as samples


class Answer(NamedTuple):
    """What a method fills in.

    Attributes
    ----------
    points : list of ndarray, or None
        One filled table a part; None means the mean of the draws.
    draws : list of ndarray of shape (m, n, d), or None
    seconds : float
        Of CPU.
    notes : dict
        What a record of the results keeps besides.
    """

    points: list | None
    draws: list | None
    seconds: float
    notes: dict = {}


def scaled(x, full, nominal):
    """Scale tables (..., d) by the true table, half of a dummy column a level."""
    counts = {j: int(full[:, j].max()) + 1 for j in nominal}
    low, span = full.min(0), np.ptp(full, axis=0)
    few = [j for j in nominal if counts[j] > 2]
    low[few], span[few] = 0, 1
    found = dummies((x - low) / np.where(span > 0, span, 1), few, counts)
    widths = [counts[j] if j in few else 1 for j in range(full.shape[1])]
    halves = [0.5 if j in few else 1.0 for j in range(full.shape[1])]
    return found * np.repeat(halves, widths)


def row_errors(tables, full, nominal):
    """Return the L1 error of each row of completed tables (m, n, d)."""
    truth = scaled(full, full, nominal)
    return np.abs(scaled(tables, full, nominal) - truth).sum(-1)


def min_mae(tables, full, hidden, nominal=()):
    """Sum the smallest error of each row, over the number of hidden cells."""
    return float(row_errors(tables, full, nominal).min(0).sum() / hidden.sum())


def avg_mae(tables, full, hidden, nominal=()):
    """Average the errors of the tables, over the number of hidden cells."""
    return float(row_errors(tables, full, nominal).sum(1).mean() / hidden.sum())


def wasserstein(first, second):
    """Compute the 1-Wasserstein distance, L1, of two samples of the same size."""
    cost = cdist(first, second, "cityblock")
    return float(cost[linear_sum_assignment(cost)].mean())


def score_a(case, answer):
    """Score the rows to learn from by protocol A."""
    (full,), (hidden,), nominal = case.full, case.hidden, case.nominal
    points = None if answer.points is None else answer.points[0]
    draws = None if answer.draws is None else answer.draws[0]
    five = points[None] if draws is None else draws[:IMPUTATIONS]
    ones = five if points is None else points[None]
    found = {
        "min_mae": min_mae(five, full, hidden, nominal),
        "avg_mae": avg_mae(ones, full, hidden, nominal),
        "rmse": rmse(draws.mean(0) if points is None else points, full, hidden),
    } | of_samples(five, full, nominal)
    if draws is not None:
        middle = np.where(hidden, np.median(draws, 0), full)
        found["avg_mae_draws"] = avg_mae(five, full, hidden, nominal)
        found["mae_median"] = avg_mae(middle[None], full, hidden, nominal)
        found |= of_draws(draws, full, hidden)
    return found


def rmse(filled, full, hidden):
    """Compute the RMSE of cells, in ranges of the columns."""
    span = np.ptp(full, axis=0)
    scale = np.where(span > 0, span, 1)
    return metrics.imputation_rmse(full, filled, hidden, scale=scale)


def of_draws(draws, full, hidden):
    """Score draws cell by cell; columns of categories are complete in protocol A."""
    span = np.ptp(full, axis=0)
    scale = np.where(span > 0, span, 1)
    found = {"crps": metrics.crps(full, draws, hidden, scale=scale)}
    if len(draws) >= ENOUGH:
        found["coverage"] = metrics.coverage(full, draws, hidden, ties="shared")
    return found


def of_samples(tables, full, nominal):
    """Compare completed tables with the true rows, as samples."""
    truth = scaled(full, full, nominal)
    some = np.random.default_rng(0).permutation(len(full))[:MANY]
    tables = [scaled(table[some], full, nominal) for table in tables]
    pairs = [(truth[some], table) for table in tables]
    found = {"energy": float(np.mean([metrics.energy_distance(*p) for p in pairs]))}
    if len(full) <= MANY:
        found["w_train"] = float(np.mean([wasserstein(*p) for p in pairs]))
    return found


def score_b(case, answer):
    """Score the rows to learn from ("in") and the others ("out") by protocol B."""
    found = {}
    for i, part in enumerate(("in", "out")):
        draws = None if answer.draws is None else answer.draws[i]
        points = draws.mean(0) if answer.points is None else answer.points[i]
        cells = case.full[i], points, case.hidden[i]
        found[f"mae_{part}"] = metrics.imputation_mae(*cells)
        found[f"rmse_{part}"] = metrics.imputation_rmse(*cells)
    return found


SCORERS = {"A": score_a, "B": score_b}
