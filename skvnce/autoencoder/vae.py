"""Variational autoencoders of rows with missing values, initialised at a linear model.

EM fits a normal distribution, which is converted to factors.  Model and encoder start
at this linear model, with networks whose output is zero, so that the initial bound is
the exact log-likelihood of factor analysis.  The losses, and the choice of the number
of rounds by held-out cells, are in `skvnce.autoencoder.losses`.

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

from skvnce._core.distributions import families as unit
from skvnce._core.distributions.cells import (
    Cells,
    Families,
    Intervals,
    Levels,
    Nominal,
    log_probs,
)
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import (
    LatentVariableModel,
    counted,
    draw_latents,
    iwelbo,
    log_joint,
    normalised,
    standard_error,
)
from skvnce._core.progress import tell
from skvnce._core.random import Uniforms, stream
from skvnce._core.training.adam import FlatAdam, Schedule, descend, named_leaves
from skvnce._core.training.rounds import MAX_NORM, cooling_after, rows_of
from skvnce.autoencoder.factor_analysis import (
    FactorModel,
    Posterior,
    infer,
    infer_complete,
)
from skvnce.autoencoder.networks import (
    Anchor,
    AnchoredEncoder,
    ResidualPerceptron,
    VariationalAutoencoderModel,
)
from skvnce.gaussian.latent import gibbs
from skvnce.gaussian.latent.columns import Latents, Marginal

# ----------------------------------------
# The start of an autoencoder of a table with categories: a latent normal model.
#
# Gibbs sampling estimates the joint normal distribution of latent variables, one for
# each output of the model (`gaussian.latent`); those of numbers are their
# scores.  Its factors are the linear start.  The encoder starts at a normal posterior
# of the factors z in which an observed level contributes the quadratic approximation
# of log p(x_j | z) at the mode of p(z | x_j), and an observed number what it
# contributes in factor analysis.


_STEPS = 20  # maximum number of steps of Newton's method
_SETTLED = 1e-9  # length of the last step
_LONGEST = 1.0  # length of a step


def fit_latents(
    data: Incomplete,  # scores, and levels 0, 1, ..
    weights: Tensor,  # (n,)
    families: Families,
    # weight of the prior of independent variables, in rows for each of them
    share: float,
    max_iter: int,  # number of sweeps
) -> Normal:
    """Estimate the normal distribution of the latent variables of all outputs."""
    latents = latents_of(data, families)
    n_draws = max(1, max_iter // 5)
    strength = share * latents.size
    fit = gibbs.posterior_draws(
        latents, data, weights, strength, n_draws=n_draws, max_iter=max_iter
    )
    mean, covariance = fit.average()
    order = order_of(latents)
    return Normal(mean[order], covariance[order][:, order])


def order_of(latents: Latents) -> list[int]:
    """List the latent variables in the order of the outputs of a model."""
    return latents.first + [
        place
        for _, block in latents.nominal
        for place in range(block.start + 1, block.stop)
    ]


def latents_of(data: Incomplete, families: Families) -> Latents:
    """Describe columns of scores and levels as functions of latent variables."""
    marginals, n_levels = {}, {}
    for family in families.levels:
        sizes = family.n_levels.tolist()
        for place, (j, size) in enumerate(
            zip(family.columns.tolist(), sizes, strict=True)
        ):
            if isinstance(family, Nominal):
                marginals[j], n_levels[j] = None, size
            else:
                edges = family.edges[place, : size + 1].double()
                marginals[j] = _intervals(torch.arange(size).double(), edges)
    for place, j in enumerate(families.rounded.tolist()):
        values = families.values[place].unique().double()
        edges = families.edges[place, : len(values) + 1].double()
        marginals[j] = _intervals(values, edges)
    for j, (column, observed) in enumerate(zip(data.x.T, data.observed.T, strict=True)):
        values = column[observed].unique()
        marginals.setdefault(j, Marginal(values, values, values))
    sizes = [n_levels.get(j, 1) for j in range(data.x.shape[1])]
    first = torch.tensor([0, *sizes[:-1]]).cumsum(0).tolist()
    return Latents([marginals[j] for j in range(len(sizes))], first, sizes)


def _intervals(values: Tensor, edges: Tensor) -> Marginal:
    """Make the marginal of values between edges; the outermost become infinite."""
    far = edges.new_full((1,), torch.inf)
    inner = edges[1:-1]
    return Marginal(values, torch.cat([-far, inner]), torch.cat([inner, far]))


def sites(
    mean: Tensor, loadings: Tensor, scale: Tensor, families: Families
) -> tuple[Tensor, ...]:
    """Approximate log p(x_j = level | z) by quadratic functions of z.

    `mean`, `loadings`, `scale` (n_outputs,) or (n_outputs, latents): of the outputs of
    a linear model.  Returns `columns`, `codes` (int (n_levels,)), all levels of all
    columns of categories; `precision` (n_levels, latents, latents); `field` (n_levels,
    latents), the approximations are ``field @ z - z @ precision @ z / 2``.
    """
    columns, codes = (
        torch.cat(parts)
        for parts in zip(
            *(_list_levels(family) for family in families.levels), strict=True
        )
    )
    every = torch.arange(len(columns))
    x = mean.new_zeros(len(columns), families.n_columns(len(mean)))
    x[every, columns] = codes.to(mean)

    def log_prob(z: Tensor) -> Tensor:
        loc = mean + z @ loadings.T
        return Cells(loc, scale.expand_as(loc), families).log_prob(x)[every, columns]

    z = mean.new_zeros(len(columns), loadings.shape[1])
    eye = torch.eye(z.shape[1]).to(z)
    for _ in range(_STEPS):
        slope, precision = _derivatives(log_prob, z)
        # the prior of z adds the identity and -z
        step = torch.linalg.solve(eye + precision, (slope - z)[..., None])[..., 0]
        length = step.norm(dim=1, keepdim=True)
        z = z + step * (_LONGEST / length.clamp(min=_LONGEST))
        if length.max() < _SETTLED:
            break
    slope, precision = _derivatives(log_prob, z)
    field = slope + (precision @ z[..., None])[..., 0]
    return columns, codes, precision, field


def _list_levels(family: Levels) -> tuple[Tensor, Tensor]:
    """List the columns and the codes of all levels of a family."""
    sizes = family.n_levels
    columns = family.columns.repeat_interleave(sizes)
    return columns, torch.cat([torch.arange(int(size)) for size in sizes])


def _derivatives(
    function: Callable[[Tensor], Tensor], z: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the gradient and minus the Hessian of a function of rows; concave."""
    # the derivatives need a graph even if the caller has turned gradients off
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        [slope] = torch.autograd.grad(function(z).sum(), z, create_graph=True)
        rows = [
            torch.autograd.grad(part.sum(), z, retain_graph=True)[0]
            for part in slope.unbind(1)
        ]
    values, vectors = torch.linalg.eigh(-torch.stack(rows, 1))
    # rounding may make eigenvalues of a concave function positive
    precision = vectors * values.clamp(min=0.0)[:, None] @ vectors.mT
    return slope.detach(), precision


