"""Methods of a fitted VNCEEstimator: means, draws, log-densities, the objective."""

import copy
from math import log
from typing import NamedTuple

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from skvnce._device import device_in_use
from skvnce._keyed import row_keyed, row_lattice
from skvnce._modules import filled_once, load_state
from skvnce._random import seeded
from skvnce._threads import one_thread
from skvnce._units import Units
from skvnce.algorithms.vnce import fitted, modules
from skvnce.algorithms.vnce.columns import ColumnSummary
from skvnce.algorithms.vnce.fitted import EVALUATED
from skvnce.algorithms.vnce.table import REFERENCE_RATIO
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._imputer import Imputer
from skvnce.estimators._tables_in_parts import by_parts
from skvnce.estimators._validation import check_sample
from skvnce.estimators._vnce_settings import device_name
from skvnce.fitted.base import n_chains
from skvnce.fitted.fill import chunks
from skvnce.fitted.scaled_density import ScaledDensity
from skvnce.models.noise import Marginals, Rescaled
from skvnce.tables.statistics import into_dtype

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
        contrast = fitted.keyed_contrast(
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
            rebuilt = fitted.Fitted(model, steps, self.n_components_, exact)
            arrays.cache["fitted"] = rebuilt
        return arrays.cache["fitted"].on(device_in_use(device_name(self.solver)))
