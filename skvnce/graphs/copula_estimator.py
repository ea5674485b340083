"""A sparse graph from a table of any columns with missing values."""

from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from skvnce._core.incomplete import Incomplete
from skvnce._core.warnings import warn_user
from skvnce._imputer import callbacks, validation
from skvnce._imputer.fitted import without_columns
from skvnce._tables.schema import FROM_DTYPE
from skvnce._tables.values import NO_LIMITS
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.gaussian import mixed_fit
from skvnce.gaussian.model import LatentNormal, tensors
from skvnce.graphs import copula
from skvnce.graphs.copula import edge_scores
from skvnce.graphs.learner import GraphEstimator

_ROUNDS = 10  # rounds of EM after which the held-out cells have little influence
_REMEDY = "TableImputer or LAIRImputer may fill missing cells better."


class CopulaGraphLearner(GraphEstimator):
    """Sparse graph of columns of any kind, learned from a table with missing values.

    The model is a latent normal distribution (a Gaussian copula): a number, count or
    ordinal level is an increasing function of a normal variable, whatever its
    distribution, and a nominal column of K levels has K of them, of which the largest
    names the level.  The graph has an edge between two columns if their latent
    variables are dependent given those of all other columns.  Stochastic EM estimates
    their moments, and draws the missing cells.  Then the graphical lasso chooses the
    edges, and the model, arrays and no torch module, is fitted to them without a
    penalty.  A fit has no `n_jobs`; that of `CopulaGraphLearnerCV` has.  Draws of
    `sample` are for filling, and it warns: parameters are taken as certain.

    Parameters
    ----------
    alpha : float, default=0.1
        Strength of the L1 penalty that chooses the edges; it does not shrink those that
        remain.  ``sqrt(log(n_features) / n_samples)`` is a usual size; a few hundred
        rows with missing cells or pairs of nominal columns require more.
    max_iter : int, default=100
        Maximum number of rounds of EM, of one E-step and one M-step each.
    tol : float, default=2e-3
        EM stops if no association changes by more than `tol` in a round.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if means, or shares of levels, predict held-out cells of columns
        better (`held_out_gain_`): it warns (`skvnce.exceptions.MisfitWarning`) or
        raises a ValueError.  ``"ignore"`` skips the check.
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells of X, as in scikit-learn's imputers.  ``np.nan``, None
        and pandas.NA are one marker.  With another one NaN is an error, and cells that
        stay missing keep the marker.
    keep_empty_features : bool, default=False
        Whether `transform` keeps columns that were entirely missing at `fit`, filled by
        0, or drops them.  They are never nodes of the graph.
    categorical_features : "from_dtype", array-like, dict or None, default="from_dtype"
        Which columns are categories, as in `GaussianImputer`: by their data types; a
        mask, names, or indices of an array; a dict of columns to ``"nominal"``,
        ``"ordinal"``, ``"numeric"``, ``"passthrough"`` or the ordered levels; None.
    handle_unknown : {"error", "missing"}, default="error"
        What `transform` does with levels that `fit` has not observed: raises a
        ValueError, or treats the cells as missing.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of all draws.  The global streams of numpy and torch are not changed.
    verbose : int, default=0
        If 1, print a line for each round and each step of a second or more.  If 2,
        print all steps.

    Attributes
    ----------
    associations_ : ndarray of shape (n_nodes, n_nodes)
        The partial correlation of the latent variables of two columns, given all other
        columns; zero without an edge and on the diagonal.  For a pair with a nominal
        column of more than two levels it has no sign: the root of the mean squared
        partial canonical correlation (Cramér's V of the latent variables).
    edge_strengths_ : ndarray of shape (n_nodes, n_nodes)
        Absolute values of `associations_`.
    edge_probabilities_ : ndarray of shape (n_nodes, n_nodes)
        Posterior probability of each edge, whatever `alpha` is.
    mean_, covariance_, precision_ : ndarray
        Moments of the latent variables, (n_latents,) and (n_latents, n_latents).
    latent_nodes_ : ndarray of int, of shape (n_latents,)
        The node of each latent variable.
    information_ : ndarray of shape (n_nodes,)
        The variance of the conditional means of the latent variables of a column: 1 if
        its cells say all, less if cells are missing or take few values; the sum over
        the latent variables of a nominal column.
    nodes_ : ndarray of shape (n_nodes,)
        Names of the columns with at least two different observed values; x0, x1, ... if
        X has no names that are strings.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that are nodes.
    constants_ : dict
        Values of the constant columns, by column index, which fill their missing cells.
    categories_ : dict of str to ndarray
        The observed levels of each column of categories, in the order of their codes,
        by column name (or index).  Only if there are categories.
    n_iter_ : int
        Number of rounds of EM; 0 if all columns are constant.
    loss_curve_ : list of float
        Penalised loss of the M-step in each round.
    change_ : float
        Largest change of an association in the last round.
    optimality_gap_ : float
        The duality gap of the graphical lasso that chooses the edges.
    held_out_gain_ : float
        One minus the ratio of the mean squared errors (log-losses, for categories) of
        the model and of the means, on held-out cells.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that their means or shares, which fill them, predict better.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X, in codes of levels and
        in microseconds for dates.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    References
    ----------
    Städler and Bühlmann (2012), Missing values: sparse inverse covariance estimation
    and an extension to sparse regression; Liu, Han, Yuan, Lafferty and Wasserman
    (2012), High-dimensional semiparametric Gaussian copula graphical models; Hoff
    (2007), Extending the rank likelihood for semiparametric copula estimation; Albert
    and Chib (1993), Bayesian analysis of binary and polychotomous response data;
    Dempster (1972), Covariance selection; Zou (2006), The adaptive lasso and its oracle
    properties; Meinshausen (2007), Relaxed lasso; Jankova and van de Geer (2015),
    Confidence intervals for high-dimensional inverse covariance estimation.

    Examples
    --------
    >>> from skvnce import CopulaGraphLearner
    >>> from skvnce.datasets import load_nhanes
    >>> df = load_nhanes(as_frame=True, categories=True).data
    >>> df = df[["Gender", "Height", "Age", "Pulse"]][::10]
    >>> learner = CopulaGraphLearner(alpha=0.2, random_state=0).fit(df)
    >>> learner.edges()[["source", "target"]]
       source  target
    0  Gender  Height
    1     Age   Pulse
    """

    _takes_limits = _has_density = _has_new_rows = True

    _parameter_constraints = {
        "alpha": [validation.Number(Real, 0, None, closed="left")],
        "max_iter": [validation.integer_from(1)],
        "tol": [validation.Number(Real, 0, None, closed="left")],
        **validation.OF_TABLES,
        **validation.OF_CATEGORIES,
        **validation.OF_FITS,
    }

    def __init__(
        self,
        alpha: float = 0.1,
        *,
        max_iter: int = 100,
        tol: float = 2e-3,
        on_misfit: Literal["warn", "raise", "ignore"] = "warn",
        missing_values: Any = np.nan,
        keep_empty_features: bool = False,
        categorical_features: ByColumn | None = FROM_DTYPE,
        handle_unknown: Literal["error", "missing"] = "error",
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.on_misfit = on_misfit
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    @callbacks.reports_fit
    def fit(
        self,
        X: TableLike,
        y: object = None,
        *,
        lower: ByColumn | None = None,
        upper: ByColumn | None = None,
    ) -> Self:
        """Learn the graph.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), Chunks, or \
                table of dask
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None, default=None
            Ignored.
        lower, upper : array-like of shape (n_samples, n_features), or dict, \
                default=None
            Limits of single missing cells, such as detection limits, between which EM
            draws them.  A data frame may leave out columns, and so may a dict of
            columns to arrays (n_samples,) or numbers.  NaN and infinite limits are
            none, and those of observed cells have no effect.

        Returns
        -------
        self : CopulaGraphLearner

        Raises
        ------
        ValueError
            If X contains infinite values, if no cell is observed or fewer than two rows
            have observed cells, if limits leave no value, or if a parameter is out of
            range.
        TypeError
            If a parameter has a wrong type, or columns of categories have limits.
        """
        return self._learn(self._read(X, None, lower, upper))

    def _training_table(self, schema, X):
        """Choose the columns of the model by validated rows."""
        return self._chosen(schema, X, is_whole=False)

    def _problem(self, schema, data, limits=NO_LIMITS):
        """Determine the marginals of the columns, and build the method."""
        kinds, sizes = mixed_fit.kinds_of(schema), schema.n_categories.tolist()
        weights = torch.ones(len(data.x), dtype=torch.float64)
        marginals, doubts = mixed_fit.marginals_of(schema, data, weights, limits)
        mixed_fit.warn_of_tails(schema, doubts)
        return copula.make_problem(data, kinds, sizes, tensors(limits), marginals)

    def _remedy(self):
        """Say which parameters to change if a fit diverges."""
        return f"Raise alpha={self.alpha!r}, or drop columns that repeat others."

    def _model_of(self, schema, fit, problem, data):
        """Make the model of cells of a fit."""
        return LatentNormal(
            problem.latents, mixed_fit.kinds_of(schema), [fit.theta.normal()]
        )

    def _learned(self, schema, fit, problem, data):
        """Return the model of a fit, and the attributes that describe it."""
        model = self._model_of(schema, fit, problem, data)
        associations = problem.method.family.strengths(fit.theta).numpy()
        self._warn_unless_converged(fit)
        validation.warn_of_unused_by_levels(self, schema)
        return model, {
            **self._report_of(schema, model, associations),
            "precision_": fit.theta.precision.numpy(),
            "latent_nodes_": problem.blocks.places.numpy(),
            "information_": problem.information.numpy(),
            "n_iter_": len(fit.losses),
            "loss_curve_": fit.losses,
            "change_": fit.change,
            "optimality_gap_": fit.gap,
        }

    def _report_of(self, schema, model, associations):
        """List the attributes of an estimator with this model."""
        mean, covariance = model.parameters()
        return {
            "mean_": mean,
            "covariance_": covariance,
            "associations_": associations,
            "edge_strengths_": np.abs(associations),
            "nodes_": schema.all_names[schema.model_columns],
        }

    def _warn_unless_converged(self, fit):
        if len(fit.losses) == self.max_iter and fit.change > self.tol:
            warn_user(
                f"EM stopped after max_iter={self.max_iter} rounds, with an "
                f"association still changing by {fit.change:.2g} a round. Raise "
                f"max_iter or tol={self.tol:g}.",
                ConvergenceWarning,
            )

    def _empty_graph(self, schema):
        """Make the graph without nodes of a table whose columns are all constant."""
        squares = ["covariance_", "precision_", "associations_"]
        squares += ["edge_strengths_", "edge_probabilities_"]
        report = dict.fromkeys(["change_", "optimality_gap_"], 0.0)
        report |= {"nodes_": schema.all_names[:0], "latent_nodes_": np.arange(0)}
        return without_columns(schema, report, ["mean_", "information_"], squares)

    def _edge_scores(self, fit, problem):
        """Score all pairs; return the scores, and which have no sign."""
        grouped = problem.blocks.sizes > 1
        return edge_scores(problem, fit), grouped[:, None] | grouped

    def _check_predictions(self, table, problem, theta, report, strength="alpha"):
        """Check predictions, and report a misfit; returns what `_held_out` does."""
        schema, cells, limits = table.schema, table.cells, table.cells.limits

        def predict(training, rows):
            state = problem.continue_fit(
                Incomplete.from_array(training),
                theta,
                float(self.alpha),
                _ROUNDS,
                tensors(limits),
            )
            model = LatentNormal(
                problem.latents, mixed_fit.kinds_of(schema), [state.normal()]
            )
            return model.fill(training[rows], limits.of(rows))

        options = {"hidden": mixed_fit.held_out_cells(cells), "scale": cells.scale}
        schema, checked = self._held_out(schema, cells.nodes, predict, **options)
        self._report_misfit(schema, checked, _REMEDY)
        return schema, checked
