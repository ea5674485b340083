"""Parameters of VNCEEstimator as the settings of its fit, and what is said of it."""

from contextlib import contextmanager

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skvnce._device import resolve_device
from skvnce._warnings import warn_user
from skvnce.algorithms.vnce.errors import (
    DrawsNotSmooth,
    NotAModel,
    NotAPosterior,
    SingleDraw,
    UnknownLatents,
    UnsuitableModel,
    UnsuitablePosterior,
)
from skvnce.algorithms.vnce.fit import Settings
from skvnce.algorithms.vnce.gap import MOST_LOST
from skvnce.estimators._options import LBFGS, Adam, fields_of
from skvnce.models.noise import NoPartialDensity, NotANoise, UnsuitableNoise

# instead of "auto", and of a second fit; missing cells have a power of two, because
# their draws are a lattice
_DRAWS_OF_CELLS, _DRAWS_OF_LATENTS = (16, 64), (5, None)
_ADAM = {"batch_size": 200, "learning_rate_init": 0.03, "device": "cpu"}


# parameters of the estimator that are those of a fit
_OF_FIT = "model", "posterior", "n_components", "noise_ratio", "n_init", "max_iter"


def solver_fields(solver):
    """Return what the solver sets of `Settings`; a field of another one is an error."""
    name = solver
    if not isinstance(solver, str):
        name = "adam" if isinstance(solver, Adam) else "lbfgs"
    adam = fields_of(solver if isinstance(solver, Adam) else "auto", "solver", _ADAM)
    lbfgs = solver if isinstance(solver, LBFGS) else LBFGS()
    return {
        "solver": name,
        "n_steps": lbfgs.n_iter,
        "tol": lbfgs.tol,
        "batch_size": adam["batch_size"],
        "learning_rate": adam["learning_rate_init"],
    }


def device_name(solver):
    """Return the field ``device`` of the solver."""
    return getattr(solver, "device", "cpu")


def settings_of(parameters, seed, nodes):
    """Make the settings of a fit to nodes from the parameters of the estimator."""
    noise, ridge, solver = (parameters[name] for name in ("noise", "ridge", "solver"))
    if isinstance(noise, str) and noise == "auto":
        noise = "gaussian" if parameters["model"] is None else "marginal"
    n_draws, more_draws = parameters["n_training_draws"], None
    if isinstance(n_draws, str):
        is_missing = np.isnan(nodes).any()
        n_draws, more_draws = _DRAWS_OF_CELLS if is_missing else _DRAWS_OF_LATENTS
    return Settings(
        **{name: parameters[name] for name in _OF_FIT},
        **solver_fields(solver),
        noise=noise,
        n_draws=n_draws,
        more_draws=more_draws,
        seed=seed,
        ridge=None if isinstance(ridge, str) else float(ridge),
        device=resolve_device(device_name(solver), "solver.device"),
    )


_GAP = 1.0  # `log_scale_gap_` above which `fit` warns
_ERRORS = {  # the first that matches; the order is from special to general
    NotAModel: "model must map the number of features to a torch.nn.Module with a "
    "method log_density(x) or log_density(x, z); {}",
    UnknownLatents: "n_components is needed: {}",
    UnsuitableModel: "model: {}",
    NotAPosterior: "posterior must map (n_features, n_components) to a torch.nn.Module "
    "that returns a torch.distributions.Distribution; {}",
    UnsuitablePosterior: "posterior: {}",
    NotANoise: "noise must have a density: {} Pass one of 'auto', 'marginal', "
    "'gaussian', 'conditional', a torch Distribution or a zuko flow.",
    NoPartialDensity: "noise={} Pass a MultivariateNormal or independent columns, or "
    "use noise='marginal' or noise='gaussian'.",
    UnsuitableNoise: "{} Use noise that covers the data.",
    DrawsNotSmooth: "solver='lbfgs' needs draws that are smooth in the posterior's "
    "parameters: {} Use solver='adam'.",
    SingleDraw: "n_training_draws must be at least 2 for a discrete posterior: {}",
}


@contextmanager
def errors_named():
    """Convert errors about what the user passed into errors that name the parameter."""
    try:
        yield
    except tuple(_ERRORS) as error:
        text = next(t for k, t in _ERRORS.items() if isinstance(error, k))
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(text.format(error)) from error


def warn_of_rounds(n_iter, max_iter, tol):
    """Warn that the objective still changed by more than `tol` at the end."""
    warn_user(
        f"The objective still changed after {n_iter} iterations. Raise "
        f"max_iter={max_iter} (or solver=LBFGS(tol={tol:g}), which is used only if "
        "unobserved variables are drawn or enumerated).",
        ConvergenceWarning,
    )


def warn_of_gap(log_scale_gap, noise_ratio):
    """Warn if fresh noise gives another scale."""
    if log_scale_gap > _GAP:
        warn_user(
            f"Fresh noise gives an integral exp({log_scale_gap:.2g}) times that of "
            "log_scale_: the model has mass in regions without data or noise in "
            f"training. Raise noise_ratio={noise_ratio} or ridge, or use noise closer "
            "to the data.",
            ConvergenceWarning,
        )


def warn_of_bound(bound_gap, n_draws):
    """Warn if more draws of missing cells give rows another log-density."""
    if bound_gap > MOST_LOST:
        more = 2 ** (4 * n_draws - 1).bit_length()  # a power of two
        warn_user(
            f"The {n_draws} draws of missing cells of each row miss "
            f"{bound_gap:.2g} nats of its log-density, on average over incomplete "
            "rows: the fitted conditional distributions may be too broad. Pass "
            f"n_training_draws={more}, fit complete rows alone, or give the "
            "model a method log_marginal(x, observed).",
            ConvergenceWarning,
        )
