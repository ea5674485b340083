"""The parts of VNCEEstimator, made from the objects that its user passes."""

import copy
import inspect
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.distributions import Distribution

from skvnce._incomplete import Incomplete
from skvnce._progress import step
from skvnce.algorithms.gaussian import em
from skvnce.algorithms.vnce.em import ExactStates, Steps
from skvnce.distributions.normal import Normal
from skvnce.estimators._misfit import HELD_OUT
from skvnce.estimators._tables import hold_out
from skvnce.models.free_gaussian import FreeGaussian
from skvnce.models.noise import BINARY, POSITIVE, REAL, neighbours
from skvnce.models.scaled import Scaled
from skvnce.objectives.vnce import Contrast, Rows
from skvnce.variational.cells import (
    BinaryCells,
    DefensiveCells,
    NormalCells,
    normal_scale,
)
from skvnce.variational.encoder import (
    BernoulliEncoder,
    Latents,
    NormalEncoder,
    Perceptron,
)

_CHECKED = 100  # number of rows at which a model is evaluated as a check
_HIDDEN = (50,)  # layer sizes of our networks
_STRENGTH = 0.02  # strength of the pilot's prior, in rows per column
_STEP = 1.0  # of the conditional-NCE kernel, in standard deviations over the root of d


class Summary(NamedTuple):
    """Column statistics of the training table.

    Attributes
    ----------
    kind : Tensor of int64, of shape (features,)
        `REAL`, `POSITIVE` or `BINARY`.
    mean, scale : Tensor of shape (features,)
    floor : Tensor of shape (features,)
        Half of the smallest positive value, which replaces zero in logarithms.
    """

    kind: torch.Tensor
    mean: torch.Tensor
    scale: torch.Tensor
    floor: torch.Tensor

    @classmethod
    def of(cls, nodes, mean, scale):
        """Compute the statistics of a table (n, features) with NaN."""
        binary = (np.isnan(nodes) | (nodes == 0) | (nodes == 1)).all(0)
        positive = np.nanmin(nodes, 0) >= 0
        kind = np.where(binary, BINARY, np.where(positive, POSITIVE, REAL))
        floor = np.nanmin(np.where(nodes > 0, nodes, np.inf), 0) / 2
        floor = np.where(np.isfinite(floor), floor, 1.0)
        return cls(*map(torch.from_numpy, (kind, mean, scale, floor)))


def pilot_normal(data, shares=(_STRENGTH,)):
    """Fit a normal distribution by EM, shrunk towards independent columns.

    Parameters
    ----------
    data : Incomplete
    shares : sequence of float
        Strength of the shrinkage, in rows for each column.  Of several values the one
        that predicts held-out cells best is used.

    Returns
    -------
    Normal
    """
    total = data.observed.double().sum(0)
    mean = data.x.sum(0) / total
    residual = (data.x - mean).where(data.observed, 0.0)
    scale = (residual.square().sum(0) / total).sqrt()
    d, weights = len(mean), torch.ones(len(data.x)).double()
    start = Normal(torch.zeros(d).double(), torch.eye(d).double())
    scaled = Incomplete(residual / scale, data.observed)
    strength, effort = shares[0] * d, {"max_iter": 200, "tol": 1e-3}
    if len(shares) > 1:
        some, hidden = hold_out(data.to_array(), weights, HELD_OUT)
        part = scaled.take(some), hidden[some], weights[some]
        strengths = [share * d for share in shares]
        strength, start = em.choose_strength(*part, strengths, start, **effort)
    with step("fitting a pilot"):
        fit = em.fit_normal(scaled, weights, strength, start, **effort).normal
    square = scale[:, None] * scale
    return Normal(mean + fit.mean * scale, fit.covariance * square)


def build_model(factory, pilot, width):
    """Make the module, and add a scale parameter.

    Parameters
    ----------
    factory : callable or None
        Maps the number of features to a module; None makes a `FreeGaussian`.
    pilot : callable
        Returns the Normal at which the Gaussian starts.
    width : int
        Number of features.

    Returns
    -------
    Scaled
    """
    # a copy, because the user may keep a reference to the module
    module = FreeGaussian(pilot()) if factory is None else copy.deepcopy(factory(width))
    if not isinstance(module, nn.Module) or not callable(
        getattr(module, "log_density", None)
    ):
        raise TypeError(
            "model must map the number of features to a torch.nn.Module with a method "
            f"log_density(x) or log_density(x, z); it made {type(module).__name__}."
        )
    n_values(module)
    return Scaled(module.double(), free=not hasattr(module, "log_scale"))


