"""Filled cells of normal and lognormal columns whose missing cells depend on x."""

import numpy as np
import pytest
from scipy.special import ndtr

from skvnce import CopulaGraphLearner, GaussianImputer

RHO, SIZE, REPEATS = 0.7, 2000, 6
SPREAD = (1 - RHO**2) ** 0.5

CASES = {
    "graph, normal": (CopulaGraphLearner, np.asarray, np.asarray),
    "graph, lognormal": (CopulaGraphLearner, np.exp, np.log),
    "imputer, normal": (GaussianImputer, np.asarray, np.asarray),
}


def table(rng, to_cells):
    """Make columns x and y, complete and with cells missing with chance Phi(3 x)."""
    x, noise = rng.normal(size=(2, SIZE))
    full = np.column_stack([x, to_cells(RHO * x + SPREAD * noise)])
    hidden = rng.uniform(size=SIZE) < ndtr(3 * x)
    X = full.copy()
    X[hidden, 1] = np.nan
    return full, X, hidden


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_cells_and_intervals_are_right(case, seed):
    """Draws are within .1 conditional standard deviations, and intervals cover .9.

    The standard error of a mean of draws is .1 in one table, by extrapolation in x.
    """
    kind, to_cells, to_scores = case
    rng, shifts, covers = np.random.default_rng(seed), [], []
    for _ in range(REPEATS):
        full, X, hidden = table(rng, to_cells)
        model = kind(random_state=0).fit(X)
        draws = np.stack(model.sample(X, n_draws=10, random_state=0))[:, hidden, 1]
        truth = RHO * full[hidden, 0]
        scores = to_scores(np.maximum(draws, 1e-9) if to_cells is np.exp else draws)
        shifts.append((scores.mean(0) - truth).mean() / SPREAD)
        low, high = (end[hidden, 1] for end in model.interval(X, 0.9))
        y = full[hidden, 1]
        covers.append(((low <= y) & (y <= high)).mean())
    error = [np.std(one, ddof=1) / REPEATS**0.5 for one in (shifts, covers)]
    assert abs(np.mean(shifts)) < 0.1 + 3 * error[0]
    assert abs(np.mean(covers) - 0.9) < 0.02 + 3 * error[1] and np.mean(covers) > 0.87
