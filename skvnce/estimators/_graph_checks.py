"""What a graph learner checks after a fit: the limits of its model, and predictions."""

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._random import row_keyed
from skvnce.algorithms import conditional, graph
from skvnce.estimators._misfit import Judgement, judge, listed, misfit_messages
from skvnce.estimators._tables import hold_out

WIDEST = 0.82  # standard deviation over mean of a truncated normal that reaches 0
LARGEST_CUT = 0.5  # share by which a link may shrink without a warning
_HELD_OUT = 0.1  # share of the observed cells
_ROUNDS = 6  # of EM without them, after which the fit has forgotten them
_JUDGED = 1000  # rows at most in which they are predicted
_REMEDY = (
    "GaussianImputer fills cells of such tables better; logarithms of skewed columns "
    "may help."
)


def judged(learner, problem, data, theta):
    """Hold out observed cells, fit a few more rounds without them, and predict them.

    Parameters
    ----------
    learner : TruncatedGaussianGraphLearner
    problem : Problem
    data : Incomplete
        In the units of X.
    theta : Theta
        The fit to all cells.

    Returns
    -------
    Judgement
    """
    centre, scale = problem.units
    scaled = Incomplete(data.x / scale, data.observed)
    nodes = scaled.to_array()
    weights = torch.ones(len(nodes), dtype=torch.float64)
    _, hidden = hold_out(nodes, weights, _HELD_OUT)
    rows = hidden.any(1).nonzero().flatten()[:_JUDGED]
    if not len(rows):
        return Judgement(np.nan, np.zeros(len(scale), dtype=bool))
    kept = Incomplete(scaled.x.where(~hidden, 0.0), data.observed & ~hidden)
    mean = graph.observed_mean(kept.x, kept.observed)
    part, theta = kept.take(rows), _without(learner, problem, kept, theta)
    filled = np.full((len(rows), len(scale)), np.nan)
    if theta is not None:
        filled = conditional.conditional_mean(
            graph.to_model(theta, centre),
            part,
            mean,
            row_keyed(part.to_array(), 0),
            burn_in=learner.n_gibbs_steps // 2,
            n_steps=learner.n_gibbs_steps,
        ).numpy()
    unit = graph.units_of(scaled, fit_linear=True).scale
    return judge(nodes[rows], hidden[rows].numpy(), filled, mean.numpy(), unit.numpy())


def _without(learner, problem, kept, theta):
    """Go on with the fit without the held-out cells; None where that diverges.

    Methods that contrast with noise, whose rounds are slow, keep their parameters.
    """
    if "nce" in learner.method:
        return theta
    centre = problem.units.centre
    try:
        fit = graph.learn_graph(
            learner._method(kept, centre)[0],
            theta,
            centre,
            problem.penalty(learner._alpha()),
            max_iter=_ROUNDS,
            tol=0.0,
            warm_up=1,
        )
    except (FloatingPointError, ValueError):
        return None
    return fit.theta


def messages(learner, data, theta, judgement: Judgement):
    """Say where the table or the fit is beyond the model; a list of messages.

    Parameters
    ----------
    learner : TruncatedGaussianGraphLearner
        With its fitted attributes.
    data : Incomplete
        In the units of X.
    theta : Theta
        The fit, for columns of unit standard deviation.
    judgement : Judgement
    """
    found, places = [], learner.node_indices_
    beyond = wide_columns(data) if learner.fit_linear else np.zeros(0, dtype=int)
    if len(beyond):
        found.append(
            f"The standard deviation of {listed(learner, places[beyond])} exceeds "
            f"{WIDEST} of the mean, more than a normal distribution truncated at zero "
            "can have: their links are signs, not strengths. Take logarithms, or leave "
            "the columns out."
        )
    diagonal = theta.precision.diagonal().numpy()
    floor = np.flatnonzero(diagonal <= graph.DIAGONAL_FLOOR * (1 + 1e-6))
    floor = np.setdiff1d(floor, beyond)
    if learner.fit_linear and len(floor):
        found.append(
            f"The fitted precision of {listed(learner, places[floor])} is at its lower "
            "limit, see the notes of the class: their links are exaggerated. Take "
            "logarithms, or leave the columns out."
        )
    if learner.largest_cut_ > LARGEST_CUT:
        found.append(
            f"Links were shrunk by up to {learner.largest_cut_:.0%} (largest_cut_), as "
            "the fitted density could not be integrated. Raise alpha or ridge="
            f"{learner.ridge_:.2g}, or drop columns that repeat others."
        )
    return found + misfit_messages(learner, judgement, _REMEDY)


def wide_columns(data):
    """Find columns whose standard deviation is too large for the model.

    A half-normal column, the widest that the model describes well, has 0.76; one over
    the root of the number of observed cells is left to chance.

    Parameters
    ----------
    data : Incomplete
        In the units of X.

    Returns
    -------
    ndarray of int
    """
    mean = graph.observed_mean(data.x, data.observed)
    deviation = graph.units_of(data, fit_linear=True).scale
    chance = 1 + data.observed.sum(0).rsqrt()
    return np.flatnonzero((deviation > WIDEST * mean * chance).numpy())
