"""Checks of a fitted graph learner: the limits of its model, and its predictions."""

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._random import row_keyed
from skvnce.algorithms.graph import em, prediction
from skvnce.estimators._misfit import listed
from skvnce.training.adam import Diverged

WIDEST = 0.82  # largest standard deviation over mean of a truncated normal (at zero)
LARGEST_CUT = 0.5  # share by which an edge may shrink without a warning
_ROUNDS = 6  # rounds of EM after which the held-out cells have no influence
REMEDY = (
    "GaussianImputer may fill missing cells better; logarithms of skewed columns may "
    "help."
)


def remedy(learner):
    """Say what to change if a fit diverges."""
    text = (
        "Look for columns with extreme values or that nearly repeat others, for too "
        "few rows, and for an extreme penalty. Another ridge than "
        f"ridge={learner.ridge!r}"
    )
    if learner.algorithm == "score-matching":
        return f"{text} may help."
    return f"{text}, or algorithm='score-matching', may help."


def predicted(learner, problem, theta, kept, rows):
    """Continue the fit without held-out cells, and fill them.

    Parameters
    ----------
    learner : TruncatedGaussianGraphLearner
    problem : Problem
    theta : Theta
        The fit to all cells.
    kept : ndarray of shape (n, n_nodes)
        In the units of X, without the held-out cells.
    rows : ndarray of int
        Indices of the rows to fill.

    Returns
    -------
    ndarray of shape (n_rows, n_nodes), or None if the fit diverges
    """
    centre, scale = problem.units
    kept = Incomplete.from_array(kept / scale.numpy())
    theta = _without(learner, problem, kept, theta)
    if theta is None:
        return None
    part = kept.take(torch.from_numpy(rows))
    filled = prediction.conditional_mean(
        em.to_model(theta, centre),
        part,
        em.observed_mean(kept.x, kept.observed),
        row_keyed(part.to_array(), 0),
        burn_in=learner.n_steps // 2,
        n_steps=learner.n_steps,
    )
    return (filled * scale).numpy()


def _without(learner, problem, kept, theta):
    """Continue the fit without the held-out cells; return None if it diverges.

    Methods that contrast with noise keep their parameters, as their rounds are slow.
    """
    if "nce" in learner.algorithm:
        return theta
    centre = problem.units.centre
    try:
        fit = em.learn_graph(
            learner._method(kept, centre)[0],
            theta,
            centre,
            problem.penalty(learner._alpha()),
            max_iter=_ROUNDS,
            tol=0.0,
            warm_up=1,
        )
    except Diverged:
        return None
    return fit.theta


def messages(learner, data, theta):
    """List messages about a table or a fit that is beyond the limits of the model.

    Parameters
    ----------
    learner : TruncatedGaussianGraphLearner
        With its fitted attributes.
    data : Incomplete
        In the units of X.
    theta : Theta
        The fit, for columns of unit standard deviation.
    """
    found, places = [], learner.feature_indices_
    beyond = wide_columns(data) if learner.fit_linear else np.zeros(0, dtype=int)
    if len(beyond):
        found.append(
            f"The standard deviation of {listed(learner, places[beyond])} exceeds "
            f"{WIDEST} times the mean, more than a normal distribution truncated at "
            f"zero can have. Trust the signs of the edges of {_these(beyond)}, not "
            f"their strengths. {_logarithms(beyond)}"
        )
    diagonal = theta.precision.diagonal().numpy()
    floor = np.flatnonzero(diagonal <= em.DIAGONAL_FLOOR * (1 + 1e-6))
    floor = np.setdiff1d(floor, beyond)
    if learner.fit_linear and len(floor):
        found.append(
            f"The fitted precision of {listed(learner, places[floor])} is at its lower "
            f"limit (see the notes of the class): the edges of {_these(floor)} are "
            f"overestimated. {_logarithms(floor)}"
        )
    if learner.largest_cut_ > LARGEST_CUT:
        found.append(
            f"Edges were shrunk by up to {learner.largest_cut_:.0%} (largest_cut_), "
            "because the fitted density had no finite integral. Raise "
            f"{'alpha' if hasattr(learner, 'alpha') else 'alphas'} or ridge="
            f"{learner.ridge_:.2g}, or drop columns that repeat others."
        )
    return found


def _these(columns):
    return "this column" if len(columns) == 1 else "these columns"


def _logarithms(columns):
    if len(columns) == 1:
        return "Take its logarithm, or leave it out."
    return "Take their logarithms, or leave them out."


def wide_columns(data):
    """Find columns whose standard deviation is too large for the model.

    A half-normal column, the widest that the model describes well, has a ratio of 0.76.
    The limit allows a random deviation of one over the root of the number of observed
    cells.

    Parameters
    ----------
    data : Incomplete
        In the units of X.

    Returns
    -------
    ndarray of int
    """
    mean = em.observed_mean(data.x, data.observed)
    deviation = em.units_of(data, fit_linear=True).scale
    chance = 1 + data.observed.sum(0).rsqrt()
    return np.flatnonzero((deviation > WIDEST * mean * chance).numpy())
