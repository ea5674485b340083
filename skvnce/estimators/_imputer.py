"""The base class of imputers: predictions, and draws from several models in turn."""

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from sklearn.impute import MissingIndicator

from skvnce._random import seed_from, seeded
from skvnce._threads import one_thread
from skvnce.estimators._base import CellSampler
from skvnce.estimators._by_parts import samples_by_parts
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._memory import check_memory
from skvnce.estimators._reference import fitted_to
from skvnce.estimators._validation import check_sample
from skvnce.estimators._where import OF_PREDICTION, Rules, mask_of
from skvnce.exceptions import TableWarning
from skvnce.fitted.shift import shift_of, shifted, warn_of_cuts
from skvnce.tables.output import as_given, probabilities_as_given
from skvnce.tables.row_checks import NEVER_OBSERVED
from skvnce.tables.statistics import into_dtype

_LIMITS = {"min_value", "max_value"}  # limits of cells, of `fit` and `transform`


class Predicted(NamedTuple):
    """Predictions of the missing cells of a table.

    Attributes
    ----------
    filled : ndarray of shape (n_samples, n_features_in_)
        The table, with codes of levels, and its missing cells filled.
    probabilities : dict of int to ndarray of shape (n_samples, n_levels)
        Those of the levels of each column of categories; 1 and 0 in observed cells.
    """

    filled: np.ndarray
    probabilities: dict