def n_values(module):
    """Count the arguments of `log_density`: 1 without latents, 2 with them."""
    parameters = inspect.signature(module.log_density).parameters.values()
    needed = [one for one in parameters if one.default is one.empty]
    count = len(needed) or len(parameters)
    if count not in (1, 2):
        raise TypeError(
            "model.log_density must take x, or x and z; the one of "
            f"{type(module).__name__} takes {count} arguments."
        )
    return count


def n_components(module, asked):
    """Find the number of latents of a module; 0 if it takes none."""
    if n_values(module) == 1:
        return 0
    states = getattr(module, "states", None)
    found = asked or getattr(module, "n_components", None)
    if states is not None:
        shape = tuple(getattr(states, "shape", ()))
        if len(shape) != 2 or found not in (None, shape[1]):
            raise ValueError(
                "model: states must be a tensor of shape (n_states, n_components)"
                + (f" with n_components={found}" if found else "")
                + f"; {type(module).__name__} has {shape}."
            )
        found = shape[1]
    if found is None:
        raise ValueError(
            f"n_components is needed: {type(module).__name__}.log_density takes "
            "latents z, and the module has neither an attribute n_components nor "
            "states."
        )
    return int(found)


def check_log_density(model, posterior, data):
    """Check that a model returns log-densities, at a few rows."""
    some = data.take(slice(_CHECKED))
    draws = posterior(some.x, some.observed, lambda step, like: torch.rand_like(like))
    flat = [value.flatten(0, -2) for value in draws.values]
    _check_values(model.model, "log_density", flat, len(some.x))
    if hasattr(model.model, "log_marginal"):
        _check_values(model.model, "log_marginal", some, len(some.x))
    if hasattr(model.model, "conditional_mean"):
        filled = model.model.conditional_mean(*some)
        if getattr(filled, "shape", None) != some.x.shape:
            raise ValueError(
                f"model: {type(model.model).__name__}.conditional_mean must return "
                f"filled rows of shape {tuple(some.x.shape)}."
            )


def _check_values(module, method, arguments, n_rows):
    """Check that one method of a model returns a number for each row."""
    name = f"{type(module).__name__}.{method}"
    shapes = " and ".join(str(tuple(value.shape)) for value in arguments)
    try:
        found = getattr(module, method)(*arguments)
    except (RuntimeError, IndexError) as error:
        message = f"model: {name} failed on arguments of shape {shapes}: {error}"
        raise ValueError(message) from error
    expected = arguments[0].shape[:1]
    if not isinstance(found, torch.Tensor) or found.shape != expected:
        shape = tuple(getattr(found, "shape", ()))
        raise ValueError(
            f"model: {name} must return one number a row, shape {tuple(expected)}; got "
            f"{type(found).__name__} of shape {shape}."
        )
    if found.isnan().any():
        row = int(found.isnan().nonzero()[0, 0]) % n_rows
        raise ValueError(
            f"model: {name} is NaN at row {row} of the training data. Check logarithms "
            "and divisions in it."
        )


def build_posterior(choice, model, latents, summary, pilot):
    """Make the modules that draw missing cells and latents.

    Parameters
    ----------
    choice : None, "normal", "bernoulli" or callable
    model : Scaled
    latents : int
    summary : Summary
    pilot : callable
        Takes the columns to replace by logarithms, returns a Normal.

    Returns
    -------
    list of nn.Module
    """
    binary, positive = summary.kind == BINARY, summary.kind == POSITIVE
    steps, width = [], len(binary)

    def network(n_outputs):
        return Perceptron(summary.mean, summary.scale, _HIDDEN, n_outputs).double()

    if isinstance(model.model, FreeGaussian):
        positive = torch.zeros_like(positive)
        binary = torch.zeros_like(binary)
    if binary.any():
        steps.append(BinaryCells(network(width), binary))
    if not binary.all():
        cells = NormalCells(pilot(positive), positive, binary, summary.floor)
        steps.append(DefensiveCells(cells))
    if not latents:
        return steps
    if choice is None and hasattr(model.model, "states"):
        return [*steps, ExactStates(model)]
    if choice in (None, "normal"):
        encoder = NormalEncoder(network(2 * latents))
    elif choice == "bernoulli":
        encoder = BernoulliEncoder(network(latents))
    else:
        encoder = _checked_encoder(choice(width, latents), width, latents)
    return [*steps, Latents(encoder.double(), latents)]


