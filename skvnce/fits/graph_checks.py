"""Checks of a fitted graph learner: the limits of its model, and its predictions."""

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from skvnce._incomplete import Incomplete
from skvnce._keyed import row_keyed
from skvnce._warnings import warn_user
from skvnce.algorithms.graph import em, prediction, rounds
from skvnce.fitted.held_out_check import MOST_LISTED

WIDEST = 0.9  # largest standard deviation over mean of columns that the model suits
LARGEST_CUT = 0.5  # share by which an edge may shrink without a warning
_SLUGGISH = 0.8  # autocorrelation of chains above which more rounds are needed
_INEXACT = 1e-3  # gap, relative to the loss, above which the last M-step is inexact
_ROUNDS = 6  # maximum number of rounds of EM without the held-out cells
_INFLUENCE = 0.25  # share of the influence of held-out cells that may remain
_BURN_IN, _STEPS = 1, 6  # sweeps that predict held-out cells, after those of the rounds
REMEDY = (
    "GaussianImputer may fill missing cells better; logarithms of skewed columns may "
    "help."
)


def remedy(algorithm, ridge):
    """Say what to change if a fit diverges."""
    text = (
        "Look for columns with extreme values or that nearly repeat others, for too "
        f"few rows, and for an extreme penalty. Another ridge than ridge={ridge!r}"
    )
    if algorithm == "score-matching":
        return f"{text} may help."
    return f"{text}, or algorithm='score-matching', may help."


def predicted(problem, theta, kept, rows, *, alpha, n_steps):  # (n_rows, n_nodes)
    """Continue the fit without held-out cells, and fill them.

    `theta` is the fit to all cells, `kept` (n, n_nodes) has no held-out cells and the
    units of X, `rows` are indices of the rows to fill, and `n_steps` the number of
    sweeps that `transform` averages.  Raises Diverged.
    """
    centre, scale = problem.units
    kept = Incomplete.from_array(kept / scale.numpy())
    n_rounds = min(rounds.rounds_to_settle(kept.observed, _INFLUENCE), _ROUNDS)
    theta, start = problem.continued(kept, theta, float(alpha), n_rounds)
    rows = torch.from_numpy(rows)
    part, burn_in = kept.take(rows), _BURN_IN
    if start is None:
        start, burn_in = em.observed_mean(kept.x, kept.observed), n_steps // 2
    else:
        start = start[rows]
    filled = prediction.approximate_mean(
        em.to_model(theta, centre),
        part,
        start,
        row_keyed(part.to_array(), 0),
        burn_in=burn_in,
        n_steps=_STEPS,
    )
    return (filled * scale).numpy()


def messages(schema, data, theta, *, fit_linear, cut, remedy):
    """List messages about a table or a fit that is beyond the limits of the model.

    `data` has the units of X, `theta` is for columns of unit standard deviation, `cut`
    is the largest share by which an edge was shrunk, and `remedy` says which parameters
    to raise if it is large.
    """
    found = []

    def named(nodes):
        return schema.labels(schema.model_columns[nodes], MOST_LISTED)

    beyond = wide_columns(data) if fit_linear else np.zeros(0, dtype=int)
    if len(beyond):
        found.append(
            f"The standard deviation of {named(beyond)} exceeds {WIDEST} "
            "times the mean, more than the model can describe (see the notes of the "
            f"class). Trust the signs of the edges of {_these(beyond)}, not their "
            f"strengths. {_logarithms(beyond)}"
        )
    diagonal = theta.precision.diagonal().numpy()
    # solvers end at the bound up to rounding
    floor = np.flatnonzero(diagonal <= em.DIAGONAL_FLOOR * (1 + 1e-6))
    floor = np.setdiff1d(floor, beyond)
    if fit_linear and len(floor):
        found.append(
            f"The fitted precision of {named(floor)} is at its lower "
            f"limit (see the notes of the class): the edges of {_these(floor)} are "
            f"overestimated. {_logarithms(floor)}"
        )
    if cut > LARGEST_CUT:
        found.append(
            f"Edges were shrunk by up to {cut:.0%} (largest_cut_), because the fitted "
            f"density had no finite integral. Raise {remedy}, or drop columns that "
            "repeat others."
        )
    return found


def _these(columns):
    return "this column" if len(columns) == 1 else "these columns"


def _logarithms(columns):
    if len(columns) == 1:
        return "Take its logarithm, leave it out, or use CopulaGraphLearner."
    return "Take their logarithms, leave them out, or use CopulaGraphLearner."


def wide_columns(data):
    """Find columns whose standard deviation is too large for the model.

    A half-normal column has a ratio of 0.76, and an independent one at the lower bound
    of the precision 0.82. Columns that others make wider reach 0.88 in 80 tables that
    the papers simulate.  The limit allows a random deviation of one over the root of
    the number of observed cells.  `data` has the units of X; returns indices.
    """
    mean = em.observed_mean(data.x, data.observed)
    deviation = em.units_of(data, fit_linear=True).scale
    chance = 1 + data.observed.sum(0).rsqrt()
    return np.flatnonzero((deviation > WIDEST * mean * chance).numpy())


def warn_unless_converged(fit, ridge, max_iter, tol):
    """Warn if the rounds, or the last M-step, did not settle."""
    message = _why_unsettled(fit, ridge, max_iter, tol)
    if message:
        warn_user(message, ConvergenceWarning)


def _why_unsettled(fit, ridge, max_iter, tol):
    """Describe what did not settle, and what to change."""
    gap, last, memory = fit.gap, fit.losses[-1], fit.autocorrelation
    n_iter, needed = len(fit.losses), rounds.rounds_needed(memory)
    # few rows without a ridge: the solution has no certificate
    if not np.isfinite(gap):
        return (
            "The precision matrix cannot be estimated from so few rows, or so few "
            f"cells above zero, with ridge={ridge:g}. Raise ridge."
        )
    if gap > _INEXACT * max(1.0, abs(last)):
        return (
            f"The last M-step did not reach its minimum (optimality_gap_={gap:.2g}, "
            f"loss {last:.2g}). Drop columns that repeat others, or change "
            f"ridge={ridge:g}."
        )
    if memory > _SLUGGISH and n_iter == max_iter <= needed:
        return (
            f"EM stopped after max_iter={max_iter} rounds, in which the draws of "
            f"missing cells hardly changed (chain_autocorrelation_={memory:.3f}): the "
            "graph still depends on where they started. Raise max_iter above "
            f"{needed + 10:.0f}, or drop columns that nearly repeat others."
        )
    if n_iter == max_iter and fit.change > tol:
        return (
            f"EM stopped after max_iter={max_iter} rounds, with an edge strength still "
            f"changing by {fit.change:.2g} a round. Raise max_iter or "
            f"tol={tol:.2g}."
        )
    return None
