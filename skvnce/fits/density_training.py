"""Stages of the training of densities, and the check of a model that goes on."""

import numpy as np
import torch

from skvnce._progress import step
from skvnce.algorithms.vgi import density, initial, mcem, training
from skvnce.training.rounds import COOLING, rows_of

_WARM_UP = 500  # steps of a model that does not start at the normal distribution
_LONGER = 10  # round from which chains of Monte Carlo EM have their full length

_PREDICTED = 250  # maximum number of rows in which held-out cells are predicted


def warm_up_model(model, chains, n_rows, settings):
    """Fit a user's density to rows completed by the normal distribution."""
    n_batches = -(-n_rows // settings.batch_size)
    training.warm_up_model(
        model,
        chains,
        # the number of steps counts, whatever the number of rows
        n_epochs=-(-_WARM_UP // n_batches),
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
    )


def warm_up_conditionals(conditionals, chains, settings, method):
    """Train the conditionals as regressions, algorithm 2."""
    if n_epochs := int(method.n_warm_up):
        with step("fitting the conditionals to observed cells"):
            training.warm_up_conditionals(
                conditionals,
                chains,
                n_epochs=n_epochs,
                batch_size=settings.batch_size,
                learning_rate=settings.q_learning_rate,
            )


def maximised(pair, start, n_chains, settings, method, n_rounds, device, on_round):
    """Train by Monte Carlo EM; the conditionals stay those of the normal.

    Returns `chains` (initial.Chains); `losses` (list of float).
    """
    chains = initial.make_chains(start, initial.ChainSettings(n_chains)).on(device)
    n_steps = int(method.n_steps)
    first = {1: -(-n_steps // 3), _LONGER: n_steps}
    losses = mcem.train(
        pair.model,
        chains.data,
        chains.x,
        settings,
        n_epochs=n_rounds,
        n_steps=mcem.at_intervals(first, int(method.every)),
        hypercube=chains.hypercube,
        batches=lambda: rows_of(start.weights, settings.batch_size, device),
        on_epoch=lambda n, loss: on_round(n, loss, np.nan),
    )
    return chains, losses


def trained_further(pair, start, ways, settings, n_rounds, device):
    """Train fitted modules on all cells of other rows, in place.

    Returns `hypercube` (n_model_columns,), the smallest and the largest score; `losses`
    (list of float).
    """
    chains = initial.make_chains(start, ways).on(device)
    losses = density.train_on_all(
        pair,
        start.on(device),
        chains,
        settings,
        n_rounds=n_rounds,
        n_cooling=min(COOLING, n_rounds),
    )
    return [end.cpu().numpy() for end in chains.hypercube], losses


def check_unchanged(parameters, fitted):
    """Check that a density has the model and the algorithm of a fitted one.

    Both are dicts, as `get_params` returns them.

    Raises ValueError: names the parameter that has changed.
    """
    for name, value in parameters.items():
        old = fitted.get(name)
        if not name.startswith(("model", "algorithm")):
            continue
        # parts are compared by their own parameters, which are listed, too
        is_part = hasattr(value, "get_params") and type(value) is type(old)
        if not is_part and value is not old and value != old:
            raise ValueError(
                f"{name} of model has changed since fit, from {old!r} to {value!r}: "
                "partial_fit trains the fitted model. Set it back, or call fit."
            )


def some_rows(hidden):
    """Keep the held-out cells (n, n_nodes) of a few evenly spaced rows."""
    rows = hidden.any(1).nonzero().squeeze(1)
    few = rows[:: -(-len(rows) // _PREDICTED)]
    return torch.zeros_like(hidden).index_copy(0, few, hidden[few])
