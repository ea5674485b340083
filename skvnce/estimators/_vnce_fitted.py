"""Methods of a fitted VNCEEstimator: means, draws, log-densities, the objective."""

import copy
from math import log

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from skvnce._device import device_in_use
from skvnce._keyed import row_keyed, row_lattice
from skvnce._random import seeded
from skvnce._threads import one_thread
from skvnce._units import Units
from skvnce.algorithms.vnce import fitted, modules
from skvnce.algorithms.vnce.columns import ColumnSummary
from skvnce.algorithms.vnce.fitted import CANDIDATES, EVALUATED
from skvnce.algorithms.vnce.table import REFERENCE_RATIO
from skvnce.estimators._base import CellSampler
from skvnce.estimators._by_parts import by_parts
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._modules import CachedModules, filled_once, load_state
from skvnce.estimators._validation import check_sample
from skvnce.estimators._vnce_settings import device_name
from skvnce.models.noise import Marginals, Rescaled
from skvnce.tables.statistics import into_dtype

_POOL = 10_000  # rows of the reference noise from which that of each row is chosen
_NU = REFERENCE_RATIO
_CHANCE = _NU * log(_NU) - (1 + _NU) * log(1 + _NU)  # the objective of a random guess


class FittedDensity(CachedModules, CellSampler):
    """Base class of estimators of a model with an estimated scale parameter.

    `fit` of the subclass sets the attributes that the methods use, also those of
    `HeldOutCheck`.
    """

    @by_parts
    @shows_progress
    def transform(self, X):
        """Compute the posterior means of the unobserved variables.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_components_) or (n_samples, n_features_out)
            Means of the latents if the model has latents.  Otherwise, and if all
            columns were constant at `fit`, the completed table.  Means without a closed
            form are averages over weighted draws, with random numbers that are
            functions of the row.
        """
        given, X = X, self._checked(X)
        if self.n_components_:
            n_chains = self._n_chains(EVALUATED)
            parts = self._parts(X, n_chains=n_chains)
            found = [self._latent_mean(nodes) for _, nodes in parts]
            return into_dtype(np.concatenate(found), X.dtype)
        filled = self._constants_filled(X)
        for cells, nodes in self._parts(X, only_incomplete=True, n_chains=EVALUATED):
            means = self._filled(self._fitted(), self._units(), nodes)
            filled[cells] = into_dtype(self._fill_marginal(means), X.dtype)
        return self._completed(filled, X, given)

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
        drawn = self._posterior_draws(checked, n_draws, random_state, 1)
        names = self.get_feature_names_out()
        if as_array:
            return drawn
        made = self._container()
        if made is None:
            return list(drawn)
        return [made.create_container(table, X, names) for table in drawn]

    def _drawn_tables(self, X, n_draws, random_state):
        return self._columns_out(self._posterior_draws(X, n_draws, random_state, 0), X)

    def _posterior_draws(self, X, n_draws, random_state, part):
        """Draw cells (part 0) or latents (part 1); (n_draws, n_samples, n_columns)."""
        tiled = np.tile(X, (n_draws, 1))
        if part:
            out = np.empty((len(tiled), self.n_components_), X.dtype)
        else:
            out = self._constants_filled(tiled)
        with one_thread(), seeded(random_state), torch.no_grad():
            for (rows, columns), nodes in self._parts(
                tiled, only_incomplete=not part, n_chains=self._n_chains(CANDIDATES)
            ):
                model = self._fitted()
                data = self._units().scaled(nodes).on(model.device)
                drawn = model.one_draw(data, part).cpu()
                if part:
                    out[rows[:, 0]] = into_dtype(drawn, X.dtype)
                else:
                    cells = self._draw_marginal(self._units().restored(drawn))
                    cells = self._rounded_to_valid(cells)
                    out[rows, columns] = into_dtype(cells, X.dtype)
        return out.reshape(n_draws, len(X), -1)

    @by_parts
    @shows_progress
    def score_samples(self, X, return_std=False):
        """Compute the log-density of the observed cells of each row, in nats.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        return_std : bool, default=False
            Whether to also return standard errors, estimated from the variance of the
            draws of unobserved variables.  They do not include the error of
            `log_scale_`.

        Returns
        -------
        log_prob : ndarray of shape (n_samples,)
            0 if all columns were constant at `fit`.  The normalisation uses the fitted
            scale parameter, so it is as accurate as this estimate.  If unobserved
            variables are drawn, it is the logarithm of an average over 64 weighted
            draws, which is on average too low.
        std : ndarray of shape (n_samples,)
            Standard errors, 0 for rows of which nothing is drawn; only if `return_std`
            is True.
        """
        X = self._checked(X)
        scores, errors = np.zeros((2, len(X)))
        for (rows, _), nodes in self._parts(X, n_chains=self._n_chains(EVALUATED)):
            with one_thread(), torch.no_grad():
                model = self._fitted()
                data = self._units().scaled(nodes).on(model.device)
                found, error = model.log_prob(data, row_lattice(nodes, 0))
            log_scales = self._units().log_scales(nodes)
            scores[rows[:, 0]] = found.cpu().numpy() - log_scales
            errors[rows[:, 0]] = error.cpu().numpy()
        return (scores, errors) if return_std else scores

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
            n_chains = self._n_chains(EVALUATED * (1 + _NU))
            found = [
                self._objective_values(noise, pool, nodes).numpy()
                for _, nodes in self._parts(rows, n_chains=n_chains)
            ]
        return float(np.concatenate(found).mean())

    def _objective_values(self, noise, pool, nodes):
        """Compute the objective of rows; all random numbers are keyed by the row."""
        contrast = fitted.keyed_contrast(
            noise, pool, self._units().scaled(nodes), _NU, row_keyed(nodes, 1)
        )
        numbers, model = (row_lattice(nodes, 2), row_lattice(nodes, 3)), self._fitted()
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
        return copy.deepcopy(self._fitted().model).cpu()

    def _names_out(self, names):
        if not self.n_components_:
            return super()._names_out(names)
        prefix = type(self).__name__.lower()
        return np.array(
            [f"{prefix}{i}" for i in range(self.n_components_)], dtype=object
        )

    def _latent_mean(self, nodes):
        with one_thread(), torch.no_grad():
            model = self._fitted()
            data = self._units().scaled(nodes).on(model.device)
            return model.latent_mean(data, row_lattice(nodes, 0)).cpu()

    def _filled(self, model, units, nodes):
        """Fill nodes by means within the ranges."""
        with one_thread(), torch.no_grad():
            data = units.scaled(nodes).on(model.device)
            filled = model.filled(data, row_lattice(nodes, 0)).cpu()
        return self._clipped(units.restored(filled))

    def _n_chains(self, n_draws):
        """Count the numbers in memory at a time, per cell, when rows are evaluated."""
        if not self.feature_indices_.size:
            return n_draws
        return n_draws * self._fitted().n_states

    def _units(self):
        return Units(self._location, self._scale)

    def _reference(self):
        """Return the product of the marginals, for rows in the scale of the model."""
        marginals = Marginals(*map(torch.tensor, self._marginals))
        return Rescaled(marginals, *self._units().tensors())

    @filled_once
    def _fitted(self):
        """Return the fitted model, whose modules are rebuilt after unpickling."""
        if not self._cache:
            make_model, posterior = self._factories
            summary = ColumnSummary(*map(torch.tensor, self._summary))
            with seeded(0):
                torch.set_rng_state(torch.tensor(self._stream))
                built = modules.rebuild(
                    make_model, posterior, self.n_components_, summary
                )
            states = self.model_state_, self.posterior_state_
            model, steps = (
                load_state(module, state).eval().requires_grad_(False)
                for module, state in zip(built, states, strict=True)
            )
            exact = modules.is_integrated(posterior, model)
            self._cache.append(fitted.Fitted(model, steps, self.n_components_, exact))
        return self._cache[0].on(device_in_use(device_name(self.solver)))
