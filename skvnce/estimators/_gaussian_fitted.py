"""What a fitted normal distribution can do: fill and draw cells, score rows."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvnce._completed import decoded
from skvnce._random import seeded
from skvnce._threads import one_thread
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._category_probabilities import CategoryProbabilities
from skvnce.estimators._cellwise import mask_of
from skvnce.estimators._gaussian_mixed import mixed_rows
from skvnce.estimators._imputer import Imputer, Predicted
from skvnce.estimators._validation import check_count, columns_of


class FittedNormal(CategoryProbabilities, Imputer):
    """Base class of estimators of a latent normal model.

    Their `fit` sets `_normal`, mean and covariance, and `_mixed`, see `mixed_rows`.
    """

    @shows_progress
    def transform(self, X, *, where=None):
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
        where : array-like of bool of shape (n_samples, n_features), or dict, \
                default=None
            Which missing cells are filled; the others stay missing, for example
            answers that the form of a survey skips.  A data frame or a dict of columns
            to masks of shape (n_samples,) may leave out columns, which are filled.
            None fills all missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Observed cells are equal to those of X.  The array has objects if X has
            categories that are no numbers, or dates; a column without an observed
            level stays missing.  Under `set_output` a data frame with the data types
            of X.
        """
        given, X = X, self._checked(X)
        wanted = mask_of(self, where, given, X)
        return self._completed(self._predicted(X).filled, X, given, wanted)

    def _sources(self, X, n_draws, is_joint=True):
        if is_joint and self._mixed is not None:  # one chain for all of them
            return [self._normals()], self._drawn
        return [[one] for one in self._normals()], self._drawn

    def _predicted(self, X):
        filled, found = self._constants_filled(X), self._certain(X)
        rows = self._rows([self._normal])
        for (part, places), nodes in self._parts(X, only_incomplete=True):
            with one_thread():
                cells, probabilities = rows.predictions(nodes)
            filled[part, places] = self._fill_marginal(self._clipped(cells))
            for node, levels in self._fill_marginal_levels(probabilities).items():
                missing = np.isnan(nodes[:, node])
                found[places[0, node]][part[missing, 0]] = levels[missing]
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
        return self._scored(self._checked(X))

    def _scored(self, X):
        scores, model = np.zeros(len(X)), self._rows([self._normal])
        for (rows, _), nodes in self._parts(X):
            with one_thread():
                scores[rows[:, 0]] = model.log_prob(nodes)
        return scores

    def _normals(self):
        """List the parameters that `sample` uses in turn."""
        return [self._normal]

    def _rows(self, normals):
        """Make what some parameters, (mean, covariance) pairs, say about rows."""
        return mixed_rows(self._mixed, normals)

    def _drawn(self, normals, nodes, n_draws):
        """Draw cells of nodes, in the units of X; (n_draws, n, n_nodes)."""
        cells = self._rows(normals).draws(nodes, n_draws)
        return self._made_possible(self._draw_marginal(cells))
