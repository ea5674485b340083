"""The interface of samplers, and the function that runs a chain.

A sampler is two pure functions, ``init(data, x) -> state`` and ``step(state, data) ->
(state, info)``.  States hold completed tables x of shape (*chains, n, features), so
that one sampler can continue where another stopped: ``mwg.init(data, state.x)``.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from skvnce._core.distributions.functions import at_quantiles, draw
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import LatentVariableModel, observed_log_prob
from skvnce._core.posteriors import LatentPosterior, Uniforms
from skvnce._core.progress import tell


class State(NamedTuple):
    """State of chains: completed tables (*chains, n, features), number of steps."""

    x: Tensor
    step: int = 0


class Info(NamedTuple):
    """Diagnostics of a step."""

    # (*chains, n): probability with which the row's proposal was accepted; None if a
    # sampler accepts all proposals
    acceptance: Tensor | None = None


StateT = TypeVar("StateT", bound=tuple)
InfoT = TypeVar("InfoT", bound=tuple)


class Sampler(NamedTuple, Generic[StateT, InfoT]):
    """An update of the missing cells; the observed cells never change."""

    # maps a table and completed tables x (*chains, n, features), of which only the
    # missing cells are used, to a state.  For most samplers x is optional
    init: Callable[..., StateT]
    # maps a state and the table to the next state and the diagnostics of the step
    step: Callable[[StateT, Incomplete], tuple[StateT, InfoT]]


def ignore(state: StateT, info: InfoT) -> None:
    """Do nothing with a step."""


def run_chain(
    sampler: Sampler[StateT, InfoT],
    state: StateT,
    data: Incomplete,
    n_steps: int,
    visit: Callable[[StateT, InfoT], None] = ignore,
) -> StateT:
    """Make `n_steps` moves; call `visit` with the state and the info after each."""
    for n_step in range(1, n_steps + 1):
        tell("sweep", n_step, n_steps)
        state, info = sampler.step(state, data)
        visit(state, info)
    return state


# ----------------------------------------
# Metropolis-Hastings updates of latents with independent proposals.


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


# ----------------------------------------
# Shared parts of the samplers of latent variable models.
#
# One step takes all its uniform numbers from one call, as columns of one template.
# Several calls of one shape would return the same numbers if these are keyed by the
# row.

FIRST = 2  # number of the first step's uniforms: 0 and 1 are used by `init`


class LatentState(NamedTuple):
    """State of the chains."""

    x: Tensor  # (*chains, n, features)
    z: Tensor  # (*chains, n, latents)
    step: int = 0


def columns(
    uniforms: Uniforms,
    number: int,
    model: LatentVariableModel,
    data: Incomplete,
    chains: tuple[int, ...],
    n_more: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the uniform numbers of one step.

    Returns (*chains, n, latents + 1): for `draw` of latents; (*chains, n, features):
    for the cells; (n_more, *chains, n): for other purposes.
    """
    widths = model.prior().event_shape[0] + 1, data.x.shape[-1], n_more
    # only shape and type of the template are used, so that it needs no memory
    template = data.x.new_empty(()).expand(*chains, len(data.x), sum(widths))
    latents, cells, more = uniforms(number, template).split(widths, -1)
    return latents, cells, more.movedim(-1, 0)


def encode(posterior: LatentPosterior, x: Tensor) -> Distribution:
    """Return q(z | x) of completed rows (*chains, n, features)."""
    return posterior(x, torch.ones_like(x, dtype=torch.bool))


def decode(
    model: LatentVariableModel, data: Incomplete, z: Tensor, uniform: Tensor
) -> Tensor:
    """Draw x_mis from p(x_mis | x_obs, z); (*chains, n, latents) -> completed tables.

    `z` (*chains, n, latents), `uniform` (*chains, n, features).
    """
    return data.with_values(at_quantiles(model.likelihood(z), uniform))


def unconditional(
    model: LatentVariableModel, data: Incomplete, latents: Tensor, cells: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw z from the prior and x_mis given z: the default start of chains.

    `latents` (*chains, n, latents + 1).  `cells` (*chains, n, features): uniform
    numbers.  Returns `z` (*chains, n, latents); `x` (*chains, n, features).
    """
    z = draw(model.prior(), latents)
    return z, decode(model, data, z, cells)


# ----------------------------------------
# Weights of importance sampling, and draws in proportion to them.


def counted(log_weight: Tensor) -> Tensor:
    """Set weights that are NaN to zero, for example if densities overflow."""
    return log_weight.where(~log_weight.isnan(), -torch.inf)


def normalised(log_weight: Tensor) -> Tensor:
    """Make weights that sum to 1 over the first dimension; equal if all are zero."""
    return counted(log_weight).softmax(0).nan_to_num(nan=1 / len(log_weight))


def effective_size(log_weight: Tensor) -> Tensor:
    """Compute the effective sample size, 1 / sum of squared weights, of dimension 0."""
    return normalised(log_weight).square().sum(0).reciprocal()


def resample(log_weight: Tensor, uniform: Tensor) -> Tensor:  # int (k, *batch)
    """Draw indices with replacement, in proportion to the weights (multinomial).

    `log_weight` (m, *batch), `uniform` (k, *batch).
    """
    cumulated = normalised(log_weight).movedim(0, -1).cumsum(-1)
    # rounding makes the sum of the weights differ slightly from 1
    total = cumulated[..., -1:]
    last = (cumulated < total).sum(-1)  # the last index of positive weight
    at = uniform.movedim(0, -1) * total
    # to the right of equal sums, so that an index of weight 0 is never drawn
    index = torch.searchsorted(cumulated, at.contiguous(), right=True)
    return index.movedim(-1, 0).minimum(last)


def take(values: Tensor, index: Tensor) -> Tensor:
    """Get values (m, *batch, columns) at indices (k, *batch) of dimension 0."""
    return values.gather(0, index[..., None].expand(*index.shape, values.shape[-1]))
