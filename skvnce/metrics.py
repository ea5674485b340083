r"""Scores of imputations on hidden cells, and of graph recovery.

`imputation_rmse` and `imputation_mae` evaluate one imputed table, `crps` and `coverage`
several draws of it, on the cells marked True in ``hidden`` (see `skvnce.missingness`),
whose true values are known. `energy_distance` compares two tables as samples, and
`edge_auc` compares a ranking of pairs with the edges of a known graph.

References
----------
Ferro, C. A. T. (2014). Fair scores for ensemble forecasts. Quarterly Journal of the
Royal Meteorological Society, 140(683), 1917-1923.

Szekely, G. J. and Rizzo, M. L. (2013). Energy statistics: a class of statistics based
on distances. Journal of Statistical Planning and Inference, 143(8), 1249-1272.
"""

from numbers import Real

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics import roc_auc_score

from skvnce._containers import readable
from skvnce.missingness import _check_hidden, _table

_EDGE = 1e-5  # smaller true entries are rounding errors of a matrix inverse
_BLOCK = 2**22  # distances held at once, 32 MiB


def imputation_rmse(X_true, X_imputed, hidden, *, scale=None):
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

    Raises
    ------
    TypeError
        If ``hidden`` is not boolean or ``scale`` is not numeric.
    ValueError
        If shapes differ, no cell is hidden, a value at a hidden cell is not finite, or
        a scale is not positive.

    Examples
    --------
    >>> from skvnce.metrics import imputation_rmse
    >>> hidden = [[True, False], [True, True]]
    >>> imputation_rmse([[0, 0], [0, 0]], [[1, 9], [2, 2]], hidden)
    1.7320508075688772
    """
    errors = _errors(X_true, _table(X_imputed, "X_imputed"), "X_imputed", hidden, scale)
    return float(np.sqrt(np.mean(errors**2)))


def imputation_mae(X_true, X_imputed, hidden, *, scale=None):
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
        Unit of the errors of each column, for instance the standard deviations of the
        training data; None leaves the units of X.

    Returns
    -------
    mae : float
        The error, pooled over all hidden cells; 0 is best.

    Raises
    ------
    TypeError
        If ``hidden`` is not boolean or ``scale`` is not numeric.
    ValueError
        If shapes differ, no cell is hidden, a value at a hidden cell is not finite, or
        a scale is not positive.

    Examples
    --------
    >>> from skvnce.metrics import imputation_mae
    >>> hidden = [[True, False], [True, False]]
    >>> imputation_mae([[0, 0], [0, 0]], [[1, 9], [2, 9]], hidden)
    1.5
    """
    errors = _errors(X_true, _table(X_imputed, "X_imputed"), "X_imputed", hidden, scale)
    return float(np.mean(np.abs(errors)))


