r"""Missingness mechanisms: which cells of a table to hide ("amputation").

For examples, tests and benchmarks, where the true values must be known. Each mechanism
returns a boolean array ``hidden``, True at the cells to hide; `hide` applies it. In
the terms of Rubin (1976), a cell is hidden

- `mcar`: with a probability that depends on no value;
- `mar`: with a probability that depends on columns which stay complete;
- `mnar`: with a probability that depends on the value of the cell itself.

The last two are logistic: with column intercepts :math:`a_j` and scores
:math:`s_{ij}` that the two functions define,

.. math:: P(\text{cell } (i, j) \text{ is hidden}) = 1 / (1 + e^{-a_j - s_{ij}}),
    \qquad (1)

where :math:`a_j` is solved for such that the mean over the observed cells of column j
is the requested fraction.

Tables are numeric, or mixed: data frames, and arrays of objects with columns of text.
Scores are computed from the numbers of a column; dates and durations count as numbers,
and levels of ordinal columns (ordered categories, booleans) by their places 0, 1, ...
in the order. Levels of nominal columns have no order: each level gets a number that is
drawn from a standard normal distribution with ``random_state``.

Missing cells (NaN, None, NaT, null, or masked) are never marked, and fractions
refer to the observed cells. A fraction is an expectation: the number of hidden cells
varies from seed to seed. With the same integer seed the cells hidden at a smaller
fraction are among those hidden at a larger one. A row or a column may lose all its
cells.

References
----------
Rubin, D. B. (1976). Inference and missing data. Biometrika, 63(3), 581-592.
"""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from skvnce._tables import frames, mixed
from skvnce._tables.cells import is_frame, names_of
from skvnce._tables.schema import encode, place_of
from skvnce._types import Seed

_STRONGEST = 1e6  # practically a hard threshold


def mcar(
    X: ArrayLike, fraction: ArrayLike, *, random_state: Seed = None
) -> NDArray[np.bool_]:
    """Choose cells completely at random.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_samples, n_features)
        The table, numeric or mixed; missing cells stay missing.
    fraction : float or array-like of shape (n_features,)
        Expected fraction of the observed cells to hide, in [0, 1), for every column
        or column by column.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness; None uses fresh entropy. The global numpy stream is
        never used.

    Returns
    -------
    hidden : ndarray of bool of shape (n_samples, n_features)
        True at the cells to hide.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce.missingness import mcar
    >>> few, more = (mcar(np.ones((4, 3)), f, random_state=0) for f in (0.1, 0.5))
    >>> int(few.sum()), int(more.sum()), bool((few <= more).all())
    (3, 4, True)
    """
    observed = ~np.isnan(_numbers(X)[0])
    fraction = _fractions(fraction, X, observed.shape[1])
    return (_generator(random_state).random(observed.shape) < fraction) & observed


def mar(
    X: ArrayLike,
    fraction: ArrayLike,
    *,
    drivers: int | str | Sequence[Any] | None = None,
    strength: float = 1.0,
    random_state: Seed = None,
) -> NDArray[np.bool_]:
    r"""Choose cells at random given columns that stay complete.

    The score of a row in equation (1) of this module is
    :math:`s_i = \text{strength} \sum_{k=1}^{K} z_{ik} / \sqrt{K}`, where z are the K
    driver columns scaled to mean 0 and variance 1: rows with large drivers lose more.
    For drivers that are categories, z are the numbers of their levels stated above.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_samples, n_features)
        The table, numeric or mixed; cells may be missing in columns other than the
        drivers.
    fraction : float or array-like of shape (n_features,)
        Expected fraction of the observed cells to hide, in [0, 1), for every column
        that is not a driver, or column by column with 0 for the drivers.
    drivers : int, str or list of these, default=None
        The columns that decide and stay complete: names, or indices if X has no
        names. None uses the first third of the columns, rounded up.
    strength : float, default=1.0
        Change in the log-odds of being hidden per unit of the score; 0 is MCAR in the
        columns that are not drivers.
    random_state : int, RandomState, Generator or None, default=None
        As in `mcar`.

    Returns
    -------
    hidden : ndarray of bool of shape (n_samples, n_features)
        True at the cells to hide.

    Raises
    ------
    TypeError
        If ``fraction`` is not numeric or ``strength`` is not a number.
    ValueError
        If ``X`` is not a numeric or mixed table, ``drivers`` are not columns of it, are
        not complete and finite or leave no other column, ``fraction`` has another
        length, lies outside [0, 1) or is positive for a driver, ``strength`` is beyond
        1e6, or ``random_state`` is none of the above.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce.missingness import mar
    >>> X = np.array([[1.0, 5.0], [2.0, 6.0], [30.0, 7.0], [40.0, 8.0]])
    >>> mar(X, 0.5, strength=9.0, random_state=0)
    array([[False, False],
           [False, False],
           [False,  True],
           [False,  True]])
    """
    x, columns = _numbers(X)
    observed = ~np.isnan(x)
    drivers = _driver_positions(X, drivers, x.shape[1])
    if not observed[:, drivers].all():
        raise ValueError(
            f"drivers must be complete columns, got columns {drivers.tolist()} of X "
            "with missing cells; name complete columns in drivers"
        )
    fraction = _undriven_fractions(fraction, drivers, X, x.shape[1])
    strength, (uniform, x) = _strength(strength), _uniforms(x, columns, random_state)
    z = _standardise(x[:, drivers])
    score = strength * z.sum(axis=1, keepdims=True) / np.sqrt(z.shape[1])
    score = np.broadcast_to(score, x.shape)
    return (uniform < _probability(score, observed, fraction)) & observed


