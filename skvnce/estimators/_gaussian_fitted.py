"""What a fitted normal distribution can do: fill and draw cells, score rows."""

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from skvnce._completed import decoded
from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce._threads import one_thread
from skvnce._units import Units
from skvnce.algorithms.gaussian import em
from skvnce.algorithms.gaussian.calibration import Calibration
from skvnce.algorithms.gaussian.copula import Copula
from skvnce.algorithms.gaussian.marginals import PiecewiseLinear
from skvnce.algorithms.gaussian.steps import Steps
from skvnce.distributions.normal import Normal
from skvnce.estimators._base import Imputer, Predicted
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._gaussian_mixed import mixed_rows
from skvnce.estimators._gaussian_rows import NormalRows
from skvnce.estimators._misfit import shares_of_levels
from skvnce.estimators._modules import filled_once
from skvnce.estimators._output import probabilities_as_given
from skvnce.estimators._possible import PossibleValues
from skvnce.estimators._validation import check_count, columns_of


def _normal(mean, covariance):
    return Normal(torch.from_numpy(mean), torch.from_numpy(covariance))


class FittedNormal(Imputer):
    """Base class of `GaussianImputer`, which documents parameters and attributes."""

    @shows_progress
    def transform(self, X):
        """Fill missing cells by their conditional means given the observed cells.

        If bounds are near, the mean is that of the truncated distribution.  It is exact
        in rows with one missing cell near bounds.  In other rows it is a weighted
        average over points that are functions of the row; in simulations with up to 12
        such cells in a row the error was below 5 % of the conditional standard
        deviation.  Means are within `feature_ranges_`; they need not be observed
        values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Observed cells are equal to those of X.  The array has objects if X has
            categories that are no numbers, or dates; a column without an observed
            level stays missing.  Under `set_output` a data frame with the data types
            of X.
        """
        given, X = X, self._checked(X)
        return self._completed(self._predicted(X).filled, X, given)

    def _drawn_tables(self, X, n_draws, random_state):
        sources = [[one] for one in self._normals()]
        if self._mixed is not None:  # one chain for all of them
            sources = [self._normals()]
        return self._filled_in_turns(X, sources, self._drawn, n_draws, random_state)

    @shows_progress
    def category_probabilities(self, X):
        """Compute the probabilities of levels given the observed cells of each row.

        They are averaged over the conditional distributions of Markov chains with the
        estimated parameters, whose random numbers are functions of the row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)

        Returns
        -------
        dict of str to data frame or ndarray of shape (n_samples, n_levels)
            For each column of `categories_` the probabilities of its levels in their
            order, 1 and 0 where the cell is observed: data frames of the library of X
            with the levels as names, or arrays if X is no data frame.  Empty if there
            are no categories.
        """
        found = self._predicted(self._checked(X)).probabilities
        return probabilities_as_given(self, found, X)

    def _predicted(self, X):
        filled, found = self._constants_filled(X), self._certain(X)
        rows = self._rows([self._normal])
        for (part, places), nodes in self._parts(X, only_incomplete=True):
            with one_thread():
                cells, probabilities = rows.predictions(nodes)
            filled[part, places] = self._fill_marginal(self._clipped(cells))
            for node, levels in probabilities.items():
                if node in self._marginals_of_columns:
                    shares = self._marginals_of_columns[node]
                    shares = shares_of_levels(shares, levels.shape[1])
                    levels[np.isnan(nodes[:, node])] = shares
                found[places[0, node]][part[:, 0]] = levels
        return Predicted(filled, found)

    @shows_progress
    def sample_rows(self, n_rows=1, random_state=None):
        """Draw new rows from the distribution with the fitted parameters.

        Parameters
        ----------
        n_rows : int, default=1
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the draws differ between calls.

        Returns
        -------
        ndarray of shape (n_rows, n_features_in_)
            Values as `sample` draws them; NaN in columns that were entirely missing at
            `fit`, None if the array is one of objects.
        """
        check_is_fitted(self)
        check_count(n_rows, "n_rows")
        rows = np.full((n_rows, self.n_features_in_), np.nan)
        rows[:, list(self.constants_)] = self._constant_cells()
        with one_thread(), seeded(random_state):
            for cells, nodes in self._parts(rows):
                rows[cells] = self._drawn([self._normal], nodes, 1)[0]
        columns = columns_of(self)
        return decoded(columns, rows) if columns else rows

    @shows_progress
    def score_samples(self, X):
        """Compute the log-density of the observed cells of each row, in nats.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples,)
            0 for a row that is entirely missing, and if all columns are constant.
        """
        X = self._checked(X)
        scores, model = np.zeros(len(X)), self._rows([self._normal])
        for (rows, _), nodes in self._parts(X):
            with one_thread():
                scores[rows[:, 0]] = model.log_prob(nodes)
        return scores

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
        draws = self._parameter_draws()
        found = [self._rows([one]).moments(_normal(*one)) for one in draws]
        count, d = len(found), len(self.mean_)
        means = np.array([mean for mean, _ in found]).reshape(count, d)
        return means, np.array([cov for _, cov in found]).reshape(count, d, d)

    @filled_once
    def _parameter_draws(self):
        """Draw the parameters at the first call; list of (mean, covariance)."""
        training = self._training
        if self._draws is None and training is not None:
            table, weights, strength, count, seed = training
            with one_thread(), seeded(seed):
                draws = em.posterior_draws(
                    _normal(*self._normal),
                    Incomplete.from_array(table),
                    torch.from_numpy(weights),
                    strength,
                    n_draws=count,
                )
            self._draws = [tuple(part.numpy() for part in draw) for draw in draws]
            self._training = None
        return self._draws or []

    def _normals(self):
        """List the parameters that `sample` uses in turn."""
        return self._parameter_draws() or [self._normal]

    def _rows(self, normals):
        """Make what some parameters, (mean, covariance) pairs, say about rows.

        Without categories `transform` uses the estimate alone.
        """
        if self._mixed is not None:
            return mixed_rows(self._mixed, normals)
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
        given = PossibleValues(*self._possible).given[:, self.feature_indices_]
        if not (given & np.isfinite(self._scaled_ranges())).any():
            return None
        far = np.array([[-np.inf], [np.inf]])
        return tuple(map(torch.from_numpy, np.where(given, self._scaled_ranges(), far)))

    def _drawn(self, normals, nodes, n_draws):
        """Draw cells of nodes, in the units of X; (n_draws, n, n_nodes)."""
        cells = self._rows(normals).draws(nodes, n_draws)
        return self._made_possible(self._draw_marginal(cells))

    def _units(self):
        return Units(self.location_, self.scale_)

    def _scaled_ranges(self):
        ranges = self.feature_ranges_[:, self.feature_indices_]
        return (ranges - self.location_) / self.scale_
