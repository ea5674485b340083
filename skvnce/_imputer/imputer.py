"""The base class of imputers: what a user calls, once for all fitted models."""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skvnce._core.numbers import check_count
from skvnce._core.random import seed_from, seeded
from skvnce._core.runtime import one_thread
from skvnce._core.warnings import warn_of_draws
from skvnce._imputer import fill, held_out, rules
from skvnce._imputer.base import IncompleteTransformer
from skvnce._imputer.callbacks import shows_progress
from skvnce._imputer.determined import with_determined
from skvnce._imputer.parts.tables import by_parts, samples_by_parts
from skvnce._imputer.related import WithRelations, WithSets, places_of_sets
from skvnce._imputer.shift import Shifted, check_combination, shift_of, warn_of_cuts
from skvnce._imputer.validation import check_draws, check_sample
from skvnce._tables import output
from skvnce._tables.cells import is_frame
from skvnce._tables.findings import NEVER_OBSERVED
from skvnce._tables.schema import Encoded
from skvnce._tables.values import NO_LIMITS, limits_of, reject_limits
from skvnce._types import ByColumn, Method, Seed, TableLike
from skvnce.exceptions import TableWarning

# ----------------------------------------
# Methods that only some models have, and errors that say why the others do not.


NO_DENSITY = "its model has no log-density of the observed cells."
NO_NEW_ROWS = (
    "it draws cells of rows of a table, by sample. GaussianImputer without groups, "
    "MixtureImputer and CopulaGraphLearner draw new rows; of your own density, draw "
    "them by the density itself."
)
_TAKES_NO_LIMITS = (
    "takes no limits of single cells (lower, upper). GaussianImputer and "
    "CopulaGraphLearner do."
)


def available_where(flag: str, why: str) -> Callable[[Method], Method]:
    """Decorate a method that an object has only where an attribute of it is true.

    The error of the others has `why` as its cause.
    """

    def check(owner):
        if not getattr(owner, flag):
            raise AttributeError(why)
        return True

    return available_if(check)


# ----------------------------------------
# Models of the rows of a reference group.
#
# Missing values of some rows may follow the distribution of another group, for
# example those of patients who stop a treatment that of patients who never had it
# ("copy reference").  Their cells are drawn given their own observed cells, from a
# model that is fitted to the rows of the reference group.
#
# References ---------- Carpenter, Roger and Kenward (2013), Analysis of longitudinal
# trials with protocol deviation: a framework for relevant, accessible assumptions,
# and inference via multiple imputation.


def fitted_to(estimator, rows, seed):
    """Fit a clone of an imputer to the rows of a reference group, of its columns."""
    if not estimator._trains_model():
        raise ValueError(
            "reference needs a model that can be trained on its rows, but "
            f"{type(estimator).__name__} does not train its model. Pass a "
            "VariationalAutoencoder, without FrozenEstimator."
        )
    # codes of the first fit, whose levels the group may lack
    table = estimator._schema.at_levels(estimator._checked(rows))
    empty = np.isnan(table).all(0)
    unknown = [j for j in estimator._schema.with_data if empty[j]]
    if unknown:
        names = estimator._schema.labels(unknown)
        raise ValueError(
            f"reference has no observed cell in {names}, so nothing is known about the "
            "missing cells. Add rows to reference."
        )
    model = clone(estimator)
    if "random_state" in model.get_params(deep=False):
        model.set_params(random_state=seed)
    with warnings.catch_warnings():  # the column of the group is constant in its rows
        warnings.filterwarnings("ignore", message="Constant where observed")
        warnings.filterwarnings("ignore", message="Entirely missing")
        model.fit(Encoded(table, estimator._schema))
    if estimator.feature_indices_.size and not model.feature_indices_.size:
        raise ValueError(
            "reference has a single value in each column, so it has no distribution. "
            "Add rows to reference."
        )
    return model


# ----------------------------------------
# The base class of imputers: what a user calls, once for all fitted models.


