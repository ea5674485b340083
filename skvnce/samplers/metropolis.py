"""Metropolis-Hastings updates of latents with independent proposals."""

from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.models.base import LatentVariableModel, observed_log_prob
from skvnce.variational.base import at_quantiles


class Moved(NamedTuple):
    """Latents and cells of rows after an update."""

    z: Tensor  # (*chains, n, latents)
    x: Tensor  # (*chains, n, features)
    accepted: Tensor  # bool (*chains, n)
    probability: Tensor  # (*chains, n): acceptance probability


def accept(log_weight: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Accept or reject proposed values by their log target / proposal.

    A proposal of density zero is never accepted.  If the current value has density
    zero, any other proposal is accepted.

    `uniform` (*batch,).  `log_weight` (2, *batch): of the current value and of the
    proposed one.  Returns `accepted` (bool (*batch,)); `probability` (*batch,).
    """
    # NaN if both have density zero, or if a density overflows
    log_ratio = (log_weight[1] - log_weight[0]).nan_to_num(nan=-torch.inf)
    probability = log_ratio.clamp(max=0).exp()
    # strictly below, because uniform numbers may be 0
    return uniform < probability, probability


def move(
    model: LatentVariableModel,
    data: Incomplete,  # the table whose missing cells are drawn
    given: Incomplete,  # completed tables, all observed, or the table itself
    pair: Tensor,  # (2, *chains, n, latents): current and proposed z
    log_q: Tensor,  # (2, *chains, n): log-density of the proposal at both
    accept_uniform: Tensor,  # (*chains, n)
    cell_uniform: Tensor,  # (*chains, n, features)
) -> Moved:
    """Update z by Metropolis-Hastings, then draw the missing cells given z.

    The target is p(z | given), in proportion to p(given | z) p(z).  Its value at the
    current z is recomputed, because `given` may have changed.
    """
    likelihood = model.likelihood(pair)
    log_target = observed_log_prob(likelihood, *given) + model.prior().log_prob(pair)
    accepted, probability = accept(log_target - log_q, accept_uniform)
    # cells of both latents, from one evaluation of the model
    tables = at_quantiles(likelihood, cell_uniform)
    z, x = (b.where(accepted[..., None], a) for a, b in (pair, tables))
    return Moved(z, data.with_values(x), accepted, probability)
