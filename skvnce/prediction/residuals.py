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

Lei, G'Sell, Rinaldo, Tibshirani and Wasserman (2018), Distribution-free predictive
inference for regression; Barber, Candes, Ramdas and Tibshirani (2021), Predictive
inference with the jackknife+.
"""

from math import ceil
from typing import NamedTuple

import numpy as np

from skvnce.prediction.folds import fold_predictions, splits

_LEAST = 0.01  # share of the noise in the squared residuals
_ROUNDING = 1e-9  # of sums of weights


class Residuals(NamedTuple):
    """Standardised residuals of training rows."""

    noise_variance: float  # of eq. (1)
    residuals: np.ndarray  # (m,): increasing
    weights: np.ndarray  # (m,): positive, with mean one

    @classmethod
    def of(cls, predictions, y, weights):
        """Standardise the residuals of rows.

        `predictions` (n_draws, n), `y` (n,), `weights` (n,).
        """
        some = weights > 0
        predictions, y, weights = predictions[:, some], y[some], weights[some]
        gap, unknown = y - predictions.mean(0), _between(predictions)
        squares = np.average(gap**2, weights=weights)
        noise = squares - np.average(unknown, weights=weights)
        # a difference of two estimates may be negative
        noise = float(max(noise, _LEAST * squares))
        scale = np.sqrt(noise + unknown)
        # exact predictions have no scale
        residuals = np.divide(gap, scale, out=np.zeros_like(gap), where=scale > 0)
        order = residuals.argsort()
        # a mean of 1, because eq. (2) counts rows
        return cls(noise, residuals[order], weights[order] / weights.mean())

    def interval(self, predictions, level):
        """Compute the intervals (2) of rows; two arrays of shape (n,).

        `predictions` (n_draws, n).
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


def fold_residuals(regressor, tables, y, given, rng, groups=None):  # Residuals
    """Predict each fold of the training rows by models that are fitted without it.

    `regressor` (MultipleImputationRegressor), `y` (n_samples,), `rng`
    (numpy.random.Generator).  `tables` (n_samples, n_features_out): draws of the
    training rows.  `given`: parameters of `fit` of the model: weights of the rows.
    `groups` (n_samples,): see `splits`.
    """
    found, rows = fold_predictions(
        splits(regressor.cv, y, rng, groups=groups),
        tables,
        y,
        given,
        fit=lambda *learned: regressor._fitted_models(*learned, rng),
        predict=lambda model, table: regressor._of_model(model, "predict", table),
    )
    weights = given.get("sample_weight", np.ones(len(y)))
    return Residuals.of(found, y[rows].astype(np.float64), weights[rows])


def _between(predictions):
    """Compute the second term of eq. (1); 0 for one draw."""
    n = len(predictions)
    if n == 1:
        return np.zeros(predictions.shape[1])
    return (1 + 1 / n) * predictions.var(0, ddof=1)
