"""Draws and predictions of missing cells by one autoencoder, in the units of X."""

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._keyed import row_lattice
from skvnce.algorithms.vae import sampling
from skvnce.algorithms.vae.batches import chunks
from skvnce.distributions.quantiles import at_quantiles, midpoint_levels
from skvnce.models.bounded import BoundedModel
from skvnce.variational.base import global_stream, shifted_lattice

_ROUGH = 32  # number of draws of an approximate mean, a power of two
_LEVELS = 32  # number of quantiles that represent a cell


def predict_by(rule, n_steps, member, nodes, n_draws, numbers, bounds):
    """Draw cells of nodes from an autoencoder, and compute probabilities of levels.

    Parameters
    ----------
    rule : sampling.Rule
    n_steps : int
        Number of iterations, or of moves of each chain.
    member : VariationalAutoencoder
    nodes : ndarray of shape (n, n_nodes)
    n_draws : int
    numbers : callable
        Maps rows and a purpose to uniform numbers.
    bounds : ndarray of shape (2, n_nodes)
        In the units of X.  Cells are drawn conditionally on these bounds; infinite
        entries mean no bound.

    Returns
    -------
    drawn : ndarray of shape (n_draws, n, n_nodes)
        In the units of X.
    probabilities : dict of int to ndarray of shape (n, n_levels)
        For each column of categories; averages over latents.
    """
    auto, scores = member._autoencoder(), member._cell_scores()
    target = _bounded(member, bounds)
    drawn, probabilities = [], []
    with torch.no_grad():
        for rows in sampling.chunks(auto, len(nodes), n_draws, rule):
            data, _ = scores.scores(Incomplete.from_array(nodes[rows]))
            data, streams = data.on(auto.device), numbers(nodes[rows])
            found = rule.draws(target, data, int(n_draws), n_steps, streams)
            drawn.append(scores.cells(found.tables.cpu()).numpy())
            probabilities.append(found.probabilities.cpu())
    return np.concatenate(drawn, 1), _by_column(auto, probabilities)


def evenly(rule):
    """Return a rule of draws that are spread evenly, if there is one.

    Parameters
    ----------
    rule : sampling.Rule

    Returns
    -------
    sampling.Rule
        Its draws represent the distribution of each cell, but are dependent.
    """
    if rule.evenly is None:
        return rule

    def draws(auto, data, n_draws, n_steps, streams):
        def even(purpose):
            return shifted_lattice(streams(purpose))

        return rule.evenly(auto, data, n_draws, n_steps, even)

    return rule._replace(draws=draws, n_start=2)


def _by_column(auto, probabilities):
    """Join chunks of probabilities of levels, as a dict of columns."""
    families = getattr(auto.model, "families", None)
    if families is None or not families.levels:
        return {}
    table = torch.cat(probabilities).numpy()
    return {node: table[:, block] for node, block in families.level_blocks().items()}


def mean_by(member, nodes, bounds):
    """Estimate means of cells of nodes by an autoencoder, approximately but quickly.

    Parameters
    ----------
    member : VariationalAutoencoder
    nodes : ndarray of shape (n, n_nodes)
    bounds : ndarray of shape (2, n_nodes)
        As in `predict_by`.

    Returns
    -------
    mean : ndarray of shape (n, n_nodes)
        Functions of each row alone.
    probabilities : dict of int to ndarray of shape (n, n_levels)
        For each column of categories.
    """
    target, scores = _bounded(member, bounds), member._cell_scores()
    device = member._autoencoder().device
    order = torch.from_numpy(np.random.default_rng(0).permutation(_ROUGH)).to(device)
    means, levels = [np.empty((0, nodes.shape[1]))], []
    for rows in chunks(member._autoencoder(), len(nodes), _ROUGH):
        data, _ = scores.scores(Incomplete.from_array(nodes[rows]))

        def streams(purpose, part=nodes[rows]):
            evenly = row_lattice(part, purpose)  # each purpose has the same points, but
            return (lambda *a: evenly(*a)[order]) if purpose else evenly  # in new order

        def to_cells(drawn):
            return scores.cells(drawn.cpu()).to(device)

        found = sampling.rough_mean(target, data.on(device), to_cells, streams, _ROUGH)
        means.append(found[0].cpu().numpy())
        levels.append(found[1].cpu())
    return np.concatenate(means), _by_column(target, levels)


def _bounded(member, bounds):
    """Truncate the columns of a model to the user's bounds."""
    auto = member._autoencoder()
    places, low, high = member._score_bounds(bounds)
    if not len(places):
        return auto
    ends = (part.to(auto.device) for part in (places, low, high))
    return auto._replace(model=BoundedModel(auto.model, *ends))


def new_rows(member, n_rows):
    """Draw rows of nodes by torch's global stream; (n_rows, n_nodes)."""
    auto = member._autoencoder()
    z = torch.randn(n_rows, member.n_components_, dtype=torch.float64)
    cells = auto.model.likelihood(z.to(auto.device))
    scores = at_quantiles(cells, global_stream(0, cells.loc)).cpu()
    return member._cell_scores().cells(scores).numpy()


def mean_given(member, Z):
    """Compute means of cells, and most probable levels, given latents.

    Parameters
    ----------
    member : VariationalAutoencoder
    Z : ndarray of shape (n, n_components_)

    Returns
    -------
    ndarray of shape (n, n_nodes)
        In the units of X; codes of levels.
    """
    auto, scores = member._autoencoder(), member._cell_scores()
    cells = auto.model.likelihood(torch.tensor(Z).double().to(auto.device))
    levels = midpoint_levels(_LEVELS, cells.loc)
    drawn = (cells.icdf(level.expand(cells.loc.shape)) for level in levels)
    mean = sum(scores.cells(one.cpu()) for one in drawn) / _LEVELS
    for node, block in cells.families.level_blocks().items():
        mean[:, node] = cells.level_probabilities[:, block].argmax(1).to(mean)
    return mean.numpy()
