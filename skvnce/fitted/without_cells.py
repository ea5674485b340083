"""A fitted member as if its fit had not used the held-out cells.

Training holds out cells to choose the number of rounds, and its gradients do not depend
on them.  The initial normal distribution does.  So this module refits the normal
distribution without them and shifts the trained modules by the change of their initial
values.
"""

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian import em
from skvnce.models.factor_analysis import FactorModel

_ROUNDS = 8  # EM iterations after which the held-out cells have no influence


class WithoutCells(NamedTuple):
    """A member whose fit has not used some cells."""

    member: Any  # draws cells as a fitted member does
    # (n, n_nodes): cells of the training rows; NaN marks missing cells
    nodes: np.ndarray
    # bool (n, n_nodes): the observed cells that the member has not used
    hidden: np.ndarray


def normal_without(data, hidden, weights, strength, normal):  # Normal
    """Refit a normal distribution without some cells.

    `hidden` (bool (n, n_nodes)), `weights` (n,).  `data` (Incomplete): scores of all
    observed cells.  `strength`: strength of the prior.  `normal` (Normal): the fit to
    all cells, from which EM starts.
    """
    kept = data.observed & ~hidden
    seen = kept.any(1)
    part = Incomplete(data.x.where(kept, 0.0), kept).take(seen.nonzero().squeeze(1))
    stopping = {"max_iter": _ROUNDS, "tol": 0.0}
    return em.fit_normal(part, weights[seen], strength, normal, **stopping).normal


def turned_like(linear, other):
    """Rotate the latents of a linear model to match its loadings to another model's.

    `linear`, `other` (FactorModel).  Returns FactorModel: the same distribution of rows
    as `linear`.
    """
    # the orthogonal Procrustes problem: factors are known up to a rotation
    left, _, right = torch.linalg.svd(linear.loadings.T @ other.loadings)
    return FactorModel(linear.mean, linear.loadings @ left @ right, *linear[2:])


def moved(module, before, after):
    """Add the difference of the parameters of two modules to those of a third one.

    `module`, `before`, `after` (torch.nn.Module): of the same architecture.  Returns
    torch.nn.Module: a copy in double precision, without gradients.
    """
    # differences of float32 would be mostly rounding
    found = deepcopy(module).double()
    first, last = (part.double().state_dict() for part in (before, after))
    state = {
        name: value + (last[name] - first[name]) if value.is_floating_point() else value
        for name, value in found.state_dict().items()
    }
    found.load_state_dict(state)
    return found.eval().requires_grad_(False)
