"""Predictions of training rows by models that were fitted without them."""

from math import ceil
from numbers import Integral
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
)
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, NuSVC
from sklearn.utils import _safe_indexing, compute_sample_weight

from skvnce._tables.cells import is_frame


class TrainingRows(NamedTuple):
    """The rows of a fit."""

    tables: list  # of (n_samples, n_features_out): draws of the missing cells
    y: np.ndarray  # (n_samples,)
    fit_params: dict  # parameters of `fit` of the model: weights of the rows
    groups: np.ndarray | None  # (n_samples,): their rows stay in one fold


def splits(cv, y, rng, *, by_class=False, groups=None):
    """Yield folds, (train, test); a number is one of folds, in random order.

    Folds have equal shares of classes if `by_class`, and whole groups.
    """
    if isinstance(cv, Integral):
        kinds, n = (KFold, StratifiedKFold), int(cv)
        if groups is not None:
            kinds = GroupKFold, StratifiedGroupKFold
            n = min(n, len(np.unique(groups)))
        cv = kinds[by_class](n, shuffle=True, random_state=int(rng.integers(2**31 - 1)))
    # splitters read no cells, only the number of rows
    cells = np.empty((len(y), 1))
    yield from check_cv(cv, y, classifier=by_class).split(cells, y, groups)


def fold_predictions(folds, rows, fit, predict):
    """Predict each fold of `TrainingRows` by models that are fitted without it.

    Returns predictions (n_tables, n_predicted, ...), and their rows in order.
    """
    by_row = {}
    for train, test in folds:
        tables = [_safe_indexing(table, train) for table in rows.tables]
        arguments = {name: cells[train] for name, cells in rows.fit_params.items()}
        models = fit(tables, rows.y[train], arguments)
        held_out = [_safe_indexing(table, test) for table in rows.tables]
        predicted = np.array(list(map(predict, models, held_out)))
        # a row may be in several folds of the user's splitter
        by_row |= zip(test.tolist(), np.moveaxis(predicted, 1, 0), strict=True)
    places = sorted(by_row)
    return np.stack([by_row[row] for row in places], 1), np.array(places, dtype=int)


# ----------------------------------------
# Log-odds of classes that fit predictions of rows which the models have not seen.
#
# An imputer that does not see the target draws missing cells that have no more to do
# with it than their prediction has.  What a model learns from such cells is too
# small, and is right for a single draw, as in regression with errors in the
# covariates.  The average over draws reduces the effect of the missing cells once
# more.  So averages :math:`p_c` over draws are too cautious, the more so, the more is
# missing; models that overfit are too bold.  Both are mended by
#
# .. math:: \tilde p_c \propto p_c^{\beta} e^{\alpha_c}, \qquad (1)
#
# whose parameters maximise the likelihood of rows that were predicted by models
# fitted without them (Platt scaling of several classes), times a normal prior around
# no change. Rows have the weights that the models give them, those of classes
# (`class_weight`) included: probabilities are those of the table with these weights.
#
# Platt (1999), Probabilistic outputs for support vector machines; Guo, Pleiss, Sun
# and Weinberger (2017), On calibration of modern neural networks; Carroll, Ruppert,
# Stefanski and Crainiceanu (2006), Measurement error in nonlinear models, chapter 3.

_LEAST = 1e-6  # smallest probability: trees predict 0
_SPREAD = 0.5, 1.0  # standard deviations of the prior of slope and intercepts
_UNWEIGHTED = (CalibratedClassifierCV, NuSVC, SVC)  # calibrated without class_weight
# fitted models come before the one that was passed
_INSIDE = "best_estimator_", "final_estimator_", "estimator_", "estimator"


class Recalibration(NamedTuple):
    """The parameters of eq. (1)."""

    slope: float
    intercepts: np.ndarray  # (n_classes,)

    @classmethod
    def none(cls, n_classes):
        """Leave the probabilities as they are."""
        return cls(1.0, np.zeros(n_classes))

    @classmethod
    def of(cls, probabilities, codes, weights):
        """Maximise the posterior, by rows that the models have not seen."""
        logs, count = _logs(probabilities), probabilities.shape[1]
        right = np.eye(count)[codes]
        centre = np.r_[1.0, np.zeros(count)]
        spread = np.r_[_SPREAD[0], np.full(count, _SPREAD[1])]

        def loss(parameters):
            scores = parameters[0] * logs + parameters[1:]
            excess = weights[:, None] * (softmax(scores, axis=1) - right)
            gap = (parameters - centre) / spread
            value = -(weights @ (log_softmax(scores, axis=1) * right).sum(1))
            slope = np.r_[(excess * logs).sum(), excess.sum(0)] + gap / spread
            return value + gap @ gap / 2, slope

        limits = [(0, None)] + [(None, None)] * count  # keeps the order of rows
        best = minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=limits).x
        return cls(float(best[0]), best[1:])

    def apply(self, probabilities):
        """Change probabilities (n, n_classes) by eq. (1)."""
        if self.slope == 1 and not self.intercepts.any():
            return probabilities
        return softmax(self.slope * _logs(probabilities) + self.intercepts, axis=1)