def crps(X_true, draws, hidden, *, scale=None):
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
        Unit of each column, for instance the standard deviations of the training data;
        None leaves the units of X.

    Returns
    -------
    score : float
        The score, pooled over all hidden cells; smaller is better.

    Raises
    ------
    TypeError
        If ``hidden`` is not boolean or ``scale`` is not numeric.
    ValueError
        If there are fewer than two draws, shapes differ, no cell is hidden, a value at
        a hidden cell is not finite, or a scale is not positive.

    Examples
    --------
    >>> from skvnce.metrics import crps
    >>> crps([[3.0]], [[[0.0]], [[1.0]]], [[True]])
    2.0
    """
    errors = np.sort(_errors(X_true, _draws(draws, 2), "draws", hidden, scale), axis=0)
    m = len(errors)
    # The double sum of eq. (1) is 2 sum_k (2k - m - 1) x_(k) over the sorted draws.
    weights = (2 * np.arange(1, m + 1) - m - 1) / (m * (m - 1))
    return float(np.mean(np.abs(errors)) - np.mean(weights @ errors))


def coverage(X_true, draws, hidden, *, level=0.9, ties="inside"):
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
        right. With "shared" it counts as the share of the orders of the true value and
        equal draws in which it lies inside, so that they cover ``level``.

    Returns
    -------
    fraction : float
        Fraction of hidden cells covered; ``level`` is best.

    Raises
    ------
    TypeError
        If ``hidden`` is not boolean or ``level`` is not a number.
    ValueError
        If ``level`` is not in (0, 1), ``ties`` is not one of the two, there are too few
        draws, shapes differ, no cell is hidden, or a value at a hidden cell is not
        finite.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce.metrics import coverage
    >>> draws = np.arange(1.0, 20.0).reshape(19, 1, 1) * np.ones((2, 1))
    >>> coverage([[1.0], [19.5]], draws, [[True], [True]])
    0.5
    """
    if not isinstance(level, Real):
        raise TypeError(f"level must be a number, got {level!r}; pass 0.9 for 90 %")
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level!r}; pass 0.9 for 90 %")
    if ties not in ("inside", "shared"):
        raise ValueError(f"ties must be 'inside' or 'shared', got {ties!r}")
    draws = _draws(draws, int(np.ceil(round(2 / (1 - level), 9))) - 1)
    errors = np.sort(_errors(X_true, draws, "draws", hidden, None), axis=0)
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


def energy_distance(X, Y):
    r"""Energy distance between two samples of points.

    The V-statistic of Szekely and Rizzo (2013),

    .. math:: 2 \, \overline{\|x_i - y_j\|} - \overline{\|x_i - x_j\|}
        - \overline{\|y_i - y_j\|}, \qquad (2)

    with Euclidean distances and means over all pairs, including those of a point with
    itself. It is 0 exactly if both tables hold the same points in the same proportions
    and positive otherwise; for samples of one distribution it decreases like 1 / n. In
    one dimension it is the square of
    `scipy.stats.energy_distance`. Columns count in their own units: scale them first.

    Parameters
    ----------
    X : array-like of shape (n_samples_x, n_features)
        First sample, one point per row.
    Y : array-like of shape (n_samples_y, n_features)
        Second sample.

    Returns
    -------
    distance : float
        The distance, in the units of X; 0 is best.

    Raises
    ------
    ValueError
        If a table is not numeric and finite, or the numbers of columns differ.

    Examples
    --------
    >>> from skvnce.metrics import energy_distance
    >>> energy_distance([[0.0, 0.0]], [[3.0, 4.0]])
    10.0
    """
    x, y = _finite(_table(X), "X"), _finite(_table(Y, "Y"), "Y")
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"X and Y must have the same columns, got {x.shape[1]} and {y.shape[1]} "
            "columns; select the common ones"
        )
    scale = _power_of_two(max(abs(x).max(), abs(y).max()))  # no square overflows
    x, y = x / scale, y / scale
    distance = 2 * _mean_distance(x, y) - _mean_distance(x, x) - _mean_distance(y, y)
    distance = max(float(distance), 0.0) * float(scale)  # rounding takes 0 below 0
    if np.isinf(distance):
        raise ValueError(
            "the distance of X and Y is beyond the largest float64; rescale the columns"
        )
    return distance


