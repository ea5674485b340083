"""Models with unknown normalisers, and checks of models and posteriors of callers."""

import copy
import inspect
from collections.abc import Callable
from math import log, pi

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from skvnce._core.distributions.normal import (
    ByMissing,
    FreeNormal,
    Normal,
    arrange,
    log_prob_observed,
)
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import Posterior
from skvnce._core.progress import step
from skvnce._core.random import global_stream
from skvnce.contrast import posteriors
from skvnce.contrast.noise import BINARY, POSITIVE, ColumnSummary
from skvnce.gaussian import em

# ----------------------------------------
# A Gaussian energy with free mean and precision P, as an unnormalised model.
#
#     log phi(x) = -(x - mean)' P (x - mean) / 2                                     (1)
#     log phi(x_o) = log N(x_o; mean, P^-1) + (d log 2 pi - log|P|) / 2              (2)
#
# where the missing cells are integrated out.  It is the simplest model of a table of
# numbers: the scale parameter that is fitted with it must equal the known normaliser,
# the second summand of eq. (2).


class FreeGaussian(nn.Module):
    """The energy of eq. (1); rows may have leading dimensions.

    `initial`: the initial mean and precision.
    """

    takes_batches = True  # of `log_marginal`: one mask for all leading dimensions

    def __init__(self, initial: Normal) -> None:
        super().__init__()
        self.free = FreeNormal(initial)

    def log_density(self, x: Tensor) -> Tensor:
        """Compute eq. (1); (*batch, features) -> (*batch,)."""
        return -self.free.square(x) / 2

    def log_normaliser(self) -> Tensor:
        """Compute the logarithm of the integral of phi."""
        return (len(self.free.shift) * log(2 * pi) + self.free.log_det()) / 2

    def log_marginal(self, x: Tensor, observed: Tensor) -> Tensor:  # (*batch, n)
        """Compute eq. (2).

        `observed` (bool (n, features)).  `x` (*batch, n, features): values under the
        mask are not used.
        """
        if observed.all():
            return self.log_density(x)
        log_prob = log_prob_observed(self.free.factored(), x, observed)
        return log_prob + self.log_normaliser()

    def conditional_mean(self, x: Tensor, observed: Tensor) -> Tensor:
        """Fill missing cells by their means; (n, features), (n, features)."""
        normal, filled = self.free.factored(), torch.empty_like(x)
        for batch in arrange(x, observed, kinds=1):
            filled[batch.rows] = ByMissing.of(normal, batch).completed() + normal.mean
        return filled


# ----------------------------------------
# A model with its scale parameter: log phi(x) = log phi_0(x) - c.
#
# If phi_0 is not normalised, the c that maximises the objective estimates the
# logarithm of its integral (Gutmann and Hyvarinen 2012, section 2).