def mnar(
    X: ArrayLike,
    fraction: ArrayLike,
    *,
    strength: float = 1.0,
    random_state: Seed = None,
) -> NDArray[np.bool_]:
    r"""Choose cells by their own values (self-masking).

    The score of a cell in equation (1) of this module is
    :math:`s_{ij} = \text{strength} \, z_{ij}`, where z is X with each column scaled to
    mean 0 and variance 1 over its observed cells: larger values are hidden more often,
    and so are higher levels of ordinal columns, and some levels of nominal columns.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_samples, n_features)
        The table, numeric or mixed, and finite; missing cells stay missing.
    fraction : float or array-like of shape (n_features,)
        Expected fraction of the observed cells to hide, in [0, 1), for every column
        or column by column.
    strength : float, default=1.0
        Change in the log-odds of being hidden per standard deviation of the column; 0
        is MCAR, and a negative value hides smaller values more often.
    random_state : int, RandomState, Generator or None, default=None
        As in `mcar`.

    Returns
    -------
    hidden : ndarray of bool of shape (n_samples, n_features)
        True at the cells to hide.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce.missingness import mnar
    >>> mnar([[1.0], [2.0], [30.0], [40.0]], 0.5, strength=9.0, random_state=0).ravel()
    array([False, False,  True,  True])
    """
    x, columns = _numbers(X)
    observed = ~np.isnan(x)
    fraction = _fractions(fraction, X, x.shape[1])
    strength, (uniform, x) = _strength(strength), _uniforms(x, columns, random_state)
    score = strength * _standardise(x)
    return (uniform < _probability(score, observed, fraction)) & observed


def hide(X: ArrayLike, hidden: ArrayLike) -> Any:
    """Copy a table with missing values in the hidden cells.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_samples, n_features)
        The table, numeric or mixed. It is not modified.
    hidden : array-like of bool of shape (n_samples, n_features)
        True at the cells to hide.

    Returns
    -------
    X_hidden : ndarray or DataFrame of shape (n_samples, n_features)
        The copy. A DataFrame of pandas, polars or pyarrow keeps its index, columns,
        data types and levels; only data types that hold no missing values change, in
        pandas: integers of numpy become float64, booleans "boolean". An array of
        objects with columns of text stays one, with NaN. Other tables become arrays of
        float64, or of float32 if they are that.

    Examples
    --------
    >>> from skvnce.missingness import hide
    >>> hide([[1, 2], [3, 4]], [[False, True], [False, False]])
    array([[ 1., nan],
           [ 3.,  4.]])
    """
    x, columns = _numbers(X)
    hidden = _check_hidden(hidden, x.shape, X, "X")
    if is_frame(X):
        return mixed.hide_in_frame(X, hidden)
    x = np.asarray(frames.readable(X))
    is_kept = columns is not None or x.dtype == np.float32
    x = x.astype(x.dtype if is_kept else np.float64)  # a copy
    x[hidden] = np.nan
    return x


def _numbers(X):
    """Return a table as floats, and its columns if it is mixed, else None."""
    columns = mixed.columns_by_dtype(X)
    if columns is None:
        return _table(X), None
    x = encode(X, columns)
    if x.size == 0:
        raise ValueError(f"X must have at least one row, got shape {x.shape}")
    return x, columns


def _uniforms(x, columns, random_state):
    """Return uniform numbers of the cells, and x with numbers of nominal levels."""
    rng = _generator(random_state)
    uniform, x = rng.random(x.shape), x.copy()
    for place, column in enumerate(columns or ()):
        if column.kind == "nominal":
            # the code -1 of missing cells selects the NaN at the end
            numbers = np.append(rng.standard_normal(len(column.levels)), np.nan)
            codes = np.where(np.isnan(x[:, place]), -1, x[:, place])
            x[:, place] = numbers[codes.astype(int)]
    return uniform, x


def _table(X, name="X"):
    """Return a table as a float64 array, NaN where it is missing."""
    frames.reject_parts(X, name)
    try:
        with frames.cell_errors_named(X):
            x = frames.to_floats(X, name)
        frames.check_exact(X, x, name)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a dense numeric table, got one that does not convert to "
            f"float ({error}); encode or drop such columns"
        ) from error
    if x.ndim != 2 or x.size == 0:
        raise ValueError(
            f"{name} must be a table of at least one row and one column, got shape "
            f"{x.shape}; a single column is X.reshape(-1, 1)"
        )
    return x


