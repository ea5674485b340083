"""A classifier and a regressor that learn from several draws of the missing cells."""

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y

from skvnce._quantiles import check_share
from skvnce.estimators._prediction import MultipleImputation, asking
from skvnce.estimators._validation import N_JOBS, RANDOM_STATE, integer_from
from skvnce.prediction.recalibration import Recalibration, recalibrated
from skvnce.prediction.residuals import Residuals, fold_residuals

_CONSTRAINTS = {
    "imputer": [None, HasMethods(["fit", "sample"])],
    "estimator": [None, HasMethods("fit")],
    "n_estimators": [integer_from(1)],
    "n_draws": [integer_from(1)],
    "n_jobs": N_JOBS,
    "random_state": RANDOM_STATE,
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

    def __init__(
        self,
        imputer=None,
        estimator=None,
        *,
        n_estimators=10,
        n_draws=50,
        calibration_cv=5,
        n_jobs=None,
        random_state=None,
    ):
        self.imputer = imputer
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.n_draws = n_draws
        self.calibration_cv = calibration_cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    def predict_proba(self, X):
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
        found = np.concatenate([found.mean(0) for found in parts])
        return Recalibration(self.slope_, self.intercepts_).applied(found)

    def predict(self, X):
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

    def score(self, X, y, sample_weight=None):
        """Compute the share of rows whose class is predicted.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
            From 0 to 1.
        """
        return super().score(X, y, sample_weight)

    def _check_parameters(self):
        super()._check_parameters()
        if not hasattr(self._model(), "predict_proba"):
            name = type(self._model()).__name__
            raise ValueError(
                "estimator must be a classifier with predict_proba, which "
                f"{name} has not. Wrap it: CalibratedClassifierCV({name}())."
            )

    def _model(self):
        if self.estimator is None:
            return asking(HistGradientBoostingClassifier())
        return self.estimator

    def _target(self, y):
        y = super()._target(y)
        check_classification_targets(y)
        return y

    def _fit_target(self, tables, y, of_model, rng, groups):
        self.classes_ = self.estimators_[0].classes_
        found = recalibrated(self, tables, y, of_model, rng, groups)
        self.slope_, self.intercepts_ = found


class MultipleImputationRegressor(RegressorMixin, MultipleImputation):
    """Predict numbers by models of several completed tables, with intervals.

    An imputer completes the training rows by several draws of their missing cells, and
    a clone of the regressor is fitted to each completed table.  The missing cells of
    new rows are drawn, too, and the predictions of the models are averaged over the
    draws.

    Parameters
    ----------
    imputer : imputer with `sample`, or None, default=None
        None is ``GaussianImputer()``.  A ``FrozenEstimator`` of a fitted imputer is not
        fitted again, and keeps its own ``set_output``.
    estimator : regressor, or None, default=None
        None is ``HistGradientBoostingRegressor(min_samples_leaf=1,
        early_stopping=False)``: trees gain most from draws, and with leaves of single
        rows and a fixed number of rounds a weight of 2 is the same as two rows.
    n_estimators : int, default=10
        Number of completed tables of the training rows, and of models.
    n_draws : int, default=50
        Number of draws of new rows.  Each model predicts from draws of its own, an
        equal share of them.
    cv : int, cross-validation generator, iterable or None, default=None
        Folds that `interval` needs: `n_estimators` models are fitted without each of
        them, so that `fit` with five folds takes six times as long.  An integer is the
        number of folds, of rows in random order, or of whole groups if the imputer has
        `groups`.  None: no `interval`.
    n_jobs : int or None, default=None
        Number of processes that fit models, through joblib.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the draws; replaces each `random_state` of `imputer` and `estimator`.

    Attributes
    ----------
    imputer_ : imputer
        The fitted imputer.
    estimators_ : list of n_estimators regressors
        The fitted models.
    noise_variance_ : float
        Variance of the target that the models do not predict from completed rows, in
        squared units of y; only with `cv`.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

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

    def __init__(
        self,
        imputer=None,
        estimator=None,
        *,
        n_estimators=10,
        n_draws=50,
        cv=None,
        n_jobs=None,
        random_state=None,
    ):
        self.imputer = imputer
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.n_draws = n_draws
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    def predict(self, X):
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
        return np.concatenate([found.mean(0) for found in parts])

    def interval(self, X, level=0.9):
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
        if self._residuals is None:
            raise ValueError(
                "interval needs residuals of cross-validation: fit with cv=5."
            )
        found = np.concatenate(parts, axis=1)
        return Residuals(*self._residuals).interval(found, level)

    def score(self, X, y, sample_weight=None):
        """Compute the coefficient of determination of the predictions, R².

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
            At most 1.
        """
        return super().score(X, y, sample_weight)

    def _model(self):
        if self.estimator is None:
            # leaves count rows without their weights, and early stopping splits rows at
            # random
            model = HistGradientBoostingRegressor(
                min_samples_leaf=1, early_stopping=False
            )
            return asking(model)
        return self.estimator

    def _check_parameters(self):
        super()._check_parameters()
        if is_classifier(self._model()):
            raise ValueError(
                "estimator must be a regressor, got the classifier "
                f"{type(self._model()).__name__}: use MultipleImputationClassifier."
            )

    def _target(self, y):
        return _check_y(super()._target(y), y_numeric=True, estimator=self)

    def _fit_target(self, tables, y, of_model, rng, groups):
        self._residuals = None
        vars(self).pop("noise_variance_", None)
        if self.cv is not None:
            found = fold_residuals(self, tables, y, of_model, rng, groups)
            # a plain tuple, which skops can store
            self._residuals = tuple(found)
            self.noise_variance_ = found.noise_variance
