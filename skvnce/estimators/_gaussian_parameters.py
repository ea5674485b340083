"""The parameters of `GaussianImputer`: draws of them, and the copula of numbers."""

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skvnce._incomplete import Incomplete
from skvnce._random import seed_from, seeded
from skvnce._threads import one_thread
from skvnce._units import Units
from skvnce._warnings import warn_user
from skvnce.algorithms.gaussian.calibration import Calibration
from skvnce.algorithms.gaussian.copula import Copula
from skvnce.algorithms.gaussian.enlarged import posterior_draws
from skvnce.algorithms.gaussian.fit import Limits
from skvnce.algorithms.gaussian.marginals import PiecewiseLinear
from skvnce.algorithms.gaussian.rows import Rows
from skvnce.algorithms.gaussian.steps import Steps
from skvnce.distributions.normal import Normal
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._gaussian_mixed import mixed_rows
from skvnce.estimators._gaussian_rows import NormalRows
from skvnce.estimators._modules import filled_once
from skvnce.metrics._chains import slow_chain


def _normal(mean, covariance):
    return Normal(torch.from_numpy(mean), torch.from_numpy(covariance))


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
            self._announce_slow_chain()
        draws = self._parameter_draws()
        found = [self._rows([one]).moments(_normal(*one)) for one in draws]
        count, d = len(found), len(self.mean_)
        means = np.array([mean for mean, _ in found]).reshape(count, d)
        return means, np.array([cov for _, cov in found]).reshape(count, d, d)

    def _announce_slow_chain(self):
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
                    _normal(*self._normal),
                    Rows(Incomplete.from_array(table), torch.from_numpy(weights)),
                    total,
                    strength,
                    n_draws=count,
                )
            self._draws = [tuple(part.numpy() for part in draw) for draw in draws]
            self._training = None
        return self._draws or []

    def _keep_for_draws(self, data, weights, strength, total=None):
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
        return self._parameter_draws() or [self._normal]

    def _rows(self, normals):
        """Make what some parameters, (mean, covariance) pairs, say about rows.

        Without categories `transform` uses the estimate alone.
        """
        if self._mixed is not None:
            is_mixed = np.isnan(self.scale_).any()
            return mixed_rows(self._mixed, normals, None if is_mixed else self._units())
        return NormalRows(self._copula(normals[0]), self._units())

    def _copula(self, normal):
        """Make the model of rows that `_units` standardises."""
        pieces = self._marginals and PiecewiseLinear(
            *map(torch.from_numpy, self._marginals)
        )
        stepped = Steps(*map(torch.from_numpy, self._steps))
        learnt = self._calibration
        learnt = learnt and Calibration(*map(torch.from_numpy, learnt))
        return Copula(_normal(*normal), pieces, self._bounds(), stepped, learnt)

    def _bounds(self):
        """Return the user's bounds, for scaled columns; None if there are none."""
        given = self._schema.values.given[:, self.feature_indices_]
        if not (given & np.isfinite(self._scaled_ranges())).any():
            return None
        far = np.array([[-np.inf], [np.inf]])
        return tuple(map(torch.from_numpy, np.where(given, self._scaled_ranges(), far)))

    def _limits(self):
        """Return what is known about the cells, for scaled columns."""
        ranges = tuple(map(torch.from_numpy, self._scaled_ranges()))
        return Limits(ranges, self._bounds(), self._repeated_values())

    def _repeated_values(self):
        """List the values of columns with repeated values, centred and scaled."""
        known = self._schema.values.values
        return {
            node: torch.from_numpy(
                (known[column] - self.location_[node]) / self.scale_[node]
            )
            for node, column in enumerate(self.feature_indices_.tolist())
            if column in known
        }

    def _units(self):
        return Units(self.location_, self.scale_)

    def _scaled_ranges(self):
        ranges = self.feature_ranges_[:, self.feature_indices_]
        return (ranges - self.location_) / self.scale_