def recalibrate(cv, models, rows, rng, fit, predict):
    """Learn the `Recalibration` from folds, by models that are fitted without them."""
    classes = models[0].classes_  # without those of rows that have no weight
    codes = np.minimum(np.searchsorted(classes, rows.y), len(classes) - 1)
    has_class = classes[codes] == rows.y
    counts = np.bincount(codes[has_class], minlength=len(classes))
    alike = all(_are_equal(rows.tables[0], table) for table in rows.tables[1:])
    if cv is None or alike or counts.min() < 2 or len(classes) < 2:
        return Recalibration.none(len(classes))
    # each fold needs a row of each class
    cv = min(cv, counts.min()) if isinstance(cv, Integral) else cv
    folds = splits(cv, codes, rng, by_class=True, groups=rows.groups)

    def of_classes(model, table):
        # 0 of classes that the model has not seen
        probabilities = np.zeros((len(table), len(classes)))
        places = np.searchsorted(classes, model.classes_)
        probabilities[:, places] = predict(model, table)
        return probabilities

    predictions, places = fold_predictions(folds, rows, fit, of_classes)
    weights = rows.fit_params.get("sample_weight", np.ones(len(codes)))
    weights = weights * np.mean([class_weights(model, rows.y) for model in models], 0)
    weights = np.where(has_class, weights, 0)
    return Recalibration.of(predictions.mean(0), codes[places], weights[places])


def class_weights(model, y):  # (n_samples,): of mean 1
    """Compute weights of mean 1 that a classifier gives to rows by their classes."""
    class_weight = getattr(_weighing(model), "class_weight", None)
    # of random forests; compute_sample_weight does not know it
    if class_weight == "balanced_subsample":
        class_weight = "balanced"
    weights = compute_sample_weight(class_weight, y)
    # a mean of 1, so that the prior counts as much as without weights
    return weights / weights.mean()


def _weighing(model):
    """Find the classifier inside others whose weights of classes show in the end."""
    if isinstance(model, _UNWEIGHTED):
        return None
    if isinstance(model, Pipeline):
        return _weighing(model[-1])
    inside = [name for name in _INSIDE if hasattr(model, name)]
    if hasattr(model, "class_weight") or not inside:
        return model
    return _weighing(getattr(model, inside[0]))


def _are_equal(first, second):
    """Compare two draws of a table; NaN stay where nothing is imputed."""
    if is_frame(first):
        return first.equals(second)
    is_float = np.asarray(first).dtype.kind == "f"
    return np.array_equal(first, second, equal_nan=is_float)


def _logs(probabilities):
    return np.log(np.maximum(probabilities, _LEAST))


# ----------------------------------------
# Residuals of cross-validation, and the prediction intervals that follow from them.
#
# Let :math:`p_1, \dots, p_n` be the predictions of a row from n draws of its missing
# cells, :math:`\bar p` their mean and b their variance.  The target deviates from
# :math:`\bar p` by noise and because the missing cells are unknown,
#
# .. math:: s^2 = \sigma^2 + (1 + 1/n) b. \qquad (1)
#
# :math:`\sigma^2` is the mean of squared residuals minus the second term, and
# intervals are
#
# .. math:: \bar p + s\, r_{(k)} \le y \le \bar p + s\, r_{(m + 1 - k)}, \qquad (2)
#
# with the k-th smallest of the residuals :math:`r = (y - \bar p) / s` of m rows, each
# predicted by models that were fitted without them.
#
# Lei, G'Sell, Rinaldo, Tibshirani and Wasserman (2018), Distribution-free predictive
# inference for regression; Barber, Candes, Ramdas and Tibshirani (2021), Predictive
# inference with the jackknife+.

_LEAST_NOISE = 0.01  # share of the noise in the squared residuals
_ROUNDING = 1e-9  # of sums of weights


class Residuals(NamedTuple):
    """Standardised residuals of training rows."""

    noise_variance: float  # of eq. (1)
    residuals: np.ndarray  # (m,): increasing
    weights: np.ndarray  # (m,): positive, with mean one

    @classmethod
    def of(cls, predictions, y, weights):
        """Standardise the residuals of rows; predictions (n_draws, n)."""
        positive = weights > 0
        predictions, y = predictions[:, positive], y[positive]
        weights = weights[positive]
        gap, unknown = y - predictions.mean(0), _between(predictions)
        squares = np.average(gap**2, weights=weights)
        noise = squares - np.average(unknown, weights=weights)
        # a difference of two estimates may be negative
        noise = float(max(noise, _LEAST_NOISE * squares))
        scale = np.sqrt(noise + unknown)
        # exact predictions have no scale
        residuals = np.divide(gap, scale, out=np.zeros_like(gap), where=scale > 0)
        order = residuals.argsort()
        # a mean of 1, because eq. (2) counts rows
        return cls(noise, residuals[order], weights[order] / weights.mean())

    def interval(self, predictions, level):
        """Compute the intervals (2) of rows; predictions (n_draws, n)."""
        outside = (1 - level) / 2
        room = outside * (self.weights.sum() + 1) + _ROUNDING
        low = np.searchsorted(self.weights.cumsum(), room, "right")
        high = np.searchsorted(self.weights[::-1].cumsum(), room, "right")
        if not low or not high:
            raise ValueError(
                f"level={level!r} needs at least {ceil(1 / outside - _ROUNDING) - 1} "
                f"training rows, got {len(self.residuals)}."
            )
        scale = np.sqrt(self.noise_variance + _between(predictions))
        ends = self.residuals[low - 1], self.residuals[-high]
        return tuple(predictions.mean(0) + scale * end for end in ends)


def fold_residuals(cv, rows, rng, fit, predict):  # Residuals
    """Standardise residuals of folds; `fit`, `predict`: see `fold_predictions`."""
    folds = splits(cv, rows.y, rng, groups=rows.groups)
    predictions, places = fold_predictions(folds, rows, fit, predict)
    weights = rows.fit_params.get("sample_weight", np.ones(len(rows.y)))
    return Residuals.of(predictions, rows.y[places].astype(np.float64), weights[places])


def _between(predictions):
    """Compute the second term of eq. (1); 0 for one draw."""
    n = len(predictions)
    if n == 1:
        return np.zeros(predictions.shape[1])
    return (1 + 1 / n) * predictions.var(0, ddof=1)
