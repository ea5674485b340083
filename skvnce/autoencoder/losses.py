"""What trains a variational autoencoder: bounds, chains of completed rows, losses.

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families; Simkus, Rhodes and Gutmann (2023), Variational
Gibbs inference for statistical model estimation from incomplete data.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import log, sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.functional import threshold

from skvnce._core.distributions.cells import ScoredCells, entropy, sum_and_slopes
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import (
    FIRST,
    Info,
    InfoT,
    LatentCells,
    LatentPosterior,
    LatentState,
    LatentVariableModel,
    Sampler,
    StateT,
    columns,
    draw_latents,
    drawn_elbo,
    encode,
    frozen,
    iwelbo,
    log_joint,
    observed_log_prob,
    rsample_latents,
    stratified_elbo,
    stratified_iwelbo,
    unconditional,
)
from skvnce._core.random import Uniforms, at_quantiles, draw, global_stream, inside
from skvnce._core.training import rounds
from skvnce.autoencoder import vae
from skvnce.autoencoder.networks import (
    AnchoredLatentCells,
    ResidualPerceptron,
    VariationalAutoencoderModel,
)
from skvnce.autoencoder.samplers import lair, pseudo_gibbs
from skvnce.autoencoder.vae import (
    NO_PARTS,
    Architecture,
    Autoencoder,
    Batches,
    Training,
    WithCells,
)

# ----------------------------------------
# Training objectives of variational autoencoders, by name, for missing values.
#
# All take (model, posterior, x, observed, uniforms, n_draws) and return a lower bound
# of log p(x_obs) of each row, with gradients for the model and the posterior.  `BOUNDS`
# lists those of rows with missing values, `COMPLETED_BOUNDS` those of completed rows.
#
# Simkus and Gutmann (2024), Improving variational autoencoder estimation from
# incomplete data with mixture variational families, table 1; Mattei and Frellsen
# (2019), MIWAE.


Bound = Callable[
    [LatentVariableModel, LatentPosterior, Tensor, Tensor, Uniforms, int], Tensor
]


def miss_vae(
    model: LatentVariableModel,
    posterior: LatentPosterior,  # one normal gives MVAE, a mixture MissVAE
    x: Tensor,  # (*rows, features): values under the mask are arbitrary
    observed: Tensor,  # bool (*rows, features)
    uniforms: Uniforms,  # called once
    n_draws: int = 1,  # number of draws of each row
) -> Tensor:  # (*rows,)
    """Estimate the ELBO by draws of q, eq. (4) of the paper."""
    return drawn_elbo(model, posterior(x, observed), x, observed, uniforms, n_draws)


def miss_iwae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate the importance-weighted bound by draws of q, eq. (7) of the paper.

    The gradient of the posterior is doubly reparametrised (Tucker et al. 2019): it
    passes through each draw, times its squared normalised weight.  (A posterior with
    `source` passes all of it through a tensor before the draw.)  That of the model is
    the standard one.  Parameters and returned values are those of `miss_vae`; one
    normal gives MIWAE, a mixture MissIWAE.

    Tucker, Lawson, Gu and Maddison (2019), Doubly reparameterized gradient estimators
    for Monte Carlo objectives.
    """
    q = posterior(x, observed)
    z = rsample_latents(q, uniforms, n_draws, x)
    log_weight = log_joint(model, x, observed, z) - frozen(q).log_prob(z)
    # draws without a gradient take no hook
    if z.requires_grad:
        weight = log_weight.detach().softmax(0).unsqueeze(-1)
        source = q.source(z) if hasattr(q, "source") else z
        source.register_hook(lambda gradient: weight * gradient)  # has a factor already
    return iwelbo(log_weight)


def miss_svae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate the ELBO by draws of each component, eq. (5) of the paper.

    Parameters and returned values are those of `miss_vae`, with ``n_draws`` of each
    component of the posterior, a mixture.
    """
    q = posterior(x, observed)
    z = _strata(q, uniforms, x, n_draws)
    log_weight = log_joint(model, x, observed, z) - frozen(q).log_prob(z)
    return stratified_elbo(q.log_weights.movedim(-1, 0), log_weight)


def miss_siwae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate the importance-weighted bound by components, eq. (8) of the paper.

    Its gradient is the standard one: that of a frozen q is biased.  Parameters and
    returned values are those of `miss_svae`.
    """
    q = posterior(x, observed)
    z = _strata(q, uniforms, x, n_draws)
    log_weight = log_joint(model, x, observed, z) - q.log_prob(z)
    return stratified_iwelbo(q.log_weights.movedim(-1, 0), log_weight)


