"""Models with latents, posteriors of unobserved variables, and samplers."""

from collections.abc import Callable
from copy import copy
from math import log
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution

from skvnce._core.distributions.cells import Candidates, NumberOrLevel, drawn_once
from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import tell
from skvnce._core.random import Uniforms, at_quantiles, draw

# ----------------------------------------
# Interfaces of posteriors: weighted draws of the unobserved variables of rows.
#
# The unobserved variables of a row are its missing cells, its latents, or both.  Draws
# are made in steps: `repeated` starts with the rows themselves, and each further step
# draws one more part given the previous ones, so that log q is a sum,
#
#     log q(x_mis, z | x_obs) = log q(x_mis | x_obs) + log q(z | x_obs, x_mis)       (1)
#
# All draws are functions of uniform numbers that are arguments: the same numbers give
# the same draws, which are smooth in the parameters of q if q is continuous.


class Draws(NamedTuple):
    """Draws of the unobserved variables of rows."""

    # (n_draws, *rows, features) or (..., latents): ``(x,)`` or ``(x, z)``: the
    # arguments of the model's `log_density`
    values: tuple[Tensor, ...]
    log_prob: Tensor  # (n_draws, *rows): log q of the draws, eq. (1)
    # (n_draws, *rows): weights for means over q; they sum to 1 over the draws of a row
    log_weight: Tensor
    # (n_draws, *rows): log q of the discrete parts, through which no draw is
    # differentiable, for the score-function gradient.  None if there are none.  If
    # states are enumerated, of the previous draws: the last factor of ``n_draws``
    log_score: Tensor | None = None


