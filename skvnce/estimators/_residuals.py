r"""Residuals of cross-validation, and the prediction intervals that follow from them.

Let :math:`p_1, \dots, p_n` be the predictions of a row from n draws of its missing
cells, :math:`\bar p` their mean and b their variance.  The target deviates from
:math:`\bar p` by noise and because the missing cells are unknown,

.. math:: s^2 = \sigma^2 + (1 + 1/n) b. \qquad (1)

:math:`\sigma^2` is the mean of squared residuals minus the second term, and intervals
are

.. math:: \bar p + s\, r_{(k)} \le y \le \bar p + s\, r_{(m + 1 - k)}, \qquad (2)

with the k-th smallest of the residuals :math:`r = (y - \bar p) / s` of m rows, each
predicted by models that were fitted without them.

References
----------
Lei, G'Sell, Rinaldo, Tibshirani and Wasserman (2018), Distribution-free predictive
inference for regression; Barber, Candes, Ramdas and Tibshirani (2021), Predictive
inference with the jackknife+.
"""

from math import ceil
from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import _safe_indexing

_LEAST = 0.01  # share of the noise in the squared residuals
_ROUNDING = 1e-9  # of sums of weights


class Residuals(NamedTuple):
    """Standardised residuals of training rows.

    Attributes
    ----------
    noise_variance : float
        Of eq. (1).
    residuals : ndarray of shape (m,)
        Increasing.
    weights : ndarray of shape (m,)
        Positive, with mean one.
    """

    noise_variance: float
    residuals: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, predictions, y, weights):
        """Standardise the residuals of rows.

        Parameters
        ----------
        predictions : ndarray of shape (n_draws, n)
        y : ndarray of shape (n,)
        weights : ndarray of shape (n,)
        """
        some = weights > 0
        predictions, y, weights = predictions[:, some], y[some], weights[some]
        gap, unknown = y - predictions.mean(0), _between(predictions)
        squares = np.average(gap**2, weights=weights)
        noise = squares - np.average(unknown, weights=weights)
        noise = float(max(noise, _LEAST * squares))
        scale = np.sqrt(noise + unknown)
        residuals = np.divide(gap, scale, out=np.zeros_like(gap), where=scale > 0)
        order = residuals.argsort()
        return cls(noise, residuals[order], weights[order] / weights.mean())

    def interval(self, predictions, level):
        """Compute the intervals (2) of rows; two arrays of shape (n,).

        Parameters
        ----------
        predictions : ndarray of shape (n_draws, n)
        level : float
        """
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


def fold_residuals(regressor, tables, y, given, rng):
    """Predict each fold of the training rows by models that are fitted without it.

    Parameters
    ----------
    regressor : MultipleImputationRegressor
    tables : list of n_estimators tables of shape (n_samples, n_features_out)
        Draws of the training rows.
    y : ndarray of shape (n_samples,)
    given : dict
        Parameters of `fit` of the model: weights of the rows.
    rng : numpy.random.Generator

    Returns
    -------
    Residuals
    """
    found = np.full((len(tables), len(y)), np.nan)
    for train, test in _splits(regressor.cv, y, rng):
        learned = [_safe_indexing(table, train) for table in tables]
        some = {name: cells[train] for name, cells in given.items()}
        models = regressor._fitted(learned, y[train], some, rng)
        for k, (model, table) in enumerate(zip(models, tables, strict=True)):
            found[k, test] = model.predict(_safe_indexing(table, test))
    weights = given.get("sample_weight", np.ones(len(y)))
    seen = ~np.isnan(found[0])
    return Residuals.of(found[:, seen], y[seen].astype(np.float64), weights[seen])


def _splits(cv, y, rng):
    if isinstance(cv, Integral):
        cv = KFold(int(cv), shuffle=True, random_state=int(rng.integers(2**31 - 1)))
    return check_cv(cv).split(np.empty((len(y), 1)), y)


def _between(predictions):
    """Compute the second term of eq. (1); 0 for one draw."""
    n = len(predictions)
    if n == 1:
        return np.zeros(predictions.shape[1])
    return (1 + 1 / n) * predictions.var(0, ddof=1)
