"""An imputer with a model of your choice for each column, and stacks of imputers."""

from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import HasMethods

from skvnce._core.random import seed_from
from skvnce._core.warnings import warn_user
from skvnce._imputer import validation
from skvnce._imputer.callbacks import CallbackSupportMixin, report_rounds, reports_fit
from skvnce._imputer.imputer import Imputer
from skvnce._tables.cells import is_missing
from skvnce._tables.schema import Encoded
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.columns.fit import (
    EstimatorLearner,
    classifies,
    listed_predictors,
    predictors_of,
    regresses,
)
from skvnce.columns.model import Design
from skvnce.columns.wrapper import PASSED_ON, ByModel

_FEWEST = 10  # observed cells of a column that a model is fitted to
_METHODS = ["fit", "predict", "get_params"]  # of the model of a column


class Methods(HasMethods):
    """Objects with methods, which some have only when they are fitted."""

    def is_satisfied_by(self, val):
        """Ask the class, too."""
        return all(_has(val, method) for method in self.methods)


def _has(model, name):
    return hasattr(model, name) or hasattr(type(model), name)


class ColumnImputer(CallbackSupportMixin, ByModel):
    """Impute by a joint model, averaged with a model of your choice for each column.

    Any regressor or classifier with the methods of scikit-learn can be the model of a
    column.  `model` is fitted first and completes the table by a draw.  The estimators
    learn from the completed rows whose cell is observed, complete the table anew, and
    learn again.  Predictions and draws of both, or of several imputers (a stack), are
    averaged, with weights that held-out cells choose for each column.

    Parameters
    ----------
    model : imputer of this package, list of them or None, default=None
        The joint model, or a stack of several, such as ``[TableImputer(),
        MixtureImputer()]``, which takes twice the time of all its imputers.  The first
        one reads the table.  None is ``GaussianImputer()``.
    regressor : regressor or None, default=None
        Model of the columns of numbers; None leaves them to `model`.
    classifier : classifier or None, default=None
        Model of the columns of categories, with ``predict_proba``.  Ordered categories
        are classes like others.
    estimators : dict or None, default=None
        Models of single columns, by their names, or indices if X has no names:
        ``{"y": Ridge(), "grade": LogisticRegression()}``.  None leaves one to `model`.
    predictors : dict, "auto" or None, default=None
        Which other columns estimators see: a dict of lists (None means all).
        ``"auto"`` selects columns whose absolute correlation with the column, or with
        whether it is observed, is at least 0.1.  None, and columns that the dict leaves
        out, see all; `model` always does.
    weight : "auto" or float, default="auto"
        Weight of the estimators of columns, from 0 to 1.  ``"auto"`` chooses it for
        each column, by the continuous ranked probability score of draws of held-out
        cells (half the Brier score of categories), of models that have not used them.
    n_completions : int, default=1
        Number of completed tables that estimators learn from.
    max_samples : int, default=10000
        Maximum number of rows, chosen at random, that an estimator learns from.
    n_draws : int, default=8
        Number of Gibbs chains of `transform` for each row with several missing cells.
    n_steps : int, default=3
        Number of sweeps of `sample`.
    missing_values, keep_empty_features, add_indicator, categorical_features, \
            handle_unknown : default=None
        Parameters of `model`, or of the first of several; None leaves those of `model`.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the fit; replaces the `random_state` of `model`, and one of None in the
        estimators.
    verbose : int, default=0
        If 1, print a line for each model and each long step; if 2, all steps.

    Attributes
    ----------
    model_ : imputer
        The fitted joint model, the first one of several.
    models_ : list of imputer
        All fitted joint models.
    weights_ : ndarray of shape (n_nodes,)
        Weight of the estimator of each column; 0 without one.
    spreads_ : ndarray of shape (n_nodes,)
        Factor, at most 1, of the deviations of draws of each column from their mean.
    model_weights_ : ndarray of shape (n_models, n_nodes)
        Weights of the joint models among themselves; those of a column add up to one.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns with at least two different observed values.
    constants_ : dict of int to float or category
        Values of the constant columns, by column index.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X.
    categories_ : dict of str to ndarray
        The categories of each column of them.  Only if there are categories.
    indicator_ : MissingIndicator or None
        The indicator of `model_`.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    See Also
    --------
    TableImputer : Needs no model of a column; its draws are for pooling.

    Notes
    -----
    Estimators see numbers as they are, ordered categories as 0, 1, ..., and a nominal
    column of three or more categories as indicators.  The user guide says how cells are
    drawn and weights are chosen.  A column with fewer than 10 observed cells is left to
    `model`, with a warning if its estimator was named; so are, with ``weight="auto"``,
    numbers that nearly repeat others (a squared correlation above 0.9975).

    Draws are for filling, and `sample` warns: they ignore the uncertainty of the
    estimators, and coverage may be too low; see the page of validity.  Averages of
    models draw too widely (Gneiting and Ranjan 2013).  So draws of numbers that do not
    repeat are moved towards the mean of the cell, by the factor of `spreads_` with
    which ranks of held-out cells are uniform; not with a given weight.

    A draw takes a column either from `model` or from the estimator, which sees the
    other cells of the draw.  Estimators of columns do not form a joint distribution, so
    there is no density, no `score`, and no torch module.  Warnings of `fit` are those
    of `model`, whose parameter `on_misfit` is; `n_jobs` is one of the estimators.

    References
    ----------
    van Buuren and Groothuis-Oudshoorn (2011), mice: Multivariate imputation by chained
    equations in R; van Buuren, Boshuizen and Knook (1999), Multiple imputation of
    missing blood pressure covariates in survival analysis; Gneiting and Raftery (2007),
    Strictly proper scoring rules, prediction, and estimation.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> from skvnce import ColumnImputer
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, size=200)
    >>> X = np.column_stack([x, abs(x)])
    >>> X[:50, 1] = np.nan
    >>> boosted = HistGradientBoostingRegressor(max_iter=50)
    >>> imputer = ColumnImputer(estimators={1: boosted}, weight=1.0, random_state=0)
    >>> filled = imputer.fit_transform(X)
    >>> bool(abs(filled[:50, 1] - abs(x[:50])).mean() < 0.05)
    True
    """

    _is_for_filling = True  # as the parameters of estimators count as known

    _parameter_constraints = {
        "model": [None, Imputer, list, tuple],
        "regressor": [None, Methods(_METHODS)],
        "classifier": [None, Methods([*_METHODS, "predict_proba"])],
        "estimators": [None, dict],
        "predictors": [None, validation.AUTO, dict],
        "weight": [validation.AUTO, validation.Number(Real, 0, 1, closed="both")],
        "n_completions": [validation.integer_from(1)],
        "max_samples": [validation.integer_from(2)],
        "n_draws": [validation.integer_from(1)],
        "n_steps": [validation.integer_from(1)],
        **PASSED_ON,
        "random_state": validation.RANDOM_STATE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        model: Any = None,
        *,
        regressor: Any = None,
        classifier: Any = None,
        estimators: Mapping[Any, Any] | None = None,
        predictors: Mapping[Any, Any] | Literal["auto"] | None = None,
        weight: float | Literal["auto"] = "auto",
        n_completions: int = 1,
        max_samples: int = 10_000,
        n_draws: int = 8,
        n_steps: int = 3,
        missing_values: Any = None,
        keep_empty_features: bool | None = None,
        add_indicator: bool | None = None,
        categorical_features: ByColumn | None = None,
        handle_unknown: Literal["error", "missing"] | None = None,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.regressor = regressor
        self.classifier = classifier
        self.estimators = estimators
        self.predictors = predictors
        self.weight = weight
        self.n_completions = n_completions
        self.max_samples = max_samples
        self.n_draws = n_draws
        self.n_steps = n_steps
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: TableLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the joint models and the estimators of columns.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None, default=None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequencies of the rows, for `fit` of `model` and of the estimators; rows
            of an estimator that takes none, or has a part that takes none, are drawn in
            proportion to them.

        Returns
        -------
        self : ColumnImputer

        Raises
        ------
        ValueError
            As `fit` of `model` does, if `estimators` or `predictors` name unknown
            columns, if an estimator fails (the error names the column) or one of
            several imputers (the error names it by its number), if an imputer but the
            first has a marker of its own (`missing_values`), or if a parameter is out
            of range.
        TypeError
            If a parameter has a wrong type, if a classifier is the estimator of
            numbers or a regressor that of categories, or if `model` or an estimator
            lacks a method.

        Warns
        -----
        UserWarning
            If a column with an estimator in `estimators` has fewer than 10 observed
            cells.
        """
        return self._publish(self._new()._fit(X, sample_weight))

    @reports_fit
    def _fit(self, X, sample_weight):
        """Fit a copy without `model_`, whose parameters say how columns are read."""
        self._check_parameters()
        rng = np.random.default_rng(seed_from(self.random_state))
        cells, schema = validation.read_table(self, X, weights=sample_weight)
        self._check_columns(schema)
        models = self._fit_models(rng, Encoded(cells, schema), sample_weight)
        _, finish = report_rounds(self, None, X=cells)
        fitted = self._fit_columns(models[0]._schema, models, cells, sample_weight, rng)
        finish()
        report = {"models_": models, **self._report_of(models[0])}
        return fitted._replace(report=fitted.report | report)

    def _fit_models(self, *arguments):
        """Fit clones of all joint models."""
        fitted = []
        for number, model in enumerate(self._requested_models()):
            with self._named_errors(number):
                fitted.append(self._fit_model(*arguments, model))
        return fitted

    def _check_columns(self, schema):
        """Check estimators and predictors, before a joint model is fitted."""
        low, high = schema.ends
        for key, estimator in self._named_estimators().items():
            place = schema.index_of(key, "estimators")
            if estimator is not None and low[place] < high[place]:
                _check_kind(estimator, schema, place)
        if isinstance(self.predictors, Mapping):
            listed_predictors(self.predictors, schema)  # raises an error for wrong ones

    def _check_parameters(self):
        super()._check_parameters()
        if isinstance(self.model, list | tuple):
            if not self.model:
                raise ValueError("model is an empty list. Pass at least one imputer.")
            for model in self.model:
                if not isinstance(model, Imputer):
                    raise TypeError(
                        f"model has {model!r}, no imputer of this package. Pass an "
                        "estimator of scikit-learn as regressor or classifier."
                    )
        self._check_models()
        if isinstance(self.model, list | tuple):
            self._check_stack()
        estimators = {"regressor": self.regressor, "classifier": self.classifier}
        for key, estimator in self._named_estimators().items():
            estimators[f"estimators[{key!r}]"] = estimator
        for name, estimator in estimators.items():
            check_estimator_of_column(name, estimator)
        for name, right in (("regressor", regresses), ("classifier", classifies)):
            estimator = estimators[name]
            if estimator is not None and not right(estimator):
                raise TypeError(f"{name} must be a {name}, got {estimator!r}.")

    def _check_stack(self):
        """Reject markers of other models than the first one, which reads the table."""
        models = self._requested_models()
        first = models[0]._marker()
        for number, model in enumerate(models):
            marker = model._marker()
            # at its default a model leaves the choice to the first one
            if not is_missing(marker) and (is_missing(first) or marker != first):
                raise ValueError(
                    f"{self._label_of(number)} of the stack has missing_values="
                    f"{marker!r}, and model[0], which reads the table, has {first!r}. "
                    "Set missing_values of model[0] alone."
                )

    def _with_one_draw(self):
        each = [model._with_one_draw() for model in self.models_]
        turns = range(max(map(len, each)))
        stacks = [[draws[k % len(draws)] for draws in each] for k in turns]
        return [self._without_training(model_=s[0], models_=s) for s in stacks]

    def _valid_cells(self, models):
        # averages are of means, whatever the strategy of `model`
        return [
            cells._replace(strategy="mean") for cells in super()._valid_cells(models)
        ]

    def _named_estimators(self):
        return self.estimators or {}

    def _estimators_of_columns(self, schema):
        """Return the estimator of each column of the model, or None."""
        by_place = {}
        for key, estimator in self._named_estimators().items():
            by_place[schema.index_of(key, "estimators")] = estimator
        kinds = self.regressor, self.classifier
        levels = schema.is_categorical.tolist()
        return {
            node: by_place.get(place, kinds[is_level])
            for node, (place, is_level) in enumerate(
                zip(schema.model_columns.tolist(), levels, strict=True)
            )
        }

    def _learners(self, schema, nodes):
        """Return the learners of columns, by place among the columns of the model."""
        learners = {}
        levels = schema.n_categories
        nominal = [_is_nominal(schema, place) for place in schema.model_columns]
        is_predictor = predictors_of(self.predictors, schema, nodes, nominal)
        self._warn_of_others(schema)
        signs = schema.values.signs(schema.ends)
        for node, model in self._estimators_of_columns(schema).items():
            place = int(schema.model_columns[node])
            label = schema.labels([place])
            columns = np.flatnonzero(is_predictor[node]).tolist()
            if model is None or not columns:
                continue
            if np.count_nonzero(~np.isnan(nodes[:, node])) < _FEWEST:
                self._warn_of_few(schema, place, label)
                continue
            wide = [
                int(levels[j]) if nominal[j] and levels[j] > 2 else 0 for j in columns
            ]
            design = Design(tuple(columns), tuple(wide), label, float(signs[place]))
            learners[node] = EstimatorLearner(
                node, model, design, int(levels[node]), int(self.max_samples)
            )
        return learners

    def _warn_of_others(self, schema):
        """Warn of estimators of columns that no model has."""
        places = [
            schema.index_of(key, "estimators") for key in self._named_estimators()
        ]
        others = np.setdiff1d(places, schema.model_columns).astype(int)
        if len(others):
            warn_user(
                f"Not in the model: {schema.labels(others)}. Constant or empty "
                "columns, and those that are passed through, need no estimator."
            )

    def _warn_of_few(self, schema, place, label):
        """Warn of a named column that has too few cells for its estimator."""
        if place in {
            schema.index_of(key, "estimators") for key in self._named_estimators()
        }:
            warn_user(
                f"Fewer than {_FEWEST} observed cells: {label}. Left to the joint "
                "model; its estimator in estimators is not used."
            )


def _is_nominal(schema, place):
    return bool(schema.columns) and schema.columns[place].kind == "nominal"


def check_estimator_of_column(name, model):
    """Raise an error for a value that cannot be the model of a column."""
    if model is None:
        return
    methods = _METHODS
    if not isinstance(model, type) and classifies(model):
        methods = [*_METHODS, "predict_proba"]
    lacking = [method for method in methods if not _has(model, method)]
    if lacking or isinstance(model, type):
        raise TypeError(
            f"{name} must have the methods {', '.join(methods)}, got {model!r}. Pass a "
            "regressor or a classifier with probabilities, or None."
        )


def _check_kind(model, schema, place):
    """Raise an error for a classifier of numbers, and a regressor of categories."""
    column = schema.columns[place] if schema.columns else None
    has_levels, label = bool(column and column.levels), schema.label(place)
    if has_levels and not classifies(model):
        raise TypeError(
            f"The {label} has categories, and {model!r} is no classifier. Pass "
            "one, or read the column as numbers (categorical_features of model)."
        )
    if not has_levels and not regresses(model):
        raise TypeError(
            f"The {label} has numbers, and {model!r} is no regressor. Pass one, "
            "or read the column as categories (categorical_features of model)."
        )
