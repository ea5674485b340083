"""Factor analysis of tables with missing values."""

from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skvnce._core.incomplete import Incomplete, Rows, Units
from skvnce._core.numbers import check_count
from skvnce._core.progress import rounds_of_tuning
from skvnce._core.random import seed_from
from skvnce._core.runtime import threads_for
from skvnce._core.warnings import warn_user
from skvnce._imputer import callbacks, validation
from skvnce._imputer.base import IncompleteTransformer
from skvnce._imputer.fill import chunks
from skvnce._imputer.fitted import Fitted
from skvnce._imputer.held_out import hold_out, tail_messages, warn_or_raise
from skvnce._imputer.parts.tables import by_parts
from skvnce._tables.model_columns import Handling, check_scale
from skvnce._tables.values import into_dtype
from skvnce._types import Seed, TableLike
from skvnce.autoencoder import factor_analysis
from skvnce.autoencoder.factor_analysis import FactorModel

_FLOOR = 1e-4  # minimum share of the noise in the variance of a column
_HELD_OUT = 0.2  # share of the observed cells held out to choose the rank
_SEARCH = 100  # tolerance of the choice of the rank, relative to that of the fit


class IncompleteFactorAnalysis(
    callbacks.CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    IncompleteTransformer,
):
    """Factor analysis of tables with missing values, by maximum likelihood.

    The model is ``x = mean + z components + noise`` with latents ``z ~ N(0, I)`` and
    independent normal noise whose variance differs between columns.  The likelihood is
    that of the observed cells; nothing is imputed.  The estimates are consistent for
    normal rows with values missing at random (MAR).  On complete rows they equal those
    of `sklearn.decomposition.FactorAnalysis` up to a rotation of the latents.

    Parameters
    ----------
    n_components : "auto" or int, default="auto"
        Number of latents.  ``"auto"`` increases it from 1 as long as the log predictive
        density of held-out cells, a fifth of the observed ones, increases by more than
        its standard error.
    max_iter : int, default=1000
        Maximum number of rounds of EM, of one E-step and one M-step each.
    tol : float, default=1e-3
        EM stops if a round increases the log-likelihood by less than `tol` nats.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if a few cells dominate the squared errors of a column: it warns
        (`skvnce.exceptions.MisfitWarning`) or raises a ValueError.  ``"ignore"`` skips
        this check.
    verbose : int, default=0
        If 1, print a line for each round, and for each other step that takes longer
        than a second.  If 2, print all steps.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Loadings in the units of X.  The latents are rotated such that they are
        independent given a complete row, ordered by how precisely rows determine them
        (most precise first), and signed such that the largest loading of each, relative
        to the noise, is positive.
    mean_ : ndarray of shape (n_features_in_,)
        Mean of each column, in the units of X.
    noise_variance_ : ndarray of shape (n_features_in_,)
        Variance of the noise of each column, in the squared units of X.
    n_components_ : int
        Number of latents.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that the model uses: those with at least two
        different observed values.
    constants_ : dict of int to float
        Values of the constant columns, by column index.  `fit` warns about them.
    n_iter_ : int
        Number of rounds of EM.
    n_tuning_iter_ : int
        Number of rounds of EM before the final fit, to choose the number of latents.
    loss_curve_ : list of float
        Negative log-likelihood per row after each round, for standardised columns.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    See Also
    --------
    VariationalAutoencoder : Nonlinear, and for categories.

    Notes
    -----
    Columns that are constant where observed, or entirely missing, are not part of the
    model and do not contribute to scores.  Their components and noise variances are 0,
    and their means are the constants, or NaN.

    The noise variance of a column is at least 1e-4 of the variance of the column.  If a
    column reaches this bound (a Heywood case), then it is nearly a linear combination
    of other columns, or the number of latents is too large for the number of rows;
    `fit` warns and names the column.

    `fit` draws no random numbers, so that there is no `random_state`; it is one
    sequence of rounds, and has no `n_jobs`.  The model is in arrays, not in a torch
    module.  Columns are numbers, and have no probabilities of levels.

    References
    ----------
    Rubin and Thayer (1982), EM algorithms for ML factor analysis; Liu, Rubin and Wu
    (1998), Parameter expansion to accelerate EM: the PX-EM algorithm; Simkus, Rhodes
    and Gutmann (2023), Variational Gibbs inference for statistical model estimation
    from incomplete data, appendix J.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import IncompleteFactorAnalysis
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1)) * [1.0, 2.0, -3.0] + rng.normal(size=(200, 3))
    >>> X[rng.random(X.shape) < 0.3] = np.nan
    >>> analysis = IncompleteFactorAnalysis(n_components=1).fit(X)
    >>> analysis.transform(X).shape
    (200, 1)
    >>> analysis.components_.round(0)
    array([[ 1.,  2., -3.]])
    """

    _parameter_constraints = {
        "n_components": [validation.AUTO, validation.integer_from(1)],
        "max_iter": [validation.integer_from(1)],
        "tol": [validation.Number(Real, 0, None, closed="left")],
        "on_misfit": validation.OF_FITS["on_misfit"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        max_iter: int = 1000,
        tol: float = 1e-3,
        on_misfit: Literal["warn", "raise", "ignore"] = "warn",
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.on_misfit = on_misfit
        self.verbose = verbose

    @callbacks.reports_fit
    def fit(
        self, X: TableLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the mean, the components and the noise variance.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), Chunks, or table of dask
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None, default=None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequencies: a row of weight k counts as k equal rows.  Divide the sampling
            weights of a survey by their mean, ``sample_weight / sample_weight.mean()``.

        Returns
        -------
        self : IncompleteFactorAnalysis

        Raises
        ------
        ValueError
            If X contains infinite values or text, if no column has two different
            observed values, if there are more components than such columns, or if a
            parameter is out of range.
        TypeError
            If a parameter has a wrong type.

        Warns
        -----
        UserWarning
            If columns are constant or entirely missing, or if weights seem to be
            sampling weights that have not been divided by their mean.
        MisfitWarning
            If a few cells dominate the squared errors of a column.
        ConvergenceWarning
            If EM did not converge, or if a noise variance reached its lower bound.
        """
        self._check_parameters()
        source, consequence = validation.in_parts(X), "no latents can be learned."
        tables = None
        if source is None:
            table, schema = validation.read_table(self, X, weights=sample_weight)
            cells, schema = validation.read_cells(
                schema, self._handling(schema), table, sample_weight, consequence
            )
            check_scale(cells.weights, len(table))
            sample = cells.table
        else:
            schema, large = self._large_table(source, sample_weight, consequence)
            cells, tables, sample = large.cells, large.tables, large.with_ends
        columns = schema.model_columns
        validation.check_rank(self.n_components, len(columns))
        messages = tail_messages(schema, sample, columns)
        warn_or_raise(messages, self.on_misfit)
        units = Units(cells.location, cells.scale)
        rows = Rows(units.scaled(cells.nodes), torch.from_numpy(cells.weights))
        table = rows if tables is None else tables[-1]
        on_round, finish = callbacks.report_rounds(self, self.max_iter, X=cells.table)
        with threads_for(len(columns)):
            fit, n_tuning = self._fit_rank(rows, table, on_round)
            fitted = self._in_units(schema, fit, units, float(table.total))
        fitted.report["n_tuning_iter_"] = n_tuning
        finish()
        return self._publish(fitted)

    @by_parts
    @callbacks.shows_progress
    def transform(self, X: TableLike) -> Any:
        """Compute the posterior means of the latents given the observed cells.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            0 for a row that is entirely missing.
        """
        X = self._checked(X)
        means = self._rowwise(X, factor_analysis.latent_mean)
        return into_dtype(means, X.dtype)

    def inverse_transform(self, Z: ArrayLike) -> NDArray[np.float64]:
        """Compute the expected rows given their latents.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components_)
            Latents.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            In the units of X; NaN in columns that were entirely missing at `fit`.
        """
        check_is_fitted(self)
        Z = validation.latent_array(Z, self.n_components_)
        return (Z @ self.components_ + self.mean_).astype(Z.dtype)

    def sample_rows(
        self, n_rows: int = 1, random_state: Seed = None
    ) -> NDArray[np.float64]:
        """Draw new rows from the model.

        Parameters
        ----------
        n_rows : int, default=1
            Number of rows.
        random_state : int, RandomState instance, Generator or None, default=None
            Seed of the draws; with None the draws differ between calls.

        Returns
        -------
        ndarray of shape (n_rows, n_features_in_)
            NaN in columns that were entirely missing at `fit`.
        """
        check_is_fitted(self)
        check_count(n_rows, "n_rows")
        rng = np.random.default_rng(seed_from(random_state))
        latents = rng.standard_normal((n_rows, self.n_components_))
        noise = rng.standard_normal((n_rows, self.n_features_in_))
        return self.inverse_transform(latents) + noise * np.sqrt(self.noise_variance_)

    @by_parts
    @callbacks.shows_progress
    def score_samples(self, X: TableLike) -> NDArray[np.float64]:
        """Compute the log-density of the observed cells of each row, in nats.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples,)
            In the units of X; 0 for a row that is entirely missing.
        """
        return self._rowwise(self._checked(X), factor_analysis.log_prob)

    def get_covariance(self) -> NDArray[np.float64]:
        """Compute the covariance of the columns.

        Returns
        -------
        ndarray of shape (n_features_in_, n_features_in_)
            In the units of X; 0 for columns that are not in the model.
        """
        check_is_fitted(self)
        return self._square(FactorModel.covariance)

    def get_precision(self) -> NDArray[np.float64]:
        """Compute the inverse of the covariance of the columns of the model.

        Returns
        -------
        ndarray of shape (n_features_in_, n_features_in_)
            In the inverse units of X; 0 for columns that are not in the model.
        """
        check_is_fitted(self)
        return self._square(FactorModel.precision)

    @property
    def _n_features_out(self):
        return self.n_components_

    def _handling(self, schema):
        constant = "`inverse_transform` gives the constant"
        return Handling("given zero loadings", constant)

    def _fit_rank(self, rows, table, on_round):
        """Choose the rank by rows in memory, and fit to a table that they are of."""
        data, weights = rows.data, rows.weights
        rank, options = self.n_components, {"floor": _FLOOR, "max_iter": self.max_iter}
        if isinstance(rank, str):
            checked, hidden = hold_out(data.to_array(), weights, _HELD_OUT)
            rank = factor_analysis.choose_rank(
                data.take(checked),
                hidden[checked],
                weights[checked],
                data.x.shape[1],
                # held-out cells are compared, which needs no precise fits
                tol=_SEARCH * self.tol,
                **options,
            )
        n_tuning = rounds_of_tuning()
        options |= {"tol": self.tol, "on_round": on_round}
        return factor_analysis.fit_factors(table, rank, **options), n_tuning

    def _in_units(self, schema, fit, units, total):
        """Make the value of a fit, in the units of X."""
        model, columns = factor_analysis.rotate(fit.model), schema.model_columns
        rank, width = model.loadings.shape[1], schema.n_columns
        mean, components = np.full(width, np.nan), np.zeros((rank, width))
        mean[list(schema.constants)] = list(schema.constants.values())
        mean[columns] = units.restored(model.mean)
        components[:, columns] = model.loadings.numpy().T * units.scale
        noise, variance = model.noise_variance.numpy(), np.zeros(width)
        variance[columns] = noise * units.scale**2
        # the floor is reached up to rounding
        at_floor = columns[noise <= 1.001 * _FLOOR]
        if len(at_floor):
            warn_user(
                f"The noise variance is at its lower bound, {_FLOOR:g} of the variance "
                f"of the column: {schema.labels(at_floor)}. Drop these columns if they "
                f"repeat others, or lower n_components={rank}.",
                ConvergenceWarning,
            )
        losses = [-float(objective / total) for objective in fit.objectives]
        if len(losses) == self.max_iter and fit.rise > self.tol:
            rise = f" by {fit.rise:.2g} a round" if self.max_iter > 1 else ""
            warn_user(
                f"EM stopped after max_iter={self.max_iter} rounds, with the "
                f"log-likelihood still rising{rise}. Raise max_iter or "
                f"tol={self.tol:g}.",
                ConvergenceWarning,
            )
        parts = mean[columns], components[:, columns].T, variance[columns]
        report = {
            "n_components_": rank,
            "mean_": mean,
            "components_": components,
            "noise_variance_": variance,
            "loss_curve_": losses,
            "n_iter_": len(losses),
        }
        return Fitted(schema, FactorModel(*map(torch.from_numpy, parts)), report)

    def _checked(self, X):
        """Validate new rows; `transform` depends on no parameter."""
        check_is_fitted(self)
        return validation.incomplete_array(self, X)

    def _rowwise(self, X, function):
        """Apply a function of the model and the rows, in chunks of rows."""
        model = self._fitted.model
        with threads_for(len(self.feature_indices_)):
            parts = [
                function(model, Incomplete.from_array(nodes))
                for _, nodes in chunks(self._schema, X)
            ]
            return torch.cat(parts).numpy()

    def _square(self, function):
        """Embed a matrix of the columns of the model in one of all columns."""
        with threads_for(len(self.feature_indices_)):
            matrix = function(self._fitted.model)
        result = np.zeros((self.n_features_in_, self.n_features_in_))
        result[np.ix_(self.feature_indices_, self.feature_indices_)] = matrix.numpy()
        return result
