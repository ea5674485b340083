"""Training of a fitted density on more rows."""

from copy import copy

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce._threads import one_thread
from skvnce.algorithms.vgi import density, initial, training
from skvnce.distributions.normal import Normal
from skvnce.estimators._densities import VGI, chains_of
from skvnce.estimators._modules import load_state
from skvnce.estimators._rounds import failures_named
from skvnce.training.rounds import COOLING


def check_unchanged(density, member):
    """Check that a density has the model and the algorithm of a fitted member.

    Raises
    ------
    ValueError
        Names the parameter that has changed.
    """
    fitted = member.get_params()
    for name, value in density.get_params().items():
        old = fitted.get(name)
        if not name.startswith(("model", "algorithm")):
            continue
        is_part = hasattr(value, "get_params") and type(value) is type(old)
        if not is_part and value is not old and value != old:
            raise ValueError(
                f"{name} of model has changed since fit, from {old!r} to {value!r}: "
                "partial_fit trains the fitted model. Set it back, or call fit."
            )


def continued(member, X, seed):
    """Copy a fitted density, and train the copy on other rows.

    Training makes as many rounds as held-out cells chose in the fit, at least one, with
    the scores of columns of the fit.

    Parameters
    ----------
    member : IncompleteDensity
    X : ndarray of shape (n_samples, n_features)
        Validated rows.
    seed : int

    Returns
    -------
    IncompleteDensity
    """
    found, start = copy(member), _start_of(member, X)
    if not isinstance(member._method(), VGI):
        raise ValueError(
            f"partial_fit requires algorithm='vgi', got {member.algorithm!r}."
        )
    if not len(start.weights):
        raise ValueError("No row of X has an observed cell that the model describes.")
    ways = chains_of(member._method(), member._n_chains())
    n_rounds = max(1, member.best_iter_)
    with one_thread(), seeded(seed), failures_named("Fit the imputer to all rows."):
        device = member._device()
        pair = _pair_of(member, start.normal).on(device)
        chains = initial.make_chains(start, ways).on(device)
        losses = density.train_on_all(
            pair,
            start.on(device),
            chains,
            member._settings(),
            n_rounds=n_rounds,
            n_cooling=min(COOLING, n_rounds),
        )
    found.loss_curve_ = [*member.loss_curve_, *losses]
    found.n_iter_ = len(found.loss_curve_)
    low, high = (part.cpu().numpy() for part in chains.hypercube)
    before = member._hypercube
    found._hypercube = np.fmin(low, before[0]), np.fmax(high, before[1])
    found._keep_modules(pair)
    return found


def _start_of(member, X):
    """Map rows with observed cells to the scores of a fitted density."""
    nodes = X[:, member.feature_indices_].astype(np.float64)
    nodes = nodes[~np.isnan(nodes).all(1)]
    normal = Normal(*map(torch.tensor, member._normal))
    data, _ = member._cell_scores().scores(Incomplete.from_array(nodes))
    weights = torch.ones(len(nodes), dtype=torch.float64)
    return initial.Start(data, normal, member._families(), weights)


def _pair_of(member, normal):
    """Make model and conditionals in single precision, as the training left them."""
    with seeded(0):
        pair = member._pair(normal)
    states = member.model_state_, member.conditionals_state_
    return training.Pair(*map(load_state, pair, states))
