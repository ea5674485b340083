"""Warnings before fits to many columns, or of many members, that take minutes.

A copy is fitted to some of the rows and columns.  The time of a fit grows with the
number of rows, and about with the square of the number of columns, because each column
is predicted from all others.
"""

import warnings
from time import perf_counter

import numpy as np
from sklearn.base import clone

from skvnce._progress import heard_by, step
from skvnce._warnings import warn_user
from skvnce.exceptions import DurationWarning

LONG = 60.0  # seconds
_MANY = 4  # columns for one of the copy: of fewer, its fit would take a large share
_COLUMNS, _ROWS = 50, 1000  # of the copy
_FEW = 5  # columns of a first fit, whose time is partly that of loading modules
# parameters about columns that the copy may lack
OF_ALL_COLUMNS = {"categorical_features": None, "min_value": None, "max_value": None}
_FAILURES = (ArithmeticError, RuntimeError, TypeError, ValueError)


def warn_of_duration(
    estimator, table, remedy, factor=1.0, columns=_COLUMNS, plain=None, **changed
):
    """Warn if a fit to a table of numbers and codes will take more than a minute.

    Parameters
    ----------
    estimator : estimator
        It is not modified.
    table : ndarray of shape (n, n_features)
    remedy : str
    factor : float
        By which the fit takes longer than one with `changed`.
    columns : int
        Number of columns of the copy.
    plain : dict, default=None
        Parameters to change in addition if the copy cannot be fitted.  If a copy with
        them cannot be fitted either, there is no warning: the fit will say why.
    **changed : dict
        Parameters of the copy.

    Warns
    -----
    DurationWarning
    """
    if table.shape[1] < _MANY * columns:
        return
    if not (some := _some_cells(table, columns)).size:
        return
    with step("estimating the time of the fit"):
        copy = clone(estimator).set_params(verbose=0, **changed)
        seconds = _seconds_of_copy(copy, some)
        if seconds is None and plain:
            seconds = _seconds_of_copy(copy.set_params(**plain), some)
    if seconds is None:
        return
    seconds *= factor * growth(table.shape, some.shape)
    if seconds > LONG:
        n, d = table.shape
        warn_user(
            f"{type(estimator).__name__}.fit of {n:,} rows and {d:,} columns will take "
            f"about {in_words(seconds)}, by the time of a fit to "
            f"{some.shape[1]} of the columns. {remedy}",
            DurationWarning,
        )


def announced(name, members, count):
    """Yield members to train; after the first, warn if all others take minutes.

    Parameters
    ----------
    name : str
        Of the class whose fit trains them.
    members : iterable
    count : int
        Number of members.

    Warns
    -----
    DurationWarning
    """
    begin = perf_counter()
    for number, one in enumerate(members):
        seconds = (count - 1) * (perf_counter() - begin)
        if number == 1 and seconds > LONG:
            warn_user(
                f"{name}.fit will take about {in_words(seconds)} more, by the time of "
                f"the first of {count:,} members. Lower n_estimators.",
                DurationWarning,
            )
        yield one


def growth(shape, small):
    """Return about how much longer a fit takes than that to a smaller table."""
    return shape[0] / small[0] * (shape[1] / small[1]) ** 2


def in_words(seconds):
    """Format a time of at least a minute."""
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    hours = seconds / 3600
    return f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"


def _some_cells(table, columns):
    """Choose rows, and columns that vary in them, at even distances."""
    n, _ = table.shape
    rows = table[np.unique(np.linspace(0, n - 1, min(n, _ROWS)).astype(int))]
    varying = np.flatnonzero(np.fmax.reduce(rows, 0) > np.fmin.reduce(rows, 0))
    few = min(len(varying), columns)
    places = np.linspace(0, max(len(varying) - 1, 0), few).astype(int)
    return rows[:, varying[places]]


def _seconds_of_copy(copy, cells):
    """Measure a fit after a first one that loads modules; None if it fails."""
    _seconds_of_fit(clone(copy), cells[:, :_FEW])
    return _seconds_of_fit(clone(copy), cells)


def _seconds_of_fit(copy, cells):
    """Measure a fit; None if it fails."""
    begin = perf_counter()
    with warnings.catch_warnings(), heard_by(None):  # its rounds are not reported
        warnings.simplefilter("ignore")
        try:
            copy.fit(cells)
        except _FAILURES:
            return None
    return perf_counter() - begin
