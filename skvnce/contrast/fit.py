"""Fits of a model to incomplete rows, and the best of several initialisations."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete, Units
from skvnce._core.models import Draws, Posterior
from skvnce._core.progress import OnRound, step, steps
from skvnce._core.random import (
    Uniforms,
    global_stream,
    shifted_lattice,
    stream,
    weighted_quantiles,
)
from skvnce._core.training.adam import NotFinite
from skvnce.contrast.models import (
    FreeGaussian,
    MakeModel,
    MakePosterior,
    Scaled,
    build_model,
    build_posterior,
    check_log_density,
    count_latents,
    exact_cells,
    is_integrated,
    normal_of_cells,
)
from skvnce.contrast.noise import (
    ColumnSummary,
    FittedNoise,
    Marginals,
    Noise,
    contrast_with,
    fit_noise,
)
from skvnce.contrast.objective import (
    Contrast,
    Evaluation,
    Problem,
    Rows,
    by_noise,
    evaluate,
    fit_model,
    fit_posterior,
    importance_weighted,
    joint_ascent,
    log_marginal,
    log_mean,
    log_ratio,
    marginal_error,
    mean_over_draws,
    variational_em,
    variational_values,
)
from skvnce.contrast.posteriors import (
    ExactStates,
    SequentialPosterior,
    defend,
    draw_nothing,
    is_drawn,
    sequential,
)

# ----------------------------------------
# A fitted model and its posterior: log-densities, draws and objectives of rows.


# a power of two, because draws are points of a lattice
N_IMPORTANCE_SAMPLES = 64  # for means, scores and densities
# importance samples from which one draw is resampled; the bias has order 1 / n
N_CANDIDATES = 80
# 16 MiB in double precision
MAX_CHUNK_SIZE = 2**21  # of the draws of one chunk of rows


class FittedModel(NamedTuple):
    """A fitted model with its posterior."""

    model: Scaled
    steps: nn.ModuleList  # modules that draw missing cells and latents
    n_components: int  # number of latents
    # whether log-densities have all unobserved variables integrated out
    is_integrated: bool

    @property
    def device(self) -> torch.device:
        """The device of the parameters; the CPU if there are none."""
        return self.model.log_scale.device

    def on(self, device: torch.device) -> Self:
        """Move to a device, in place."""
        if device == self.device:  # torch would look at each parameter
            return self
        moved = self.model.to(device), self.steps.to(device)
        return type(self)(*moved, *self[2:])

    @property
    def n_states(self) -> int:
        """The number of states of the latents that are enumerated."""
        return SequentialPosterior(self.steps, 1).n_states

    @property
    def draws_latents(self) -> bool:
        """Whether latents are drawn, and not enumerated or integrated out."""
        return not self.is_integrated and any(map(is_drawn, self.steps))

    def defend(self, data: Incomplete) -> Self:
        """Draw latents also from the posteriors of some rows, evenly spaced."""
        stride = -(-len(data.x) // _N_DEFENSIVE_ROWS)
        rows = data.take(slice(None, None, stride)).on(self.device)
        return self._replace(steps=defend(self.steps, rows))

    def at(
        self, observed: Tensor, n_draws: int = N_IMPORTANCE_SAMPLES
    ) -> tuple[Callable[..., Tensor], Posterior]:
        """Return log phi, and the posterior of its arguments, of rows of a mask."""
        if self.is_integrated:
            return self.model.log_marginal, draw_nothing
        return self.model.log_density, sequential(self.steps, n_draws, observed)

    def weighted_draws(
        self, data: Incomplete, uniforms: Uniforms, n_draws: int = N_IMPORTANCE_SAMPLES
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Draw the unobserved variables.

        Returns `values` (n_draws, n, features), ``(x,)`` or ``(x, z)``; `log_weight`
        (n_draws, n), weights with which the draws represent the posterior of the model.
        """
        posterior = sequential(self.steps, n_draws, data.observed)
        draws, ratio = _draw(self.model.log_density, posterior, data, uniforms)
        return draws.values, (ratio + draws.log_weight).log_softmax(0)

    def latent_mean(self, data: Incomplete, uniforms: Uniforms) -> Tensor:
        """Compute the posterior means of the latents; (n, latents)."""
        values, weight = self.weighted_draws(data, uniforms)
        return (weight.exp()[..., None] * values[1]).sum(0)

    def filled(self, data: Incomplete, uniforms: Uniforms) -> Tensor:
        """Fill the missing cells by their posterior means; (n, features)."""
        if hasattr(self.model.model, "conditional_mean"):
            return self.model.model.conditional_mean(data.x, data.observed)
        values, weight = self.weighted_draws(data, uniforms)
        return (weight.exp()[..., None] * values[0]).sum(0)

    def quantiles(self, data: Incomplete, uniforms: Uniforms, levels: Tensor) -> Tensor:
        """Find quantiles of the missing cells; (n_levels, n, features).

        Those of the normal distribution are at its mean only, which is its median and
        its mode.
        """
        if isinstance(self.model.model, FreeGaussian):
            return self.filled(data, uniforms)[None]
        values, weight = self.weighted_draws(data, uniforms)
        return weighted_quantiles(values[0], weight.exp()[..., None], levels)

    def resample(self, data: Incomplete, place: int) -> Tensor:
        """Draw rows (place 0) or latents (1) by sampling-importance-resampling."""
        is_exact = isinstance(self.model.model, FreeGaussian)
        # a draw of the exact conditional needs no selection
        n_draws = 1 if is_exact else N_CANDIDATES
        values, weight = self.weighted_draws(data, global_stream, n_draws)
        # on the CPU, so that the draws are the same on each device
        indices = torch.multinomial(weight.exp().T.cpu(), 1).T[..., None]
        indices = indices.to(weight.device)
        indices = indices.expand(1, -1, values[place].shape[-1])
        return values[place].gather(0, indices)[0]

    def log_prob(self, data: Incomplete, uniforms: Uniforms) -> tuple[Tensor, Tensor]:
        """Compute log-densities of the observed cells, and standard errors; (n,)."""
        log_density, posterior = self.at(data.observed)
        draws, ratio = _draw(log_density, posterior, data, uniforms)
        n_draws = getattr(posterior, "n_draws", 1)
        error = marginal_error(ratio, draws.log_weight, n_draws)
        return log_marginal(ratio, draws.log_weight), error

    def objective(self, contrast: Contrast, uniforms: tuple[Uniforms, ...]) -> Tensor:
        """Compute the objective of rows with their noise, at given numbers; (n,)."""
        log_density, posterior = self.at(contrast.data.observed)
        criterion = importance_weighted(by_noise)
        return variational_values(log_density, posterior, contrast, uniforms, criterion)

    def evaluation(
        self, noise: Noise, data: Incomplete, noise_ratio: int, n_draws: int
    ) -> Evaluation:
        """Evaluate the objective at rows and new rows of noise, on the CPU."""
        contrast = contrast_with(noise, data, noise_ratio).on(self.device)
        data = data.on(self.device)
        log_density, posterior = self.at(data.observed, n_draws)
        size = self.chunk_rows(data, posterior, noise_ratio)
        problem = Problem(log_density, posterior, contrast, size=size)
        return evaluate(problem).on(torch.device("cpu"))

    def chunk_rows(
        self, data: Incomplete, posterior: Posterior, noise_ratio: int
    ) -> int:
        """Return the number of rows of a chunk, so that its draws fit in memory."""
        draws = 1
        if isinstance(posterior, SequentialPosterior):
            draws = posterior.n_draws * posterior.n_states
        width = data.x.shape[1] + self.n_components
        return max(1, MAX_CHUNK_SIZE // (draws * (1 + noise_ratio) * width))


def _draw(
    log_density: Callable[..., Tensor],
    posterior: Posterior,
    data: Incomplete,
    uniforms: Uniforms,
) -> tuple[Draws, Tensor]:
    """Draw unobserved variables, and compute log phi minus log q."""
    draws = posterior(data.x, data.observed, uniforms)
    return draws, log_ratio(log_density, draws, data.x.new_zeros(len(data.x)))


def contrast_from_pool(
    noise: Noise, pool: Tensor, data: Incomplete, noise_ratio: int, uniforms: Uniforms
) -> Contrast:
    """Draw the noise of each row from a pool of noise rows, by uniform numbers."""
    template = data.x.new_empty(noise_ratio, len(data.x), 1)
    indices = (uniforms(0, template) * len(pool)).long().squeeze(-1)
    rows = data.x, pool[indices]
    return Contrast(
        *(Rows(x, data.observed, noise.log_prob(x, data.observed)) for x in rows)
    )


# ----------------------------------------
# One fit of a model to incomplete rows: model, posterior, solver.


ITER_PER_ROUND = 20  # iterations of L-BFGS that count as a round of NCE
_PATIENCE = 5  # number of successive rounds without a change after which the fit stops
_GRADIENT_TOL = 1e-5  # tolerance of L-BFGS if there are no draws
_PROPOSAL_ROUNDS = 10  # of training a posterior whose draws are averaged
_PROPOSAL_ITER = 50  # iterations of L-BFGS for a posterior that only draws use

Named = list[tuple[str, Tensor]]
Penalty = Callable[[], Tensor] | None


class Settings(NamedTuple):
    """What is fitted, and how."""

    model: MakeModel  # see `build_model`
    # None, "normal", "bernoulli" or callable, see `build_posterior`
    posterior: MakePosterior
    n_components: int | None  # see `count_latents`
    noise: str | Distribution | nn.Module  # see `fit_noise`
    noise_ratio: int  # nu
    n_draws: int  # number of draws of the unobserved variables of each row
    n_init: int  # number of starts
    seed: int  # seed of common random numbers
    # strength of the L2 penalty of the model's parameters.  None is their number, or
    # zero for models of the caller
    ridge: float | None
    # "auto", "lbfgs" or "adam"; "auto" is Adam if draws are discrete, which have no
    # derivative
    solver: str
    max_iter: int  # number of rounds of variational EM at most, or of epochs of Adam
    n_steps: int  # number of iterations of L-BFGS in each of the two steps of a round
    tol: float  # change of the objective at which variational EM stops
    batch_size: int  # of Adam
    learning_rate: float  # of Adam, at the start
    device: torch.device = torch.device("cpu")  # where the objective is computed
    # draws of a second fit if `n_draws` are too few
    more_draws: int | None = None
    # "vnce", "importance-weighted" or "auto", see `is_averaged`
    criterion: str = "auto"


class Inputs(NamedTuple):
    """The inputs that all starts share."""

    data: Incomplete
    contrast: Contrast
    summary: ColumnSummary
    # returns the normal distribution at which the default model starts
    normal: Callable[[], Normal]
    # maps columns to replace by logarithms to the normal distribution at which the
    # posterior of missing cells starts
    normal_of_cells: Callable[[Tensor], Normal]


class Outcome(NamedTuple):
    """A fit from one start."""

    fitted: FittedModel
    averages: bool  # whether draws were averaged inside the logarithm
    evaluation: Evaluation
    losses: list[float]
    converged: bool
    ridge: float
    stream: np.ndarray  # state of torch's random numbers before the model was made


def fit_from_one_start(
    settings: Settings, inputs: Inputs, on_round: OnRound
) -> Outcome:
    """Make the model and the posterior, and fit them on a device.

    The model and the noise are made on the CPU, where the outcome is, too.
    Raises NotFinite.
    """
    before, device = torch.get_rng_state().numpy(), settings.device
    fitted = build(settings, inputs).on(device)
    model, data = fitted.model, inputs.data.on(device)
    drawn = sequential(fitted.steps, settings.n_draws, data.observed)
    check_log_density(model, drawn, data)
    log_density, posterior = fitted.at(data.observed, settings.n_draws)
    averages = is_averaged(settings.criterion, posterior, data)
    bound = problem = Problem(
        log_density,
        posterior,
        inputs.contrast.on(device),
        seed=settings.seed,
        size=fitted.chunk_rows(data, posterior, settings.noise_ratio),
    )
    if averages:
        problem = importance_weighted_problem(bound)
    initialise_log_scale(problem, model)
    ridge = ridge_of(settings, model)
    losses, converged = solve(settings, problem, model, ridge, data, on_round)
    is_normal = isinstance(model.model, FreeGaussian)
    if fitted.is_integrated and not is_normal:
        # draws that are discrete need the score function, which an average has not
        free = bound._replace(log_density=model.log_density, posterior=drawn)
        if is_averaged("auto", drawn, data):
            free = importance_weighted_problem(free)
        with step("fitting the posterior of unobserved variables"):
            fit_proposals(settings, free, data)
    # the parts are used without gradients and dropout from here on
    for module in fitted[:2]:
        module.eval().requires_grad_(False)
    evaluation = evaluate(problem).on(inputs.data.x.device)
    fitted = fitted.on(inputs.data.x.device)
    if is_normal:
        steps = [exact_cells(model.model.free.normal()).requires_grad_(False)]
        fitted = fitted._replace(steps=nn.ModuleList(steps))
    return Outcome(fitted, averages, evaluation, losses, converged, ridge, before)


def build(settings: Settings, inputs: Inputs) -> FittedModel:
    """Make the model and its posterior, which are not fitted yet."""
    width = inputs.data.x.shape[1]
    model = build_model(settings.model, inputs.normal, width)
    n_components = count_latents(model.model, settings.n_components)
    exact, normal = is_integrated(settings.posterior, model), inputs.normal_of_cells
    if exact and isinstance(model.model, FreeGaussian):  # its posterior is known
        normal = partial(_normal_of_model, model.model)
    steps = build_posterior(
        settings.posterior, model, n_components, inputs.summary, normal
    )
    return FittedModel(model, nn.ModuleList(steps), n_components, exact)


@torch.no_grad()
def _normal_of_model(model: FreeGaussian, positive: Tensor) -> Normal:
    """Return the normal distribution of a model whose columns are all real."""
    return model.free.normal()


def is_averaged(criterion: str, posterior: Posterior, data: Incomplete) -> bool:
    """Return whether draws are averaged inside the logarithm, or raise an error.

    One posterior for all patterns of missing cells, which has one mode, is too far from
    the model's for the variational bound, eq. (13) of `objective`: it would favour
    models with broad conditionals.  Discrete draws need the score function, which only
    eq. (13) has.
    """
    if criterion == "vnce" or (criterion == "auto" and data.observed.all()):
        return False
    if not is_discrete(posterior, data):
        return True
    if criterion == "auto":
        return False
    raise ValueError(
        "criterion='importance-weighted' needs draws that are smooth in the "
        "posterior's parameters: draws of zeros and ones need criterion='vnce'."
    )


def importance_weighted_problem(bound: Problem) -> Problem:
    """Maximise the importance-weighted bound, (IW) of `objective`.

    In variational EM the E-step still maximises `bound`, eq. (13); Adam, which
    trains both together, maximises (IW) in both.
    """
    return bound._replace(
        criterion=importance_weighted(bound.criterion),
        posterior_criterion=bound.criterion,
        arrange=shifted_lattice,
    )


def initialise_log_scale(problem: Problem, model: Scaled) -> None:
    """Initialise the log normalising constant by importance sampling."""
    if model.log_scale.requires_grad:
        start = log_mean(evaluate(problem).noise)
        # weights of importance sampling may overflow
        model.rescale(start if start.isfinite() else 0.0)


def solve(
    settings: Settings,
    problem: Problem,
    model: Scaled,
    ridge: float,
    data: Incomplete,
    on_round: OnRound,
) -> tuple[list[float], bool]:
    """Run the solver; return the losses, and whether they converged."""
    named = [(k, leaf) for k, leaf in model.named_parameters() if leaf.requires_grad]
    of_posterior = used_parameters(problem.posterior, data)
    if not named and not of_posterior:
        return [-float(evaluate(problem).values.mean())], True
    penalty = make_penalty(ridge, model, len(data.x))
    if is_stochastic(settings, problem.posterior, data):
        losses = joint_ascent(
            problem,
            [*named, *of_posterior],
            penalty=penalty,
            on_epoch=lambda epoch, loss: on_round(epoch, loss, np.nan),
            **_adam_options(settings),
        )
        return losses, True
    leaves = [leaf for _, leaf in named]
    if of_posterior or has_states(problem.posterior):
        averages = problem.posterior_criterion is not None
        n_steps = settings.n_steps
        trace = variational_em(
            problem,
            leaves,
            [leaf for _, leaf in of_posterior],
            penalty=penalty,
            n_steps=max(n_steps, ITER_PER_ROUND) if averages else n_steps,
            n_posterior_steps=n_steps,
            n_posterior_rounds=_PROPOSAL_ROUNDS if averages else None,
            tol=settings.tol,
            patience=_PATIENCE,
            max_iter=settings.max_iter,
            on_round=on_round,
        )
        if averages:  # draws of the final model start from it
            fit_proposals(settings, problem, data)
        return trace.loss, trace.converged
    return fit_without_draws(settings, problem, leaves, penalty, on_round)


def _adam_options(settings: Settings) -> dict:
    """Return the options of `joint_ascent`."""
    return {
        "batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
        "max_iter": settings.max_iter,
    }


def fit_without_draws(
    settings: Settings,
    problem: Problem,
    leaves: list[Tensor],
    penalty: Penalty,
    on_round: OnRound,
) -> tuple[list[float], bool]:
    """Run L-BFGS: noise-contrastive estimation without draws."""
    losses: list[float] = []

    def on_step(loss: float) -> bool:
        change = abs(loss - losses[-1]) if losses else np.inf
        losses.append(loss)
        return on_round(len(losses), loss, change)

    n_iter = ITER_PER_ROUND * settings.max_iter
    fit = fit_model(
        problem,
        leaves,
        penalty=penalty,
        tol=_GRADIENT_TOL,
        max_iter=n_iter,
        on_step=on_step,
    )
    return losses or [fit.objective], fit.n_iter < n_iter


def probe_draws(posterior: Posterior, data: Incomplete) -> Draws:
    """Draw once for a row whose missing cells are those of all rows together."""
    return posterior(data.x[:1], data.observed.all(0)[None], stream(0))


def used_parameters(posterior: Posterior, data: Incomplete) -> Named:
    """List the parameters of the posterior that the training rows use."""
    if not isinstance(posterior, nn.Module):
        return []
    named = [
        (f"posterior.{name}", leaf)
        for name, leaf in posterior.named_parameters()
        if leaf.requires_grad
    ]
    draws = probe_draws(posterior, data)
    tensors = [draws.log_prob, draws.log_weight, *draws.values]
    differentiable = [tensor.sum() for tensor in tensors if tensor.requires_grad]
    if not named or not differentiable:
        return []
    leaves = [leaf for _, leaf in named]
    gradients = torch.autograd.grad(sum(differentiable), leaves, allow_unused=True)
    pairs = zip(named, gradients, strict=True)
    return [parameter for parameter, gradient in pairs if gradient is not None]


def has_states(posterior: Posterior) -> bool:
    """Return whether latents are enumerated."""
    return isinstance(posterior, SequentialPosterior) and any(
        isinstance(step, ExactStates) for step in posterior.steps
    )


def is_stochastic(settings: Settings, posterior: Posterior, data: Incomplete) -> bool:
    """Return whether the solver is Adam, as for discrete draws, or raise an error."""
    discrete = is_discrete(posterior, data)
    if discrete and settings.solver == "lbfgs":
        raise ValueError(
            "solver='lbfgs' needs draws that are smooth in the posterior's parameters, "
            "and draws of zeros and ones are not. Use solver='adam'."
        )
    if discrete and posterior.n_draws == 1:
        raise ValueError(
            "A discrete posterior needs at least 2 training draws of each row, got 1: "
            "its gradient takes the other draws of a row as a control variate."
        )
    return discrete or settings.solver == "adam"


def is_discrete(posterior: Posterior, data: Incomplete) -> bool:
    """Return whether any part of the draws is discrete, without a derivative."""
    with torch.no_grad():
        return probe_draws(posterior, data).log_score is not None


def make_penalty(ridge: float, model: Scaled, n: int) -> Penalty:
    """Make the penalty of the model's parameters, or None."""
    leaves = [p for p in model.model.parameters() if p.requires_grad]
    if not ridge or not leaves:
        return None
    return lambda: sum(p.square().sum() for p in leaves) * ridge / (2 * n)


def ridge_of(settings: Settings, model: Scaled) -> float:
    """Return the strength of the penalty; None means the number of parameters."""
    if settings.ridge is not None:
        return float(settings.ridge)
    if settings.model is not None:
        return 0.0
    return float(sum(p.numel() for p in model.model.parameters()))


def fit_proposals(settings: Settings, problem: Problem, data: Incomplete) -> None:
    """Fit the posterior that is used for draws after the fit."""
    named = used_parameters(problem.posterior, data)
    if not named:
        return
    if is_stochastic(settings, problem.posterior, data):
        joint_ascent(problem, named, **_adam_options(settings))
    else:
        leaves = [leaf for _, leaf in named]
        fit_posterior(problem, leaves, max_iter=_PROPOSAL_ITER)


# ----------------------------------------
# The gap between the variational bound of a fit and the log-density.
#
# Draws of missing cells make log p(x_obs) too low on average.  If the posterior is
# far from that of the model, for example because it has one mode instead of two, the
# gap depends on the model, and the fit favours those with broad conditionals.  Many
# draws show the gap of few (Burda, Grosse and Salakhutdinov 2016, theorem 1); those
# of latents come from the posteriors of many rows, as that of a row misses modes.


MAX_BOUND_GAP = 0.1  # in nats; with a larger one the draws of a fit are too few
_N_CHECKED_ROWS = 200  # maximum number of incomplete rows, evenly spaced
# a power of two, because draws are points of a lattice
_N_REFERENCE_DRAWS = 1024  # instead of infinitely many
_N_DEFENSIVE_ROWS = 64  # whose posteriors of latents cover several modes
_SEEDS = 101, 102  # other random numbers than those of a fit
Bound = Callable[[Tensor, Tensor], Tensor]


class Gap(NamedTuple):
    """The mean over rows of log phi minus the bound of the fit (variational gap)."""

    mean: float  # in nats
    error: float  # its standard error


@torch.no_grad()
def bound_gap(
    fitted: FittedModel, data: Incomplete, n_draws: int, *, averages: bool
) -> Gap:
    """Compute the mean gap of the bound over rows with drawn variables.

    `data`: rows of the training data. `n_draws`: number of draws of each row in
    training; `averages`: whether inside the logarithm. Result: 0 if nothing is drawn,
    as no cell is missing, or unobserved variables are integrated out or enumerated.
    """
    drawn = ~data.observed.all(1) | fitted.draws_latents
    rows = drawn.nonzero().squeeze(1)
    if fitted.is_integrated or not len(rows):
        return Gap(0.0, 0.0)
    stride = -(-len(rows) // _N_CHECKED_ROWS)  # rounded up
    subsample = data.take(rows[::stride]).on(fitted.device)
    criterion = log_marginal if averages else mean_over_draws
    bound = _bound(fitted, subsample, n_draws, criterion, _SEEDS[0])
    if fitted.draws_latents:
        fitted = fitted.defend(data)
    n_draws = _N_REFERENCE_DRAWS
    gap = _bound(fitted, subsample, n_draws, log_marginal, _SEEDS[1]) - bound
    return Gap(float(gap.mean()), float(gap.std(correction=0)) / len(gap) ** 0.5)


def _bound(
    fitted: FittedModel, data: Incomplete, n_draws: int, bound: Bound, seed: int
) -> Tensor:
    """Compute a bound of log phi(x_obs) of each row; (n,)."""
    log_density, posterior = fitted.at(data.observed, n_draws)
    size = fitted.chunk_rows(data, posterior, 0)
    bounds = []
    for first in range(0, len(data.x), size):
        chunk = data.take(slice(first, first + size))
        uniforms = shifted_lattice(stream(seed + 2 * first))
        draws = posterior(chunk.x, chunk.observed, uniforms)
        ratio = log_ratio(log_density, draws, chunk.x.new_zeros(len(chunk.x)))
        bounds.append(bound(ratio, draws.log_weight))
    return torch.cat(bounds)


# ----------------------------------------
# A fit of a model to a table: units, noise, several initialisations.


# the default ratio of the estimators
DEFAULT_NOISE_RATIO = 10  # number of rows of the reference noise for each row of data
_MAX_NOISE_ROWS = 2000  # for the check of the scale by fresh noise


class TableFit(NamedTuple):
    """A fit to a table."""

    outcome: Outcome  # from the best start
    data: Incomplete  # in the scale of the model
    units: Units
    summary: ColumnSummary  # of the columns in the scale of the model
    marginals: Marginals  # of the columns in the units of the user
    noise: FittedNoise

    @property
    def criterion(self) -> str:
        """The name of the objective of the fit."""
        best = self.outcome
        complete = bool(self.data.observed.all())
        if best.fitted.is_integrated or (complete and not best.fitted.draws_latents):
            return "nce"
        return "importance-weighted" if best.averages else "vnce"

    @property
    def is_discrete(self) -> bool:
        """Whether draws are discrete, and so cannot be averaged in the logarithm."""
        return is_discrete(self.outcome.fitted.at(self.data.observed)[1], self.data)

    def accuracy(self) -> float:
        """Compute the accuracy of classifying data and noise."""
        return float(self.outcome.evaluation.accuracy())

    def scale_gap(self, settings: Settings) -> float:
        """Compute the log-ratio of the integral, by fresh noise, to the scale."""
        evaluation = self.outcome.fitted.evaluation(
            self.noise.distribution,
            self.data.take(slice(_MAX_NOISE_ROWS)),
            settings.noise_ratio,
            settings.n_draws,
        )
        return float(log_mean(evaluation.noise))

    def bound_gap(self, n_draws: int) -> Gap:
        """Compute the mean gap of the bound over rows with drawn variables."""
        best = self.outcome
        return bound_gap(best.fitted, self.data, n_draws, averages=best.averages)


def fit_table(
    settings: Settings,
    nodes: np.ndarray,  # (n, features), with NaN; every row has an observed cell
    mean: np.ndarray,  # (features,)
    scale: np.ndarray,  # (features,)
    initial_normal: Callable[[Incomplete], Normal],
    on_round: OnRound,
) -> TableFit:
    """Fit from every start, and keep the best; raise an error only if all fail.

    `mean`, `scale`: of the observed cells. The default model has standardised columns.
    `initial_normal`: fits a normal distribution of rows, if the model or the noise
    needs one. Raises NotFinite.
    """
    inputs, prepared = _prepare(settings, nodes, mean, scale, initial_normal)
    outcomes, failure, number = [], None, settings.n_init
    for _ in steps("start", range(number), number, has_parts=True):
        try:
            outcome = fit_from_one_start(settings, inputs, on_round)
        except NotFinite as error:
            failure = error
            continue
        if outcome.evaluation.values.mean().isfinite():
            outcomes.append(outcome)
        else:
            failure = NotFinite("the objective is not finite at the end")
    if not outcomes:
        raise failure
    best = max(outcomes, key=lambda fit: float(fit.evaluation.values.mean()))
    return TableFit(best, *prepared)


def fit_with_enough_draws(
    fit_with: Callable[[Settings], TableFit], settings: Settings
) -> tuple[TableFit, Settings]:
    """Fit, and again with more draws if these seem necessary and sufficient."""
    fit = fit_with(settings)
    if settings.more_draws is None:
        return fit, settings
    more = settings._replace(n_draws=settings.more_draws)
    gaps = [fit.bound_gap(n).mean for n in (settings.n_draws, more.n_draws)]
    if gaps[0] > MAX_BOUND_GAP > gaps[1]:
        with suppress(NotFinite):  # the fit with few draws stays, and warns
            return fit_with(more), more
    return fit, settings


def _prepare(
    settings: Settings,
    nodes: np.ndarray,
    mean: np.ndarray,
    scale: np.ndarray,
    initial_normal: Callable[[Incomplete], Normal],
) -> tuple[Inputs, tuple[Incomplete, Units, ColumnSummary, Marginals, FittedNoise]]:
    """Scale the columns and draw the noise; also return fields of `TableFit`."""
    summary = ColumnSummary.of(nodes, mean, scale)
    counts = torch.from_numpy((~np.isnan(nodes)).sum(0)).double()
    marginals, units = summary.marginals(counts), Units.none(len(mean))
    if settings.model is None:
        units, summary = Units(mean, scale), ColumnSummary.standard(len(mean))
    data = units.scaled(nodes)
    # model and noise may need it, for each start
    normal = cache(lambda: initial_normal(data))
    noise = fit_noise(settings.noise, marginals, units, normal)
    inputs = Inputs(
        data,
        contrast_with(noise.distribution, data, settings.noise_ratio),
        summary,
        normal,
        _normals_of_cells(data, summary.floor),
    )
    return inputs, (data, units, summary, marginals, noise)


def _normals_of_cells(data: Incomplete, floor: Tensor) -> Callable[[Tensor], Normal]:
    """Return a function of the positive columns that runs EM once for all starts."""

    @cache
    def fit_normal(positive: tuple[bool, ...]) -> Normal:
        return normal_of_cells(data, torch.tensor(positive), floor)

    return lambda positive: fit_normal(tuple(positive.tolist()))
