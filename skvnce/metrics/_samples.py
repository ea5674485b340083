"""Scores of samples of rows, and of the edges of graphs."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from skvnce._core.numbers import power_of_two
from skvnce._tables.cells import TIMES, is_frame
from skvnce._tables.frames import reject_parts
from skvnce._tables.mixed import check_columns, check_order, columns_by_dtype
from skvnce._types import Seed
from skvnce.metrics._forecasts import cells_of, check_shape
from skvnce.metrics._numbers import finite
from skvnce.missingness import _check_hidden, _generator, _table

# ----------------------------------------
# Comparisons of two tables as samples.

_BLOCK = 2**22  # distances held at once, 32 MiB
_MOST_LEVELS = 255  # of a nominal column that scikit-learn's trees accept


def energy_distance(X: ArrayLike, Y: ArrayLike) -> float:
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

    Examples
    --------
    >>> from skvnce.metrics import energy_distance
    >>> energy_distance([[0.0, 0.0]], [[3.0, 4.0]])
    10.0
    """
    x, y = finite(_table(X), "X"), finite(_table(Y, "Y"), "Y")
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"X and Y must have the same columns, got {x.shape[1]} and {y.shape[1]} "
            "columns; select the common ones"
        )
    check_columns(X, Y, "Y", "X")
    scale = power_of_two(max(abs(x).max(), abs(y).max()))  # no square overflows
    x, y = x / scale, y / scale
    distance = 2 * _mean_distance(x, y) - _mean_distance(x, x) - _mean_distance(y, y)
    distance = max(float(distance), 0.0) * float(scale)  # rounding takes 0 below 0
    if np.isinf(distance):
        raise ValueError(
            "the distance of X and Y is beyond the largest float64; rescale the columns"
        )
    return distance


def two_sample_auc(
    X_true: ArrayLike,
    X_imputed: ArrayLike | Sequence[Any],
    hidden: ArrayLike,
    *,
    n_splits: int = 5,
    random_state: Seed = None,
) -> float:
    """Area under the ROC curve of a classifier of true and completed rows.

    A classifier two-sample test (Lopez-Paz and Oquab, 2017): boosted trees
    (scikit-learn's `HistGradientBoostingClassifier`) classify true and completed rows.
    A row and its completion are always in the same fold, so that the classifier cannot
    recognise one by the other; the AUC is the mean over the folds that were left out.
    Levels of columns of categories, text and booleans are split as sets, unless they
    are ordered or more than 255.

    Imputation by conditional means is easy to detect, since it has too little variance;
    draws from the true conditional distributions are not.

    Parameters
    ----------
    X_true : array-like of shape (n_samples, n_features)
        The true table. Cells that are missing in it stay missing in both samples.
    X_imputed : array-like of shape (n_samples, n_features), or sequence of these
        A completed table, or several draws as ``sample`` returns them.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the hidden cells. Rows without such cells are not used.
    n_splits : int, default=5
        Number of folds.
    random_state : int, RandomState, Generator or None, default=None
        Source of the folds and of the seed of the classifier; None uses fresh entropy.

    Returns
    -------
    auc : float
        The AUC, mean over folds and tables: 0.5 is best, 1 is worst.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce.metrics import two_sample_auc
    >>> X = np.random.default_rng(0).standard_normal((200, 1))
    >>> two_sample_auc(X, np.zeros_like(X), np.ones_like(X, dtype=bool)) > 0.9
    True
    """
    true = cells_of(X_true, "X_true")
    shape = (len(true[0]), len(true))
    rows = _check_hidden(hidden, shape, X_true).any(axis=1)
    _check_folds(n_splits, rows.sum())
    rng = _generator(random_state)
    folds = np.array_split(rng.permutation(rows.sum()), n_splits)
    seed = int(rng.integers(2**31))
    aucs = []
    for name, table in _completed_tables(X_imputed):
        imputed = cells_of(table, name)
        check_order(X_true, table, name, "X_true")
        check_shape(imputed, shape, name)
        x, is_nominal = _encoded_pairs(true, imputed, columns_by_dtype(X_true))
        x[1, np.isnan(x[0])] = np.nan
        pairs = x[:, rows]
        model = HistGradientBoostingClassifier(
            categorical_features=is_nominal, random_state=seed
        )
        aucs += [_auc_of_fold(model, pairs, fold) for fold in folds]
    return float(np.mean(aucs))


def _check_folds(n_splits, n_rows):
    """Raise an error unless each fold can have two rows."""
    if not isinstance(n_splits, Integral) or n_splits < 2:
        raise ValueError(f"n_splits must be an integer of at least 2, got {n_splits!r}")
    if n_rows < 2 * n_splits:
        raise ValueError(
            f"hidden must mark cells in at least {2 * n_splits} rows, two per fold, "
            f"got {n_rows}; hide more, or pass a smaller n_splits"
        )


def _completed_tables(X):
    """List completed tables with their names in errors."""
    reject_parts(X, "X_imputed")
    if not is_frame(X) and len(X) and (is_frame(X[0]) or np.ndim(X[0]) == 2):
        return [(f"draw {i}", table) for i, table in enumerate(X)]
    return [("X_imputed", X)]


def _encoded_pairs(true, imputed, columns):
    """Convert two tables to numbers (2, n, d), and say which columns are nominal."""
    x, is_nominal = np.empty((2, len(true[0]), len(true))), []
    for place, pair in enumerate(zip(true, imputed, strict=True)):
        column = columns and columns[place]
        if column and column.levels is not None:
            new = pair[1].levels().difference(column.levels)
            # by text, because levels of several types have no order
            levels = (*column.levels, *sorted(new, key=str))
            codes = [cells.codes(levels) for cells in pair]
            x[:, :, place] = codes
            is_nominal.append(column.kind == "nominal" and len(levels) <= _MOST_LEVELS)
            continue
        if pair[0].dtype in TIMES and pair[1].dtype != pair[0].dtype:
            raise TypeError(
                f"column {pair[0].label} has values of type {pair[0].dtype} in X_true, "
                f"but {pair[1].dtype} in the completed table; pass data frames, for "
                "example by set_output of the imputer"
            )
        x[:, :, place] = [cells.numbers(pair[0].dtype) for cells in pair]
        is_nominal.append(False)
    return x, is_nominal


def _auc_of_fold(model, pairs, fold):
    """Return the AUC of the rows of a fold, by a classifier of the others."""
    rest = np.setdiff1d(np.arange(pairs.shape[1]), fold)
    model.fit(np.concatenate(pairs[:, rest]), np.repeat([0, 1], len(rest)))
    scores = model.decision_function(np.concatenate(pairs[:, fold]))
    return roc_auc_score(np.repeat([0, 1], len(fold)), scores)


def _mean_distance(x, y):
    """Return the mean Euclidean distance over all pairs of rows, block by block."""
    n_rows = max(1, _BLOCK // len(y))
    blocks = (x[i : i + n_rows] for i in range(0, len(x), n_rows))
    return sum(cdist(block, y).sum() for block in blocks) / (len(x) * len(y))


# ----------------------------------------
# Scores of the recovery of graphs.

_EDGE = 1e-5  # smaller true entries are rounding errors of a matrix inverse


def edge_auc(precision_true: ArrayLike, strengths: ArrayLike) -> float:
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
    edge = np.abs(finite(true[pairs], "precision_true")) > _EDGE
    strength = finite(strengths[pairs], "strengths")
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
