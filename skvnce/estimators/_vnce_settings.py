"""Parameters of VNCEEstimator as the settings of its fit."""

from typing import NamedTuple

import numpy as np

from skvnce._device import resolve_device
from skvnce.algorithms.vnce.fit import Settings, Solver
from skvnce.estimators._parts import LBFGS, Adam, fields_of

# instead of "auto"; missing cells have a power of two: their draws are a lattice
_DRAWS_OF_CELLS, _DRAWS_OF_LATENTS = (16, 64), (5, None)
_ADAM = {"batch_size": 200, "learning_rate_init": 0.03, "device": "cpu"}


class Parameters(NamedTuple):
    """The parameters of VNCEEstimator that a fit needs."""

    model: object
    posterior: object
    n_components: int | None
    noise: object
    noise_ratio: float
    n_training_draws: int | str
    n_init: int
    ridge: float | str
    solver: object
    max_iter: int


def solver_of(solver, max_iter):
    """Collect the settings of the solver.

    Raises
    ------
    ValueError
        If a field of `Adam` is set that is not used.
    """
    part, name = solver, solver
    if not isinstance(part, str):
        name = "adam" if isinstance(part, Adam) else "lbfgs"
    adam = fields_of(part if isinstance(part, Adam) else "auto", "solver", _ADAM)
    lbfgs = part if isinstance(part, LBFGS) else LBFGS()
    return Solver(
        name,
        max_iter,
        lbfgs.n_iter,
        lbfgs.tol,
        adam["batch_size"],
        adam["learning_rate_init"],
    )


def device_name(solver):
    """Return the field ``device`` of the solver."""
    return getattr(solver, "device", "cpu")


def n_draws_of(n_training_draws, nodes):
    """Return the number of draws of each row of nodes, and of a second fit or None."""
    if not isinstance(n_training_draws, str):
        return n_training_draws, None
    return _DRAWS_OF_CELLS if np.isnan(nodes).any() else _DRAWS_OF_LATENTS


def settings_of(parameters, seed, nodes):
    """Make the settings of a fit to nodes from the `Parameters` of the estimator."""
    noise, ridge, solver = parameters.noise, parameters.ridge, parameters.solver
    if isinstance(noise, str) and noise == "auto":
        noise = "gaussian" if parameters.model is None else "marginal"
    device = resolve_device(device_name(solver), "solver.device")
    n_draws, more_draws = n_draws_of(parameters.n_training_draws, nodes)
    return Settings(
        parameters.model,
        parameters.posterior,
        parameters.n_components,
        noise,
        parameters.noise_ratio,
        n_draws,
        parameters.n_init,
        seed,
        None if isinstance(ridge, str) else float(ridge),
        solver_of(solver, parameters.max_iter)._replace(device=device),
        more_draws,
    )
