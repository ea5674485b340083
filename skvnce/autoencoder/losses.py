"""Algorithms that train a variational autoencoder, by name: losses of batches of rows.

The bounds of `skvnce.autoencoder.bounds` take rows with missing values.  The other
algorithms complete the rows by chains or particles, which continue from one visit of a
row to the next and are updated before each gradient step:

    DeMissVAE, CVI-VAE, MVB-VAE     by an iteration of LAIR
    VBGI-VAE                        z ~ q(z | x~), x_mis ~ q(x_mis | z, x_obs)
    VBGI-VAE-M                      z ~ q(z | x~), x_mis ~ p(x_mis | z)

They start at draws of the encoder given the rows with missing values, on which the
encoder is also trained: its ELBO has no gradient in the model.

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families, table 1 and algorithm 1 (DeMissVAE); Simkus,
Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model estimation
from incomplete data, section 5.3 (VBGI).
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import log, sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent
from torch.nn.functional import threshold

from skvnce._core.distributions.cells import ScoredCells, sum_and_slopes
from skvnce._core.distributions.functions import at_quantiles, inside
from skvnce._core.incomplete import Incomplete
from skvnce._core.posteriors import draw_latents, global_stream
from skvnce._core.samplers import InfoT, Sampler, StateT
from skvnce.autoencoder import block, vae
from skvnce.autoencoder.bounds import (
    BOUNDS,
    COMPLETED_BOUNDS,
    Bound,
    miss_iwae,
    posterior_only,
)
from skvnce.autoencoder.networks import ResidualPerceptron, VariationalAutoencoderModel
from skvnce.autoencoder.posteriors import AnchoredEncoder, AnchoredLatentCells
from skvnce.autoencoder.samplers import lair
from skvnce.autoencoder.vae import (
    NO_PARTS,
    Architecture,
    Autoencoder,
    Batches,
    Training,
)

# ----------------------------------------
# The importance-weighted bound of the default autoencoder, and its gradient, in full.
#
# With draws e_i of a standard normal and the encoder of
# `skvnce.autoencoder.posteriors`,
#
#     v_i = shift + exp(s) e_i,   z_i = m + R v_i                                    (1)
#     log w_i = sum_{j observed} log p(x_j | z_i) - |z_i|^2 / 2
#               + |e_i|^2 / 2 + sum_k s_k + log det R                                (2)
#     bound = log (1/I) sum_i w_i                                                    (3)
#
# and share_i = w_i / sum_l w_l, the gradients in the model's parameters and, doubly
# reparametrised, in those of the encoder are
#
#     sum_i share_i d log p(x_obs, z_i) / d theta                                    (4)
#     sum_i share_i^2 d v_i / d phi [R' d log p(x_obs, z_i) / d z_i + e_i / exp(s)]  (5)
#
# These are value and gradients of `skvnce.autoencoder.bounds.miss_iwae`, by a third
# of its operations: the tables of a batch are small, so that most of the time of
# autograd is spent between operations.
#
# Mattei and Frellsen (2019), MIWAE; Tucker, Lawson, Gu and Maddison (2019), Doubly
# reparameterized gradient estimators for Monte Carlo objectives, eq. (8), here (5).


def is_written_out(batches: Batches) -> bool:
    """Return whether `WeightedBound` computes the bound of an autoencoder."""
    model, posterior = batches.auto
    return (
        isinstance(model, VariationalAutoencoderModel)
        and isinstance(posterior, AnchoredEncoder)
        and posterior.n_components == 1
        and all(isinstance(part.network, ResidualPerceptron) for part in batches.auto)
        and batches.anchor is not None
        and batches.cells is not None
        and all(
            leaf.requires_grad for part in batches.auto for leaf in part.parameters()
        )
    )


class WeightedBound:
    """The mean of eq. (3) over rows, with the opposite sign, as a loss.

    `graph`: the same loss of rows, by autograd.  `batches`: see `is_written_out`.
    `n_draws`: I.
    """

    def __init__(
        self, graph: Callable[[Tensor], Tensor], batches: Batches, n_draws: int
    ) -> None:
        self._graph, self._n_draws = graph, n_draws
        self._model, self._posterior = batches.auto
        anchor, observed = batches.anchor, batches.data.observed
        seen = self._posterior.seen(anchor, observed)
        log_det = anchor.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        self._anchors = seen, anchor.mean, anchor.root, log_det
        self._cells = batches.cells.centred(observed)

    def __call__(self, rows: Tensor) -> Tensor:
        """Compute the loss of some rows by autograd."""
        return self._graph(rows)

    @torch.no_grad()
    def differentiate(self, rows: Tensor) -> Tensor:
        """Compute the loss of some rows, and set the gradients of all parameters."""
        seen, mean, root, log_det = (
            part.index_select(0, rows) for part in self._anchors
        )
        shift, log_scale, encoded = self._posterior.encode(seen)
        e, scale = self._noise(mean), log_scale.exp()
        z = _turned(root, torch.addcmul(shift, scale, e)).add_(mean)  # eq. (1)
        *cells, decoded = self._model.decode(z)
        log_prob, *slopes = sum_and_slopes(*cells, self._cells.take(rows))
        apart = e.square().addcmul_(z, z, value=-1.0).sum(-1)
        of_row = log_scale.sum(-1).add_(log_det)
        log_weight = log_prob.add_(apart, alpha=0.5).add_(of_row)  # eq. (2)
        log_share = log_weight.log_softmax(0)
        value = log(self._n_draws) - (log_weight - log_share).mean()
        least = torch.finfo(z.dtype).eps  # products of denormal numbers are slow
        share = threshold(log_share.exp_(), least, 0.0).unsqueeze(-1)
        # minus, because the loss is the negative mean over rows
        weight = share / -len(rows)
        slopes = (slope.mul_(weight) for slope in slopes)
        by_z = self._model.differentiate(decoded, *slopes)  # eq. (4)
        by_v = _turned(root.mT, by_z.addcmul_(weight, z, value=-1.0))
        by_v.addcmul_(weight / scale, e).mul_(share)  # eq. (5)
        by_log_scale = (by_v * e).sum(0).mul_(scale)
        self._posterior.differentiate(encoded, by_v.sum(0), by_log_scale)
        return value

    def _noise(self, mean: Tensor) -> Tensor:
        """Draw e; (n_draws, n, latents)."""
        n, k = mean.shape
        uniform = global_stream(0, mean.new_empty(()).expand(self._n_draws, n, k + 1))
        centred = inside(uniform[..., :-1]).mul_(2.0).sub_(1.0)
        return centred.erfinv_().mul_(sqrt(2.0))  # a quarter of the time of `ndtri`


def _turned(root: Tensor, v: Tensor) -> Tensor:
    """Multiply by matrices (n, k, k) of the rows; v of shape (n_draws, n, k)."""
    found = torch.bmm(v.transpose(0, 1), root.mT)
    return found.transpose(0, 1).contiguous()


# ----------------------------------------
# An autoencoder's model of completed rows, whose missing cells are not rounded.


class Completed(NamedTuple):
    """The model of completed rows, whose missing cells are not rounded."""

    model: VariationalAutoencoderModel
    observed: Tensor  # bool that broadcasts to (*batch, features)

    def prior(self) -> Independent:
        """Return p(z), of event shape (latents,)."""
        return self.model.prior()

    def likelihood(self, z: Tensor) -> ScoredCells:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        return ScoredCells(self.model.likelihood(z), self.observed)


# ----------------------------------------
# Algorithms that train a variational autoencoder, by name: losses of batches of rows.


Loss = Callable[[Tensor], Tensor]  # the mean loss of rows
Parts = Mapping[str, nn.Module]


class Algorithm(NamedTuple):
    """How an autoencoder is trained.

    `parts`: makes what is trained besides model and encoder, given the autoencoder at
    its start and a function that makes networks (n_inputs, n_outputs=).
    """

    # (auto, parts, data, training) to the loss of rows
    loss: Callable[[Autoencoder, Parts, Incomplete, Training], Loss]
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
    scheme = block.Scheme(
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
    return completed_loss(block.marginal_scheme(*auto), auto, data, training)


def block_gibbs_loss(
    auto: Autoencoder, parts: Parts, data: Incomplete, training: Training
) -> Loss:
    """Make the loss of VBGI-VAE, with q(x_mis | z, x_obs) in `parts`."""
    scheme = block.block_scheme(*auto, parts["cells"], completed=Completed)
    view = partial(ScoredCells, observed=data.observed)
    return completed_loss(scheme, auto, data, training, view)


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
    scheme: block.Scheme,
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
    visit = block.visit_loss(steady, block.BlockChains(steady, data, *start), 1)

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
        found = sampler.step(state, data)
        for module, training in zip(modules, before, strict=True):
            module.train(training)
        return found

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

    `parts` (mapping of str to nn.Module): what the algorithm trains besides model and
    encoder.
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
        """Train without held-out cells; see `autoencoder.train_while_better`."""
        kept = Incomplete(self.data.x, self.data.observed & ~hidden)
        return vae.train_while_better(
            self.auto,
            self._loss(kept),
            self.data,
            hidden,
            self.weights,
            self.training,
            max_rounds=max_rounds,
            patience=patience,
            on_round=on_round,
            parts=self.parts,
        )

    def on_all(
        self, n_rounds: int, n_cooling: int, on_round: Callable[[int, float], bool]
    ) -> list[float]:
        """Train on all cells; see `autoencoder.train`."""
        return vae.train(
            self.auto,
            self._loss(self.data),
            self.weights,
            self.training,
            n_rounds=n_rounds,
            n_cooling=n_cooling,
            on_round=on_round,
            parts=self.parts,
        )

    def _loss(self, data: Incomplete) -> Loss:
        """Make the loss on some of the observed cells, with completions of its own."""
        return self.algorithm.loss(self.auto, self.parts, data, self.training)
