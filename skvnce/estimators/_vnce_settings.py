"""Parameters of VNCEEstimator as the settings of its fit."""

import numpy as np

from skvnce._device import resolve_device
from skvnce.algorithms.vnce.fit import Settings, Solver
from skvnce.estimators._parts import LBFGS, Adam, fields_of

# instead of "auto"; missing cells have a power of two: their draws are a lattice
_DRAWS_OF_CELLS, _DRAWS_OF_LATENTS = (16, 64), (5, None)
_ADAM = {"batch_size": 200, "learning_rate_init": 0.03, "device": "cpu"}


def solver_of(estimator):
    """Collect the settings of the solver.

    Raises
    ------
    ValueError
        If a field of `Adam` is set that is not used.
    """
    part, name = estimator.solver, estimator.solver
    if not isinstance(part, str):
        name = "adam" if isinstance(part, Adam) else "lbfgs"
    adam = fields_of(part if isinstance(part, Adam) else "auto", "solver", _ADAM)
    lbfgs = part if isinstance(part, LBFGS) else LBFGS()
    return Solver(
        name,
        estimator.max_iter,
        lbfgs.n_iter,
        lbfgs.tol,
        adam["batch_size"],
        adam["learning_rate_init"],
    )


def device_name(estimator):
    """Return the field ``device`` of the solver."""
    return getattr(estimator.solver, "device", "cpu")


def n_draws_of(estimator, nodes):
    """Return the number of draws of each row of nodes, and of a second fit or None."""
    asked = estimator.n_training_draws
    if not isinstance(asked, str):
        return asked, None
    return _DRAWS_OF_CELLS if np.isnan(nodes).any() else _DRAWS_OF_LATENTS


def settings_of(estimator, nodes):
    """Collect the parameters that a fit to nodes needs, and its seed."""
    noise, ridge = estimator.noise, estimator.ridge
    if isinstance(noise, str) and noise == "auto":
        noise = "gaussian" if estimator.model is None else "marginal"
    device = resolve_device(device_name(estimator), "solver.device")
    n_draws, more_draws = n_draws_of(estimator, nodes)
    return Settings(
        estimator.model,
        estimator.posterior,
        estimator.n_components,
        noise,
        estimator.noise_ratio,
        n_draws,
        estimator.n_init,
        estimator._seed,
        None if isinstance(ridge, str) else float(ridge),
        solver_of(estimator)._replace(device=device),
        more_draws,
    )
