"""`partial_fit` of `GaussianImputer`: online EM."""

from functools import partial

import numpy as np
import torch

from skvnce.algorithms.gaussian import online
from skvnce.algorithms.gaussian.em import Moments
from skvnce.algorithms.gaussian.marginals import PiecewiseLinear, scores_of
from skvnce.algorithms.gaussian.rows import Rows
from skvnce.distributions.normal import Normal
from skvnce.estimators._possible import PossibleValues
from skvnce.estimators._summary import rows_in_memory
from skvnce.estimators._tables import rows_with_data
from skvnce.estimators._validation import ends_of


def start_online(estimator, fit, marginals, total):
    """Store from what `learn_more` goes on."""
    _keep(estimator, online.started(fit, marginals, total))


def check_can_continue(estimator):
    """Raise an error if `partial_fit` cannot go on from a fit."""
    if estimator._mixed is not None or estimator._online is None:
        raise ValueError(
            "partial_fit cannot go on from a fit to categories, to limits of cells or "
            "to constant columns alone. Use fit with all rows."
        )


def learn_more(estimator, X, sample_weight):
    """Update a fitted imputer by the rows of a validated table (n, n_features)."""
    weights, kept = rows_with_data(X, sample_weight)
    X, weights = X[kept], weights[kept]
    nodes = X[:, estimator.feature_indices_].astype(np.float64)
    seen = ~np.isnan(nodes).all(1)
    if not seen.any():
        return
    _widen(estimator, X)
    data = estimator._units().scaled(nodes[seen])
    rows = Rows(data, torch.from_numpy(weights[seen]))
    strength = estimator.shrinkage_ * nodes.shape[1]
    found, log_likelihood = online.updated(_state(estimator), rows, strength)
    estimator.loss_curve_ = [
        *estimator.loss_curve_,
        -float(log_likelihood / rows.total),
    ]
    estimator.n_iter_ += 1
    _keep(estimator, found)
    estimator.mean_, estimator.covariance_ = estimator._units().moments(found.normal)
    _keep_for_draws(estimator, found, rows, strength)


def _state(estimator):
    first, second, total = map(torch.from_numpy, estimator._online)
    normal = Normal(*map(torch.from_numpy, estimator._normal))
    lines = estimator._marginals
    lines = lines and PiecewiseLinear(*map(torch.from_numpy, lines))
    return online.Online(normal, lines, Moments(first, second), total)


def _keep(estimator, state):
    parts = (*state.moments, state.total)
    estimator._online = tuple(part.numpy() for part in parts)
    estimator._normal = tuple(part.numpy() for part in state.normal)
    lines = state.marginals
    estimator._marginals = lines and tuple(part.numpy() for part in lines)


def _keep_for_draws(estimator, state, rows, strength):
    """Store rows of the last table, from which the parameters are drawn."""
    some = slice(rows_in_memory(estimator.n_features_in_))
    part = Rows(rows.data.take(some), rows.weights[some])
    if state.marginals is not None:
        part = part.mapped(partial(scores_of, state.marginals))
    given = part.data, part.weights, strength, float(state.total)
    estimator._keep_for_draws(*given)


def _widen(estimator, X):
    """Extend the ranges of the columns, and their repeated values, to new cells."""
    known, old = PossibleValues(*estimator._possible), estimator._fitted_ends
    new = ends_of(X)
    ends = np.stack([np.fmin(old[0], new[0]), np.fmax(old[1], new[1])])
    found = known.extended(estimator, X, old, ends)
    estimator._fitted_ends = ends
    estimator._set_possible(found)
