"""Scores of imputed categories and of their probabilities."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skvnce._tables.mixed import check_order
from skvnce.metrics._forecasts import (
    category_places,
    cells_of,
    check_alike,
    check_shape,
    forecasts,
    hidden_cells,
    observed_values,
    select_places,
)


def false_classification_rate(
    X_true: ArrayLike,
    X_imputed: ArrayLike,
    hidden: ArrayLike,
    *,
    columns: Sequence[str | int] | None = None,
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
        True at the cells to score.
    columns : list of str or int, default=None
        Names of the columns to score, or indices of an array. None: columns of
        categories, text and booleans of a data frame, or of text of an array of
        objects.

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
    places = select_places(X_true, columns, category_places(X_true))
    scored = hidden_cells(X_true, hidden, places)
    imputed = cells_of(X_imputed, "X_imputed")
    check_order(X_true, X_imputed, "X_imputed", "X_true")
    check_shape(imputed, np.shape(hidden), "X_imputed")
    wrong = []
    for cells in scored:
        source = imputed[cells.place]
        values = observed_values(source, cells.label, cells.rows, "X_imputed")
        check_alike(cells, values)
        pairs = zip(cells.values, values, strict=True)
        wrong += [true != value for true, value in pairs]
    return float(np.mean(wrong))


def category_log_loss(
    X_true: ArrayLike,
    probabilities: Mapping[Any, Any] | Sequence[Any],
    hidden: ArrayLike,
    *,
    columns: Sequence[str | int] | None = None,
    categories: Mapping[Any, Any] | None = None,
    floor: float = 0.01,
) -> float:
    r"""Mean negative log-probability of the true levels of hidden cells.

    With :math:`p_k` the probabilities of the K levels of a cell of true level y,

    .. math:: -\log \frac{\max(p_y, f)}{\sum_{k=1}^{K} \max(p_k, f)}, \qquad (3)

    where f is the floor. Without it, one level that was never drawn would make the
    score infinite. Since the probabilities that are scored have sum 1, the true
    probabilities have the best expectation if they are at least f (Good, 1952). A
    probability of 1 for the true level has the score :math:`\log(1 + (K - 1) f)`.

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table; its hidden cells are scored.
    probabilities : dict, or sequence of n_draws tables
        A dict of columns to data frames or arrays of shape
        (n_samples, n_levels), as ``category_probabilities`` returns it. Or completed
        tables, as ``sample`` returns them: the frequencies of their levels are scored.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to score.
    columns : list of str or int, default=None
        Names of the columns to score, or indices of an array. None: those of the dict;
        for completed tables, columns of categories, text and booleans of a data frame,
        or of text of an array of objects.
    categories : dict of str or int to array-like, default=None
        The levels of columns, in the order of the probabilities: ``categories_`` of the
        imputer. None: the names of the columns of the data frames of probabilities; for
        completed tables, the levels of ``X_true`` and of the draws.
    floor : float, default=0.01
        The smallest probability, in [0, 1).

    Returns
    -------
    loss : float
        The loss in nats, pooled over all hidden cells; smaller is better.

    Examples
    --------
    >>> from skvnce.metrics import category_log_loss
    >>> true, hidden = [["no"], ["yes"]], [[True], [True]]
    >>> categories = {0: ["no", "yes"]}
    >>> round(category_log_loss(
    ...     true, {0: [[0.5, 0.5], [0.25, 0.75]]}, hidden, categories=categories
    ... ), 4)
    0.4904
    """
    if not isinstance(floor, Real) or not 0 <= floor < 1:
        raise ValueError(f"floor must lie in [0, 1), got {floor!r}; pass for example 0")
    losses = []
    for forecast in forecasts(X_true, probabilities, hidden, columns, categories, None):
        p = np.maximum(forecast.probabilities, floor)
        with np.errstate(divide="ignore"):  # the loss is infinite
            losses.append(np.log(p.sum(axis=1)) - np.log(_at(p, forecast.outcomes)))
    return float(np.mean(np.concatenate(losses)))


def brier_score(
    X_true: ArrayLike,
    probabilities: Mapping[Any, Any] | Sequence[Any],
    hidden: ArrayLike,
    *,
    columns: Sequence[str | int] | None = None,
    categories: Mapping[Any, Any] | None = None,
    n_draws: int | None = None,
) -> float:
    r"""Brier score of the probabilities of hidden cells.

    With :math:`p_k` the probabilities of the K levels of a cell, and
    :math:`y_k = 1` for its true level and 0 for the others,

    .. math:: \sum_{k=1}^{K} (p_k - y_k)^2
        - \frac{1}{m - 1} \sum_{k=1}^{K} p_k (1 - p_k). \qquad (4)

    This is the sum over all levels of Brier (1950), from 0 to 2. The second sum is only
    subtracted if the probabilities are frequencies of m draws. With it, the expectation
    does not depend on m (the fair score of Ferro, 2014), so that methods may be
    compared with different numbers of draws; a single value may be negative.

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table; its hidden cells are scored.
    probabilities : dict, or sequence of n_draws tables
        As in `category_log_loss`; at least two tables.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to score.
    columns : list of str or int, default=None
        The columns to score, as in `category_log_loss`.
    categories : dict of str or int to array-like, default=None
        The levels of each column, as in `category_log_loss`.
    n_draws : int, default=None
        The number of draws m if the probabilities of a dict are frequencies, at least
        2. For completed tables it is their number.

    Returns
    -------
    score : float
        The score, pooled over all hidden cells; smaller is better.

    Examples
    --------
    >>> from skvnce.metrics import brier_score
    >>> draws = [[["no"]], [["no"]], [["yes"]], [["yes"]]]
    >>> round(brier_score([["no"]], draws, [[True]], columns=[0]), 4)
    0.3333
    """
    scores = [
        _fair(forecast, forecast.probabilities, _indicators(forecast))
        for forecast in forecasts(
            X_true, probabilities, hidden, columns, categories, n_draws
        )
    ]
    return float(np.mean(np.concatenate(scores)))


def ranked_probability_score(
    X_true: ArrayLike,
    probabilities: Mapping[Any, Any] | Sequence[Any],
    hidden: ArrayLike,
    *,
    columns: Sequence[str | int] | None = None,
    categories: Mapping[Any, Any] | None = None,
    n_draws: int | None = None,
) -> float:
    r"""Ranked probability score of hidden cells of ordinal columns.

    With :math:`P_k` the probability of the first k of the K levels in their order, and
    :math:`Y_k = 1` if the true level is one of them and else 0,

    .. math:: \sum_{k=1}^{K-1} (P_k - Y_k)^2
        - \frac{1}{m - 1} \sum_{k=1}^{K-1} P_k (1 - P_k) \qquad (5)

    (Epstein, 1969; Murphy, 1971). The second sum is only subtracted if the
    probabilities are frequencies of m draws, as in `brier_score`. The score is that of
    `crps` for levels at the numbers 1 to K: a false level costs more the farther it is.

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table; its hidden cells are scored.
    probabilities : dict, or sequence of n_draws tables
        As in `category_log_loss`; at least two tables.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to score.
    columns : list of str or int, default=None
        Names of the columns to score, or indices of an array. None: the columns of a
        data frame that are ordinal by their data types, which are ordered categories
        and booleans, and, if a dict has them, integers of few values.
    categories : dict of str or int to array-like, default=None
        The levels of columns in their order, as in `category_log_loss`. None: for
        completed tables, the order of the data type, or of sorting for numbers.
    n_draws : int, default=None
        As in `brier_score`.

    Returns
    -------
    score : float
        The score, pooled over all hidden cells; smaller is better.

    Examples
    --------
    >>> from skvnce.metrics import ranked_probability_score
    >>> categories = {0: ["low", "middle", "high"]}
    >>> for p in [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]:
    ...     ranked_probability_score(
    ...         [["low"]], {0: [p]}, [[True]], columns=[0], categories=categories
    ...     )
    1.0
    2.0
    """
    scores = []
    for forecast in forecasts(
        X_true, probabilities, hidden, columns, categories, n_draws, ordinal=True
    ):
        # sums over the first levels, except that over all
        sums = (
            p.cumsum(1)[:, :-1] for p in (forecast.probabilities, _indicators(forecast))
        )
        scores.append(_fair(forecast, *sums))
    return float(np.mean(np.concatenate(scores)))


def expected_calibration_error(
    X_true: ArrayLike,
    probabilities: Mapping[Any, Any] | Sequence[Any],
    hidden: ArrayLike,
    *,
    columns: Sequence[str | int] | None = None,
    categories: Mapping[Any, Any] | None = None,
    n_bins: int = 10,
) -> float:
    r"""Calibration error (ECE) of the most probable level of hidden cells.

    The cells are divided by the probability of their most probable level into B bins of
    equal width. With :math:`n_b` cells in bin b, their mean probability
    :math:`\bar p_b` and the share :math:`\bar y_b` in which this level is the true one,

    .. math:: \sum_{b=1}^{B} \frac{n_b}{n} | \bar y_b - \bar p_b | \qquad (6)

    (Naeini et al., 2015; Guo et al., 2017). If several levels are the most probable
    ones, the true level counts by its share among them. The error is positive even for
    true probabilities, since shares of few cells vary; it decreases like one over the
    square root of the number of cells. Frequencies of few draws are not calibrated.

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table; its hidden cells are scored.
    probabilities : dict, or sequence of n_draws tables
        As in `category_log_loss`.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to score.
    columns : list of str or int, default=None
        The columns to score, as in `category_log_loss`.
    categories : dict of str or int to array-like, default=None
        The levels of each column, as in `category_log_loss`.
    n_bins : int, default=10
        Number of bins of probabilities.

    Returns
    -------
    error : float
        The error, of the hidden cells of all columns together; 0 is best.

    Examples
    --------
    >>> from skvnce.metrics import expected_calibration_error
    >>> p = {0: [[0.75, 0.25], [0.75, 0.25]]}
    >>> expected_calibration_error(
    ...     [["no"], ["yes"]], p, [[True], [True]], categories={0: ["no", "yes"]}
    ... )
    0.25
    """
    if not isinstance(n_bins, Integral) or isinstance(n_bins, bool) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer, got {n_bins!r}")
    tops, hits = [], []
    for forecast in forecasts(X_true, probabilities, hidden, columns, categories, None):
        top = forecast.probabilities.max(axis=1)
        is_top = forecast.probabilities == top[:, None]
        tops.append(top)
        hits.append(_at(is_top, forecast.outcomes) / is_top.sum(axis=1))
    top, hit = np.concatenate(tops), np.concatenate(hits)
    # Rounded, so that a probability at the end of a bin stays in it.
    bins = np.ceil(np.round(top * n_bins, 9)).astype(int)
    return float(np.abs(np.bincount(bins, hit - top)).sum() / len(top))


def _at(table, places):
    """Return one cell of each row."""
    return table[np.arange(len(places)), places]


def _indicators(forecast):
    """Return 1 for the true levels and 0 for the others."""
    return np.eye(forecast.probabilities.shape[1])[forecast.outcomes]


def _fair(forecast, p, y):
    """Return squared errors of rows, less their variance due to the draws."""
    squares = ((p - y) ** 2).sum(axis=1)
    m = forecast.n_draws
    if m is None:
        return squares
    if m < 2:
        raise ValueError(
            f"probabilities must hold at least 2 tables for this score, got {m}; draw "
            "more"
        )
    return squares - (p * (1 - p)).sum(axis=1) / (m - 1)
