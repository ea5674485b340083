"""The parameters of `GaussianImputer`: draws of them, and the copula of numbers."""

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skvnce._incomplete import Incomplete
from skvnce._random import seed_from, seeded
from skvnce._threads import one_thread
from skvnce._warnings import warn_user
from skvnce.algorithms.gaussian.enlarged import posterior_draws
from skvnce.algorithms.gaussian.rows import Rows
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._modules import filled_once
from skvnce.fitted.normal import model_of, normal_of
from skvnce.metrics._chains import slow_chain


class NormalParameters:
    """Mixin of `GaussianImputer`, which documents parameters and attributes."""

    @shows_progress
    def sample_parameters(self):
        """Return the draws of mean and covariance from their posterior.

        Returns
        -------
        means : ndarray of shape (n_parameter_draws, n_nodes)
            In the units of X, see `mean_`.
        covariances : ndarray of shape (n_parameter_draws, n_nodes, n_nodes)

        Warns
        -----
        ConvergenceWarning
            If the draws are those of a Markov chain (`trace_`) with an R-hat above
            1.05; names how many sweeps would do.
        """
        check_is_fitted(self)
        if hasattr(self, "trace_"):
            self._warn_of_slow_chain()
        draws = self._parameter_draws()
        model = model_of(self._model)
        found = [model.moments(normal_of(one)) for one in draws]
        count, d = len(found), len(self.mean_)
        means = np.array([mean for mean, _ in found]).reshape(count, d)
        return means, np.array([cov for _, cov in found]).reshape(count, d, d)

    def _warn_of_slow_chain(self):
        """Warn if the Markov chain of the fit is short."""
        chain = self.r_hat_, self.latent_names_, len(self.trace_), self.n_burn_in_
        message = slow_chain(*chain)
        if message is not None:
            warn_user(message, ConvergenceWarning)

    @filled_once
    def _parameter_draws(self):
        """Draw the parameters at the first call; list of (mean, covariance)."""
        training = self._training
        if self._draws is None and training is not None:
            table, weights, strength, count, seed, total = training
            with one_thread(), seeded(seed):
                draws = posterior_draws(
                    normal_of(self._model["normal"]),
                    Rows(Incomplete.from_array(table), torch.from_numpy(weights)),
                    total,
                    strength,
                    n_draws=count,
                )
            self._draws = [tuple(part.numpy() for part in draw) for draw in draws]
            self._training = None
        return self._draws or []

    def _set_training_rows(self, data, weights, strength, total=None):
        """Store the data from which the parameters are drawn at the first request.

        If they are a sample of the rows, `total` is the weight of all.
        """
        self._draws = None
        self._training = None
        if self.n_parameter_draws:
            table = (data.to_array(), weights.numpy())
            count, seed = self.n_parameter_draws, seed_from(self.random_state)
            self._training = (*table, strength, count, seed, total)

    def _normals(self):
        """List the parameters that `sample` uses in turn."""
        return self._parameter_draws() or super()._normals()

    def _set_model(self, model):
        """Set the model, and what it says in the units of X."""
        self._model = model.plain()
        self.mean_, self.covariance_ = model.moments(model.normal)