class LevelPosterior(nn.Module):
    """The anchor of an encoder of rows with levels; see the module.

    `linear`: of the latent variables of all outputs.  `terms`: from `sites`.
    `n_filled`: width of the filled rows: numbers, then 0 or 1 for each level of each
    column of categories, all 0 if it is missing.
    """

    def __init__(
        self, linear: FactorModel, families: Families, terms: tuple[Tensor, ...]
    ) -> None:
        super().__init__()
        names = "columns", "codes", "precision", "field"
        for name, value in zip(names, terms, strict=True):
            self.register_buffer(name, value.clone())
        every = torch.arange(families.n_columns(len(linear.mean)))
        numbers = every[~torch.isin(every, self.columns)]
        self.register_buffer("numbers", numbers)
        for name, value in linear._asdict().items():
            self.register_buffer(name, value[numbers].clone())
        self.n_filled = len(numbers) + len(self.columns)

    def forward(self, x: Tensor, observed: Tensor) -> Anchor:
        """Infer the latents of rows (*batch, features), in double precision."""
        rows = x.reshape(-1, x.shape[-1]).double()
        mask = observed.reshape(rows.shape)
        parts = self.mean, self.loadings, self.noise_variance
        linear = FactorModel(*(part.double() for part in parts))
        level = rows[:, self.columns].round() == self.codes
        level = (level & mask[:, self.columns]).to(rows)
        precision = level @ self.precision.double().flatten(1)
        more = (
            precision.view(-1, *self.precision.shape[1:]),
            level @ self.field.double(),
        )
        numbers, mask_of_numbers = rows[:, self.numbers], mask[:, self.numbers]
        posterior = infer(linear, numbers, mask_of_numbers, more)
        guess = linear.mean + posterior.mean @ linear.loadings.T
        filled = torch.cat([numbers.where(mask_of_numbers, guess), level], 1)
        return anchor_of(posterior, filled, x)


