"""Metropolis-Hastings updates of latents with independent proposals."""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel, observed_log_prob
from skvnce.variational.base import at_quantiles


class Moved(NamedTuple):
    """Latents and cells of rows after an update.

    Attributes
    ----------
    z : Tensor of shape (*chains, n, latents)
    x : Tensor of shape (*chains, n, features)
    accepted : Tensor of bool, of shape (*chains, n)
    probability : Tensor of shape (*chains, n)
        Acceptance probability.
    """

    z: Tensor
    x: Tensor
    accepted: Tensor
    probability: Tensor


def accept(log_weight: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Accept or reject proposed values by their log target / proposal.

    A proposal of density zero is never accepted.  If the current value has density
    zero, any other proposal is accepted.

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
    # NaN if both have density zero, or if a density overflows
    log_ratio = (log_weight[1] - log_weight[0]).nan_to_num(nan=-torch.inf)
    probability = log_ratio.clamp(max=0).exp()
    # strictly below, because uniform numbers may be 0
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
    """Update z by Metropolis-Hastings, then draw the missing cells given z.

    The target is p(z | given), in proportion to p(given | z) p(z).  Its value at the
    current z is recomputed, because `given` may have changed.

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
    # cells of both latents, from one evaluation of the model
    tables = at_quantiles(likelihood, cell_uniform)
    z, x = (b.where(accepted[..., None], a) for a, b in (pair, tables))
    return Moved(z, data.with_values(x), accepted, probability)
