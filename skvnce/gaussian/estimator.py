"""An imputer that fits a normal distribution to rows with missing values."""

from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from skvnce._core.random import seed_from, seeded
from skvnce._core.runtime import filled_once, one_thread
from skvnce._imputer import callbacks
from skvnce._imputer import validation as checks
from skvnce._imputer.fitted import Fitted, number_or_nan, without_columns
from skvnce._imputer.held_out import HeldOutResult
from skvnce._imputer.imputer import Imputer
from skvnce._imputer.parts.chunks import is_large, rows_in_memory
from skvnce._imputer.parts.tables import reject_groups, without_counts
from skvnce._imputer.rules import Rules
from skvnce._imputer.validation import in_parts
from skvnce._tables.schema import Encoded, column_of_groups
from skvnce._tables.values import check_distance
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.gaussian import fit as numbers
from skvnce.gaussian import groups_fit
from skvnce.gaussian import mixed_fit as mixed
from skvnce.gaussian import online as online_em
from skvnce.gaussian.groups_model import GaussianModel
from skvnce.metrics._chains import warn_of_slow_chain


class GaussianImputer(callbacks.CallbackSupportMixin, Imputer):
    """Impute by a normal distribution that EM fits to rows with missing values.

    `transform` fills missing cells (NaN) by their exact conditional means given the
    observed cells of their row, and `sample` draws them, both corrected by the errors
    with which observed cells are predicted if columns depend on each other nonlinearly.
    Mean and covariance maximise the likelihood, with a little shrinkage towards
    independent columns; they are valid for normal rows with values missing at random.
    Tables with categories, groups or limits of cells are functions of latent normal
    variables, whose mean and covariance are drawn by Gibbs sampling.

    Parameters
    ----------
    shrinkage : "auto" or float, default="auto"
        Weight of the prior, under which columns are independent, in rows for each
        column.  ``"auto"`` chooses 0.01 to 1 by held-out cells; 0.5 with categories.
    marginals : {"auto", "normal"}, default="auto"
        ``"auto"`` models columns as increasing functions of normal scores if that
        predicts held-out cells better; with categories, always.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` fills numbers.  Categories get their most probable level.
    min_value, max_value : float, array-like of shape (n_features,), dict, "observed" \
            or None, default=None
        Bounds of imputed numbers, dates or durations, to which their distribution is
        truncated: of all columns, of each, or by name (by index if X has no names).
        ``"observed"`` is the smallest or largest observed value.  None leaves only what
        a column shows, such as that no number of it is negative.
    n_parameter_draws : int, default=20
        Number of draws of mean and covariance from their posterior, which `sample` uses
        in turn, as multiple imputation requires; 0 uses the fitted parameters alone, so
        that pooled intervals are too narrow.
    max_iter : int, default=200
        Maximum number of rounds of EM; of sweeps of Gibbs sampling with groups, and
        twice the number of sweeps with categories or limits of cells.
    tol : float, default=5e-3
        EM stops if no mean or covariance of standardised columns changes by more.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        Whether `fit` warns (`skvnce.exceptions.MisfitWarning`) or raises a ValueError
        if a few cells dominate the squared errors of a column, or its mean predicts
        held-out cells significantly better, or skips these checks.
    relations : None, "auto" or list, default=None
        The exact relations between columns that filled tables obey; see `TableImputer`.
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells; ``np.nan``, None and pandas.NA are one marker.
    keep_empty_features : bool, default=False
        Whether columns that were entirely missing at `fit` are filled by 0, or by the
        nearest value within the bounds (categories stay missing), or dropped.
    add_indicator : bool, default=False
        Whether `transform` appends a binary column for each column with missing cells.
    categorical_features : "from_dtype", array-like, dict or None, default="from_dtype"
        Which columns are categories.  ``"from_dtype"``: of data frames those of text,
        categories, booleans, and whole numbers of few values.  A mask, names or indices
        mark nominal columns; a dict replaces the choice by ``"nominal"``,
        ``"ordinal"``, ``"numeric"``, ``"passthrough"`` or a list of levels in order.
    handle_unknown : {"error", "missing"}, default="error"
        What a level is that `fit` has not observed: an error, or a missing value.
    groups : str, int, dict or None, default=None
        The column that names the group of each row, for random intercepts.
        ``{"patient": {"slopes": ["time"], "constant": ["sex"]}}`` has random slopes on
        complete columns of numbers, and names columns that are constant within groups.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the draws of mean and covariance from their posterior.
    verbose : int, default=0
        If 1, print a line for each round and each step of more than a second; 2, all.

    Attributes
    ----------
    mean_, covariance_ : ndarray of shape (n_nodes,), and (n_nodes, n_nodes)
        Parameters of the distribution in the units of X, of ``location_ + scale_ *
        scores`` for `nonlinear_columns_`; with categories, of the latent variables.
    nonlinear_columns_, calibrated_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that are nonlinear functions of their scores; columns with calibration.
    location_, scale_ : ndarray of shape (n_nodes,)
        Means and standard deviations of the observed cells; NaN for categories.
    shrinkage_, held_out_gain_ : float
        The shrinkage of the fit; one minus the ratio of the errors of the model to
        those of column means, on held-out cells, NaN without a check.
    relations_ : list of `skvnce.relations.search.Relation`
        The relations that are used.
    feature_indices_, constants_ : ndarray of shape (n_nodes,), and dict
        Indices of the columns of the model; values of the constant ones, by index.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that are not predicted, but filled by means or the most frequent level.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed values, in codes of levels and microseconds.
    categories_ : dict of str to ndarray
        The levels of columns of categories, in the order of their codes, by name.
    indicator_ : MissingIndicator or None
        The indicator that `add_indicator` appends.
    n_iter_, n_tuning_iter_ : int
        Number of rounds, or of Gibbs sweeps, of the final fit, and before it.
    loss_curve_ : list of float
        Negative penalised log-likelihood per row after each round of the final fit.
    trace_, r_hat_ : ndarray of shape (n_iter_, 2, n_latents), and (2, n_latents)
        Of Gibbs sampling, the means of the latent variables and the shares of their
        variances that others explain, after each sweep; their split R-hat.
    n_burn_in_, latent_names_ : int, and ndarray of shape (n_latents,)
        Sweeps before the first draw, and names of latent variables.
    group_covariance_, slope_covariance_, intraclass_correlations_, group_columns_
        With groups, covariances of intercepts and of random slopes, shares of variances
        between groups, and indices of columns that are constant within them.
    n_features_in_, feature_names_in_ : int, and ndarray of shape (n_features_in_,)
        Number of features, and their names if they are strings.

    Notes
    -----
    The user guide has the model, what changes with bounds, limits, categories and many
    rows, and analyses for which its draws are not valid, such as those of products.
    There is no torch module, and no `n_jobs`: a fit is one sequence of rounds.

    References
    ----------
    Dempster, Laird and Rubin (1977), Journal of the Royal Statistical Society B 39.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import GaussianImputer
    >>> X = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [4.0, 8.0], [5.0, np.nan]])
    >>> imputer = GaussianImputer(shrinkage=0.01, random_state=0).fit(X)
    >>> imputer.transform(X)[-1].round(1)
    array([ 5., 10.])
    """

    _parameter_constraints = {
        "shrinkage": [checks.AUTO, checks.Number(Real, 0, None, closed="neither")],
        "marginals": [StrOptions({"auto", "normal"})],
        **checks.OF_LIMITS,
        "n_parameter_draws": [checks.integer_from(0)],
        "max_iter": [checks.integer_from(1)],
        "tol": [checks.Number(Real, 0, None, closed="left")],
        "strategy": checks.STRATEGY,
        **checks.OF_IMPUTERS,
        "groups": [str, Integral, dict, None],
        **checks.OF_FITS,
    }

    _takes_limits = True
    _has_density = _has_new_rows = property(lambda self: self.groups is None)

    def __init__(
        self,
        shrinkage: float | Literal["auto"] = "auto",
        *,
        marginals: Literal["auto", "normal"] = "auto",
        strategy: Literal["mean", "median", "mode"] = "mean",
        min_value: ByColumn | None = None,
        max_value: ByColumn | None = None,
        n_parameter_draws: int = 20,
        max_iter: int = 200,
        tol: float = 5e-3,
        on_misfit: Literal["warn", "raise", "ignore"] = "warn",
        relations: Sequence[Any] | Literal["auto"] | None = None,
        missing_values: Any = np.nan,
        keep_empty_features: bool = False,
        add_indicator: bool = False,
        categorical_features: ByColumn | None = "from_dtype",
        handle_unknown: Literal["error", "missing"] = "error",
        groups: str | int | Mapping[Any, Any] | None = None,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.shrinkage = shrinkage
        self.marginals = marginals
        self.strategy = strategy
        self.min_value = min_value
        self.max_value = max_value
        self.n_parameter_draws = n_parameter_draws
        self.max_iter = max_iter
        self.tol = tol
        self.on_misfit = on_misfit
        self.relations = relations
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.groups = groups
        self.random_state = random_state
        self.verbose = verbose

    @callbacks.reports_fit
    def fit(
        self,
        X: TableLike,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        lower: ByColumn | None = None,
        upper: ByColumn | None = None,
    ) -> Self:
        """Fit the mean and the covariance.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), Chunks, or table of dask
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None, default=None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequencies: a row of weight k is k equal rows (in draws of the parameters
            up to second moments, and in tables of few different rows up to the choice
            of held-out cells, of whole rows of any weight).  Divide the sampling
            weights of a survey by their mean, ``sample_weight / sample_weight.mean()``;
            a warning says if need be.
        lower, upper : array-like of shape (n_samples, n_features), or dict, \
                default=None
            Limits of single missing cells, such as detection limits, which the
            likelihood accounts for: a cell below its limit L has probability P(x <= L).
            A data frame may leave out columns, and so may a dict of columns to arrays
            (n_samples,) or numbers.  NaN and infinite limits are none, and those of
            observed cells have no effect.  In a column of whole numbers of a data
            frame, a whole number must be between them.

        Returns
        -------
        self : GaussianImputer

        Raises
        ------
        ValueError
            If X contains infinite values or text, if no cell is observed, if observed
            cells are outside the bounds, if limits leave no value, or if a parameter is
            out of range.
        TypeError
            If a parameter has a wrong type.

        Warns
        -----
        ConvergenceWarning
            With groups, if the Markov chain still drifts: an R-hat above 1.5.
        """
        table = self._read(X, sample_weight, lower, upper)
        schema, cells = table.schema, table.cells
        groups_fit.check_named(schema, self.groups, X, table.rows)
        are_numbers = ~schema.is_categorical
        rows = table.large.with_ends if table.large else cells.table
        self._report_tails(schema, rows, schema.model_columns[are_numbers])
        table, fit, n_rounds = self._method_of(table)
        on_round, finish = callbacks.report_rounds(self, n_rounds, X=table.rows)
        try:
            with one_thread():
                fitted, check = fit(table, on_round)
        except torch.linalg.LinAlgError as error:
            # first, because limits far from all cells make a covariance singular, too
            check_distance(schema, table.limits, table.rows)
            raise ValueError(numbers.collinear(self.shrinkage)) from error
        self._report_misfit(fitted.schema, check, numbers.REMEDY)
        finish()
        return self._publish(fitted)

    def partial_fit(
        self, X: TableLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Go on learning from more rows.

        The first call is `fit`; it chooses columns, shrinkage, marginals and
        calibration.  Up to 20,000 rows are kept (fewer if there are more than 335
        columns), and when their number has doubled since the last fit, the fit is
        repeated with all rows so far.  Every other call is two steps of online EM, in
        which the expected moments of the rows count with weight ``(w / W) ** 0.7``: w
        is the weight of these rows, W that of all so far (Cappe and Moulines 2009).
        The knots of the marginals are kept, and their shares are averaged likewise.
        Ranges grow with the observed cells.  `location_`, `scale_`,
        `calibrated_columns_`, `held_out_gain_` and `marginal_columns_` are those of the
        last fit.  After a call of `fit` itself, its choices are final.  Numbers of data
        frames are numeric if nobody names them, as in tables in parts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None, default=None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, as of `fit`.

        Returns
        -------
        self : GaussianImputer

        Raises
        ------
        ValueError, TypeError
            As in `fit`, and if the number of columns changed, if there are categories
            or groups, or after a fit to categories or to limits of cells.
        """
        return self._publish(self._copy()._partial_fit(X, sample_weight)._fitted)

    @callbacks.shows_progress
    def _partial_fit(self, X, sample_weight):
        """Do what `partial_fit` does, on a copy that has no other user."""
        self._check_parameters()
        reject_groups(column_of_groups(self.groups).columns, groups_fit.STREAM)
        is_first = not hasattr(self, "mean_")
        if is_first:
            self.fit(self._first_batch(X), sample_weight=sample_weight)
        is_mixed, online = self._schema.is_categorical.any(), self._fitted.model.online
        online_em.check_can_continue(is_mixed, is_first or online is not None)
        if not is_first:
            table = self._checked(X)
            with one_thread():
                self._update(online_em.Stream.of(table, sample_weight))
        elif in_parts(X) is None and online is not None:
            self._keep_rows(online_em.Stream.of(self._checked(X), sample_weight))
        return self

    @callbacks.shows_progress
    def sample_parameters(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
        draws, model = self._parameter_draws(), self._fitted.model.model
        if hasattr(self, "trace_"):
            self._warn_of_slow_chain(self._fitted.report, of_sweep=model.of_sweep)
        moments = [model.moments(draw) for draw in draws]
        count, d = len(moments), len(self.mean_)
        means = np.array([mean for mean, _ in moments]).reshape(count, d)
        return means, np.array([cov for _, cov in moments]).reshape(count, d, d)

    def _first_batch(self, X):
        """Read the first table of a stream, whose numbers are those of parts."""
        if in_parts(X) is not None:
            return X
        categories = without_counts(X, self.categorical_features)
        return Encoded(*checks.read_table(self, X, kinds=categories))

    def _check_parameters(self):
        super()._check_parameters()
        column_of_groups(self.groups)  # raises an error for a wrong form

    def _large_table(self, *args):
        reject_groups(column_of_groups(self.groups).columns)
        return super()._large_table(*args)

    def _chosen(self, schema, table, limits, sample_weight, **options):
        is_plain = schema.columns is None and self._is_for_em(schema, limits)
        if is_plain and is_large(table):
            large = self._large_array(schema, table, sample_weight)
            return self._training_of_parts(*large)
        return super()._chosen(schema, table, limits, sample_weight, **options)

    def _rows_of_indicator(self, table, cells):
        return table[cells.counted]

    def _is_for_em(self, schema, limits):
        """Return whether a table has neither categories nor limits of cells."""
        return not (limits or schema.is_categorical.any())

    def _method_of(self, table):
        """Choose how to fit; returns the table, a function and its number of rounds."""
        if table.cells.groups is not None:
            if not groups_fit.are_trivial(table.cells):
                settings = groups_fit.Settings.of(self, table)
                return table, partial(self._fit_groups, settings), settings.n_sweeps
            table = groups_fit.without_groups(table)
        if not len(table.schema.model_columns):
            return table, self._fit_constants, self.max_iter
        if self._is_for_em(table.schema, table.limits):
            return table, self._fit_numbers, self.max_iter
        settings = mixed.Settings.of(
            self.shrinkage, self.marginals, self.n_parameter_draws, self.max_iter
        )
        return table, partial(self._fit_mixed, settings), settings.n_sweeps

    def _fit_numbers(self, table, on_round):
        """Fit to numbers by EM."""
        settings = numbers.Settings(
            self.shrinkage, self.marginals, self.max_iter, self.tol
        )
        schema, cells = table.schema, table.cells
        tables = table.large and table.large.tables
        fit = numbers.fit_numbers(cells, tables, schema, settings, on_round)
        numbers.warn_unless_converged(fit.em, self.max_iter, self.tol)
        schema, check = self._check_fit(schema, cells, fit.predict, fit.hidden)
        training = self._training_of(*fit.training)
        model = GaussianModel(fit.model, training=training, online=fit.online)
        report = fit.report() | check.report()
        return Fitted(schema, model, table.report | report), check

    def _fit_constants(self, table, on_round):
        """Make the model of a table without columns that vary."""
        check = HeldOutResult(np.nan, np.zeros(0, dtype=bool))
        names = "nonlinear_columns_", "calibrated_columns_"
        report = table.report | dict.fromkeys(names, check.marginal)
        report |= {"shrinkage_": number_or_nan(self.shrinkage), "n_tuning_iter_": 0}
        arrays = ["mean_", "location_", "scale_"], ["covariance_"]
        model = GaussianModel(None, draws=[])
        return without_columns(table.schema, report, *arrays, model), check

    def _fit_mixed(self, settings, table, on_round):
        """Fit to categories, or with limits of cells, by Gibbs sampling."""
        schema, cells = table.schema, table.cells
        checks.warn_of_unused(self, mixed.without_effect(schema.is_categorical))
        checks.warn_of_unused_by_levels(self, schema)
        n_rounds = []  # of the fit without held-out cells, if there is one

        def predict(visible, rows):
            predictions, n_of_check = mixed.predict_without(
                cells, schema, settings, visible, rows
            )
            n_rounds.append(n_of_check)
            return predictions

        with seeded(seed_from(self.random_state)):
            fit = mixed.fit_mixed(cells, schema, settings, on_round)
            mixed.warn_of_tails(schema, fit.doubts)
            hidden = mixed.held_out_cells(cells, schema.joined)
            schema, check = self._check_fit(schema, cells, predict, hidden)
        report = fit.report(schema, cells, self.marginals) | check.report()
        report |= {"shrinkage_": settings.shrinkage, "n_tuning_iter_": sum(n_rounds)}
        draws = fit.draws if self.n_parameter_draws else []
        model = GaussianModel(fit.model, draws=draws)
        return Fitted(schema, model, table.report | report), check

    def _fit_groups(self, settings, table, on_round):
        """Fit to rows of groups by Gibbs sampling."""
        schema, cells = table.schema, table.cells
        checks.warn_of_unused(self, groups_fit.WITHOUT_EFFECT)
        checks.warn_of_unused_by_levels(self, schema)
        with seeded(seed_from(self.random_state)):
            fit = groups_fit.fit_groups(cells, schema, settings, on_round)
            report = fit.report(schema, cells, settings)
            predict = partial(groups_fit.predict_without, cells, schema, settings)
            hidden = groups_fit.held_out_cells(cells, settings)
            _, check = self._check_fit(schema, cells, predict, hidden)
        of_sweep = fit.model.of_sweep
        self._warn_of_slow_chain(report, of_sweep=of_sweep, above=groups_fit.DRIFTING)
        groups_fit.warn_of_marginals(schema, check.marginal, self.on_misfit)
        # draws follow the model, as means know no groups
        check = check._replace(marginal=np.zeros_like(check.marginal))
        draws = fit.draws if self.n_parameter_draws else []
        report = table.report | report | check.report()
        return Fitted(schema, GaussianModel(fit.model, draws=draws), report), check

    def _check_fit(self, schema, cells, predict, hidden):
        """Compare predictions of held-out cells with means; see `Imputer._held_out`."""
        options = {"weights": cells.weights, "scale": cells.scale, "hidden": hidden}
        return self._held_out(schema, cells.nodes, predict, **options)

    def _warn_of_slow_chain(self, report, **options):
        """Warn if the Markov chain of the fit is short."""
        warn_of_slow_chain(
            report["r_hat_"],
            report["latent_names_"],
            len(report["trace_"]),
            report["n_burn_in_"],
            **options,
        )

    def _checked(self, X):
        rows = super()._checked(X)
        groups_fit.check_rows(self._schema, self._fixed(), rows)
        return rows

    def _mask_of(self, where, X, checked):
        groups_fit.check_where(self._schema, self._fixed(), where)
        targets = super()._mask_of(where, X, checked)
        if not isinstance(targets, Rules):
            return targets
        return targets._replace(of_groups=self._columns_of_groups())

    def _shift_of(self, shift):
        shift = super()._shift_of(shift)
        groups_fit.check_shift(self._schema, self._fixed(), shift)
        return shift

    def _limits_of(self, lower, upper, X, checked):
        limits = super()._limits_of(lower, upper, X, checked)
        groups_fit.check_limits(self._schema, self._columns_of_groups(), limits)
        return limits

    def _fixed(self):
        return self._fitted.model.fixed

    def _columns_of_groups(self):
        return self._schema.model_columns[self._fixed().of_groups]

    def _update(self, new):
        """Repeat the fit with all rows, or learn from the new ones by online EM."""
        online_em.extend_ranges(self._schema, new.rows)  # raises an error for its rows
        if self._fitted.model.stream is not None:
            rows = self._fitted.model.stream.followed_by(new)
            if rows.is_due:
                self._keep_rows(rows.refit(self, sample_weight=rows.weights))
                return
            self._keep_rows(rows)
        self._learn_more(new.rows, new.weights)

    def _keep_rows(self, rows):
        """Keep the rows of a stream, if they are few."""
        are_few = rows.n_rows <= rows.most
        self._replace_in_model(stream=rows if are_few else None)

    def _replace_in_model(self, **parts):
        """Replace parts of the model that only draws and `partial_fit` use."""
        model = self._fitted.model._replace(**parts)
        self._fitted = self._fitted._replace(model=model)

    def _learn_more(self, X, weights):
        """Go on by online EM with rows (n, n_features) of positive weight."""
        nodes = X[:, self.feature_indices_].astype(np.float64)
        has_cell = ~np.isnan(nodes).all(1)
        if not has_cell.any():
            return
        schema = online_em.extend_ranges(self._schema, X)
        _, fit, report = self._fitted
        strength = report["shrinkage_"] * nodes.shape[1]
        model, state, loss, rows = online_em.learn(
            fit.model, fit.online, nodes[has_cell], weights[has_cell], strength
        )
        model = model.with_signs(schema.values.signs(schema.ends)[schema.model_columns])
        most = rows_in_memory(schema.n_columns)
        training = self._training_of(*online_em.for_draws(state, rows, strength, most))
        report = report | numbers.of_model(model)
        report["loss_curve_"] = [*report["loss_curve_"], loss]
        report["n_iter_"] += 1
        fit = GaussianModel(model, None, training, state, fit.stream)
        self._publish(Fitted(schema, fit, report))

    @filled_once
    def _parameter_draws(self):
        """Draw the parameters at the first call; list of (mean, covariance)."""
        fit = self._fitted.model
        if fit.draws is None and fit.training is not None:
            draws = numbers.draw_posterior(fit.model.parameters(), *fit.training)
            # the draws take its place, and the rows take memory
            self._replace_in_model(draws=draws, training=None)
        return self._fitted.model.draws or []

    def _cell_model(self):
        return self._fitted.model.model

    def _drawing_models(self, n_draws, rows=None):
        self._parameter_draws()
        return self._fitted.model.drawing(n_draws, rows)

    def _with_one_draw(self):
        self._parameter_draws()
        return super()._with_one_draw()

    def _training_of(self, data, weights, strength, total=None):
        """Make what the parameters are drawn from at the first request.

        If the rows are a sample, `total` is the weight of all.
        """
        if not self.n_parameter_draws:
            return None
        count, seed = self.n_parameter_draws, seed_from(self.random_state)
        return data.to_array(), weights.numpy(), strength, count, seed, total