def anchor_of(posterior: Posterior, filled: Tensor, x: Tensor) -> Anchor:
    """Make the anchor of rows x (*batch, features) in their precision."""
    factor, n = posterior.factor, len(posterior.factor)
    if n and factor.stride(0) == 0:  # one for all rows
        # triangular systems are solved once for all rows
        factor = factor[:1]
    eye = torch.eye(posterior.mean.shape[1]).to(filled).expand_as(factor)
    root = torch.linalg.solve_triangular(factor.mT, eye, upper=True)
    parts = posterior.mean, root.expand(n, -1, -1), filled
    shape = x.shape[:-1]
    return Anchor(*(part.to(x).reshape(*shape, *part.shape[1:]) for part in parts))


# ----------------------------------------
# A model and its encoder, and their constants for the rows of a table.


_KEPT = 2**25  # maximum size of the linear part of the posteriors of all rows
_AT_ONCE = 2**21  # maximum size of the draws of a chunk of rows


class Autoencoder(NamedTuple):
    """A model and its encoder."""

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


class WithCells(NamedTuple):
    """A model whose cells given latents are wrapped; its prior is unchanged."""

    model: LatentVariableModel
    wrap: Callable[[Distribution], Distribution]

    @property
    def families(self) -> Families:
        """The families of the columns, if the model has them."""
        return self.model.families

    def prior(self) -> Distribution:
        """Return p(z), of event shape (latents,)."""
        return self.model.prior()

    def likelihood(self, z: Tensor) -> Distribution:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        return self.wrap(self.model.likelihood(z))


def of_known(model: nn.Module, x: Tensor) -> nn.Module | WithCells:
    """Return a model for rows x (n, features) only, which is faster for rounded cells.

    Other models than `VariationalAutoencoderModel` are returned as they are.
    """
    if not isinstance(model, VariationalAutoencoderModel):
        return model
    return _with_intervals(model, model.families.intervals(x))


def _with_intervals(model: nn.Module, intervals: Intervals | None) -> WithCells:
    return WithCells(model, lambda cells: cells.with_intervals(intervals))


class Batches:
    """Model and encoder for batches of rows; constants are computed once.

    Training changes neither the posteriors of the linear model, which take a
    factorisation for each row, nor the intervals of rounded cells.  Tables of many rows
    and latents are not kept.

    `anchor` (Anchor or None), `cells` (Intervals or None).
    """

    def __init__(self, auto: Autoencoder, data: Incomplete) -> None:
        self.auto, self.data, self.anchor = auto, data, None
        k = auto.model.prior().event_shape[0]
        if data.x.numel() + len(data.x) * k * (k + 1) <= _KEPT:
            with torch.no_grad():
                self.anchor = auto.posterior.infer(*data)
        self.cells = auto.model.families.intervals(data.x)

    def of(self, rows: Tensor | slice) -> tuple[Autoencoder, Incomplete]:
        """Return them and the rows; they may be called with these rows only."""
        model, posterior = self.auto
        if self.anchor is not None:
            anchor = Anchor(*(part[rows] for part in self.anchor))
            posterior = partial(_at, posterior, anchor)
        if self.cells is not None:
            model = _with_intervals(model, self.cells.take(rows))
        return Autoencoder(model, posterior), self.data.take(rows)


def _at(
    posterior: AnchoredEncoder, anchor: Anchor, x: Tensor, observed: Tensor
) -> Distribution:
    return posterior.at(anchor, observed)


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


# ----------------------------------------
# Predictions of held-out cells, which choose how long an autoencoder is trained.


_N_DRAWS = 32
_IN_CACHE = 64  # number of rows whose draws fit a cache


