"""Draws of mean and covariance from their posterior, made at the first request."""

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from skvnce._incomplete import Incomplete
from skvnce._random import seed_from, seeded
from skvnce._threads import one_thread
from skvnce.algorithms.gaussian import em
from skvnce.distributions.normal import Normal
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._modules import filled_once


class ParameterDraws:
    """Mixin of `GaussianImputer`, whose `n_parameter_draws` is the number of draws."""

    @shows_progress
    def sample_parameters(self):
        """Return the draws of mean and covariance from their posterior.

        Returns
        -------
        means : ndarray of shape (n_parameter_draws, n_nodes)
            In the units of X, see `mean_`.
        covariances : ndarray of shape (n_parameter_draws, n_nodes, n_nodes)
        """
        check_is_fitted(self)
        found = [self._parameters_in_units(one) for one in self._parameter_draws()]
        count, d = len(found), len(self.scale_)
        means = np.array([mean for mean, _ in found]).reshape(count, d)
        return means, np.array([cov for _, cov in found]).reshape(count, d, d)

    def _keep_for_draws(self, data, weights, strength):
        """Store the data from which the parameters are drawn at the first request."""
        self._draws = None
        self._training = None
        if self.n_parameter_draws:
            table = (data.to_array(), weights.numpy())
            count = self.n_parameter_draws
            self._training = (*table, strength, count, seed_from(self.random_state))

    @filled_once
    def _parameter_draws(self):
        """Draw the parameters at the first call; list of (mean, covariance)."""
        training = self._training
        if self._draws is None and training is not None:
            table, weights, strength, count, seed = training
            with one_thread(), seeded(seed):
                draws = em.posterior_draws(
                    Normal(*map(torch.from_numpy, self._normal)),
                    Incomplete.from_array(table),
                    torch.from_numpy(weights),
                    strength,
                    n_draws=count,
                )
            self._draws = [tuple(part.numpy() for part in draw) for draw in draws]
            self._training = None
        return self._draws or []

    def _parameters_in_units(self, normal):
        mean, covariance = normal
        square = np.outer(self.scale_, self.scale_)
        return self.location_ + mean * self.scale_, covariance * square