class Scaled(nn.Module):
    """Subtract a free scale parameter from the log-density of a module.

    `model`: its `log_density` and `log_marginal` get rows of shape (n, features)
    without further leading dimensions, unless it has `takes_batches`.  `free`: if
    False, the scale parameter is a constant: zero, until `rescale`.
    """

    def __init__(self, model: nn.Module, *, free: bool = True) -> None:
        super().__init__()
        self.model = model
        zero = torch.zeros((), dtype=torch.float64)
        self.log_scale = nn.Parameter(zero, requires_grad=free)

    @torch.no_grad()
    def rescale(self, log_scale: float | Tensor) -> None:
        """Set the scale parameter."""
        self.log_scale.fill_(log_scale)

    @property
    def states(self) -> Tensor:
        """The states of the latents, of an enumerable model."""
        return self.model.states.to(self.log_scale)

    def log_density(self, *values: Tensor) -> Tensor:
        """Compute log phi(x) or log phi(x, z); (*batch, k), ... -> (*batch,)."""
        flat = [value.flatten(0, -2) for value in values]
        log_phi = self.model.log_density(*flat)
        return log_phi.view(values[0].shape[:-1]) - self.log_scale

    def log_marginal(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute log phi of observed cells; (*batch, n, d), (n, d) -> (*batch, n)."""
        if x.dim() == 2 or getattr(self.model, "takes_batches", False):
            log_phi = self.model.log_marginal(x, observed)
        else:
            tables = x.flatten(0, -3)
            log_phi = [self.model.log_marginal(table, observed) for table in tables]
            log_phi = torch.stack(log_phi).view(x.shape[:-1])
        return log_phi - self.log_scale


# ----------------------------------------
# Normal distributions of incomplete rows, at which models and posteriors start.


_STRENGTHS = (10.0, 1.0, 0.1, 0.01)  # candidates of the shrinkage, in rows per column
_OF_CELLS = 0.02  # shrinkage of the normal that draws missing cells
_MAX_ITER, _TOL = 200, 1e-3  # of EM


def initial_normal(data: Incomplete, held_out: tuple[Tensor, Tensor]) -> Normal:
    """Fit a normal by EM, whose shrinkage cells that are held out choose."""
    return _fit(data, _STRENGTHS, held_out)


def normal_of_cells(data: Incomplete, positive: Tensor, floor: Tensor) -> Normal:
    """Fit a normal distribution of columns, or of their logarithms, by EM.

    `positive`: (features,), bool, columns to replace by logarithms. `floor`:
    (features,), replaces zeros in logarithms.
    """
    # missing cells are zeros, which have no logarithm
    x = data.x.where(data.observed, 1.0)
    x = posteriors.normal_scale(x, positive, floor).where(data.observed, 0.0)
    return _fit(Incomplete(x, data.observed), (_OF_CELLS,))


def standard_normal(width: int) -> Normal:
    """Make a normal distribution whose parameters a stored state will replace."""
    return Normal(torch.zeros(width).double(), torch.eye(width).double())


def _fit(
    data: Incomplete,
    shares: tuple[float, ...],
    held_out: tuple[Tensor, Tensor] | None = None,
) -> Normal:
    """Run EM on standardised columns, with a prior of some rows per column."""
    total = data.observed.double().sum(0)
    mean = data.x.sum(0) / total
    residual = (data.x - mean).where(data.observed, 0.0)
    scale = (residual.square().sum(0) / total).sqrt()
    d, weights = len(mean), torch.ones(len(data.x)).double()
    start, scaled = standard_normal(d), Incomplete(residual / scale, data.observed)
    strength, stopping = shares[0] * d, {"max_iter": _MAX_ITER, "tol": _TOL}
    if held_out is not None:
        rows, hidden = held_out
        part = scaled.take(rows), hidden[rows], weights[rows]
        strengths = [share * d for share in shares]
        strength, start = em.choose_strength(*part, strengths, start, **stopping)
    with step("fitting an initial normal distribution"):
        fit = em.fit_normal(scaled, weights, strength, start, **stopping).normal
    square = scale[:, None] * scale
    return Normal(mean + fit.mean * scale, fit.covariance * square)


# ----------------------------------------
# Models and posteriors from the arguments of a caller: modules, names and functions.


MakeModel = Callable[[int], nn.Module] | None
MakePosterior = str | Callable[[int, int], nn.Module] | None
_CHECKED = 100  # number of rows at which a model is evaluated as a check
_HIDDEN = (50,)  # layer sizes of our networks


def build_model(make: MakeModel, normal: Callable[[], Normal], width: int) -> Scaled:
    """Make the module, and add a scale parameter.

    `make`: maps the number of features to a module; None makes a `FreeGaussian`.
    `normal`: returns the Normal at which the Gaussian starts. `width`: number of
    features.
    """
    # a copy, because the caller may keep a reference to the module
    module = FreeGaussian(normal()) if make is None else copy.deepcopy(make(width))
    if not isinstance(module, nn.Module) or not callable(
        getattr(module, "log_density", None)
    ):
        raise _no_model(f"it made {type(module).__name__}.")
    n_arguments(module)
    return Scaled(module.double(), free=not hasattr(module, "log_scale"))


def _no_model(reason: str) -> TypeError:
    return TypeError(
        "model must map the number of features to a torch.nn.Module with a method "
        f"log_density(x) or log_density(x, z); {reason}"
    )


def _no_posterior(reason: str) -> TypeError:
    return TypeError(
        "posterior must map (n_features, n_components) to a torch.nn.Module that "
        f"returns a torch.distributions.Distribution; {reason}"
    )


def n_arguments(module: nn.Module) -> int:
    """Count the arguments of `log_density`: 1 without latents, 2 with them."""
    signature = inspect.signature(module.log_density)
    required = [p for p in signature.parameters.values() if p.default is p.empty]
    # arguments with defaults are not passed
    count = len(required) or len(signature.parameters)
    if count not in (1, 2):
        raise _no_model(
            f"log_density of {type(module).__name__} takes {count} arguments."
        )
    return count


def count_latents(module: nn.Module, n_components: int | None) -> int:
    """Count the latents that a module takes, by itself or by `n_components`."""
    if n_arguments(module) == 1:
        return 0
    states = getattr(module, "states", None)
    count = n_components or getattr(module, "n_components", None)
    if states is not None:
        shape = tuple(getattr(states, "shape", ()))
        is_table = isinstance(states, Tensor) and len(shape) == 2
        if not is_table or count not in (None, shape[1]):
            raise ValueError(
                "model: states must be a tensor of shape (n_states, n_components)"
                + (f" with n_components={count}" if count else "")
                + f"; {type(module).__name__} has {type(states).__name__} {shape}."
            )
        count = shape[1]
    if not count:
        raise ValueError(
            f"n_components is needed: {type(module).__name__}.log_density takes "
            "latents z, and the module has neither an attribute n_components, at "
            "least 1, nor states."
        )
    return int(count)


def check_log_density(model: Scaled, posterior: Posterior, data: Incomplete) -> None:
    """Check log-densities at a few rows."""
    rows = data.take(slice(_CHECKED))
    draws = posterior(rows.x, rows.observed, global_stream)
    flat = [value.flatten(0, -2) for value in draws.values]
    _check_values(model.model, "log_density", flat, len(rows.x))
    if hasattr(model.model, "log_marginal"):
        _check_values(model.model, "log_marginal", rows, len(rows.x))
    if hasattr(model.model, "conditional_mean"):
        filled = model.model.conditional_mean(*rows)
        if getattr(filled, "shape", None) != rows.x.shape:
            raise ValueError(
                f"model: {type(model.model).__name__}.conditional_mean must return "
                f"filled rows of shape {tuple(rows.x.shape)}."
            )


def _check_values(
    module: nn.Module, method: str, arguments: list[Tensor] | Incomplete, n_rows: int
) -> None:
    """Check that one method of a model returns a number for each row."""
    name = f"model: {type(module).__name__}.{method}"
    shapes = " and ".join(str(tuple(value.shape)) for value in arguments)
    try:
        values = getattr(module, method)(*arguments)
    except (RuntimeError, IndexError) as error:
        message = f"{name} failed on arguments of shape {shapes}: {error}"
        if arguments[0].device.type != "cpu":
            message += (
                " Register all tensors of the module as parameters or buffers, and "
                "make others on the device of the input; or pass device='cpu'."
            )
        raise ValueError(message) from error
    expected = arguments[0].shape[:1]
    if not isinstance(values, torch.Tensor) or values.shape != expected:
        shape = tuple(getattr(values, "shape", ()))
        raise ValueError(
            f"{name} must return one number a row, shape {tuple(expected)}; got "
            f"{type(values).__name__} of shape {shape}."
        )
    if values.isnan().any():
        row = int(values.isnan().nonzero()[0, 0]) % n_rows
        raise ValueError(
            f"{name} is NaN at row {row} of the training data. Check logarithms and "
            "divisions in it."
        )
    learns = any(leaf.requires_grad for leaf in module.parameters())
    if learns and not values.requires_grad:
        raise ValueError(
            f"{name} has no gradient in the parameters of the module: it cannot be "
            "fitted. Do not detach tensors or turn gradients off."
        )


def build_posterior(
    choice: MakePosterior,
    model: Scaled,
    n_latents: int,
    summary: ColumnSummary,
    normal: Callable[[Tensor], Normal],
) -> list[nn.Module]:
    """Make the modules that draw missing cells and latents.

    `choice`: None, "normal", "bernoulli" or callable, the distribution of the latents.
    None is the exact one if the model has states, else ``"normal"``. A callable maps
    (n_features, n_latents) to a module. `normal`: maps the columns to replace by
    logarithms to the Normal of the missing cells.
    """
    steps = _cells(isinstance(model.model, FreeGaussian), summary, normal)
    width = len(summary.kind)
    if not n_latents:
        return steps
    if choice is None and hasattr(model.model, "states"):
        return [*steps, posteriors.ExactStates(model)]
    if choice in (None, "normal"):
        encoder = posteriors.NormalEncoder(_network(summary, 2 * n_latents))
    elif choice == "bernoulli":
        encoder = posteriors.BernoulliEncoder(_network(summary, n_latents))
    else:
        encoder = _checked_encoder(choice(width, n_latents), width, n_latents)
    return [*steps, posteriors.Latents(encoder.double(), n_latents)]


def _network(summary: ColumnSummary, n_outputs: int) -> posteriors.Perceptron:
    return posteriors.Perceptron(
        summary.mean, summary.scale, _HIDDEN, n_outputs
    ).double()


def _cells(
    is_normal: bool, summary: ColumnSummary, normal: Callable[[Tensor], Normal]
) -> list[nn.Module]:
    """Make the modules that draw missing cells."""
    binary, positive = summary.kind == BINARY, summary.kind == POSITIVE
    if is_normal:
        binary, positive = torch.zeros_like(binary), torch.zeros_like(positive)
    steps = []
    if binary.any():
        steps.append(posteriors.BinaryCells(_network(summary, len(binary)), binary))
    if not binary.all():
        cells = posteriors.NormalCells(
            normal(positive), positive, binary, summary.floor
        )
        steps.append(posteriors.DefensiveCells(cells))
    return steps


def _checked_encoder(encoder: object, width: int, n_latents: int) -> nn.Module:
    if not isinstance(encoder, nn.Module):
        raise _no_posterior(f"it made {type(encoder).__name__}.")
    x = torch.zeros(3, width).double()
    q = encoder.double()(x, torch.ones_like(x).bool())
    if not isinstance(q, Distribution):
        raise _no_posterior(f"for (x, observed) it returned {type(q).__name__}.")
    if tuple(q.batch_shape) != (3, n_latents) or len(q.event_shape):
        raise ValueError(
            "posterior: for 3 rows the distribution must have batch_shape "
            f"(3, {n_latents}) and no event shape; got "
            f"{tuple(q.batch_shape)} and {tuple(q.event_shape)}."
        )
    return encoder


def rebuild(
    make_model: MakeModel, choice: MakePosterior, n_latents: int, summary: ColumnSummary
) -> tuple[Scaled, nn.ModuleList]:
    """Make the modules of a fit again, whose state the caller then loads."""
    width = len(summary.kind)
    # the loaded state replaces its values
    normal = standard_normal(width)
    model = build_model(make_model, lambda: normal, width)
    steps = [exact_cells(normal)]
    if not isinstance(model.model, FreeGaussian):
        steps = build_posterior(choice, model, n_latents, summary, lambda _: normal)
    return model, nn.ModuleList(steps)


def exact_cells(normal: Normal) -> posteriors.NormalCells:
    """Make the module that draws missing cells from a normal distribution."""
    return posteriors.NormalCells(normal, torch.zeros(len(normal.mean)).bool())


def is_integrated(choice: MakePosterior, model: Scaled) -> bool:
    """Return whether all unobserved variables are integrated out in closed form."""
    return choice is None and hasattr(model.model, "log_marginal")