class HeldOut:
    """Predictions of held-out cells, with the same random numbers in every call.

    `auto`: is put in the mode of evaluation.  `data`: all observed cells.  `hidden`
    (bool (n, features)): which are held out.
    """

    def __init__(self, auto: Autoencoder, data: Incomplete, hidden: Tensor) -> None:
        self.auto, self.hidden = Autoencoder(*(part.eval() for part in auto)), hidden
        visible = data.observed & ~hidden
        self._batches = Batches(self.auto, Incomplete(data.x, visible))
        self._observed, cells = data.observed, self._batches.cells
        self._cells = None if cells is None else cells.centred(data.observed)

    @torch.no_grad()
    def log_prob(self) -> Tensor:
        """Sum log p(x_j | cells not held out) over held-out cells of each row; (n,).

        By importance sampling.
        """
        values = []
        for rows in chunks(self.auto, len(self.hidden), _N_DRAWS):
            (_, posterior), (x, visible) = self._batches.of(rows)
            q = posterior(x, visible)
            # the same numbers in each round, so that gains are not those of the draws
            z = draw_latents(q, stream(0), _N_DRAWS, x)
            log_ratio = self.auto.model.prior().log_prob(z) - q.log_prob(z)
            for first in range(0, len(x), _IN_CACHE):
                part = slice(first, min(first + _IN_CACHE, len(x)))
                which = slice(rows.start + part.start, rows.start + part.stop)
                inside = self._inside(z[:, part], which)
                log_weight = (inside * visible[part]).sum(-1) + log_ratio[:, part]
                hidden = self.hidden[which]
                values.append(_log_mean_of_hidden(inside, log_weight, hidden))
        return torch.cat(values)

    def _inside(self, z: Tensor, rows: slice) -> Tensor:
        """Compute log p(x_j | z) of observed cells; (n_draws, n_rows, features)."""
        if self._cells is not None:
            loc, log_scale, _ = self.auto.model.decode(z)
            return log_probs(loc, log_scale, self._cells.take(rows))
        x, observed = self._batches.data.x[rows], self._observed[rows]
        return self.auto.model.likelihood(z).log_prob(x).where(observed, 0.0)


def _log_mean_of_hidden(inside: Tensor, log_weight: Tensor, hidden: Tensor) -> Tensor:
    """Sum logs of weighted means of densities over the held-out cells of rows."""
    row, column = hidden.nonzero(as_tuple=True)
    log_share = log_weight.log_softmax(0)
    log_mean = (log_share[:, row] + inside[:, row, column]).logsumexp(0)
    return log_mean.new_zeros(len(hidden)).index_add_(0, row, log_mean)


def held_out_log_prob(auto: Autoencoder, data: Incomplete, hidden: Tensor) -> Tensor:
    """Compute `HeldOut.log_prob` once, and leave the modes of the modules; (n,)."""
    training = [part.training for part in auto]
    values = HeldOut(auto, data, hidden).log_prob()
    # `HeldOut` has turned dropout off
    for part, mode in zip(auto, training, strict=True):
        part.train(mode)
    return values


# ----------------------------------------
# Variational autoencoders of rows with missing values, initialised at a linear model.


# without one, the likelihood of cells that are predicted exactly would be infinite
FLOOR = 0.03  # minimum standard deviation of a score given the latents
NO_PARTS: Mapping[str, nn.Module] = {}  # most algorithms train no further modules


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
        posterior = infer(linear, rows, mask)
        filled = rows.where(mask, linear.mean + posterior.mean @ linear.loadings.T)
        return anchor_of(posterior, filled, x)


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
        *start, network(k, n_outputs=2 * n_outputs), families, FLOOR
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


def parameter_groups(
    named: list[tuple[str, Tensor]], rate: float, weight_decay: float
) -> list[dict]:
    """Group parameters for an optimiser: networks, and the slower linear part."""
    networks = [leaf for name, leaf in named if ".network." in name]
    linear = [leaf for name, leaf in named if ".network." not in name]
    return [
        {"params": networks, "lr": rate, "weight_decay": weight_decay},
        {"params": linear, "lr": 0.3 * rate, "weight_decay": 0.0},
    ]


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
    optimiser = FlatAdam(parameter_groups(named, rate, training.weight_decay))
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


def weigh(
    auto: Autoencoder, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> tuple[Tensor, Tensor]:
    """Draw latents of rows and compute their log-weights.

    Returns `z` (n_draws, n, latents); `log_weight` (n_draws, n).
    """
    q = auto.posterior(*data)
    z = draw_latents(q, uniforms, n_draws, data.x)
    return z, counted(log_joint(auto.model, *data, z) - q.log_prob(z))


def scored(
    auto: Autoencoder, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> Tensor:
    """Estimate log p(x_obs) by the importance-weighted bound, and errors; (n, 2)."""
    log_weight = weigh(auto, data, uniforms, n_draws)[1]
    return torch.stack([iwelbo(log_weight), standard_error(log_weight)], -1)


def latent_mean(
    auto: Autoencoder, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> Tensor:
    """Estimate E[z | x_obs] by importance sampling; (n, latents)."""
    z, log_weight = weigh(auto, data, uniforms, n_draws)
    return (normalised(log_weight).unsqueeze(-1) * z).sum(0)
