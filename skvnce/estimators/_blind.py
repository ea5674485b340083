"""A fitted member as it would be, had its fit not seen the cells that it held out.

Training holds out cells to choose the number of rounds, and its gradients do not see
them; the normal distribution that it starts from does.  So that is fitted once more
without them, and the trained modules are moved by as much as their start moves.
"""

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian import em
from skvnce.models.factor_analysis import FactorModel

_ROUNDS = 8  # of EM without the cells, after which the normal has forgotten them


class Blind(NamedTuple):
    """A member that has not seen some cells.

    Attributes
    ----------
    member : object
        Can draw cells as a fitted one does.
    nodes : ndarray of shape (n, n_nodes)
        Cells of the rows of the fit; NaN marks missing ones.
    hidden : ndarray of bool, of shape (n, n_nodes)
        The observed ones that it has not seen.
    """

    member: Any
    nodes: np.ndarray
    hidden: np.ndarray


def normal_without(data, hidden, weights, strength, normal):
    """Fit a normal distribution anew, without some cells.

    Parameters
    ----------
    data : Incomplete
        Scores of all observed cells.
    hidden : Tensor of bool, of shape (n, n_nodes)
    weights : Tensor of shape (n,)
    strength : float
        Of the prior.
    normal : Normal
        The fit to all cells, where EM starts.

    Returns
    -------
    Normal
    """
    kept = data.observed & ~hidden
    seen = kept.any(1)
    part = Incomplete(data.x.where(kept, 0.0), kept).take(seen.nonzero().squeeze(1))
    effort = {"max_iter": _ROUNDS, "tol": 0.0}
    return em.fit_normal(part, weights[seen], strength, normal, **effort).normal


def turned_like(linear, other):
    """Rotate the latents of a linear model so that its loadings are near another's.

    Parameters
    ----------
    linear, other : FactorModel

    Returns
    -------
    FactorModel
        The same distribution of rows as `linear`.
    """
    left, _, right = torch.linalg.svd(linear.loadings.T @ other.loadings)
    return FactorModel(linear.mean, linear.loadings @ left @ right, *linear[2:])


def moved(module, before, after):
    """Add the difference of the parameters of two modules to those of a third one.

    Parameters
    ----------
    module, before, after : torch.nn.Module
        Of the same architecture.

    Returns
    -------
    torch.nn.Module
        A copy in double precision, without gradients.
    """
    found = deepcopy(module).double()
    first, last = (part.double().state_dict() for part in (before, after))
    state = {
        name: value + (last[name] - first[name]) if value.is_floating_point() else value
        for name, value in found.state_dict().items()
    }
    found.load_state_dict(state)
    return found.eval().requires_grad_(False)
