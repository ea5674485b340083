"""`partial_fit` of `GaussianImputer`: repeated fits, and then online EM.

A few rows do not show which marginals, shrinkage or calibration are best.  So the first
rows of a stream are kept, and the fit is repeated with all rows so far when their
number has doubled.  Beyond `MOST_KEPT` rows the choices are final, and the rows are
forgotten.
"""

from functools import partial

import numpy as np
import torch

from skvnce.algorithms.gaussian import online
from skvnce.algorithms.gaussian.em import Moments
from skvnce.algorithms.gaussian.marginals import PiecewiseLinear, scores_of
from skvnce.algorithms.gaussian.rows import Rows
from skvnce.distributions.normal import Normal
from skvnce.estimators._chunks import in_parts
from skvnce.estimators._possible import PossibleValues
from skvnce.estimators._summary import rows_in_memory
from skvnce.estimators._tables import rows_with_data
from skvnce.estimators._validation import Encoded, ends_of

MOST_KEPT = 20_000  # rows of a stream by which its choices are made
_PART_KEPT = 5  # one of so many of the rows that a table in parts has in memory


def start_online(estimator, fit, marginals, total):
    """Store from what `learn_more` goes on."""
    _keep(estimator, online.started(fit, marginals, total))
    estimator._stream = None


def keep_first_rows(estimator, X, sample_weight):
    """Keep the rows of the first call of `partial_fit`, if the fit may be repeated."""
    if in_parts(X) is None and estimator._mixed is None and estimator._online:
        table = estimator._checked(X)
        weights, kept = rows_with_data(table, sample_weight)
        _keep_rows(estimator, table[kept], weights[kept], len(table), len(table))


def _keep_rows(estimator, X, weights, n_rows, n_fitted):
    most = min(MOST_KEPT, rows_in_memory(X.shape[1]) // _PART_KEPT)
    kept = None if n_rows > most else (X.copy(), weights, n_rows, n_fitted)
    estimator._stream = kept


def go_on(estimator, X, sample_weight):
    """Learn from a validated table: repeat the fit with all rows, or by online EM."""
    n_rows = len(X)
    weights, kept = rows_with_data(X, sample_weight)
    X, weights = X[kept], weights[kept]
    _extended(estimator, X)  # raises an error for its rows
    if estimator._stream is not None:
        *old, n_before, n_fitted = estimator._stream
        pairs = zip(old, (X, weights), strict=True)
        rows, own = (np.concatenate(pair) for pair in pairs)
        n_rows += n_before
        _keep_rows(estimator, rows, own, n_rows, n_fitted)
        if estimator._stream is not None and n_rows >= 2 * n_fitted:
            estimator._fitted_ends = ends_of(rows)
            estimator.fit(Encoded(rows, estimator), sample_weight=own)
            _keep_rows(estimator, rows, own, n_rows, n_rows)
            return
    _learn_more(estimator, X, weights)


def check_can_continue(estimator):
    """Raise an error if `partial_fit` cannot go on from a fit."""
    if estimator._mixed is not None or estimator._online is None:
        raise ValueError(
            "partial_fit cannot go on from a fit to categories, to limits of cells or "
            "to constant columns alone. Use fit with all rows."
        )


def _learn_more(estimator, X, weights):
    """Update a fitted imputer by rows (n, n_features) of positive weight."""
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
    found, ends = _extended(estimator, X)
    estimator._fitted_ends = ends
    estimator._set_possible(found)


def _extended(estimator, X):
    known, old = PossibleValues(*estimator._possible), estimator._fitted_ends
    new = ends_of(X)
    ends = np.stack([np.fmin(old[0], new[0]), np.fmax(old[1], new[1])])
    return known.extended(estimator, X, old, ends), ends
