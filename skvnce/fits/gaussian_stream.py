"""Online EM of `GaussianImputer.partial_fit`, from what a fit stores."""

from functools import partial

import torch

from skvnce.algorithms.gaussian import online
from skvnce.algorithms.gaussian.em import Moments
from skvnce.algorithms.gaussian.marginals import scores_of
from skvnce.algorithms.gaussian.rows import Rows


def state_of(model, stored):
    """Make the state of online EM from a `CopulaModel` and what `stored` returned."""
    first, second, total = map(torch.from_numpy, stored)
    moments = Moments(first, second)
    return online.Online(model.normal, model.model.marginals, moments, total)


def stored(state):
    """Convert the moments of a state and its weight to arrays, for skops."""
    return tuple(part.numpy() for part in (*state.moments, state.total))


def learned(model, state, nodes, weights, strength):
    """Learn from rows.

    `model` (CopulaModel), `state` (online.Online).  `nodes` (n, n_model_columns): rows
    with an observed cell.  `weights` (n,): positive.  `strength`: of the prior, in
    rows.  Returns `model` (CopulaModel); `state` (online.Online); `loss`, negative
    log-likelihood of a row, before it was learned; `rows` (Rows).
    """
    rows = Rows(model.units.scaled(nodes), torch.from_numpy(weights))
    state, log_likelihood = online.updated(state, rows, strength)
    changed = model.model._replace(normal=state.normal, marginals=state.marginals)
    loss = -float(log_likelihood / rows.total)
    return model._replace(model=changed), state, loss, rows


def for_draws(state, rows, strength, most):
    """Select the rows of a table by which the parameters are drawn, at most `most`."""
    some = slice(most)
    part = Rows(rows.data.take(some), rows.weights[some])
    if state.marginals is not None:
        part = part.mapped(partial(scores_of, state.marginals))
    return part.data, part.weights, strength, float(state.total)


def check_can_continue(is_mixed, has_state):
    """Raise an error if `partial_fit` cannot go on from a fit."""
    if is_mixed:
        raise ValueError(
            "partial_fit cannot learn from categories. Use fit with all rows, or "
            "categorical_features=None if the categories are whole numbers."
        )
    if not has_state:
        raise ValueError(
            "partial_fit cannot go on from a fit to limits of cells or to constant "
            "columns alone. Use fit with all rows."
        )
