"""What a fitted normal distribution can do: fill and draw cells, score rows."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvnce._completed import decoded
from skvnce._random import seeded
from skvnce._threads import one_thread
from skvnce.estimators._base import check_sample
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._category_probabilities import CategoryProbabilities
from skvnce.estimators._cellwise import limits_of, mask_of
from skvnce.estimators._gaussian_mixed import mixed_rows
from skvnce.estimators._imputer import Imputer, Predicted
from skvnce.estimators._possible import PossibleValues
from skvnce.estimators._validation import check_count, columns_of


class FittedNormal(CategoryProbabilities, Imputer):
    """Base class of estimators of a latent normal model.

    Their `fit` sets `_normal`, mean and covariance, and `_mixed`, see `mixed_rows`.
    """

    @shows_progress
    def transform(self, X, *, where=None, min_value=None, max_value=None):
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
        min_value, max_value : array-like of shape (n_samples, n_features), or dict, \
                default=None
            Limits of single missing cells, such as detection limits; NaN and infinite
            ones are none.  A data frame may leave out columns, and so may a dict of
            columns to arrays (n_samples,) or numbers.  The conditional distribution is
            truncated to them.

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
        limits = self._limits_given(min_value, max_value, given, X)
        filled = self._predicted(X, limits).filled
        return self._completed(filled, X, given, wanted)

    @shows_progress
    def sample(
        self,
        X,
        n_draws=1,
        random_state=None,
        *,
        as_array=False,
        shift=None,
        reference=None,
        where=None,
        min_value=None,
        max_value=None,
    ):
        """Draw the missing cells from their distribution given the observed cells.

        Draws stay within `feature_ranges_`.  In columns whose values repeat they are
        observed values, and in columns of integers they are integers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        n_draws : int, default=1
            Number of completed tables.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the draws differ between calls.  With an
            integer, draws of different shifts have the same random numbers.
        as_array : bool, default=False
            Whether to return one array of all tables instead of a list.
        shift, reference, where : default=None
            See `skvnce.LAIRImputer.sample`.
        min_value, max_value : array-like of shape (n_samples, n_features), or dict, \
                default=None
            Limits of single missing cells, such as detection limits; NaN and infinite
            ones are none.  A data frame may leave out columns, and so may a dict of
            columns to arrays (n_samples,) or numbers.  The conditional distribution is
            truncated to them.

        Returns
        -------
        list of n_draws tables of shape (n_samples, n_features_out), or ndarray of \
                shape (n_draws, n_samples, n_features_out)
            Completed tables, with the observed cells as they are in X.  Those of a list
            are arrays or data frames, as `transform` returns them (`set_output`).

        Raises
        ------
        ValueError
            If a parameter names unknown columns or has a wrong shape, if a lower limit
            is above the upper one, or if there are limits and `shift` or `reference`.
        TypeError
            If a parameter has a wrong type, or if columns of categories have limits.
        """
        if min_value is None and max_value is None:
            given = {"as_array": as_array, "shift": shift, "reference": reference}
            return super().sample(X, n_draws, random_state, where=where, **given)
        if shift is not None or reference is not None:
            raise ValueError(
                "min_value and max_value cannot be combined with shift or reference, "
                "which change the distribution of the missing cells. Leave one out."
            )
        check_sample(n_draws, as_array)
        checked = self._checked(X)
        wanted = mask_of(self, where, X, checked)
        limits = self._limits_given(min_value, max_value, X, checked)
        sources, draw = self._sources(checked, n_draws)
        drawn = self._filled_in_turns(
            checked, sources, draw, n_draws, random_state, limits
        )
        return self._as_asked(drawn, checked, X, as_array, wanted)

    def _limits_given(self, min_value, max_value, X, checked):
        """Check limits of single cells; None if no missing cell has one."""
        found = limits_of(self, min_value, max_value, X, checked)
        return found and found.rounded(PossibleValues(*self._possible).integers)

    def _sources(self, X, n_draws, is_joint=True):
        if is_joint and self._mixed is not None:  # one chain for all of them
            return [self._normals()], self._drawn
        return [[one] for one in self._normals()], self._drawn

    def _predicted(self, X, limits=None):
        filled, found = self._constants_filled(X), self._certain(X)
        rows = self._rows([self._normal])
        for (part, places), nodes in self._parts(X, only_incomplete=True):
            with one_thread():
                ends = limits and limits.of(part[:, 0], places[0])
                cells, probabilities = rows.predictions(nodes, ends)
            cells = self._clipped(cells)
            filled[part, places] = _unless_limited(self._fill_marginal, cells, ends)
            for node, levels in self._fill_marginal_levels(probabilities).items():
                missing = np.isnan(nodes[:, node])
                found[places[0, node]][part[missing, 0]] = levels[missing]
        filled = filled if limits is None else limits.clipped(filled)
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

    def _drawn(self, normals, nodes, n_draws, limits=None):
        """Draw cells of nodes, in the units of X; (n_draws, n, n_nodes)."""
        cells = self._rows(normals).draws(nodes, n_draws, limits)
        cells = _unless_limited(self._draw_marginal, cells, limits)
        return self._made_possible(cells)


def _unless_limited(fill, cells, limits):
    """Fill cells from the marginal distributions of columns, unless they have limits.

    Observed values of a column may be outside the limits of a cell.
    """
    if limits is None:
        return fill(cells)
    return np.where(limits.known, cells, fill(cells.copy()))
