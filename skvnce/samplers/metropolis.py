"""Metropolis-Hastings moves of latents that are proposed whatever the current ones."""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel, observed_log_prob
from skvnce.variational.base import at_quantiles


class Moved(NamedTuple):
    """A row's latents and cells after a move.

    Attributes
    ----------
    z : Tensor of shape (*chains, n, latents)
    x : Tensor of shape (*chains, n, features)
    accepted : Tensor of bool, of shape (*chains, n)
    probability : Tensor of shape (*chains, n)
        Of being accepted.
    """

    z: Tensor
    x: Tensor
    accepted: Tensor
    probability: Tensor


def accept(log_weight: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Decide between current and proposed values by their log target / proposal.

    A proposal without density is never accepted, and any other is where the current
    value has none.

    Parameters
    ----------
    log_weight : Tensor of shape (2, *batch)
        Of the current value and of the proposed one.
    uniform : Tensor of shape (*batch,)

    Returns
    -------
    accepted : Tensor of bool, of shape (*batch,)
    probability : Tensor of shape (*batch,)
    """
    log_ratio = (log_weight[1] - log_weight[0]).nan_to_num(nan=-torch.inf)
    probability = log_ratio.clamp(max=0).exp()
    return uniform < probability, probability


def move(
    model: LatentVariableModel,
    data: Incomplete,
    given: Incomplete,
    pair: Tensor,
    log_q: Tensor,
    accept_uniform: Tensor,
    cell_uniform: Tensor,
) -> Moved:
    """Move z by Metropolis-Hastings, then draw the missing cells given it.

    The target is p(z | what is given), in proportion to p(given | z) p(z).  Its value
    at the current z is computed anew, so that none is out of date.

    Parameters
    ----------
    model : LatentVariableModel
    data : Incomplete
        The table whose missing cells are drawn.
    given : Incomplete
        Completed tables, all observed, or the table itself.
    pair : Tensor of shape (2, *chains, n, latents)
        Current and proposed z.
    log_q : Tensor of shape (2, *chains, n)
        Log-density of the proposal at both.
    accept_uniform : Tensor of shape (*chains, n)
    cell_uniform : Tensor of shape (*chains, n, features)

    Returns
    -------
    Moved
    """
    likelihood = model.likelihood(pair)
    log_target = observed_log_prob(likelihood, *given) + model.prior().log_prob(pair)
    accepted, probability = accept(log_target - log_q, accept_uniform)
    tables = at_quantiles(likelihood, cell_uniform)
    z, x = (b.where(accepted[..., None], a) for a, b in (pair, tables))
    return Moved(z, data.with_values(x), accepted, probability)