def edge_auc(precision_true, strengths):
    """Area under the ROC curve of the recovery of edges.

    Parameters
    ----------
    precision_true : array-like of shape (n_features, n_features)
        The true precision matrix, or any matrix with the edges of the true graph: the
        pairs where its absolute value is above 1e-5.
    strengths : array-like of shape (n_features, n_features)
        Evidence for an edge, not negative, larger for more evidence: for instance
        selection frequencies, or the absolute values of an estimated precision matrix.

    Returns
    -------
    auc : float
        Probability that an edge has more strength than a pair without one, ties
        counted half: 1 is best, 0.5 is chance. Only the entries below the diagonal of
        both matrices are used.

    Raises
    ------
    ValueError
        If the matrices are not numeric, square, finite and of one shape, a strength is
        negative, or the true graph is empty or complete.

    Examples
    --------
    >>> from skvnce.metrics import edge_auc
    >>> true = [[1.0, -0.5, 0.0], [-0.5, 1.0, 0.2], [0.0, 0.2, 1.0]]
    >>> strengths = [[0.0, 0.9, 0.3], [0.9, 0.0, 0.1], [0.3, 0.1, 0.0]]
    >>> edge_auc(true, strengths)
    0.5
    """
    true = _table(precision_true, "precision_true")
    strengths = _table(strengths, "strengths")
    if true.shape != strengths.shape or true.shape[0] != true.shape[1]:
        raise ValueError(
            "precision_true and strengths must be square and of one shape, got "
            f"{true.shape} and {strengths.shape}; pass one row and column per feature"
        )
    pairs = np.tril_indices(len(true), -1)
    edge = np.abs(_finite(true[pairs], "precision_true")) > _EDGE
    strength = _finite(strengths[pairs], "strengths")
    if (strength < 0).any():
        raise ValueError(
            f"strengths must not be negative, got {strength.min()}; pass absolute "
            "values if the sign is that of a precision or a correlation"
        )
    if edge.all() or not edge.any():
        raise ValueError(
            f"precision_true must have both edges and pairs without one, got "
            f"{edge.sum()} edges among {edge.size} pairs; the AUC is undefined"
        )
    return float(roc_auc_score(edge, strength))


def _draws(draws, n_min):
    """Return the draws as an array of at least n_min tables."""
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


def _errors(X_true, value, name, hidden, scale):
    """Return (value - X_true) / scale at the hidden cells, (..., n_hidden)."""
    true = _table(X_true, "X_true")
    hidden = _check_hidden(hidden, true.shape)
    if not hidden.any():
        raise ValueError("hidden must mark at least one cell, got none; hide some")
    if value.shape[-2:] != true.shape:
        raise ValueError(
            f"{name} must hold tables of the shape of X_true, {true.shape}, got shape "
            f"{value.shape}; pass the same rows and columns"
        )
    scale = _scales(scale, true.shape)[hidden]
    true = _finite(true[hidden], "X_true")
    value = _finite(value[..., hidden].astype(np.float64), name)
    return (value - true) / scale


def _scales(scale, shape):
    """Return one positive scale per cell."""
    try:
        scale = 1.0 if scale is None else readable(scale, "scale")
        scales = np.asarray(scale, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"scale must be a number or an array of numbers, got {scale!r}; pass for "
            "example the standard deviations of the columns"
        ) from error
    if scales.shape not in ((), shape[1:]):
        raise ValueError(
            f"scale must be one number or {shape[1]}, one per column, got shape "
            f"{scales.shape}; pass one of these"
        )
    if not ((scales > 0) & np.isfinite(scales)).all():
        raise ValueError(
            f"scale must be positive and finite, got {scale!r}; use 1 for a constant "
            "column"
        )
    return np.broadcast_to(scales, shape)


def _finite(values, name):
    """Return the values if all are finite."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"{name} must be finite in the cells used, got "
            f"{(~np.isfinite(values)).sum()} NaN or infinite values; impute or leave "
            "them out first"
        )
    return values


def _power_of_two(value):
    """Return the power of two next to a value that is not negative, 1 for 0.

    Neither it nor its inverse overflows.
    """
    return 2.0 ** np.clip(np.frexp(value)[1], -1000, 1000) if value else 1.0


def _mean_distance(x, y):
    """Return the mean Euclidean distance over all pairs of rows, block by block."""
    n_rows = max(1, _BLOCK // len(y))
    blocks = (x[i : i + n_rows] for i in range(0, len(x), n_rows))
    return sum(cdist(block, y).sum() for block in blocks) / (len(x) * len(y))