BOUNDS: dict[str, Bound] = {
    "mvae": miss_vae,
    "miss-vae": miss_vae,
    "miss-svae": miss_svae,
    "miwae": miss_iwae,
    "miss-iwae": miss_iwae,
    "miss-siwae": miss_siwae,
}


def _strata(q: Distribution, uniforms: Uniforms, x: Tensor, n_draws: int) -> Tensor:
    """Draw from each component; (components, n_draws, *rows, latents)."""
    if not hasattr(q, "components"):
        raise TypeError(
            "Stratified bounds require a mixture, and the posterior returns "
            f"{type(q).__name__}. Use a mixture, or the bound of MVAE or MIWAE."
        )
    return rsample_latents(q.components(), uniforms, n_draws, x).movedim(-2, 0)


# ----------------------------------------
# Variational Gibbs objectives of models with latents: two blocks, or one.
#
# For a completed row x~ = (x_obs, x~_mis) with latents z~, the blocks are the latents
# and the missing cells; each is drawn given the other,
#
#     A = E_q(z | x~) [log p(x~, z) - log q(z | x~)]
#     B = E_q(x_mis | z~, x_obs) [log p(x_obs, x_mis, z~)] + H(q(x_mis | z~, x_obs))
#     J = (A + B) / 2                                                               (13)
#
# VBGI-VAE maximises J.  A is a bound of log p(x~), B of log p(x_obs, z~); x~ and z~
# are the state of a chain and have no gradient.  If they are draws of p(x_mis, z |
# x_obs) and q(z | x) and q(x_mis | z, x_obs) are exact, the gradients of A and of B
# in the model are on average that of log p(x_obs).  VBGI-VAE-M leaves the missing
# cells out of the likelihood,
#
#     J_M = E_q(z | x~) [log p(x_obs, z) - log q(z | x~)]
#
# which is a bound of log p(x_obs), for any x~.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, sections 3.4 and 5.3: J is eq. (13) for an
# autoencoder, in section 5.3, where J_M is, too.


def vbgi(
    model: LatentVariableModel,
    posterior: LatentPosterior,  # q(z | x) of complete rows
    cells: LatentCells,  # with reparametrised draws
    x: Tensor,  # (*batch, features): completed rows
    z: Tensor,  # (*batch, latents)
    observed: Tensor,  # bool that broadcasts to (*batch, features)
    uniforms: Uniforms,  # called once
) -> Tensor:  # (*batch,)
    """Estimate J, eq. (13), by one draw of each block."""
    latents = of_latents(model, posterior, x, uniforms)
    return (latents + of_cells(model, cells, x, z, observed)) / 2


def of_cells(
    model: LatentVariableModel,
    cells: LatentCells,
    x: Tensor,
    z: Tensor,
    observed: Tensor,
) -> Tensor:
    """Estimate B, a term of eq. (13), by one draw of the missing cells.

    Parameters and returned values are those of `vbgi`; only the observed cells of x are
    used.
    """
    q = cells(x, observed, z)
    draws = q.rsample()
    moved = x.where(observed, draws)
    total = entropy(q, draws).where(~observed, x.new_zeros(())).sum(-1)
    return log_joint(model, moved, torch.ones_like(moved).bool(), z) + total


