"""`partial_fit` of `GaussianImputer`: repeated fits, and then online EM.

`skvnce.estimators._stream` repeats the fit while the rows are kept.  Beyond, they are
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
from skvnce.estimators._stream import Stream, widen, widened
from skvnce.estimators._summary import rows_in_memory


def start_online(estimator, fit, marginals, total):
    """Store from what `learn_more` goes on."""
    _keep(estimator, online.started(fit, marginals, total))
    estimator._stream = None


def keep_first_rows(estimator, X, sample_weight):
    """Keep the rows of the first call of `partial_fit`, if the fit may be repeated."""
    if in_parts(X) is None and estimator._mixed is None and estimator._online:
        _keep_rows(estimator, Stream.of(estimator._checked(X), sample_weight))


def _keep_rows(estimator, stream):
    few = stream.n_rows <= stream.most
    estimator._stream = stream.stored() if few else None


def go_on(estimator, X, sample_weight):
    """Learn from a validated table: repeat the fit with all rows, or by online EM."""
    new = Stream.of(X, sample_weight)
    widened(estimator._schema, new.rows)  # raises an error for its rows
    if estimator._stream is not None:
        stream = Stream(*estimator._stream).followed_by(new)
        if stream.is_due:
            stream = stream.refitted(estimator, sample_weight=stream.weights)
            _keep_rows(estimator, stream)
            return
        _keep_rows(estimator, stream)
    _learn_more(estimator, new.rows, new.weights)


def refuse_mixed(estimator):
    """Raise an error for a fit to categories."""
    if estimator._mixed is not None:
        raise ValueError(
            "partial_fit cannot learn from categories. Use fit with all rows, or "
            "categorical_features=None if the categories are whole numbers."
        )


def check_can_continue(estimator):
    """Raise an error if `partial_fit` cannot go on from a fit."""
    refuse_mixed(estimator)
    if estimator._online is None:
        raise ValueError(
            "partial_fit cannot go on from a fit to limits of cells or to constant "
            "columns alone. Use fit with all rows."
        )


def _learn_more(estimator, X, weights):
    """Update a fitted imputer by rows (n, n_features) of positive weight."""
    nodes = X[:, estimator.feature_indices_].astype(np.float64)
    seen = ~np.isnan(nodes).all(1)
    if not seen.any():
        return
    widen(estimator, X)
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