class Imputer(IncompleteTransformer):
    """Base class of imputers: estimators of a model of cells.

    The `fit` of a subclass reads a table, learns a `CellModel`, and publishes both.
    What is common to all tables is here: data types and frames, constant and empty
    columns, `where`, limits, shifts, quantiles, tables in parts.
    See "Add an imputer" in the developer's guide.
    """

    # what the models of the class can do, beyond filling and drawing missing cells
    _takes_limits = False  # whether they know limits of cells
    _has_density = False  # whether they have `log_density`
    _has_new_rows = False  # whether draws of rows of which nothing is known are exact
    # whether less than 90 % of the 95 % intervals of `doc/benchmarks/validity.md`
    # contain the truth in tables with linear relations, or parameters count as known
    _is_for_filling = False

    @by_parts
    @shows_progress
    def transform(
        self,
        X: TableLike,
        *,
        where: ByColumn | Callable[..., Any] | None = None,
        lower: ByColumn | None = None,
        upper: ByColumn | None = None,
    ) -> Any:
        """Fill missing cells by predictions given the observed cells of their row.

        Numbers are filled by conditional means, or by the medians or modes that
        `strategy` names, and categories by the most probable one.  A prediction is a
        function of the row alone, and within `feature_ranges_`.

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
        lower, upper : array-like of shape (n_samples, n_features), or dict, \
                default=None
            Limits of single missing cells, such as detection limits, by which the
            distribution is truncated; NaN and infinite ones are none.  A data frame may
            leave out columns, and so may a dict of columns to arrays (n_samples,) or
            numbers; of columns of dates, to dates.  `GaussianImputer` and the
            copula graph learners take them.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Observed cells are equal to those of X.  The array has objects if X has
            categories that are no numbers, or dates; a column without an observed
            category stays missing.  Under `set_output` a data frame with the data types
            of X.

        Raises
        ------
        ValueError
            If a parameter names unknown columns or has a wrong shape, if a lower limit
            is above the upper one, or if the model takes no limits.
        TypeError
            If a parameter has a wrong type, or if columns of categories have limits.
        """
        return self._transformed(X, where, lower, upper)

    @samples_by_parts
    @shows_progress
    def sample(
        self,
        X: TableLike,
        n_draws: int = 1,
        random_state: Seed = None,
        *,
        as_array: bool = False,
        shift: Mapping[Any, Any] | None = None,
        reference: ArrayLike | None = None,
        where: ByColumn | Callable[..., Any] | None = None,
        lower: ByColumn | None = None,
        upper: ByColumn | None = None,
    ) -> Any:
        """Draw the missing cells from their distribution given the observed cells.

        Draws stay within `feature_ranges_`.  In columns whose values repeat they are on
        the grid of these, also beyond the observed range, or observed values if there
        are at most ten.  In columns of integers they are integers.

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
            they therefore move by less than 95 % of the shift.  None assumes
            that values are missing at random.
        reference : array-like of shape (n_reference, n_features), default=None
            Rows of a group whose distribution the missing cells follow, given the
            observed cells of their own row, for example the control group of a trial.
            A clone of this imputer is fitted to them.  Columns that are constant in the
            group do not count.  None uses the fit to all rows.
        where, lower, upper : default=None
            See `transform`.

        Returns
        -------
        list of n_draws tables of shape (n_samples, n_features_out), or ndarray of \
                shape (n_draws, n_samples, n_features_out)
            Completed tables, with the observed cells as they are in X.  Those of a list
            are arrays or data frames, as `transform` returns them (`set_output`).

        Raises
        ------
        ValueError
            If a parameter names unknown columns or categories, or has a wrong shape, if
            a shift is not finite, if a column has no observed cell in `reference`, if a
            lower limit is above the upper one or leaves no whole number to a column of
            a data frame that has only these, or if there are limits and `shift` or
            `reference`, or a model that takes none.
        TypeError
            If a parameter has a wrong type, if `shift` has a number for categories, or
            a dict for numbers, or if columns of categories have limits.

        Warns
        -----
        UserWarning
            If a function of `where` denies an observed cell whatever the missing cells
            of its row are, if a shift moves cells by less than stated, if many draws of
            a positive column are set to 0, or if there are several draws and the class
            says that its draws are for filling.
        """
        check_sample(n_draws, as_array)
        check_combination(shift, reference, lower, upper)
        checked, model = self._checked(X), self
        if n_draws > 1 and self._is_for_filling:
            warn_of_draws(type(self).__name__)
        mask = self._mask_of(where, X, checked)
        seed = seed_from(random_state)
        is_changed = shift is not None or reference is not None
        limits = NO_LIMITS if is_changed else self._limits_of(lower, upper, X, checked)
        if reference is not None:
            model = fitted_to(self, reference, seed)
            checked = self._schema.at_levels(checked)
        if shift is None and not rules.draws_alone(self._schema, mask, limits):
            drawer = model._draw_function(checked, n_draws, seed, limits)
            return self._draw_by_rules(drawer, checked, X, as_array, mask)
        shift = model._shift_of({} if shift is None else shift)
        drawer = partial(model._drawn_shifted, checked, n_draws, seed, shift)
        completed = self._draw_by_rules(drawer, checked, X, as_array, mask)
        warn_of_cuts(model._schema, shift, model._limit_of_shift)
        return completed

    @shows_progress
    def interval(
        self,
        X: TableLike,
        level: float = 0.9,
        n_draws: int = 199,
        random_state: Seed = None,
        *,
        where: ByColumn | Callable[..., Any] | None = None,
        lower: ByColumn | None = None,
        upper: ByColumn | None = None,
    ) -> Any:
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
        where : array-like of bool of shape (n_samples, n_features) or dict, \
                default=None
            Masks of the cells that are filled, see `transform`.  Functions of completed
            rows are for `sample`.
        lower, upper : default=None
            See `transform`.

        Returns
        -------
        lower, upper : ndarray or data frame of shape (n_samples, n_features_out)
            Arrays or data frames, as `sample` returns them.  Observed cells are as in
            X.  Missing cells stay missing in columns whose categories have no order,
            for which there is `category_probabilities`, and in columns that had no
            observed cell at `fit`.

        Raises
        ------
        ValueError
            If `level` is not between 0 and 1, or needs more draws, and as in `sample`.
        TypeError
            If `level` is no number, or `n_draws` no integer, and as in `sample`.
        """
        ranks = fill.ranks_of_interval(level, n_draws)
        return tuple(
            self._quantiles(X, ranks, n_draws, random_state, where, lower, upper)
        )

    @shows_progress
    def quantile(
        self,
        X: TableLike,
        q: ArrayLike = 0.5,
        n_draws: int = 199,
        random_state: Seed = None,
        *,
        where: ByColumn | Callable[..., Any] | None = None,
        lower: ByColumn | None = None,
        upper: ByColumn | None = None,
    ) -> Any:
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
        where, lower, upper : default=None
            See `interval`.

        Returns
        -------
        ndarray or data frame of shape (n_samples, n_features_out), or list of these
            A list if `q` is array-like.  Observed cells, and columns that have no
            quantiles, are as in `interval`.

        Raises
        ------
        ValueError
            If `q` is not between 0 and 1, or needs more draws, and as in `sample`.
        TypeError
            If `q` is neither a number nor array-like, or `n_draws` no integer, and as
            in `sample`.
        """
        ranks = fill.ranks_of_quantiles(q, n_draws)
        quantiles = self._quantiles(
            X, ranks, n_draws, random_state, where, lower, upper
        )
        return quantiles if np.ndim(q) else quantiles[0]

    @available_if(lambda self: hasattr(self._settings(), "categorical_features"))
    @shows_progress
    def category_probabilities(
        self,
        X: TableLike,
        *,
        lower: ByColumn | None = None,
        upper: ByColumn | None = None,
    ) -> dict[Any, Any]:
        """Compute the probabilities of categories given the observed cells of each row.

        They are averages of conditional probabilities given draws of other unobserved
        variables (see the notes of the class).  The random numbers are functions of the
        row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            See `transform`.
        lower, upper : default=None
            See `transform`.

        Returns
        -------
        dict of str to data frame or ndarray of shape (n_samples, n_categories)
            For each column of `categories_` the probabilities of its categories in
            their order, 1 and 0 where the cell is observed: data frames of the library
            of X (whatever `set_output` says) with the categories as names, or arrays if
            X is no data frame.  Columns that were entirely missing at `fit` have none.
            Empty if there are no categories.
        """
        checked = self._checked(X)
        limits = self._limits_of(lower, upper, X, checked)
        probabilities = self._predicted(checked, limits).probabilities
        return output.probabilities_as_given(self._schema, probabilities, X)

    @available_where("_has_density", NO_DENSITY)
    @by_parts
    @shows_progress
    def score_samples(self, X: TableLike, return_std: bool = False) -> Any:
        """Compute the log-density of the observed cells of each row, in nats.

        Columns of categories, and of rounded or binary values where the model says so,
        contribute log-probabilities.  Where a log-density is an average over draws of
        what is not observed, it is an estimate, and is on average too low.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        return_std : bool, default=False
            Whether to also return the standard errors of the estimates, which takes
            up to eight times as long.

        Returns
        -------
        log_prob : ndarray of shape (n_samples,)
            In the units of X; 0 for a row that is entirely missing, and if all columns
            were constant at `fit`.
        std : ndarray of shape (n_samples,)
            Standard errors, 0 where nothing is drawn; only if `return_std` is True.
        """
        scores = self._scored(self._checked(X), with_errors=return_std)
        return scores if return_std else scores[0]

    @available_where("_has_new_rows", NO_NEW_ROWS)
    @shows_progress
    def sample_rows(self, n_rows: int = 1, random_state: Seed = None) -> Any:
        """Draw new rows from the fitted distribution.

        GaussianImputer without `groups`, MixtureImputer and the learners of copula
        graphs have this method.  Of other imputers it is an AttributeError.

        Parameters
        ----------
        n_rows : int, default=1
            Number of rows.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the draws differ between calls.

        Returns
        -------
        ndarray of shape (n_rows, n_features_in_)
            Values as `sample` draws them.  Columns that were entirely missing at `fit`
            have the marker `missing_values`: NaN, or None if the array is one of
            objects, unless it is another one.
        """
        check_is_fitted(self)
        check_count(n_rows, "n_rows")
        rows, schema = np.full((n_rows, self.n_features_in_), np.nan), self._schema
        rows[:, list(schema.constants)] = schema.constant_cells
        with self._threads(), seeded(random_state):
            model = self._valid_model()
            for cells, nodes in fill.chunks(schema, rows):
                rows[cells] = model.draw(nodes, 1)[0]
        return output.new_rows(schema, rows)

    def fit_transform(
        self,
        X: TableLike,
        y: object = None,
        *,
        where: ByColumn | Callable[..., Any] | None = None,
        **fit_params: Any,
    ) -> Any:
        """Fit to a table, and fill its missing cells.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None, default=None
            Ignored.
        where : array-like of bool of shape (n_samples, n_features), dict or \
                callable, default=None
            See `transform`.
        **fit_params : dict
            Of `fit`.  Limits of cells (`lower`, `upper`), which only some imputers
            accept, hold for `transform`, too.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            See `transform`.
        """
        shared = {k: fit_params[k] for k in ("lower", "upper") if k in fit_params}
        with warnings.catch_warnings():
            if where is not None:  # which is what the warning asks for
                warnings.filterwarnings("ignore", NEVER_OBSERVED, TableWarning)
            self.fit(X, y, **fit_params)
        return self.transform(X, where=where, **shared)

    def _transformed(self, X, where, lower, upper):
        """Fill missing cells; see `transform`."""
        checked = self._checked(X)
        mask = self._mask_of(where, X, checked)
        limits = self._limits_of(lower, upper, X, checked)
        predicted = self._predicted(checked, limits)
        return self._completed(predicted, checked, X, mask)

    def _cell_model(self):
        """Make the fitted model, a `CellModel`."""
        return self._fitted.model

    def _drawing_models(self, n_draws, rows=None):
        """List models of draws, each equally often, given which `rows` are independent.

        `rows` (n, n_nodes); None: draws of rows need not be.
        """
        return [self._cell_model()]

    def _marginal_columns(self):
        """Return the `Marginal` of each column that the model does not predict."""
        return self._schema.marginals

    def _threads(self, schema=None):
        """Return a context of the number of threads of a model of columns."""
        return one_thread()

    def _valid_cells(self, models):
        """Let the cells of models be valid values of their columns."""
        schema, strategy = self._schema, getattr(self._settings(), "strategy", "mean")
        valid = schema.values, schema.node_columns, self._marginal_columns()
        models = with_determined(schema, models)
        if schema.relations is not None:
            sets = places_of_sets(schema), schema.is_categorical
            models = [WithRelations(WithSets(model, *sets), schema) for model in models]
        return [fill.ValidCells(model, *valid, strategy) for model in models]

    def _valid_model(self):
        """Make the model whose cells are valid; None if all columns are constant."""
        if not self.feature_indices_.size:
            return None
        return self._valid_cells([self._cell_model()])[0]

    def _predicted(self, X, limits=NO_LIMITS):
        """Predict the missing cells of validated rows; returns `Predicted`."""
        with self._threads(), seeded(0):  # a sampler may not support numbers of the row
            return fill.fill(self._schema, self._valid_model(), X, limits)

    def _models_of_draws(self, n_draws, rows=None):
        """List models whose draws are valid; see `_drawing_models`."""
        if not self.feature_indices_.size:
            return [None]
        return self._valid_cells(self._drawing_models(n_draws, rows))

    def _drawn_tables(self, X, n_draws, random_state, limits=NO_LIMITS):
        """Draw cells of validated rows; (n_draws, n_samples, n_features_out)."""
        return self._drawn_by(
            self._models_of_draws(n_draws), X, n_draws, random_state, limits
        )

    def _drawn_by(self, models, X, n_draws, random_state, limits=NO_LIMITS):
        """Draw cells of validated rows by models; see `_drawn_tables`."""
        check_draws(n_draws, X)
        with self._threads(), seeded(random_state):
            return fill.draw(self._schema, models, X, n_draws, limits)

    def _drawn_shifted(self, X, n_draws, seed, shift, rows=slice(None)):
        """Draw some rows of a validated table with shifted cells."""
        nodes = X[:, self._schema.node_columns].astype(np.float64)
        with self._threads(), seeded(seed):
            models = self._models_of_draws(n_draws, nodes)
        models = [model and Shifted(model, shift) for model in models]
        return self._drawn_by(models, X[rows], n_draws, seed)

    def _scored(self, X, *, with_errors=False):
        """Score validated rows; returns values (n,) and standard errors (n,)."""
        with self._threads():
            model = self._cell_model() if self.feature_indices_.size else None
            return fill.score(self._schema, model, X, with_errors=with_errors)

    def _draw_function(self, X, n_draws, seed, limits=NO_LIMITS):
        """Make a function that draws some rows of a validated table."""

        def drawn(rows=slice(None)):
            tables = self._drawn_tables(X[rows], n_draws, seed, limits.of(rows))
            if isinstance(rows, slice):  # not for parts again
                fill.warn_of_zeros(self._schema, X[rows], tables)
            return tables

        return drawn

    def _draw_by_rules(self, drawer, checked, X, as_array, where):
        """Draw validated rows, apply rules, and return tables as `sample` does."""

        def whole(rows=slice(None)):
            return self._whole(drawer(rows), checked[rows], X)

        drawn = whole()
        if isinstance(where, rules.Rules):
            drawn, where = where.of_draws(drawn, np.isnan(checked), whole)
        missing = np.isnan(checked)
        if as_array:
            return output.samples_of(self._schema, drawn, missing, where, X)
        return output.samples_as_given(
            self._schema, self._container(), drawn, missing, where, X
        )

    def _quantiles(self, X, ranks, n_draws, random_state, where, lower, upper):
        checked = self._checked(X)
        limits = self._limits_of(lower, upper, X, checked)
        mask = rules.without_rules(self._mask_of(where, X, checked))
        rng = np.random.default_rng(seed_from(random_state))

        def draw_rows(rows):
            return self._drawn_tables(checked[rows], n_draws, rng, limits.of(rows))

        tables = fill.ordered_draws(draw_rows, self._schema, checked, ranks, n_draws)
        ordered = np.broadcast_to(fill.columns_with_order(self._schema), checked.shape)
        mask = ordered if mask is None else ordered & mask
        tables = self._rounded(tables, checked, X)
        return output.samples_as_given(
            self._schema, self._container(), tables, np.isnan(checked), mask, X
        )

    def _mask_of(self, where, X, checked):
        """Check `where`; see `mask_of`."""
        return rules.mask_of(self._schema, where, X, checked)

    def _shift_of(self, shift):
        """Check a shift; returns `Shift`."""
        return shift_of(self._schema, shift)

    def _limits_of(self, lower, upper, X, checked):
        """Check limits of single cells; `NO_LIMITS` if no missing cell has one."""
        if not self._takes_limits:
            reject_limits(lower, upper, f"{type(self).__name__} {_TAKES_NO_LIMITS}")
        limits = limits_of(self._schema, lower, upper, X, checked)
        limits.check_bounds(self._schema, is_whole=is_frame(X))
        return limits.rounded(self._schema.values.integers)

    def _limit_of_shift(self, place):
        """Say why cells of a column move by less than stated, and what to do."""
        ends = self.feature_ranges_[:, place]
        low, high = (self._schema.shown(place, end, "g") for end in ends)
        return (
            f"values remain within {low} and {high}. State a smaller shift, or wider "
            "bounds of the imputer."
        )

    def _trains_model(self):
        """Return whether `fit` trains the model that draws."""
        return True

    def _with_one_draw(self):
        """Copy the estimator for each draw of the parameters that `sample` uses."""
        fitted = self._fitted
        if not hasattr(fitted.model, "with_one_draw"):
            return [self._without_training()]
        models = fitted.model.with_one_draw()
        values = [fitted._replace(model=model) for model in models]
        return self._copies_with("_fitted", values)

    def _names_out(self, names):
        columns = super()._names_out(names)
        indicator = getattr(self, "indicator_", None)
        if indicator is None:
            return columns
        return np.concatenate([columns, indicator.get_feature_names_out(names)])

    def _completed(self, predicted, checked, X, where=None):
        """Return predictions of validated rows as `transform` does."""
        schema, indicators = self._schema, ()
        # what rules see
        filled = fill.returned(schema, predicted.filled, checked)
        table = self._whole(filled, checked, X)
        if (indicator := getattr(self, "indicator_", None)) is not None:
            names = indicator.get_feature_names_out(schema.all_names)
            indicators = indicator.transform(checked).astype(table.dtype), names
        if isinstance(where, rules.Rules):
            shares = predicted.probabilities
            where = where.of_prediction(table, np.isnan(checked), shares)
        return output.as_given(
            schema,
            self._container(),
            *output.empty_cells(schema, table, np.isnan(checked), where),
            X,
            *indicators,
        )

    def _report_tails(self, schema, X, columns):
        """Warn or raise if a few cells dominate the squared errors of a column."""
        if self.on_misfit != "ignore":
            held_out.warn_or_raise(
                held_out.tail_messages(schema, X, columns), self.on_misfit
            )

    def _held_out(self, schema, nodes, predict, **options):
        """Predict held-out cells by `checked_schema`, unless misfits are ignored."""
        predict = None if self.on_misfit == "ignore" else predict
        return held_out.checked_schema(schema, nodes, predict, **options)

    def _report_misfit(self, schema, result, remedy, others=()):
        """Warn or raise if columns are not predicted, and of other messages first."""
        messages = [*others, *held_out.misfit_messages(schema, result, remedy)]
        held_out.warn_or_raise(messages, self.on_misfit)