def of_latents(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate A, a term of eq. (13), by draws of the latents; see `vbgi_marginal`."""
    everything = torch.ones_like(x, dtype=torch.bool)
    return vbgi_marginal(model, posterior, x, everything, uniforms, n_draws)


def vbgi_marginal(
    model: LatentVariableModel,
    posterior: LatentPosterior,  # q(z | x) of complete rows
    # (*batch, features): completed rows: the posterior uses all cells, the likelihood
    # the observed ones
    x: Tensor,
    observed: Tensor,  # bool that broadcasts to (*batch, features)
    uniforms: Uniforms,  # called once
    n_draws: int = 1,  # number of draws of each row
) -> Tensor:  # (*batch,)
    """Estimate J_M, the objective of VBGI-VAE-M in section 5.3, by draws of latents."""
    q = posterior(x, torch.ones_like(x, dtype=torch.bool))
    return drawn_elbo(model, q, x, observed, uniforms, n_draws)


# ----------------------------------------
# DeMissVAE: one objective for the model, another for the posterior of completed rows.
#
# With imputations x_mis^k of a row, k = 1..K, and z^k a draw of q(z | x_obs,
# x_mis^k),
#
#     L_theta = mean_k log p(x_obs, z^k)                             (10), in the model
#     L_phi = mean_k [log p(x_obs, x_mis^k, z^k) - log q(z^k | x_obs, x_mis^k)]     (12)
#
# The model does not learn from imputations, and the posterior is only used for
# complete rows, for which it often has a single mode.
#
# Two controls train both by one objective.  CVI-VAE maximises L_theta with the
# entropy of the posterior averaged over the imputations, a bound of log p(x_obs),
#
#     mean_k [log p(x_obs, z^k) - log (1/K) sum_l q(z^k | x_obs, x_mis^l)]          (10)
#
# and MVB-VAE maximises eq. (12), the ELBO of completed rows.
#
# Simkus and Gutmann (2024), Improving variational autoencoder estimation from
# incomplete data with mixture variational families, section 4.2; algorithm 1, appendix
# C and figure 6 for the controls; Roeder, Wu and Duvenaud (2017) for the gradient of
# log q.


def demiss_vae(
    model: LatentVariableModel,
    posterior: LatentPosterior,  # q(z | x) of complete rows
    x: Tensor,  # (n_imputations, *rows, features): completed rows
    observed: Tensor,  # bool (*rows, features)
    uniforms: Uniforms,  # called once
    n_draws: int = 1,  # number of draws of each completed row
) -> Tensor:  # (*rows,)
    """Estimate a bound whose gradient is that of eq. (10) in the model, (12) in q.

    The value is eq. (10) with the entropy of q averaged over the imputations: a lower
    bound of log p(x_obs) on average.  The decoder is evaluated once.
    """
    everything = torch.ones_like(x, dtype=torch.bool)
    q = posterior(x, everything)
    z = rsample_latents(q, uniforms, n_draws, x)
    # the slope needs a graph even if the caller has turned gradients off
    with torch.enable_grad():
        fixed = z.detach().requires_grad_()  # the model has no gradient through q
        cells, log_prior = model.likelihood(fixed), model.prior().log_prob(fixed)
        completed = observed_log_prob(cells, x, everything) + log_prior
        # the graph of the cells is used again in `joint`
        (slope,) = torch.autograd.grad(completed.sum(), fixed, retain_graph=True)
    joint = observed_log_prob(cells, x, observed) + log_prior
    with torch.no_grad():
        log_mixture = averaged_log_prob(q, z)
    return _steered(joint - log_mixture, q, z, slope).mean((0, 1))


def cvi_vae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate eq. (10), with its gradient in the model and in q.

    Parameters and returned values are those of `demiss_vae`, with which the values
    agree.
    """
    q = posterior(x, torch.ones_like(x, dtype=torch.bool))
    z = rsample_latents(q, uniforms, n_draws, x)
    joint = log_joint(model, x, observed, z)
    return (joint - averaged_log_prob(frozen(q), z)).mean((0, 1))


def mvb_vae(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Estimate eq. (12), with its gradient in the model and in q.

    Parameters and returned values are those of `demiss_vae`, but `observed` is not
    used: the model learns from imputations as from observed cells.
    """
    return of_latents(model, posterior, x, uniforms, n_draws).mean(0)


COMPLETED_BOUNDS: dict[str, Callable[..., Tensor]] = {
    "demiss-vae": demiss_vae,
    "cvi-vae": cvi_vae,
    "mvb-vae": mvb_vae,
}


def posterior_only(
    model: LatentVariableModel,
    posterior: LatentPosterior,
    x: Tensor,
    observed: Tensor,
    uniforms: Uniforms,
    n_draws: int = 1,
) -> Tensor:
    """Compute zeros with the gradient of the ELBO in the posterior, not in the model.

    This trains an encoder of rows with missing values for a model that is trained by
    another objective.  Parameters and returned values are those of
    `skvnce.autoencoder.losses.miss_vae`.
    """
    q = posterior(x, observed)
    z = rsample_latents(q, uniforms, n_draws, x)
    # the slope needs a graph even if the caller has turned gradients off
    with torch.enable_grad():
        fixed = z.detach().requires_grad_()
        total = log_joint(model, x, observed, fixed).sum()
        (slope,) = torch.autograd.grad(total, fixed)
    return _steered(0.0, q, z, slope).mean(0)


def _steered(
    value: Tensor | float, q: Distribution, z: Tensor, slope: Tensor
) -> Tensor:
    """Add zeros with the gradient of eq. (12) in q: that of the model at fixed leaves.

    Draws z of q are of shape (n_draws, *batch, latents), values (n_draws, *batch).
    """
    toward = (z * slope).sum(-1) - frozen(q).log_prob(z)
    return value + toward - toward.detach()


def averaged_log_prob(q: Distribution, z: Tensor) -> Tensor:
    """Compute log q(z | x_obs) of q averaged over imputations, eq. (9) of the paper.

    `q` (batch shape (n_imputations, *rows)), `z` (n_draws, n_imputations, *rows,
    latents).  Returns (n_draws, n_imputations, *rows).
    """
    every = q.log_prob(z.unsqueeze(2))  # (n_draws, n_imputations, of q, *rows)
    return torch.logsumexp(every, 2) - log(every.shape[2])


# ----------------------------------------
# Gibbs sampling of latents and missing cells in two blocks, both variational.
#
# `pseudo_gibbs` draws the cells from the model itself, as in VBGI-VAE-M.  This
# sampler draws them from q(x_mis | z, x_obs), which also depends on the observed
# cells.  It is exact if both conditionals are.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, sections 3.4 and 5.3.


def variational_block_gibbs(
    model: LatentVariableModel,  # used only to start the chains
    posterior: LatentPosterior,
    cells: LatentCells,
    *,
    # number of chains that start from unconditional draws.  `init` also accepts tables,
    # and latents (*chains, n, latents), which otherwise come from the prior
    n_chains: int = 1,
    # called once a step.  Numbers keyed by the row must have a seed of their own
    uniforms: Uniforms = global_stream,
) -> Sampler[LatentState, Info]:
    """Build a sampler that draws z ~ q(z | x), then x_mis ~ q(x_mis | z, x_obs)."""

    @torch.no_grad()
    def init(
        data: Incomplete, x: Tensor | None = None, z: Tensor | None = None
    ) -> LatentState:
        chains = (n_chains,) if x is None else x.shape[:-2]
        if x is None or z is None:
            u_z, u_x, _ = columns(uniforms, 0, model, data, chains)
            prior_z, prior_x = unconditional(model, data, u_z, u_x)
            x, z = prior_x if x is None else x, prior_z if z is None else z
        return LatentState(data.with_values(x), z)

    @torch.no_grad()
    def step(state: LatentState, data: Incomplete) -> tuple[LatentState, Info]:
        chains, number = state.x.shape[:-2], state.step + FIRST
        u_z, u_x, _ = columns(uniforms, number, model, data, chains)
        z = draw(encode(posterior, state.x), u_z)
        visible = data.x.expand(state.x.shape)
        x = at_quantiles(cells(visible, data.observed, z), u_x)
        return LatentState(data.with_values(x), z, state.step + 1), Info()

    return Sampler(init, step)


# ----------------------------------------
# Variational block-Gibbs inference: models with latents, rows with missing values.
#
# Each row has several completions, chains that continue from one visit of the row to
# the next.  A visit updates them by a sweep of draws of latents and missing cells, and
# a gradient step then increases the objective at their new state.  During a warm-up the
# chains do not move.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, sections 3.4 and 5.3, algorithm 1.


class Scheme(NamedTuple):
    """The parts to train, the sampler of the chains, and the objective."""

    parts: nn.ModuleDict
    sampler: Sampler  # its states begin with the persistent tensors
    # maps (observed, *persistent tensors) to bounds (n_chains, n)
    bound: Callable[..., Tensor]
    n_persistent: int  # 1 if tables persist, 2 if their latents do, too


def block_scheme(
    model: nn.Module,
    posterior: nn.Module,
    cells: nn.Module,
    completed: Callable[[nn.Module, Tensor], LatentVariableModel] = lambda model, _: (
        model
    ),
) -> Scheme:
    """Make VBGI-VAE of a model, q(z | x) and q(x_mis | z, x_obs).

    `completed`: maps the model and a mask of observed cells to the model of completed
    rows, if their missing cells have another density than the observed cells.
    """

    def bound(observed: Tensor, x: Tensor, z: Tensor) -> Tensor:
        of_rows = completed(model, observed)
        return vbgi(of_rows, posterior, cells, x, z, observed, global_stream)

    parts = nn.ModuleDict({"model": model, "posterior": posterior, "cells": cells})
    return Scheme(parts, variational_block_gibbs(model, posterior, cells), bound, 2)


def marginal_scheme(model: nn.Module, posterior: nn.Module) -> Scheme:
    """Make VBGI-VAE-M of a model and q(z | x); the model draws missing cells."""
    return Scheme(
        nn.ModuleDict({"model": model, "posterior": posterior}),
        pseudo_gibbs(model, posterior),
        lambda observed, x: vbgi_marginal(model, posterior, x, observed, global_stream),
        1,
    )


class BlockChains:
    """Completed tables of all rows, and their latents, which a visit updates.

    `start`: the initial persistent tensors.  Of completed tables (n_chains, n,
    features), only the missing cells are used; latents (n_chains, n, latents) are drawn
    from the prior if they are not given.  `now` (list of Tensor): the current
    persistent tensors.
    """

    def __init__(self, scheme: Scheme, data: Incomplete, *start: Tensor) -> None:
        self.data, self.sampler = data, scheme.sampler
        state = scheme.sampler.init(data, *start)
        self.now = list(state[: scheme.n_persistent])

    def take(self, rows: Tensor) -> list[Tensor]:
        """Return the persistent tensors of some rows."""
        return [value[:, rows] for value in self.now]

    def move(self, rows: Tensor, n_sweeps: int) -> list[Tensor]:
        """Make sweeps of some rows; store and return the new states."""
        part = self.data.take(rows)
        state = self.sampler.init(part, *self.take(rows))
        for _ in range(n_sweeps):
            state, _ = self.sampler.step(state, part)
        # states have further fields, which do not persist
        for value, moved in zip(self.now, state, strict=False):
            value[:, rows] = moved
        return self.take(rows)


def visit_loss(
    scheme: Scheme, chains: BlockChains, n_sweeps: int
) -> Callable[[Tensor], Tensor]:
    """Make the loss of a visit: update the chains of rows, then minus their bound."""

    def loss(rows: Tensor) -> Tensor:
        state = chains.move(rows, n_sweeps) if n_sweeps else chains.take(rows)
        return -scheme.bound(chains.data.observed[rows], *state).mean()

    return loss


# ----------------------------------------
# The importance-weighted bound of the default autoencoder, and its gradient, in full.
#
# With draws e_i of a standard normal and the encoder of
# `skvnce.autoencoder.networks`,
#
#     v_i = shift + exp(s) e_i,   z_i = m + R v_i                                    (a)
#     log w_i = sum_{j observed} log p(x_j | z_i) - |z_i|^2 / 2
#               + |e_i|^2 / 2 + sum_k s_k + log det R                                (b)
#     bound = log (1/I) sum_i w_i                                                    (c)
#
# and share_i = w_i / sum_l w_l, the gradients in the model's parameters and, doubly
# reparametrised, in those of the encoder are
#
#     sum_i share_i d log p(x_obs, z_i) / d theta                                    (d)
#     sum_i share_i^2 d v_i / d phi [R' d log p(x_obs, z_i) / d z_i + e_i / exp(s)]  (e)
#
# These are value and gradients of `skvnce.autoencoder.losses.miss_iwae`, by a third
# of its operations: the tables of a batch are small, so that most of the time of
# autograd is spent between operations.
#
# Mattei and Frellsen (2019), MIWAE; Tucker, Lawson, Gu and Maddison (2019), Doubly
# reparameterized gradient estimators for Monte Carlo objectives, eq. (8), here (e).


def is_written_out(batches: Batches) -> bool:
    """Return whether `WeightedBound` computes the bound of an autoencoder."""
    return (
        batches.auto.posterior.n_components == 1
        and batches.anchor is not None
        and batches.cells is not None
        and all(
            leaf.requires_grad for part in batches.auto for leaf in part.parameters()
        )
    )


class WeightedBound:
    """The mean of (c) over rows, with the opposite sign, as a loss.

    `graph`: the same loss of rows, by autograd.  `batches`: see `is_written_out`.
    `n_draws`: I.
    """

    def __init__(
        self, graph: Callable[[Tensor], Tensor], batches: Batches, n_draws: int
    ) -> None:
        self._graph, self._n_draws = graph, n_draws
        self._model, self._posterior = batches.auto
        anchor, observed = batches.anchor, batches.data.observed
        inputs = self._posterior.inputs_of(anchor, observed)
        log_det = anchor.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        self._anchors = inputs, anchor.mean, anchor.root, log_det
        self._cells = batches.cells.centred(observed)

    def __call__(self, rows: Tensor) -> Tensor:
        """Compute the loss of some rows by autograd."""
        return self._graph(rows)

    @torch.no_grad()
    def differentiate(self, rows: Tensor) -> Tensor:
        """Compute the loss of some rows, and set the gradients of all parameters."""
        inputs, mean, root, log_det = (
            part.index_select(0, rows) for part in self._anchors
        )
        shift, log_scale, encoded = self._posterior.encode(inputs)
        e, scale = self._noise(mean), log_scale.exp()
        z = _turn(root, torch.addcmul(shift, scale, e)).add_(mean)  # (a)
        *cells, decoded = self._model.decode(z)
        log_prob, *slopes = sum_and_slopes(*cells, self._cells.take(rows))
        apart = e.square().addcmul_(z, z, value=-1.0).sum(-1)
        of_row = log_scale.sum(-1).add_(log_det)
        log_weight = log_prob.add_(apart, alpha=0.5).add_(of_row)  # (b)
        log_share = log_weight.log_softmax(0)
        value = log(self._n_draws) - (log_weight - log_share).mean()
        least = torch.finfo(z.dtype).eps  # products of denormal numbers are slow
        share = threshold(log_share.exp_(), least, 0.0).unsqueeze(-1)
        # minus, because the loss is the negative mean over rows
        weight = share / -len(rows)
        slopes = (slope.mul_(weight) for slope in slopes)
        by_z = self._model.differentiate(decoded, *slopes)  # (d)
        by_v = _turn(root.mT, by_z.addcmul_(weight, z, value=-1.0))
        by_v.addcmul_(weight / scale, e).mul_(share)  # (e)
        by_log_scale = (by_v * e).sum(0).mul_(scale)
        self._posterior.differentiate(encoded, by_v.sum(0), by_log_scale)
        return value

    def _noise(self, mean: Tensor) -> Tensor:
        """Draw e; (n_draws, n, latents)."""
        n, k = mean.shape
        uniform = global_stream(0, mean.new_empty(()).expand(self._n_draws, n, k + 1))
        centred = inside(uniform[..., :-1]).mul_(2.0).sub_(1.0)
        return centred.erfinv_().mul_(sqrt(2.0))  # a quarter of the time of `ndtri`


def _turn(root: Tensor, v: Tensor) -> Tensor:
    """Multiply by matrices (n, k, k) of the rows; v of shape (n_draws, n, k)."""
    turned = torch.bmm(v.transpose(0, 1), root.mT)
    return turned.transpose(0, 1).contiguous()


# ----------------------------------------
# Algorithms that train a variational autoencoder, by name: losses of batches of rows.
#
# The bounds of `skvnce.autoencoder.losses` take rows with missing values.  The other
# algorithms complete the rows by chains or particles, which continue from one visit of
# a row to the next and are updated before each gradient step:
#
#     DeMissVAE, CVI-VAE, MVB-VAE     by an iteration of LAIR
#     VBGI-VAE                        z ~ q(z | x~), x_mis ~ q(x_mis | z, x_obs)
#     VBGI-VAE-M                      z ~ q(z | x~), x_mis ~ p(x_mis | z)
#
# They start at draws of the encoder given the rows with missing values, on which the
# encoder is also trained: its ELBO has no gradient in the model.
#
# Simkus and Gutmann (2024), Improving variational autoencoder estimation from
# incomplete data with mixture variational families, table 1 and algorithm 1
# (DeMissVAE); Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for
# statistical model estimation from incomplete data, section 5.3 (VBGI).


Loss = Callable[[Tensor], Tensor]  # the mean loss of rows
Parts = Mapping[str, nn.Module]


class Algorithm(NamedTuple):
    """How an autoencoder is trained."""

    # (auto, parts, data, training) to the loss of rows
    loss: Callable[[Autoencoder, Parts, Incomplete, Training], Loss]
    # makes the further modules to train, of the autoencoder at its start and a function
    # that makes networks (n_inputs, n_outputs=)
    parts: Callable[[Autoencoder, Callable[..., nn.Module]], Parts] = lambda *_: (
        NO_PARTS
    )
    mixture: bool = False  # whether the posterior may be a mixture


def bound_loss(
    bound: Bound, auto: Autoencoder, parts: Parts, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of a bound that takes rows with missing values."""
    batches = Batches(auto, data)

    def loss(rows: Tensor) -> Tensor:
        parts, part = batches.of(rows)
        return -bound(*parts, *part, global_stream, training.n_draws).mean()

    if bound is miss_iwae and is_written_out(batches):
        return WeightedBound(loss, batches, training.n_draws)
    return loss


def particle_loss(
    bound: Bound, auto: Autoencoder, parts: Parts, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of a bound that takes rows completed by LAIR."""
    scheme = Scheme(
        nn.ModuleDict(),
        completing(auto, training.n_draws),
        lambda observed, x: bound(*auto, x, observed, global_stream),
        1,
    )
    return completed_loss(scheme, auto, data, training)


def completing(auto: Autoencoder, n_particles: int) -> Sampler:
    """Build the sampler of DeMissVAE and its controls: LAIR.

    As many proposals as from completed rows come from encodings of the rows with
    missing values.  With many latents, the former alone would hardly move.
    """
    return lair(
        *auto,
        n_particles=n_particles,
        n_replenish=n_particles,
        replenish=lambda part: auto.posterior(*part),
    )


def pseudo_gibbs_loss(
    auto: Autoencoder, parts: Parts, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of VBGI-VAE-M."""
    return completed_loss(marginal_scheme(*auto), auto, data, training)


def block_gibbs_loss(
    auto: Autoencoder, parts: Parts, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of VBGI-VAE, with q(x_mis | z, x_obs) in `parts`."""
    scheme = block_scheme(*auto, parts["cells"], completed=completed_model)
    view = partial(ScoredCells, observed=data.observed)
    return completed_loss(scheme, auto, data, training, view)


def completed_model(model: VariationalAutoencoderModel, observed: Tensor) -> WithCells:
    """Return the model of completed rows, whose missing cells are not rounded."""
    return WithCells(model, partial(ScoredCells, observed=observed))


def missing_cells(auto: Autoencoder, network: Callable[..., nn.Module]) -> Parts:
    """Make q(x_mis | z, x_obs), which starts at p(x_mis | z) of the linear model."""
    model = auto.model
    (d, k), origin = model.loadings.shape, model.origin
    with torch.no_grad():
        scale = model.likelihood(origin).scale
    linear = model.mean, model.loadings, scale
    cells = AnchoredLatentCells(*linear, network(2 * d + k, n_outputs=2 * d).to(scale))
    return {"cells": cells}


def completed_loss(
    # its sampler makes one step of the rows of a batch, without dropout
    scheme: Scheme,
    auto: Autoencoder,
    data: Incomplete,
    training: Training,  # with as many completions of each row as draws
    # maps the distribution of the cells given latents to that of the initial
    # completions
    view: Callable[[Distribution], Distribution] = lambda cells: cells,
) -> Loss:
    """Make the loss of a scheme on completed rows, and of the encoder on incomplete."""
    start = initial(auto, data, training.n_draws, view)[: scheme.n_persistent]
    modules = [*auto, *scheme.parts.values()]
    steady = scheme._replace(sampler=without_dropout(scheme.sampler, modules))
    visit = visit_loss(steady, BlockChains(steady, data, *start), 1)

    def loss(rows: Tensor) -> Tensor:
        encoder = posterior_only(*auto, *data.take(rows), global_stream)
        return visit(rows) - encoder.mean()

    return loss


@torch.no_grad()
def initial(
    auto: Autoencoder,
    data: Incomplete,
    n_chains: int,
    view: Callable[[Distribution], Distribution],
) -> tuple[Tensor, Tensor]:
    """Complete rows by draws of the encoder; (n_chains, n, features or latents)."""
    z = draw_latents(auto.posterior(*data), global_stream, n_chains, data.x)
    cells = view(auto.model.likelihood(z))
    x = at_quantiles(cells, torch.rand(z.shape[:-1] + data.x.shape[-1:]).to(z))
    return data.with_values(x), z


def without_dropout(
    sampler: Sampler[StateT, InfoT], modules: list[nn.Module]
) -> Sampler[StateT, InfoT]:
    """Turn off dropout in the steps of a sampler."""

    def step(state: StateT, data: Incomplete) -> tuple[StateT, InfoT]:
        before = [module.training for module in modules]
        for module in modules:
            module.eval()
        result = sampler.step(state, data)
        for module, training in zip(modules, before, strict=True):
            module.train(training)
        return result

    return Sampler(sampler.init, step)


def encoder_loss(
    name: str, auto: Autoencoder, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of the encoder alone on rows with missing values.

    It is the bound of an algorithm, or MIWAE's for those that complete rows.
    """
    # only the encoder is trained, for the model as it is used
    auto.model.requires_grad_(False).eval()
    bound = BOUNDS.get(name, BOUNDS["miwae"])
    return bound_loss(bound, auto, NO_PARTS, data, training)


def _of_bounds(
    loss: Callable[..., Loss], bounds: Mapping[str, Bound]
) -> dict[str, Algorithm]:
    return {
        name: Algorithm(partial(loss, bound), mixture=name.startswith("miss-"))
        for name, bound in bounds.items()
    }


ALGORITHMS: dict[str, Algorithm] = {
    **_of_bounds(bound_loss, BOUNDS),
    **_of_bounds(particle_loss, COMPLETED_BOUNDS),
    "vbgi-vae": Algorithm(block_gibbs_loss, missing_cells),
    "vbgi-vae-m": Algorithm(pseudo_gibbs_loss),
}


# ----------------------------------------
# Rounds of training of an autoencoder, with and without held-out cells.


class Rounds:
    """The training of an autoencoder on the observed cells of a table.

    `parts` (mapping of str to nn.Module): further modules that the algorithm trains.
    """

    def __init__(
        self,
        auto: Autoencoder,  # at the linear model
        data: Incomplete,  # all observed cells, in the precision of the autoencoder
        weights: Tensor,  # (n,): weights of the rows
        algorithm: Algorithm,
        training: Training,
        architecture: Architecture,  # of further networks
    ) -> None:
        self.auto, self.data, self.weights = auto, data, weights
        self.algorithm, self.training = algorithm, training
        hidden, dropout, _ = architecture
        network = partial(ResidualPerceptron, hidden=hidden, dropout=dropout)
        self.parts = algorithm.parts(auto, network)

    def while_better(
        self,
        hidden: Tensor,
        *,
        max_rounds: int,
        patience: int,
        on_round: Callable[[int, float, float], bool],
    ) -> int:
        """Train while held-out cells are predicted better; see `rounds`.

        `hidden` (bool (n, features)): which are held out.  `patience`: number of
        successive rounds without an improvement after which it stops.  `on_round` is
        called with the round, its loss and the gain per row; stops by returning True.
        """
        visible = Incomplete(self.data.x, self.data.observed & ~hidden)
        train = partial(self._trainer(visible), n_rounds=max_rounds)
        rows = hidden.any(1).nonzero().squeeze(1)
        if not len(rows):
            return 0
        part, held_out = self.data.take(rows), hidden[rows]
        chosen = self.weights[rows.to(self.weights.device)]
        shares = (chosen / chosen.sum()).to(part.x)
        return rounds.train_while_better(
            [*self.auto, *self.parts.values()],
            patience,
            lambda modules: (
                vae.HeldOut(Autoencoder(*modules[:2]), part, held_out).log_prob
            ),
            lambda gains: shares @ gains,
            train,
            on_round,
            self.training.averaged,
        )

    def on_all(
        self, n_rounds: int, n_cooling: int, on_round: Callable[[int, float], bool]
    ) -> list[float]:
        """Train on all cells; see `vae.train`."""
        train = self._trainer(self.data)
        return train(n_rounds=n_rounds, n_cooling=n_cooling, on_round=on_round)

    def _trainer(self, data: Incomplete) -> Callable[..., list[float]]:
        """Prepare `vae.train` on some of the observed cells."""
        # with completions of its own
        loss = self.algorithm.loss(self.auto, self.parts, data, self.training)
        return partial(
            vae.train, self.auto, loss, self.weights, self.training, parts=self.parts
        )