def _checked_encoder(encoder, width, latents):
    if not isinstance(encoder, nn.Module):
        raise TypeError(
            "posterior must map (n_features, n_components) to a torch.nn.Module; it "
            f"made {type(encoder).__name__}."
        )
    x = torch.zeros(3, width).double()
    q = encoder.double()(x, torch.ones_like(x).bool())
    if not isinstance(q, Distribution):
        raise TypeError(
            "posterior: the module must return a torch.distributions.Distribution for "
            f"(x, observed); got {type(q).__name__}."
        )
    if tuple(q.batch_shape) != (3, latents) or len(q.event_shape):
        raise ValueError(
            "posterior: for 3 rows the distribution must have batch_shape "
            f"(3, {latents}) and no event shape; got {tuple(q.batch_shape)} and "
            f"{tuple(q.event_shape)}."
        )
    return encoder


def pilot_of_cells(data, floor):
    """Return a function of the positive columns: a normal of their logarithms."""

    def pilot(positive):
        x = data.x.where(data.observed, 1.0)
        transformed = normal_scale(x, positive, floor).where(data.observed, 0.0)
        return pilot_normal(Incomplete(transformed, data.observed))

    return pilot


def exact_cells(normal):
    """Make the module that draws missing cells from a normal distribution."""
    return NormalCells(normal, torch.zeros(len(normal.mean)).bool())


def is_integrated(choice, model):
    """Return whether all unobserved variables are integrated out in closed form."""
    return choice is None and hasattr(model.model, "log_marginal")


def probe(data):
    """Make a row in which every cell that any row misses is missing."""
    return Incomplete(data.x[:1], data.observed.all(0)[None])


def n_states(steps):
    """Count the states that a posterior enumerates for each draw."""
    return prod(step.n_states for step in steps if isinstance(step, ExactStates))


def joined(steps, n_draws, observed):
    """Make a posterior of modules, with a single draw if nothing is random."""
    random = not observed.all() or any(isinstance(step, Latents) for step in steps)
    return Steps(steps, n_draws if random else 1)


@torch.no_grad()
def contrast_with(noise, data, noise_ratio):
    """Draw noise for each row, with its missing cells."""
    n, d = data.x.shape
    y = noise.sample(noise_ratio * n).view(noise_ratio, n, d)
    pairs = (
        (data.x, log_noise_of_data(noise, data)),
        (y, noise.log_prob(y, data.observed)),
    )
    return Contrast(*(Rows(x, data.observed, log_noise) for x, log_noise in pairs))


def log_noise_of_data(noise, data):
    """Compute log p_y of rows of data; raise an error if noise excludes them."""
    remedy = "Use noise that covers the data."
    try:
        found = noise.log_prob(*data)
    except ValueError as error:
        if "support" not in str(error):
            raise
        raise ValueError(
            "noise has no density at some rows of X: they lie outside the support of "
            f"the distribution. {remedy}"
        ) from error
    if not found.isfinite().all():
        row = int((~found.isfinite()).nonzero()[0, 0])
        raise ValueError(
            f"noise gives row {row} of the training data (rows that are entirely "
            f"missing not counted) the log-density {float(found[row])}. {remedy}"
        )
    return found


def contrast_around(data, summary, noise_ratio):
    """Draw noise around each row, without a density."""
    n, d = data.x.shape
    step = _STEP * summary.scale / d**0.5
    scale = step.where(summary.kind != BINARY, min(0.5, 2 / d))
    y = neighbours(data.x, summary.kind, scale, noise_ratio)
    return Contrast(
        Rows(data.x, data.observed, data.x.new_zeros(n)),
        Rows(y, data.observed, data.x.new_zeros(noise_ratio, n)),
    )


def some_normal(d):
    """Make a normal of d columns, whose values a stored state will replace."""
    return Normal(torch.zeros(d).double(), torch.eye(d).double())
