"""Variational autoencoders of rows with missing values, initialised at a linear model.

EM fits a normal distribution, which is converted to factors.  Model and encoder start
at this linear model, with networks whose output is zero, so that the initial bound is
the exact log-likelihood of factor analysis.  `train_while_better` trains on a part of
the observed cells as long as the others are predicted better, `train` on all of them.
The losses are in `skvnce.algorithms.vae.losses`.

References
----------
Simkus and Gutmann (2024), Improving variational autoencoder estimation from incomplete
data with mixture variational families; Mattei and Frellsen (2019), MIWAE.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from skvnce._incomplete import Incomplete
from skvnce._progress import tell
from skvnce.algorithms.vae.levels import LevelPosterior, anchor_of, sites
from skvnce.distributions import continuous_bernoulli as unit
from skvnce.distributions.cells import Cells, Families
from skvnce.distributions.observed_sum import Intervals
from skvnce.models.factor_analysis import FactorModel, infer
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
from skvnce.variational.base import Uniforms, draw_latents, stream

FLOOR = 0.03  # minimum standard deviation of a score given the latents
_VALIDATED = 32  # number of draws for predictions of held-out cells
_KEPT = 2**25  # maximum size of the linear part of the posteriors of all rows
_AT_ONCE = 2**21  # maximum size of the draws of a chunk of rows


NO_PARTS: Mapping[str, nn.Module] = {}  # what most algorithms train besides


class Autoencoder(NamedTuple):
    """A model and its encoder.

    Attributes
    ----------
    model : VariationalAutoencoderModel
    posterior : AnchoredEncoder
    """

    model: VariationalAutoencoderModel
    posterior: AnchoredEncoder

    @property
    def device(self) -> torch.device:
        """The device of the parameters; the CPU if there are none."""
        leaves = (
            leaf for part in self for leaf in (*part.parameters(), *part.buffers())
        )
        return next(leaves, torch.zeros(0)).device

    def on(self, device: torch.device) -> "Autoencoder":
        """Move to a device, in place."""
        return Autoencoder(*(part.to(device) for part in self))

    def evaluated(self) -> "Autoencoder":
        """Turn off dropout and gradients."""
        return Autoencoder(*(part.eval().requires_grad_(False) for part in self))


class KnownRows(NamedTuple):
    """A model of rows whose cells are known, for the protocol of models.

    Attributes
    ----------
    model : VariationalAutoencoderModel
    cells : Intervals
        Of these rows.
    """

    model: VariationalAutoencoderModel
    cells: Intervals

    def prior(self) -> Distribution:
        """Return p(z), of event shape (latents,)."""
        return self.model.prior()

    def likelihood(self, z: Tensor) -> Cells:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        return self.model.likelihood(z).given(self.cells)


def of_known(model: nn.Module, x: Tensor) -> nn.Module | KnownRows:
    """Return a model for rows x (n, features) only, which is faster for rounded cells.

    Other models than `VariationalAutoencoderModel` are returned as they are.
    """
    if not isinstance(model, VariationalAutoencoderModel):
        return model
    return KnownRows(model, model.families.intervals(x))


class Batches:
    """Model and encoder for batches of rows; what does not change is computed once.

    Training changes neither the posteriors of the linear model, which take a
    factorisation for each row, nor the intervals of rounded cells.  Tables of many rows
    and latents are not kept.

    Parameters
    ----------
    auto : Autoencoder
    data : Incomplete

    Attributes
    ----------
    anchor : Anchor or None
    cells : Intervals or None
    """

    def __init__(self, auto: Autoencoder, data: Incomplete) -> None:
        self.auto, self.data, self.anchor, self.cells = auto, data, None, None
        k = auto.model.prior().event_shape[0]
        fits = data.x.numel() + len(data.x) * k * (k + 1) <= _KEPT
        if fits and getattr(auto.posterior, "has_fixed_anchor", False):
            with torch.no_grad():
                self.anchor = auto.posterior.infer(*data)
        if isinstance(auto.model, VariationalAutoencoderModel):
            self.cells = auto.model.families.intervals(data.x)

    def of(self, rows: Tensor | slice) -> tuple[Autoencoder, Incomplete]:
        """Return them and the rows; they may be called with these rows only."""
        model, posterior = self.auto
        if self.anchor is not None:
            anchor = Anchor(*(part[rows] for part in self.anchor))
            posterior = partial(_at, posterior, anchor)
        if self.cells is not None:
            model = KnownRows(model, self.cells.take(rows))
        return Autoencoder(model, posterior), self.data.take(rows)


def _at(
    posterior: AnchoredEncoder, anchor: Anchor, x: Tensor, observed: Tensor
) -> Distribution:
    return posterior.at(anchor, observed)


class Architecture(NamedTuple):
    """Sizes of the networks.

    Attributes
    ----------
    hidden : tuple of int
    dropout : float
    n_components : int
        Of the posterior.
    """

    hidden: tuple[int, ...]
    dropout: float
    n_components: int


class LinearPosterior(nn.Module):
    """The anchor of an encoder: exact posteriors of factor analysis.

    Parameters
    ----------
    linear : FactorModel
    """

    def __init__(self, linear: FactorModel) -> None:
        super().__init__()
        for name, value in linear._asdict().items():
            self.register_buffer(name, value.clone())

    def forward(self, x: Tensor, observed: Tensor) -> Anchor:
        """Infer the latents of rows (*batch, features), in double precision."""
        width = x.shape[-1]
        linear = FactorModel(*(part.double() for part in self.buffers()))
        rows, mask = x.reshape(-1, width).double(), observed.reshape(-1, width)
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
    """Settings of the training.

    Attributes
    ----------
    n_draws : int
        Draws of each row or each component, or imputations of each row.
    batch_size : int
    learning_rate : float
    weight_decay : float
        Of the networks.
    """

    n_draws: int
    batch_size: int
    learning_rate: float
    weight_decay: float


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
    loss: Callable[[Tensor], Tensor],
    data: Incomplete,
    held_out: Tensor,
    weights: Tensor,
    training: Training,
    *,
    max_rounds: int,
    patience: int,
    on_round: Callable[[int, float, float], bool],
    parts: Mapping[str, nn.Module] = NO_PARTS,
) -> int:
    """Train while held-out cells are predicted better, and restore the best round.

    Averages of the parameters over the last steps are evaluated and kept.  The best
    round is 0, the start, if training does not increase the log predictive density of
    held-out cells, or if there are none.

    Parameters
    ----------
    loss : callable
        Of the cells that are not held out.
    data : Incomplete
        All observed cells.
    held_out : Tensor of bool, of shape (n, features)
    weights : Tensor of shape (n,)
    patience : int
        Number of successive rounds without an improvement after which it stops.
    on_round : callable
        Called with the round, its loss and the gain per row; stops by returning True.
    parts : mapping of str to nn.Module
        Further modules that the loss trains, which are averaged and restored, too.
    """
    rows = held_out.any(1).nonzero().squeeze(1)
    if not len(rows):
        return 0
    part, hidden = data.take(rows), held_out[rows]
    chosen = weights[rows.to(weights.device)]
    shares = (chosen / chosen.sum()).to(data.x)
    start = held_out_log_prob(auto, part, hidden)
    averaged = Averaged([*auto, *parts.values()])
    mean = Autoencoder(*averaged.modules[:2])
    best = Best(averaged.modules, patience)

    def judge(n_round: int, loss: float) -> bool:
        gains = held_out_log_prob(mean, part, hidden) - start
        gain = float(shares @ gains.clamp(-5.0, 5.0))  # limits the effect of outliers
        stop = best.judge(n_round, gain)
        return on_round(n_round, loss, gain) or stop

    shown = {"on_round": judge, "on_step": averaged.update, "parts": parts}
    train(auto, loss, weights, training, n_rounds=max_rounds, **shown)
    chosen = best.restore()
    averaged.replace()
    return chosen


@torch.no_grad()
def held_out_log_prob(auto: Autoencoder, data: Incomplete, hidden: Tensor) -> Tensor:
    """Sum log p(x_j | cells not held out) over held-out cells of each row; (n,).

    Uses importance sampling, with the same random numbers in every call.
    """
    found = []
    training = auto.model.training
    for part in auto:
        part.eval()
    for rows in chunks(auto, len(data.x), _VALIDATED):
        (x, observed), held = data.take(rows), hidden[rows]
        kept = observed & ~held
        q = auto.posterior(x, kept)
        z = draw_latents(q, stream(0), _VALIDATED, x)
        cells = auto.model.likelihood(z)
        inside = cells.log_prob(x).where(observed, 0.0)  # (n_draws, rows, features)
        seen = inside.where(kept, 0.0).sum(-1)
        log_weight = seen + auto.model.prior().log_prob(z) - q.log_prob(z)
        log_share = log_weight.log_softmax(0).unsqueeze(-1)
        found.append((log_share + inside).logsumexp(0).where(held, 0.0).sum(-1))
    for part in auto:
        part.train(training)
    return torch.cat(found)


def chunks(auto: Autoencoder, n: int, n_draws: int) -> Iterator[slice]:
    """Split n rows into chunks whose draws are bounded in memory."""
    d, k, hidden = auto.model.sizes
    size = max(1, _AT_ONCE // (n_draws * (2 * d + k + sum(hidden)) + k * k))
    return slices(n, size)


def slices(n: int, size: int) -> Iterator[slice]:
    """Split n rows into slices of some size."""
    for first in range(0, n, size):
        tell("rows", min(first + size, n), n)
        yield slice(first, first + size)


def weigh(
    auto: Autoencoder, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> tuple[Tensor, Tensor]:
    """Draw latents of rows and compute their log-weights.

    Returns
    -------
    z : Tensor of shape (n_draws, n, latents)
    log_weight : Tensor of shape (n_draws, n)
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
