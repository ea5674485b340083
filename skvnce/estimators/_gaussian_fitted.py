"""What a fitted normal distribution can do: fill and draw cells, score rows."""

from functools import partial

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvnce._arguments import check_count
from skvnce._random import seed_from, seeded
from skvnce._threads import one_thread
from skvnce._warnings import warn_user
from skvnce.estimators._by_parts import by_parts, samples_by_parts
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._imputer import Imputer, Predicted
from skvnce.estimators._intervals import (
    ordered_draws,
    ranks_of_interval,
    ranks_of_quantiles,
)
from skvnce.estimators._validation import check_sample
from skvnce.estimators._where import mask_of
from skvnce.fitted.normal import model_of
from skvnce.tables.cell_limits import check_bounds, limits_of
from skvnce.tables.cells import is_frame
from skvnce.tables.completed import decoded


class FittedNormal(Imputer):
    """Base class of estimators of a latent normal model.

    Their `fit` sets `_model`, a `CopulaModel` or `LatentNormal` as plain data.
    """

    @by_parts
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
        where : array-like of bool of shape (n_samples, n_features), dict or \
                callable, default=None
            Which missing cells are filled; the others stay missing, for example
            answers that the form of a survey skips.  A data frame or a dict of columns
            to masks of shape (n_samples,) may leave out columns, which are filled.  If
            cells decide that may be missing themselves, pass a function, or a dict of
            columns to functions: it is called with completed rows, like X, and returns
            such masks.  None fills all missing cells.
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
        wanted = mask_of(self._schema, where, given, X)
        limits = self._limits_given(min_value, max_value, given, X)
        return self._completed(self._predicted(X, limits), X, given, wanted, limits)

    @samples_by_parts
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
            is above the upper one or leaves no whole number to a column of a data frame
            that has only these, or if there are limits and `shift` or `reference`.
        TypeError
            If a parameter has a wrong type, or if columns of categories have limits.
        """
        if min_value is None and max_value is None:
            self._warn_of_absent_limits(X)
            given = {"as_array": as_array, "shift": shift, "reference": reference}
            return super().sample(X, n_draws, random_state, where=where, **given)
        if shift is not None or reference is not None:
            raise ValueError(
                "min_value and max_value cannot be combined with shift or reference, "
                "which change the distribution of the missing cells. Leave one out."
            )
        check_sample(n_draws, as_array)
        checked = self._checked(X)
        wanted = mask_of(self._schema, where, X, checked)
        limits = self._limits_given(min_value, max_value, X, checked)
        seed = seed_from(random_state)
        draw = self._drawer(checked, n_draws, seed, limits)
        return self._ruled(draw, seed, checked, X, as_array, wanted, limits)

    @shows_progress
    def interval(
        self,
        X,
        level=0.9,
        n_draws=199,
        random_state=None,
        *,
        min_value=None,
        max_value=None,
    ):
        """Compute intervals that contain the missing cells with a probability.

        The ends are draws of `sample`, and so values that the cell can have.  If the
        model is right, an interval contains the cell with probability `level`, or with
        a larger one where values repeat, and the cell is equally often below and above.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        level : float, default=0.9
            Between 0 and 1.
        n_draws : int, default=199
            Number of draws.  The probability is `level` if ``(1 - level) / 2 *
            (n_draws + 1)`` is an integer, as it is for 0.9, 0.95 and 0.99 with 199
            draws; else it is larger.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the ends differ between calls.
        min_value, max_value : array-like of shape (n_samples, n_features), or dict, \
                default=None
            Limits of single missing cells, as in `sample`.

        Returns
        -------
        lower, upper : ndarray or data frame of shape (n_samples, n_features_out)
            Arrays or data frames, as `sample` returns them.  Observed cells are as in
            X.  Missing cells stay missing in columns whose levels have no order, for
            which there is `category_probabilities`, and in columns that had no observed
            cell at `fit`.

        Raises
        ------
        ValueError
            If `level` is not between 0 and 1, or needs more draws.
        TypeError
            If `level` is no number, or `n_draws` no integer.
        """
        ranks = ranks_of_interval(level, n_draws)
        ends = min_value, max_value
        return tuple(self._quantiles(X, ranks, n_draws, random_state, *ends))

    @shows_progress
    def quantile(
        self,
        X,
        q=0.5,
        n_draws=199,
        random_state=None,
        *,
        min_value=None,
        max_value=None,
    ):
        """Compute quantiles of the distributions of the missing cells.

        They are draws of `sample`, of rank ``q * (n_draws + 1)``, rounded up.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        q : float or array-like of shape (n_quantiles,), default=0.5
            Between 0 and 1.
        n_draws : int, default=199
            Number of draws.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the quantiles differ between calls.
        min_value, max_value : array-like of shape (n_samples, n_features), or dict, \
                default=None
            Limits of single missing cells, as in `sample`.

        Returns
        -------
        ndarray or data frame of shape (n_samples, n_features_out), or list of these
            A list if `q` is array-like.  Observed cells, and columns that have no
            quantiles, are as in `interval`.

        Raises
        ------
        ValueError
            If `q` is not between 0 and 1, or needs more draws.
        TypeError
            If `q` is neither a number nor array-like, or `n_draws` no integer.
        """
        ranks, ends = ranks_of_quantiles(q, n_draws), (min_value, max_value)
        found = self._quantiles(X, ranks, n_draws, random_state, *ends)
        return found if np.ndim(q) else found[0]

    def _quantiles(self, X, ranks, n_draws, random_state, *ends):
        checked = self._checked(X)
        limits = self._limits_given(*ends, X, checked)
        given = self._schema.returned, checked, ranks, n_draws, random_state
        draw = partial(self._drawn_tables, n_draws=n_draws)
        tables = ordered_draws(draw, *given, limits)
        return self._tables_of_quantiles(tables, checked, X)

    def _limits_given(self, min_value, max_value, X, checked):
        """Check limits of single cells; None if no missing cell has one."""
        if min_value is None and max_value is None:
            self._warn_of_absent_limits(X)
        found = limits_of(self._schema, min_value, max_value, X, checked)
        check_bounds(self._schema, found, is_whole=is_frame(X))
        return found and found.rounded(self._schema.values.integers)

    def _warn_of_absent_limits(self, X):
        """Warn if missing cells have limits at `fit`, and none now."""
        places = getattr(self, "_limited_columns", ())
        missing = np.isnan(self._checked(X)).any(0) if places else ()
        names = [self._schema.label(place) for place in places if missing[place]]
        if names:
            warn_user(
                f"fit was given limits of missing cells of {', '.join(names)}, and now "
                "they are filled without limits. Pass min_value and max_value, with "
                "NaN for cells without a limit."
            )

    def _drawn_tables(self, X, n_draws, random_state, limits=None):
        sources, draw = self._sources(X, n_draws)
        return self._filled_in_turns(X, sources, draw, n_draws, random_state, limits)

    def _sources(self, X, n_draws, is_joint=True):
        if is_joint and "kinds" in self._model:  # one chain for all of them
            return [self._normals()], self._drawn
        return [[one] for one in self._normals()], self._drawn

    def _predicted(self, X, limits=None):
        filled, found = self._constants_filled(X), self._certain(X)
        rows = model_of(self._model)
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
        rows[:, list(self.constants_)] = self._schema.constant_cells
        with one_thread(), seeded(random_state):
            for cells, nodes in self._parts(rows):
                rows[cells] = self._drawn([self._model["normal"]], nodes, 1)[0]
        columns = self._schema.columns
        return decoded(columns, rows) if columns else rows

    @by_parts
    @shows_progress
    def score_samples(self, X, return_std=False):
        """Compute the log-density of the observed cells of each row, in nats.

        It is exact in tables of numbers.  With categories, and in columns of
        `CopulaGraphLearner` with repeated values, it is the logarithm of the average of
        64 draws, which is on average too low.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        return_std : bool, default=False
            Whether to also return standard errors, which takes eight times as long.

        Returns
        -------
        log_prob : ndarray of shape (n_samples,)
            0 for a row that is entirely missing, and if all columns are constant.
        std : ndarray of shape (n_samples,)
            Standard errors, from eight other estimates; 0 for rows of which nothing is
            drawn.  Only if `return_std` is True.
        """
        X = self._checked(X)
        scores = self._scored(X)
        return (scores, self._scored(X, errors=True)) if return_std else scores

    def _scored(self, X, errors=False):
        scores, model = np.zeros(len(X)), model_of(self._model)
        compute = model.log_prob_errors if errors else model.log_prob
        for (rows, _), nodes in self._parts(X):
            with one_thread():
                scores[rows[:, 0]] = compute(nodes)
        return scores

    def _normals(self):
        """List the parameters that `sample` uses in turn."""
        return [self._model["normal"]]

    def _with_one_draw(self):
        return self._copies_with("_draws", [[one] for one in self._normals()])

    def _drawn(self, normals, nodes, n_draws, limits=None):
        """Draw cells of nodes, in the units of X; (n_draws, n, n_nodes)."""
        cells = model_of(self._model, normals).draws(nodes, n_draws, limits)
        cells = _unless_limited(self._draw_marginal, cells, limits)
        return self._rounded_to_valid(cells)


def _unless_limited(fill, cells, limits):
    """Fill cells from the marginal distributions of columns, unless they have limits.

    Observed values of a column may be outside the limits of a cell.
    """
    if limits is None:
        return fill(cells)
    return np.where(limits.known, cells, fill(cells.copy()))
