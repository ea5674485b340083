"""One fit of VNCEEstimator from one start: model, posterior, solver.

`options` is the estimator.  Its parameters are read, and it is not modified.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from skvnce._progress import step
from skvnce.algorithms.vnce import em
from skvnce.estimators import _vnce_parts as parts
from skvnce.models.free_gaussian import FreeGaussian
from skvnce.models.scaled import Scaled
from skvnce.objectives.conditional_nce import by_neighbours
from skvnce.objectives.vnce import by_noise
from skvnce.variational.base import stream

PART = 2**21  # maximum size of the draws of one part of the rows
PATIENCE = 5  # number of successive rounds without a change after which the fit stops
_GRADIENT = 1e-5  # tolerance of L-BFGS if there are no draws
PER_ROUND = 20  # number of its iterations that count as a round


class Training(NamedTuple):
    """The inputs that all starts share.

    Attributes
    ----------
    data : Incomplete
    contrast : Contrast
    summary : Summary
    has_density : bool
        Whether the noise has a density; otherwise it is conditional.
    seed : int
    pilot : callable
        Returns the normal distribution at which the default model starts.
    """

    data: object
    contrast: object
    summary: parts.Summary
    has_density: bool
    seed: int
    pilot: object


class Outcome(NamedTuple):
    """A fit from one start.

    Attributes
    ----------
    model : Scaled
    steps : list of nn.Module
        Modules of the posterior.
    evaluation : Evaluation
    losses : list of float
    converged : bool
    n_components : int
    stream : ndarray of uint8
        State of torch's random numbers before the model was made.
    """

    model: Scaled
    steps: list
    evaluation: em.Evaluation
    losses: list
    converged: bool
    n_components: int
    stream: np.ndarray


def from_one_start(options, training, on_round):
    """Make the model and the posterior, and fit them."""
    before = torch.get_rng_state().numpy()
    data, summary = training.data, training.summary
    width = data.x.shape[1]
    model = parts.build_model(options.model, training.pilot, width)
    n_components = parts.n_components(model.model, options.n_components)
    pilot = parts.pilot_of_cells(data, summary.floor)
    steps = parts.build_posterior(
        options.posterior, model, n_components, summary, pilot
    )
    exact = parts.is_integrated(options.posterior, model)
    drawn = parts.joined(steps, options.n_training_draws, data.observed)
    parts.check_log_density(model, drawn, data)
    posterior = em.integrated if exact else drawn
    problem = em.Problem(
        model.log_marginal if exact else model.log_density,
        posterior,
        training.contrast,
        by_noise if training.has_density else by_neighbours,
        training.seed,
        rows_at_once(posterior, width + n_components, options.noise_ratio),
    )
    start_scale(problem, model, free=training.has_density)
    losses, converged = solve(options, problem, model, data, on_round)
    if exact and not isinstance(model.model, FreeGaussian):
        free = problem._replace(log_density=model.log_density, posterior=drawn)
        with step("fitting the posterior of unobserved variables"):
            fit_proposals(options, free, data)
    for module in (model, *steps):
        module.eval()
    found = em.evaluate(problem)
    return Outcome(model, steps, found, losses, converged, n_components, before)


def rows_at_once(posterior, width, noise_ratio):
    """Bound the number of draws of rows and their noise in memory."""
    draws = 1
    if posterior is not em.integrated:
        draws = posterior.n_draws * parts.n_states(posterior.steps)
    return max(1, PART // (draws * (1 + noise_ratio) * width))


def start_scale(problem, model, *, free):
    """Initialise the scale parameter by importance sampling of the integral."""
    if not free:
        model.log_scale.requires_grad_(False)
    elif model.log_scale.requires_grad:
        start = em.log_mean(em.evaluate(problem).noise)
        model.rescale(start if start.isfinite() else 0.0)


def solve(options, problem, model, data, on_round):
    """Run the solver; return the losses, and whether they converged."""
    named = [(k, leaf) for k, leaf in model.named_parameters() if leaf.requires_grad]
    leaves = [leaf for _, leaf in named]
    of_posterior = used_parameters(problem.posterior, data)
    if not leaves and not of_posterior:
        return [-float(em.evaluate(problem).values.mean())], True
    penalty = make_penalty(options, model, len(data.x))
    if is_stochastic(options, problem.posterior, data):
        losses = em.joint_ascent(
            problem,
            [*named, *of_posterior],
            penalty=penalty,
            batch_size=options.batch_size,
            learning_rate=options.learning_rate_init,
            max_iter=options.max_iter,
            on_epoch=lambda epoch, loss: on_round(epoch, loss, np.nan),
        )
        return losses, True
    if of_posterior or has_states(problem.posterior):
        trace = em.variational_em(
            problem,
            leaves,
            [leaf for _, leaf in of_posterior],
            penalty=penalty,
            n_steps=options.n_steps,
            tol=options.tol,
            patience=PATIENCE,
            max_iter=options.max_iter,
            on_round=on_round,
        )
        return trace.loss, trace.converged
    return fit_drawless(options, problem, leaves, penalty, on_round)


def fit_drawless(options, problem, leaves, penalty, on_round):
    """Run L-BFGS if there are no draws: NCE."""
    losses = []

    def on_step(loss):
        change = abs(loss - losses[-1]) if losses else np.inf
        losses.append(loss)
        return on_round(len(losses), loss, change)

    most = PER_ROUND * options.max_iter
    found = em.fit_model(
        problem,
        leaves,
        penalty=penalty,
        tol=_GRADIENT,
        max_iter=most,
        on_step=on_step,
    )
    return losses or [found.objective], found.n_iter < most


def probe_draws(posterior, data):
    """Draw once for a row in which every cell that any row misses is missing."""
    row = parts.probe(data)
    return posterior(row.x, row.observed, stream(0))


def used_parameters(posterior, data):
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
    moving = [tensor.sum() for tensor in tensors if tensor.requires_grad]
    if not named or not moving:
        return []
    leaves = [leaf for _, leaf in named]
    slopes = torch.autograd.grad(sum(moving), leaves, allow_unused=True)
    return [
        pair for pair, slope in zip(named, slopes, strict=True) if slope is not None
    ]


def has_states(posterior):
    """Return whether latents are enumerated."""
    return posterior is not em.integrated and any(
        isinstance(step, em.ExactStates) for step in posterior.steps
    )


def is_stochastic(options, posterior, data):
    """Return whether the solver is Adam, which discrete draws require."""
    with torch.no_grad():
        discrete = probe_draws(posterior, data).log_score is not None
    if discrete and options.solver == "lbfgs":
        raise ValueError(
            "solver='lbfgs' needs draws that are smooth in the posterior's parameters; "
            "here missing cells or latents of zeros and ones are drawn. Use "
            "solver='adam'."
        )
    if discrete and options.n_training_draws == 1:
        raise ValueError(
            "n_training_draws must be at least 2 for a discrete posterior: the other "
            "draws of a row are the control variate of its gradient."
        )
    return discrete or options.solver == "adam"


def make_penalty(options, model, n):
    """Make the penalty of the model's parameters, or None."""
    leaves = [p for p in model.model.parameters() if p.requires_grad]
    ridge = ridge_of(options, model)
    if not ridge or not leaves:
        return None
    return lambda: sum(p.square().sum() for p in leaves) * ridge / (2 * n)


def ridge_of(options, model):
    """Return the strength of the penalty, of ``"auto"`` the number of parameters."""
    if not isinstance(options.ridge, str):
        return float(options.ridge)
    own = options.model is not None
    return 0.0 if own else float(sum(p.numel() for p in model.model.parameters()))


def fit_proposals(options, problem, data):
    """Fit the posterior that is used for draws after the fit."""
    named = used_parameters(problem.posterior, data)
    if not named:
        return
    if is_stochastic(options, problem.posterior, data):
        em.joint_ascent(
            problem,
            named,
            batch_size=options.batch_size,
            learning_rate=options.learning_rate_init,
            max_iter=options.max_iter,
        )
    else:
        em.fit_posterior(problem, [leaf for _, leaf in named], max_iter=50)