class Posterior(Protocol):
    """A posterior that draws the unobserved variables of rows."""

    def __call__(self, x: Tensor, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw for rows x (*batch, n, features) of one mask (n, features)."""
        ...


class LatentPosterior(Protocol):
    """An encoder, which returns the distribution of the latents of a row."""

    def __call__(self, x: Tensor, observed: Tensor) -> Distribution:
        """Return q(z | x), of event shape (latents,) and batch shape (*batch,).

        Values under the mask are arbitrary; it is all true for completed rows.
        """
        ...


class LatentCells(Protocol):
    """A conditional distribution q(x_mis | z, x_obs) with independent cells."""

    def __call__(self, x: Tensor, observed: Tensor, z: Tensor) -> Distribution:
        """Return q(x_j | z, x_obs) of all columns j; batch shape (*batch, features)."""
        ...


class GibbsConditionals(Protocol):
    """Univariate distributions q(x_j | x), from completed rows x."""

    def at(self, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j of one column a row, int (*several, *batch)."""
        ...

    def back(self, q: Distribution, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j at rows x in which only its own cell has changed since q."""
        ...

    def masked(self, x: Tensor, columns: Tensor) -> Distribution:
        """Return the result of `at` with zero in place of x_j (appendix E)."""
        ...


def candidates(q: Distribution, most_levels: int) -> Candidates:
    """Represent means over q: levels are enumerated, and numbers are drawn once."""
    if isinstance(q, NumberOrLevel):
        return q.candidates(most_levels)
    return drawn_once(q)


def draw_latents(
    q: Distribution, uniforms: Uniforms, n_draws: int, like: Tensor
) -> Tensor:  # (n_draws, *batch, latents)
    """Draw latents by the numbers of step 0, of the type of a tensor."""
    shape = n_draws, *q.batch_shape, q.event_shape[0] + 1
    return draw(q, uniforms(0, like.new_empty(()).expand(shape)))


def repeated(x: Tensor, n_draws: int = 1) -> Draws:
    """Repeat rows x (*rows, features), without unobserved variables yet."""
    drawn = x.expand(n_draws, *x.shape)
    log_weight = drawn.new_full(drawn.shape[:-1], -log(n_draws))
    return Draws((drawn,), torch.zeros_like(log_weight), log_weight)


def with_missing(
    draws: Draws, observed: Tensor, q: Distribution, uniform: Tensor
) -> Draws:
    """Draw missing cells, independent given the observed cells, by their q."""
    (x,) = draws.values
    cells = at_quantiles(q, uniform)
    log_prob = q.log_prob(cells).where(~observed, 0.0).sum(-1)
    return _joined(draws, (x.where(observed, cells),), q, log_prob)


def with_latents(draws: Draws, q: Distribution, uniform: Tensor) -> Draws:
    """Draw latent variables by their q, independent given the completed rows."""
    z = at_quantiles(q, uniform.reshape(-1, *q.batch_shape))
    log_prob = q.log_prob(z).sum(-1).view(uniform.shape[:-1])
    return _joined(draws, (*draws.values, z.view(uniform.shape)), q, log_prob)


def _joined(
    draws: Draws, values: tuple[Tensor, ...], q: Distribution, log_prob: Tensor
) -> Draws:
    """Add one part, with its log q, to draws."""
    score = draws.log_score
    if isinstance(q, Bernoulli):
        score = log_prob if score is None else score + log_prob
    return Draws(values, draws.log_prob + log_prob, draws.log_weight, score)


def with_states(draws: Draws, states: Tensor, log_q: Tensor) -> Draws:
    """Enumerate latent variables: each state is a draw, weighted by its probability.

    Means over the draws are then exact means over q, and smooth in its parameters.
    `log_q` (n_states, n_draws, *rows): of every state, normalised over the states.
    """
    (x,) = draws.values
    shape = len(states), *x.shape[:-1]
    z = states.view(len(states), *[1] * (x.dim() - 1), -1).expand(*shape, -1)
    return Draws(
        (x.expand(*shape, -1).flatten(0, 1), z.flatten(0, 1)),
        (draws.log_prob + log_q).flatten(0, 1),
        (draws.log_weight + log_q).flatten(0, 1),
        draws.log_score,
    )


# ----------------------------------------
# Interfaces of models, and the masked sum of log-densities that all models share.


class Density(Protocol):
    """A normalised density of complete rows, which need not factorise."""

    def log_prob(self, x: Tensor) -> Tensor:  # (*batch, features) -> (*batch,)
        """Compute log p(x)."""
        ...


class Flow(Density, Protocol):
    """A density of x = T(u), with T invertible and u standard normal."""

    def to_base(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map x (*batch, features) to u; with log|det du/dx|, (*batch,)."""
        ...

    def from_base(self, u: Tensor) -> Tensor:
        """Map u (*batch, features) to x."""
        ...


class LatentVariableModel(Protocol):
    """A normalised density of latents, and of columns independent given them."""

    def prior(self) -> Distribution:
        """Return p(z), of event shape (latents,)."""
        ...

    def likelihood(self, z: Tensor) -> Distribution:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        ...


class EnumerableModel(Protocol):
    """A density of a row and its latents of few states, up to a constant."""

    states: Tensor  # (n_states, latents)

    # (*batch, features), (*batch, latents) -> (*batch,)
    def log_density(self, x: Tensor, z: Tensor) -> Tensor:
        """Compute log phi(x, z)."""
        ...


def observed_log_prob(dist: Distribution, x: Tensor, observed: Tensor) -> Tensor:
    """Sum the log-density of independent features over the observed ones.

    Missing features, whose values may be NaN, contribute nothing, unless `dist` has
    ``log_inside``, log-probabilities of their bounds. Its method ``sum_observed(x,
    observed)``, if there is one, computes the sum itself.
    """
    if hasattr(dist, "sum_observed"):
        return dist.sum_observed(x, observed)
    # under the mask there may be NaN, and 1 is in the support of most distributions
    inside = dist.log_prob(x.where(observed, x.new_ones(())))
    outside = getattr(dist, "log_inside", x.new_zeros(()))
    return inside.where(observed, outside).sum(-1)


def log_joint_of_states(model: EnumerableModel, x: Tensor) -> Tensor:
    """Compute log phi(x, z) at all states z; (*batch, features) -> (n_states, *batch).

    Its `logsumexp` is log phi(x), and its `log_softmax` the exact posterior.
    """
    states = model.states
    z = states.view(len(states), *[1] * (x.dim() - 1), -1)
    return model.log_density(
        x.expand(len(states), *x.shape), z.expand(len(states), *x.shape[:-1], -1)
    )


# ----------------------------------------
# Lower bounds of log p(x_obs) of a model with latents, from log-weights of draws.
#
#     log w(z) = sum_{j observed} log p(x_j | z) + log p(z) - log q(z | x_obs)       (1)
#
#     ELBO    = E_q log w(z)                                                         (2)
#     SELBO   = sum_k pi_k E_{q_k} log w(z)                                          (3)
#     IWELBO  = E log (1/I) sum_j w(z_j)                                             (4)
#     SIWELBO = E log sum_k pi_k (1/I) sum_j w(z_j^k)                                (5)
#
# In the stratified bounds each component q_k of q = sum_k pi_k q_k has its own draws; q
# in eq. (1) is always the whole mixture.
#
# Simkus and Gutmann (2024), Improving variational autoencoder estimation from
# incomplete data with mixture variational families, eqs. (4)-(8), here (2), (3), (1),
# (4), (5); Burda, Grosse and Salakhutdinov (2016); Mattei and Frellsen (2019).


def elbo(log_weight: Tensor) -> Tensor:
    """Average over draws of q, eq. (2); (n_draws, *rows) -> (*rows,)."""
    return log_weight.mean(0)


def iwelbo(log_weight: Tensor) -> Tensor:
    """Compute the importance-weighted bound, eq. (4); (n_draws, *rows) -> (*rows,)."""
    return torch.logsumexp(log_weight, 0) - log(len(log_weight))


def standard_error(log_weight: Tensor) -> Tensor:
    """Estimate the relative error of the mean of weights, eq. (4); infinite for one."""
    n_draws = len(log_weight)
    if n_draws == 1:
        return torch.full_like(log_weight[0], torch.inf)
    # over their mean, so that no weight overflows
    relative = (log_weight - iwelbo(log_weight)).exp()
    return relative.std(0) / n_draws**0.5


def stratified_elbo(log_pi: Tensor, log_weight: Tensor) -> Tensor:  # (*rows,)
    """Average over draws of each component, eq. (3); (components, n_draws, *rows)."""
    return (log_pi.exp() * log_weight.mean(1)).sum(0)


def stratified_iwelbo(log_pi: Tensor, log_weight: Tensor) -> Tensor:
    """Compute the stratified importance-weighted bound, eq. (5)."""
    weighted = log_pi.unsqueeze(1) + log_weight
    return torch.logsumexp(weighted, (0, 1)) - log(log_weight.shape[1])


def log_joint(
    model: LatentVariableModel, x: Tensor, observed: Tensor, z: Tensor
) -> Tensor:
    """Compute log p(x_obs, z); z (*sample, *rows, latents) -> (*sample, *rows)."""
    log_likelihood = observed_log_prob(model.likelihood(z), x, observed)
    return log_likelihood + model.prior().log_prob(z)


def rsample_latents(
    q: Distribution, uniforms: Uniforms, n_draws: int, like: Tensor
) -> Tensor:
    """Draw latents by `draw_latents`; raise TypeError if the draws have no gradient."""
    if not q.has_rsample:
        raise TypeError(
            f"The posterior returns {q}, whose draws have no gradient. "
            "Use normal latents, or a mixture of normals."
        )
    return draw_latents(q, uniforms, n_draws, like)


def drawn_elbo(
    model: LatentVariableModel,
    q: Distribution,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int,
) -> Tensor:
    """Estimate eq. (2) by draws of q, with the gradient of `frozen`; (*rows,)."""
    z = rsample_latents(q, uniforms, n_draws, x)
    return elbo(log_joint(model, x, observed, z) - frozen(q).log_prob(z))


def frozen(q: Distribution) -> Distribution:
    """Return a distribution whose parameters have no gradient.

    With log q of it in eq. (1), only the draws have a gradient ("sticking the
    landing"). The omitted part has mean zero in eqs. (2) and (3), and large noise
    near the optimum; in eqs. (4) and (5) its mean is not zero.

    Roeder, Wu and Duvenaud (2017), Sticking the landing, section 3.
    """
    twin = copy(q)
    for name, value in vars(q).items():
        if isinstance(value, Tensor):
            vars(twin)[name] = value.detach()
        elif isinstance(value, Distribution):
            vars(twin)[name] = frozen(value)
    return twin


# ----------------------------------------
# The interface of samplers, and the function that runs a chain.
#
# A sampler is two pure functions, ``init(data, x) -> state`` and ``step(state, data) ->
# (state, info)``.  States hold completed tables x of shape (*chains, n, features), so
# that one sampler can continue where another stopped: ``mwg.init(data, state.x)``.


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


def run_chain(
    sampler: Sampler[StateT, InfoT],
    state: StateT,
    data: Incomplete,
    n_steps: int,
    visit: Callable[[StateT, InfoT], None] = lambda state, info: None,
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
    zero, any other proposal is accepted.  Weights are of the current and the proposed
    value.
    """
    # NaN if both have density zero, or if a density overflows
    log_ratio = (log_weight[1] - log_weight[0]).nan_to_num(nan=-torch.inf)
    probability = log_ratio.clamp(max=0).exp()
    # strictly below, because uniform numbers may be 0
    return uniform < probability, probability


def move(
    model: LatentVariableModel,
    data: Incomplete,  # the table whose missing cells are drawn
    conditioning: Incomplete,  # completed tables, all observed, or the table itself
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
    log_target = observed_log_prob(likelihood, *conditioning) + model.prior().log_prob(
        pair
    )
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
    """Draw the uniform numbers of a step: of latents, cells, and other purposes."""
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
    """Draw missing cells given observed ones and z, by uniform numbers."""
    return data.with_values(at_quantiles(model.likelihood(z), uniform))


def unconditional(
    model: LatentVariableModel, data: Incomplete, latents: Tensor, cells: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw z from the prior and x_mis given z: the default start of chains."""
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


def resample(log_weight: Tensor, uniform: Tensor) -> Tensor:  # int (k, *batch)
    """Draw indices with replacement, in proportion to the weights (multinomial)."""
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
