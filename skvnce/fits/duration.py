"""Warnings before fits to many columns, or of many members, that take minutes.

A copy is fitted to some of the rows and columns.  The time of a fit grows with the
number of rows, and about with the square of the number of columns, because each column
is predicted from all others.

A nominal column has a latent variable for each level.  A sweep of Gibbs sampling
multiplies matrices of the size of their number: its time grows with the square of the
number of levels and the number of rows, and that of a draw of the covariance with the
cube of the former.
"""

import warnings
from math import ceil
from time import perf_counter

import numpy as np
import torch
from sklearn.base import clone

from skvnce._progress import heard_by, step
from skvnce._random import seeded
from skvnce._warnings import warn_user
from skvnce.algorithms.mixed import gibbs
from skvnce.algorithms.mixed.columns import NOMINAL
from skvnce.exceptions import DurationWarning

LONG = 60.0  # seconds
_MANY = 4  # columns for one of the copy: of fewer, its fit would take a large share
_COLUMNS, _ROWS = 50, 1000  # of the copy
MANY = 100  # levels below which no time is measured: it would be a large share
_SWEPT = 1000  # rows that are swept to measure the time
_FEW = 5  # columns of a first fit, whose time is partly that of loading modules
# parameters about columns that the copy may lack
OF_ALL_COLUMNS = {
    "missing_values": np.nan,
    "categorical_features": None,
    "min_value": None,
    "max_value": None,
}
# of a copy of few rows, which say nothing about the fit to all
_FAILURES = (ArithmeticError, RuntimeError, TypeError, ValueError)


def warn_of_duration(estimator, table, remedy, factor=1.0, columns=_COLUMNS, **changed):
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
    **changed : dict
        Parameters of the copy.  If it cannot be fitted, there is no warning: the fit
        will say why.

    Warns
    -----
    DurationWarning
    """
    # before any cell is read, because most tables are small
    if table.shape[1] < _MANY * columns:
        return
    if not (some := _some_cells(table, columns)).size:
        return
    with step("estimating the time of the fit"):
        if hasattr(estimator, "missing_values"):
            changed["missing_values"] = np.nan  # which marks missing cells of `table`
        copy = clone(estimator).set_params(verbose=0, **changed)
        seconds = _seconds_of_copy(copy, some)
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


def with_warning(name, members, count):
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
    # constant columns in these rows would be left out of the fit
    varying = np.flatnonzero(np.fmax.reduce(rows, 0) > np.fmin.reduce(rows, 0))
    few = min(len(varying), columns)
    places = np.linspace(0, max(len(varying) - 1, 0), few).astype(int)
    return rows[:, varying[places]]


def _seconds_of_copy(copy, cells):
    """Measure a fit after a first one that loads modules; None if it fails."""
    # its time is not used
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


def columns_of_many_levels(names, kinds, sizes):
    """Choose the nominal columns whose sweeps may take long; a dict, as below.

    Parameters
    ----------
    names, kinds, sizes : sequence of length n_nodes
        Of the columns of a model, and the numbers of their levels.
    """
    return {
        name: size
        for name, kind, size in zip(names, kinds, sizes, strict=True)
        if kind == NOMINAL and size >= MANY
    }


def warn_of_many_levels(name, columns, n, seconds):
    """Warn if sweeps of columns of many levels will take more than a minute.

    Parameters
    ----------
    name : str
        Of the class whose fit begins.
    columns : dict of str to int
        Nominal columns of many levels, and the numbers of their levels.
    n : int
        Number of rows that are swept.
    seconds : float

    Warns
    -----
    DurationWarning
    """
    if seconds > LONG:
        listed = ", ".join(f"{one!r} has {k:,} levels" for one, k in columns.items())
        warn_user(
            f"{name}.fit to {n:,} rows will take about {in_words(seconds)}, because "
            f"each level of a nominal column has a latent variable: {listed}. Merge "
            "rare levels, or leave such a column out of the model by "
            'categorical_features={column: "passthrough"}.',
            DurationWarning,
        )


def seconds_of_sweep(latents, data, weights, n):
    """Estimate the time of a Gibbs sweep of n rows, from sweeps of one and of 1000.

    The global stream of random numbers stays as it was.

    Parameters
    ----------
    latents : Latents
    data : Incomplete
    weights : Tensor of shape (n_rows,)
    n : int

    Returns
    -------
    float
    """
    some = torch.arange(0, len(weights), ceil(len(weights) / _SWEPT))
    with step("estimating the time of the fit"), seeded(0), heard_by(None):
        parameters, together = (
            _measured(latents, data.take(rows), weights[rows])
            # the time that one row takes is that of drawing the parameters
            for rows in (some[:1], some)
        )
    return parameters + max(together - parameters, 0.0) * n / len(some)


def _measured(latents, data, weights):
    """Measure the second sweep of a chain."""
    ends = []

    def on_round(number, loss, change):
        ends.append(perf_counter())
        return number == 2

    stopping = {"n_draws": 1, "max_iter": 3, "on_round": on_round}
    gibbs.posterior_draws(latents, data, weights, float(latents.size), **stopping)
    # without what precedes the first sweep
    return ends[1] - ends[0]
