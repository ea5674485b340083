"""Draws and scores of a fitted density that has an encoder."""

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._random import row_lattice
from skvnce._threads import one_thread
from skvnce.algorithms.vae import autoencoder, sampling
from skvnce.estimators._lair import draw_by


def drawn_by_encoder(member, n_steps, nodes, n_draws, numbers, bounds):
    """Draw cells of nodes by LAIR; see `draw_by`, with a number of iterations."""
    rule = sampling.by_lair()
    return draw_by(rule, int(n_steps), member, nodes, n_draws, numbers, bounds)


def scored_by_encoder(member, X, n_draws):
    """Estimate the log-densities of rows and their standard errors.

    Parameters
    ----------
    member : IncompleteDensity
        Fitted, with an encoder.
    X : ndarray of shape (n, n_features)
    n_draws : int
        Number of draws of the latents of a row.

    Returns
    -------
    log_prob, error : ndarray of shape (n,)
    """
    auto, scores = member._autoencoder(), member._cell_scores()
    nodes = X[:, member.feature_indices_].astype(np.float64)
    found = np.zeros((len(X), 2))
    with one_thread(), torch.no_grad():
        for rows in autoencoder.chunks(auto, len(nodes), n_draws):
            data, log_slopes = scores.scores(Incomplete.from_array(nodes[rows]))
            numbers = row_lattice(nodes[rows], 0)
            found[rows] = autoencoder.scored(auto, data, numbers, n_draws).numpy()
            found[rows, 0] += log_slopes.numpy()
    found[np.isnan(nodes).all(1)] = 0.0
    return found.T
