"""Scores of imputed numbers and of their draws."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from skvnce._core.numbers import check_share, least_draws
from skvnce._tables.frames import readable, reject_parts
from skvnce._tables.mixed import (
    check_columns,
    check_order,
    columns_by_dtype,
    select_columns,
)
from skvnce._tables.values import fair_scores
from skvnce.missingness import _check_hidden, _per_column, _table

# ----------------------------------------
# Checks that several scores share.


def finite(values, name):
    """Return the values if all are finite."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"{name} must be finite in the cells used, got "
            f"{(~np.isfinite(values)).sum()} NaN or infinite values; impute or leave "
            "them out first"
        )
    return values


def imputation_rmse(
    X_true: ArrayLike,
    X_imputed: ArrayLike,
    hidden: ArrayLike,
    *,
    scale: ArrayLike | None = None,
) -> float:
    """Root mean squared error over the hidden cells.

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table; only its hidden cells are used.
    X_imputed : array-like of shape (n_samples, n_features)
        The imputed table; only its hidden cells are used.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to score.
    scale : float or array-like of shape (n_features,), default=None
        Unit of the errors of each column, for instance the standard deviations of the
        training data; None leaves the units of X.

    Returns
    -------
    rmse : float
        The error, pooled over all hidden cells; 0 is best.

    Examples
    --------
    >>> from skvnce.metrics import imputation_rmse
    >>> hidden = [[True, False], [True, True]]
    >>> imputation_rmse([[0, 0], [0, 0]], [[1, 9], [2, 2]], hidden)
    1.7320508075688772
    """
    errors = _errors(X_true, X_imputed, "X_imputed", hidden, scale)
    return float(np.sqrt(np.mean(errors**2)))


def imputation_mae(
    X_true: ArrayLike,
    X_imputed: ArrayLike,
    hidden: ArrayLike,
    *,
    scale: ArrayLike | None = None,
) -> float:
    """Mean absolute error over the hidden cells.

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table; only its hidden cells are used.
    X_imputed : array-like of shape (n_samples, n_features)
        The imputed table; only its hidden cells are used.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to score.
    scale : float or array-like of shape (n_features,), default=None
        Unit of the errors of each column; None leaves the units of X.

    Returns
    -------
    mae : float
        The error, pooled over all hidden cells; 0 is best.

    Examples
    --------
    >>> from skvnce.metrics import imputation_mae
    >>> hidden = [[True, False], [True, False]]
    >>> imputation_mae([[0, 0], [0, 0]], [[1, 9], [2, 9]], hidden)
    1.5
    """
    errors = _errors(X_true, X_imputed, "X_imputed", hidden, scale)
    return float(np.mean(np.abs(errors)))


def crps(
    X_true: ArrayLike,
    draws: ArrayLike,
    hidden: ArrayLike,
    *,
    scale: ArrayLike | None = None,
) -> float:
    r"""Continuous ranked probability score of draws, mean over the hidden cells.

    The fair score of Ferro (2014): with m draws :math:`x_k` of a cell of truth y,

    .. math:: \frac{1}{m} \sum_k |x_k - y|
        - \frac{1}{2 m (m - 1)} \sum_{k, l} |x_k - x_l|. \qquad (1)

    Its expectation does not depend on the number of draws, so that methods may be
    compared with different numbers; a single value may be negative.

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table; only its hidden cells are used.
    draws : array-like of shape (n_draws, n_samples, n_features)
        At least two independent draws of the table; only hidden cells are used.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to score.
    scale : float or array-like of shape (n_features,), default=None
        Unit of the score of each column; None leaves the units of X.

    Returns
    -------
    score : float
        The score, pooled over all hidden cells; smaller is better.

    Examples
    --------
    >>> from skvnce.metrics import crps
    >>> crps([[3.0]], [[[0.0]], [[1.0]]], [[True]])
    2.0
    """
    errors = _errors(X_true, draws, "draws", hidden, scale, n_min=2)
    return float(fair_scores(errors).mean())