class Imputer(CellSampler):
    """Base class of imputers with the parameter `add_indicator`."""

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
        shift : dict, default=None
            How missing values differ from those of similar rows, for a sensitivity
            analysis: ``{"income": -0.2, "smoker": {"yes": 0.7}}`` lowers the missing
            incomes by 0.2 standard deviations of the observed ones, and adds 0.7 to
            the log-odds of missing smokers.  The other missing cells of a row are
            drawn given the shifted ones.  Keys are column names, or indices if X has
            no names.  Numbers remain within `feature_ranges_`, and a warning says if
            they therefore move by less than three quarters of the shift.  None assumes
            that values are missing at random.
        reference : array-like of shape (n_reference, n_features), default=None
            Rows of a group whose distribution the missing cells follow, given the
            observed cells of their own row, for example the control group of a trial.
            A clone of this imputer is fitted to them.  Columns that are constant in the
            group do not count.  None uses the fit to all rows.
        where : array-like of bool of shape (n_samples, n_features), dict or \
                callable, default=None
            Which missing cells are filled; the others stay missing, for example
            answers that the form of a survey skips.  A data frame or a dict of columns
            to masks of shape (n_samples,) may leave out columns, which are filled.  If
            cells decide that may be missing themselves, pass a function, or a dict of
            columns to functions: it is called with completed rows, like X, and returns
            such masks.  None fills all missing cells.

        Returns
        -------
        list of n_draws tables of shape (n_samples, n_features_out), or ndarray of \
                shape (n_draws, n_samples, n_features_out)
            Completed tables, with the observed cells as they are in X.  Those of a list
            are arrays or data frames, as `transform` returns them (`set_output`).

        Raises
        ------
        ValueError
            If `shift` names unknown columns or levels, or is not finite, or if a
            column has no observed cell in `reference`, or if `where` has a wrong shape
            or names unknown columns.
        TypeError
            If `shift` has a number for categories, or a dict for numbers, or if `where`
            is not boolean.

        Warns
        -----
        UserWarning
            If a function of `where` denies an observed cell whatever the missing cells
            of its row are, or if a shift moves cells by less than stated.
        """
        check_sample(n_draws, as_array)
        checked, model = self._checked(X), self
        wanted, seed = mask_of(self._schema, where, X, checked), seed_from(random_state)
        if reference is not None:
            model = fitted_to(self, reference, seed)
        if shift is None:
            draw = model._drawer(checked, n_draws, seed)
            return self._ruled(draw, seed, checked, X, as_array, wanted)
        shift = shift_of(model._schema, shift)
        draw = partial(model._drawn_shifted, checked, n_draws, seed, shift)
        found = self._ruled(draw, seed, checked, X, as_array, wanted)
        warn_of_cuts(model._schema, shift, model._limit_of_shift)
        return found

    def fit_transform(self, X, y=None, *, where=None, **fit_params):
        """Fit to a table, and fill its missing cells.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None
            Ignored.
        where : array-like of bool of shape (n_samples, n_features), dict or \
                callable, default=None
            See `transform`.
        **fit_params : dict
            Of `fit`.  Limits of cells (`min_value`, `max_value`), which only some
            imputers accept, hold for `transform`, too.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            See `transform`.
        """
        shared = {name: fit_params[name] for name in _LIMITS & fit_params.keys()}
        with warnings.catch_warnings():
            if where is not None:  # which is what the warning asks for
                warnings.filterwarnings("ignore", NEVER_OBSERVED, TableWarning)
            self.fit(X, y, **fit_params)
        return self.transform(X, where=where, **shared)

    @shows_progress
    def category_probabilities(self, X):
        """Compute the probabilities of levels given the observed cells of each row.

        They are averages of conditional probabilities given draws of other unobserved
        variables (see the notes of the class).  The random numbers are functions of the
        row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)

        Returns
        -------
        dict of str to data frame or ndarray of shape (n_samples, n_levels)
            For each column of `categories_` the probabilities of its levels in their
            order, 1 and 0 where the cell is observed: data frames of the library of X
            (whatever `set_output` says) with the levels as names, or arrays if X is no
            data frame.  Columns that were entirely missing at `fit` have none.  Empty
            if there are no categories.
        """
        found = self._predicted(self._checked(X)).probabilities
        return probabilities_as_given(self._schema, found, X)

    def _drawer(self, X, n_draws, seed, limits=None):
        """Make a function that draws some rows of a validated table."""

        def draw(rows=slice(None)):
            given = () if limits is None else (limits.of_rows(rows),)
            return self._drawn_tables(X[rows], n_draws, seed, *given)

        return draw

    def _leveller(self, X, limits=None):
        """Make a function that predicts levels in some rows of a validated table."""

        def predicted(rows):
            given = () if limits is None else (limits.of_rows(rows),)
            return self._predicted(X[rows], *given).probabilities

        return predicted

    def _drawn_shifted(self, X, n_draws, seed, shift, rows=slice(None)):
        """Draw some rows of a validated table with shifted cells."""
        sources, draw = self._sources(X[rows], n_draws, is_joint=False)
        turns = X[rows], sources, shifted(draw, shift), n_draws, seed
        return self._filled_by_shift(shift, *turns)

    def _ruled(self, draw, seed, checked, X, as_array, where, limits=None):
        """Draw validated rows, apply rules, and convert to what `sample` returns."""
        draw = self._whole_draws(draw, checked, X)
        drawn = draw()
        if isinstance(where, Rules):
            rng = np.random.default_rng(seed)
            given = np.isnan(checked), draw, self._leveller(checked, limits), rng
            drawn, where = where.of_draws(drawn, *given)
        return self._as_asked(drawn, checked, X, as_array, where)

    def _whole_draws(self, draw, checked, X):
        """Make a function that draws some rows, with whole numbers; see `_drawer`."""

        def whole(rows=slice(None)):
            return self._whole(draw(rows), checked[rows], X)

        return whole

    def _sources(self, X, n_draws, is_joint=True):
        """Return models, and a function that draws from one; see `_filled_in_turns`.

        With ``is_joint=False`` a model has one value of the parameters.
        """
        raise NotImplementedError

    def _filled_by_shift(self, shift, *turns):
        """Draw as `_filled_in_turns` does; `shift` adds up the changes of cells."""
        return self._filled_in_turns(*turns)

    def _limit_of_shift(self, place):
        """Say why cells of a column move by less than stated, and what to do."""
        low, high = self.feature_ranges_[:, place]
        return (
            f"values remain within {low:g} and {high:g}. State a smaller shift, or "
            "wider bounds of the imputer."
        )

    def _trains_model(self):
        """Return whether `fit` trains the model that draws."""
        return True

    def _drawn_tables(self, X, n_draws, random_state):
        sources, draw = self._sources(X, n_draws)
        return self._filled_in_turns(X, sources, draw, n_draws, random_state)

    def _predicted(self, X):
        """Predict the missing cells of validated rows; returns `Predicted`."""
        raise NotImplementedError

    def _certain(self, X):
        """Return the probabilities of `Predicted` where cells are observed or constant.

        Columns that were entirely missing at `fit` have none.
        """
        never, cells = np.isnan(self._column_ends).all(0), self._constants_filled(X)
        return {
            place: np.eye(len(column.levels))[
                np.nan_to_num(cells[:, place]).astype(int)
            ]
            for place, column in enumerate(self._schema.columns or ())
            if column.levels and not never[place]
        }

    def _filled_in_turns(self, X, sources, draw, n_draws, random_state, limits=None):
        """Draw the missing cells of validated rows from each of the sources in turn.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features_in_)
        sources : list
            The models to draw from, each equally often and in random order.
        draw : callable
            Maps (source, nodes, number) to cells of the nodes, in the units of X, of
            shape (number, n, n_nodes).
        n_draws : int
        random_state : int, RandomState instance, Generator or None
        limits : CellLimits, default=None
            Of the missing cells of X; `draw` is then given those of the nodes, too.

        Returns
        -------
        ndarray of shape (n_draws, n_samples, n_features_out)
        """
        _check_draws(n_draws, X)
        filled = np.repeat(self._constants_filled(X)[None], n_draws, 0)
        with one_thread(), seeded(random_state):
            turns = torch.randperm(len(sources)).repeat(n_draws)[:n_draws].numpy()
            for (rows, columns), nodes in self._parts(X, only_incomplete=True):
                own = () if limits is None else (limits.of(rows[:, 0], columns[0]),)
                for turn in np.unique(turns):
                    places = np.flatnonzero(turns == turn)
                    cells = np.ix_(places, rows[:, 0], columns[0])
                    drawn = draw(sources[turn], nodes, len(places), *own)
                    filled[cells] = into_dtype(drawn, X.dtype)
        filled = filled if limits is None else limits.clipped(filled)
        return self._columns_out(filled, X)

    def _names_out(self, names):
        kept = super()._names_out(names)
        if self.indicator_ is None:
            return kept
        return np.concatenate([kept, self.indicator_.get_feature_names_out(names)])

    def _fit_indicator(self, X):
        self.indicator_ = None
        if self.add_indicator:
            self.indicator_ = MissingIndicator(error_on_new=False)
            self.indicator_.set_output(transform="default").fit(X)

    def _completed(self, predicted, checked, X, where=None, limits=None):
        table, indicators = self._columns_out(predicted.filled, checked), ()
        table = self._whole(table, checked, X)  # what rules see
        if self.indicator_ is not None:
            names = self.indicator_.get_feature_names_out(self._schema.all_names)
            indicators = self.indicator_.transform(checked).astype(table.dtype), names
        if isinstance(where, Rules):
            draw = self._drawer(checked, OF_PREDICTION, 0, limits)
            draw = self._whole_draws(draw, checked, X)
            given = table, np.isnan(checked), predicted.probabilities, draw
            table, where = where.of_prediction(*given)
        given = *self._emptied(table, checked, where), X, *indicators
        return as_given(self._schema, self._container(), *given)


def _check_draws(n_draws, X):
    """Raise an error if completed tables do not fit in memory: twice, at the end."""
    n, d = X.shape
    check_memory(
        2.0 * n_draws * X.nbytes,
        f"{n_draws:,} completed tables of {n:,} rows and {d:,} columns",
        "Call sample for parts of the rows or with a smaller n_draws, and use each "
        "before the next call.",
    )
