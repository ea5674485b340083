"""Draws and scores of a fitted density by chains."""

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._keyed import row_keyed
from skvnce._threads import one_thread
from skvnce.algorithms.vgi import density
from skvnce.algorithms.vgi.score import CHAINS, score

_SWEEPS = 5  # of the chains from which log-densities are estimated


def drawn_by_chains(member, nodes, numbers, *, n_chains, n_sweeps, n_kept):
    """Draw cells of nodes; (n_kept * n_chains, n, n_nodes), in the units of X."""
    fitted, scores = member._fitted(), member._cell_scores()
    drawn = np.repeat(nodes[None], n_kept * n_chains, 0)
    data, _ = scores.scores(Incomplete.from_array(nodes))
    for rows in density.chunks(fitted, data.observed, n_chains):
        if data.observed[rows[0]].all():
            continue
        streams = numbers(nodes[rows.numpy()])  # a single row stays a table
        found = density.draw(
            fitted,
            data.take(rows).on(fitted.device),
            streams,
            n_chains=n_chains,
            n_sweeps=n_sweeps,
            n_kept=n_kept,
        )
        drawn[:, rows.numpy()] = scores.cells(found.cpu()).numpy()
    return drawn


def scored_by_chains(member, X, n_draws):
    """Estimate log-densities of rows (n, n_features), and their standard errors."""
    nodes, fitted = X[:, member.feature_indices_].astype(np.float64), member._fitted()
    data, log_slopes = member._cell_scores().scores(Incomplete.from_array(nodes))
    found = torch.zeros(2, len(X)).double()
    with one_thread():
        for rows in density.chunks(fitted, data.observed, n_draws * CHAINS):
            if not data.observed[rows[0]].any():
                continue
            part = nodes[rows.numpy()]
            found[:, rows] = torch.stack(
                score(
                    fitted,
                    data.take(rows).on(fitted.device),
                    lambda purpose, part=part: row_keyed(part, purpose),
                    n_draws=n_draws,
                    n_sweeps=_SWEEPS,
                )
            ).cpu()
    seen = data.observed.any(1)
    return (found[0] + log_slopes.where(seen, 0.0)).numpy(), found[1].numpy()