def _check_hidden(hidden, shape, X, name="X_true"):
    """Return the mask of a table as a boolean array of the expected shape."""
    mixed.check_order(X, hidden, "hidden", name)
    hidden = np.asarray(frames.readable(hidden, "hidden"))
    if hidden.dtype != bool:
        raise TypeError(
            f"hidden must be boolean, got dtype {hidden.dtype}; use hidden.astype(bool)"
            " if nonzero marks a hidden cell"
        )
    if hidden.shape != shape:
        raise ValueError(
            f"hidden must have the shape of the table, {shape}, got {hidden.shape}; "
            "pass one boolean per cell"
        )
    return hidden


def _per_column(value, name, n_features):
    """Return a number, or a number for each column, as an array."""
    try:
        numbers = np.asarray(frames.readable(value, name), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be a number or an array of numbers, got {value!r}; pass one "
            "number, or one for each column"
        ) from error
    if numbers.shape not in ((), (n_features,)):
        raise ValueError(
            f"{name} must be one number or {n_features}, one per column of X, got "
            f"shape {numbers.shape}; pass one of these"
        )
    return numbers


def _fractions(fraction, X, n_features):
    """Return one fraction per column, in a new array."""
    mixed.check_columns(X, fraction, "fraction", "X")
    fractions = _per_column(fraction, "fraction", n_features)
    if not ((fractions >= 0) & (fractions < 1)).all():
        raise ValueError(
            f"fraction must lie in [0, 1), got {fraction!r}; pass 0.3 for 30 percent"
        )
    # a new array, because fractions of drivers are set to 0 in place
    return np.full(n_features, fractions)


def _undriven_fractions(fraction, drivers, X, n_features):
    """Return one fraction per column, 0 for the drivers."""
    fractions = _fractions(fraction, X, n_features)
    if np.ndim(fraction) and fractions[drivers].any():
        raise ValueError(
            f"fraction must be 0 for the drivers, columns {drivers.tolist()} of X, got "
            f"{fractions[drivers].tolist()}; set these to 0 or pass other drivers"
        )
    fractions[drivers] = 0.0
    return fractions


def _driver_positions(X, drivers, n_features):
    """Return the sorted column indices of the drivers."""
    if drivers is None:
        positions = np.arange(-(-n_features // 3))
    else:
        keys = np.atleast_1d(np.asarray(drivers, dtype=object)).tolist()
        places = [place_of(key, names_of(X), n_features, "drivers") for key in keys]
        positions = np.unique(places)
    if not 0 < len(positions) < n_features:
        raise ValueError(
            f"drivers must be some but not all of the {n_features} columns of X, got "
            f"{len(positions)}; pass fewer or more columns, or use mcar"
        )
    return positions


def _strength(strength):
    """Return the strength after checking that it is a number of sensible size."""
    if not isinstance(strength, Real):
        raise TypeError(
            f"strength must be a number, got {strength!r}; pass for example 1.0"
        )
    if not abs(strength) <= _STRONGEST:
        raise ValueError(
            f"strength must be at most {_STRONGEST:g} in size, got {strength!r}; 100 "
            "is close to a threshold"
        )
    return float(strength)


def _standardise(x):
    """Scale to mean 0 and variance 1 over observed cells; 0 where none is observed."""
    if np.isinf(x).any():
        raise ValueError(
            "X must be finite in the columns that decide what is hidden, got infinite "
            "values; replace them"
        )
    observed = ~np.isnan(x)
    n = np.maximum(observed.sum(axis=0), 1)
    x = np.where(observed, x, 0.0)
    largest = np.abs(x).max(axis=0)
    x = x / np.where(largest > 0, largest, 1.0)  # so that no square overflows
    x = np.where(observed, x - x.sum(axis=0) / n, 0.0)
    deviation = np.sqrt((x**2).sum(axis=0) / n)
    return x / np.where(deviation > 0, deviation, 1.0)


def _probability(score, observed, fractions):
    """Return the probabilities of equation (1) for these scores."""
    columns = zip(score.T, observed.T, fractions, strict=True)
    return expit(score + np.array([_intercept(s[o], f) for s, o, f in columns]))


def _intercept(score, fraction):
    """Solve mean(expit(a + score)) = fraction for a."""
    if fraction < np.finfo(np.float64).tiny or score.size == 0:
        return -np.inf
    # For one score, a = logit(fraction) - score: the extremes enclose the root, and
    # the margin of 1 makes the signs at both ends differ in spite of rounding.
    low, high = logit(fraction) - score.max() - 1, logit(fraction) - score.min() + 1
    return brentq(lambda a: expit(a + score).mean() - fraction, low, high)


def _generator(random_state):
    """Return the numpy Generator that a random_state represents."""
    if isinstance(random_state, np.random.RandomState):
        # 128 bits, which is what numpy's SeedSequence keeps
        random_state = random_state.randint(2**32, size=4, dtype=np.uint32)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "random_state must be a non-negative int, a RandomState, a Generator or "
            f"None, got {random_state!r}; pass for example 0"
        ) from error
