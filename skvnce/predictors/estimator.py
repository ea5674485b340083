"""A classifier and a regressor that learn from several draws of the missing cells."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import cycle
from typing import Any, ClassVar, NamedTuple, Self

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    clone,
    is_classifier,
)
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, metadata_routing
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    _check_y,
    _num_samples,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from skvnce._core.numbers import check_share
from skvnce._core.random import seed_from
from skvnce._core.runtime import one_thread
from skvnce._core.warnings import without_pooling
from skvnce._imputer import validation
from skvnce._imputer.fitted import Fitted, get_state, set_state, without_fit
from skvnce._tables.cells import is_frame, is_missing
from skvnce._tables.mixed import check_rows
from skvnce._tables.model_columns import checked_weights
from skvnce._tables.schema import PASSED, Schema, encode
from skvnce._types import Seed, TableLike
from skvnce.gaussian.estimator import GaussianImputer
from skvnce.predictors import out_of_fold

# ----------------------------------------
# The base class of predictors that learn from several draws of the missing cells.

# 128 MiB of float64
_CHUNK = 2**24  # maximum number of cells, over all draws, that are predicted at once
_MOST = 2**31 - 1  # of seeds
_MOST_LEVELS = 255  # of nominal columns of trees; codes of others count as numbers


class Predictor(NamedTuple):
    """What a fit has learned besides its public attributes."""

    seed: int  # of the draws of new rows, so that predictions can be repeated
    residuals: out_of_fold.Residuals | None  # for intervals


class MultipleImputation(BaseEstimator):
    """Base class: an imputer, and a model for each of several completed tables."""

    _parts: ClassVar[dict[str, Callable]]  # see `set_nested`
    set_params = validation.set_nested
    # weights are requested by those that use them
    __metadata_request__fit = {"sample_weight": metadata_routing.UNUSED}

    def fit(
        self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the imputer, and a model to each of several completed tables.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : array-like of shape (n_samples,)
            Target, without missing values.  The imputer does not see it.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for `estimator`, and for `imputer` if its `fit` takes
            them, as frequencies; divide sampling weights by their mean.  If
            scikit-learn's metadata routing is enabled, they are passed to those that
            request them.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            As `fit` of the imputer and of the model do, if values of y are missing, or
            if a parameter is out of range.
        TypeError
            If a parameter has a wrong type, or the model takes no weights.
        """
        self._check_parameters()
        arguments = {"X": X, "y": y, "sample_weight": sample_weight}
        for name, cells in arguments.items():
            # before scikit-learn's checks, which would load tables in parts
            validation.needs_memory(type(self), cells, reset=True, name=name)
        check_consistent_length(X, y, sample_weight)
        y = self._target(y)
        if sample_weight is not None:
            check_rows(X, sample_weight, "sample_weight", "X")
            sample_weight = checked_weights(sample_weight, np.empty(len(y)))
        of_imputer, of_model = self._route(sample_weight)
        rng = np.random.default_rng(seed_from(self.random_state))
        imputer = self._fit_imputer(X, of_imputer, rng)
        fit_models = partial(self._fit_models, imputer, rng)
        tables = self._draw_tables(imputer, X, int(self.n_estimators), rng)
        models, seed = fit_models(tables, y, of_model), _seed(rng)
        rows = out_of_fold.TrainingRows(tables, y, of_model, _groups_of(imputer, X))
        report, residuals = self._of_target(models, fit_models, rows, rng)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(imputer, name):
                report[name] = getattr(imputer, name)
        report |= {"imputer_": imputer, "estimators_": models}
        fitted = Fitted(None, Predictor(seed, residuals), report)
        # all at once, so that a fit that fails changes nothing
        self.__dict__ = {**without_fit(vars(self)), **report, "_fitted": fitted}
        return self

    __getstate__, __setstate__ = get_state, set_state

    def get_metadata_routing(self) -> Any:
        """Get the metadata routing of this object.

        Returns
        -------
        MetadataRouter
        """
        fit = metadata_routing.MethodMapping().add(caller="fit", callee="fit")
        router = metadata_routing.MetadataRouter(owner=self)
        return router.add(imputer=self._part("imputer"), method_mapping=fit).add(
            estimator=self._part("estimator"), method_mapping=fit
        )

    def __sklearn_tags__(self):
        """Declare that NaN is allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _check_parameters(self):
        validation.check_parameters(self)
        if self.n_draws < self.n_estimators:
            raise ValueError(
                f"n_draws={self.n_draws} must be at least "
                f"n_estimators={self.n_estimators}, so that each model predicts."
            )

    def _part(self, name):
        """Return the value of a parameter, or what None stands for."""
        value = getattr(self, name)
        return self._parts[name](value) if value is None else value

    def _target(self, y):
        """Check the target."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        y = column_or_1d(y, warn=True)
        missing = np.array([is_missing(value) for value in y.tolist()])
        if missing.any():
            raise ValueError(
                f"Input y contains NaN, the first in row {missing.argmax()}. Leave out "
                "the rows without a target: nothing can be learned from them."
            )
        return _check_y(y, estimator=self)

    def _of_target(self, models, fit_models, rows, rng):
        """Return the attributes that depend on the target, and `Residuals` or None."""
        raise NotImplementedError

    def _route(self, sample_weight):
        """Return the parameters of `fit` of the imputer and of the model."""
        imputer, model = self._part("imputer"), self._part("estimator")
        if metadata_routing._routing_enabled():
            routed = metadata_routing.process_routing(
                self, "fit", sample_weight=sample_weight
            )
            return routed.imputer.fit, routed.estimator.fit
        if sample_weight is None:
            return {}, {}
        if not has_fit_parameter(model, "sample_weight"):
            raise TypeError(
                f"fit of {type(model).__name__} does not take sample_weight. For a "
                "Pipeline, enable metadata routing: "
                "sklearn.set_config(enable_metadata_routing=True), and let its step "
                "request the weights by set_fit_request(sample_weight=True)."
            )
        weights = {"sample_weight": sample_weight}
        takes = has_fit_parameter(imputer, "sample_weight")
        return (weights if takes else {}), weights

    def _fit_imputer(self, X, arguments, rng):
        """Fit a clone of the imputer, which returns data frames if X is one."""
        imputer = clone(self._part("imputer"))
        if isinstance(imputer, FrozenEstimator):
            return imputer
        config = getattr(imputer, "_sklearn_output_config", {})
        if is_frame(X) and "transform" not in config:
            is_polars = nw.from_native(X).implementation.is_polars()
            imputer.set_output(transform="polars" if is_polars else "pandas")
        return _reseed(imputer, rng).fit(X, **arguments)

    def _draw_tables(self, imputer, X, n_draws, rng):
        """Draw completed tables; those of the default model have numbers only."""
        with without_pooling():
            tables = imputer.sample(X, n_draws, _seed(rng))
        columns = self._columns_of(imputer)
        if columns is None:
            return tables
        used = [k for k, column in enumerate(columns) if column.kind != PASSED]
        return [_numbers(table, columns)[:, used] for table in tables]

    def _columns_of(self, imputer):
        """List the columns that the default model gets; None if all are numbers."""
        if self.estimator is not None:
            return None
        schema = imputer._schema
        return schema.columns and [schema.columns[j] for j in schema.returned]

    def _threads(self):
        """Return a context of one thread for the default model: several mostly wait."""
        return one_thread if self.estimator is None else nullcontext

    def _of_model(self, model, table, method):
        """Call a method of a fitted model."""
        with self._threads()():
            return getattr(model, method)(table)

    def _fit_models(self, imputer, rng, tables, y, arguments):
        """Fit a clone of the model to each of some tables of the same rows."""
        model, weights = self._part("estimator"), arguments.get("sample_weight")
        if self.estimator is None and weights is not None:
            rows = np.flatnonzero(weights)  # others would be borders of bins
            tables = [_safe_indexing(table, rows) for table in tables]
            y, arguments = y[rows], arguments | {"sample_weight": weights[rows]}
        columns = self._columns_of(imputer)
        if columns is not None:
            model.set_params(categorical_features=_are_nominal(columns))
        models = [_reseed(clone(model), rng) for _ in tables]
        threads = self._threads()
        return Parallel(n_jobs=self.n_jobs)(
            delayed(_fit)(threads, model, table, y, arguments)
            for model, table in zip(models, tables, strict=True)
        )

    def _predictions(self, X, method):
        """Yield predictions (n_draws, n, ...) from draws of chunks of new rows."""
        check_is_fitted(self)
        self._check_parameters()
        validation.needs_memory(type(self), X, reset=False)
        n_draws, rng = int(self.n_draws), np.random.default_rng(self._fitted.model.seed)
        size = max(1, _CHUNK // (n_draws * self.n_features_in_))
        n_rows = _num_samples(X)
        for first in range(0, max(n_rows, 1), size):
            rows = np.arange(first, min(first + size, n_rows))
            part = X if n_rows <= size else _safe_indexing(X, rows)
            tables = self._draw_tables(self.imputer_, part, n_draws, rng)
            models = cycle(self.estimators_)
            yield np.array(
                [self._of_model(next(models), table, method) for table in tables]
            )


def requesting_weights(default):
    """Let a default imputer or model request weights, if requests are needed."""
    if metadata_routing._routing_enabled():
        default.set_fit_request(sample_weight=True)
    return default


def _groups_of(imputer, X):
    """Return the groups of rows that an imputer has; (n_samples,), or None."""
    columns = getattr(imputer, "_schema", Schema(0)).group_columns
    return next((imputer._checked(X)[:, j] for j in columns), None)


def _seed(rng):
    return int(rng.integers(_MOST))


def _reseed(estimator, rng):
    """Set each `random_state` of an estimator and of those within it."""
    names = [
        name
        # sorted, so that each parameter gets the same seed in every run
        for name in sorted(estimator.get_params())
        if name == "random_state" or name.endswith("__random_state")
    ]
    if names:
        estimator.set_params(**{name: _seed(rng) for name in names})
    return estimator


def _numbers(table, columns):
    """Convert a completed table: levels that are no numbers become codes."""
    cells = encode(table, columns)
    for place, column in enumerate(columns):
        if column.levels is not None and column.is_number and column.kind != "nominal":
            levels = np.array(column.levels, dtype=np.float64)
            cells[:, place] = levels[cells[:, place].astype(int)]
    return cells


def _are_nominal(columns):
    """Say which columns of the default model are categories without an order."""
    used = [column for column in columns if column.kind != PASSED]
    return [
        column.kind == "nominal" and len(column.levels) <= _MOST_LEVELS
        for column in used
    ]


def _fit(threads, model, table, y, arguments):
    with threads():
        return model.fit(table, y, **arguments)


_CONSTRAINTS = {
    "imputer": [None, HasMethods(["fit", "sample"])],
    "estimator": [None, HasMethods("fit")],
    "n_estimators": [validation.integer_from(1)],
    "n_draws": [validation.integer_from(1)],
    "n_jobs": validation.N_JOBS,
    "random_state": validation.RANDOM_STATE,
}


class MultipleImputationClassifier(ClassifierMixin, MultipleImputation):
    """Classify by models of several completed tables.

    An imputer completes the training rows by several draws of their missing cells, and
    a clone of the classifier is fitted to each completed table.  The missing cells of
    new rows are drawn, too, and the probabilities that the models predict are averaged
    over the draws.

    Parameters
    ----------
    imputer : imputer with `sample`, or None, default=None
        None is ``GaussianImputer()``.  A ``FrozenEstimator`` of a fitted imputer is not
        fitted again, and keeps its own ``set_output``.
    estimator : classifier with `predict_proba`, or None, default=None
        None is ``HistGradientBoostingClassifier()``: trees gain most from draws.
    n_estimators : int, default=10
        Number of completed tables of the training rows, and of models.
    n_draws : int, default=50
        Number of draws of new rows.  Each model predicts from draws of its own, an
        equal share of them.
    calibration_cv : int, cross-validation generator, iterable or None, default=5
        Folds that calibrate the probabilities of tables with missing cells:
        `n_estimators` models are fitted without each of them, so that `fit` with five
        folds takes six times as long.  An integer is the number of folds, of rows in
        random order, or of whole groups if the imputer has `groups`; it is at most the
        number of rows of the rarest class.  None: no calibration.  A `class_weight` of
        the classifier, also within a pipeline or a search, weighs the rows of the
        calibration, too: probabilities then are those of a table with these weights,
        whether or not cells are missing.
    n_jobs : int or None, default=None
        Number of processes that fit models, through joblib.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the draws; replaces each `random_state` of `imputer` and `estimator`.

    Attributes
    ----------
    imputer_ : imputer
        The fitted imputer.
    estimators_ : list of n_estimators classifiers
        The fitted models.
    classes_ : ndarray of shape (n_classes,)
        The classes.
    slope_ : float
        By how much the calibration multiplies log-odds; 1 without it.
    intercepts_ : ndarray of shape (n_classes,)
        What the calibration then adds to the logarithms of probabilities; 0 without it.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    See Also
    --------
    MultipleImputationRegressor : For numeric targets.
    skvnce.pooling.fit_each : For coefficients.

    Notes
    -----
    The imputer learns from X alone, and training rows and new rows are completed in the
    same way.  Coefficients are therefore too small, and for inference the imputer must
    see the outcome, too: use :func:`skvnce.pooling.fit_each`.  Trees predict better
    from draws than from one filled table; linear models do not (see the user guide).
    Lines on progress and the check of a misfit are those of `imputer`, by its `verbose`
    and `on_misfit`.

    Because coefficients are too small, and because averages over draws reduce the
    effect of missing cells once more, averages of probabilities are too cautious.
    `predict_proba` therefore changes log-odds by one slope and by an intercept for each
    class, which predictions of training rows by models that have not seen them
    determine.  They do so on average over rows, not for each pattern of missing cells.
    Complete tables, a single model and classes of one row are not calibrated.

    The models get what the imputer returns: arrays, or data frames with the data types
    of X if X is a data frame.  The default `estimator` gets numbers: codes of
    categories and strings, and microseconds of dates, without the columns that the
    imputer passes through (identifiers, free text).  Another one gets those, with their
    missing cells, and has to leave them out or to encode them.  The default computes
    in one thread, and `n_jobs` fits several models at once.

    Predictions of the same table are equal when they are repeated; those of a row
    depend on the other rows of the table through the random numbers of the draws.

    References
    ----------
    Rubin (1987), Multiple imputation for nonresponse in surveys; Le Morvan et al.
    (2021), What's a good imputation to predict with missing values?

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvnce import GaussianImputer, MultipleImputationClassifier
    >>> from skvnce.missingness import hide, mcar
    >>> X, y = load_iris(return_X_y=True)
    >>> X = hide(X, mcar(X, 0.3, random_state=0))
    >>> model = MultipleImputationClassifier(
    ...     GaussianImputer(), LogisticRegression(max_iter=1000), random_state=0
    ... ).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.8)
    True
    """

    _parameter_constraints = _CONSTRAINTS | {"calibration_cv": ["cv_object"]}
    _parts = {
        "imputer": lambda _: requesting_weights(GaussianImputer()),
        "estimator": lambda _: requesting_weights(HistGradientBoostingClassifier()),
    }

    def __init__(
        self,
        imputer: Any = None,
        estimator: Any = None,
        *,
        n_estimators: int = 10,
        n_draws: int = 50,
        calibration_cv: Any = 5,
        n_jobs: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.imputer = imputer
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.n_draws = n_draws
        self.calibration_cv = calibration_cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    def predict_proba(self, X: TableLike) -> NDArray[np.float64]:
        """Predict probabilities of the classes, averaged over draws of missing cells.

        They are calibrated, see `calibration_cv`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        parts = self._predictions(X, "predict_proba")
        averages = np.concatenate([part.mean(0) for part in parts])
        calibration = out_of_fold.Recalibration(self.slope_, self.intercepts_)
        return calibration.apply(averages)

    def predict(self, X: TableLike) -> NDArray[Any]:
        """Predict the most probable classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        chosen = self.predict_proba(X).argmax(1)
        return self.classes_[chosen]

    def score(
        self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Compute the share of rows whose class is predicted.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : array-like of shape (n_samples,)
            True classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of rows.

        Returns
        -------
        float
            From 0 to 1.
        """
        return super().score(X, y, sample_weight)

    def _check_parameters(self):
        super()._check_parameters()
        model = self._part("estimator")
        if not hasattr(model, "predict_proba"):
            name = type(model).__name__
            raise ValueError(
                "estimator must be a classifier with predict_proba, which "
                f"{name} has not. Wrap it: CalibratedClassifierCV({name}())."
            )

    def _target(self, y):
        y = super()._target(y)
        check_classification_targets(y)
        return y

    def _of_target(self, models, fit_models, rows, rng):
        predict = partial(self._of_model, method="predict_proba")
        slope, intercepts = out_of_fold.recalibrate(
            self.calibration_cv, models, rows, rng, fit_models, predict
        )
        report = {"classes_": models[0].classes_, "slope_": slope}
        return report | {"intercepts_": intercepts}, None


class MultipleImputationRegressor(RegressorMixin, MultipleImputation):
    """Predict numbers by models of several completed tables, with intervals.

    An imputer completes the training rows by several draws of their missing cells, and
    a clone of the regressor is fitted to each completed table.  The missing cells of
    new rows are drawn, too, and the predictions of the models are averaged over the
    draws.

    Lines on progress and the check of a misfit are those of `imputer`, by its `verbose`
    and `on_misfit`.

    Parameters
    ----------
    imputer : estimator or None, default=None
        As in `MultipleImputationClassifier`.
    estimator : regressor, or None, default=None
        None is ``HistGradientBoostingRegressor(min_samples_leaf=1,
        early_stopping=False)``: trees gain most from draws, and with leaves of single
        rows and a fixed number of rounds a weight of 2 is the same as two rows.
    n_estimators : int, default=10
        Number of completed tables, and of models.
    n_draws : int, default=50
        Number of draws of new rows.
    cv : int, cross-validation generator, iterable or None, default=None
        Folds that `interval` needs: `n_estimators` models are fitted without each of
        them, so that `fit` with five folds takes six times as long.  An integer is the
        number of folds, of rows in random order, or of whole groups if the imputer has
        `groups`.  None: no `interval`.
    n_jobs : int or None, default=None
        As in `MultipleImputationClassifier`.
    random_state : int, RandomState instance, Generator or None, default=None
        As in `MultipleImputationClassifier`.

    Attributes
    ----------
    imputer_, estimators_, n_features_in_, feature_names_in_
        As in `MultipleImputationClassifier`.
    noise_variance_ : float
        Variance of the target that the models do not predict from completed rows, in
        squared units of y; only with `cv`.

    See Also
    --------
    MultipleImputationClassifier : For classes.
    skvnce.pooling.fit_each : For coefficients.

    Notes
    -----
    The notes of `MultipleImputationClassifier` on what the imputer and the models get,
    and on random numbers, hold here, too.  Coefficients are too small for inference:
    use :func:`skvnce.pooling.fit_each`.

    References
    ----------
    Rubin (1987), Multiple imputation for nonresponse in surveys; Le Morvan et al.
    (2021), What's a good imputation to predict with missing values?; Lei et al. (2018),
    Distribution-free predictive inference for regression.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import RidgeCV
    >>> from skvnce import GaussianImputer, MultipleImputationRegressor
    >>> from skvnce.missingness import hide, mcar
    >>> X, y = load_diabetes(return_X_y=True)
    >>> X = hide(X, mcar(X, 0.3, random_state=0))
    >>> model = MultipleImputationRegressor(
    ...     GaussianImputer(), RidgeCV(), cv=5, random_state=0
    ... ).fit(X[::2], y[::2])
    >>> lower, upper = model.interval(X[1::2], level=0.9)
    >>> float(((lower <= y[1::2]) & (y[1::2] <= upper)).mean().round(1))
    0.9
    """

    _parameter_constraints = _CONSTRAINTS | {"cv": ["cv_object"]}
    _parts = {
        "imputer": lambda _: requesting_weights(GaussianImputer()),
        # leaves count rows without their weights, and early stopping splits rows at
        # random
        "estimator": lambda _: requesting_weights(
            HistGradientBoostingRegressor(min_samples_leaf=1, early_stopping=False)
        ),
    }

    def __init__(
        self,
        imputer: Any = None,
        estimator: Any = None,
        *,
        n_estimators: int = 10,
        n_draws: int = 50,
        cv: Any = None,
        n_jobs: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.imputer = imputer
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.n_draws = n_draws
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    def predict(self, X: TableLike) -> NDArray[np.float64]:
        """Predict the target, averaged over draws of missing cells.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        parts = self._predictions(X, "predict")
        return np.concatenate([part.mean(0) for part in parts])

    def interval(self, X: TableLike, level: float = 0.9) -> NDArray[np.float64]:
        """Compute intervals that contain the target with a probability.

        They are longer for rows whose missing cells matter: the standard deviation of
        the prediction is that of residuals and of predictions from different draws.
        Its multiples are quantiles of the residuals of training rows, which were
        predicted by models that had not seen them.  If new rows are like the training
        rows, the intervals contain about the share `level` of their targets, whether
        or not the models are right.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        level : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        lower, upper : ndarray of shape (n_samples,)

        Raises
        ------
        ValueError
            If `cv` was None at `fit`, if `level` is not between 0 and 1, or if it needs
            more training rows.
        """
        check_share(level, "level")
        parts = list(self._predictions(X, "predict"))
        residuals = self._fitted.model.residuals
        if residuals is None:
            raise ValueError(
                "interval needs residuals of cross-validation: fit with cv=5."
            )
        return residuals.interval(np.concatenate(parts, axis=1), level)

    def score(
        self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Compute the coefficient of determination of the predictions, R².

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : array-like of shape (n_samples,)
            True targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of rows.

        Returns
        -------
        float
            At most 1.
        """
        return super().score(X, y, sample_weight)

    def _check_parameters(self):
        super()._check_parameters()
        model = self._part("estimator")
        if is_classifier(model):
            raise ValueError(
                "estimator must be a regressor, got the classifier "
                f"{type(model).__name__}: use MultipleImputationClassifier."
            )

    def _target(self, y):
        return _check_y(super()._target(y), y_numeric=True, estimator=self)

    def _of_target(self, models, fit_models, rows, rng):
        if self.cv is None:
            return {}, None
        predict = partial(self._of_model, method="predict")
        residuals = out_of_fold.fold_residuals(self.cv, rows, rng, fit_models, predict)
        return {"noise_variance_": residuals.noise_variance}, residuals
