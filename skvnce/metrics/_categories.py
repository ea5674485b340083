"""Scores of imputed categories and of their probabilities."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skvnce.metrics._forecasts import (
    category_places,
    cells_of,
    check_alike,
    check_shape,
    forecasts,
    hidden_cells,
    observed_values,
)


def false_classification_rate(
    X_true: ArrayLike,
    X_imputed: ArrayLike,
    hidden: ArrayLike,
) -> float:
    """Share of the hidden cells of categories whose imputed level is false (PFC).

    The proportion of falsely classified entries of Stekhoven and Buehlmann (2012).

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table; only its hidden cells are used.
    X_imputed : array-like of shape (n_samples, n_features)
        The imputed table, with levels as in ``X_true``; only hidden cells are used.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to score. Scored are columns of categories, text and booleans
        of a data frame, or of text of an array of objects.

    Returns
    -------
    rate : float
        The share, pooled over all hidden cells of these columns; 0 is best.

    Examples
    --------
    >>> import pandas as pd
    >>> from skvnce.metrics import false_classification_rate
    >>> true = pd.DataFrame({"port": ["S", "C", "S"], "fare": [7.0, 71.0, 8.0]})
    >>> imputed = pd.DataFrame({"port": ["S", "S", "S"], "fare": [9.0, 9.0, 9.0]})
    >>> hidden = [[True, True], [True, False], [False, False]]
    >>> false_classification_rate(true, imputed, hidden)
    0.5
    """
    places = category_places(X_true)
    scored = hidden_cells(X_true, hidden, places)
    imputed = cells_of(X_imputed, "X_imputed")
    check_shape(imputed, np.shape(hidden), "X_imputed")
    wrong = []
    for cells in scored:
        source = imputed[cells.place]
        values = observed_values(source, cells.label, cells.rows, "X_imputed")
        check_alike(cells, values)
        pairs = zip(cells.values, values, strict=True)
        wrong += [true != value for true, value in pairs]
    return float(np.mean(wrong))


def brier_score(
    X_true: ArrayLike,
    probabilities: Mapping[Any, Any] | Sequence[Any],
    hidden: ArrayLike,
) -> float:
    r"""Brier score of the probabilities of hidden cells.

    With :math:`p_k` the probabilities of the K levels of a cell, and
    :math:`y_k = 1` for its true level and 0 for the others,

    .. math:: \sum_{k=1}^{K} (p_k - y_k)^2
        - \frac{1}{m - 1} \sum_{k=1}^{K} p_k (1 - p_k). \qquad (3)

    This is the sum over all levels of Brier (1950), from 0 to 2. The second sum is only
    subtracted if the probabilities are frequencies of m draws. With it, the expectation
    does not depend on m (the fair score of Ferro, 2014), so that methods may be
    compared with different numbers of draws; a single value may be negative.

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table; its hidden cells are scored.
    probabilities : dict, or sequence of n_draws tables
        A dict of columns to data frames of shape (n_samples, n_levels), as
        ``category_probabilities`` returns it. Or two completed tables or more, as
        ``sample`` returns them: the frequencies of their levels are scored, in columns
        of categories, text and booleans of a data frame, or of text of an array of
        objects.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to score.

    Returns
    -------
    score : float
        The score, pooled over all hidden cells; smaller is better.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce.metrics import brier_score
    >>> true, other = (np.array([[one]], dtype=object) for one in ("no", "yes"))
    >>> round(brier_score(true, [true, true, other, other], [[True]]), 4)
    0.3333
    """
    scores = [_fair(one) for one in forecasts(X_true, probabilities, hidden)]
    return float(np.mean(np.concatenate(scores)))


def _fair(forecast):
    """Return squared errors of rows, less their variance due to the draws."""
    p, m = forecast.probabilities, forecast.n_draws
    squares = ((p - np.eye(p.shape[1])[forecast.outcomes]) ** 2).sum(axis=1)
    if m is None:
        return squares
    if m < 2:
        raise ValueError(
            f"probabilities must hold at least 2 tables for this score, got {m}; draw "
            "more"
        )
    return squares - (p * (1 - p)).sum(axis=1) / (m - 1)
