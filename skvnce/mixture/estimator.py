"""An imputer by mixtures of normals and of latent classes."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import StrOptions

from skvnce._core.random import seed_from
from skvnce._imputer import validation
from skvnce._imputer.callbacks import CallbackSupportMixin, report_rounds, reports_fit
from skvnce._imputer.fitted import Fitted
from skvnce._imputer.imputer import Imputer
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.mixture.fit import MARGINALS, Settings, Shape, fit_ensemble
from skvnce.mixture.model import Averaged

_REMEDY = "GaussianImputer or TableImputer may fill them better."
_NOT_FINITE = (
    "The covariances of a mixture are not finite. Divide sample_weight by its mean, if "
    "there are very large weights, or rescale columns with very large values."
)
_SETTLED = "a normal distribution is fitted until it converges, in at most 60 rounds"


class MixtureImputer(CallbackSupportMixin, Imputer):
    """Impute by averages of mixtures of normals.

    A mixture of normal distributions represents clusters of rows, nonlinear relations
    and unequal variances, which one normal distribution cannot.  Members are mixtures,
    fitted by EM to the observed cells, each to randomly weighted rows.  One half models
    normal scores of the ranks, the other half the columns as they are.  Columns of
    categories are latent classes: within a component they are independent of each other
    and of the numbers.  Components of many columns may have the covariance of a few
    factors, which has fewer parameters.

    Parameters
    ----------
    n_components : "auto" or int, default="auto"
        Number of components of each mixture, at most the number of rows.  ``"auto"`` is
        20, or a tenth of the rows if that is less, or 1, or in tables with categories a
        quarter: of these the number whose draws of held-out cells are closest to them,
        or the first if no cell can be held out.  From 300 columns of numbers on it
        is 1.  With 1 a member is a normal distribution.
    n_estimators : int, default=8
        Number of members.
    marginals : {"both", "normal-scores", "raw"}, default="both"
        What the components are normal distributions of: normal scores of the ranks in
        each column, columns as they are, or one and the other in turn.  With "both", it
        is columns as they are alone if a quarter of the missing cells of a column, and
        ten or more, are predicted beyond all observed ones, which have no ranks.
    max_iter : int, default=12
        Number of rounds of EM for each member of several components.
    min_value, max_value : None, "observed", float, array-like of shape \
            (n_features,) or dict, default=None
        Bounds of imputed values.  With None, they follow the model beyond the observed
        range, but keep the sign of columns of one sign, and are observed values in
        columns of at most ten values that repeat.
    relations : None, "auto" or list, default=None
        The exact relations between columns that filled tables obey; see `TableImputer`.
        The model has all columns.
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells of X; see `GaussianImputer`.
    keep_empty_features : bool, default=False
        Whether columns that are empty at `fit` are kept; see `GaussianImputer`.
    add_indicator : bool, default=False
        Whether `transform` appends a `sklearn.impute.MissingIndicator`.
    categorical_features : "from_dtype", array-like, dict or None, default="from_dtype"
        Which columns have categories; see `GaussianImputer`.
    handle_unknown : {"error", "missing"}, default="error"
        Whether a category that `fit` has not seen is an error, or a missing value.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if held-out cells of a column are predicted worse than by the
        mean, or if a few cells dominate the squared errors of a column.
    n_jobs : int or None, default=None
        Number of threads that fit members.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the weights of rows, and of the clusters at which components start.
    verbose : int, default=0
        If 1, print the steps that take longer than a second.  If 2, print all.

    Attributes
    ----------
    n_components_ : int
        Number of components of each member; 0 if all columns are constant.
    n_factors_ : int
        Number of factors of each component; 0 if its covariance is unrestricted.
    n_iter_ : int
        Number of rounds of EM of each member; 1 with one component without factors.
    held_out_gain_ : float
        One minus the ratio of the squared errors of a mixture to those of the column
        means, on held-out cells; NaN with ``on_misfit="ignore"``.  See the user guide.
    marginal_columns_ : ndarray of bool, of shape (n_model_columns,)
        Columns that the check on held-out cells found to be predicted worse than by
        their means, and that are imputed from their observed cells instead.
    relations_ : list of `skvnce.relations.search.Relation`
        The relations that are used.
    feature_indices_ : ndarray of shape (n_model_columns,)
        Indices of the columns of X that the model uses: those with at least two
        different observed values.
    constants_ : dict of int to float or category
        Values of the constant columns, by column index.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest valid value of each column of X.
    categories_ : dict of str to ndarray
        The categories of each column of them.  Only if there are categories.
    indicator_ : MissingIndicator or None
        The indicator of missing cells; None without `add_indicator`.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    See Also
    --------
    TableImputer : For categories, and for few rows.

    Notes
    -----
    In tables with categories draws are for filling, and `sample` warns: categories and
    numbers are independent within components, so that their relations are weakened.
    The page of validity has the coverage of pooled intervals.  With one member the
    uncertainty of the parameters is ignored in any table.

    There is no `partial_fit`: the components of new rows would have to be found anew.
    A large table in parts is fitted by a sample of its rows.  The user guide has the
    choice of components, the prior, and what is exact.
    The model is arrays, not a torch module.  Loops are compiled by numba when they are
    first used, for some ten seconds, and the code is kept on disk.

    References
    ----------
    Ghahramani and Jordan (1994), Supervised learning from incomplete data via an EM
    approach; Rubin (1981), The Bayesian bootstrap.  The user guide has the others.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import MixtureImputer
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, np.pi, size=400)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle)])  # half a ring
    >>> X[:100, 1] = np.nan
    >>> filled = MixtureImputer(random_state=0).fit_transform(X)
    >>> bool(abs(filled[:100, 1] - np.sin(angle[:100])).mean() < 0.1)
    True
    """

    _has_density = _has_new_rows = True
    # with categories, whose relations components blur
    _is_for_filling = property(lambda self: self._schema.is_categorical.any())

    _parameter_constraints = {
        "n_components": [validation.AUTO, validation.integer_from(1)],
        "n_estimators": [validation.integer_from(1)],
        "marginals": [StrOptions(set(MARGINALS))],
        "max_iter": [validation.integer_from(1)],
        **validation.OF_LIMITS,
        **validation.OF_IMPUTERS,
        "n_jobs": validation.N_JOBS,
        **validation.OF_FITS,
    }

    def __init__(
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        n_estimators: int = 8,
        marginals: Literal["both", "normal-scores", "raw"] = "both",
        max_iter: int = 12,
        min_value: ByColumn | None = None,
        max_value: ByColumn | None = None,
        relations: Sequence[Any] | Literal["auto"] | None = None,
        missing_values: Any = np.nan,
        keep_empty_features: bool = False,
        add_indicator: bool = False,
        categorical_features: ByColumn | None = "from_dtype",
        handle_unknown: Literal["error", "missing"] = "error",
        on_misfit: Literal["warn", "raise", "ignore"] = "warn",
        n_jobs: int | None = None,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_estimators = n_estimators
        self.marginals = marginals
        self.max_iter = max_iter
        self.min_value = min_value
        self.max_value = max_value
        self.relations = relations
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.on_misfit = on_misfit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @reports_fit
    def fit(
        self, X: TableLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the members to the observed cells.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.  A
            table in parts (`skvnce.options.Chunks`, or dask) is fitted by a sample of
            its rows.
        y : None, default=None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequencies of the rows: a row of weight k counts as k equal rows.

        Returns
        -------
        self : MixtureImputer

        Raises
        ------
        ValueError
            If X has infinite cells or no observed cell, if a parameter is out of range,
            or, with ``on_misfit="raise"``, if a column is predicted worse than by its
            mean.
        TypeError
            If a parameter has a wrong type.
        """
        table = self._read(X, sample_weight)
        schema, cells = table.schema, table.cells
        _, finish = report_rounds(self, None, X=cells.table)
        numbers = schema.model_columns[~schema.is_categorical]
        self._report_tails(schema, cells.table, numbers)
        try:
            with self._threads():
                fitted = self._fit_members(schema, cells)
        except (np.linalg.LinAlgError, torch.linalg.LinAlgError) as error:
            raise ValueError(_NOT_FINITE) from error
        self._warn_of_unused(schema, fitted.report["n_components_"])
        finish()
        return self._publish(fitted._replace(report=table.report | fitted.report))

    def _warn_of_unused(self, schema, n_components):
        """Warn of parameters that have no effect on this table."""
        validation.warn_of_unused_by_levels(self, schema)
        if n_components == 1 and self.n_components != "auto":
            validation.warn_of_unused(self, {"max_iter": _SETTLED})
        if n_components and schema.is_categorical.all():
            validation.warn_of_unused(
                self, {"marginals": "the table has no columns of numbers"}
            )

    def _fit_members(self, schema, cells):
        """Fit all members, and check predictions of cells that some have not used."""
        model, shape = None, Shape(0)
        if len(schema.model_columns):
            rng = np.random.default_rng(seed_from(self.random_state))
            fit = fit_ensemble(cells, schema, self._settings_of_fit(), rng)
            model, shape = Averaged(fit.members), fit.shape

        def predict(visible, rows):
            filled, shares = Averaged(fit.without).fill(visible[rows])
            return schema.values.clipped(filled, schema.model_columns), shares

        schema, check = self._held_out(
            schema,
            cells.nodes,
            predict,
            weights=cells.weights,
            scale=cells.scale,
            hidden=None if model is None else fit.hidden,
        )
        self._report_misfit(schema, check, _REMEDY)
        is_settled = shape.n_components <= 1 and not shape.n_factors
        report = {
            "n_components_": shape.n_components,
            "n_factors_": shape.n_factors,
            "n_iter_": 1 if is_settled else int(self.max_iter),
        }
        return Fitted(schema, model, report | check.report())

    def _settings_of_fit(self):
        return Settings(
            self.n_components,
            int(self.n_estimators),
            self.marginals,
            int(self.max_iter),
            self.n_jobs,
            self.on_misfit != "ignore",
        )

    def _drawing_models(self, n_draws, rows=None):
        return self._fitted.model.models