def coverage(
    X_true: ArrayLike,
    draws: ArrayLike,
    hidden: ArrayLike,
    *,
    level: float = 0.9,
    ties: Literal["inside", "shared"] = "inside",
) -> float:
    """Fraction of hidden cells whose true value lies in the central interval of draws.

    The interval lies between the quantiles (1 - level) / 2 and (1 + level) / 2 of the
    draws of a cell, where the k-th smallest of m draws is the quantile k / (m + 1). So
    a truth that is exchangeable with the draws is covered with probability ``level``
    for any number of draws: exactly if (m + 1) (1 - level) / 2 is whole, else by
    interpolation.

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table; only its hidden cells are used.
    draws : array-like of shape (n_draws, n_samples, n_features)
        At least 2 / (1 - level) - 1 independent draws of the table (19 for 0.9); only
        hidden cells are used.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to score.
    level : float, default=0.9
        Nominal probability of the interval, in (0, 1).
    ties : {"inside", "shared"}, default="inside"
        How a true value is counted that equals an end of the interval. With "inside" it
        is covered, so that discrete draws cover more than ``level`` even if they are
        right. With "shared" it counts as the fraction of the orders of the true value
        and equal draws in which it lies inside, so that they cover ``level``.

    Returns
    -------
    fraction : float
        Fraction of hidden cells covered; ``level`` is best.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce.metrics import coverage
    >>> draws = np.arange(1.0, 20.0).reshape(19, 1, 1) * np.ones((2, 1))
    >>> coverage([[1.0], [19.5]], draws, [[True], [True]])
    0.5
    """
    check_share(level, "level")
    if ties not in ("inside", "shared"):
        raise ValueError(f"ties must be 'inside' or 'shared', got {ties!r}")
    errors = _errors(
        X_true, draws, "draws", hidden, None, n_min=least_draws((1 - level) / 2)
    )
    errors = np.sort(errors, axis=0)
    # Rounded, so that a whole rank stays whole; np.quantile would move it by an ulp,
    # past a truth that ties with a draw.
    rank = round((len(errors) + 1) * (1 - level) / 2, 9)
    if ties == "shared":
        below, upto = (errors < 0).sum(0), (errors <= 0).sum(0) + 1
        inside = np.minimum(upto, len(errors) + 1 - rank) - np.maximum(below, rank)
        return float(np.mean(inside.clip(min=0) / (upto - below)))
    k, part = int(rank), rank % 1
    low = (1 - part) * errors[k - 1] + part * errors[k]
    high = (1 - part) * errors[-k] + part * errors[-k - 1]
    return float(np.mean((low <= 0) & (high >= 0)))


def _draws(draws, n_min):
    """Return the draws as an array of at least n_min tables."""
    for k, draw in enumerate(draws if isinstance(draws, list | tuple) else ()):
        reject_parts(draw, f"draws[{k}]")
    draws = np.asarray(readable(draws, "draws"))
    if draws.ndim != 3:
        raise ValueError(
            "draws must have shape (n_draws, n_samples, n_features), got "
            f"{draws.shape}; stack the imputed tables along a first axis"
        )
    if len(draws) < n_min:
        raise ValueError(
            f"draws must hold at least {n_min} tables for this score, got "
            f"{len(draws)}; draw more"
        )
    return draws


def _errors(X_true, value, name, hidden, scale, *, n_min=None):
    """Return (value - X_true) / scale at the hidden cells, (..., n_hidden).

    n_min: the number of tables that value holds at least; None if it is one table.
    """
    places = _numeric_places(X_true)
    if n_min is None:
        check_order(X_true, value, name, "X_true")
    for k, draw in enumerate(value if isinstance(value, list | tuple) else ()):
        check_order(X_true, draw, f"draws[{k}]", "X_true")
    check_columns(X_true, scale, "scale", "X_true")
    if places is not None:
        shape = np.shape(X_true)
        hidden = _check_hidden(hidden, shape, X_true)[:, places]
        X_true, scale = select_columns(X_true, places), _selected(scale, places, shape)
        if n_min is None:
            value = _select(value, places, shape, name)
        else:
            value = [_table(_select(draw, places, shape, name), name) for draw in value]
    true = _table(X_true, "X_true")
    value = _table(value, name) if n_min is None else _draws(value, n_min)
    hidden = _check_hidden(hidden, true.shape, X_true)
    if not hidden.any():
        raise ValueError(
            "hidden must mark at least one cell of numbers, got none; hide some, or "
            "use false_classification_rate and brier_score for categories"
        )
    if value.shape[-2:] != true.shape:
        raise _of_other_shape(name, true.shape, value.shape)
    check_columns(X_true, scale, "scale", "X_true")  # one for each column of numbers
    scale = _scales(scale, true.shape)[hidden]
    true = finite(true[hidden], "X_true")
    value = finite(value[..., hidden].astype(np.float64), name)
    return (value - true) / scale


def _numeric_places(X):
    """Return the indices of columns of numbers; None if all are, or are expected."""
    columns = columns_by_dtype(X)
    if columns is None:
        return None
    places = [j for j, column in enumerate(columns) if column.is_plain]
    if not places:
        raise ValueError(
            "X_true has no columns of numbers; use false_classification_rate, "
            "category_log_loss or brier_score for categories"
        )
    return places


def _select(X, places, shape, name):
    """Select columns of an imputed table of the shape of the true one."""
    if np.shape(X) != shape:
        raise _of_other_shape(name, shape, np.shape(X))
    return select_columns(X, places)


def _of_other_shape(name, shape, other):
    return ValueError(
        f"{name} must hold tables of the shape of X_true, {shape}, got shape {other}; "
        "pass the same rows and columns"
    )


def _selected(scale, places, shape):
    """Select the scales of columns, if there is one for each column of the table."""
    return np.asarray(scale)[places] if np.shape(scale) == shape[1:] else scale


def _scales(scale, shape):
    """Return one positive scale per cell."""
    scales = _per_column(1.0 if scale is None else scale, "scale", shape[1])
    if not ((scales > 0) & np.isfinite(scales)).all():
        raise ValueError(
            f"scale must be positive and finite, got {scale!r}; use 1 for a constant "
            "column"
        )
    return np.broadcast_to(scales, shape)
