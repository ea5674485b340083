"""Factor analysis as a transformer of incomplete tables into their latents."""

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skvnce._incomplete import Incomplete
from skvnce._threads import threads_for
from skvnce._warnings import warn_user
from skvnce.algorithms import factor_analysis
from skvnce.estimators._base import ConstantColumns, IncompleteTransformer
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
    rounds_of_tuning,
    shows_progress,
)
from skvnce.estimators._misfit import announce, tail_messages
from skvnce.estimators._tables import (
    column_moments,
    hold_out,
    into_dtype,
    rows_that_count,
)
from skvnce.estimators._validation import (
    check_auto_or_number,
    check_number,
    check_rank,
    check_spread,
    column_name,
    incomplete_array,
    keeps_state_on_failure,
    latent_array,
)
from skvnce.models.factor_analysis import FactorModel

_FLOOR = 1e-4  # least share of noise in the variance of a column
_HELD_OUT = 0.2  # share of the observed cells on which the rank is chosen
_SEARCH = 100  # tolerance of that choice, in tolerances of the fit


class IncompleteFactorAnalysis(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    ConstantColumns,
    IncompleteTransformer,
):
    """Factor analysis of tables with missing cells, by maximum likelihood.

    ``x = mean + z components + noise`` with latents ``z ~ N(0, I)`` and independent
    normal noise of its own variance in each column.  All rows count with the cells that
    they have: nothing is imputed.  The fit is right for normal rows with values missing
    at random (MAR); on complete rows it is that of
    `sklearn.decomposition.FactorAnalysis` up to a rotation of the latents.

    Parameters
    ----------
    n_components : "auto" or int, default="auto"
        Number of latents.  ``"auto"`` raises it from 1 while the log predictive density
        of a fifth of the observed cells, held out, rises by more than its standard
        error.
    max_iter : int, default=1000
        Rounds of EM at most.
    tol : float, default=1e-3
        Rise of the log-likelihood in a round, in nats, below which EM stops.
    verbose : int, default=0
        1 prints a line for each round, and for each other step that takes a second.
        2 prints all steps.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Loadings in the units of X.  Latents are rotated such that, given a complete
        row, they are independent; those that rows tell most of come first, and the
        largest loading of each, against the noise, is positive.
    mean_ : ndarray of shape (n_features_in_,)
        In the units of X.
    noise_variance_ : ndarray of shape (n_features_in_,)
        In the squared units of X.
    n_components_ : int
        The number of latents that was used.
    node_indices_ : ndarray of shape (n_nodes,)
        Places in X of the columns of the model: those with two different values.
    constants_ : dict of int to float
        Places and values of the columns with one observed value.
    n_iter_ : int
        Rounds of EM.
    n_tuning_iter_ : int
        Rounds of EM before them, which chose the number of latents.
    loss_curve_ : list of float
        Log-likelihood per row in each round, negated, for columns of unit spread.
    n_features_in_ : int
        Number of columns seen at `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has names that are strings.

    Notes
    -----
    A column of which all observed cells are equal, or none is observed, is not in the
    model, nor in scores; its components and its noise variance are 0, and its mean is
    that value, or NaN.

    The noise variance is kept above 1e-4 of the variance of its column.  A column at
    that floor (a Heywood case) repeats others, or there are more latents than the rows
    can tell; a warning names it.

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

    def __init__(self, n_components="auto", *, max_iter=1000, tol=1e-3, verbose=0):
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose

    @keeps_state_on_failure
    @reports_fit
    def fit(self, X, y=None, sample_weight=None):
        """Fit mean, components and noise variance.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing say nothing and are
            left out.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights; a weight of k counts as k equal rows.

        Returns
        -------
        self : IncompleteFactorAnalysis

        Raises
        ------
        ValueError
            For infinite or textual cells, a table without a column of two values, more
            components than such columns, and parameters outside their range.
        TypeError
            For parameters of a wrong type.

        Warns
        -----
        MisfitWarning
            Where a few cells decide the squared errors of columns; names them.
        ConvergenceWarning
            Where EM stopped before it settled, or a noise variance is at its floor.
        """
        self._check_parameters()
        X = incomplete_array(self, X, reset=True)
        weights, kept = rows_that_count(X, sample_weight)
        table = X[kept].astype(np.float64)
        self.node_indices_ = self._observed_columns(table)
        self._split_constants(table)
        self._refuse_constants("there is nothing that latents could explain.")
        check_rank(self.n_components, len(self.node_indices_))
        nodes = table[:, self.node_indices_]
        seen = ~np.isnan(nodes).all(1)  # something else than constants
        nodes, weights = nodes[seen], weights[kept][seen]
        mean, scale = column_moments(nodes, weights)
        check_spread(self, self.node_indices_, scale)
        announce(tail_messages(self, table, self.node_indices_), "warn")
        nodes = (nodes - mean) / scale
        on_round, finish = report_rounds(self, self.max_iter, X=X)
        with threads_for(len(self.node_indices_)):
            found = self._fit_rank(nodes, torch.from_numpy(weights), on_round)
            self._keep(found, mean, scale, weights.sum())
        finish()
        return self

    @shows_progress
    def transform(self, X):
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
        found = self._rowwise(X, factor_analysis.latent_mean)
        return into_dtype(found, X.dtype)

    def inverse_transform(self, Z):
        """Compute the means of rows given their latents.

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
        Z = latent_array(Z, self.n_components_)
        return (Z @ self.components_ + self.mean_).astype(Z.dtype)

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
            In the units of X; 0 for a row that is entirely missing.
        """
        return self._rowwise(self._checked(X), factor_analysis.log_prob)

    def get_covariance(self):
        """Compute the covariance of the columns.

        Returns
        -------
        ndarray of shape (n_features_in_, n_features_in_)
            In the units of X; 0 for columns that are not in the model.
        """
        check_is_fitted(self)
        return self._square(FactorModel.covariance)

    def get_precision(self):
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

    def _check_parameters(self):
        check_auto_or_number(self.n_components, "n_components", low=1, integer=True)
        check_number(self.max_iter, "max_iter", low=1, integer=True)
        check_number(self.tol, "tol", low=0)

    def _fate_of_empty(self):
        return "of no loading"

    def _fit_rank(self, nodes, weights, on_round):
        data = Incomplete.from_array(nodes)
        rank, options = self.n_components, {"floor": _FLOOR, "max_iter": self.max_iter}
        if isinstance(rank, str):
            some, hidden = hold_out(nodes, weights, _HELD_OUT)
            rank = factor_analysis.choose_rank(
                data.take(some),
                hidden[some],
                weights[some],
                nodes.shape[1],
                tol=_SEARCH * self.tol,
                **options,
            )
        self.n_tuning_iter_ = rounds_of_tuning()
        return factor_analysis.fit_factors(
            data, weights, rank, tol=self.tol, on_round=on_round, **options
        )

    def _keep(self, fit, mean, scale, total):
        """Write the fit into attributes, in the units of X."""
        model = factor_analysis.rotate(fit.model)
        self.n_components_ = model.loadings.shape[1]
        self.mean_ = np.full(self.n_features_in_, np.nan)
        self.mean_[list(self.constants_)] = list(self.constants_.values())
        self.mean_[self.node_indices_] = mean + model.mean.numpy() * scale
        self.components_ = np.zeros((self.n_components_, self.n_features_in_))
        self.components_[:, self.node_indices_] = model.loadings.numpy().T * scale
        self.noise_variance_ = np.zeros(self.n_features_in_)
        noise = model.noise_variance.numpy()
        self.noise_variance_[self.node_indices_] = noise * scale**2
        self.loss_curve_ = [-float(objective / total) for objective in fit.objectives]
        self.n_iter_ = len(self.loss_curve_)
        at_floor = self.node_indices_[noise <= 1.001 * _FLOOR]
        if len(at_floor):
            names = ", ".join(column_name(self, j) for j in at_floor)
            warn_user(
                f"Noise at its floor, {_FLOOR:g} of the variance: {names}. They repeat "
                "other columns (drop them), or there are too many latents for the rows "
                f"(lower n_components={self.n_components_}).",
                ConvergenceWarning,
            )
        if self.n_iter_ == self.max_iter and fit.rise > self.tol:
            warn_user(
                f"EM stopped after max_iter={self.max_iter} rounds, with the "
                f"log-likelihood still rising by {fit.rise:.2g} a round. Raise "
                f"max_iter or tol={self.tol:g}.",
                ConvergenceWarning,
            )

    def _checked(self, X):
        """Validate new rows; no parameter acts after the fit."""
        check_is_fitted(self)
        return incomplete_array(self, X, reset=False)

    def _rowwise(self, X, function):
        """Apply a function of the model and the rows, in chunks of rows."""
        model = self._model()
        with threads_for(len(self.node_indices_)):
            parts = [
                function(model, Incomplete.from_array(nodes))
                for _, nodes in self._parts(X)
            ]
            return torch.cat(parts).numpy()

    def _model(self):
        columns = self.node_indices_
        return FactorModel(
            torch.from_numpy(self.mean_[columns]),
            torch.from_numpy(self.components_[:, columns].T),
            torch.from_numpy(self.noise_variance_[columns]),
        )

    def _square(self, function):
        """Put a matrix of the columns of the model into one of all columns."""
        with threads_for(len(self.node_indices_)):
            matrix = function(self._model())
        result = np.zeros((self.n_features_in_, self.n_features_in_))
        result[np.ix_(self.node_indices_, self.node_indices_)] = matrix.numpy()
        return result
