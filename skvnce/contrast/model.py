"""Methods of a fitted VNCEEstimator: means, draws, log-densities, the objective."""

import copy
from contextlib import contextmanager
from math import log
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skvnce._core.incomplete import Incomplete, Units
from skvnce._core.random import row_keyed, row_lattice, seeded
from skvnce._core.runtime import (
    device_in_use,
    filled_once,
    load_state,
    one_thread,
    resolve_device,
)
from skvnce._core.warnings import warn_user
from skvnce._imputer.callbacks import shows_progress
from skvnce._imputer.fill import chunks
from skvnce._imputer.fitted import n_chains
from skvnce._imputer.imputer import Imputer
from skvnce._imputer.options import LBFGS, Adam, fields_of
from skvnce._imputer.parts.tables import by_parts
from skvnce._imputer.validation import check_sample
from skvnce._tables.limits import NO_LIMITS, Limits
from skvnce._tables.values import into_dtype
from skvnce.contrast import fit, modules
from skvnce.contrast.fit import CANDIDATES, EVALUATED, MOST_LOST, Fitted, Settings
from skvnce.contrast.modules import (
    DrawsNotSmooth,
    NotAModel,
    NotAPosterior,
    SingleDraw,
    UnknownLatents,
    UnsuitableModel,
    UnsuitablePosterior,
)
from skvnce.contrast.noise import (
    ColumnSummary,
    Marginals,
    NoPartialDensity,
    NotANoise,
    Rescaled,
    UnsuitableNoise,
)
from skvnce.contrast.table import REFERENCE_RATIO

# ----------------------------------------
# Parameters of VNCEEstimator as the settings of its fit, and what is said of it.


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


# ----------------------------------------
# A fitted density with a scale parameter: means, draws and scores of rows.


_CELLS, _LATENTS = 0, 1  # what `Fitted.one_draw` draws


