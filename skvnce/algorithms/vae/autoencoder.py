"""Variational autoencoders of rows with missing values, initialised at a linear model.

EM fits a normal distribution, which is converted to factors.  Model and encoder start
at this linear model, with networks whose output is zero, so that the initial bound is
the exact log-likelihood of factor analysis.  `train_while_better` trains on a part of
the observed cells as long as the others are predicted better, `train` on all of them.
The losses are in `skvnce.algorithms.vae.losses`.

Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families; Mattei and Frellsen (2019), MIWAE.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vae.batches import Autoencoder
from skvnce.algorithms.vae.held_out import HeldOut
from skvnce.algorithms.vae.levels import LevelPosterior, anchor_of, sites
from skvnce.distributions import continuous_bernoulli as unit
from skvnce.distributions.cells import Families
from skvnce.models.factor_analysis import FactorModel, infer, infer_complete
from skvnce.models.networks import ResidualPerceptron
from skvnce.models.vae import VariationalAutoencoderModel
from skvnce.objectives.elbo import iwelbo, log_joint, standard_error
from skvnce.samplers.resampling import counted, normalised
from skvnce.training.adam import descend, named_leaves
from skvnce.training.averaging import Averaged
from skvnce.training.best import Best
from skvnce.training.flat_adam import FlatAdam, Schedule
from skvnce.training.rounds import MAX_NORM, cooling_after, rows_of
from skvnce.variational.anchored import Anchor, AnchoredEncoder
from skvnce.variational.base import Uniforms, draw_latents

# without one, the likelihood of cells that are predicted exactly would be infinite
FLOOR = 0.03  # minimum standard deviation of a score given the latents


NO_PARTS: Mapping[str, nn.Module] = {}  # what most algorithms train besides


class Architecture(NamedTuple):
    """Sizes of the networks."""

    hidden: tuple[int, ...]
    dropout: float
    n_components: int  # of the posterior


class LinearPosterior(nn.Module):
    """The anchor of an encoder: exact posteriors of factor analysis."""

    def __init__(self, linear: FactorModel) -> None:
        super().__init__()
        for name, value in linear._asdict().items():
            self.register_buffer(name, value.clone())

    def forward(self, x: Tensor, observed: Tensor) -> Anchor:
        """Infer the latents of rows (*batch, features), in double precision."""
        width = x.shape[-1]
        linear = FactorModel(*(part.double() for part in self.buffers()))
        rows, mask = x.reshape(-1, width).double(), observed.reshape(-1, width)
        if mask.device.type == "cpu" and mask.all():  # else it would wait for it
            return anchor_of(infer_complete(linear, rows), rows, x)
        found = infer(linear, rows, mask)
        filled = rows.where(mask, linear.mean + found.mean @ linear.loadings.T)
        return anchor_of(found, filled, x)


def build(
    linear: FactorModel, families: Families, architecture: Architecture
) -> Autoencoder:
    """Make model and encoder, which start at a linear model.

    The initial weights of the networks come from torch's stream.
    """
    (n_outputs, k), c = linear.loadings.shape, architecture.n_components
    network = partial(
        ResidualPerceptron, hidden=architecture.hidden, dropout=architecture.dropout
    )
    start = as_family(linear, families)
    model = VariationalAutoencoderModel(
        *start,
        network(k, n_outputs=2 * n_outputs),
        families,
        FLOOR,
    )
    infer, width = LinearPosterior(linear), n_outputs
    if families.levels:
        infer = LevelPosterior(linear, families, sites(*start, families))
        width = infer.n_filled
    width += families.n_columns(n_outputs) + k
    encoder = network(width, n_outputs=c * 2 * k + c - 1)
    return Autoencoder(model, AnchoredEncoder(infer, encoder, c, k))


def as_family(linear: FactorModel, families: Families) -> tuple[Tensor, Tensor, Tensor]:
    """Convert means, loadings and deviations of cells to those of their families.

    A binary column of share p and standard deviation s = sqrt(p (1 - p)) gets the
    tangent of its logit at p, a continuous Bernoulli column that at its mean.  Columns
    of categories have latent normal variables instead of cells.
    """
    mean, loadings = linear.mean.clone(), linear.loadings.clone()
    scale = linear.noise_variance.sqrt()
    scale[families.student] /= sqrt(2.0)  # of t with 4 degrees of freedom
    low, high = families.pairs.unbind(-1)
    at, p, s = families.bernoulli, -low / (high - low), 1 / (high - low)
    mean[at] = torch.logit(p) + mean[at] / s
    loadings[at] /= s[:, None]
    at, (low, high) = families.unit, families.ends.to(mean).unbind(-1)
    mean[at] = unit.logit_of((mean[at] - low) / (high - low))
    variance = unit.moments(mean[at])[1]
    loadings[at] /= ((high - low) * variance)[:, None]
    for levels in families.levels:
        levels.scaled((mean, loadings), scale)
    return mean, loadings, scale


class Training(NamedTuple):
    """Settings of the training."""

    n_draws: int  # draws of each row or each component, or imputations of each row
    batch_size: int
    learning_rate: float
    weight_decay: float  # of the networks
    # share of the steps so far that averages span, see `Averaged`
    averaged: float | None = None


def train(
    auto: Autoencoder,
    loss: Callable[[Tensor], Tensor],
    weights: Tensor,
    training: Training,
    *,
    n_rounds: int,
    n_cooling: int = 0,
    on_round: Callable[[int, float], bool] = lambda n_round, loss: False,
    on_step: Callable[[], None] = lambda: None,
    parts: Mapping[str, nn.Module] = NO_PARTS,
) -> list[float]:
    """Train for some rounds, and for some more with a decreasing learning rate.

    Rounds are `STEPS` batches of rows, drawn with replacement in proportion to their
    weights (n,).  `on_step` is called after each.  `parts` are further modules of the
    loss.  Returns mean losses.
    """
    named = named_leaves({**auto._asdict(), **parts})
    rate = training.learning_rate
    networks = [leaf for name, leaf in named if ".network." in name]
    linear = [leaf for name, leaf in named if ".network." not in name]
    optimiser = FlatAdam(
        [
            {"params": networks, "weight_decay": training.weight_decay},
            {"params": linear, "lr": 0.3 * rate},
        ],
        lr=rate,
    )
    return descend(
        loss,
        named,
        lambda: rows_of(weights, training.batch_size, device=named[0][1].device),
        optimiser=optimiser,
        schedule=Schedule(optimiser, cooling_after(n_rounds)),
        max_iter=n_rounds + n_cooling,
        on_epoch=on_round,
        on_step=on_step,
        max_norm=MAX_NORM,
    )


def train_while_better(
    auto: Autoencoder,
    loss: Callable[[Tensor], Tensor],  # of the cells that are not held out
    data: Incomplete,  # all observed cells
    held_out: Tensor,  # bool (n, features)
    weights: Tensor,  # (n,)
    training: Training,
    *,
    max_rounds: int,
    # number of successive rounds without an improvement after which it stops
    patience: int,
    # called with the round, its loss and the gain per row; stops by returning True
    on_round: Callable[[int, float, float], bool],
    # further modules that the loss trains, which are averaged and restored, too
    parts: Mapping[str, nn.Module] = NO_PARTS,
) -> int:
    """Train while held-out cells are predicted better, and restore the best round.

    Averages of the parameters over the last steps are evaluated and kept.  The best
    round is 0, the start, if training does not increase the log predictive density of
    held-out cells, or if there are none.
    """
    rows = held_out.any(1).nonzero().squeeze(1)
    if not len(rows):
        return 0
    part, hidden = data.take(rows), held_out[rows]
    chosen = weights[rows.to(weights.device)]
    shares = (chosen / chosen.sum()).to(data.x)
    averaged = Averaged([*auto, *parts.values()], training.averaged)
    predicted = HeldOut(Autoencoder(*averaged.modules[:2]), part, hidden)
    start = predicted.log_prob()
    best = Best(averaged.modules, patience)

    def record(n_round: int, loss: float) -> bool:
        gains = predicted.log_prob() - start
        gain = float(shares @ gains.clamp(-5.0, 5.0))  # limits the effect of outliers
        stop = best.record(n_round, gain)
        return on_round(n_round, loss, gain) or stop

    shown = {"on_round": record, "on_step": averaged.update, "parts": parts}
    train(auto, loss, weights, training, n_rounds=max_rounds, **shown)
    chosen = best.restore()
    # the best round is one of the averages, which the modules then get
    averaged.replace()
    return chosen


def weigh(
    auto: Autoencoder, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> tuple[Tensor, Tensor]:
    """Draw latents of rows and compute their log-weights.

    Returns `z` (n_draws, n, latents); `log_weight` (n_draws, n).
    """
    q = auto.posterior(*data)
    z = draw_latents(q, uniforms, n_draws, data.x)
    return z, counted(log_joint(auto.model, *data, z) - q.log_prob(z))


def log_prob(
    auto: Autoencoder, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> Tensor:
    """Estimate log p(x_obs) by the importance-weighted bound; (n,)."""
    return iwelbo(weigh(auto, data, uniforms, n_draws)[1])


def scored(
    auto: Autoencoder, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> Tensor:
    """Compute `log_prob` and its standard errors; (n, 2)."""
    log_weight = weigh(auto, data, uniforms, n_draws)[1]
    return torch.stack([iwelbo(log_weight), standard_error(log_weight)], -1)


def latent_mean(
    auto: Autoencoder, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> Tensor:
    """Estimate E[z | x_obs] by importance sampling; (n, latents)."""
    z, log_weight = weigh(auto, data, uniforms, n_draws)
    return (normalised(log_weight).unsqueeze(-1) * z).sum(0)