class ScaledDensity(NamedTuple):
    """A density of scaled columns, perhaps with latent variables."""

    fitted: Fitted
    units: Units

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many numbers a cell are in memory at a time."""
        number = EVALUATED if n_draws is None else CANDIDATES * n_draws
        return number * self.fitted.n_states

    @torch.no_grad()
    def fill(
        self, nodes: np.ndarray, limits: Limits = NO_LIMITS
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by their means; see `CellModel`."""
        found = self.fitted.filled(self._scaled(nodes), row_lattice(nodes, 0))
        return self.units.restored(found.cpu()), {}

    @torch.no_grad()
    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> tuple[np.ndarray, dict]:
        """Find quantiles of missing cells; see `_imputer.fill`."""
        numbers, levels = row_lattice(nodes, 0), torch.tensor(levels)
        found = self.fitted.quantiles(self._scaled(nodes), numbers, levels)
        return self.units.restored(found.cpu()), {}

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        return self.units.restored(self._drawn(nodes, n_draws, _CELLS))

    def latent_mean(self, nodes: np.ndarray) -> np.ndarray:
        """Compute posterior means of the latents; (n, n_components)."""
        with torch.no_grad():
            numbers = row_lattice(nodes, 0)
            return self.fitted.latent_mean(self._scaled(nodes), numbers).cpu().numpy()

    def draw_latents(self, nodes: np.ndarray, n_draws: int) -> np.ndarray:
        """Draw the latents with torch's global stream; (n_draws, n, n_components)."""
        return self._drawn(nodes, n_draws, _LATENTS).numpy()

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute log-densities of rows and their standard errors; each (n,)."""
        with torch.no_grad():
            found, error = self.fitted.log_prob(
                self._scaled(nodes), row_lattice(nodes, 0)
            )
        return found.cpu().numpy() - self.units.log_scales(nodes), error.cpu().numpy()

    def _scaled(self, nodes: np.ndarray) -> Incomplete:
        return self.units.scaled(nodes).on(self.fitted.device)

    @torch.no_grad()
    def _drawn(self, nodes: np.ndarray, n_draws: int, what: int) -> torch.Tensor:
        rows = self._scaled(np.tile(nodes, (n_draws, 1)))
        found = self.fitted.one_draw(rows, what).cpu()
        return found.reshape(n_draws, len(nodes), -1)


# ----------------------------------------
# Methods of a fitted VNCEEstimator: means, draws, log-densities, the objective.


_POOL = 10_000  # rows of the reference noise from which that of each row is chosen
_NU = REFERENCE_RATIO
_CHANCE = _NU * log(_NU) - (1 + _NU) * log(1 + _NU)  # the objective of a random guess


class DensityArrays(NamedTuple):
    """A fitted density as arrays, from which its modules are rebuilt."""

    factories: tuple  # make the model and the posterior
    stream: np.ndarray  # state of torch's stream before they made them
    units: Units
    marginals: tuple  # of the reference noise
    summary: tuple  # of columns, for the posterior
    cache: dict  # the modules, by name; not stored

    @classmethod
    def of(cls, found, factories):
        """Keep what a fit has found."""
        arrays = (
            tuple(part.numpy() for part in values)
            for values in (found.marginals, found.summary)
        )
        cache = {"fitted": found.outcome.fitted}
        return cls(factories, found.outcome.stream, found.units, *arrays, cache)


class FittedDensity(Imputer):
    """Base class of estimators of a model with an estimated scale parameter.

    `fit` of the subclass sets the attributes that the methods use.
    """

    _has_density = True

    @by_parts
    @shows_progress
    def transform(self, X, *, where=None, lower=None, upper=None):
        """Compute the posterior means of the unobserved variables.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        where, lower, upper : default=None
            See `skvnce.GaussianImputer.transform`; not for models with latents, nor are
            there limits.

        Returns
        -------
        ndarray of shape (n_samples, n_components_) or (n_samples, n_features_out)
            Means of the latents if the model has latents.  Otherwise, and if all
            columns were constant at `fit`, the completed table.  Means without a closed
            form are averages over weighted draws, with random numbers that are
            functions of the row.
        """
        check_is_fitted(self)
        if not self.n_components_:
            return self._transformed(X, where, lower, upper)
        if any(one is not None for one in (where, lower, upper)):
            raise ValueError(
                "The model has latents, whose means transform returns: where, lower "
                "and upper are of tables. sample draws missing cells, and takes where."
            )
        checked = self._checked(X)
        with one_thread():
            model = self._cell_model()
            found = [
                model.latent_mean(nodes)
                for _, nodes in chunks(self._schema, checked, n_chains(model))
            ]
        return into_dtype(np.concatenate(found), checked.dtype)

    @shows_progress
    def sample_latents(self, X, n_draws=1, random_state=None, *, as_array=False):
        """Draw the latents from their posterior given the observed cells.

        Each draw is chosen among candidates from the fitted posterior, by their
        weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        n_draws : int, default=1
            Number of draws.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the draws differ between calls.
        as_array : bool, default=False
            Whether to return one array of all draws instead of a list.

        Returns
        -------
        list of n_draws tables of shape (n_samples, n_components_), or ndarray of \
                shape (n_draws, n_samples, n_components_)
            Those of a list are arrays or data frames, as `transform` returns them.

        Raises
        ------
        ValueError
            If the model has no latents.
        """
        check_sample(n_draws, as_array)
        checked = self._checked(X)
        if not self.n_components_:
            raise ValueError("The model has no latents. sample draws missing cells.")
        drawn = self._latents_drawn(checked, n_draws, random_state)
        names = self.get_feature_names_out()
        if as_array:
            return drawn
        made = self._container()
        if made is None:
            return list(drawn)
        return [made.create_container(table, X, names) for table in drawn]

    def _latents_drawn(self, X, n_draws, random_state):
        """Draw the latents of validated rows; (n_draws, n_samples, n_components)."""
        drawn = np.empty((n_draws, len(X), self.n_components_), X.dtype)
        with one_thread(), seeded(random_state):
            model = self._cell_model()
            parts = chunks(self._schema, X, n_chains(model, n_draws))
            for (rows, _), nodes in parts:
                found = model.draw_latents(nodes, n_draws)
                drawn[:, rows[:, 0]] = into_dtype(found, X.dtype)
        return drawn

    @shows_progress
    def objective(self, X, y=None):
        """Compute the objective J_VNCE at rows of X; larger is better.

        The reference noise depends only on the training data: the product of the
        marginals of the columns, with ten rows of noise for each row.  So values can be
        compared between candidates that differ in any parameter, also where their
        log-densities are not normalised well: ``GridSearchCV(..., scoring=lambda
        estimator, X, y=None: estimator.objective(X))``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None
            Ignored.

        Returns
        -------
        float
            If all columns were constant at `fit`, the objective of a random guess.
        """
        X = self._checked(X)
        if not self.feature_indices_.size:
            return _CHANCE
        empty = np.isnan(X[:, self.feature_indices_]).all(1)
        rows = X if empty.all() else X[~empty]
        with one_thread(), seeded(0), torch.no_grad():
            noise = self._reference()
            pool = noise.sample(_POOL)
            n_chains = EVALUATED * (1 + _NU) * self._modules().n_states
            found = [
                self._objective_values(noise, pool, nodes).numpy()
                for _, nodes in chunks(self._schema, rows, n_chains)
            ]
        return float(np.concatenate(found).mean())

    def _objective_values(self, noise, pool, nodes):
        """Compute the objective of rows; all random numbers are keyed by the row."""
        # 0 is the key of means and log-densities
        contrast = fit.keyed_contrast(
            noise, pool, self._units().scaled(nodes), _NU, row_keyed(nodes, 1)
        )
        numbers, model = (row_lattice(nodes, 2), row_lattice(nodes, 3)), self._modules()
        return model.objective(contrast.on(model.device), numbers).cpu()

    def to_torch(self):
        """Return a copy of the fitted module on the CPU, without gradients.

        Returns
        -------
        torch.nn.Module
            Its ``log_density`` subtracts the fitted scale parameter.  Its attribute
            ``model`` is the module that the callable ``model`` made.  The default model
            takes standardised columns.

        Raises
        ------
        ValueError
            If all columns were constant at `fit`.
        """
        check_is_fitted(self)
        if not self.feature_indices_.size:
            raise ValueError("All columns were constant at fit: there is no model.")
        return copy.deepcopy(self._modules().model).cpu()

    def _names_out(self, names):
        if not self.n_components_:
            return super()._names_out(names)
        prefix = type(self).__name__.lower()
        return np.array(
            [f"{prefix}{i}" for i in range(self.n_components_)], dtype=object
        )

    def _cell_model(self):
        return ScaledDensity(self._modules(), self._units())

    def _units(self):
        return self._fitted.model.units

    def _reference(self):
        """Return the product of the marginals, for rows in the scale of the model."""
        marginals = Marginals(*map(torch.tensor, self._fitted.model.marginals))
        return Rescaled(marginals, *self._units().tensors())

    @filled_once
    def _modules(self):
        """Return the fitted model, whose modules are rebuilt after unpickling."""
        arrays = self._fitted.model
        if not arrays.cache:
            make_model, posterior = arrays.factories
            summary = ColumnSummary(*map(torch.tensor, arrays.summary))
            with seeded(0):
                torch.set_rng_state(torch.tensor(arrays.stream))
                built = modules.rebuild(
                    make_model, posterior, self.n_components_, summary
                )
            states = self.model_state_, self.posterior_state_
            model, steps = (
                load_state(module, state).eval().requires_grad_(False)
                for module, state in zip(built, states, strict=True)
            )
            exact = modules.is_integrated(posterior, model)
            rebuilt = fit.Fitted(model, steps, self.n_components_, exact)
            arrays.cache["fitted"] = rebuilt
        return arrays.cache["fitted"].on(device_in_use(device_name(self.solver)))
